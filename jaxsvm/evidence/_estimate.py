"""The result of every method that estimates the log evidence."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..sampling import Setup
from ..validation import check_count


class Path(eqx.Module):
    """From the prior (`temperature` 0) to the posterior (`temperature` 1), with a row for each chain or run.

    `log_partition` is `ln Z(t) = ln int db N(b; 0, I) exp(-t sum_i w_i L_i)`, and `mean_loss` is minus its
    slope, `<sum_i w_i L_i>_t`. For a loss that is linear in C, such as the hinge, temperature t is the
    posterior with the penalty `t C`. (`TemperedSMC` takes another path for a loss with a wall.)
    """

    temperature: Float[Array, "runs steps"]
    mean_loss: Float[Array, "runs steps"]
    log_partition: Float[Array, "runs steps"]


class LogEvidence(eqx.Module):
    """The log evidence `ln Q(Y|X)` in nats, and how far it can be trusted.

    `standard_error` is the standard error of `value`, from the `estimates` of each chain or run.
    `path` has the partition function at all temperatures, `diagnostics` (`ThermodynamicDiagnostics`,
    `TemperedDiagnostics` or `BridgeDiagnostics`) the quality of the chains or particles. `problems` say what
    is wrong and what to do about it; empty if nothing is wrong.
    """

    value: Float[Array, ""]
    standard_error: Float[Array, ""]
    estimates: Float[Array, " runs"]
    path: Path
    diagnostics: Any
    problems: tuple[str, ...] = eqx.field(static=True)


def as_log_evidence(
    setup: Setup,
    *,
    log_partition: float,
    standard_error: float,
    estimates: np.ndarray,
    path: Path,
    diagnostics: Any,
    problems: list[str],
) -> LogEvidence:
    """The log evidence from `ln Z(1)` and its estimates: the normalizer of the losses is added."""
    dtype = setup.y.dtype
    normalizer = float(jnp.sum(setup.weights) * setup.model.loss.log_normalizer())
    return LogEvidence(
        value=jnp.asarray(log_partition + normalizer, dtype),
        standard_error=jnp.asarray(standard_error, dtype),
        estimates=jnp.asarray(estimates + normalizer, dtype),
        path=path,
        diagnostics=diagnostics,
        problems=tuple(problems),
    )


def check_counts(options: Any, **least: int) -> None:
    """Raise unless each named attribute is an integer of at least the number given."""
    for name, bound in least.items():
        check_count(name, getattr(options, name), bound)

"""The value of the log evidence: `log_evidence`."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fit import as_data
from .._machine import KernelMachine
from .._parameters import unfreeze
from ..approximations import AbstractApproximation, Exact, require_approximation
from ..runtime import warn_user
from ..sampling import SamplingWarning, Setup, check_sampler
from ._estimate import Path
from ._tempered import TemperedDiagnostics, TemperedSMC, temper
from ._thermodynamic import Thermodynamic, ThermodynamicDiagnostics, integrate

_METHODS = {"thermodynamic": Thermodynamic, "smc": TemperedSMC}


class LogEvidence(eqx.Module):
    """The log evidence `ln Q(Y|X)` in nats, and how far it can be trusted.

    `standard_error` is that of `value`, over the independent `estimates` of each chain or run. `path` tells
    how the partition function came about, `diagnostics` how the chains or particles moved, and `problems`
    in words what is wrong with them; empty if nothing is.
    """

    value: Float[Array, ""]
    standard_error: Float[Array, ""]
    estimates: Float[Array, " runs"]
    path: Path
    diagnostics: ThermodynamicDiagnostics | TemperedDiagnostics
    problems: tuple[str, ...] = eqx.field(static=True)


def log_evidence(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    key: Any,
    approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
    method: str | Thermodynamic | TemperedSMC = "thermodynamic",
    weights: Any = None,
    progress: bool | None = None,
) -> LogEvidence:
    """The log evidence `ln Q(Y|X) = ln int db N(b; 0, I) exp(sum_i w_i ln Q(y_i | (V b)_i))`, by sampling.

    With `ln Q(y | f) = log_normalizer - L(y, f)` and `V V' = K` it is exact but for a standard error, where
    `criteria.LaplaceEvidence` approximates its negative. For the `Quadratic` loss it is the marginal
    likelihood of Gaussian process regression. [GS03, sec. 2.2], where only its gradients are computed.

    **Arguments:**

    - `model`, `x`, `y`, `weights`, `key`, `approximation`, `progress`: as for `jaxsvm.sample`.
    - `method`: `"thermodynamic"` or `"smc"`, or `evidence.Thermodynamic(...)` or `evidence.TemperedSMC(...)`
      with options. Thermodynamic integration has no bias but that of its rule, which it reports; it needs
      a loss that is finite everywhere. Sequential Monte Carlo finds the temperatures by itself, took half
      the time for the same precision in trials with 50 and 400 examples, and is for losses with a wall; but
      with too few particles its runs disagree, and that is the only sign of an error.

    **Returns:** a `LogEvidence`. A `SamplingWarning` says what is wrong with it, if anything is, as do its
    `problems`: among others a low rank that loses more than 1 % of the prior's variance.

    **Example:**

    >>> evidence = jsvm.log_evidence(model, x, y, key=jax.random.key(1))
    >>> bool(evidence.value < 0), bool(evidence.standard_error < 0.5)
    (True, True)
    """
    x, y, weights = as_data(model, x, y, weights)
    options = _as_method(method)
    check_sampler(model, options.sampler)
    require_approximation(approximation)
    unfreeze(model).loss.require_normalizer()
    mark_key, run_key = jax.random.split(key)
    subspace = approximation.subspace(model, x, mark_key)
    setup = Setup(unfreeze(model), x, y, weights, subspace)
    found = estimate_evidence(setup, options, run_key, progress)
    if found.problems:
        warn_user(
            "the log evidence should not be trusted as it is: " + ". ".join(found.problems),
            SamplingWarning,
        )
    return found


def estimate_evidence(
    setup: Setup,
    options: Thermodynamic | TemperedSMC,
    key: Any,
    progress: bool | None,
) -> LogEvidence:
    """The log evidence without a warning: what is wrong is in its `problems` alone."""
    if isinstance(options, Thermodynamic):
        estimate = integrate(setup, options, key, progress)
    else:
        estimate = temper(setup, options, key, progress)
    y = setup.y
    constant = float(jnp.sum(setup.weights) * setup.model.loss.log_normalizer())
    return LogEvidence(
        jnp.asarray(estimate.value + constant, y.dtype),
        jnp.asarray(estimate.standard_error, y.dtype),
        jnp.asarray(estimate.values + constant, y.dtype),
        estimate.path,
        estimate.diagnostics,
        tuple(estimate.problems),
    )


def _as_method(method: Any) -> Thermodynamic | TemperedSMC:
    if isinstance(method, Thermodynamic | TemperedSMC):
        return method
    if isinstance(method, str) and method in _METHODS:
        return _METHODS[method]()
    raise ValueError(
        f"`method` must be one of {tuple(_METHODS)}, or `evidence.Thermodynamic(...)` or "
        f"`evidence.TemperedSMC(...)`, not {method!r}"
    )

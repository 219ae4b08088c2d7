"""What all ways to estimate the evidence have in common."""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..validation import check_count


class Path(eqx.Module):
    """From the prior (`temperature` 0) to the posterior (`temperature` 1), a row for each chain or run.

    `log_partition` is `ln Z(t) = ln int db N(b; 0, I) exp(-t sum_i w_i L_i)` and `mean_loss` its slope but
    for the sign, `<sum_i w_i L_i>_t`. For a loss that is linear in C, such as the hinge, temperature t is
    the posterior with the penalty `t C`. (By `TemperedSMC` for a loss with a wall it is another path,
    see there.)
    """

    temperature: Float[Array, "runs steps"]
    mean_loss: Float[Array, "runs steps"]
    log_partition: Float[Array, "runs steps"]


class Estimate(NamedTuple):
    """`ln Z(1)` with its standard error, the values of independent runs, and what is wrong, in words."""

    value: float
    standard_error: float
    values: np.ndarray
    path: Path
    diagnostics: Any
    problems: list[str]


def standard_error(values: np.ndarray) -> float:
    """That of the mean of independent values."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def check_counts(options: Any, **least: int) -> None:
    """Raise unless these attributes are integers, each at least as large as the number given."""
    for name, bound in least.items():
        check_count(name, getattr(options, name), bound)

"""Square roots, means and standard deviations that are safe at zero and do not overflow or underflow."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_ROUNDING = 4 * float(np.finfo(float).eps)  # relative to the mean


def safe_root(squared: Float[Array, "..."]) -> Float[Array, "..."]:
    """The square root; zero, with zero derivative, where the argument is zero or negative from rounding.

    NaN stays NaN.

    **Arguments:** `squared`, an array.

    **Returns:** an array of the same shape.
    """
    vanishes = squared <= 0
    return jnp.where(vanishes, 0.0, jnp.sqrt(jnp.where(vanishes, 1.0, squared)))


def mean_and_deviation(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted means and standard deviations of columns, in double precision.

    Differences from the first row are divided by the largest, so that no square overflows or underflows and
    equal numbers have a deviation of exactly zero.

    **Arguments:** `values`, a vector or a matrix; `weights`, one for each row, at least one of them positive.

    **Returns:** two numbers, or two vectors with an entry for each column; not finite if the differences
    are not.
    """
    counts = weights > 0
    values, shares = values[counts], weights[counts] / weights[counts].sum()
    with np.errstate(over="ignore", invalid="ignore"):
        differences = values - values[0]
        unit = np.abs(differences).max(axis=0)
        unit = np.where(unit > 0, unit, 1.0)
        scaled = differences / unit
        shift = shares @ scaled
        deviation = unit * np.sqrt(shares @ (scaled - shift) ** 2)
        return values[0] + unit * shift, deviation


def is_rounding(mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Whether numbers with this mean and standard deviation differ only by rounding errors.

    **Arguments:** `mean` and `deviation`, as from `mean_and_deviation`.

    **Returns:** a truth value for each column.
    """
    return deviation <= _ROUNDING * np.abs(mean)

"""Means and standard deviations of numbers of any size."""

import numpy as np

_ROUNDING = 4 * float(np.finfo(float).eps)  # relative to the mean


def mean_and_deviation(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted means and standard deviations of columns, in double precision.

    Differences from the first row are taken in units of the largest, so that no square overflows or
    underflows, and so that equal numbers have a deviation of exactly zero.

    **Arguments:** `values`, a vector or a matrix; `weights`, one for each row, of which some are positive.

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
    """Whether numbers with that mean and standard deviation differ by no more than rounding does."""
    return deviation <= _ROUNDING * np.abs(mean)

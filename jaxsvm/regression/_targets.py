"""Where targets lie and how far they spread, and whether numbers of their precision can tell."""

import warnings
from typing import Any

import numpy as np

# The covariance of targets far from zero is their squared mean, plus what matters. Its rounding error acts
# like noise, whose standard deviation should be well below that of the targets.
_NOTICED = 1e-2
_HOPELESS = 1e-1


def center_and_scale(targets: Any, weights: Any) -> tuple[float, float]:
    """Mean and standard deviation of targets; an error where all of them are the same.

    **Arguments:** `targets`, one for each example; `weights`, how often each counts.

    **Returns:** two numbers, computed in double precision whatever that of the targets.
    """
    values, shares = np.asarray(targets, np.float64), np.asarray(weights, np.float64)
    shares = shares / shares.sum()
    with np.errstate(over="ignore", invalid="ignore"):  # the error below tells of it
        center = float(shares @ values)
        scale = float(np.sqrt(shares @ (values - center) ** 2))
    if not np.isfinite(scale):
        raise ValueError("the targets are too large: their variance is not a finite number")
    if not scale > 1e-12 * abs(
        center
    ):  # the mean of equal numbers may differ from them by rounding
        raise ValueError(
            "all targets are the same: there is no function to learn; give at least two different ones"
        )
    return center, scale


def require_resolution(center: float, scale: float, dtype: Any) -> None:
    """Warn of targets so far from zero that rounding hides how they differ; an error if it hides all.

    **Arguments:** `center`, `scale`, their mean and standard deviation; `dtype`, their type.
    """
    resolution = float(np.finfo(dtype).eps)
    noise = resolution**0.5 * abs(center) / scale
    if noise <= _NOTICED:
        return
    message = (
        f"the mean of the targets, {center:.4g}, is {abs(center) / scale:.3g} times their standard "
        f"deviation, {scale:.4g}: rounding in {np.dtype(dtype).name} acts like noise of {noise:.0%} of "
        "that; center them (`y - y.mean()`) and add the mean to predictions"
    )
    if noise > _HOPELESS:
        raise ValueError(message)
    warnings.warn(message, stacklevel=3)

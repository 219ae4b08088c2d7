"""Where targets lie and how far they spread, and whether numbers of their precision can tell."""

from typing import Any

import numpy as np

from .._moments import is_rounding, mean_and_deviation

# The covariance of targets far from zero is their squared mean, plus what matters. Its rounding error acts
# like noise, whose standard deviation should be well below that of the targets.
_HIDDEN, _HIDDEN_IN_SINGLE = 1e-3, 1e-2


def center_and_scale(targets: Any, weights: Any) -> tuple[float, float]:
    """Mean and standard deviation of targets; an error where all of them are the same.

    **Arguments:** `targets`, one for each example; `weights`, how often each counts.

    **Returns:** two numbers, computed in double precision whatever that of the targets.
    """
    values, counts = np.asarray(targets, np.float64), np.asarray(weights, np.float64)
    center, scale = map(float, mean_and_deviation(values, counts))
    if not np.isfinite(scale * scale):
        raise ValueError("the targets are too large: their variance is not a finite number")
    if scale == 0:
        raise ValueError(
            "all targets are the same: there is no function to learn; give at least two different ones"
        )
    if is_rounding(np.array(center), np.array(scale)):
        raise ValueError(
            f"the targets differ by no more than rounding, with a standard deviation of {scale:.3g} around "
            f"{center:.6g}: subtract a common number before they are rounded"
        )
    return center, scale


def require_resolution(center: float, scale: float, dtype: Any) -> None:
    """Refuse targets so far from zero that rounding would hide whether a fit is one.

    Targets whose variance the type cannot hold are an error as well.

    **Arguments:** `center`, `scale`, their mean and standard deviation; `dtype`, their type.
    """
    variance, limits = scale * scale, np.finfo(dtype)
    if not limits.tiny <= variance <= limits.max:
        size = "small" if variance < 1 else "large"
        raise ValueError(
            f"the targets are too {size} for {np.dtype(dtype).name}, with a standard deviation of "
            f"{scale:.3g}: change their unit, so that it is about one"
        )
    noise = float(limits.eps) ** 0.5 * abs(center) / scale
    if noise > (_HIDDEN if limits.eps < 1e-10 else _HIDDEN_IN_SINGLE):
        raise ValueError(
            f"the mean of the targets, {center:.4g}, is {abs(center) / scale:.3g} times their standard "
            f"deviation, {scale:.4g}: rounding in {np.dtype(dtype).name} acts like noise of "
            f"{100 * noise:.2g}% of that; center them (`y - y.mean()`) and add the mean to predictions"
        )

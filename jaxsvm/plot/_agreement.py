"""Targets beside what was predicted of them."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ._figure import one_axes


def agreement(y: Any, mean: Any, deviation: Any = None, *, ax: Any = None) -> Axes:
    """Draw targets over their predicted means; on the line, predictions are right.

    For predictions of any origin, such as `BayesianSVR().predict(X, return_std=True)`.

    **Arguments:**

    - `y`: targets.
    - `mean`: one prediction for each target.
    - `deviation`: the standard deviation of each prediction, drawn as a bar, or None.
    - `ax`: Axes to draw in; by default those of a new figure.

    **Returns:** the Axes.
    """
    y, mean = (np.asarray(values, float).ravel() for values in (y, mean))
    if y.shape != mean.shape or not y.size:
        raise ValueError(f"there are {y.size} targets, but {mean.size} predictions in `mean`")
    bars = None if deviation is None else np.broadcast_to(np.asarray(deviation, float), y.shape)
    ax = one_axes(ax, (5.0, 5.0))
    ax.errorbar(
        mean, y, xerr=bars, fmt="o", color="C0", markersize=3, alpha=0.5, elinewidth=0.5, zorder=2
    )
    ends = [min(mean.min(), y.min()), max(mean.max(), y.max())]
    ax.plot(ends, ends, color="0.6", linestyle="--", linewidth=1, zorder=1)
    ax.set(xlabel="predicted" + ("" if bars is None else ", ± one standard deviation"))
    ax.set(ylabel="target")
    return ax

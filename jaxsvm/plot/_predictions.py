"""Predictions of regressions: means, error bars and intervals, beside the targets."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..calibration import as_posterior
from ..posteriors import AbstractPosterior, Examples, LaplacePosterior
from ._figure import one_axes, points_or, widened

_MARGIN = 0.05  # around the points, as a share of their range
_RESOLUTION = 300
_COLOR = "C0"  # of predictions
_DOTS = {"edgecolor": "white", "linewidth": 0.5, "zorder": 3}


def predictions(
    posterior: AbstractPosterior,
    x: Any = None,
    y: Any = None,
    *,
    level: float = 0.95,
    ax: Any = None,
) -> Axes:
    """Draw the predictions of a regression with error bars, and the targets.

    With one input, it draws the mean as a line over the range of the points, a band of two standard
    deviations of the latent function, a band of intervals for targets, and the examples. Those of a
    `LaplacePosterior` are marked as free (off-bound) support vectors, bound (on-bound) ones, and others.

    With several inputs, it draws the points in their given order, each with its mean and the interval for
    its target, and the targets as a line, as in [CKO04, Fig. 5].

    **Arguments:**

    - `posterior`: the posterior of a regression, from `jaxsvm.laplace` or `jaxsvm.sample`.
    - `x`, `y`: points, one row each, and optionally their targets; by default the training data.
    - `level`: the probability of the intervals.
    - `ax`: the Axes to draw in; by default, those of a new figure.

    **Returns:** the Axes.
    """
    data = as_posterior(posterior).examples
    points, targets = points_or(data, x, y, labels=False)
    if points.shape[1] > 1:
        return _in_order(posterior, points, targets, level, ax)
    if targets is not None and _are_examples(data, points, targets):
        targets = None  # examples are drawn anyway
    return _along_input(posterior, data, points, targets, level, ax)


def _are_examples(data: Examples, points: np.ndarray, targets: np.ndarray) -> bool:
    x, y = np.asarray(data.x), np.asarray(data.y)
    return np.array_equal(points.astype(x.dtype), x) and np.array_equal(targets.astype(y.dtype), y)


def _along_input(posterior, data, points, targets, level, ax) -> Axes:
    grid = np.linspace(*widened(points, _MARGIN), _RESOLUTION)
    mean, deviation = (np.asarray(row) for row in posterior.latent(grid[:, None]))
    ends = [np.asarray(row) for row in posterior.interval(grid[:, None], level)]

    ax = one_axes(ax, (5.8, 3.8))
    bands = (
        (*ends, 0.15, _interval_label(level)),
        (mean - 2 * deviation, mean + 2 * deviation, 0.3, "latent ± 2 deviations"),
    )
    for lower, upper, alpha, label in bands:
        ax.fill_between(
            grid, lower, upper, color=_COLOR, alpha=alpha, linewidth=0, label=label, zorder=1
        )
    ax.plot(grid, mean, color=_COLOR, linewidth=1.6, label="mean", zorder=2)
    if targets is not None:
        ax.scatter(points[:, 0], targets, s=8, color="C1", alpha=0.7, label="targets", zorder=2)
    _draw_examples(ax, data, posterior)
    ax.set(xlim=(grid[0], grid[-1]), xlabel="input", ylabel="target")
    ax.legend(fontsize="small")
    return ax


def _draw_examples(ax: Axes, data: Examples, posterior: AbstractPosterior) -> None:
    used = np.asarray(data.weights) > 0
    x, y = np.asarray(data.x)[used, 0], np.asarray(data.y)[used]
    groups: dict[str, tuple[np.ndarray, dict[str, Any]]] = {}
    if isinstance(posterior, LaplacePosterior):
        free = np.asarray(posterior.fit.free)[used]
        bound = np.asarray(posterior.fit.bound)[used]
        if not free.all():  # otherwise there is only one group
            groups = {
                "free support vector": (free, {"s": 26, "color": "black"}),
                "bound support vector": (bound, {"s": 26, "color": "C3", "marker": "D"}),
                "other example": (~(free | bound), {"s": 14, "color": "0.55"}),
            }
    if not groups:
        groups = {"example": (np.ones(len(x), bool), {"s": 18, "color": "black"})}
    for label, (group, style) in groups.items():
        if group.any():
            ax.scatter(x[group], y[group], label=label, **style, **_DOTS)


def _in_order(posterior, points, targets, level, ax) -> Axes:
    mean = np.asarray(posterior.decision(points))
    low, high = (np.asarray(row) for row in posterior.interval(points, level))
    numbers = np.arange(len(mean))
    ax = one_axes(ax, (7.0, 3.4))
    ax.vlines(
        numbers, low, high, color=_COLOR, alpha=0.45, linewidth=1.2, label=_interval_label(level)
    )
    if targets is not None:
        ax.plot(numbers, targets, color="0.2", linewidth=1, label="targets", zorder=2)
    ax.plot(numbers, mean, "o", color=_COLOR, markersize=3, label="mean", zorder=3)
    ax.margins(x=0.02)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="point", ylabel="target")
    ax.legend(fontsize="small")
    return ax


def _interval_label(level: float) -> str:
    return f"{100 * level:g}% of targets"


def agreement(y: Any, mean: Any, deviation: Any = None, *, ax: Any = None) -> Axes:
    """Draw targets over their predicted means; points on the diagonal are predicted exactly.

    The predictions may come from anywhere, for example `BayesianSVR().predict(X, return_std=True)`.

    **Arguments:**

    - `y`: the targets.
    - `mean`: one prediction for each target.
    - `deviation`: the standard deviation of each prediction, drawn as an error bar, or None.
    - `ax`: the Axes to draw in; by default, those of a new figure.

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

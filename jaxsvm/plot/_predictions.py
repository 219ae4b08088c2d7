"""What a regression predicts: means, error bars of the latent function, intervals of targets."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..calibration import as_posterior
from ..posteriors import AbstractPosterior, Examples, LaplacePosterior
from ._figure import one_axes, points_or, widened

_MARGIN = 0.05  # of the range of the points, around them
_RESOLUTION = 300
_COLOR = "C0"  # of all that is predicted
_DOTS = {"edgecolor": "white", "linewidth": 0.5, "zorder": 3}


def predictions(
    posterior: AbstractPosterior,
    x: Any = None,
    y: Any = None,
    *,
    level: float = 0.95,
    ax: Any = None,
) -> Axes:
    """Draw what a regression predicts, with error bars, beside the targets.

    Of a single input: the mean as a line over the range of the points, a band of two standard deviations of
    the latent function, and a band of the intervals that hold targets; the examples too, and those of a
    `LaplacePosterior` by their groups: free (off-bound) and bound (on-bound) support vectors, and others.

    Of several inputs: the points in the order given, each with its mean and the interval of its target,
    and the targets as a line; as Fig. 5 of [CKO04].

    **Arguments:**

    - `posterior`: of a regression, what `jaxsvm.laplace` or `jaxsvm.sample` gave back.
    - `x`, `y`: points, one row each, and their targets if they have any; by default the training data.
    - `level`: the probability with which an interval holds its target.
    - `ax`: Axes to draw in; by default those of a new figure.

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
    known = (np.asarray(data.x), np.asarray(data.y))
    given = (points.astype(known[0].dtype), targets.astype(known[1].dtype))
    return all(np.array_equal(a, b) for a, b in zip(given, known, strict=True))


def _along_input(posterior, data, points, targets, level, ax) -> Axes:
    grid = np.linspace(*widened(points, _MARGIN), _RESOLUTION)
    mean, deviation = (np.asarray(row) for row in posterior.latent(grid[:, None]))
    ends = [np.asarray(row) for row in posterior.interval(grid[:, None], level)]

    ax = one_axes(ax, (5.8, 3.8))
    bands = (
        (*ends, 0.15, _name(level)),
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
    counts = np.asarray(data.weights) > 0  # the others are as good as absent
    x, y = np.asarray(data.x)[counts, 0], np.asarray(data.y)[counts]
    groups: dict[str, tuple[np.ndarray, dict[str, Any]]] = {}
    if isinstance(posterior, LaplacePosterior):
        free = np.asarray(posterior.fit.free)[counts]
        bound = np.asarray(posterior.fit.bound)[counts]
        if not free.all():  # else the groups would tell nothing
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
    ax.vlines(numbers, low, high, color=_COLOR, alpha=0.45, linewidth=1.2, label=_name(level))
    if targets is not None:
        ax.plot(numbers, targets, color="0.2", linewidth=1, label="targets", zorder=2)
    ax.plot(numbers, mean, "o", color=_COLOR, markersize=3, label="mean", zorder=3)
    ax.margins(x=0.02)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="point", ylabel="target")
    ax.legend(fontsize="small")
    return ax


def _name(level: float) -> str:
    return f"{100 * level:g}% of targets"

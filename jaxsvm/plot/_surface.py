"""The decision function of a classifier over two of its inputs."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .. import Fit
from ..posteriors import AbstractPredictor
from ..validation import check_count
from ._figure import as_index, one_axes, points_or, widened

_MARGIN = 0.08  # around the points, as a share of their range
_BLOCK = 2_000_000  # entries of a kernel matrix to hold at a time
_LEVELS = {-1.0: "\N{MINUS SIGN}1", 0.0: "0", 1.0: "+1"}
_COLORS = {-1: "#2166ac", 1: "#b2182b"}  # the ends of the color map of the surface


def decision_surface(
    fit: AbstractPredictor,
    x: Any = None,
    y: Any = None,
    inputs: tuple[int, int] = (0, 1),
    resolution: int = 100,
    *,
    ax: Any = None,
) -> Axes:
    """Draw the decision function of a classifier over two inputs, with its contours at -1, 0 and +1.

    Other inputs are fixed at their mean over the points. The free and bound support vectors of a `Fit` are
    marked, unless all examples are free, as with a least-squares loss.

    **Arguments:**

    - `fit`: a `Fit`, an `Ensemble`, or a posterior, whose mean is drawn.
    - `x`, `y`: the points to draw, and optionally their labels; by default the training data.
    - `inputs`: the numbers of the two inputs to draw.
    - `resolution`: the number of grid points in each direction.
    - `ax`: the Axes to draw in; by default, those of a new figure.

    **Returns:** the Axes.
    """
    if not isinstance(fit, AbstractPredictor):
        raise TypeError(
            f"`fit` must be a posterior, a Fit or an Ensemble, not {type(fit).__name__}"
        )
    if not fit.loss.is_classifier:
        raise ValueError("the machine is a regression: a decision surface needs a classifier")
    check_count("resolution", resolution, least=2)
    points, labels = points_or(fit.examples, x, y, labels=True)
    if points.shape[1] != fit.examples.x.shape[1]:
        raise ValueError(
            f"the machine was fitted on {fit.examples.x.shape[1]} inputs, but `x` has {points.shape[1]}"
        )
    across, up = _inputs(inputs, points.shape[1])

    ranges = [widened(points[:, i], _MARGIN) for i in (across, up)]
    ticks = [np.linspace(low, high, resolution) for low, high in ranges]
    grid = np.tile(points.mean(axis=0), (resolution**2, 1))
    grid[:, across], grid[:, up] = (g.ravel() for g in np.meshgrid(*ticks))
    heights = _decision(fit, grid, len(fit.examples.x)).reshape(resolution, resolution)
    if not np.isfinite(heights).all():
        raise ValueError(
            "the decision function is not finite, because the fit failed: see its `result`"
        )

    ax = one_axes(ax, (5.4, 4.4))
    _draw_heights(ax, ticks, heights)
    _draw_points(ax, points[:, [across, up]], labels)
    if x is None and isinstance(fit, Fit):
        _mark_support(ax, points[:, [across, up]], fit)
    ax.set(xlabel=f"input {across}", ylabel=f"input {up}", xlim=ranges[0], ylim=ranges[1])
    ax.legend(fontsize="small")
    return ax


def _inputs(inputs, count: int) -> tuple[int, int]:
    if count < 2:
        raise ValueError("the machine has only one input, but a surface needs two")
    if isinstance(inputs, str) or len(tuple(inputs)) != 2:
        raise ValueError(f"`inputs` must be the numbers of two inputs, but is {inputs!r}")
    across, up = (as_index(i, count, "inputs", "an input") for i in inputs)
    if across == up:
        raise ValueError(f"`inputs` must be two different inputs, but is {inputs!r}")
    return across, up


def _decision(fit: AbstractPredictor, grid: np.ndarray, examples: int) -> np.ndarray:
    """The decision function, in blocks: the kernel matrix of the whole grid may not fit in memory."""
    size = max(_BLOCK // examples, 1)
    blocks = (grid[i : i + size] for i in range(0, len(grid), size))
    return np.concatenate([np.asarray(fit.decision(block)) for block in blocks])


def _draw_heights(ax: Axes, ticks, heights: np.ndarray) -> None:
    largest = float(np.abs(heights).max()) or 1.0
    levels = np.linspace(-largest, largest, 21)
    # symmetric, so that white is the decision boundary
    ax.contourf(*ticks, heights, levels, cmap="RdBu_r", alpha=0.55)
    inside = [level for level in _LEVELS if heights.min() < level < heights.max()]
    if inside:
        styles = ["solid" if level == 0 else "dashed" for level in inside]
        lines = ax.contour(*ticks, heights, inside, colors="0.15", linewidths=1, linestyles=styles)
        ax.clabel(lines, fmt=_LEVELS, fontsize="small")


def _draw_points(ax: Axes, points: np.ndarray, labels: np.ndarray | None) -> None:
    if labels is None:
        ax.scatter(*points.T, s=16, color="0.3", edgecolor="white", linewidth=0.5, label="points")
        return
    for label, marker in ((1, "o"), (-1, "s")):
        ax.scatter(
            *points[labels == label].T,
            s=16,
            color=_COLORS[label],
            edgecolor="white",
            linewidth=0.5,
            marker=marker,
            label=f"class {_LEVELS[label]}",
        )


def _mark_support(ax: Axes, points: np.ndarray, fit: Fit) -> None:
    groups = {"free": np.asarray(fit.free), "bound": np.asarray(fit.bound)}
    if groups["free"].all():  # marking every point would be useless
        return
    for (name, group), marker in zip(groups.items(), ("o", "D"), strict=True):
        if group.any():
            ax.scatter(
                *points[group].T,
                s=60,
                marker=marker,
                facecolor="none",
                edgecolor="black",
                linewidth=0.8,
                label=f"{name} support vector",
            )

"""What plots share: Axes of the user or of a new figure, and checks of what is drawn."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from ..validation import as_inputs, as_targets, plain


def one_axes(ax: Any, size: tuple[float, float] = (5.0, 3.6)) -> Axes:
    """The Axes given, or those of a new figure."""
    if ax is None:
        return pyplot.subplots(figsize=size, layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise TypeError(f"`ax` must be the Axes to draw in, or None, not {type(ax).__name__}")
    return ax


def unit_axes(ax: Any, x_label: str, y_label: str) -> Axes:
    """Axes for two shares, with the line on which they are the same."""
    ax = one_axes(ax, (4.6, 4.4))
    ax.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, zorder=1)
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel=x_label, ylabel=y_label)
    return ax


def many_axes(
    axes: Any, titles: list[str], columns: int, size: tuple[float, float], share_x: bool = False
) -> np.ndarray:
    """As many Axes as there are titles: those given, or a new figure with panels of this size."""
    count = len(titles)
    if axes is None:
        columns = min(columns, count)
        rows = -(-count // columns)
        figure, grid = pyplot.subplots(
            rows,
            columns,
            figsize=(size[0] * columns, size[1] * rows),
            layout="constrained",
            sharex=share_x,
            squeeze=False,
        )
        for spare in grid.flat[count:]:
            figure.delaxes(spare)
        return grid.ravel()[:count]
    given = np.array(axes, dtype=object).ravel()
    if not all(isinstance(ax, Axes) for ax in given):
        raise TypeError("`axes` must be the Axes to draw in, one for each panel, or None")
    if len(given) != count:
        raise ValueError(
            f"`axes` has {len(given)} Axes, but there are {count} panels: {', '.join(titles)}"
        )
    return given


def as_place(value: Any, count: int, name: str, of_what: str) -> int:
    """One of the numbers 0 to `count` - 1."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (whole and 0 <= value < count):
        raise ValueError(
            f"`{name}` must be the number of {of_what}, from 0 to {count - 1}, but is {plain(value)!r}"
        )
    return int(value)


def require(value: Any, kind: type, name: str, source: str) -> None:
    """Raise unless an argument is what a function of this library gives back."""
    if not isinstance(value, kind):
        raise TypeError(f"`{name}` must be the outcome of `{source}`, not a {type(value).__name__}")


def by_name(value: Any, name: str) -> dict[str, Any]:
    """The entries of a mapping, or one alone, without a name."""
    entries = value if isinstance(value, Mapping) else {"": value}
    if not entries:
        raise ValueError(f"`{name}` is empty: there is nothing to draw")
    return {str(label): entry for label, entry in entries.items()}


def points_or(examples: Any, x: Any, y: Any, *, labels: bool) -> tuple[np.ndarray, Any]:
    """The points and targets to draw, the latter None where there are none.

    **Arguments:** `examples`, with `x` and `y`, which are drawn by default, or None; `x`, `y`, as the user
    gave them; `labels`, whether targets are labels.
    """
    if x is None:
        if y is not None:
            raise ValueError("`y` has no points: give `x` too")
        if examples is None:
            raise ValueError("the posterior holds no training data: give `x`")
        return np.asarray(examples.x), np.asarray(examples.y)
    points = np.asarray(as_inputs(x))
    return points, None if y is None else np.asarray(as_targets(y, len(points), labels=labels))


def widened(values: np.ndarray, share: float) -> tuple[float, float]:
    """The range of the values with a margin on both sides, a share of its length."""
    low, high = float(values.min()), float(values.max())
    margin = share * (high - low) or 1.0
    return low - margin, high + margin

"""What plots share: the Axes to draw in, and validation of what to draw."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from ..validation import as_inputs, as_targets, plain


def one_axes(ax: Any, size: tuple[float, float] = (5.0, 3.6)) -> Axes:
    """The user's Axes, or those of a new figure."""
    if ax is None:
        return pyplot.subplots(figsize=size, layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise TypeError(f"`ax` must be the Axes to draw in, or None, not {type(ax).__name__}")
    return ax


def many_axes(
    axes: Any, titles: list[str], columns: int, size: tuple[float, float], share_x: bool = False
) -> np.ndarray:
    """One Axes for each title: the user's, or those of a new figure with panels of this size."""
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
    panels = np.array(axes, dtype=object).ravel()
    if not all(isinstance(ax, Axes) for ax in panels):
        raise TypeError("`axes` must be the Axes to draw in, one for each panel, or None")
    if len(panels) != count:
        raise ValueError(
            f"`axes` has {len(panels)} Axes, but there are {count} panels: {', '.join(titles)}"
        )
    return panels


def as_index(value: Any, count: int, name: str, of_what: str) -> int:
    """An index from 0 to `count` - 1, validated."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (whole and 0 <= value < count):
        raise ValueError(
            f"`{name}` must be the number of {of_what}, from 0 to {count - 1}, but is {plain(value)!r}"
        )
    return int(value)


def require(value: Any, kind: type, name: str, source: str) -> None:
    """Raise unless an argument is the result of a function of this library, the `source`."""
    if not isinstance(value, kind):
        raise TypeError(f"`{name}` must be the result of `{source}`, not a {type(value).__name__}")


def by_name(value: Any, name: str) -> dict[str, Any]:
    """The entries of a mapping, or a single value under the empty name."""
    entries = value if isinstance(value, Mapping) else {"": value}
    if not entries:
        raise ValueError(f"`{name}` is empty: there is nothing to draw")
    return {str(label): entry for label, entry in entries.items()}


def points_or(examples: Any, x: Any, y: Any, *, labels: bool) -> tuple[np.ndarray, Any]:
    """The points to draw, and their targets or None.

    **Arguments:** `examples`, the training data, which are the default, or None; `x`, `y`, from the user;
    `labels`, whether targets are labels.
    """
    if x is None:
        if y is not None:
            raise ValueError("`y` needs the points `x` as well")
        if examples is None:
            raise ValueError("the posterior does not hold training data: pass `x`")
        return np.asarray(examples.x), np.asarray(examples.y)
    points = np.asarray(as_inputs(x))
    return points, None if y is None else np.asarray(as_targets(y, len(points), labels=labels))


def widened(values: np.ndarray, share: float) -> tuple[float, float]:
    """The range of the values, with a margin of this share of its length on both sides."""
    low, high = float(values.min()), float(values.max())
    margin = share * (high - low) or 1.0
    return low - margin, high + margin

"""Where plots are drawn: in the user's Axes, or in a new figure."""

from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from .._errors import plain


def one_axes(ax: Any, size: tuple[float, float] = (5.0, 3.6)) -> Axes:
    """The Axes given, or those of a new figure."""
    if ax is None:
        return pyplot.subplots(figsize=size, layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise TypeError(f"`ax` must be the Axes to draw in, or None, not {type(ax).__name__}")
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

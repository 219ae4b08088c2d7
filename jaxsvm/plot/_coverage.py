"""Coverage diagrams: how many targets intervals should hold, and how many they do."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from ..calibration import coverage as coverage_of
from ..posteriors import AbstractPosterior
from ._figure import by_name, unit_axes


def coverage(
    posterior: AbstractPosterior | Mapping[str, AbstractPosterior],
    x: Any,
    y: Any,
    *,
    levels: Any = None,
    ax: Any = None,
) -> Axes:
    """Draw the share of new targets inside the central interval of each level over that level.

    Points on the diagonal are well calibrated; above it error bars are too wide, below it too narrow. Bars
    are binomial standard errors. All points are of the same targets, so that neighbors move together.

    **Arguments:**

    - `posterior`: of a regression, what `jaxsvm.laplace` or `jaxsvm.sample` gave back, or a mapping such as
      `{"Laplace": a, "samples": b}` of several.
    - `x`, `y`: new points, one row each, and their targets.
    - `levels`: probabilities between zero and one; by default 0.05, 0.1, ..., 0.95.
    - `ax`: Axes to draw in; by default those of a new figure.

    **Returns:** the Axes.
    """
    named = by_name(posterior, "posterior")
    drawn = {name: coverage_of(one, x, y, levels) for name, one in named.items()}
    ax = unit_axes(ax, "level of the interval", "share of targets inside")
    for number, (name, table) in enumerate(drawn.items()):
        # a little apart, so that the bars of one do not hide those of another
        shift = 0.006 * (number - (len(drawn) - 1) / 2)
        ax.errorbar(
            table.levels + shift,
            table.shares,
            table.standard_errors,
            color=f"C{number}",
            linewidth=1.2,
            elinewidth=0.8,
            marker="o",
            markersize=4,
            label=name or None,
        )
    if any(drawn):
        ax.legend(fontsize="small", loc="upper left")
    return ax

"""Calibration diagrams: predicted probabilities and intervals against what was observed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .. import calibration
from ..posteriors import AbstractPosterior
from ._figure import by_name, one_axes


def reliability(y: Any, probabilities: Any, bins: int = 10, *, ax: Any = None) -> Axes:
    """Draw the frequency of the label +1 over its predicted probability, in bins of equal width.

    Points on the diagonal are well calibrated. The area of a point shows how many predictions its bin holds;
    error bars are binomial standard errors. The legend shows the expected calibration error (ECE).

    **Arguments:**

    - `y`: labels -1 and +1.
    - `probabilities`: predicted probabilities of +1, one for each label; or a mapping of several, such as
      `{"Laplace": p, "samples": q}`.
    - `bins`: the number of bins.
    - `ax`: the Axes to draw in; by default, those of a new figure.

    **Returns:** the Axes.
    """
    drawn = {
        name: (
            calibration.reliability(y, p, bins),
            calibration.expected_calibration_error(y, p, bins),
        )
        for name, p in by_name(probabilities, "probabilities").items()
    }
    ax = _diagonal_axes(ax, "predicted probability of +1", "frequency of +1")
    for number, (name, (table, error)) in enumerate(drawn.items()):
        full = table.counts > 0
        prediction, frequency, counts = (column[full] for column in table)
        color = f"C{number}"
        label = f"{name} (ECE {error:.3f})" if name else f"ECE {error:.3f}"
        # with Laplace's rule of succession: the plain standard error of a frequency of zero is zero
        smoothed = (frequency * counts + 1) / (counts + 2)
        bars = np.sqrt(smoothed * (1 - smoothed) / counts)
        ax.errorbar(prediction, frequency, bars, color=color, linewidth=1.2, elinewidth=0.8)
        areas = 12 + 150 * counts / counts.sum()
        ax.scatter(prediction, frequency, s=areas, color=color, label=label, zorder=3)
    ax.legend(fontsize="small", loc="upper left")
    return ax


def coverage(
    posterior: AbstractPosterior | Mapping[str, AbstractPosterior],
    x: Any,
    y: Any,
    *,
    levels: Any = None,
    ax: Any = None,
) -> Axes:
    """Draw the fraction of new targets inside the central interval of each level, over that level.

    Points on the diagonal are well calibrated; above it, intervals are too wide, below it too narrow. Error
    bars are binomial standard errors. All points use the same targets, so neighbors are correlated.

    **Arguments:**

    - `posterior`: the posterior of a regression, from `jaxsvm.laplace` or `jaxsvm.sample`; or a mapping of
      several, such as `{"Laplace": a, "samples": b}`.
    - `x`, `y`: new points, one row each, and their targets.
    - `levels`: probabilities between zero and one; by default 0.05, 0.1, ..., 0.95.
    - `ax`: the Axes to draw in; by default, those of a new figure.

    **Returns:** the Axes.
    """
    posteriors = by_name(posterior, "posterior")
    drawn = {name: calibration.coverage(one, x, y, levels) for name, one in posteriors.items()}
    ax = _diagonal_axes(ax, "level of the interval", "fraction of targets inside")
    for number, (name, table) in enumerate(drawn.items()):
        # a little apart, so that error bars do not hide each other
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


def _diagonal_axes(ax: Any, x_label: str, y_label: str) -> Axes:
    """Axes for two fractions, with the line on which they are equal."""
    ax = one_axes(ax, (4.6, 4.4))
    ax.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, zorder=1)
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel=x_label, ylabel=y_label)
    return ax

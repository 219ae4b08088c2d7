"""Reliability diagrams: what was predicted, and what happened."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..calibration import expected_calibration_error
from ..calibration import reliability as reliability_of
from ._figure import by_name, unit_axes


def reliability(y: Any, probabilities: Any, bins: int = 10, *, ax: Any = None) -> Axes:
    """Draw the frequency of the label +1 over its predicted probability, by bins of equal width.

    Points on the diagonal are well calibrated. Their areas show how many predictions a bin holds, and
    bars are binomial standard errors. The legend tells the expected calibration error.

    **Arguments:**

    - `y`: labels -1 and +1.
    - `probabilities`: predictions of +1, one for each label, or a mapping such as
      `{"Laplace": p, "samples": q}` of several.
    - `bins`: how many.
    - `ax`: Axes to draw in; by default those of a new figure.

    **Returns:** the Axes.
    """
    drawn = {
        name: (reliability_of(y, p, bins), expected_calibration_error(y, p, bins))
        for name, p in by_name(probabilities, "probabilities").items()
    }
    ax = unit_axes(ax, "predicted probability of +1", "frequency of +1")
    for number, (name, (table, error)) in enumerate(drawn.items()):
        full = table.counts > 0
        prediction, frequency, counts = (column[full] for column in table)
        color = f"C{number}"
        label = f"{name} (ECE {error:.3f})" if name else f"ECE {error:.3f}"
        # of Laplace's rule of succession, since the plain error of a frequency of zero is zero
        smoothed = (frequency * counts + 1) / (counts + 2)
        bars = np.sqrt(smoothed * (1 - smoothed) / counts)
        ax.errorbar(prediction, frequency, bars, color=color, linewidth=1.2, elinewidth=0.8)
        areas = 12 + 150 * counts / counts.sum()
        ax.scatter(prediction, frequency, s=areas, color=color, label=label, zorder=3)
    ax.legend(fontsize="small", loc="upper left")
    return ax

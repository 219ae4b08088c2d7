"""Reliability diagrams: what was predicted, and what happened."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..calibration import expected_calibration_error
from ..calibration import reliability as reliability_of
from ._figure import one_axes


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
    named = probabilities if isinstance(probabilities, Mapping) else {"": probabilities}
    if not named:
        raise ValueError("`probabilities` is empty: there is nothing to draw")
    drawn = {
        str(name): (reliability_of(y, p, bins), expected_calibration_error(y, p, bins))
        for name, p in named.items()
    }
    ax = one_axes(ax, (4.6, 4.4))
    ax.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, zorder=1)
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
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel("predicted probability of +1")
    ax.set_ylabel("frequency of +1")
    ax.legend(fontsize="small", loc="upper left")
    return ax

"""What several searches minimized, step by step, in one picture."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..selection import History
from ._figure import one_axes

_MOST_NAMED = 10  # curves in a legend


def progress(
    histories: History | Sequence[History],
    names: Sequence[str] | None = None,
    *,
    ax: Any = None,
) -> Axes:
    """Draw the criterion over the steps of one or several searches, a curve for each start.

    Where values are not known, as those of the sampled evidence, it is the mean magnitude of the gradient.

    **Arguments:**

    - `histories`: `Selection.history`, `history_` of an estimator, or a list of them.
    - `names`: one for each history, for the legend.
    - `ax`: Axes to draw in; by default those of a new figure.

    **Returns:** the Axes.
    """
    every = list(histories) if isinstance(histories, Sequence) else [histories]
    if not every or not all(isinstance(one, History) for one in every):
        raise TypeError("`histories` must be the history of a search, or a list of them")
    if names is not None and len(names) != len(every):
        raise ValueError(f"there are {len(every)} histories, but {len(names)} `names`")
    ax = one_axes(ax)
    has_values = bool(np.isfinite(np.asarray(every[0].value)).any())
    for number, one in enumerate(every):
        rows = np.asarray(one.value if has_values else one.magnitude)
        for start, row in enumerate(np.atleast_2d(rows)):
            label = str(names[number]) if names is not None and start == 0 else None
            steps = np.flatnonzero(np.isfinite(row))
            ax.plot(steps, row[steps], color=f"C{number}", label=label)
    ax.set(xlabel="step", ylabel="criterion" if has_values else "mean magnitude of the gradient")
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if names is not None and len(every) <= _MOST_NAMED:
        ax.legend(fontsize="small")
    return ax

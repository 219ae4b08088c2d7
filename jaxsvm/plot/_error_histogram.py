"""Histograms of test errors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from .. import Selection
from ..validation import plain
from ._figure import many_axes


def error_histogram(
    errors: Mapping[str, Any] | Selection,
    bin_width: float = 0.02,
    labels: Sequence[str] | None = None,
    *,
    axes: Any = None,
) -> np.ndarray:
    """Draw histograms of test errors in percent, stacked over one axis.

    As in [GS03, Figs. 2-4].

    **Arguments:**

    - `errors`: a mapping such as `{"PRESS": first, "evidence": second}`. Each value holds the test errors of
      several trials, as fractions of wrong labels; NaN marks a failed trial, which is left out. A
      `Selection` of a classifier with `test` data can replace a value, or the mapping: it stands for the
      test errors at the end points of all usable starts.
    - `bin_width`: the width of the bins, also a fraction. The first bin begins at zero; bins include their
      left edges.
    - `labels`: one for each histogram, instead of the keys of the mapping.
    - `axes`: the Axes to draw in, one for each histogram; by default, those of a new figure.

    **Returns:** an array of Axes.
    """
    if isinstance(errors, Selection):
        errors = {"selection": errors}
    if not isinstance(errors, Mapping) or not errors:
        raise TypeError("`errors` must be a mapping from labels to test errors, or a `Selection`")
    if not 0 < bin_width <= 1:
        raise ValueError(
            f"`bin_width` must be a fraction between 0 and 1, but is {plain(bin_width)!r}"
        )
    samples = {str(label): _errors(label, values) for label, values in errors.items()}
    names = list(samples) if labels is None else [str(label) for label in labels]
    if len(names) != len(samples):
        raise ValueError(f"there are {len(samples)} histograms, but {len(names)} `labels`")
    panels = many_axes(axes, names, 1, (5.0, 1.4), share_x=True)

    bins = {}
    for ax, name, sample in zip(panels, names, samples.values(), strict=True):
        # rounded, so that 0.06 is in the bin that begins at 3 * 0.02
        bins[ax], counts = np.unique(np.floor(np.round(sample / bin_width, 9)), return_counts=True)
        left = 100 * bin_width * bins[ax]
        ax.bar(left, counts, 100 * bin_width, align="edge", color="C0", edgecolor="white")
        trials = f"{len(sample)} trial{'s' if len(sample) > 1 else ''}"
        ax.set_title(f"{name} ({trials})", fontsize="medium", loc="left")
        ax.set_ylabel("trials")
        ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        ax.set_ylim(0, 1.08 * counts.max())
    lowest = min(numbers.min() for numbers in bins.values())
    highest = max(numbers.max() for numbers in bins.values())
    for ax in panels:
        ax.set_xlim(100 * bin_width * max(lowest - 1, 0), 100 * bin_width * (highest + 2))
    panels[-1].set_xlabel("test error (%)")
    return panels


def _errors(label: Any, values: Any) -> np.ndarray:
    if isinstance(values, Selection):
        values = _end_errors(values)
    try:
        array = np.asarray(values, float).ravel()
    except (TypeError, ValueError) as error:
        raise TypeError(f"the errors of {label!r} must be numbers, not {values!r}") from error
    array = array[~np.isnan(array)]
    if not array.size:
        raise ValueError(f"{label!r} has no test errors other than NaN")
    if array.min() < 0 or array.max() > 1:
        raise ValueError(
            f"the errors of {label!r} must be fractions between 0 and 1, but range from {array.min():g} to "
            f"{array.max():g}; divide percentages by 100"
        )
    return array


def _end_errors(selection: Selection) -> np.ndarray:
    if selection.history.test_error is None:
        raise ValueError("the selection has no test errors: call `jaxsvm.select` with `test=`")
    if not selection.model.loss.is_classifier:
        raise ValueError(
            "the selection is of a regression: its errors are not fractions of wrong labels"
        )
    starts = np.flatnonzero(selection.usable)
    return np.asarray(selection.history.test_error)[
        starts, np.asarray(selection.history.end)[starts]
    ]

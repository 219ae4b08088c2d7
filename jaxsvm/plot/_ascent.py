"""How an ascent of the evidence went: hyperparameters beside their gradients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._parameters import is_positive
from ..selection import Selection
from ._figure import as_place, many_axes, require
from ._history import (
    MOST_CURVES,
    draw_errors,
    draw_parameter,
    errors_of,
    finish_panels,
    named,
    use_log_scale,
)


def ascent(
    path: Selection,
    start: int | None = None,
    names: Sequence[str] | str | None = None,
    *,
    axes: Any = None,
) -> np.ndarray:
    """Draw hyperparameters, the gradients of the objective with error bands, and errors over the steps.

    As [GS03, Figs. 5-6], whose gradients are those of the log evidence: the objective is minus that.

    **Arguments:**

    - `path`: the outcome of `jaxsvm.evidence_ascent` or `jaxsvm.select`.
    - `start`: the number of the start to draw; by default the best one.
    - `names`: the hyperparameters to draw, dotted as in `jaxsvm.parameters`; by default all that are not
      frozen. Of a vector, its first six entries.
    - `axes`: Axes to draw in, one for each panel; by default those of a new figure.

    **Returns:** the Axes in an array: each hyperparameter and its gradient (by the logarithm of a positive
    one) with a band of two standard errors, then the mean magnitude of the gradient, and test and
    validation errors if there are any.
    """
    require(path, Selection, "path", "jaxsvm.evidence_ascent")
    record = path.history
    chosen = as_place(path.best if start is None else start, len(path.results), "start", "a start")
    length = int(record.steps[chosen])
    steps = np.arange(length)
    shown = named(path, names)
    errors = errors_of(record, chosen)
    titles = [title for name in shown for title in (name, f"gradient: {name}")]
    titles += ["mean magnitude of the gradient", *(["error"] if errors else [])]
    panels = many_axes(axes, titles, 2, (4.0, 2.1), share_x=True)

    for place, name in enumerate(shown):
        values, gradients = (
            np.asarray(table[name])[chosen, :length]
            for table in (record.parameters, record.gradient)
        )
        deviations = np.zeros_like(gradients)
        if record.standard_error is not None:
            deviations = np.asarray(record.standard_error[name])[chosen, :length]
        draw_parameter(panels[2 * place], steps, values)
        if is_positive(path.model, name):
            use_log_scale(panels[2 * place])
        ax = panels[2 * place + 1]
        flat = gradients.reshape(length, -1)[:, :MOST_CURVES]
        bands = 2 * deviations.reshape(length, -1)[:, :MOST_CURVES]
        for number in range(flat.shape[1]):
            ax.plot(steps, flat[:, number], color=f"C{number}")
            low, high = flat[:, number] - bands[:, number], flat[:, number] + bands[:, number]
            ax.fill_between(steps, low, high, color=f"C{number}", alpha=0.25, linewidth=0)
        ax.axhline(0, color="0.5", linewidth=0.7)
    ax = panels[2 * len(shown)]
    ax.plot(steps, np.asarray(record.magnitude)[chosen, :length], color="C0")
    use_log_scale(ax)
    if errors:
        titles[-1] = draw_errors(panels[-1], errors, path.model)
    finish_panels(panels, titles, panels[-2:] if axes is None else panels)
    return panels

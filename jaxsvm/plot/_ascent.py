"""The steps of an evidence ascent: hyperparameters and their gradients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import Selection
from ._figure import as_index, many_axes, require
from ._history import (
    MAX_CURVES,
    draw_errors,
    draw_parameter,
    errors_of,
    finish_panels,
    names_to_draw,
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

    As in [GS03, Figs. 5-6], but the gradients there are those of the log evidence; the objective is minus it.

    **Arguments:**

    - `path`: the result of `jaxsvm.evidence_ascent` or `jaxsvm.select`.
    - `start`: the number of the start to draw; by default the best.
    - `names`: the hyperparameters to draw, dotted as in `jaxsvm.parameters`; by default all that are not
      frozen. The first six entries of a vector are drawn.
    - `axes`: the Axes to draw in, one for each panel; by default, those of a new figure.

    **Returns:** an array of Axes: each hyperparameter and its gradient (with respect to the logarithm of a
    positive one) with a band of two standard errors; the mean magnitude of the gradient; and the test and
    validation errors, if there are any.
    """
    require(path, Selection, "path", "jaxsvm.evidence_ascent")
    record = path.history
    start = as_index(path.best if start is None else start, len(path.results), "start", "a start")
    length = int(record.steps[start])
    steps = np.arange(length)
    drawn = names_to_draw(path, names)
    errors = errors_of(record, start)
    titles = [title for name in drawn for title in (name, f"gradient: {name}")]
    titles += ["mean magnitude of the gradient", *(["error"] if errors else [])]
    panels = many_axes(axes, titles, 2, (4.0, 2.1), share_x=True)

    for i, name in enumerate(drawn):
        values, gradients = (
            np.asarray(table[name])[start, :length]
            for table in (record.parameters, record.gradient)
        )
        deviations = np.zeros_like(gradients)
        if record.standard_error is not None:
            deviations = np.asarray(record.standard_error[name])[start, :length]
        draw_parameter(panels[2 * i], steps, values, path.model, name)
        ax = panels[2 * i + 1]
        flat = gradients.reshape(length, -1)[:, :MAX_CURVES]
        bands = 2 * deviations.reshape(length, -1)[:, :MAX_CURVES]
        for number in range(flat.shape[1]):
            ax.plot(steps, flat[:, number], color=f"C{number}")
            low, high = flat[:, number] - bands[:, number], flat[:, number] + bands[:, number]
            ax.fill_between(steps, low, high, color=f"C{number}", alpha=0.25, linewidth=0)
        ax.axhline(0, color="0.5", linewidth=0.7)
    ax = panels[2 * len(drawn)]
    ax.plot(steps, np.asarray(record.magnitude)[start, :length], color="C0")
    use_log_scale(ax)
    if errors:
        titles[-1] = draw_errors(panels[-1], errors, path.model)
    finish_panels(panels, titles, panels[-2:] if axes is None else panels)
    return panels

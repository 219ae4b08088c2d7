"""How a selection went, step by step."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import (
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
    StrMethodFormatter,
)

from .._machine import KernelMachine
from .._parameters import is_positive, matching
from .._results import RESULTS
from ..criteria import AbstractCriterion
from ..selection import Selection
from ._figure import as_place, many_axes, require

MOST_CURVES = 6  # of one parameter: more of them cannot be told apart


def history(
    selection: Selection,
    start: int | str | None = None,
    names: Sequence[str] | str | None = None,
    *,
    others: Mapping[str, AbstractCriterion] | None = None,
    axes: Any = None,
) -> np.ndarray:
    """Draw hyperparameters, criterion, gradient and errors over the steps of a selection.

    As Fig. 1 of [GS03]. Steps whose fit failed are gaps; a dot on the criterion marks the step that was
    kept as the end point.

    **Arguments:**

    - `selection`: what `jaxsvm.select` gave back.
    - `start`: the number of the start to draw; by default the best one; `"all"` for the best one with
      thin lines of the criterion of all others.
    - `names`: the hyperparameters to draw, dotted as in `jaxsvm.parameters`; `"kernel"` stands for all
      of it; by default all that are not frozen. Of a vector, its first six entries.
    - `others`: criteria to draw beside the one that was minimized, by the titles of their panels, such as
      `{"GACV": criteria.GACV()}`. Each is evaluated at all steps.
    - `axes`: Axes to draw in, one for each panel; by default those of a new figure.

    **Returns:** the Axes in an array: first the hyperparameters, then the criterion and the others, the
    norm of the gradient if there is one, and test and validation errors if there are any.
    """
    require(selection, Selection, "selection", "jaxsvm.select")
    record = selection.history
    chosen = _start(selection, start)
    length = int(record.steps[chosen])
    steps = np.arange(length)
    shown = named(selection, names)
    norms = np.asarray(record.gradient_norm)[chosen, :length]
    errors = errors_of(record, chosen)
    others = {} if others is None else dict(others)
    titles = [*shown, "criterion", *others]
    titles += ["gradient norm"] if np.isfinite(norms).any() else []
    titles += ["error"] if errors else []
    columns = 1 if len(titles) < 3 else 2
    panels = many_axes(axes, titles, columns, (4.0, 2.1), share_x=True)

    for name, ax in zip(shown, panels, strict=False):
        draw_parameter(ax, steps, np.asarray(record.parameters[name])[chosen, :length])
        if is_positive(selection.model, name):
            use_log_scale(ax)
    rest = iter(panels[len(shown) :])
    ax = next(rest)
    if start == "all":
        for other in range(len(selection.results)):
            if other != chosen:
                ax.plot(np.asarray(record.value)[other], color="0.6", linewidth=0.7)
    values = [np.asarray(record.value)[chosen, :length]]
    values += [selection.along(criterion, chosen) for criterion in others.values()]
    end = int(record.end[chosen])
    for panel, row in zip([ax, *islice(rest, len(others))], values, strict=True):
        panel.plot(steps, row, color="C0")
        panel.plot(end, row[end], "o", color="C3", markersize=5)
    if "gradient norm" in titles:
        ax = next(rest)
        ax.plot(steps, norms, color="C0")
        use_log_scale(ax)
    if errors:
        titles[-1] = draw_errors(panels[-1], errors, selection.model)
    finish_panels(panels, titles, panels if axes is not None else panels[-columns:])
    for ax in panels:
        ax.tick_params(labelbottom=True)
    return panels


def _start(selection, start) -> int:
    restarts = len(selection.results)
    if isinstance(start, str) and start != "all":
        raise ValueError(f'`start` must be the number of a start, "all" or None, not {start!r}')
    chosen = selection.best if start in (None, "all") else start
    chosen = as_place(chosen, restarts, "start", "a start")
    if int(selection.history.steps[chosen]) == 0:
        message = RESULTS(int(selection.results[chosen])).message
        raise ValueError(f"start {chosen} failed before its first step. {message}")
    return chosen


def named(selection, names) -> list[str]:
    """The full names of the parameters to draw, of a selection or an ascent."""
    recorded = list(selection.history.parameters)
    if names is None:
        return recorded
    names = [names] if isinstance(names, str) else list(names)
    chosen = [name for name in matching(selection.model, names) if name in recorded]
    for name in names:
        if not any(full == name or full.startswith(name + ".") for full in chosen):
            raise ValueError(f"`{name}` is frozen: it has no history")
    return chosen


def errors_of(record: Any, start: int) -> dict[str, np.ndarray]:
    """The errors that were recorded at the steps of a start, by the data they are of."""
    length = int(record.steps[start])
    errors = {"test": record.test_error, "validation": record.validation_error}
    return {k: np.asarray(v)[start, :length] for k, v in errors.items() if v is not None}


def draw_errors(ax: Axes, errors: dict[str, np.ndarray], model: KernelMachine) -> str:
    """Draw errors over the steps; the title of their panel comes back."""
    scale = 100 if model.loss.is_classifier else 1
    for label, row in errors.items():
        ax.plot(np.arange(len(row)), scale * row, label=label)
    ax.legend(fontsize="small")
    return "error (%)" if scale == 100 else "mean squared error"


def finish_panels(panels: np.ndarray, titles: list[str], lowest: np.ndarray) -> None:
    """Titles and axes of panels over the steps; the lowest ones say so."""
    for ax, title in zip(panels, titles, strict=True):
        ax.set_title(title, fontsize="medium")
        ax.margins(x=0.02)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    for ax in lowest:
        ax.set_xlabel("step")


def draw_parameter(ax: Axes, steps: np.ndarray, values: np.ndarray) -> None:
    """A curve, or the first six of a vector."""
    shape = values.shape[1:]
    if not shape:
        ax.plot(steps, values, color="C0")
        return
    indices = list(np.ndindex(shape))
    for index in indices[:MOST_CURVES]:
        ax.plot(steps, values[:, *index], label=", ".join(map(str, index)))
    few = f"{MOST_CURVES} of {len(indices)}" if len(indices) > MOST_CURVES else None
    # beside the curves, which fill the panel
    ax.legend(
        title=few,
        fontsize="x-small",
        title_fontsize="x-small",
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        frameon=False,
        handlelength=1,
    )


def use_log_scale(ax: Axes) -> None:
    """A logarithmic scale with ticks that can be read, where there is anything to show on it."""
    data = np.concatenate([np.asarray(line.get_ydata(), float) for line in ax.lines])
    data = data[np.isfinite(data) & (data > 0)]
    if not data.size:  # nothing that a logarithmic scale could show
        return
    ax.set_yscale("log", nonpositive="mask")
    spread = data.max() / data.min()
    if spread > 100:
        return
    # powers of ten alone would leave such an axis with one tick or none
    if spread > 5:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        ax.yaxis.set_major_locator(MaxNLocator(5))
        ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())

"""The steps of searches: hyperparameters, criterion, gradients and errors."""

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

from .. import RESULTS, History, KernelMachine, Selection, domain, parameters
from ..criteria import AbstractCriterion
from ._figure import as_index, many_axes, one_axes, require

_MAX_CURVES = 6  # of one parameter: more cannot be distinguished
_MAX_LABELS = 10  # in a legend


def history(
    selection: Selection,
    start: int | str | None = None,
    names: Sequence[str] | str | None = None,
    *,
    others: Mapping[str, AbstractCriterion] | None = None,
    axes: Any = None,
) -> np.ndarray:
    """Draw hyperparameters, criterion, gradient and errors over the steps of a selection.

    As in [GS03, Fig. 1]. A step whose fit failed is a gap; a dot on the criterion marks the end point.

    **Arguments:**

    - `selection`: the result of `jaxsvm.select`.
    - `start`: the number of the start to draw; by default the best. `"all"` draws the best, and the
      criterion of all others as thin lines.
    - `names`: the hyperparameters to draw, dotted as in `jaxsvm.parameters`; `"kernel"` stands for all of
      its parameters; by default all that are not frozen. The first six entries of a vector are drawn.
    - `others`: more criteria to draw, by the titles of their panels, such as `{"GACV": criteria.GACV()}`.
      Each is evaluated at all steps.
    - `axes`: the Axes to draw in, one for each panel; by default, those of a new figure.

    **Returns:** an array of Axes: the hyperparameters, the criterion, the `others`, the norm of the gradient
    if there is one, and the test and validation errors if there are any.
    """
    require(selection, Selection, "selection", "jaxsvm.select")
    record = selection.history
    number = _start(selection, start)
    length = int(record.steps[number])
    steps = np.arange(length)
    drawn = _names_to_draw(selection, names)
    norms = np.asarray(record.gradient_norm)[number, :length]
    errors = _errors_of(record, number)
    others = {} if others is None else dict(others)
    titles = [*drawn, "criterion", *others]
    titles += ["gradient norm"] if np.isfinite(norms).any() else []
    titles += ["error"] if errors else []
    columns = 1 if len(titles) < 3 else 2
    panels = many_axes(axes, titles, columns, (4.0, 2.1), share_x=True)

    for name, ax in zip(drawn, panels, strict=False):
        values = np.asarray(record.parameters[name])[number, :length]
        _draw_parameter(ax, steps, values, selection.model, name)
    rest = iter(panels[len(drawn) :])
    ax = next(rest)
    if start == "all":
        for row in np.delete(np.asarray(record.value), number, axis=0):
            ax.plot(row, color="0.6", linewidth=0.7)
    rows = [np.asarray(record.value)[number, :length]]
    rows += [selection.along(criterion, number) for criterion in others.values()]
    end = int(record.end[number])
    for panel, row in zip([ax, *islice(rest, len(others))], rows, strict=True):
        panel.plot(steps, row, color="C0")
        panel.plot(end, row[end], "o", color="C3", markersize=5)
    if "gradient norm" in titles:
        ax = next(rest)
        ax.plot(steps, norms, color="C0")
        _use_log_scale(ax)
    if errors:
        titles[-1] = _draw_errors(panels[-1], errors, selection.model)
    _finish_panels(panels, titles, panels if axes is not None else panels[-columns:])
    for ax in panels:
        ax.tick_params(labelbottom=True)
    return panels


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
    drawn = _names_to_draw(path, names)
    errors = _errors_of(record, start)
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
        _draw_parameter(panels[2 * i], steps, values, path.model, name)
        ax = panels[2 * i + 1]
        flat = gradients.reshape(length, -1)[:, :_MAX_CURVES]
        bands = 2 * deviations.reshape(length, -1)[:, :_MAX_CURVES]
        for number in range(flat.shape[1]):
            ax.plot(steps, flat[:, number], color=f"C{number}")
            low, high = flat[:, number] - bands[:, number], flat[:, number] + bands[:, number]
            ax.fill_between(steps, low, high, color=f"C{number}", alpha=0.25, linewidth=0)
        ax.axhline(0, color="0.5", linewidth=0.7)
    ax = panels[2 * len(drawn)]
    ax.plot(steps, np.asarray(record.magnitude)[start, :length], color="C0")
    _use_log_scale(ax)
    if errors:
        titles[-1] = _draw_errors(panels[-1], errors, path.model)
    _finish_panels(panels, titles, panels[-2:] if axes is None else panels)
    return panels


def progress(
    histories: History | Sequence[History],
    names: Sequence[str] | None = None,
    *,
    ax: Any = None,
) -> Axes:
    """Draw the criterion over the steps of one or several searches, with a curve for each start.

    Without values, as for the sampled evidence, it draws the mean magnitude of the gradient.

    **Arguments:**

    - `histories`: the `history` of a `Selection`, the `history_` of an estimator, or a list of them.
    - `names`: one for each history, for the legend.
    - `ax`: the Axes to draw in; by default, those of a new figure.

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
    if names is not None and len(every) <= _MAX_LABELS:
        ax.legend(fontsize="small")
    return ax


def _start(selection, start) -> int:
    restarts = len(selection.results)
    if isinstance(start, str) and start != "all":
        raise ValueError(f'`start` must be the number of a start, "all" or None, not {start!r}')
    number = selection.best if start in (None, "all") else start
    number = as_index(number, restarts, "start", "a start")
    if int(selection.history.steps[number]) == 0:
        message = RESULTS(int(selection.results[number])).message
        raise ValueError(f"start {number} failed before its first step. {message}")
    return number


def _names_to_draw(selection: Selection, names: Any) -> list[str]:
    """The full names of the parameters to draw; a name also stands for all parameters below it."""
    recorded = list(selection.history.parameters)
    if names is None:
        return recorded
    full_names: dict[str, None] = {}  # ordered, without repetitions
    for name in [names] if isinstance(names, str) else names:
        every = parameters(selection.model)
        below = [full for full in every if full == name or full.startswith(f"{name}.")]
        if not below:
            raise ValueError(f"the model has no parameter `{name}`; it has: {', '.join(every)}")
        drawn = [full for full in below if full in recorded]
        if not drawn:
            raise ValueError(f"`{name}` is frozen, so it has no history")
        full_names |= dict.fromkeys(drawn)
    return list(full_names)


def _errors_of(record: Any, start: int) -> dict[str, np.ndarray]:
    """The recorded errors of a start, by data set: test, validation."""
    length = int(record.steps[start])
    errors = {"test": record.test_error, "validation": record.validation_error}
    return {k: np.asarray(v)[start, :length] for k, v in errors.items() if v is not None}


def _draw_errors(ax: Axes, errors: dict[str, np.ndarray], model: KernelMachine) -> str:
    """Draw errors over the steps, and return the title of their panel."""
    scale = 100 if model.loss.is_classifier else 1
    for label, row in errors.items():
        ax.plot(np.arange(len(row)), scale * row, label=label)
    ax.legend(fontsize="small")
    return "error (%)" if scale == 100 else "mean squared error"


def _finish_panels(panels: np.ndarray, titles: list[str], lowest: np.ndarray) -> None:
    """Set titles and axes of panels over the steps; the lowest have the label "step"."""
    for ax, title in zip(panels, titles, strict=True):
        ax.set_title(title, fontsize="medium")
        ax.margins(x=0.02)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    for ax in lowest:
        ax.set_xlabel("step")


def _draw_parameter(
    ax: Axes, steps: np.ndarray, values: np.ndarray, model: KernelMachine, name: str
) -> None:
    """Draw a parameter over the steps, or the first six entries of a vector."""
    if values.ndim == 1:
        ax.plot(steps, values, color="C0")
    else:
        _draw_vector(ax, steps, values)
    if domain(model, name) == (0.0, np.inf):
        _use_log_scale(ax)


def _draw_vector(ax: Axes, steps: np.ndarray, values: np.ndarray) -> None:
    indices = list(np.ndindex(values.shape[1:]))
    for index in indices[:_MAX_CURVES]:
        ax.plot(steps, values[:, *index], label=", ".join(map(str, index)))
    few = f"{_MAX_CURVES} of {len(indices)}" if len(indices) > _MAX_CURVES else None
    # the curves fill the panel, so the legend is beside it
    ax.legend(
        title=few,
        fontsize="x-small",
        title_fontsize="x-small",
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        frameon=False,
        handlelength=1,
    )


def _use_log_scale(ax: Axes) -> None:
    """Set a logarithmic scale with legible ticks, if there are positive values."""
    data = np.concatenate([np.asarray(line.get_ydata(), float) for line in ax.lines])
    data = data[np.isfinite(data) & (data > 0)]
    if not data.size:
        return
    ax.set_yscale("log", nonpositive="mask")
    spread = data.max() / data.min()
    if spread > 100:
        return
    # with powers of ten alone, such an axis would have at most one tick
    if spread > 5:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        ax.yaxis.set_major_locator(MaxNLocator(5))
        ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())

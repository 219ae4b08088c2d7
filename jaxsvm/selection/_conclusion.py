"""From the ends of all starts to a `Selection`: which is the best, and what to warn of."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._machine import KernelMachine
from .._parameters import free_parameters, put_back
from .._results import RESULTS, FitError
from ..runtime import warn_user
from ._engine import RUNNING, Row, State, Task, is_constant
from ._types import History, Selection, member, usable_starts


def conclude(
    task: Task, model: KernelMachine, states: State, rows: Row, key: Any, throw: bool
) -> Selection:
    """The outcome of a search, by the last states and the histories of all starts."""
    codes = _codes(task, states, rows)
    ends = put_back(states.best.model, model)
    values = np.asarray(states.best.value).copy()
    usable = usable_starts(codes, values)
    if throw and not usable.any():
        message = RESULTS(int(codes[0])).message
        raise FitError(f"all {len(codes)} starts failed. The first one: {message}")
    if not task.objective.traits.has_value:
        values = _compared(task, states, usable, key)
    scores = values if task.validation is None else np.asarray(states.best.validation)
    scores = np.where(usable & np.isfinite(scores), scores, np.inf)
    order = np.lexsort((values, scores, ~usable))
    best = int(order[0])
    history = _history(task, model, rows, states)
    problems = ()
    if usable[best]:
        info = {name: np.asarray(column)[best] for name, column in rows.info.items()}
        end = int(states.best.step[best])
        problems = task.objective.problems(member(ends, best), info, end)
    if problems:
        warn_user(
            "the end of the search should not be trusted as it is: " + ". ".join(problems),
            task.objective.traits.warning,
        )
    data = task.data
    return Selection(
        model=member(ends, best),
        value=jnp.asarray(values[best]),
        best=best,
        models=ends,
        values=jnp.asarray(values),
        scores=jnp.asarray(scores),
        results=jnp.asarray(codes),
        history=history,
        x=data.x,
        y=data.y,
        weights=data.weights,
        problems=problems,
    )


def _codes(task: Task, states: State, rows: Row) -> np.ndarray:
    """One result code for each start; one that could have gone on was ended by its time."""
    codes, steps = np.asarray(states.code), np.asarray(states.steps)
    late = steps < int(task.most)
    limit = np.where(late, int(RESULTS.time_limit), int(RESULTS.iteration_limit))
    codes = np.where(codes == RUNNING, limit, codes)
    if np.asarray(states.flat).all():
        first = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), rows.model)
        if is_constant(task, first):
            codes = np.full_like(codes, int(RESULTS.no_gradient))
    return codes


def _compared(task: Task, states: State, usable: np.ndarray, key: Any) -> np.ndarray:
    """Values of the end points where observations have none; NaN where nothing has to be compared."""
    if len(usable) == 1 or task.validation is not None:
        return np.where(usable, np.nan, np.inf)
    return np.array(
        [
            task.objective.compare(member(states.best.model, start), task.data, key)
            if usable[start]
            else np.inf
            for start in range(len(usable))
        ]
    )


def _history(task: Task, model: KernelMachine, rows: Row, states: State) -> History:
    known = rows.value if task.objective.traits.has_value else rows.magnitude
    steps = np.array([_last_finite(row) for row in known])
    length = max(int(steps.max()), 1)
    present = np.arange(known.shape[1])[None, :] < steps[:, None]

    def cut(array):
        mask = present.reshape(present.shape + (1,) * (array.ndim - 2))
        return jnp.asarray(np.where(mask, array, np.nan)[:, :length])

    def by_name(tree):
        leaves = map(cut, jax.tree.leaves(tree))
        return dict(zip(free_parameters(model), leaves, strict=True))

    errors = rows.standard_error
    return History(
        parameters=free_parameters(jax.tree.map(cut, rows.model)),
        value=cut(rows.value),
        gradient=by_name(rows.gradient),
        standard_error=None if errors is None else by_name(errors),
        gradient_norm=cut(rows.gradient_norm),
        magnitude=cut(rows.magnitude),
        test_error=cut(rows.test) if task.test is not None else None,
        validation_error=cut(rows.validation) if task.validation is not None else None,
        info={name: cut(column) for name, column in rows.info.items()},
        steps=jnp.asarray(steps),
        end=states.best.step,
    )


def _last_finite(row: np.ndarray) -> int:
    """The number of steps up to the last one whose observation did not fail."""
    places = np.flatnonzero(np.isfinite(row))
    return int(places[-1]) + 1 if places.size else 0

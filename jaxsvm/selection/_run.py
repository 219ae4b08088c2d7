"""Run all starts of a search to their ends, side by side or in one batch, and choose the best."""

import threading
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._machine import KernelMachine, Machine
from ..approximations import check_lost_variance
from ..hyperparameters import free_parameters, restore_frozen, unfreeze
from ..numerics import member, stack
from ..results import RESULTS, FitError
from ..runtime import Progress, ask_all_processes, is_divided, jit, map_over_data, warn_user
from ._checkpoint import Checkpoint
from ._engine import (
    RUNNING,
    Row,
    State,
    Task,
    advance,
    advance_all,
    begin,
    is_constant,
    new_memory,
)
from ._path import mean_near_lowest
from ._selection import History, Selection, usable_starts


class Run(NamedTuple):
    """The starts of a search and its limits.

    `models` are the stacked starts, `keys` one key for each; `max_steps` limits the steps of each; after
    `deadline` (of `time.monotonic`, or None) no step begins; `file` saves the progress; `interrupted` is set
    when the user interrupts the search.
    """

    task: Task
    models: KernelMachine
    keys: Any
    max_steps: int
    deadline: float | None
    file: Checkpoint
    interrupted: threading.Event

    @property
    def starts(self) -> int:
        """The number of starts."""
        return len(self.keys)

    @property
    def is_late(self) -> bool:
        """Whether no further step should begin; the same in all processes that share the data."""
        late = self.deadline is not None and time.monotonic() > self.deadline
        if self.deadline is not None and is_divided(self.task.problem.data.x):
            late = bool(ask_all_processes([late]).any())
        return late or self.interrupted.is_set()

    def has_ended(self, state: State) -> bool:
        """Whether a start takes no more steps."""
        return int(state.code) != RUNNING or int(state.steps) >= self.max_steps

    def begin(self, start: int) -> tuple[State, Row | None]:
        """The saved state and history of a start, or its first state and no history."""
        model, key = member(self.models, start), self.keys[start]
        if not self.file.has(start):
            return begin(self.task, model, key), None

        # only the structure is needed here: nothing is computed
        def state_and_row(model, key):
            state = begin(self.task, model, key)
            return state, advance(self.task, 1, state, key, jnp.zeros((), jnp.int32))[1]

        state, row = jax.eval_shape(state_and_row, model, key)
        empty = jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape[1:]), leaf.dtype), row)
        state, rows = self.file.load(start, (state, empty))
        return state, jax.tree.map(np.asarray, rows)


def run_all(run: Run, progress: bool | None) -> tuple[State, Row]:
    """The last states and the histories of all starts, stacked; NaN after the end of a history."""
    traits = run.task.problem.objective.traits
    bar = Progress(run.starts * run.max_steps, "selecting", progress)
    done, lowest = np.zeros(run.starts, int), np.full(run.starts, np.inf)

    def report(start: int, state: State, rows: Row) -> None:
        done[start] = run.max_steps if run.has_ended(state) else int(state.steps)
        lowest[start] = float(state.best.value)
        text = f"criterion {lowest.min():.6g}"
        if not traits.has_value:
            text = f"gradient {float(rows.magnitude[-1]):.3g}" if len(rows.magnitude) else ""
        bar.update(done.sum(), text)

    # a failed observation is repeated for one start alone, which a batch cannot do
    lockstep = _in_lockstep() and not traits.attempts
    with bar:
        outcomes = _run_together(run, report) if lockstep else _run_apart(run, report)
    states = stack([state for state, _ in outcomes])
    length = max(len(rows.value) for _, rows in outcomes)
    return states, jax.tree.map(
        lambda *parts: np.stack([_padded(part, length) for part in parts]),
        *(rows for _, rows in outcomes),
    )


def _in_lockstep() -> bool:
    """On a CPU a batch would wait for its slowest member at each step, and use one core."""
    return jax.default_backend() != "cpu"


def _run_apart(run: Run, report) -> list[tuple[State, Row]]:
    """Run each start for as long as it needs, as many at a time as there are cores or groups of devices."""
    traits = run.task.problem.objective.traits
    begun: dict[int, tuple[State, Row | None]] = {}

    def run_one(start: int, shared: tuple[Task, KernelMachine, Any]) -> tuple[State, Row]:
        task, models, keys = shared
        here = run._replace(task=task, models=models, keys=keys)
        state, rows = begun.get(start) or here.begin(start)
        key, attempt = keys[start], 0
        while rows is None or not (run.has_ended(state) or run.is_late):
            before = state
            attempts = jnp.asarray(attempt, jnp.int32)
            state, new = jax.block_until_ready(
                advance(task, traits.steps_at_once, state, key, attempts)
            )
            if _failed(state) and attempt < traits.attempts:
                attempt += 1
                memory = new_memory(task, before.model, key, before.steps + 1000 * attempt)
                state = before._replace(memory=memory)
                continue
            attempt = 0
            rows = _extended(rows, new, int(state.steps) - int(before.steps))
            report(start, state, rows)
            run.file.save(start, (state, rows), int(state.steps))
        return state, rows

    def compile_it():
        begun[0] = run.begin(0)  # the others begin side by side
        ended = begun[0][0]._replace(code=jnp.zeros_like(begun[0][0].code))  # takes no step
        steps = traits.steps_at_once
        return advance(run.task, steps, ended, run.keys[0], jnp.zeros((), jnp.int32))

    try:
        shared = (run.task, run.models, run.keys)
        return map_over_data(run_one, run.starts, shared, run.task.problem.data.x, compile_it)
    except BaseException:
        run.interrupted.set()  # other threads end after their present step
        raise


def _run_together(run: Run, report) -> list[tuple[State, Row]]:
    """Run all starts in one batch, until the last of them has ended."""
    steps = run.task.problem.objective.traits.steps_at_once
    begun = [run.begin(start) for start in range(run.starts)]
    states, histories = stack([state for state, _ in begun]), [rows for _, rows in begun]
    no_attempts = jnp.zeros(run.starts, jnp.int32)
    while True:
        before = [member(states, start) for start in range(run.starts)]
        is_new = any(rows is None for rows in histories)
        if not is_new and (run.is_late or all(run.has_ended(state) for state in before)):
            break
        states, new = advance_all(run.task, steps, states, run.keys, no_attempts)
        for start in range(run.starts):
            state = member(states, start)
            executed = int(state.steps) - int(before[start].steps)
            rows = histories[start] = _extended(histories[start], member(new, start), executed)
            report(start, state, rows)
            run.file.save(start, (state, rows), int(state.steps))
    return [
        (member(states, start), rows) for start, rows in enumerate(histories) if rows is not None
    ]


def _failed(state: State) -> bool:
    code = int(state.code)
    return code != RUNNING and not RESULTS(code).is_success


def _extended(rows: Row | None, new: Row, executed: int) -> Row:
    """A history with the rows of the steps just taken."""
    taken = jax.tree.map(lambda column: np.asarray(column)[:executed], new)
    if rows is None:
        return taken
    return jax.tree.map(lambda old, more: np.concatenate([old, more]), rows, taken)


def _padded(rows: np.ndarray, length: int) -> np.ndarray:
    dtype = rows.dtype if rows.dtype.kind == "f" else np.result_type(float)
    missing = np.full((length - len(rows), *rows.shape[1:]), np.nan, dtype)
    return np.concatenate([rows.astype(dtype), missing])


def _lost_variance(task: Task, kernel) -> list[str]:
    """What is wrong with the representation of the kernel matrix at the end of a search."""
    data = task.problem.data
    if data.representation.kept is None:
        return []
    error = float(_error_of(data.representation, kernel, data.x))
    return check_lost_variance(error, data.representation.tolerance)


@jit
def _error_of(representation, kernel, x):
    return representation.matrix(kernel, x).error


def conclude(
    task: Task, model: Machine, states: State, rows: Row, key: Any, throw: bool
) -> Selection[Machine]:
    """The outcome of a search, from the last states and the histories of all starts."""
    objective = task.problem.objective
    codes = _codes(task, states, rows)
    states = _averaged(task, states, rows)
    ends = restore_frozen(states.best.model, model)
    values = np.asarray(states.best.value).copy()
    usable = usable_starts(codes, values)
    if throw and not usable.any():
        message = RESULTS(int(codes[0])).message
        raise FitError(f"all {len(codes)} starts failed. The first one: {message}")
    if not objective.traits.has_value:
        values = _compared(task, states, usable, key)
    scores = values if task.validation is None else np.asarray(states.best.validation)
    scores = np.where(usable & np.isfinite(scores), scores, np.inf)
    best = int(np.lexsort((values, scores, ~usable))[0])
    problems = ()
    if usable[best]:
        info = {name: np.asarray(column)[best] for name, column in rows.info.items()}
        problems = objective.problems(member(ends, best), info, int(states.best.step[best]))
        problems = (*problems, *_lost_variance(task, unfreeze(member(ends, best)).kernel))
    if problems:
        warn_user(
            "the end of the search should not be trusted as it is: " + ". ".join(problems),
            objective.traits.warning,
        )
    data = task.problem.data
    return Selection(
        model=member(ends, best),
        value=jnp.asarray(values[best]),
        best=best,
        models=ends,
        values=jnp.asarray(values),
        scores=jnp.asarray(scores),
        results=jnp.asarray(codes),
        history=_history(task, model, rows, states),
        x=data.x,
        y=data.y,
        weights=data.weights,
        representation=data.representation,
        problems=problems,
    )


def _averaged(task: Task, states: State, rows: Row) -> State:
    """The states with the means of models near the minimum as end points, for noisy gradients."""
    tolerance = task.problem.objective.traits.averaged
    if tolerance == 0 or task.validation is not None:
        return states
    ends = []
    for start in range(len(states.code)):
        best = member(states.best, start)
        change = np.asarray(rows.change[start])
        if np.isfinite(change).any():
            model, step = mean_near_lowest(member(rows.model, start), change, tolerance)
            best = best._replace(model=model, step=jnp.asarray(step, best.step.dtype))
        ends.append(best)
    return states._replace(best=stack(ends))


def _codes(task: Task, states: State, rows: Row) -> np.ndarray:
    """One result code for each start; one that was still running has met a limit of steps or time."""
    codes, steps = np.asarray(states.code), np.asarray(states.steps)
    late = steps < int(task.max_steps)
    limit = np.where(late, int(RESULTS.time_limit), int(RESULTS.iteration_limit))
    codes = np.where(codes == RUNNING, limit, codes)
    if np.asarray(states.flat).all():
        first = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), rows.model)
        if is_constant(task, first):
            codes = np.full_like(codes, int(RESULTS.no_gradient))
    return codes


def _compared(task: Task, states: State, usable: np.ndarray, key: Any) -> np.ndarray:
    """Values of the end points of an objective without values; NaN if nothing has to be compared."""
    if len(usable) == 1 or task.validation is not None:
        return np.where(usable, np.nan, np.inf)
    objective, data = task.problem.objective, task.problem.data
    return np.array(
        [
            objective.compare(member(states.best.model, start), data, key)
            if usable[start]
            else np.inf
            for start in range(len(usable))
        ]
    )


def _history(task: Task, model: KernelMachine, rows: Row, states: State) -> History:
    observed = rows.value if task.problem.objective.traits.has_value else rows.magnitude
    # a start counts its steps up to the last observation that did not fail
    finite = np.isfinite(observed)
    steps = np.where(finite, np.arange(1, observed.shape[1] + 1), 0).max(axis=1)
    length = max(int(steps.max()), 1)
    present = np.arange(observed.shape[1])[None, :] < steps[:, None]

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
        change=cut(rows.change),
        change_error=cut(rows.change_error),
        test_error=cut(rows.test) if task.test is not None else None,
        validation_error=cut(rows.validation) if task.validation is not None else None,
        info={name: cut(column) for name, column in rows.info.items()},
        steps=jnp.asarray(steps),
        end=states.best.step,
    )

"""All starts of a search to their ends: side by side, resumed from a file, within a time limit."""

import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._machine import KernelMachine
from .._results import RESULTS
from ..runtime import Progress, map_in_threads
from ._checkpoint import Checkpoint
from ._engine import RUNNING, Row, State, Task, advance, advance_all, begin, remember_again
from ._types import member, stack


class Run(NamedTuple):
    """The starts of a search, and what bounds it.

    `models` are the starts, stacked; `keys` one for each; `max_steps` the limit of steps of each;
    `deadline` the time (of `time.monotonic`) after which no step begins, or None; `file` is where progress
    is saved; `interrupted` is set when the user has interrupted the search.
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
        """Whether no step should begin any more."""
        late = self.deadline is not None and time.monotonic() > self.deadline
        return late or self.interrupted.is_set()

    def begin(self, start: int) -> State:
        """A start before its first step."""
        return begin(self.task, member(self.models, start), self.keys[start])

    def has_ended(self, state: State) -> bool:
        """Whether a start takes no more steps."""
        return int(state.code) != RUNNING or int(state.steps) >= self.max_steps


def run_all(run: Run, progress: bool | None) -> tuple[State, Row]:
    """The last states and the histories of all starts, stacked; NaN after the end of a history."""
    traits = run.task.objective.traits
    bar = Progress(run.starts * run.max_steps, "selecting", progress)
    done, lowest = np.zeros(run.starts, int), np.full(run.starts, np.inf)

    def note(start: int, state: State, row: Any) -> None:
        done[start] = run.max_steps if run.has_ended(state) else int(state.steps)
        lowest[start] = float(state.best.value)
        text = f"criterion {lowest.min():.6g}"
        if not traits.has_value:
            text = f"gradient {float(row.magnitude[-1]):.3g}" if len(row.magnitude) else ""
        bar.update(done.sum(), text)

    # an objective that begins its observations again does so by itself, and takes its own time
    lockstep = _in_lockstep() and not traits.attempts
    outcomes = _run_together(run, note) if lockstep else _run_apart(run, note)
    bar.close()
    states = stack([state for state, _ in outcomes])
    length = max(len(rows.value) for _, rows in outcomes)
    return states, jax.tree.map(
        lambda *parts: np.stack([_padded(part, length) for part in parts]),
        *(rows for _, rows in outcomes),
    )


def _in_lockstep() -> bool:
    """On a CPU a batch would wait for its slowest member at each step, and use one core."""
    return jax.default_backend() != "cpu"


def _run_apart(run: Run, note) -> list[tuple[State, Row]]:
    """Each start for as long as it needs, as many at a time as there are cores."""
    task, steps = run.task, run.task.objective.traits.steps_at_once
    none = jnp.zeros((), jnp.int32)
    first = run.begin(0)  # here, so that it is compiled once; the others begin side by side

    def run_one(start: int) -> tuple[State, Row]:
        state, rows = _resumed(run, start, first if start == 0 else run.begin(start))
        attempt = 0
        while rows is None or not (run.has_ended(state) or run.is_late):
            before = state
            key, tried = run.keys[start], jnp.asarray(attempt, jnp.int32)
            state, new = jax.block_until_ready(advance(task, steps, state, key, tried))
            if _failed(state) and attempt < task.objective.traits.attempts:
                attempt += 1
                number = before.steps + 1000 * attempt
                memory = remember_again(task, before.model, key, number)
                state = before._replace(memory=memory)
                continue
            attempt = 0
            rows = _extended(rows, new, int(state.steps) - int(before.steps))
            note(start, state, rows)
            run.file.save(start, (state, rows), int(state.steps))
        return state, rows

    ended = first._replace(code=jnp.zeros_like(first.code))  # takes no step

    def compile_it():
        return advance(task, steps, ended, run.keys[0], none)

    try:
        return map_in_threads(run_one, run.starts, task.data.x.shape[0], compile_it)
    except BaseException:
        run.interrupted.set()  # other threads end after their present step
        raise


def _run_together(run: Run, note) -> list[tuple[State, Row]]:
    """All starts in one batch, until the last of them has ended."""
    steps = run.task.objective.traits.steps_at_once
    resumed = [_resumed(run, start, run.begin(start)) for start in range(run.starts)]
    states, histories = stack([state for state, _ in resumed]), [rows for _, rows in resumed]
    none = jnp.zeros(run.starts, jnp.int32)
    while True:
        before = [member(states, start) for start in range(run.starts)]
        is_new = any(rows is None for rows in histories)
        if not is_new and (run.is_late or all(run.has_ended(state) for state in before)):
            break
        states, new = advance_all(run.task, steps, states, run.keys, none)
        for start in range(run.starts):
            state = member(states, start)
            executed = int(state.steps) - int(before[start].steps)
            histories[start] = _extended(histories[start], member(new, start), executed)
            note(start, state, histories[start])
            run.file.save(start, (state, histories[start]), int(state.steps))
    return [
        (member(states, start), rows) for start, rows in enumerate(histories) if rows is not None
    ]


def _failed(state: State) -> bool:
    code = int(state.code)
    return code != RUNNING and not RESULTS(code).is_success


def _resumed(run: Run, start: int, begun: State) -> tuple[State, Row | None]:
    """A start as it was saved, or as it begins; it has no history before its first steps."""
    if not run.file.has(start):
        return begun, None
    shapes = jax.eval_shape(
        lambda state, key, attempt: advance(run.task, 1, state, key, attempt)[1],
        begun, run.keys[start], jnp.zeros((), jnp.int32),
    )  # fmt: skip
    empty: Any = jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape[1:]), leaf.dtype), shapes)
    state, rows = run.file.load(start, (begun, empty))
    return state, jax.tree.map(np.asarray, rows)


def _extended(rows: Row | None, new: Row, executed: int) -> Row:
    """A history with the rows of the steps that were taken just now."""
    taken = jax.tree.map(lambda column: np.asarray(column)[:executed], new)
    if rows is None:
        return taken
    return jax.tree.map(lambda old, more: np.concatenate([old, more]), rows, taken)


def _padded(rows: np.ndarray, length: int) -> np.ndarray:
    missing = np.full((length - len(rows), *rows.shape[1:]), np.nan, _floating(rows.dtype))
    return np.concatenate([rows.astype(missing.dtype), missing])


def _floating(dtype) -> Any:
    return dtype if dtype.kind == "f" else np.result_type(float)


def open_checkpoint(path: str | Path | None, task: Task, models: KernelMachine, keys: Any):
    """The file of a run, known by all that decides its course: not by the limit of steps."""
    identity = (task._replace(most=None), models, keys)
    return Checkpoint(path, identity)

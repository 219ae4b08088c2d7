"""One step of one start, whatever is minimized: look, remember the best, decide whether to stop, move."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from .._machine import KernelMachine
from .._results import RESULTS
from ..criteria import AbstractObjective, Data, is_usable
from ..runtime import filter_jit
from ..solvers import Start
from ._measure import measure
from ._steppers import AbstractStepper, Limits, Look, evaluate
from .stopping import AbstractRule, Seen

RUNNING = -1
_SMALL_STEP = 1e-3  # of all leaves: a tenth of a percent for positive parameters


class Task(NamedTuple):
    """What is the same for all starts and steps.

    `most` is the limit of steps, an array, so that no number is compiled for; `test` and `validation` are
    other data `(x, y)`, or None.
    """

    objective: AbstractObjective
    stepper: AbstractStepper
    rules: tuple[AbstractRule, ...]
    data: Data
    limits: Limits
    most: Int[Array, ""]
    test: tuple[Array, Array] | None
    validation: tuple[Array, Array] | None


class Best(NamedTuple):
    """The best point so far: by the validation error, else by the value, else the latest one."""

    model: KernelMachine
    value: Float[Array, ""]
    validation: Float[Array, ""]
    step: Int[Array, ""]


class State(NamedTuple):
    """Where a start is. It has all that is needed to continue as if nothing had happened."""

    model: KernelMachine
    memory: Any
    stepper: Any
    rules: tuple[Any, ...]
    best: Best
    fit_start: Start
    steps: Int[Array, ""]
    failures: Int[Array, ""]
    code: Int[Array, ""]
    flat: Bool[Array, ""]  # whether the gradient of the start itself is exactly zero


class Row(NamedTuple):
    """One line of the history: all as found at the model of that step."""

    model: KernelMachine
    value: Float[Array, ""]
    gradient: KernelMachine
    standard_error: KernelMachine | None
    gradient_norm: Float[Array, ""]
    magnitude: Float[Array, ""]
    test: Float[Array, ""]
    validation: Float[Array, ""]
    info: dict[str, Float[Array, ""]]


@filter_jit
def begin(task: Task, model: KernelMachine, key: Any) -> State:
    """The state of a start before its first step; `key` is the start's own."""
    data = task.data
    dtype = data.x.dtype
    infinity = jnp.asarray(jnp.inf, dtype)
    none = jnp.zeros((), jnp.int32)
    return State(
        model=model,
        memory=task.objective.init(model, data, _memory_key(key)),
        stepper=task.stepper.init(model, key),
        rules=tuple(rule.init(dtype) for rule in task.rules),
        best=Best(model, infinity, infinity, none),
        fit_start=Start(jnp.zeros(data.x.shape[0], dtype), jnp.zeros((), dtype)),
        steps=none,
        failures=none,
        code=none + RUNNING,
        flat=jnp.asarray(False),
    )


@filter_jit
def remember_again(task: Task, model: KernelMachine, key: Any, number: Int[Array, ""]) -> Any:
    """A new memory at a model, where an observation with the old one failed."""
    again = jax.random.fold_in(_memory_key(key), number)
    return task.objective.init(model, task.data, again)


def _memory_key(key):
    return jax.random.split(key)[0]


def _step_key(key, number):
    return jax.random.fold_in(jax.random.split(key)[1], number)


def _step(task: Task, state: State, key: Any, attempt: Int[Array, ""]) -> tuple[State, Row]:
    """One step; of a repeated one `attempt` counts the failures."""
    objective, stepper, data = task.objective, task.stepper, task.data
    number = state.steps + 1000 * attempt
    look, stepper_state = stepper.look(
        objective, data, task.limits, state.model, state.memory, state.stepper, state.steps == 0,
        _step_key(key, number),
    )  # fmt: skip
    moved, stepper_state = stepper.move(
        objective, data, task.limits, look, state.memory, stepper_state
    )
    fit_start, test, validation = measure(
        data.complete(look.model), data.x, data.y, data.weights, state.fit_start, task.test,
        task.validation,
    )  # fmt: skip
    row = _row(look, test, validation)
    change = jnp.max(jnp.abs(ravel_pytree(moved)[0] - ravel_pytree(look.model)[0]), initial=0.0)
    value = jnp.where(look.is_sound, look.seen.value, jnp.inf)
    seen = Seen(
        value=value,
        gradient_norm=row.gradient_norm,
        magnitude=row.magnitude,
        move=change,
        validation=validation,
        is_lowest=value <= state.best.value,
        is_sound=look.is_sound,
    )
    updates = [
        rule.update(memory, seen) for rule, memory in zip(task.rules, state.rules, strict=True)
    ]
    best = _better(task, state, look, seen)
    failures = jnp.where(look.is_sound, 0, state.failures + 1)
    is_flat = jnp.all(ravel_pytree(look.seen.gradient)[0] == 0) & look.is_sound
    state = State(
        model=moved,
        memory=_choose(look.is_sound, look.seen.memory, state.memory),
        stepper=stepper_state,
        rules=tuple(memory for memory, _ in updates),
        best=best,
        fit_start=fit_start,
        steps=state.steps + 1,
        failures=failures,
        code=_code(task, look, best, failures, [met for _, met in updates]),
        flat=jnp.where(state.steps == 0, is_flat, state.flat),
    )
    return state, row


def _row(look: Look, test, validation) -> Row:
    seen = look.seen
    norm = jnp.max(jnp.abs(ravel_pytree(look.gradient)[0]), initial=0.0)
    value = jnp.where(look.is_sound, seen.value, jnp.nan)
    return Row(
        model=look.model,
        value=value,
        gradient=seen.gradient,
        standard_error=seen.standard_error,
        gradient_norm=norm.astype(value.dtype),
        magnitude=_magnitude(seen.gradient, seen.standard_error),
        test=test,
        validation=validation,
        info=seen.info,
    )


def _magnitude(gradient: KernelMachine, error: KernelMachine | None) -> Float[Array, ""]:
    """The mean magnitude of the gradient's components, with what noise adds to it taken off."""
    components = ravel_pytree(gradient)[0]
    errors = jnp.zeros_like(components) if error is None else ravel_pytree(error)[0]
    return jnp.mean(jnp.sqrt(jnp.maximum(components**2 - errors**2, 0.0)))


def _better(task: Task, state: State, look: Look, seen: Seen) -> Best:
    """The best point so far, by whatever there is to compare."""
    best, traits = state.best, task.objective.traits
    if task.validation is not None:
        take = seen.validation < best.validation
        if traits.has_value:  # a count of errors has many ties
            tied = (seen.validation == best.validation) & (seen.value < best.value)
            take = (take | tied) & jnp.isfinite(seen.value)
    elif traits.has_value:
        take = seen.value < best.value
    else:
        take = jnp.asarray(True)
    new = Best(look.model, seen.value, seen.validation, state.steps)
    return _choose(take & look.is_sound, new, best)


def _code(task: Task, look: Look, best: Best, failures, met) -> Int[Array, ""]:
    """Why the start has ended, or that it is running."""
    failed = jnp.where(is_usable(look.seen.result), RESULTS.nonfinite, look.seen.result)
    # in a search that code is for its own limit, which does not count as a failure
    failed = jnp.where(failed == RESULTS.iteration_limit, RESULTS.precision_limit, failed)
    traits = task.objective.traits
    never_sound = ~jnp.isfinite(best.value) if traits.has_value else jnp.asarray(False)
    hopeless = (failures > 0) & (never_sound | (failures > traits.most_failures))
    conditions = [hopeless, look.has_arrived, *met]
    codes = [failed, RESULTS.successful, *(rule.code for rule in task.rules)]
    return jnp.select(conditions, [jnp.asarray(code, jnp.int32) for code in codes], RUNNING)


def _choose(condition, yes, no):
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


@filter_jit
def advance(
    task: Task, steps: int, state: State, key: Any, attempt: Int[Array, ""]
) -> tuple[State, Row]:
    """Several steps of one start, and no more than the task allows; rows after its end mean nothing."""
    return _advance(task, steps, state, key, attempt)


@filter_jit
def advance_all(
    task: Task, steps: int, states: State, keys: Any, attempts: Int[Array, " starts"]
) -> tuple[State, Row]:
    """Several steps of all starts in lockstep."""
    return jax.vmap(lambda *one: _advance(task, steps, *one))(states, keys, attempts)


def _advance(task: Task, steps: int, state: State, key, attempt):
    # jitted, so that it is traced once for its shapes and its code
    step = jax.jit(lambda state: _step(task, state, key, attempt), inline=True)
    shapes = jax.eval_shape(step, state)[1]
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def body(state, _):
        return jax.lax.cond(
            (state.code == RUNNING) & (state.steps < task.most),
            lambda: step(state),
            lambda: (state, empty),
        )

    return jax.lax.scan(body, state, None, length=steps)


@filter_jit
def is_constant(task: Task, model: KernelMachine) -> Bool[Array, ""]:
    """Whether a small step changes nothing: then the criterion has no slope, and this is no optimum."""
    moved = jax.tree.map(lambda leaf: leaf + _SMALL_STEP, model)
    here, there = (evaluate(task.objective, each, task.data, None).value for each in (model, moved))
    return here == there

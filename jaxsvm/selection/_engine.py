"""One step of one start: observe the objective, keep the best model, decide whether to stop, and move."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from .._fit import fit_gram
from .._machine import KernelMachine
from ..criteria import is_usable, scores
from ..numerics import choose
from ..results import RESULTS
from ..runtime import filter_jit
from ..solvers import Start
from ._path import Path, empty_path, extended
from ._steppers import AbstractStepper, Look, Problem
from .stopping import AbstractRule, Step

RUNNING = -1
_SMALL_STEP = 1e-3  # of all leaves: a tenth of a percent for positive parameters


class Task(NamedTuple):
    """Everything that all starts and steps share.

    `max_steps` is an array, so that changing it does not recompile; `test` and `validation` are further data
    `(x, y)`, or None.
    """

    problem: Problem
    stepper: AbstractStepper
    rules: tuple[AbstractRule, ...]
    max_steps: Int[Array, ""]
    test: tuple[Array, Array] | None
    validation: tuple[Array, Array] | None


class Best(NamedTuple):
    """The best point so far: by the validation error, else by the value, else the latest one."""

    model: KernelMachine
    value: Float[Array, ""]
    validation: Float[Array, ""]
    step: Int[Array, ""]


class State(NamedTuple):
    """The state of a start: all that is needed to continue it after an interruption."""

    model: KernelMachine
    memory: Any
    stepper: Any
    rules: tuple[Any, ...]
    best: Best
    path: Path
    fit_start: Start
    steps: Int[Array, ""]
    failures: Int[Array, ""]
    code: Int[Array, ""]
    flat: Bool[Array, ""]  # whether the gradient at the start is exactly zero


class Row(NamedTuple):
    """One line of the history: observations and errors at the model of that step."""

    model: KernelMachine
    value: Float[Array, ""]
    gradient: KernelMachine
    standard_error: KernelMachine | None
    gradient_norm: Float[Array, ""]
    magnitude: Float[Array, ""]
    change: Float[Array, ""]
    change_error: Float[Array, ""]
    test: Float[Array, ""]
    validation: Float[Array, ""]
    info: dict[str, Float[Array, ""]]


@filter_jit
def begin(task: Task, model: KernelMachine, key: Any) -> State:
    """The state of a start before its first step; each start has its own `key`."""
    data = task.problem.data
    dtype = data.x.dtype
    infinity = jnp.asarray(jnp.inf, dtype)
    none = jnp.zeros((), jnp.int32)
    path = empty_path(model, task.problem.objective.traits.chains, dtype)
    return State(
        model=model,
        memory=task.problem.objective.init(model, data, _memory_key(key)),
        stepper=task.stepper.init(model, key),
        rules=tuple(rule.init(_first_step(path, dtype)) for rule in task.rules),
        best=Best(model, infinity, infinity, none),
        path=path,
        fit_start=Start(jnp.zeros(data.x.shape[0], dtype), jnp.zeros((), dtype)),
        steps=none,
        failures=none,
        code=none + RUNNING,
        flat=jnp.asarray(False),
    )


def _first_step(path: Path, dtype: Any) -> Step:
    """A step without content, for the shapes of what the rules remember."""
    zero = jnp.zeros((), dtype)
    no = jnp.asarray(False)
    return Step(zero, zero, zero, jnp.zeros_like(path.point), path.change, zero, zero, no, no)


@filter_jit
def new_memory(task: Task, model: KernelMachine, key: Any, number: Int[Array, ""]) -> Any:
    """A new memory for a model whose observation failed with the old one."""
    again = jax.random.fold_in(_memory_key(key), number)
    return task.problem.objective.init(model, task.problem.data, again)


def _memory_key(key):
    return jax.random.split(key)[0]


def _step_key(key, number):
    return jax.random.fold_in(jax.random.split(key)[1], number)


def _step(task: Task, state: State, key: Any, attempt: Int[Array, ""]) -> tuple[State, Row]:
    """One step; `attempt` counts how often it has failed before."""
    step_key = _step_key(key, state.steps + 1000 * attempt)
    look, moved, stepper_state = task.stepper.step(
        task.problem, state.model, state.memory, state.stepper, step_key
    )
    observation = look.observation
    fit_start, test, validation = _errors(task, look.model, state.fit_start)
    path = extended(state.path, look.model, observation, look.is_sound)
    magnitudes = _magnitudes(observation.gradient, observation.standard_error)
    row = _row(look, jnp.mean(magnitudes), path, test, validation)
    move = jnp.max(jnp.abs(ravel_pytree(moved)[0] - ravel_pytree(look.model)[0]), initial=0.0)
    value = jnp.where(look.is_sound, observation.value, jnp.inf)
    step = Step(
        value=value,
        gradient_norm=row.gradient_norm,
        magnitude=row.magnitude,
        magnitudes=magnitudes,
        change=path.change,
        move=move,
        validation=validation,
        is_lowest=value <= state.best.value,
        is_sound=look.is_sound,
    )
    updates = [
        rule.update(memory, step) for rule, memory in zip(task.rules, state.rules, strict=True)
    ]
    best = _better(task, state, look.model, step)
    failures = jnp.where(look.is_sound, 0, state.failures + 1)
    is_flat = jnp.all(ravel_pytree(observation.gradient)[0] == 0) & look.is_sound
    state = State(
        model=moved,
        memory=choose(look.is_sound, observation.memory, state.memory),
        stepper=stepper_state,
        rules=tuple(memory for memory, _ in updates),
        best=best,
        path=path,
        fit_start=fit_start,
        steps=state.steps + 1,
        failures=failures,
        code=_code(task, look, best, failures, [met for _, met in updates]),
        flat=jnp.where(state.steps == 0, is_flat, state.flat),
    )
    return state, row


def _errors(task: Task, model: KernelMachine, start: Start):
    """The start of the next fit, and the errors of this one on the test and the validation data.

    Shares of wrong labels, or mean squared errors of a regression; NaN without such data.
    """
    data = task.problem.data
    nan = jnp.full((), jnp.nan, data.x.dtype)
    if task.test is None and task.validation is None:
        return start, nan, nan
    free = data.complete(model)
    gram, basis, _ = data.representation.matrix(free.kernel, data.x)
    fitted = fit_gram(free, gram, data.x, data.y, data.weights, start)
    score = scores.error if free.loss.is_classifier else scores.squared

    def error(pair):
        if pair is None:
            return nan
        points, targets = pair
        if basis is None:
            features = free.kernel.matrix(points, data.x, same=False)
        else:
            features, _ = basis.features(free.kernel, points)
        latent = features @ gram.coefficients(fitted.dual) + fitted.offset
        return jnp.mean(score(targets, latent))

    return Start(fitted.dual, fitted.offset), error(task.test), error(task.validation)


def _row(look: Look, magnitude, path: Path, test, validation) -> Row:
    observation = look.observation
    norm = jnp.max(jnp.abs(ravel_pytree(look.gradient)[0]), initial=0.0)
    value = jnp.where(look.is_sound, observation.value, jnp.nan)
    change, change_error = path.mean_and_error()
    return Row(
        model=look.model,
        value=value,
        gradient=observation.gradient,
        standard_error=observation.standard_error,
        gradient_norm=norm.astype(value.dtype),
        magnitude=magnitude,
        change=jnp.where(look.is_sound, change, jnp.nan),
        change_error=jnp.where(look.is_sound, change_error, jnp.nan),
        test=test,
        validation=validation,
        info=observation.info,
    )


def _magnitudes(gradient: KernelMachine, error: KernelMachine | None) -> Float[Array, " p"]:
    """The magnitudes of the gradient's components, less the part that is due to noise."""
    components = ravel_pytree(gradient)[0]
    errors = jnp.zeros_like(components) if error is None else ravel_pytree(error)[0]
    return jnp.sqrt(jnp.maximum(components**2 - errors**2, 0.0))


def _better(task: Task, state: State, model: KernelMachine, step: Step) -> Best:
    """The better of the best point so far and the present one."""
    best, traits = state.best, task.problem.objective.traits
    if task.validation is not None:
        take = step.validation < best.validation
        if traits.has_value:  # a count of errors has many ties
            tied = (step.validation == best.validation) & (step.value < best.value)
            take = (take | tied) & jnp.isfinite(step.value)
    elif traits.has_value:
        take = step.value < best.value
    else:
        take = jnp.asarray(True)
    new = Best(model, step.value, step.validation, state.steps)
    return choose(take & step.is_sound, new, best)


def _code(task: Task, look: Look, best: Best, failures, met) -> Int[Array, ""]:
    """Why the start has ended, or `RUNNING`."""
    result = look.observation.result
    failed = jnp.where(is_usable(result), RESULTS.nonfinite, result)
    # in a search this code means that the search has reached its limit, which is not a failure
    failed = jnp.where(failed == RESULTS.iteration_limit, RESULTS.precision_limit, failed)
    traits = task.problem.objective.traits
    never_sound = ~jnp.isfinite(best.value) if traits.has_value else jnp.asarray(False)
    hopeless = (failures > 0) & (never_sound | (failures > traits.max_failures))
    conditions = [hopeless, look.has_arrived, *met]
    codes = [failed, RESULTS.successful, *(rule.code for rule in task.rules)]
    return jnp.select(conditions, [jnp.asarray(code, jnp.int32) for code in codes], RUNNING)


@filter_jit
def advance(
    task: Task, steps: int, state: State, key: Any, attempt: Int[Array, ""]
) -> tuple[State, Row]:
    """Take several steps of one start, within the task's limit; rows after its end are meaningless."""
    return _advance(task, steps, state, key, attempt)


@filter_jit
def advance_all(
    task: Task, steps: int, states: State, keys: Any, attempts: Int[Array, " starts"]
) -> tuple[State, Row]:
    """Take several steps of all starts in lockstep."""
    return jax.vmap(lambda *one: _advance(task, steps, *one))(states, keys, attempts)


def _advance(task: Task, steps: int, state: State, key, attempt):
    # jitted, so that one trace gives both the shapes and the code
    step = jax.jit(lambda state: _step(task, state, key, attempt), inline=True)
    shapes = jax.eval_shape(step, state)[1]
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def body(state, _):
        return jax.lax.cond(
            (state.code == RUNNING) & (state.steps < task.max_steps),
            lambda: step(state),
            lambda: (state, empty),
        )

    return jax.lax.scan(body, state, None, length=steps)


@filter_jit
def is_constant(task: Task, model: KernelMachine) -> Bool[Array, ""]:
    """Whether a small step does not change the criterion: then a zero gradient is not an optimum."""
    moved = jax.tree.map(lambda leaf: leaf + _SMALL_STEP, model)
    here, there = (task.problem.evaluate(each, None).value for each in (model, moved))
    return here == there

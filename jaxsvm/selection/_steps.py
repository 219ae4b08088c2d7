"""One step of one start: evaluate, remember the best, decide whether to stop, move on."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from .._machine import KernelMachine
from .._parameters import put_in
from .._programs import filter_jit
from .._results import RESULTS
from ..criteria import AbstractCriterion, Evaluation, is_usable
from ..optimizers import GreedyWalk
from ..solvers import Start
from ._coordinates import clip
from ._measure import measure

RUNNING = -1
_SMALL_STEP = 1e-3  # of all leaves: a tenth of a percent for positive parameters
_MOST_FAILURES = 12  # evaluations in a row that may fail: L-BFGS goes back from each of them


class Task(NamedTuple):
    """What is the same for all starts."""

    criterion: AbstractCriterion
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    low: KernelMachine
    high: KernelMachine
    linear: Any  # which coordinates of a random walk step in natural units
    most: Int[
        Array, ""
    ]  # steps of a start; no static number, for which each would be compiled anew
    fixed: tuple[Array, ...]  # the values of frozen parameters
    test: tuple[Array, Array] | None
    validation: tuple[Array, Array] | None


class Rules(NamedTuple):
    """When to stop; static."""

    gradient_tolerance: float
    change_tolerance: float
    patience: int


class Best(NamedTuple):
    """The best point so far, by the validation score if there is one, else by the criterion."""

    model: KernelMachine
    value: Float[Array, ""]
    validation: Float[Array, ""]
    reference: Float[Array, ""]  # the criterion when it last improved by more than the tolerance
    stalled: Int[Array, ""]  # steps since then
    step: Int[Array, ""]  # the number of the best point's step
    worse: Int[Array, ""]  # steps since the validation score improved


class State(NamedTuple):
    """Where a start is."""

    model: KernelMachine
    memory: Any
    fit_start: Start
    optimizer: Any
    best: Best
    steps: Int[Array, ""]
    failures: Int[Array, ""]
    code: Int[Array, ""]
    key: Any
    flat: Bool[Array, ""]  # whether the gradient of the start itself is exactly zero


class Row(NamedTuple):
    """One line of the history."""

    model: KernelMachine
    value: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    test: Float[Array, ""]
    validation: Float[Array, ""]


class WalkState(NamedTuple):
    """The random walk: the current value and one step size for each coordinate."""

    value: Float[Array, ""]
    result: Int[Array, ""]
    sizes: Float[Array, " p"]


@filter_jit
def begin(task: Task, optimizer, model: KernelMachine, key) -> State:
    """The state of a start before its first step."""
    dtype = task.x.dtype
    examples = task.x.shape[0]
    infinity = jnp.asarray(jnp.inf, dtype)
    none = jnp.zeros((), jnp.int32)
    zero_start = Start(jnp.zeros(examples, dtype), jnp.zeros((), dtype))
    shapes = jax.eval_shape(lambda: _evaluate(task, model, None).memory)
    memory = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    if isinstance(optimizer, GreedyWalk):
        flat, _ = ravel_pytree(model)
        state = WalkState(infinity, none, jnp.full(flat.shape, optimizer.step, dtype))
    else:
        state = optimizer.init(model)
    best = Best(model, infinity, infinity, infinity, none, none, none)
    running, flat = none + RUNNING, jnp.asarray(False)
    return State(model, memory, zero_start, state, best, none, none, running, key, flat)


def _evaluate(task: Task, model, memory):
    model = put_in(model, task.fixed)
    return task.criterion.evaluate(model, task.x, task.y, task.weights, memory)


@filter_jit
def is_constant(task: Task, model: KernelMachine) -> Bool[Array, ""]:
    """Whether a small step changes nothing: that is no optimum, but a criterion without a slope."""
    moved = jax.tree.map(lambda leaf: leaf + _SMALL_STEP, model)
    here, there = (_evaluate(task, each, None).value for each in (model, moved))
    return here == there


def step(task: Task, optimizer, rules: Rules, state: State) -> tuple[State, Row]:
    """One step of whichever method."""
    if isinstance(optimizer, GreedyWalk):
        return _walk_step(task, optimizer, rules, state)
    return _gradient_step(task, optimizer, rules, state)


def _gradient_step(task: Task, optimizer, rules: Rules, state: State) -> tuple[State, Row]:
    def value_of(model):
        seen = _evaluate(task, model, state.memory)
        return seen.value, seen

    (_, seen), gradient = jax.value_and_grad(value_of, has_aux=True)(state.model)
    flat, _ = ravel_pytree(gradient)
    sound = is_usable(seen.result) & jnp.isfinite(seen.value) & jnp.all(jnp.isfinite(flat))
    flat_start = jnp.where(state.steps == 0, sound & jnp.all(flat == 0), state.flat)
    # what would lead out of the bounds is no gradient
    gradient = jax.tree.map(
        lambda g, leaf, low, high: jnp.where(
            ((leaf <= low) & (g > 0)) | ((leaf >= high) & (g < 0)) | ~sound, 0.0, g
        ),
        gradient,
        state.model,
        task.low,
        task.high,
    )
    value = jnp.where(sound, seen.value, jnp.inf)
    norm = jnp.max(jnp.abs(ravel_pytree(gradient)[0]), initial=0.0)
    is_best = value <= state.best.value
    small = norm <= rules.gradient_tolerance * jnp.maximum(1.0, jnp.abs(value))
    state, row = _judge(task, rules, state, value, seen, norm, sound, sound & is_best & small)

    # wrapped here, while tracing: the optimizer itself is what a compiled program is known by
    wrapped: Any = optax.with_extra_args_support(optimizer)
    updates, optimizer_state = wrapped.update(
        gradient,
        state.optimizer,
        state.model,
        value=value,
        grad=gradient,
        value_fn=lambda model: value_of(model)[0],
    )
    moved = jax.tree.map(jnp.add, state.model, updates)
    moved = clip(moved, task.low, task.high)
    memory = jax.tree.map(lambda new, old: jnp.where(sound, new, old), seen.memory, state.memory)
    state = state._replace(model=moved, memory=memory, optimizer=optimizer_state, flat=flat_start)
    return state, row


def _walk_step(task: Task, walk: GreedyWalk, rules: Rules, state: State) -> tuple[State, Row]:
    """One round of the random walk through all coordinates; first of all a look at the start."""
    point, unravel = ravel_pytree(state.model)
    low, high, linear = (ravel_pytree(tree)[0] for tree in (task.low, task.high, task.linear))

    def try_coordinate(carry, index):
        point, memory, (value, result, sizes), key = carry
        key, draw = jax.random.split(key)
        move = sizes[index] * jax.random.normal(draw, dtype=point.dtype)
        old = point[index]
        natural = jnp.exp(old) + move
        straight = jnp.log(jnp.where(natural > 0, natural, 1.0))
        allowed = (linear[index] == 0) | (natural > 0)
        new = jnp.where(linear[index] > 0, straight, old + move)
        allowed &= (new >= low[index]) & (new <= high[index])
        trial = point.at[index].set(jnp.where(allowed, new, old))
        seen = _evaluate(task, unravel(trial), memory)
        better = allowed & is_usable(seen.result) & (seen.value < value)
        sizes = sizes.at[index].multiply(jnp.where(better, walk.factor, 1 / walk.factor))
        point, value, result, memory = jax.tree.map(
            lambda a, b: jnp.where(better, a, b),
            (trial, seen.value, seen.result, seen.memory),
            (point, value, result, memory),
        )
        return (point, memory, WalkState(value, result, sizes), key), None

    def look_at_start():
        seen = _evaluate(task, state.model, state.memory)
        sound = is_usable(seen.result) & jnp.isfinite(seen.value)
        value = jnp.where(sound, seen.value, jnp.inf)
        return point, seen.memory, WalkState(value, seen.result, state.optimizer.sizes), state.key

    def go_round():
        carry = (point, state.memory, state.optimizer, state.key)
        return jax.lax.scan(try_coordinate, carry, jnp.arange(point.shape[0]))[0]

    moved, memory, current, key = jax.lax.cond(state.steps > 0, go_round, look_at_start)
    sound = jnp.isfinite(current.value)
    state = state._replace(model=unravel(moved), memory=memory, optimizer=current, key=key)
    arrived = jnp.max(current.sizes, initial=0.0) < walk.step_tolerance
    seen = Evaluation(current.value, jnp.where(sound, current.result, RESULTS.nonfinite), memory)
    norm = jnp.full_like(current.value, jnp.nan)
    return _judge(task, rules, state, current.value, seen, norm, sound, sound & arrived)


def _judge(task, rules, state, value, seen, norm, sound, arrived) -> tuple[State, Row]:
    """Note what was seen, keep the best of it, and decide whether this start has ended."""
    fit_start, test, validation = measure(
        put_in(state.model, task.fixed),
        task.x,
        task.y,
        task.weights,
        state.fit_start,
        task.test,
        task.validation,
    )
    best = _improve(rules, state, value, validation)
    failures = jnp.where(sound, 0, state.failures + 1)
    failed = jnp.where(is_usable(seen.result), RESULTS.nonfinite, seen.result)
    # in a selection that code is for its own limit, which is no failure
    failed = jnp.where(failed == RESULTS.iteration_limit, RESULTS.precision_limit, failed)
    never_sound = ~jnp.isfinite(best.value)
    code = jnp.select(
        [
            (failures > 0) & (never_sound | (failures > _MOST_FAILURES)),
            arrived,
            best.worse >= rules.patience if task.validation is not None else jnp.asarray(False),
            best.stalled >= rules.patience,
        ],
        [
            failed.astype(jnp.int32),
            jnp.asarray(RESULTS.successful, jnp.int32),
            jnp.asarray(RESULTS.stopped_early, jnp.int32),
            jnp.asarray(RESULTS.small_change, jnp.int32),
        ],
        RUNNING,
    )
    norm = norm.astype(value.dtype)
    row = Row(state.model, jnp.where(sound, value, jnp.nan), norm, test, validation)
    state = state._replace(
        fit_start=fit_start, best=best, steps=state.steps + 1, failures=failures, code=code
    )
    return state, row


def _improve(rules: Rules, state: State, value, validation) -> Best:
    best = state.best
    lower = value < best.value
    by_validation = validation < best.validation
    no_validation = jnp.isnan(validation)
    # a count of errors has many ties
    tied = (validation == best.validation) & lower
    take = jnp.where(no_validation, lower, (by_validation | tied) & jnp.isfinite(value))
    model = jax.tree.map(lambda new, old: jnp.where(take, new, old), state.model, best.model)
    slack = rules.change_tolerance * jnp.maximum(1.0, jnp.abs(value))
    progress = value < best.reference - slack
    return Best(
        model,
        jnp.where(take, value, best.value),
        jnp.where(take & ~no_validation, validation, best.validation),
        jnp.where(progress, value, best.reference),
        jnp.where(progress, 0, best.stalled + 1),
        jnp.where(take, state.steps, best.step),
        jnp.where(by_validation | no_validation, 0, best.worse + 1),
    )


@filter_jit
def advance(task: Task, optimizer, rules: Rules, steps: int, state: State) -> tuple[State, Row]:
    """Several steps of one start, and no more than the task allows; rows after its end are of no meaning."""
    return _advance(task, optimizer, rules, steps, state)


@filter_jit
def advance_all(task: Task, optimizer, rules: Rules, steps: int, states: State):
    """Several steps of all starts in lockstep."""
    return jax.vmap(lambda state: _advance(task, optimizer, rules, steps, state))(states)


def _advance(task, optimizer, rules, steps, state):
    def body(state, _):
        nan = jnp.full((), jnp.nan, task.x.dtype)
        return jax.lax.cond(
            (state.code == RUNNING) & (state.steps < task.most),
            lambda: step(task, optimizer, rules, state),
            lambda: (state, Row(state.model, nan, nan, nan, nan)),
        )

    return jax.lax.scan(body, state, None, length=steps)

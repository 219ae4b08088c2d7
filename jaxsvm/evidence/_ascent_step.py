"""One step of an ascent: sample at the present hyperparameters, estimate the gradient, judge, move on."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from .._machine import KernelMachine
from .._parameters import unfreeze
from .._programs import filter_jit
from .._results import RESULTS
from ..linalg import cholesky, solve_by_factor
from ..sampling import (
    Chains,
    Setup,
    Subspace,
    draw,
    split_rhat,
    start_chains,
    target_of,
    warm_up,
    whiten,
)
from ..selection import clip, measure
from ..solvers import Start
from ._gradient import Plan, gradients_of_chains, mean_and_error, project

RUNNING = -1
_AGE = 40.0  # how settled the step size is that comes from the step before
_LEAST_ACCEPTANCE = 0.02


class Task(NamedTuple):
    """What is the same for all starts and steps."""

    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    landmarks: Int[Array, " m"] | None
    low: KernelMachine
    high: KernelMachine
    test: tuple[Array, Array] | None
    validation: tuple[Array, Array] | None


class Rules(NamedTuple):
    """When to stop; static. None switches a rule off."""

    gradient_share: float | None
    change_share: float | None
    change_steps: int
    patience: int


class Walker(NamedTuple):
    """The chains as they are carried from one kernel to the next: by their latent values."""

    latent: Float[Array, "chains n"]
    curvature: Float[Array, " n"]
    log_step: Float[Array, ""]


class State(NamedTuple):
    """Where a start is. It has all that is needed to go on as if nothing had happened."""

    model: KernelMachine
    walker: Walker
    optimizer: Any
    fit_start: Start
    peak: Float[Array, ""]  # of the mean magnitude of the gradient
    still: Int[Array, ""]  # steps in a row in which no hyperparameter moved much
    best: KernelMachine  # by the validation score, else the present model
    best_score: Float[Array, ""]
    end: Int[Array, ""]  # the number of the best model's step
    worse: Int[Array, ""]  # steps since the validation score improved
    steps: Int[Array, ""]
    code: Int[Array, ""]


class Row(NamedTuple):
    """One line of the history: all as found at the model of that step."""

    model: KernelMachine
    gradient: KernelMachine
    standard_error: KernelMachine
    magnitude: Float[Array, ""]
    acceptance: Float[Array, ""]
    least_acceptance: Float[Array, ""]  # among the chains
    rhat: Float[Array, ""]
    divergences: Int[Array, ""]
    step_size: Float[Array, ""]
    whitening_error: Float[Array, ""]
    test: Float[Array, ""]
    validation: Float[Array, ""]


@filter_jit
def begin(task: Task, plan: Plan, warmup: int, model: KernelMachine, key) -> Walker:
    """The chains of a start: at the mode, then warmed up for as long as it takes."""
    setup = _setup(task, model)
    whitening = whiten(setup.model.kernel, task.x, Subspace(task.landmarks, plan.rank))
    target = target_of(setup, whitening)
    chains = start_chains(target, plan.method, plan.chains)
    chains = warm_up(target, plan.method, chains, key, warmup)
    return Walker(chains.b @ whitening.factor.T, chains.curvature, chains.log_step)


def first_state(task: Task, model: KernelMachine, walker: Walker, optimizer) -> State:
    """A start before its first step."""
    dtype = task.x.dtype
    none = jnp.zeros((), jnp.int32)
    start = Start(jnp.zeros(task.x.shape[0], dtype), jnp.zeros((), dtype))
    zero, infinity = jnp.zeros((), dtype), jnp.asarray(jnp.inf, dtype)
    state = optimizer.init(model)
    return State(
        model, walker, state, start, zero, none, model, infinity, none, none, none, none + RUNNING
    )


@filter_jit
def advance(
    task: Task, plan: Plan, optimizer, rules: Rules, state: State, key
) -> tuple[State, Row]:
    """One step of one start."""
    setup = _setup(task, state.model)
    whitening = whiten(setup.model.kernel, task.x, Subspace(task.landmarks, plan.rank))
    target = target_of(setup, whitening)
    warm_key, draw_key = jax.random.split(key)
    chains = _carry_over(state.walker, whitening.factor)
    chains = warm_up(target, plan.method, chains, warm_key, plan.warmup, _AGE)
    chains, means, traces, _ = draw(
        target, plan.method, chains, draw_key, plan.draws, gradients=True
    )
    walker = Walker(chains.b @ whitening.factor.T, chains.curvature, chains.log_step)
    by_chain = gradients_of_chains(setup, whitening, means, plan)
    gradient, error = (project(state.model, part) for part in mean_and_error(by_chain))

    fit_start, test, validation = measure(
        state.model, task.x, task.y, task.weights, state.fit_start, task.test, task.validation
    )
    of_chains = jnp.mean(traces.acceptance, axis=0)
    acceptance = jnp.mean(of_chains)
    magnitude = _magnitude(gradient, error)
    sound = jnp.isfinite(magnitude) & (acceptance >= _LEAST_ACCEPTANCE)
    row = Row(
        state.model, gradient, error, magnitude, acceptance, jnp.min(of_chains), split_rhat(traces),
        jnp.sum(traces.divergent), jnp.exp(chains.log_step), whitening.error, test, validation,
    )  # fmt: skip

    # what would lead out of the bounds is no gradient; optax minimizes
    downhill = jax.tree.map(
        lambda g, leaf, low, high: jnp.where(
            ((leaf <= low) & (g < 0)) | ((leaf >= high) & (g > 0)) | ~sound, 0.0, -g
        ),
        gradient,
        state.model,
        task.low,
        task.high,
    )
    updates, optimizer_state = optimizer.update(downhill, state.optimizer, state.model)
    moved = clip(jax.tree.map(jnp.add, state.model, updates), task.low, task.high)
    moved = jax.tree.map(lambda new, old: jnp.where(sound, new, old), moved, state.model)

    peak = jnp.maximum(state.peak, jnp.where(sound, magnitude, 0.0))
    largest = jnp.max(jnp.abs(ravel_pytree(moved)[0] - ravel_pytree(state.model)[0]), initial=0.0)
    quiet = sound & (largest < (rules.change_share or 0.0))
    still = jnp.where(quiet, state.still + 1, 0)
    better = _is_better(validation, state.best_score, task)
    worse = jnp.where(better, 0, state.worse + 1)
    no = jnp.asarray(False)
    conditions = [
        ~sound,
        magnitude <= rules.gradient_share * peak if rules.gradient_share is not None else no,
        still >= rules.change_steps if rules.change_share is not None else no,
        worse >= rules.patience if task.validation is not None else no,
    ]
    codes = (
        RESULTS.sampling_failed, RESULTS.small_gradient, RESULTS.settled, RESULTS.stopped_early
    )  # fmt: skip
    code = jnp.select(conditions, [jnp.asarray(c, jnp.int32) for c in codes], RUNNING)
    return State(
        moved,
        walker,
        optimizer_state,
        fit_start,
        peak,
        still.astype(jnp.int32),
        jax.tree.map(lambda new, old: jnp.where(better & sound, new, old), state.model, state.best),
        state.best_score
        if task.validation is None
        else jnp.where(better & sound, validation, state.best_score),
        jnp.where(better & sound, state.steps, state.end).astype(jnp.int32),
        worse.astype(jnp.int32),
        state.steps + 1,
        code.astype(jnp.int32),
    ), row


def _is_better(error, least, task: Task) -> Bool[Array, ""]:
    """Whether a model becomes the end point: by its validation error or, without such data, as the last.

    An error that is not a number is no better than any.
    """
    return jnp.asarray(True) if task.validation is None else error < least


def _setup(task: Task, model: KernelMachine) -> Setup:
    return Setup(unfreeze(model), task.x, task.y, task.weights, task.landmarks)


def _carry_over(walker: Walker, factor: Float[Array, "n p"]) -> Chains:
    """The white coordinates that come nearest to the latent values: `b = (V'V)^-1 V' theta`."""
    gram = factor.T @ factor
    ridge = gram.shape[0] * jnp.finfo(gram.dtype).eps * jnp.trace(gram)
    gram = gram + ridge * jnp.eye(gram.shape[0], dtype=gram.dtype)
    lower = cholesky(gram)
    b = solve_by_factor(lower, factor.T @ walker.latent.T).T
    return Chains(b, walker.curvature, walker.log_step)


def _magnitude(gradient: KernelMachine, error: KernelMachine) -> Float[Array, ""]:
    """The mean magnitude of the gradient's components, with what noise adds to it taken off."""
    components, errors = ravel_pytree(gradient)[0], ravel_pytree(error)[0]
    return jnp.mean(jnp.sqrt(jnp.maximum(components**2 - errors**2, 0.0)))

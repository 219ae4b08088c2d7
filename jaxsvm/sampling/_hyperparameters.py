"""Sampling hyperparameters, with the Laplace evidence as their likelihood."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from .._machine import KernelMachine
from ..criteria import (
    AbstractCriterion,
    Data,
    Evaluation,
    LaplaceEvidence,
    evaluation,
    is_usable,
    prepare,
)
from ..hyperparameters import unfreeze
from ..numerics import member
from ..priors import AbstractDistribution, AbstractPrior, Around, as_prior
from ..results import FitError
from ..runtime import Progress, filter_jit, jit, map_over_data, warn_user
from ..selection import Ranges, check_inside, clip, draw_starts, limits, select
from ..validation import check_count
from ._diagnostics import SamplingWarning
from ._hyperposterior import HyperPosterior, diagnose
from ._samplers import HMC, dual_averaging, first_state, trajectory

FirstModel = Literal["select", "model"]
_TARGET_ACCEPTANCE = 0.8
_FIRST_STEP_SIZE = 0.2
_SPREAD = 0.3  # of the chains' starts, so that they do not agree before they have moved
_CHUNK = 10  # transitions in one compiled program
# windows of the warm-up: the share of each, and whether its draws rescale the parameters
_WINDOWS = ((0.2, False), (0.2, True), (0.4, True), (0.2, False))


def sample_hyperparameters(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    key: Any,
    prior: AbstractPrior | Mapping[str, AbstractDistribution] | Callable[..., Any] | None = None,
    evidence: LaplaceEvidence | None = None,
    chains: int = 4,
    warmup: int = 200,
    draws: int = 200,
    integration_steps: int = 5,
    start: FirstModel = "select",
    bounds: Ranges | None = None,
    weights: Any = None,
    progress: bool | None = None,
) -> HyperPosterior:
    """Draw all hyperparameters that are not frozen from their posterior, by Hamiltonian Monte Carlo.

    The density of the unconstrained leaves `v` of the model is proportional to `Q(Y|X, v) p(v)`, with the
    Laplace approximation of the evidence Q and a prior p. Each evaluation is a fit. Predictions average over
    the draws, so they account for the uncertainty of the hyperparameters: the full Bayesian treatment that
    [CKO04, sec. IV] mentions.

    The Laplace evidence may jump or have kinks; the Metropolis test corrects for both. The density is zero
    outside the `bounds` and where a fit fails.

    **Arguments:**

    - `model`: the kernel machine; `jaxsvm.freeze` the hyperparameters that should not change.
    - `x`, `y`, `weights`: the data, as for `jaxsvm.fit`.
    - `key`: a random key; the same key gives the same draws.
    - `prior`: as for `jaxsvm.select`; by default `jaxsvm.priors.Around(2.0)`, independent Gaussians around
      the unconstrained leaves of the model with standard deviation 2.
    - `evidence`: the likelihood, by default `criteria.LaplaceEvidence()`.
    - `chains`: the number of chains.
    - `warmup`: the number of transitions of each chain that adapt the step size and the scales.
    - `draws`: the number of transitions of each chain after that.
    - `integration_steps`: the number of leapfrog steps in a transition; each needs a fit.
    - `start`: `"select"` to start the chains around the most probable hyperparameters, found by a short
      `jaxsvm.select`, or `"model"` to start them around the model.
    - `bounds`: a mapping such as `{"kernel.variance": (0.01, 100)}` in natural units. Bound the amplitude of
      a hinge machine: the Laplace approximation overestimates the evidence of a huge amplitude.
    - `progress`: whether to draw a progress bar; by default if standard error is a terminal.

    **Returns:** a `HyperPosterior`. If anything is wrong with the chains, a `SamplingWarning` and
    `diagnostics.problems` say so.
    """
    evidence = LaplaceEvidence() if evidence is None else evidence
    prior = Around(2.0) if prior is None else as_prior(prior)
    x, y, weights = prepare(evidence, model, x, y, weights)
    target = _Target(evidence, prior.prepare(model, x, y, weights))
    plan = _Plan(chains, warmup, draws, integration_steps)
    _check(model, plan, start)
    check_inside(model, bounds)
    task = _Task(target, Data(x, y, weights), *limits(model, bounds))
    select_key, start_key, chain_key = jax.random.split(key, 3)
    if start == "select":
        model = select(
            model, x, y, target, bounds=bounds, weights=weights, max_steps=30, key=select_key,
            progress=progress,
        ).model  # fmt: skip
    models = draw_starts(model, _SPREAD, bounds, chains, start_key)
    rows, step_sizes = _run_chains(task, plan, models, model, chain_key, progress)
    _, unravel = ravel_pytree(model)
    stacked = jax.vmap(jax.vmap(unravel))(jnp.asarray(rows.position))
    diagnostics = diagnose(
        stacked, rows.acceptance, rows.divergent, rows.failed, rows.outside, step_sizes
    )
    if diagnostics.problems:
        warn_user("sampling hyperparameters: " + "; ".join(diagnostics.problems), SamplingWarning)
    return HyperPosterior(
        models=stacked,
        log_posterior=jnp.asarray(rows.log_density),
        diagnostics=diagnostics,
        evidence=evidence,
        x=x,
        y=y,
        weights=weights,
    )


class _Plan(NamedTuple):
    """The numbers of chains, transitions and leapfrog steps."""

    chains: int
    warmup: int
    draws: int
    integration_steps: int


def _check(model, plan: _Plan, start: str) -> None:
    if not jax.tree.leaves(model):
        raise ValueError("all hyperparameters are frozen: there is nothing to sample")
    smallest = _Plan(chains=1, warmup=20, draws=4, integration_steps=1)
    for name, count, least in zip(_Plan._fields, plan, smallest, strict=True):
        check_count(name, count, least)
    if start not in get_args(FirstModel):
        raise ValueError(f"`start` must be one of {get_args(FirstModel)}, not {start!r}")


class _Target(AbstractCriterion):
    """Minus the log posterior density of hyperparameters, up to a constant."""

    evidence: LaplaceEvidence
    prior: AbstractPrior

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        self.evidence.check(model, x, y)

    def evaluate(self, model: KernelMachine, data: Data, memory: Any = None) -> Evaluation:
        value, result, memory = self.evidence.evaluate(model, data, memory)
        return evaluation(value - self.prior.log_density(model), result, memory)


class _Task(NamedTuple):
    """The density that all chains sample."""

    target: _Target
    data: Data
    low: KernelMachine
    high: KernelMachine


class _Chain(NamedTuple):
    """The state of a chain, and the step size and masses adapted so far."""

    state: Any
    averaging: Any
    inverse_mass: Float[Array, " p"]


class _Rows(NamedTuple):
    """The record of each transition."""

    position: Float[Array, "draws p"]
    log_density: Float[Array, " draws"]
    acceptance: Float[Array, " draws"]
    divergent: Bool[Array, " draws"]
    failed: Bool[Array, " draws"]
    outside: Bool[Array, " draws"]


def _is_inside(task: _Task, model) -> Bool[Array, ""]:
    fits = jax.tree.map(
        lambda leaf, low, high: jnp.all((leaf >= low) & (leaf <= high)), model, task.low, task.high
    )
    return jnp.all(jnp.stack(jax.tree.leaves(fits)))


def _log_density_and_gradient(model, task: _Task):
    def value_of(model):
        return task.target.evaluate(unfreeze(model), task.data)[:2]

    # outside the bounds the density is zero, and fits may be slow or fail: evaluate at the bounds
    near = clip(model, task.low, task.high)
    (value, result), gradient = jax.value_and_grad(value_of, has_aux=True)(near)
    finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(ravel_pytree(gradient)[0]))
    sound = is_usable(result) & finite & _is_inside(task, model)
    # a force of zero, not NaN: the trajectory continues, and may return
    force = jax.tree.map(lambda g: jnp.where(sound, -g, 0.0), gradient)
    return jnp.where(sound, -value, -jnp.inf), force


@jax.custom_vjp
def _log_density(model, task: _Task) -> Float[Array, ""]:
    return _log_density_and_gradient(model, task)[0]


_log_density.defvjp(
    _log_density_and_gradient,
    lambda force, scale: (jax.tree.map(lambda f: scale * f, force), None),
)


@jit
def _begin(task: _Task, model) -> _Chain:
    state = first_state(model, lambda position: _log_density(position, task))
    flat, _ = ravel_pytree(model)
    return _Chain(state, _start_averaging(_FIRST_STEP_SIZE, flat.dtype), jnp.ones_like(flat))


def _start_averaging(step_size, dtype):
    begin_averaging, _ = dual_averaging(_TARGET_ACCEPTANCE)
    averaging = begin_averaging(jnp.asarray(step_size, dtype))
    return averaging._replace(
        **{
            name: jnp.asarray(value, jnp.int32 if name == "step" else dtype)
            for name, value in averaging._asdict().items()
        }
    )


@filter_jit
def _advance(task: _Task, chain: _Chain, key, first, length, adapting, integration_steps: int):
    """Make `length` transitions, at most `_CHUNK`, numbered from `first`."""
    dtype = chain.inverse_mass.dtype
    _, average = dual_averaging(_TARGET_ACCEPTANCE)
    method = HMC(integration_steps)

    def density(position):
        return _log_density(position, task)

    def transition(number, carry):
        chain, rows = carry
        move_key, size_key = jax.random.split(jax.random.fold_in(key, first + number))
        averaging = chain.averaging
        log_size = jnp.where(adapting, averaging.log_step_size, averaging.log_step_size_avg)
        # trajectories of one fixed length may return to where they began
        size = jnp.exp(log_size) * jax.random.uniform(size_key, (), dtype, 0.8, 1.2)
        state, info = trajectory(method, move_key, chain.state, density, size, chain.inverse_mass)
        updated = average(averaging, info.acceptance_rate)
        averaging = jax.tree.map(
            lambda new, old: jnp.where(adapting, new, old).astype(old.dtype), updated, averaging
        )
        inside = _is_inside(task, info.proposal.position)
        possible = jnp.isfinite(info.proposal.logdensity)
        row = _Rows(
            ravel_pytree(state.position)[0],
            state.logdensity,
            info.acceptance_rate,
            info.is_divergent & possible,
            inside & ~possible,
            ~inside,
        )
        rows = jax.tree.map(lambda column, value: column.at[number].set(value), rows, row)
        return _Chain(state, averaging, chain.inverse_mass), rows

    empty = jnp.zeros(_CHUNK, dtype)
    none = jnp.zeros(_CHUNK, bool)
    positions = jnp.zeros((_CHUNK, chain.inverse_mass.shape[0]), dtype)
    rows = _Rows(positions, empty, empty, none, none, none)
    return jax.lax.fori_loop(0, length, transition, (chain, rows))


def _run_chains(
    task: _Task, plan: _Plan, models: KernelMachine, center: KernelMachine, key, progress
) -> tuple[_Rows, np.ndarray]:
    """The rows of all draws of all chains, stacked, and their step sizes.

    Each chain begins at one of the stacked `models`, or at the `center` if the density is zero there.
    """
    keys = jax.random.split(key, plan.chains)
    bar = Progress(plan.chains * (plan.warmup + plan.draws), "sampling", progress)
    done = np.zeros(plan.chains, int)

    def run_one(chain, shared):
        task, models, center, keys = shared

        def report(transitions):
            done[chain] = transitions
            bar.update(done.sum())

        begun = _begin(task, member(models, chain))
        if not np.isfinite(float(begun.state.logdensity)):
            begun = _begin(task, center)
        if not np.isfinite(float(begun.state.logdensity)):
            raise FitError(
                "no chain can start here: the density is zero, or the fit of the model fails. Check "
                "`jaxsvm.fit(model, x, y)` and the `prior`, or begin with another model"
            )
        return _run(task, begun, keys[chain], plan, report)

    with bar:
        shared = (task, models, center, keys)
        outcomes = map_over_data(run_one, plan.chains, shared, task.data.x)
    rows = jax.tree.map(lambda *leaves: np.stack(leaves), *[rows for rows, _ in outcomes])
    return rows, np.array([size for _, size in outcomes])


def _run(task: _Task, chain: _Chain, key, plan: _Plan, report) -> tuple[_Rows, float]:
    """The rows of all draws of a chain, and its step size."""
    ends = np.round(plan.warmup * np.cumsum([0.0, *(share for share, _ in _WINDOWS)]))
    lengths = np.diff(ends).astype(int).tolist()
    done = 0

    def move(chain, count, adapting):
        nonlocal done
        pieces = []
        end = done + count
        while done < end:
            length = min(_CHUNK, end - done)
            chain, rows = _advance(
                task, chain, key, jnp.asarray(done), jnp.asarray(length), jnp.asarray(adapting),
                plan.integration_steps,
            )  # fmt: skip
            pieces.append(jax.tree.map(lambda column, n=length: np.asarray(column)[:n], rows))
            done += length
            report(done)
        return chain, jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)

    for length, (_, rescales) in zip(lengths, _WINDOWS, strict=True):
        chain, rows = move(chain, length, True)
        if rescales:
            chain = _rescale(chain, rows.position)
    chain, rows = move(chain, plan.draws, False)
    return rows, float(np.exp(chain.averaging.log_step_size_avg))


def _rescale(chain: _Chain, positions: np.ndarray) -> _Chain:
    """Set the scales of the parameters from the draws of a window, and reset the step size.

    As in Stan, the variances are shrunk a little towards a small one, since they come from few draws.
    """
    count = len(positions)
    variances = (count * positions.var(axis=0) + 5 * 1e-3) / (count + 5)
    dtype = chain.inverse_mass.dtype
    averaging = _start_averaging(_FIRST_STEP_SIZE, dtype)
    return _Chain(chain.state, averaging, jnp.asarray(variances, dtype))

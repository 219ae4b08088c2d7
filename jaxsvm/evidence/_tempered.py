"""The log evidence by tempered sequential Monte Carlo: particles from the prior to the posterior."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..approximations import Whitening, whiten
from ..runtime import Progress, filter_jit
from ..sampling import (
    HMC,
    QUARTER_PERIOD,
    Setup,
    Target,
    blackjax,
    check_whitening,
    first_state,
    hmc,
    mean_curvature,
    scale,
    slopes,
    target_of,
    total_loss,
)
from ..validation import check_number
from ._estimate import Estimate, Path, check_counts

_DIVERGENCES = 0.01
_GAIN = 1.5  # of the step size's logarithm by the acceptance beyond what is asked for
_LEAST_ACCEPTANCE = 0.2
_LARGEST_SPREAD = 1.0  # of the runs' log evidences, in nats; beyond it few runs make up their mean


@dataclasses.dataclass(frozen=True)
class TemperedSMC:
    """Tempered sequential Monte Carlo, with BlackJAX's particles and trajectories.

    Particles from the prior are weighted, resampled and moved by Hamiltonian Monte Carlo while the losses
    grow from nothing to their full strength, `t L(f)` with the temperature t from 0 to 1. Each temperature
    is such that the weights are worth `target_ess` of the particles; the masses `I + t V' D V` with the
    mean curvatures D, and the step size, are learnt from the particles on the way.

    Where the loss is infinite for some draws from the prior, the latent function grows instead, `L(t f)`: at
    first no particle is behind the wall, and later on few at a time. The path is then that of the machine
    with the prior's amplitude t times what it is, and begins with `ln Z(0) = -sum_i w_i L(y_i, 0)`.

    The mean weights multiply up to an unbiased estimate of the evidence itself, not of its logarithm (but
    for the adaptation, whose effect vanishes with many particles), so the runs are averaged before the
    logarithm is taken. Its standard error is that of the runs' mean, to first order.

    **Arguments:**

    - `particles`: of each run.
    - `runs`: independent ones, over which the standard error is taken.
    - `moves`: trajectories of each particle at each temperature.
    - `target_ess`: the share of effective particles by which temperatures are chosen.
    - `max_temperatures`: after which a run is given up.
    - `sampler`: `jaxsvm.sampling.HMC(...)`; its `step_size` is adapted unless it is given.
    """

    particles: int = 256
    runs: int = 8
    moves: int = 3
    target_ess: float = 0.7
    max_temperatures: int = 200
    sampler: HMC = HMC()  # noqa: RUF009, it is immutable

    def __post_init__(self):
        check_counts(self, particles=4, runs=2, moves=1, max_temperatures=1)
        check_number("target_ess", self.target_ess, above=0, below=1)
        if not isinstance(self.sampler, HMC):
            raise TypeError(f"`sampler` must be `sampling.HMC(...)`, not {self.sampler!r}")


class TemperedDiagnostics(eqx.Module):
    """How the particles of each run moved.

    `temperatures` is how many a run took, `acceptance` the least mean acceptance at any of them,
    `divergences` the number of trajectories whose energy exploded (those that hit a wall not counted),
    `step_size` the last one, `unique` the least share of different ancestors that a resampling left. `wall`
    tells whether the loss was infinite for some draws from the prior, and `whitening_error` the share of the
    prior's variance that a low rank loses.
    """

    temperatures: Array
    acceptance: Float[Array, " runs"]
    divergences: Array
    step_size: Float[Array, " runs"]
    unique: Float[Array, " runs"]
    wall: Bool[Array, ""]
    whitening_error: Float[Array, ""]


class _Records(NamedTuple):
    """What is kept of each temperature of a run, the first being zero."""

    temperature: Float[Array, " steps"]
    mean_loss: Float[Array, " steps"]
    log_partition: Float[Array, " steps"]
    acceptance: Float[Array, " steps"]
    divergences: Array
    unique: Float[Array, " steps"]


class _Particles(NamedTuple):
    """With their weights they stand for the posterior at the temperature."""

    particles: Float[Array, "particles p"]
    weights: Float[Array, " particles"]
    temperature: Float[Array, ""]


class _Run(NamedTuple):
    """Where a run is."""

    state: _Particles
    log_step: Float[Array, ""]
    steps: Array
    records: _Records


def temper(setup: Setup, method: TemperedSMC, key, progress: bool | None) -> Estimate:
    """`ln Z(1)` by sequential Monte Carlo."""
    wall_key, run_key = jax.random.split(key)
    runs = []
    with Progress(method.runs, "log evidence", progress) as bar:
        whitening, wall = _begin(setup, method, wall_key)
        for number in range(method.runs):
            run = _run(setup, whitening, wall, method, jax.random.fold_in(run_key, number))
            runs.append(jax.tree.map(np.asarray, (run.steps, run.log_step, run.records)))
            bar.update(number + 1, f"{int(run.steps)} temperatures")
    return _summarize(method, runs, bool(wall), float(whitening.error), setup.y.dtype)


@filter_jit
def _begin(setup: Setup, method: TemperedSMC, key) -> tuple[Whitening, Bool[Array, ""]]:
    """The whitening, and whether draws from the prior have an infinite loss."""
    whitening = whiten(setup.model.kernel, setup.x, setup.subspace)
    target = target_of(setup, whitening)
    b = jax.random.normal(key, (method.particles, setup.subspace.rank), setup.y.dtype)
    return whitening, ~jnp.all(jnp.isfinite(_losses(target, b @ target.factor.T)))


def _at(target: Target, temperature, wall) -> Target:
    """The target at a temperature, which is the strength of the losses or the latent function's amplitude."""
    strength, amplitude = jnp.where(wall, 1.0, temperature), jnp.where(wall, temperature, 1.0)
    dtype = target.y.dtype
    return target._replace(
        factor=amplitude.astype(dtype) * target.factor,
        weights=strength.astype(dtype) * target.weights,
    )


@filter_jit
def _run(setup: Setup, whitening: Whitening, wall, method: TemperedSMC, key) -> _Run:
    """One run, up to temperature one or the most temperatures."""
    full = target_of(setup, whitening)
    rank, dtype = full.factor.shape[1], full.y.dtype
    longest = QUARTER_PERIOD / method.sampler.integration_steps
    smc = blackjax().smc
    kernel = smc.from_mcmc.build_kernel(
        _mover(method.sampler), first_state, smc.resampling.systematic
    )

    def one(run: _Run) -> _Run:
        target = _at(full, run.state.temperature, wall)
        temperature = _next_temperature(full, wall, method, run.state)
        after = _at(full, temperature, wall)

        def log_density(b):
            return -total_loss(target, target.factor @ b) - b @ b / 2

        def log_weight(b):
            return _minus(
                total_loss(target, target.factor @ b), total_loss(after, after.factor @ b)
            )

        parameters = {
            "step_size": jnp.exp(run.log_step)[None],
            "inverse_mass_matrix": _inverse_masses(target, method, run.state)[None],
        }
        step_key = jax.random.fold_in(loop_key, run.steps)
        moved, info = kernel(step_key, run.state, method.moves, parameters, log_density, log_weight)
        state = _Particles(moved.particles, moved.weights.astype(dtype), temperature)
        acceptance, divergent = info.update_info
        log_step = run.log_step
        if method.sampler.step_size is None:
            surplus = jnp.mean(acceptance) - method.sampler.target_acceptance
            log_step = log_step + (_GAIN * surplus).astype(dtype)
            log_step = jnp.minimum(log_step, jnp.log(longest))
        place = run.steps + 1
        new = _Records(
            temperature,
            _mean_loss(full, wall, state),
            run.records.log_partition[run.steps] + info.log_likelihood_increment,
            jnp.mean(acceptance),
            jnp.sum(divergent),
            _share_of_different(info.ancestors),
        )
        records = jax.tree.map(lambda old, new: old.at[place].set(new), run.records, new)
        return _Run(state, log_step, place, records)

    def goes_on(run: _Run):
        sound = jnp.isfinite(run.records.log_partition[run.steps])
        return (run.state.temperature < 1) & (run.steps < method.max_temperatures) & sound

    start_key, loop_key = jax.random.split(key)
    particles = jax.random.normal(start_key, (method.particles, rank), dtype)
    equal = jnp.full(method.particles, 1 / method.particles, dtype)
    state = _Particles(particles, equal, jnp.zeros((), dtype))
    size = longest if method.sampler.step_size is None else method.sampler.step_size
    empty = jnp.zeros(method.max_temperatures + 1, dtype)
    mean_loss = empty.at[0].set(_mean_loss(full, wall, state))
    start = empty.at[0].set(-total_loss(_at(full, 0.0, wall), jnp.zeros_like(full.y)))
    records = _Records(empty, mean_loss, start, empty + 1, empty.astype(int), empty + 1)
    begin = _Run(state, jnp.log(jnp.asarray(size, dtype)), jnp.zeros((), int), records)
    return jax.lax.while_loop(goes_on, one, begin)


def _next_temperature(full: Target, wall, method: TemperedSMC, state: _Particles):
    """Where the particles, moved by then, will have weights that are worth `target_ess` of them.

    `(sum W u)^2 / sum W u^2` with the present weights W and the factors u that come next: Zhou, Johansen and
    Aston, "Toward automatic model comparison: an adaptive sequential Monte Carlo approach", 2016.
    """
    present = state.temperature
    latent = state.particles @ full.factor.T  # grows with the temperature, if at all, as a whole

    def losses_at(temperature):
        target = _at(full._replace(factor=jnp.ones((), latent.dtype)), temperature, wall)
        return _losses(target, target.factor * latent)

    now = losses_at(present)
    alive = state.weights > 0
    log_weights = jnp.log(jnp.where(alive, state.weights, 1.0))

    def surplus(change):
        factors = jnp.where(alive, _minus(now, losses_at(present + change)), -jnp.inf)
        worth = 2 * _log_sum(log_weights + factors) - _log_sum(log_weights + 2 * factors)
        return jnp.where(jnp.isnan(worth), -jnp.inf, worth - jnp.log(method.target_ess))

    change = blackjax().smc.solver.dichotomy(surplus, jnp.zeros_like(present), 1 - present)
    return jnp.minimum(present + change, 1.0).astype(present.dtype)


def _minus(loss, new_loss):
    """The logarithm of a weight; nothing is left of a particle behind a wall."""
    return jnp.where(jnp.isfinite(new_loss), loss - new_loss, -jnp.inf)


def _log_sum(values):
    return jax.scipy.special.logsumexp(values)


def _mover(sampler: HMC):
    """One trajectory of a particle, with a step size that varies a little."""

    def move(key, state, density, step_size, inverse_mass_matrix):
        size_key, move_key = jax.random.split(key)
        share = jax.random.uniform(size_key, (), step_size.dtype, -sampler.jitter, sampler.jitter)
        size = step_size * (1 + share)
        state, info = hmc()(
            move_key, state, density, size, inverse_mass_matrix, sampler.integration_steps
        )
        # behind a wall the energy is infinite, which is no failure of the integrator
        divergent = info.is_divergent & ~jnp.isposinf(info.energy)
        return state, (info.acceptance_rate, divergent)

    return move


def _inverse_masses(target: Target, method: TemperedSMC, state: _Particles):
    """About the covariance of the posterior for which the weighted particles stand: `(I + V' D V)^-1`."""
    if not method.sampler.rescale:
        return jnp.eye(target.factor.shape[1], dtype=target.y.dtype)
    latent = state.particles @ target.factor.T
    slope = jax.vmap(slopes, (None, 0))(target, latent)
    # a particle that has no weight any more may be where slopes are infinite
    slope = jnp.where((state.weights > 0)[:, None], slope, 0.0)
    moments = [state.weights @ values for values in (slope, latent, slope * latent, latent**2)]
    root = scale(target, mean_curvature(*moments)).root
    return root @ root.T


def _losses(target: Target, latent: Float[Array, "particles n"]) -> Float[Array, " particles"]:
    return jax.vmap(total_loss, (None, 0))(target, latent)


def _mean_loss(full: Target, wall, state: _Particles):
    """Of the losses at full strength, of latent functions as they are at the temperature."""
    factor = _at(full, state.temperature, wall).factor
    losses = _losses(full, state.particles @ factor.T)
    return jnp.sum(jnp.where(state.weights > 0, state.weights * losses, 0.0))


def _share_of_different(ancestors):
    return jnp.mean(jnp.zeros(ancestors.shape[0]).at[ancestors].set(1.0))


def _summarize(method: TemperedSMC, runs, wall, whitening_error, dtype) -> Estimate:
    steps = np.array([int(run[0]) for run in runs])
    records = jax.tree.map(lambda *leaves: np.stack(leaves), *(run[2] for run in runs))
    # shorter runs stay where they ended
    places = np.minimum(np.arange(steps.max() + 1)[None, :], steps[:, None])
    columns = (records.temperature, records.mean_loss, records.log_partition)
    path = Path(*(jnp.asarray(np.take_along_axis(c, places, axis=1), dtype) for c in columns))
    ends = np.arange(method.runs), steps
    complete = records.temperature[ends] >= 1
    values = np.where(complete, records.log_partition[ends], np.nan).astype(np.float64)
    value, error = _log_mean(values)
    diagnostics = TemperedDiagnostics(
        jnp.asarray(steps),
        jnp.asarray(records.acceptance.min(axis=1)),
        jnp.asarray(records.divergences.sum(axis=1)),
        jnp.asarray(np.exp([run[1] for run in runs])),
        jnp.asarray(records.unique.min(axis=1)),
        jnp.asarray(wall),
        jnp.asarray(whitening_error),
    )
    problems = _problems(method, diagnostics, values, records.log_partition[ends])
    return Estimate(value, error, values, path, diagnostics, problems)


def _log_mean(values: np.ndarray) -> tuple[float, float]:
    """The logarithm of the mean of the exponentials, and its standard error to first order."""
    largest = values.max()
    parts = np.exp(values - largest)
    error = np.std(parts, ddof=1) / np.mean(parts) / np.sqrt(len(parts))
    return float(largest + np.log(np.mean(parts))), float(error)


def _problems(method: TemperedSMC, d: TemperedDiagnostics, values, reached) -> list[str]:
    problems = []
    dead = ~np.isfinite(reached)
    if dead.any():
        problems.append(
            f"{dead.sum()} of {method.runs} runs lost all their particles behind a wall of the loss: raise "
            "`particles`"
        )
    short = ~np.isfinite(values) & ~dead
    if short.any():
        problems.append(
            f"{short.sum()} of {method.runs} runs were given up after {method.max_temperatures} "
            "temperatures: raise `max_temperatures`, or lower `target_ess`"
        )
    finite = values[np.isfinite(values)]
    if len(finite) > 1 and np.std(finite, ddof=1) > _LARGEST_SPREAD:
        problems.append(
            f"the runs do not agree (their log evidences spread by {np.std(finite, ddof=1):.2g} nats): raise "
            "`particles` or `moves`"
        )
    trajectories = int(d.temperatures.sum()) * method.moves * method.particles
    divergent = int(d.divergences.sum())
    if divergent > _DIVERGENCES * trajectories:
        problems.append(
            f"{divergent} of {trajectories} trajectories diverged: raise the sampler's `target_acceptance`"
        )
    least = float(d.acceptance.min())
    if not least >= _LEAST_ACCEPTANCE:
        problems.append(
            f"at some temperature only {least:.0%} of the trajectories were accepted: lower the sampler's "
            "step size, or raise `target_ess`"
        )
    return problems + check_whitening(float(d.whitening_error))

"""The log evidence by tempered sequential Monte Carlo: particles from the prior to the posterior."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..approximations import check_lost_variance
from ..runtime import Progress, filter_jit
from ..sampling import (
    HMC,
    QUARTER_PERIOD,
    Setup,
    Target,
    blackjax,
    first_state,
    mean_curvature,
    scale,
    slopes,
    total_loss,
    trajectory,
)
from ..validation import check_number
from ._estimate import LogEvidence, Path, as_log_evidence, check_counts

_DIVERGENCES = 0.01
_GAIN = 1.5  # change of the log step size per unit of acceptance above the target
_LEAST_ACCEPTANCE = 0.2
_LARGEST_SPREAD = 1.0  # of the runs' log evidences, in nats; above it few runs dominate their mean


@dataclasses.dataclass(frozen=True)
class TemperedSMC:
    """Tempered sequential Monte Carlo, with BlackJAX's particles and trajectories.

    Particles from the prior are weighted, resampled and moved by Hamiltonian Monte Carlo while the losses
    grow from zero to their full strength, `t L(f)` with the temperature t from 0 to 1. Each temperature is
    chosen so that the effective share of the particles is `target_ess`. The masses `I + t V' D V`, with the
    mean curvatures D, and the step size adapt to the particles on the way.

    If the loss is infinite for some draws from the prior, the latent function grows instead, `L(t f)`: at
    first no particle is behind the wall, and later only few at a time. The path is then that of the machine
    whose prior amplitude is multiplied by t, and it begins with `ln Z(0) = -sum_i w_i L(y_i, 0)`.

    The product of the mean weights is an unbiased estimate of the evidence, not of its logarithm (except for
    the adaptation, whose effect vanishes with many particles), so the runs are averaged before the
    logarithm is taken. The standard error is that of the runs' mean, to first order.

    **Arguments:**

    - `particles`: the number of particles in each run.
    - `runs`: the number of independent runs, which give the standard error.
    - `moves`: the number of trajectories of each particle at each temperature.
    - `target_ess`: the share of effective particles that determines the next temperature.
    - `max_temperatures`: the number of temperatures after which a run is given up.
    - `sampler`: `jaxsvm.sampling.HMC(...)`; its `step_size` is adapted unless it is set.
    """

    particles: int = 256
    runs: int = 8
    moves: int = 3
    target_ess: float = 0.7
    max_temperatures: int = 200
    sampler: HMC = HMC()  # noqa: RUF009, it is immutable

    def __post_init__(self) -> None:
        check_counts(self, particles=4, runs=2, moves=1, max_temperatures=1)
        check_number("target_ess", self.target_ess, above=0, below=1)
        if not isinstance(self.sampler, HMC):
            raise TypeError(f"`sampler` must be `sampling.HMC(...)`, not {self.sampler!r}")


class TemperedDiagnostics(eqx.Module):
    """The quality of the particles of each run.

    `temperatures` is the number of temperatures, `acceptance` the lowest mean acceptance at any of them,
    `divergences` the number of trajectories whose energy exploded (except those that hit a wall),
    `step_size` the last step size, `unique` the smallest share of different ancestors after a resampling.
    `wall` says whether the loss was infinite for some draws from the prior, and `whitening_error` is the
    share of the prior's variance that a low rank loses.
    """

    temperatures: Array
    acceptance: Float[Array, " runs"]
    divergences: Array
    step_size: Float[Array, " runs"]
    unique: Float[Array, " runs"]
    wall: Bool[Array, ""]
    whitening_error: Float[Array, ""]


class _Records(NamedTuple):
    """The record of each temperature of a run; the first temperature is zero."""

    temperature: Float[Array, " steps"]
    mean_loss: Float[Array, " steps"]
    log_partition: Float[Array, " steps"]
    acceptance: Float[Array, " steps"]
    divergences: Array
    unique: Float[Array, " steps"]


class _Particles(NamedTuple):
    """Weighted particles, which represent the posterior at the temperature."""

    particles: Float[Array, "particles p"]
    weights: Float[Array, " particles"]
    temperature: Float[Array, ""]


class _Run(NamedTuple):
    """The state of a run."""

    state: _Particles
    log_step: Float[Array, ""]
    steps: Array
    records: _Records


def temper(setup: Setup, method: TemperedSMC, key, progress: bool | None) -> LogEvidence:
    """The log evidence by sequential Monte Carlo; problems are recorded without a warning."""
    wall_key, run_key = jax.random.split(key)
    runs = []
    with Progress(method.runs, "log evidence", progress) as bar:
        target, wall, whitening_error = _begin(setup, method, wall_key)
        for number in range(method.runs):
            run = _run(target, wall, method, jax.random.fold_in(run_key, number))
            runs.append(jax.tree.map(np.asarray, (run.steps, run.log_step, run.records)))
            bar.update(number + 1, f"{int(run.steps)} temperatures")
    return _summarize(setup, method, runs, bool(wall), float(whitening_error))


@filter_jit
def _begin(setup: Setup, method: TemperedSMC, key) -> tuple[Target, Bool[Array, ""], Array]:
    """The posterior, whether draws from the prior have an infinite loss, and the share of variance lost."""
    whitening, target = setup.whiten()
    b = jax.random.normal(key, (method.particles, target.factor.shape[1]), setup.y.dtype)
    wall = ~jnp.all(jnp.isfinite(_losses(target, b @ target.factor.T)))
    return target, wall, whitening.error


def _at(target: Target, temperature, wall) -> Target:
    """The posterior at a temperature: the strength of the losses, or the amplitude of the latent function."""
    strength, amplitude = jnp.where(wall, 1.0, temperature), jnp.where(wall, temperature, 1.0)
    dtype = target.y.dtype
    return target._replace(
        factor=amplitude.astype(dtype) * target.factor,
        weights=strength.astype(dtype) * target.weights,
    )


@filter_jit
def _run(full: Target, wall, method: TemperedSMC, key) -> _Run:
    """One run, up to temperature one or the largest number of temperatures."""
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
        row = run.steps + 1
        new = _Records(
            temperature=temperature,
            mean_loss=_mean_loss(full, wall, state),
            log_partition=run.records.log_partition[run.steps] + info.log_likelihood_increment,
            acceptance=jnp.mean(acceptance),
            divergences=jnp.sum(divergent),
            unique=_share_of_different(info.ancestors),
        )
        records = jax.tree.map(lambda old, new: old.at[row].set(new), run.records, new)
        return _Run(state, log_step, row, records)

    def continues(run: _Run):
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
    return jax.lax.while_loop(continues, one, begin)


def _next_temperature(full: Target, wall, method: TemperedSMC, state: _Particles):
    """The temperature at which the effective share of the moved particles will be `target_ess`.

    The share is `(sum W u)^2 / sum W u^2` with the present weights W and the next factors u: Zhou, Johansen
    and Aston, "Toward automatic model comparison: an adaptive sequential Monte Carlo approach", 2016.
    """
    present = state.temperature
    latent = state.particles @ full.factor.T  # at most scaled as a whole by the temperature

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
    """The logarithm of a weight; a particle behind a wall has weight zero."""
    return jnp.where(jnp.isfinite(new_loss), loss - new_loss, -jnp.inf)


def _log_sum(values):
    return jax.scipy.special.logsumexp(values)


def _mover(sampler: HMC):
    """One trajectory of a particle, with a step size that varies a little."""

    def move(key, state, density, step_size, inverse_mass_matrix):
        size_key, move_key = jax.random.split(key)
        share = jax.random.uniform(size_key, (), step_size.dtype, -sampler.jitter, sampler.jitter)
        size = step_size * (1 + share)
        state, info = trajectory(
            sampler, move_key, state, density, size, inverse_mass_matrix, has_wall=True
        )
        return state, (info.acceptance_rate, info.is_divergent)

    return move


def _inverse_masses(target: Target, method: TemperedSMC, state: _Particles):
    """An approximate covariance of the posterior that the particles represent: `(I + V' D V)^-1`."""
    if not method.sampler.rescale:
        return jnp.eye(target.factor.shape[1], dtype=target.y.dtype)
    latent = state.particles @ target.factor.T
    slope = jax.vmap(slopes, (None, 0))(target, latent)
    # slopes may be infinite at a particle that has lost its weight
    slope = jnp.where((state.weights > 0)[:, None], slope, 0.0)
    moments = [state.weights @ values for values in (slope, latent, slope * latent, latent**2)]
    root = scale(target, mean_curvature(*moments)).root
    return root @ root.T


def _losses(target: Target, latent: Float[Array, "particles n"]) -> Float[Array, " particles"]:
    return jax.vmap(total_loss, (None, 0))(target, latent)


def _mean_loss(full: Target, wall, state: _Particles):
    """The mean loss at full strength, of the latent functions at the temperature."""
    factor = _at(full, state.temperature, wall).factor
    losses = _losses(full, state.particles @ factor.T)
    return jnp.sum(jnp.where(state.weights > 0, state.weights * losses, 0.0))


def _share_of_different(ancestors):
    return jnp.mean(jnp.zeros(ancestors.shape[0]).at[ancestors].set(1.0))


def _summarize(setup: Setup, method: TemperedSMC, runs, wall, whitening_error) -> LogEvidence:
    steps = np.array([int(run[0]) for run in runs])
    records = jax.tree.map(lambda *leaves: np.stack(leaves), *(run[2] for run in runs))
    # shorter runs stay where they ended
    numbers = np.minimum(np.arange(steps.max() + 1)[None, :], steps[:, None])
    columns = (records.temperature, records.mean_loss, records.log_partition)
    dtype = setup.y.dtype
    path = Path(*(jnp.asarray(np.take_along_axis(c, numbers, axis=1), dtype) for c in columns))
    ends = np.arange(method.runs), steps
    complete = records.temperature[ends] >= 1
    values = np.where(complete, records.log_partition[ends], np.nan).astype(np.float64)
    value, error = _log_mean(values)
    diagnostics = TemperedDiagnostics(
        temperatures=jnp.asarray(steps),
        acceptance=jnp.asarray(records.acceptance.min(axis=1)),
        divergences=jnp.asarray(records.divergences.sum(axis=1)),
        step_size=jnp.asarray(np.exp([run[1] for run in runs])),
        unique=jnp.asarray(records.unique.min(axis=1)),
        wall=jnp.asarray(wall),
        whitening_error=jnp.asarray(whitening_error),
    )
    return as_log_evidence(
        setup,
        log_partition=value,
        standard_error=error,
        estimates=values,
        path=path,
        diagnostics=diagnostics,
        problems=_problems(
            method, diagnostics, values, records.log_partition[ends], setup.representation.tolerance
        ),
    )


def _log_mean(values: np.ndarray) -> tuple[float, float]:
    """The logarithm of the mean of the exponentials, and its standard error to first order."""
    largest = values.max()
    parts = np.exp(values - largest)
    error = np.std(parts, ddof=1) / np.mean(parts) / np.sqrt(len(parts))
    return float(largest + np.log(np.mean(parts))), float(error)


def _problems(
    method: TemperedSMC, d: TemperedDiagnostics, values, reached, tolerance: float
) -> list[str]:
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
    return problems + check_lost_variance(float(d.whitening_error), tolerance)

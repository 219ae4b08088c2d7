"""BlackJAX chains in white coordinates, all moving at once, with averages taken on the way."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..hyperparameters import parameters
from ..linalg import solve_triangular
from ._samplers import Method, first_state, longest_step, trajectory
from ._target import Scaling, Target, find_mode, log_density, no_scaling, scale, slopes, total_loss

_ROUNDS = 3  # of warm-up: each but the last ends with a new scaling
COORDINATES = 4  # leading white coordinates that are traced
_SMALLEST_STEP = 1e-5


class Chains(NamedTuple):
    """The positions of all chains, and the scaling and step size adapted so far.

    `b` are their white coordinates, `curvature` is the mean curvature of each example's loss, which
    determines the scaling, and `log_step` is the logarithm of the step size.
    """

    b: Float[Array, "chains p"]
    curvature: Float[Array, " n"]
    log_step: Float[Array, ""]


class Traces(NamedTuple):
    """About ten numbers of each draw, for the diagnostics; the leading axes are draws and chains.

    `loss` is the total loss, `penalty` is `b'b / 2`, `coordinates` are the leading white coordinates, and
    `energy` is the energy at the beginning of the trajectory. `acceptance` is the probability of acceptance,
    `divergent` says whether the energy exploded, `steps` is the number of leapfrog steps.
    """

    loss: Float[Array, "draws chains"]
    penalty: Float[Array, "draws chains"]
    coordinates: Float[Array, "draws chains k"]
    energy: Float[Array, "draws chains"]
    acceptance: Float[Array, "draws chains"]
    divergent: Bool[Array, "draws chains"]
    steps: Array


class Draws(NamedTuple):
    """Draws from a posterior.

    `b` are all draws in white coordinates, `chains` are the chains after the last draw, and `batch_noise`
    is as in `Diagnostics`, None if every step sees all examples. Then `traces` are complete. Otherwise no
    step has computed the losses: they are zero, and missing in the energies.
    """

    b: Float[Array, "draws chains p"]
    chains: Chains
    traces: Traces
    batch_noise: Float[Array, ""] | None = None

    def complete_traces(self, loss: Float[Array, "draws chains"]) -> Traces:
        """The traces with the losses of the draws.

        **Arguments:** `loss`, the total loss of each draw; used only if the traces lack it.

        **Returns:** the `Traces`.
        """
        if self.batch_noise is None:
            return self.traces
        return self.traces._replace(loss=loss, energy=self.traces.energy + loss)

    def carried(self) -> Chains:
        """The chains with which draws from a posterior nearby begin.

        **Returns:** the `Chains`; all at the mean of the draws if they saw batches, which need a center.
        """
        if self.batch_noise is None:
            return self.chains
        return self.chains._replace(b=all_at(jnp.mean(self.b, axis=(0, 1)), self.b.shape[1]))


def all_at(b: Float[Array, " p"], chains: int) -> Float[Array, "chains p"]:
    """All chains at one place."""
    return jnp.broadcast_to(b, (chains, b.shape[0]))


def start_chains(target: Target, method: Method, chains: int) -> Chains:
    """Start all chains at the mode.

    **Arguments:** `target`, the posterior; `method`, such as `HMC`; `chains`, the number of chains.

    **Returns:** the `Chains`.
    """
    mode, curvature = find_mode(target)
    return Chains(all_at(mode, chains), curvature, first_log_step(method, mode.dtype))


def first_log_step(method: Method, dtype: Any) -> Float[Array, ""]:
    """The logarithm of the first step size of the chains.

    **Arguments:** `method`, such as `HMC`; `dtype`, the type of their numbers.

    **Returns:** a number.
    """
    return jnp.log(jnp.asarray(0.3 if method.step_size is None else method.step_size, dtype))


def warm_up(
    target: Target, method: Method, chains: Chains, key: PRNGKeyArray, draws: int, age: float = 0.0
) -> Chains:
    """Move the chains for a while, and adapt the step size and the scaling on the way.

    The warm-up runs in rounds; each round but the last ends with a new scaling.

    **Arguments:** `target`, the posterior; `method`, such as `HMC`; `chains`, before the warm-up; `key`, a
    random key; `draws`, the number of draws of each chain; `age`, the number of draws that have already
    adapted the step size: the larger, the less it changes.

    **Returns:** the `Chains` after the warm-up.
    """
    rounds = min(_ROUNDS, draws) if method.rescale else min(1, draws)
    if rounds == 0:
        return chains

    def one_round(carry, round_key):
        chains, curvature = carry
        chains = chains._replace(curvature=curvature)
        return _warm_up_round(target, method, chains, round_key, draws // rounds, age), None

    keys = jax.random.split(key, rounds)
    (chains, _), _ = jax.lax.scan(one_round, (chains, chains.curvature), keys)
    return chains


def _warm_up_round(target, method, chains, key, draws, age):
    """The chains after a round, and the mean curvatures over its draws."""
    scaling = scaling_of(target, method, chains)

    def body(carry, step_key):
        state, log_step, means, time = carry
        state, info = _move(target, method, scaling, state, jnp.exp(log_step), step_key)
        latent = state.position @ scaling.factor.T
        if method.step_size is None:
            log_step = adapted(method, log_step, info.acceptance_rate, time)
        return (state, log_step, means + moments(target, latent) / draws, time + 1), None

    state = _begin(target, scaling, chains.b)
    begin = (state, chains.log_step, jnp.zeros((4, *target.y.shape), target.y.dtype), age)
    keys = jax.random.split(key, draws)
    (state, log_step, means, _), _ = jax.lax.scan(body, begin, keys)
    chains = Chains(state.position @ scaling.root.T, chains.curvature, log_step)
    return chains, mean_curvature(*means)


def adapted(
    method: Method, log_step: Float[Array, ""], acceptance: Float[Array, " chains"], age: Any
) -> Float[Array, ""]:
    """The logarithm of the step size after one more draw of each chain, by stochastic approximation.

    **Arguments:** `method`, such as `HMC`; `log_step`, before the draw; `acceptance`, the probability of
    acceptance of each chain; `age`, the number of draws that have already adapted it.

    **Returns:** a number.
    """
    gain = 2.0 / (1.0 + age / 4) ** 0.8  # large at first, because all chains together adapt it
    surplus = jnp.mean(acceptance) - method.target_acceptance
    log_step = log_step + (gain * surplus).astype(log_step.dtype)
    return jnp.clip(log_step, jnp.log(_SMALLEST_STEP), jnp.log(longest_step(method)))


def moments(target: Target, latent: Float[Array, "chains n"]) -> Float[Array, "4 n"]:
    """The means over chains of `u_i`, `f_i`, `u_i f_i` and `f_i^2`, for `mean_curvature`.

    **Arguments:** `target`, the posterior; `latent`, the latent values f of each chain.

    **Returns:** four rows.
    """
    slope = jax.vmap(slopes, (None, 0))(target, latent)
    return jnp.mean(jnp.stack([slope, latent, slope * latent, latent**2]), axis=1)


def mean_curvature(
    slope: Float[Array, "*n"],
    latent: Float[Array, "*n"],
    product: Float[Array, "*n"],
    square: Float[Array, "*n"],
) -> Float[Array, "*n"]:
    """The slope of the regression of `u_i` on `f_i`: for a Gaussian `f_i` the mean of `d2L/df2`.

    This is Stein's lemma; it accounts for kinks as well.

    **Arguments:** `slope`, `latent`, `product` and `square`, the means of `u_i`, `f_i`, `u_i f_i` and
    `f_i^2`.

    **Returns:** one number for each example, zero or positive.
    """
    variance = square - latent**2
    covariance = product - slope * latent
    sound = variance > jnp.finfo(variance.dtype).eps * square
    return jnp.where(sound, jnp.maximum(covariance / jnp.where(sound, variance, 1.0), 0.0), 0.0)


def scaling_of(target: Target, method: Method, chains: Chains) -> Scaling:
    """The coordinates in which the chains move."""
    return scale(target, chains.curvature) if method.rescale else no_scaling(target)


def draw(
    target: Target, method: Method, chains: Chains, key: PRNGKeyArray, draws: int, keep: int = 1
) -> tuple[Chains, Float[Array, "chains p"], Traces, Float[Array, "kept chains p"]]:
    """Draw from the posterior.

    **Arguments:** `target`, the posterior; `method`, such as `HMC`; `chains`, before the first draw; `key`,
    a random key; `draws`, the number of draws of each chain; `keep`, about how many of them to keep
    (`kept_numbers` has their numbers).

    **Returns:** the chains after the last draw, the mean of all draws of each chain, traces, and the kept
    draws.
    """
    scaling = scaling_of(target, method, chains)
    thin = -(-draws // keep)

    def one(carry, step_key):
        state, kept, mean, number = carry
        energy = -state.logdensity
        state, info = _move(target, method, scaling, state, jnp.exp(chains.log_step), step_key)
        b = state.position @ scaling.root.T
        latent = state.position @ scaling.factor.T
        loss = jax.vmap(total_loss, (None, 0))(target, latent)
        trace = Traces(
            loss,
            jnp.sum(b**2, axis=1) / 2,
            b[:, :COORDINATES],
            energy + jnp.sum(info.momentum**2, axis=1) / 2,
            info.acceptance_rate,
            info.is_divergent,
            jnp.broadcast_to(info.num_integration_steps, loss.shape),
        )
        # draws come in order, so the last one of each group of `thin` stays
        kept = kept.at[number // thin].set(b)
        mean = mean + (b - mean) / (number + 1).astype(b.dtype)
        return (state, kept, mean, number + 1), trace

    kept = jnp.zeros((-(-draws // thin), *chains.b.shape), chains.b.dtype)
    state = _begin(target, scaling, chains.b)
    begin = (state, kept, jnp.zeros_like(chains.b), jnp.zeros((), int))
    (state, kept, mean, _), traces = jax.lax.scan(one, begin, jax.random.split(key, draws))
    return chains._replace(b=state.position @ scaling.root.T), mean, traces, kept


def kept_numbers(draws: int, keep: int) -> np.ndarray:
    """The numbers of the kept draws: the last of every `ceil(draws / keep)`, and the very last."""
    thin = -(-draws // keep)
    return np.minimum(np.arange(thin, draws + thin, thin), draws) - 1


def _begin(target: Target, scaling: Scaling, b: Float[Array, "chains p"]):
    position = solve_triangular(scaling.root.T, b.T, transposed=True).T

    def density(c):
        return log_density(target, scaling, c)

    return jax.vmap(lambda c: first_state(c, density))(position)


def _move(target: Target, method: Method, scaling: Scaling, state, step_size, key):
    """Move each chain along one trajectory."""
    count, rank = state.position.shape
    size_key, move_key = jax.random.split(key)
    penalty = parameters(target.loss).get("C") if method.shorten_by_penalty else None
    if penalty is not None:
        step_size = step_size / jnp.maximum(penalty, 1.0).astype(step_size.dtype)
    sizes = jnp.full(count, step_size)
    if method.jitter:
        spread = jax.random.uniform(size_key, (count,), sizes.dtype, -method.jitter, method.jitter)
        sizes = sizes * (1 + spread)
    masses = jnp.ones(rank, state.position.dtype)

    def density(c):
        return log_density(target, scaling, c)

    def move_one(key, state, size):
        wall = target.loss.has_wall
        return trajectory(method, key, state, density, size, masses, step_size, wall)

    return jax.vmap(move_one)(jax.random.split(move_key, count), state, sizes)

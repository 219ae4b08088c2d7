"""Chains over latent function and hyperparameters: their starts, their adaptation, and their draws."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..linalg import cholesky, solve_triangular
from ..runtime import filter_jit
from ._chains import adapted, first_log_step, mean_curvature
from ._joint_target import (
    JointScaling,
    JointTarget,
    Measurements,
    Place,
    log_joint,
    modes,
    place,
    position_of,
    smallest_deviation,
)
from ._samplers import Method, first_state, trajectory

CHUNK = 20  # transitions in one compiled program
# rounds of the warm-up: the share of each; each but the last ends with new coordinates
_ROUNDS = (0.1, 0.15, 0.25, 0.3, 0.2)
_FIRST_WIDTH = 0.3  # of a hyperparameter's logarithm


class JointChains(NamedTuple):
    """The states of all chains in their coordinates, and the step size adapted so far."""

    scaling: JointScaling
    state: Any
    log_step: Float[Array, ""]


class Rows(NamedTuple):
    """The record of each transition; the leading axes are transitions and chains."""

    h: Float[Array, "draws chains k"]
    b: Float[Array, "draws chains p"]
    log_size: Float[Array, "draws chains"]
    loss: Float[Array, "draws chains"]
    penalty: Float[Array, "draws chains"]
    log_density: Float[Array, "draws chains"]
    noise_variance: Float[Array, "draws chains"]
    lost: Float[Array, "draws chains"]
    energy: Float[Array, "draws chains"]
    acceptance: Float[Array, "draws chains"]
    divergent: Bool[Array, "draws chains"]
    steps: Float[Array, "draws chains"]


@filter_jit
def start(target: JointTarget, method: Method, h: Float[Array, "chains k"]) -> JointChains:
    """Chains at the modes of the function for these hyperparameters.

    **Arguments:** `target`, the joint density; `method`, a sampler; `h`, where each chain begins.

    **Returns:** the `JointChains`.
    """
    b, measurements = modes(target, h)
    root = _FIRST_WIDTH * jnp.eye(h.shape[1], dtype=h.dtype)
    scaling = JointScaling(jnp.mean(h, axis=0), root, measurements if method.rescale else None)
    return _at(target, scaling, h, b, first_log_step(method, h.dtype))


@filter_jit
def rescale(
    target: JointTarget,
    chains: JointChains,
    h: Float[Array, "draws chains k"],
    log_size: Float[Array, "draws chains"],
    moments: Float[Array, "6 n"],
    noise_variance: Float[Array, ""],
) -> JointChains:
    """The same places in coordinates that are adapted to the draws of a round.

    As in Stan, the covariance of the hyperparameters is shrunk towards a small one, since it comes from few
    draws.

    **Arguments:** `target`, the joint density; `chains`; `h`, the hyperparameters of all draws; `log_size`,
    the logarithm of the size of the latent values of each; `moments`, as from `advance`, but means;
    `noise_variance`, the mean over draws.

    **Returns:** the `JointChains`.
    """
    before = chains.scaling
    assert before.measurements is not None
    where = jax.vmap(place, (None, None, 0))(target, before, chains.state.position)
    flat = h.reshape(-1, h.shape[2])
    count = flat.shape[0]
    center = jnp.mean(flat, axis=0)
    covariance = (flat - center[None]).T @ (flat - center[None]) / (count + 5)
    covariance += 5e-3 / (count + 5) * jnp.eye(flat.shape[1], dtype=flat.dtype)
    root = cholesky(covariance)
    g = solve_triangular(root, (flat - center[None]).T)
    growth = g @ (log_size.ravel() - jnp.mean(log_size)) / count
    curvature = mean_curvature(*moments[:4])
    slope, latent = moments[:2]
    # the size at the new center in the old coordinates, in which latent values were divided by it
    moved = solve_triangular(before.root, center - before.center)
    size = jnp.exp(before.measurements.growth @ moved)
    reduced, square = moments[4:]
    least = smallest_deviation(h.dtype)
    measurements = Measurements(
        latent=size * reduced,
        deviation=size * jnp.sqrt(jnp.maximum(square - reduced**2, least**2)),
        growth=growth,
        curvature=curvature,
        pull=curvature * latent - slope,
        noise_variance=noise_variance,
    )
    return _at(target, JointScaling(center, root, measurements), where.h, where.b, chains.log_step)


def _at(target, scaling, h, b, log_step) -> JointChains:
    def one(h, b):
        q = position_of(target, scaling, h, b)
        return first_state(q, lambda q: log_joint(target, scaling, q))

    return JointChains(scaling, jax.vmap(one)(h, b), log_step)


@filter_jit
def _advance(
    target: JointTarget, method: Method, chains: JointChains, key, first, length, adapting
) -> tuple[JointChains, Rows, Float[Array, "6 n"]]:
    """Make `length` transitions, at most `CHUNK`, numbered from `first` since the last rescaling."""
    scaling = chains.scaling
    count, dtype = chains.state.position.shape[0], chains.log_step.dtype
    masses = jnp.ones(chains.state.position.shape[1], dtype)

    def density(q):
        return log_joint(target, scaling, q)

    def move(key, state, size, typical_size):
        return trajectory(method, key, state, density, size, masses, typical_size)

    def transition(number, carry):
        state, log_step, rows, sums = carry
        size_key, move_key = jax.random.split(jax.random.fold_in(key, first + number))
        spread = jax.random.uniform(size_key, (count,), dtype, -method.jitter, method.jitter)
        sizes = jnp.exp(log_step) * (1 + spread)
        energy = -state.logdensity
        keys, size = jax.random.split(move_key, count), jnp.exp(log_step)
        state, info = jax.vmap(move, (0, 0, 0, None))(keys, state, sizes, size)
        where = jax.vmap(place, (None, None, 0))(target, scaling, state.position)
        if method.step_size is None:
            changed = adapted(method, log_step, info.acceptance_rate, first + number)
            log_step = jnp.where(adapting, changed, log_step)
        row = Rows(
            where.h,
            where.b,
            jnp.log(_root_mean_square(where.latent, target.weights)),
            where.loss,
            jnp.sum(where.b**2, axis=1) / 2,
            where.log_density,
            where.noise_variance,
            where.lost,
            energy + jnp.sum(info.momentum**2, axis=1) / 2,
            info.acceptance_rate,
            info.is_divergent,
            jnp.broadcast_to(info.num_integration_steps, (count,)),
        )
        rows = jax.tree.map(
            lambda column, value: column.at[number].set(value.astype(column.dtype)), rows, row
        )
        return state, log_step, rows, sums + _moments_at(where)

    zeros = jax.eval_shape(
        lambda: jax.vmap(place, (None, None, 0))(target, scaling, chains.state.position)
    )
    rows = _empty_rows(zeros, dtype)
    carry = (chains.state, chains.log_step, rows, jnp.zeros((6, target.y.shape[0]), dtype))
    state, log_step, rows, sums = jax.lax.fori_loop(0, length, transition, carry)
    return JointChains(scaling, state, log_step), rows, sums


def _empty_rows(where: Place, dtype) -> Rows:
    def column(like, kind=dtype):
        return jnp.zeros((CHUNK, *like.shape), kind)

    scalars = {name: column(where.loss) for name in Rows._fields}
    vectors = {"h": column(where.h), "b": column(where.b), "divergent": column(where.loss, bool)}
    return Rows(**(scalars | vectors))


def _root_mean_square(latent, weights):
    return jnp.sqrt(latent**2 @ weights / jnp.sum(weights))


def _moments_at(where: Place) -> Float[Array, "6 n"]:
    slope, latent = where.slope, where.latent
    reduced = latent / where.size[:, None]
    rows = [slope, latent, slope * latent, latent**2, reduced, reduced**2]
    return jnp.mean(jnp.stack(rows), axis=1)


def advance(
    target: JointTarget, method: Method, chains: JointChains, key, draws: int, adapting: bool
) -> Iterator[tuple[JointChains, Rows, Float[Array, "6 n"]]]:
    """Transitions in chunks: after each, the chains, its rows in NumPy, and sums for `rescale`.

    **Arguments:** `target`, the joint density; `method`, a sampler; `chains`; `key`, a random key;
    `draws`, the number of transitions; `adapting`, whether the step size is adapted.

    **Returns:** an iterator over chunks.
    """
    for first in range(0, draws, CHUNK):
        length = min(CHUNK, draws - first)
        chains, rows, sums = _advance(
            target, method, chains, key, jnp.asarray(first), jnp.asarray(length),
            jnp.asarray(adapting),
        )  # fmt: skip
        host = jax.tree.map(lambda column, n=length: np.asarray(column)[:n], rows)
        yield chains, host, sums


def rounds(warmup: int, method: Method) -> list[int]:
    """The lengths of the rounds of the warm-up; each but the last ends with new coordinates.

    **Arguments:** `warmup`, the number of transitions; `method`, a sampler.

    **Returns:** the lengths.
    """
    if not method.rescale:
        return [warmup]
    ends = np.round(warmup * np.cumsum([0.0, *_ROUNDS])).astype(int)
    return np.diff(ends).tolist()

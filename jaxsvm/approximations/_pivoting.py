"""Randomly pivoted Cholesky factorization, many pivots at a time.

Y. Chen, E. N. Epperly, J. A. Tropp and R. J. Webber, "Randomly pivoted Cholesky: practical approximation of a
kernel matrix with few entry evaluations", 2023. Blocks by rejection: E. N. Epperly, J. A. Tropp and R. J.
Webber, "Embrace rejection: kernel matrix approximation by accelerated randomly pivoted Cholesky", 2024.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..kernels import AbstractKernel
from ..linalg import solve_triangular

BLOCK = 32  # the largest number of pivots that a round adds
_PROPOSALS = 3 * BLOCK  # in a round: enough to add a full block, unless most are rejected


class Pivots(NamedTuple):
    """A partial Cholesky factorization `K ~ F F'`, with room for more pivots.

    `indices` holds the indices of the pivots, followed by n, the number of examples, in each unused entry;
    `number` is the number of pivots, `capacity` the largest number that fits. `residual` is the diagonal of
    `K - F F'`, zero where it is a rounding error. `factor` is F, with `capacity + BLOCK` columns; those from
    `number` on are zero. `key` is a random key for the next pivots.
    """

    indices: Int[Array, " capacity"]
    number: Int[Array, ""]
    residual: Float[Array, " n"]
    factor: Float[Array, "n columns"]
    key: Any


def no_pivots(kernel: AbstractKernel, x: Float[Array, "n d"], capacity: int, key: Any) -> Pivots:
    """The factorization before the first pivot; `capacity` is the number of pivots it can hold."""
    examples = x.shape[0]
    return Pivots(
        indices=jnp.full(capacity, examples, int),
        number=jnp.zeros((), int),
        residual=kernel.diagonal(x).astype(x.dtype),
        factor=jnp.zeros((examples, capacity + BLOCK), x.dtype),
        key=key,
    )


def with_capacity(pivots: Pivots, capacity: int) -> Pivots:
    """The same factorization with room for more pivots."""
    more = capacity - pivots.indices.shape[0]
    indices = jnp.pad(pivots.indices, (0, more), constant_values=pivots.residual.shape[0])
    return pivots._replace(indices=indices, factor=jnp.pad(pivots.factor, ((0, 0), (0, more))))


def add_pivots(
    kernel: AbstractKernel, x: Float[Array, "n d"], pivots: Pivots, count: Int[Array, ""] | int
) -> Pivots:
    """Draw pivots until there are `count`, or fewer if the residual vanishes up to rounding errors.

    Each pivot is drawn with a probability proportional to the residual that the previous ones leave. A round
    draws many proposals from the same residual and goes through them in order. It accepts a proposal with the
    probability `residual now / residual at the beginning of the round`, which is zero for a second copy of a
    pivot. So accepted pivots have the distribution of pivots drawn one by one, and all work on n rows is done
    by matrix products, in O(n capacity) time and memory for each pivot and for all of them.
    """
    # errors of the residual: at most about one unit in the last place of the variance for each column
    columns, unit = pivots.indices.shape[0], jnp.finfo(x.dtype).eps
    rounding = columns * unit * kernel.diagonal(x).astype(x.dtype)

    def is_wanting(pivots: Pivots):
        return (pivots.number < count) & jnp.any(pivots.residual > 0)

    def add_block(pivots: Pivots) -> Pivots:
        key, draw_key = jax.random.split(pivots.key)
        wanted = jnp.minimum(count - pivots.number, BLOCK)
        return _add_block(kernel, x, pivots._replace(key=key), rounding, wanted, draw_key)

    return jax.lax.while_loop(is_wanting, add_block, pivots)


def _add_block(kernel, x, pivots: Pivots, rounding, wanted, key) -> Pivots:
    examples, capacity = x.shape[0], pivots.indices.shape[0]
    drawn, number, corner = _draw(kernel, x, pivots, rounding, wanted, key)
    new = _covariances(kernel, x, jnp.arange(examples), drawn)
    new = new - pivots.factor @ pivots.factor[drawn].T
    is_pivot = jnp.arange(BLOCK) < number
    inverse = solve_triangular(corner, jnp.eye(BLOCK, dtype=corner.dtype))
    new = new @ jnp.where(is_pivot[None, :], inverse.T, 0.0)
    added = jnp.where(is_pivot, drawn, examples)
    residual = pivots.residual - jnp.sum(new**2, axis=1)
    residual = jnp.where(residual > rounding, residual, 0.0).at[added].set(0.0, mode="drop")
    indices = jnp.pad(pivots.indices, (0, BLOCK))
    indices = jax.lax.dynamic_update_slice(indices, added, (pivots.number,))[:capacity]
    factor = jax.lax.dynamic_update_slice(pivots.factor, new, (0, pivots.number))
    return Pivots(indices, pivots.number + number, residual, factor, pivots.key)


def _draw(kernel, x, pivots: Pivots, rounding, wanted, key):
    """The next pivots, at least one and at most `wanted`.

    Returns their indices, filled up with any index; their number; and the Cholesky factor of their residual
    matrix, filled up to a block with the identity.
    """
    draw_key, accept_key = jax.random.split(key)
    shares = pivots.residual / jnp.sum(pivots.residual)
    proposals = jax.random.choice(draw_key, x.shape[0], (_PROPOSALS,), p=shares)
    levels = jax.random.uniform(accept_key, (_PROPOSALS,), shares.dtype)
    rows = pivots.factor[proposals]
    matrix = _covariances(kernel, x, proposals, proposals) - rows @ rows.T
    before, least = jnp.diag(matrix), rounding[proposals]

    def consider(number, state):
        accepted, count, factor = state
        left = before[number] - jnp.sum(factor[number] ** 2)
        passes = (levels[number] * before[number] < left) & (left > least[number])
        # the first proposal always passes, since no earlier one has reduced its residual; so rounding errors
        # cannot stop all progress
        passes = (passes | (number == 0)) & (count < wanted)
        column = matrix[:, number] - factor @ factor[number]
        column = column / jnp.sqrt(jnp.maximum(left, least[number]))
        column_number = jnp.where(passes, count, BLOCK)  # beyond the end, where nothing is stored
        accepted = accepted.at[column_number].set(number, mode="drop")
        factor = factor.at[:, column_number].set(column, mode="drop")
        return accepted, count + passes, factor

    nothing = jnp.zeros((_PROPOSALS, BLOCK), matrix.dtype)
    state = (jnp.zeros(BLOCK, int), jnp.zeros((), int), nothing)
    accepted, count, factor = jax.lax.fori_loop(0, _PROPOSALS, consider, state)
    inside = jnp.arange(BLOCK) < count
    corner = jnp.where(inside[:, None] & inside[None, :], factor[accepted], 0.0)
    return proposals[accepted], count, jnp.tril(corner) + jnp.diag((~inside).astype(corner.dtype))


def _covariances(kernel, x, rows, columns):
    """`k(x_i, x_j)` of examples by their indices; one with itself has its variance, white noise included."""
    cross = kernel.matrix(x[rows], x[columns], same=False)
    variances = kernel.diagonal(x[columns])
    covariances = jnp.where(rows[:, None] == columns[None, :], variances[None, :], cross)
    return covariances.astype(x.dtype)

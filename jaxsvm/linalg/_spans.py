"""Squared spans: how far each example is from what the free examples span."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._inverse import quadratic_forms
from ._lapack import cholesky, solve_by_factor


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def squared_spans(
    matrix: Float[Array, "n n"], free: Bool[Array, " n"], has_offset: bool
) -> Float[Array, " n"]:
    """`S_i^2 = min l' matrix l` over vectors with `l_i = 1` and `l_j = 0` unless j is i or free.

    At the minimum the derivative is `l' dmatrix l`, since `l` itself need not be differentiated.

    **Arguments:** `matrix`, positive semi-definite; `free`, which examples are free; `has_offset`, whether
    the entries of `l` sum to zero.

    **Returns:** one number for each example.
    """
    return quadratic_forms(_spanning(matrix, free, has_offset), matrix)


@squared_spans.defjvp
def _squared_spans_jvp(has_offset, primals, tangents):
    matrix, free = primals
    spanning = _spanning(matrix, free, has_offset)
    return quadratic_forms(spanning, matrix), quadratic_forms(spanning, tangents[0])


def _spanning(matrix, free, has_offset: bool) -> Float[Array, "n n"]:
    """The minimizing vectors `l`, one in each column.

    A jitter of `4 n eps` times the mean variance makes singular systems solvable. It moves `l` only in
    directions in which `l' matrix l` is flat.
    """
    examples, dtype = matrix.shape[0], matrix.dtype
    eye = jnp.eye(examples, dtype=dtype)
    mask = free.astype(dtype)
    amplitude = jnp.mean(jnp.diag(matrix))
    jitter = 4 * examples * float(jnp.finfo(dtype).eps) * amplitude
    masked = mask[:, None] * matrix * mask[None, :]
    factor = cholesky(masked + jnp.diag(jnp.where(free, jitter, amplitude)))
    rights = mask[:, None] * jnp.where(free[None, :], eye, matrix)
    answers = solve_by_factor(factor, rights)
    own = jnp.zeros_like(mask)
    if has_offset:
        per_offset = solve_by_factor(factor, mask)
        total = jnp.sum(per_offset)
        column = per_offset / jnp.where(total > 0, total, 1.0)
        projected = answers - column[:, None] * jnp.sum(answers, axis=0)[None, :]
        # the last free example has no other to take its share of the offset's condition
        alone = free & (jnp.sum(mask) == 1)
        answers, own = jnp.where(alone[None, :], answers, projected), column
    pivots = jnp.where(free, jnp.diag(answers), 1.0)
    return jnp.where(free[None, :], answers / pivots[None, :], eye - answers - own[:, None])

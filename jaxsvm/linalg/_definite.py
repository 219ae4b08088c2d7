"""Inverses and determinants of positive definite matrices, by halves."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._lapack import one_by_one

_LEAF = 96  # rows of a block that is not halved any more; LAPACK factors it in one thread
_MOST_LEAVES = 16  # so that large matrices do not become large programs
_ALONE = 24  # rows of a triangular block that LAPACK inverts in one thread


def inverse_of_definite(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse of a positive definite matrix, by its Cholesky factor.

    **Arguments:** `matrix`, symmetric.

    **Returns:** the inverse; NaN where the matrix is not positive definite.
    """
    return inverse_and_log_determinant(matrix)[0]


@jax.custom_jvp
def inverse_and_log_determinant(
    matrix: Float[Array, "n n"],
) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """The inverse and `ln det` of a positive definite matrix.

    The Cholesky factor is made by halves as well, so that nearly all of the work is matrix products. LAPACK
    could make it, but its threads go on waiting for more to do for a tenth of a second, on cores that the
    products want: with n = 1300 on two cores value and gradient of `PRESS` took 150 ms instead of 110.

    **Arguments:** `matrix`, symmetric.

    **Returns:** the inverse and a number; NaN where the matrix is not positive definite.
    """
    return one_by_one(_inverse_and_log_determinant)(matrix)


@inverse_and_log_determinant.defjvp
def _inverse_and_log_determinant_jvp(primals, tangents):
    inverse, value = inverse_and_log_determinant(*primals)
    return (inverse, value), (-inverse @ tangents[0] @ inverse, jnp.vdot(inverse, tangents[0]))


def _inverse_and_log_determinant(matrix):
    leaf = max(_LEAF, -(-matrix.shape[0] // _MOST_LEAVES))
    factor = _factor(matrix, leaf)
    return _inverse_of_product(factor), 2 * _log_determinant(factor)


class _Block(NamedTuple):
    """A small upper triangular matrix U."""

    matrix: Float[Array, "n n"]
    inverse: Float[Array, "n n"]


class _Halves(NamedTuple):
    """An upper triangular matrix `U = [[first, corner], [0, second]]`."""

    first: "_Halves | _Block"
    corner: Float[Array, "h m"]
    second: "_Halves | _Block"


def _factor(matrix, leaf: int) -> _Halves | _Block:
    """The upper triangular U with `U' U = matrix`."""
    size = matrix.shape[0]
    if size <= leaf:
        # LAPACK goes by columns: with the transposes no array need change its layout
        factor = jax.lax.linalg.cholesky(matrix.T, symmetrize_input=False).T
        return _Block(factor, _triangular_inverse(factor))
    half = _middle(size, leaf)
    first = _factor(matrix[:half, :half], leaf)
    corner = _solve_transposed(first, matrix[:half, half:])
    return _Halves(first, corner, _factor(matrix[half:, half:] - corner.T @ corner, leaf))


def _middle(size: int, leaf: int) -> int:
    """Where to halve, so that all leaves but the last have the same size."""
    return -(-size // (2 * leaf)) * leaf


def _triangular_inverse(factor):
    size = factor.shape[0]
    if size <= _ALONE:
        eye = jnp.eye(size, dtype=factor.dtype)
        return jax.lax.linalg.triangular_solve(factor.T, eye, left_side=True, lower=True).T
    half = size // 2
    first, second = (
        _triangular_inverse(factor[:half, :half]),
        _triangular_inverse(factor[half:, half:]),
    )
    corner = -first @ (factor[:half, half:] @ second)
    return jnp.block([[first, corner], [jnp.zeros_like(corner.T), second]])


def _solve(factor: _Halves | _Block, rights):
    """`U^-1 rights`."""
    if isinstance(factor, _Block):
        return factor.inverse @ rights
    half = factor.corner.shape[0]
    below = _solve(factor.second, rights[half:])
    return jnp.concatenate([_solve(factor.first, rights[:half] - factor.corner @ below), below])


def _solve_transposed(factor: _Halves | _Block, rights):
    """`U'^-1 rights`."""
    if isinstance(factor, _Block):
        answer = factor.inverse.T @ rights
        # once more for what is left, or the factor would be less accurate than by substitution
        return answer + factor.inverse.T @ (rights - factor.matrix.T @ answer)
    half = factor.corner.shape[0]
    above = _solve_transposed(factor.first, rights[:half])
    below = _solve_transposed(factor.second, rights[half:] - factor.corner.T @ above)
    return jnp.concatenate([above, below])


def _inverse_of_product(factor: _Halves | _Block):
    """`(U' U)^-1 = [[(U1' U1)^-1 + X W X', -X W], [-W X', W]]`, `X = U1^-1 corner`, `W = (U2' U2)^-1`."""
    if isinstance(factor, _Block):
        return factor.inverse @ factor.inverse.T
    across = _solve(factor.first, factor.corner)
    below = _inverse_of_product(factor.second)
    side = -across @ below
    above = _inverse_of_product(factor.first) - side @ across.T
    return jnp.block([[above, side], [side.T, below]])


def _log_determinant(factor: _Halves | _Block):
    if isinstance(factor, _Block):
        return jnp.sum(jnp.log(jnp.diag(factor.matrix)))
    return _log_determinant(factor.first) + _log_determinant(factor.second)

"""Inverses of positive definite matrices, and their diagonals with the derivative in closed form."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_BLOCK = 256  # below this a triangular solve is as fast as the products that would replace it


def inverse_of_definite(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse of a positive definite matrix by its Cholesky factor; NaN where it is not definite.

    `M^-1 = S' S` with `S` the inverse of the factor. Both steps go by halves, so that nearly all of
    the work is matrix products and the zeros of `S` are not multiplied.
    """
    factor = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    return _gram_of_triangular(_inverse_of_triangular(factor))


def _inverse_of_triangular(factor):
    examples = factor.shape[0]
    if examples <= _BLOCK:
        eye = jnp.eye(examples, dtype=factor.dtype)
        return jax.lax.linalg.triangular_solve(factor, eye, left_side=True, lower=True)
    half = examples // 2
    first = _inverse_of_triangular(factor[:half, :half])
    second = _inverse_of_triangular(factor[half:, half:])
    corner = -second @ (factor[half:, :half] @ first)
    return jnp.block([[first, jnp.zeros_like(corner.T)], [corner, second]])


def _gram_of_triangular(lower):
    examples = lower.shape[0]
    if examples <= _BLOCK:
        return lower.T @ lower
    half = examples // 2
    corner, last = lower[half:, :half], lower[half:, half:]
    side = corner.T @ last
    first = _gram_of_triangular(lower[:half, :half]) + corner.T @ corner
    return jnp.block([[first, side], [side.T, _gram_of_triangular(last)]])


@jax.custom_jvp
def inverse_diagonal(
    matrix: Float[Array, "n n"], border: Float[Array, " n"] | None = None
) -> Float[Array, " n"]:
    """The diagonal of `matrix^-1`, or the first n entries of that of `[[matrix, border], [border', 0]]^-1`.

    With P the n x n block of the inverse and q its last column, the diagonal of P changes by that of
    `-P dmatrix P - 2 P dborder q'`; so a gradient costs one matrix product more than the value.

    **Arguments:** `matrix`, positive definite; `border`, not zero, or None for none.

    **Returns:** a vector; NaN where the matrix is not positive definite.
    """
    return jnp.diag(bordered_inverse(matrix, border)[0])


@inverse_diagonal.defjvp
def _inverse_diagonal_jvp(primals, tangents):
    matrix, border = primals
    matrix_dot, border_dot = tangents
    inverse, column = bordered_inverse(matrix, border)
    change = -jnp.sum((inverse @ matrix_dot) * inverse, axis=1)
    if border is not None:
        change = change - 2 * (inverse @ border_dot) * column
    return jnp.diag(inverse), change


def bordered_inverse(
    matrix: Float[Array, "n n"], border: Float[Array, " n"] | None
) -> tuple[Float[Array, "n n"], Float[Array, " n"] | None]:
    """The n x n block P of `[[matrix, border], [border', 0]]^-1`, and the rest q of its last column."""
    inverse = inverse_of_definite(matrix)
    if border is None:
        return inverse, None
    per_border = inverse @ border
    column = per_border / (border @ per_border)
    return inverse - jnp.outer(per_border, column), column

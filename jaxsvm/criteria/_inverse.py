"""Inverses of positive definite matrices, and their diagonals with the derivative in closed form."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def inverse_of_definite(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse of a positive definite matrix by its Cholesky factor; NaN where it is not definite."""
    factor = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    eye = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    half = jax.lax.linalg.triangular_solve(factor, eye, left_side=True, lower=True)
    return half.T @ half


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
    return jnp.diag(_bordered_inverse(matrix, border)[0])


@inverse_diagonal.defjvp
def _inverse_diagonal_jvp(primals, tangents):
    matrix, border = primals
    matrix_dot, border_dot = tangents
    inverse, column = _bordered_inverse(matrix, border)
    change = -jnp.sum((inverse @ matrix_dot) * inverse, axis=1)
    if border is not None:
        change = change - 2 * (inverse @ border_dot) * column
    return jnp.diag(inverse), change


def _bordered_inverse(matrix, border):
    inverse = inverse_of_definite(matrix)
    if border is None:
        return inverse, None
    per_border = inverse @ border
    column = per_border / (border @ per_border)
    return inverse - jnp.outer(per_border, column), column

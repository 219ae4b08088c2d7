"""Inverses of positive definite matrices, and their diagonals with the derivative in closed form."""

import itertools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_BLOCK_ROWS = 3
_BLOCK = 256  # below this a triangular solve is as fast as the products that would replace it


def inverse_of_definite(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse of a positive definite matrix by its Cholesky factor; NaN where it is not definite."""
    return inverse_and_log_determinant(matrix)[0]


def inverse_and_log_determinant(
    matrix: Float[Array, "n n"],
) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """The inverse and `ln det` of a positive definite matrix; NaN where it is not definite.

    `M^-1 = S S'` with `S` the inverse of the upper factor. It goes by halves, so that nearly all of the
    work is matrix products and the zeros of `S` are not multiplied.
    """
    # LAPACK goes by columns: with the transposes no array need change its layout
    factor = jax.lax.linalg.cholesky(matrix.T, symmetrize_input=False).T
    return _inverse_and_gram(factor)[1], 2 * jnp.sum(jnp.log(jnp.diag(factor)))


def _inverse_and_gram(factor):
    """The inverse S of an upper triangular matrix, and `S S'`."""
    examples = factor.shape[0]
    if examples <= _BLOCK:
        eye = jnp.eye(examples, dtype=factor.dtype)
        inverse = jax.lax.linalg.triangular_solve(factor.T, eye, left_side=True, lower=True).T
        return inverse, inverse @ inverse.T
    half = examples // 2
    first, first_gram = _inverse_and_gram(factor[:half, :half])
    second, second_gram = _inverse_and_gram(factor[half:, half:])
    corner = -first @ (factor[:half, half:] @ second)
    inverse = jnp.block([[first, corner], [jnp.zeros_like(corner.T), second]])
    side = corner @ second.T
    gram = jnp.block([[first_gram + corner @ corner.T, side], [side.T, second_gram]])
    return inverse, gram


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
    change = -quadratic_forms(inverse, matrix_dot)
    if border is not None:
        change = change - 2 * (inverse @ border_dot) * column
    return jnp.diag(inverse), change


def quadratic_forms(rows: Float[Array, "n m"], matrix: Float[Array, "m m"]) -> Float[Array, " n"]:
    """`r' matrix r` for each row r, for a symmetric matrix.

    Of the matrix only blocks on and above the diagonal are read, which saves a third of the work; so does
    the transpose, `rows' diag(g) rows` in a form that is good for symmetric changes. More blocks would
    save up to a half, but smaller products are slower.
    """
    size = matrix.shape[0]
    edges = [size * block // _BLOCK_ROWS for block in range(_BLOCK_ROWS + 1)]
    forms = jnp.zeros(rows.shape[0], rows.dtype)
    for first, last in itertools.pairwise(edges):
        counted = jnp.where(jnp.arange(first, size) < last, 1.0, 2.0).astype(rows.dtype)
        part = rows[:, first:last] @ matrix[first:last, first:]
        forms = forms + jnp.sum(part * (counted[None, :] * rows[:, first:]), axis=1)
    return forms


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

"""Diagonals of inverses, and quadratic forms, with their derivatives in closed form."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._definite import inverse_of_definite

_BLOCK_ROWS = 3


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


@eqx.filter_custom_jvp
def solve_and_inverse_diagonal(
    matrix: Float[Array, "n n"], right: Float[Array, " n"], has_offset: bool
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """`P right` and the diagonal of P, the n x n block of `[[matrix, 1], [1', 0]]^-1`, or of `matrix^-1`.

    With `answer = P right` these change by `P (dright - dmatrix answer)` and the diagonal of
    `-P dmatrix P`.

    **Arguments:** `matrix`, positive definite; `right`, the right-hand side; `has_offset`, whether the
    matrix is bordered by ones, so that the answer sums to zero.

    **Returns:** two vectors; NaN where the matrix is not positive definite.
    """
    return _solve_and_inverse(matrix, right, has_offset)[:2]


@solve_and_inverse_diagonal.def_jvp
def _solve_and_inverse_diagonal_jvp(primals, tangents):
    matrix, right, has_offset = primals
    matrix_dot, right_dot, _ = tangents
    answer, pivots, inverse = _solve_and_inverse(matrix, right, has_offset)
    change, pivot_change = jnp.zeros_like(answer), jnp.zeros_like(pivots)
    if matrix_dot is not None:
        change = change - inverse @ (matrix_dot @ answer)
        pivot_change = -quadratic_forms(inverse, matrix_dot)
    if right_dot is not None:
        change = change + inverse @ right_dot
    return (answer, pivots), (change, pivot_change)


def _solve_and_inverse(matrix, right, has_offset: bool):
    inverse, _ = bordered_inverse(matrix, jnp.ones_like(right) if has_offset else None)
    return inverse @ right, jnp.diag(inverse), inverse


def quadratic_forms(
    columns: Float[Array, "m n"], matrix: Float[Array, "m m"]
) -> Float[Array, " n"]:
    """`c' matrix c` for each column c, for a symmetric matrix.

    Of the matrix only blocks on and below the diagonal are read, which saves a third of the work; so does
    the transpose, `columns diag(g) columns'` in a form that is good for symmetric changes. More blocks would
    save up to a half, but smaller products are slower.

    **Arguments:** `columns`, the vectors c side by side; `matrix`, symmetric.

    **Returns:** one number for each column.
    """
    size = matrix.shape[0]
    edges = [size * block // _BLOCK_ROWS for block in range(_BLOCK_ROWS + 1)]
    forms = jnp.zeros(columns.shape[1], columns.dtype)
    for first, last in itertools.pairwise(edges):
        counted = jnp.where(jnp.arange(first, size) < last, 1.0, 2.0).astype(columns.dtype)
        part = (counted[:, None] * matrix[first:, first:last]) @ columns[first:last]
        forms = forms + jnp.sum(part * columns[first:], axis=0)
    return forms


def bordered_inverse(
    matrix: Float[Array, "n n"], border: Float[Array, " n"] | None
) -> tuple[Float[Array, "n n"], Float[Array, " n"] | None]:
    """The n x n block P of `[[matrix, border], [border', 0]]^-1`, and the rest q of its last column.

    **Arguments:** `matrix`, positive definite; `border`, not zero, or None for none.

    **Returns:** P and q; without a border the inverse of the matrix and None.
    """
    inverse = inverse_of_definite(matrix)
    if border is None:
        return inverse, None
    per_border = inverse @ border
    column = per_border / (border @ per_border)
    return inverse - jnp.outer(per_border, column), column

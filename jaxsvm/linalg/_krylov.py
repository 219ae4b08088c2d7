"""Linear systems whose matrix is known only by its products with vectors."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ._lapack import one_by_one

_DIRECTIONS = 32  # that are stored at once; more restart the search
_RESTARTS = 10


def solve_by_products(
    operator: Callable[[Any], Callable[[Any], Any]], matrix: Any, right: Any
) -> Any:
    """`A^-1 right`, by the method of generalized minimal residuals.

    It takes one product with A for each direction of the search. There are few if the eigenvalues of A are
    in few clusters. Memory grows with the length of the right-hand side, not with its square.

    **Arguments:** `operator`, a function from `matrix`, any pytree, to the linear function that multiplies a
    vector by A, which captures no traced arrays; it is called once, so shared work belongs in it. `right`,
    the right-hand side, a pytree of arrays.

    **Returns:** a pytree like `right`, with derivatives in both modes, to any order; NaN if the search fails.
    """

    def solve(transposed, matrix, right):
        product = operator(matrix)
        if transposed:
            back = jax.linear_transpose(product, right)
            return _search(lambda vector: back(vector)[0], right)
        return _search(product, right)

    return jax.lax.custom_linear_solve(
        operator(matrix),
        right,
        lambda _, right: one_by_one(partial(solve, False))(matrix, right),
        lambda _, right: one_by_one(partial(solve, True))(matrix, right),
    )


def _search(product, right):
    epsilon = float(jnp.finfo(jax.tree.leaves(right)[0].dtype).eps)
    size = _length(right)
    # a unit vector, since the search ignores what is as small as a rounding error
    unit = jax.tree.map(lambda part: part / jnp.where(size > 0, size, 1.0), right)
    answer, _ = jax.scipy.sparse.linalg.gmres(
        product,
        unit,
        tol=256 * epsilon,
        restart=_DIRECTIONS,
        maxiter=_RESTARTS,
        solve_method="incremental",
    )
    residual = _length(jax.tree.map(jnp.subtract, product(answer), unit))
    size = jnp.where(residual < epsilon**0.5, size, jnp.nan)
    return jax.tree.map(lambda part: size * part, answer)


def _length(vector):
    return jnp.sqrt(sum(jnp.sum(part**2) for part in jax.tree.leaves(vector)))

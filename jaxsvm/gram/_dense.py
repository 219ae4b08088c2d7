"""The kernel matrix as an array of n x n numbers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import linalg
from ..kernels import AbstractKernel, is_covariance
from ..linalg import SolveOptions
from ._interface import AbstractGram


class DenseGram(AbstractGram):
    """A kernel matrix K that is stored entry by entry: exact, in memory that grows with `n^2`.

    **Arguments:** `matrix`, symmetric and positive semi-definite.
    """

    matrix: Float[Array, "n n"]

    @property
    def dtype(self) -> Any:
        return self.matrix.dtype

    def diagonal(self) -> Array:
        return jnp.diag(self.matrix)

    def row(self, index: Array) -> Array:
        return self.matrix[index]

    def product(self, vector: Array) -> Array:
        return self.matrix @ vector

    def sparse_product(self, vector: Array) -> Array:
        """The sum of the rows that count."""
        return linalg.sparse_product(self.matrix, vector)

    def squared_product(self, vector: Array) -> Array:
        return linalg.sparse_product(self.matrix**2, vector)

    def reduced_solve(
        self,
        scale: Array,
        diagonal: Array,
        *rights: Array,
        options: SolveOptions = SolveOptions(),  # noqa: B008, it is immutable
    ) -> tuple[Array, ...]:
        """By a Cholesky factorization for the examples that take part."""
        return linalg.reduced_solve(self.matrix, scale, diagonal, *rights, options=options)

    def solver(self, scale: Array, diagonal: Array) -> Callable[[Array], Array]:
        """By one Cholesky factorization."""
        factor = linalg.cholesky(linalg.scaled_matrix(self.matrix, scale, diagonal))
        return partial(linalg.solve_by_factor, factor)

    def general_solve(self, diagonal: Array, scale: Array, right: Array) -> Array:
        """By a factorization of the whole matrix."""
        return linalg.solve(jnp.diag(diagonal) + scale[:, None] * self.matrix, right)

    def log_determinant(self, curvature: Array, definite: bool = True) -> Array:
        """By a Cholesky factorization for the examples with a curvature, or a general one for all."""
        if definite:
            return linalg.laplace_log_determinant(self.matrix, curvature)
        return linalg.general_log_determinant(self.matrix, curvature)

    def inverse_diagonal(self, scale: Array, diagonal: Array, border: Array | None = None) -> Array:
        """By the inverse of the whole matrix."""
        return linalg.inverse_diagonal(linalg.scaled_matrix(self.matrix, scale, diagonal), border)

    def solve_and_inverse_diagonal(
        self, diagonal: Array, right: Array, has_offset: bool
    ) -> tuple[Array, Array]:
        """By the inverse of the whole matrix."""
        matrix = self.matrix + jnp.diag(diagonal)
        return linalg.solve_and_inverse_diagonal(matrix, right, has_offset)

    def squared_spans(self, diagonal: Array, free: Array, has_offset: bool) -> Array:
        """By a Cholesky factorization for the free examples."""
        return linalg.squared_spans(self.matrix + jnp.diag(diagonal), free, has_offset)

    def posterior_marginals(
        self, shift: Array, precision: Array, definite: bool = True
    ) -> tuple[Array, Array]:
        return linalg.posterior_marginals(self.matrix, shift, precision, definite)

    def coefficients(self, dual: Array) -> Array:
        return dual

    def response(self, precision: Array, definite: bool = True) -> Array:
        return linalg.response(self.matrix, precision, definite)

    def response_diagonal(self, precision: Array, definite: bool = True) -> Array:
        return jnp.diag(self.response(precision, definite))

    def recentered(self, share: Array) -> "DenseGram":
        means = self.matrix @ share
        return DenseGram(self.matrix - means[:, None] - means[None, :] + share @ means)

    @property
    def has_cheap_rows(self) -> bool:
        return True

    @property
    def shards(self) -> int:
        return 1

    def subset(self, examples: Array) -> "DenseGram":
        return DenseGram(self.matrix[examples][:, examples])

    def thinned(self, stride: int) -> "DenseGram":
        return DenseGram(self.matrix[::stride, ::stride])

    def is_finite(self) -> Array:
        return jnp.all(jnp.isfinite(self.matrix))

    def is_covariance(self) -> Array:
        """By a Cholesky factorization."""
        return is_covariance(self.matrix)

    def dense(self) -> Array:
        return self.matrix


def exact_gram(kernel: AbstractKernel, x: Float[Array, "n d"]) -> DenseGram:
    """The kernel matrix of the examples, without any approximation.

    **Arguments:** `kernel`; `x`, inputs that have been checked, one row for each example.

    **Returns:** a `DenseGram`.
    """
    return DenseGram(kernel.matrix(x, x, same=True))

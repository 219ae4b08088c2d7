"""The kernel matrix as it is, an array of n x n numbers."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import linalg
from ..kernels import AbstractKernel, is_covariance
from ._base import AbstractGram


class DenseGram(AbstractGram):
    """A kernel matrix K that is stored entry by entry: exact, in memory that grows with `n^2`.

    **Arguments:** `matrix`, symmetric and positive semi-definite.
    """

    matrix: Float[Array, "n n"]

    @property
    def dtype(self) -> Any:
        return self.matrix.dtype

    def diagonal(self):
        return jnp.diag(self.matrix)

    def row(self, place):
        return self.matrix[place]

    def product(self, vector):
        return self.matrix @ vector

    def sparse_product(self, vector):
        """The sum of the rows that count."""
        return linalg.sparse_product(self.matrix, vector)

    def squared_product(self, vector):
        return linalg.sparse_product(self.matrix**2, vector)

    def reduced_solve(self, scale, diagonal, *rights, jitter=None, refinements=0, coarse=False):
        """By a Cholesky factorization for the examples that take part."""
        return linalg.reduced_solve(
            self.matrix,
            scale,
            diagonal,
            *rights,
            jitter=jitter,
            refinements=refinements,
            coarse=coarse,
        )

    def general_solve(self, diagonal, scale, right):
        """By a factorization of the whole matrix."""
        return linalg.solve(jnp.diag(diagonal) + scale[:, None] * self.matrix, right)

    def log_determinant(self, curvature, definite=True):
        """By a Cholesky factorization for the examples with a curvature, or a general one for all."""
        if definite:
            return linalg.laplace_log_determinant(self.matrix, curvature)
        return linalg.general_log_determinant(self.matrix, curvature)

    def inverse_diagonal(self, scale, diagonal, border=None):
        """By the inverse of the whole matrix."""
        matrix = scale[:, None] * self.matrix * scale[None, :] + jnp.diag(diagonal)
        return linalg.inverse_diagonal(matrix, border)

    def solve_and_inverse_diagonal(self, diagonal, right, has_offset):
        """By the inverse of the whole matrix."""
        matrix = self.matrix + jnp.diag(diagonal)
        return linalg.solve_and_inverse_diagonal(matrix, right, has_offset)

    def squared_spans(self, diagonal, free, has_offset):
        """By a Cholesky factorization for the free examples."""
        return linalg.squared_spans(self.matrix + jnp.diag(diagonal), free, has_offset)

    def posterior_marginals(self, shift, precision, definite=True):
        return linalg.posterior_marginals(self.matrix, shift, precision, definite)

    def response(self, precision, definite=True):
        return linalg.response(self.matrix, precision, definite)

    def is_finite(self):
        return jnp.all(jnp.isfinite(self.matrix))

    def is_covariance(self):
        """By a Cholesky factorization."""
        return is_covariance(self.matrix)

    def dense(self):
        return self.matrix


def exact_gram(kernel: AbstractKernel, x: Float[Array, "n d"]) -> DenseGram:
    """The kernel matrix of the examples, without any approximation.

    **Arguments:** `kernel`; `x`, inputs that have been checked, one row for each example.

    **Returns:** a `DenseGram`.
    """
    return DenseGram(kernel.matrix(x, x, same=True))

"""The operations on a kernel matrix that solvers and criteria may use."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from ..linalg import SolveOptions


class AbstractGram(eqx.Module):
    """The symmetric, positive semi-definite matrix K of the covariances of n examples.

    Solvers and criteria use only these operations, so they work with any representation of K. All of them are
    differentiable with respect to K, except `sparse_product`, `squared_product` and `reduced_solve`, which
    solvers use: they need not have derivatives in reverse mode.
    """

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """The type of the numbers."""

    @abc.abstractmethod
    def diagonal(self) -> Float[Array, " n"]:
        """The variances `K_ii`."""

    @abc.abstractmethod
    def row(self, index: Int[Array, ""]) -> Float[Array, " n"]:
        """The covariances of one example with every example.

        **Arguments:** `index` of the example.

        **Returns:** a vector.
        """

    @abc.abstractmethod
    def product(self, vector: Float[Array, " n"]) -> Float[Array, " n"]:
        """`K vector`, also written `gram @ vector`.

        **Arguments:** `vector`, one number for each example.

        **Returns:** a vector.
        """

    def __matmul__(self, vector: Float[Array, " n"]) -> Float[Array, " n"]:
        return self.product(vector)

    @abc.abstractmethod
    def sparse_product(self, vector: Float[Array, " n"]) -> Float[Array, " n"]:
        """`K vector` for a vector of which most entries may be zero.

        **Arguments:** `vector`, one number for each example.

        **Returns:** a vector.
        """

    @abc.abstractmethod
    def squared_product(self, vector: Float[Array, " n"]) -> Float[Array, " n"]:
        """`sum_j K_ij^2 vector_j` for a vector of which most entries may be zero.

        **Arguments:** `vector`, one number for each example.

        **Returns:** a vector.
        """

    @abc.abstractmethod
    def reduced_solve(
        self,
        scale: Float[Array, " n"],
        diagonal: Float[Array, " n"],
        *rights: Float[Array, " n"],
        options: SolveOptions = SolveOptions(),  # noqa: B008, it is immutable
    ) -> tuple[Float[Array, " n"], ...]:
        """Solve `(diag(diagonal) + diag(scale) K diag(scale)) t = right` for examples with a positive scale.

        **Arguments:** `scale`, zero for examples that take no part; `diagonal`, positive; `rights`, one or
        more right-hand sides; `options`, a `jaxsvm.linalg.SolveOptions`.

        **Returns:** one `t` for each right-hand side, zero for examples that take no part, NaN where
        the matrix is not positive definite.
        """

    @abc.abstractmethod
    def solver(
        self, scale: Float[Array, " n"], diagonal: Float[Array, " n"]
    ) -> Callable[[Float[Array, " n"]], Float[Array, " n"]]:
        """A function that solves `(diag(diagonal) + diag(scale) K diag(scale)) t = right` for any right side.

        **Arguments:** `scale`, one number for each example; `diagonal`, positive.

        **Returns:** a function from `right` to t, which is NaN where the matrix is not positive definite.
        """

    @abc.abstractmethod
    def general_solve(
        self, diagonal: Float[Array, " n"], scale: Float[Array, " n"], right: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """`(diag(diagonal) + diag(scale) K)^-1 right`, for scales of any sign.

        **Arguments:** `diagonal`, `scale`, one number for each example; `right`, the right-hand side.

        **Returns:** a vector.
        """

    @abc.abstractmethod
    def log_determinant(
        self, curvature: Float[Array, " n"], definite: bool = True
    ) -> Float[Array, ""]:
        """`ln det(I + diag(curvature) K)`.

        **Arguments:** `curvature`, one number for each example, most of which may be zero; `definite`,
        whether none is negative.

        **Returns:** a number; NaN where the determinant is not positive.
        """

    @abc.abstractmethod
    def inverse_diagonal(
        self,
        scale: Float[Array, " n"],
        diagonal: Float[Array, " n"],
        border: Float[Array, " n"] | None = None,
    ) -> Float[Array, " n"]:
        """The diagonal of `M^-1`, `M = diag(scale) K diag(scale) + diag(diagonal)`.

        With a border, the first n entries of the diagonal of `[[M, border], [border', 0]]^-1`.

        **Arguments:** `scale`, one number for each example; `diagonal`, positive; `border`, not zero, or
        None for none.

        **Returns:** a vector; NaN where M is not positive definite.
        """

    @abc.abstractmethod
    def solve_and_inverse_diagonal(
        self, diagonal: Float[Array, " n"], right: Float[Array, " n"], has_offset: bool
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """`P right` and the diagonal of P, by one factorization for both.

        P is `M^-1` with `M = K + diag(diagonal)`, or with an offset the n x n block of
        `[[M, 1], [1', 0]]^-1`.

        **Arguments:** `diagonal`, positive; `right`, the right-hand side; `has_offset`, whether the answer
        is to sum to zero.

        **Returns:** two vectors; NaN where M is not positive definite.
        """

    @abc.abstractmethod
    def squared_spans(
        self, diagonal: Float[Array, " n"], free: Bool[Array, " n"], has_offset: bool
    ) -> Float[Array, " n"]:
        """`S_i^2`, the least `l' (K + diag(diagonal)) l` with `l_i = 1` and `l_j = 0` unless j is i or free.

        **Arguments:** `diagonal`, zero or positive; `free`, which examples are free; `has_offset`, whether
        the entries of `l` sum to zero.

        **Returns:** one number for each example.
        """

    @abc.abstractmethod
    def posterior_marginals(
        self, shift: Float[Array, " n"], precision: Float[Array, " n"], definite: bool = True
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Means and variances of f under `N(f; 0, K) prod_i exp(shift_i f_i - precision_i f_i^2 / 2)`.

        **Arguments:** `shift`, `precision`, one number for each example; `definite`, whether no precision is
        negative.

        **Returns:** two vectors; NaN if definite precisions give a matrix that is not positive definite.
        """

    @abc.abstractmethod
    def coefficients(self, dual: Float[Array, " n"]) -> Float[Array, " k"]:
        """The coefficients c with `f(x) = features(x) c` at new points, if `f = K dual` at the examples.

        The k features of a point x are its covariances with the n examples if K is exact, and the
        p numbers `phi(x)` if `K_ij = phi(x_i)' phi(x_j)`.

        **Arguments:** `dual`, one number for each example.

        **Returns:** a vector.
        """

    @abc.abstractmethod
    def response(self, precision: Float[Array, " n"], definite: bool = True) -> Float[Array, "k k"]:
        """The matrix by which measurements of these precisions reduce the covariance of new points.

        The posterior of `posterior_marginals` at points with features F has their prior covariance minus
        `F response F'`. If the features are covariances, the response is `(K + diag(precision)^-1)^-1`.

        **Arguments:** `precision`, one number for each example, which may be zero; `definite`, whether none
        is negative.

        **Returns:** a symmetric matrix; NaN if definite precisions give a matrix that is not positive
        definite.
        """

    @abc.abstractmethod
    def response_diagonal(
        self, precision: Float[Array, " n"], definite: bool = True
    ) -> Float[Array, " n"]:
        """The diagonal of `(K + diag(precision)^-1)^-1`, for precisions that may be zero.

        **Arguments:** `precision`, one number for each example; `definite`, whether none is negative.

        **Returns:** a vector; NaN if definite precisions give a matrix that is not positive definite.
        """

    @abc.abstractmethod
    def recentered(self, share: Float[Array, " n"]) -> "AbstractGram":
        """The kernel matrix M with a mean of the examples as origin of feature space.

        `sum_i b_i M_ii - b' M b` is the same as for K, for all b with sum one. The variance that an
        example shares with no other may stay as it is, since no origin makes it smaller.

        **Arguments:** `share`, the weight of each example in the mean, with sum one.

        **Returns:** a Gram matrix of the same kind.
        """

    @property
    @abc.abstractmethod
    def has_cheap_rows(self) -> bool:
        """Whether a row costs only as much as reading it, so that solvers may take many one by one."""

    @property
    @abc.abstractmethod
    def shards(self) -> int:
        """The number of devices among which the examples are divided; if several, each keeps its rows."""

    @abc.abstractmethod
    def subset(self, examples: Int[Array, " m"]) -> "AbstractGram":
        """The kernel matrix of some of the examples, on one device.

        **Arguments:** `examples`, their indices.

        **Returns:** a Gram matrix of the same kind.
        """

    @abc.abstractmethod
    def thinned(self, stride: int) -> "AbstractGram":
        """The kernel matrix of one in every `stride` examples of each device, divided in the same way.

        **Arguments:** `stride`, from one example to the next.

        **Returns:** a Gram matrix of the same kind.
        """

    @abc.abstractmethod
    def is_finite(self) -> Bool[Array, ""]:
        """Whether K has no infinity and no NaN."""

    @abc.abstractmethod
    def is_covariance(self) -> Bool[Array, ""]:
        """Whether K is symmetric and positive semi-definite up to rounding errors."""

    @abc.abstractmethod
    def dense(self) -> Float[Array, "n n"]:
        """K as an array of n x n numbers. Use it only where no other operation will do."""

"""The kernel matrix as a product of tall factors, plus a diagonal."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import linalg
from ..linalg import SolveOptions
from ._dense import DenseGram
from ._interface import AbstractGram


class LowRankGram(AbstractGram):
    """A kernel matrix `K = V V' + diag(extra)`, in memory that grows with `n p`.

    Row i of V holds the p features `phi(x_i)` of an example, and `extra` is the variance that they lack. All
    operations except `dense` take products of V with vectors and p x p matrices, and factorizations of p x p
    matrices. With `B = P / (1 + extra P)` for the precisions or curvatures P, they follow from Woodbury's
    formula and the matrix `I + V' B V`. If p is at least n, the matrix K is smaller than V and used instead.

    **Arguments:** `factor`, V, one row for each example; `extra`, one number for each example, none of them
    negative, or None for zeros; `shards`, the number of devices among which the rows of V are divided. If
    there are several, the rows stay where they are: devices exchange sums over rows, and at most p rows.
    """

    factor: Float[Array, "n p"]
    extra: Float[Array, " n"] | None = None
    shards: int = eqx.field(  # pyright: ignore[reportIncompatibleMethodOverride], it is immutable
        static=True, default=1
    )

    @property
    def dtype(self) -> Any:
        return self.factor.dtype

    def diagonal(self) -> Array:
        return self._plus_extra(self._squares())

    def row(self, index: Array) -> Array:
        row = self.factor @ self.factor[index]
        return row if self.extra is None else row.at[index].add(self.extra[index])

    def product(self, vector: Array) -> Array:
        product = self.factor @ (vector @ self.factor)
        return product if self.extra is None else product + self.extra * vector

    def sparse_product(self, vector: Array) -> Array:
        """As for any vector, since half of the work is the same for few entries; nothing for no entries."""
        return jax.lax.cond(
            jnp.any(vector != 0), lambda some: self.product(some), jnp.zeros_like, vector
        )

    def squared_product(self, vector: Array) -> Array:
        """`v_i' (V' diag(vector) V) v_i`, plus what the extra variances add to the diagonal of K."""
        inner = linalg.weighted_gram(self.factor, vector, self.shards)
        sums = jnp.sum((self.factor @ inner) * self.factor, axis=1)
        if self.extra is not None:
            sums = sums + self.extra * (2 * self._squares() + self.extra) * vector
        # rounding errors can make a small sum of squares negative
        return jnp.where(jnp.all(vector >= 0), jnp.maximum(sums, 0.0), sums)

    def reduced_solve(
        self,
        scale: Array,
        diagonal: Array,
        *rights: Array,
        options: SolveOptions = SolveOptions(),  # noqa: B008, it is immutable
    ) -> tuple[Array, ...]:
        """By Woodbury's formula, or by a Cholesky factorization for at most p examples that take part."""
        if self._is_wide:
            return self._as_dense().reduced_solve(scale, diagonal, *rights, options=options)
        ridge = self._plus_extra(diagonal, scale**2)
        return linalg.low_rank_reduced_solve(
            self.factor, scale, ridge, *rights, options=options, shards=self.shards
        )

    def solver(self, scale: Array, diagonal: Array) -> Callable[[Array], Array]:
        """By Woodbury's formula."""
        if self._is_wide:
            return self._as_dense().solver(scale, diagonal)
        system = self._system(scale, self._plus_extra(diagonal, scale**2))
        return lambda right: linalg.definite_solve(system, right)

    def general_solve(self, diagonal: Array, scale: Array, right: Array) -> Array:
        """By Woodbury's formula. An entry of `diagonal + scale extra` must not be zero."""
        if self._is_wide:
            return self._as_dense().general_solve(diagonal, scale, right)
        ridge = self._plus_extra(diagonal, scale)
        return linalg.general_solve(self.factor, ridge, scale, right, self.shards)

    def log_determinant(self, curvature: Array, definite: bool = True) -> Array:
        """`ln det(I + V' B V) + sum_i ln(1 + curvature_i extra_i)`."""
        if self._is_wide:
            return self._as_dense().log_determinant(curvature, definite)
        ridge = self._plus_extra(jnp.ones_like(curvature), curvature)
        inner = self._inner(curvature / ridge)
        if definite:
            return linalg.inverse_and_log_determinant(inner)[1] + jnp.sum(jnp.log(ridge))
        # the sign of the first row makes the determinant's sign that of the product
        inner = inner.at[0].multiply(jnp.prod(jnp.sign(ridge)))
        return linalg.log_determinant(inner) + jnp.sum(jnp.log(jnp.abs(ridge)))

    def inverse_diagonal(self, scale: Array, diagonal: Array, border: Array | None = None) -> Array:
        """`(1 - scale^2 v' (I + V' diag(scale^2 / d) V)^-1 v / d) / d`, `d = diagonal + scale^2 extra`.

        NaN if an entry of d is not positive. Cancellation causes a relative error of `eps / d` times the
        variance.
        """
        if self._is_wide:
            return self._as_dense().inverse_diagonal(scale, diagonal, border)
        ridge = self._plus_extra(diagonal, scale**2)
        system = self._system(scale, ridge)
        pivots = self._pivots(system)
        if border is None:
            return pivots
        per_border = linalg.definite_solve(system, border)
        return pivots - per_border**2 / (border @ per_border)

    def solve_and_inverse_diagonal(
        self, diagonal: Array, right: Array, has_offset: bool
    ) -> tuple[Array, Array]:
        """By Woodbury's formula; for the diagonal as in `inverse_diagonal`."""
        if self._is_wide:
            return self._as_dense().solve_and_inverse_diagonal(diagonal, right, has_offset)
        ones = jnp.ones_like(right)
        system = self._system(ones, self._plus_extra(diagonal))
        answer, pivots = linalg.definite_solve(system, right), self._pivots(system)
        if not has_offset:
            return answer, pivots
        per_offset = linalg.definite_solve(system, ones)
        column = per_offset / jnp.sum(per_offset)
        return answer - jnp.sum(answer) * column, pivots - per_offset * column

    def squared_spans(self, diagonal: Array, free: Array, has_offset: bool) -> Array:
        """By Woodbury's formula, or by a Cholesky factorization for at most p free examples.

        More than p free examples whose `diagonal + extra` is zero span the whole space, so `S_i^2` is zero up
        to rounding errors.
        """
        ridge = self._plus_extra(diagonal)
        return linalg.low_rank_squared_spans(self.factor, ridge, free, has_offset, self.shards)

    def posterior_marginals(
        self, shift: Array, precision: Array, definite: bool = True
    ) -> tuple[Array, Array]:
        """By the covariance `extra / r + V (I + V' B V)^-1 V' / r^2`, `r = 1 + extra precision`.

        Nothing cancels in it if no precision is negative.
        """
        if self._is_wide:
            return self._as_dense().posterior_marginals(shift, precision, definite)
        ridge = self._plus_extra(jnp.ones_like(precision), precision)
        inner = self._inner(precision / ridge)
        inside = (shift / ridge) @ self.factor
        if definite:
            inside = linalg.solve_by_factor(linalg.cholesky(inner), inside)
        else:
            inside = linalg.solve(inner, inside)
        mean = self.factor @ inside / ridge
        variance = linalg.inverse_forms(self.factor, inner, definite) / ridge**2
        if self.extra is None:
            return mean, variance
        return mean + self.extra / ridge * shift, variance + self.extra / ridge

    def coefficients(self, dual: Array) -> Array:
        """`V' dual`, for the features of V."""
        return dual @ self.factor

    def response(self, precision: Array, definite: bool = True) -> Array:
        """`V' (K + diag(precision)^-1)^-1 V = I - (I + V' B V)^-1`, for the features of V."""
        if self._is_wide:
            return self.factor.T @ self._as_dense().response(precision, definite) @ self.factor
        ridge = self._plus_extra(jnp.ones_like(precision), precision)
        inner = self._inner(precision / ridge)
        if definite:
            inverse, _ = linalg.inverse_and_log_determinant(inner)
        else:
            inverse = linalg.inverse(inner)
        return jnp.eye(inner.shape[0], dtype=inner.dtype) - inverse

    def response_diagonal(self, precision: Array, definite: bool = True) -> Array:
        """`B_i (1 - B_i v_i' (I + V' B V)^-1 v_i)`."""
        if self._is_wide:
            return self._as_dense().response_diagonal(precision, definite)
        weights = precision / self._plus_extra(jnp.ones_like(precision), precision)
        inner = self._inner(weights)
        forms = linalg.inverse_forms(self.factor, inner, definite)
        if definite:
            return weights * linalg.remaining_share(weights, forms, self._squares())
        return weights * (1 - weights * forms)

    def recentered(self, share: Array) -> "LowRankGram":
        """By subtracting the mean of the rows of V; the extra variances stay."""
        center = share @ self.factor
        return LowRankGram(self.factor - center[None, :], self.extra, self.shards)

    @property
    def has_cheap_rows(self) -> bool:
        return False

    def subset(self, examples: Array) -> "LowRankGram":
        return LowRankGram(
            self.factor[examples], None if self.extra is None else self.extra[examples]
        )

    def thinned(self, stride: int) -> "LowRankGram":
        factor = linalg.thinned(self.factor, stride, self.shards)
        extra = None if self.extra is None else linalg.thinned(self.extra, stride, self.shards)
        return LowRankGram(factor, extra, self.shards)

    def is_finite(self) -> Array:
        """By the variances, which bound all other entries."""
        return jnp.all(jnp.isfinite(self.diagonal()))

    def is_covariance(self) -> Array:
        """By construction, if K is finite and no extra variance is negative."""
        finite = self.is_finite()
        return finite if self.extra is None else finite & jnp.all(self.extra >= 0)

    def dense(self) -> Array:
        product = self.factor @ self.factor.T
        return product if self.extra is None else product + jnp.diag(self.extra)

    @property
    def _is_wide(self) -> bool:
        examples, rank = self.factor.shape
        return rank >= examples

    def _as_dense(self) -> DenseGram:
        return DenseGram(self.dense())

    def _squares(self) -> Float[Array, " n"]:
        """`v' v` of each row."""
        return jnp.sum(self.factor**2, axis=1)

    def _plus_extra(self, numbers: Array, scale: Array | None = None) -> Float[Array, " n"]:
        """`numbers + scale extra`."""
        if self.extra is None:
            return numbers
        return numbers + (self.extra if scale is None else scale * self.extra)

    def _inner(self, weights: Array) -> Float[Array, "p p"]:
        """`I + V' diag(weights) V`."""
        return linalg.inner_matrix(self.factor, weights, self.shards)

    def _system(self, scale: Array, diagonal: Array) -> linalg.LowRankSystem:
        """The matrix `diag(diagonal) + diag(scale) V V' diag(scale)`."""
        return linalg.definite_system(self.factor, scale, diagonal, shards=self.shards)

    def _pivots(self, system: linalg.LowRankSystem) -> Float[Array, " n"]:
        """The diagonal of the inverse of a definite system with this factor."""
        weights = system.left * system.right / system.lifted
        forms = linalg.inverse_forms(self.factor, system.inner, True)
        return linalg.remaining_share(weights, forms, self._squares()) / system.lifted

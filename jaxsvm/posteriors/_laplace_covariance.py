"""Laplace's error bars: the covariance at new points, from the kernel matrix or at a low rank."""

import abc
from functools import partial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._fit import Fit
from ..approximations import AbstractBasis
from ..gram import AbstractGram, exact_gram
from ..hyperparameters import unfreeze
from ..kernels import AbstractKernel
from ..linalg import cholesky, solve_triangular
from ..numerics import safe_root
from ..runtime import is_traced, jit

_BLOCK = 32  # the number of rows is rounded up to a multiple of it, so that few shapes are compiled


class AbstractLaplaceCovariance(eqx.Module):
    """The posterior covariance of the latent function at new points."""

    @abc.abstractmethod
    def variances(
        self, kernel: AbstractKernel, examples: Float[Array, "n d"], x: Float[Array, "m d"]
    ) -> Float[Array, " m"]:
        """The variance at each point.

        **Arguments:** `kernel`; `examples`, their inputs; `x`, new points.

        **Returns:** one number for each point; rounding errors can make it slightly negative.
        """

    @abc.abstractmethod
    def matrix(
        self, kernel: AbstractKernel, examples: Float[Array, "n d"], x: Float[Array, "m d"]
    ) -> Float[Array, "m m"]:
        """The covariances between all points.

        **Arguments:** `kernel`; `examples`, their inputs; `x`, new points.

        **Returns:** a symmetric matrix.
        """

    @abc.abstractmethod
    def is_positive(self) -> bool:
        """Whether the curvature of the posterior is positive, so that the fit is a maximum."""


class ExactLaplaceCovariance(AbstractLaplaceCovariance):
    """`k(x, x) - k' Lambda^(1/2) (I + Lambda^(1/2) K Lambda^(1/2))^-1 Lambda^(1/2) k`: [CKO04, eqs. 43-44].

    `rows` are the indices of the examples with positive curvature, padded with the number of examples; `root`
    holds the square roots of their curvatures, and `factor` the Cholesky factor of the matrix above for them.
    If the loss is not convex, `correction` accounts for negative curvatures: the variance grows by
    `|correction k|^2`.
    """

    rows: Int[Array, " r"]
    root: Float[Array, " r"]
    factor: Float[Array, "r r"]
    correction: Float[Array, "s n"] | None

    def variances(self, kernel: AbstractKernel, examples: Array, x: Array) -> Array:
        half, added = self._transformed(kernel, examples, x)
        variance = kernel.diagonal(x) - jnp.sum(half**2, axis=0)
        return variance if added is None else variance + jnp.sum(added**2, axis=0)

    def matrix(self, kernel: AbstractKernel, examples: Array, x: Array) -> Array:
        half, added = self._transformed(kernel, examples, x)
        covariance = kernel.matrix(x, x, same=True) - half.T @ half
        return covariance if added is None else covariance + added.T @ added

    def is_positive(self) -> bool:
        if self.correction is None or is_traced(self.correction):
            return True  # of a convex loss, or not known yet
        return bool(np.isfinite(np.asarray(self.correction)).all())

    def _transformed(self, kernel, examples, x):
        """`F^-1 Lambda^(1/2) k`, and `correction k` if there is one, of new points."""
        if self.correction is None:
            cross = kernel.matrix(x, examples.at[self.rows].get(mode="clip"), same=False).T
            return _whitened(self.root, self.factor, cross), None
        cross = kernel.matrix(x, examples, same=False).T
        half = _whitened(self.root, self.factor, cross.at[self.rows].get(mode="clip"))
        return half, self.correction @ cross


class LowRankLaplaceCovariance(AbstractLaplaceCovariance):
    """`phi(x) (I + V' B V)^-1 phi(x)'` plus the covariance outside the span of the features.

    `basis` has the features `phi`, with the rows of V at the examples; `inner` is the inverse above, and
    `B = Lambda / (1 + extra Lambda)` with the extra variances of the kernel matrix `V V' + extra`.
    """

    basis: AbstractBasis
    inner: Float[Array, "p p"]

    def variances(self, kernel: AbstractKernel, examples: Array, x: Array) -> Array:
        features, residual = self.basis.features(kernel, x)
        return residual + jnp.sum((features @ self.inner) * features, axis=1)

    def matrix(self, kernel: AbstractKernel, examples: Array, x: Array) -> Array:
        features, residual = self.basis.joint_features(kernel, x)
        return residual + features @ self.inner @ features.T

    def is_positive(self) -> bool:
        if is_traced(self.inner):
            return True
        return bool((np.linalg.eigvalsh(np.asarray(self.inner)) > 0).all())


def laplace_covariance(
    fit: Fit, curvature: Float[Array, " n"], definite: bool
) -> AbstractLaplaceCovariance:
    """The covariance of the Gaussian around a fit.

    **Arguments:** `fit`; `curvature`, that of the loss of each example; `definite`, whether none is negative.

    **Returns:** an `AbstractLaplaceCovariance`.
    """
    kernel = unfreeze(fit.model.kernel)
    if fit.expansion is not None:
        inner = _low_rank_inner(fit.gram(), curvature, definite)
        return LowRankLaplaceCovariance(fit.expansion.basis, inner)
    rows = _rows(curvature)
    return ExactLaplaceCovariance(rows, *_factorize(kernel, fit.x, curvature, rows, not definite))


@partial(jit, static_argnames="definite")
def _low_rank_inner(gram: AbstractGram, curvature, definite) -> Float[Array, "p p"]:
    response = gram.response(curvature, definite)
    return jnp.eye(response.shape[0], dtype=response.dtype) - response


def _rows(curvature) -> Int[Array, " r"]:
    """The examples of positive curvature; in traced code, all examples."""
    examples = curvature.shape[0]
    if is_traced(curvature):
        return jnp.arange(examples)
    curved = np.flatnonzero(np.asarray(curvature) > 0)
    count = min(-(-max(len(curved), 1) // _BLOCK) * _BLOCK, examples)
    # the number of examples is not a valid row, so it marks padding
    return jnp.asarray(np.pad(curved, (0, count - len(curved)), constant_values=examples))


def _whitened(
    root: Float[Array, " r"], factor: Float[Array, "r r"], covariances: Float[Array, "r m"]
) -> Float[Array, "r m"]:
    """`F^-1 Lambda^(1/2) k`, whose squared norm is the reduction of the variance by the examples."""
    return solve_triangular(factor, root[:, None] * covariances)


@partial(jit, static_argnames="nonconvex")
def _factorize(kernel, x, curvature, rows, nonconvex):
    root = safe_root(curvature.at[rows].get(mode="fill", fill_value=0))
    curved = exact_gram(kernel, x.at[rows].get(mode="clip")).dense()
    eye = jnp.eye(rows.shape[0], dtype=x.dtype)
    factor = cholesky(root[:, None] * curved * root[None, :] + eye)
    if not nonconvex:
        return root, factor, None
    # Covariance after the positive curvatures: S = K - H'H. Negative ones -N change it to
    # (S^-1 - N)^-1 = S + S N^(1/2) (I - N^(1/2) S N^(1/2))^-1 N^(1/2) S.
    gram = exact_gram(kernel, x).dense()
    half = _whitened(root, factor, gram.at[rows].get(mode="clip"))
    negative_root = safe_root(-curvature)
    eye = jnp.eye(x.shape[0], dtype=x.dtype)
    reduced = negative_root[:, None] * (gram - half.T @ half) * negative_root[None, :]
    negative_factor = cholesky(eye - reduced)
    # S k for a new point is k - H' (H k), with the same H of its covariances
    back = solve_triangular(factor, half, transposed=True)
    through = eye.at[:, rows].add(-(root[:, None] * back).T, mode="drop")
    correction = solve_triangular(negative_factor, negative_root[:, None] * through)
    return root, factor, correction

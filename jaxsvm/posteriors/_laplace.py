"""A Gaussian posterior around a fit: Laplace's approximation."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._fit import Fit
from .._machine import KernelMachine
from .._parameters import unfreeze
from .._predictor import Examples
from .._roots import safe_root
from ..linalg import solve_triangular
from ..losses import AbstractLoss
from ..runtime import jit
from ..validation import as_points
from ._gaussian import AbstractGaussianPosterior, LeftOut


class LaplacePosterior(AbstractGaussianPosterior):
    """The latent function as a Gaussian process around a fit: Laplace's approximation.

    `jaxsvm.laplace` and `jaxsvm.gp.laplace` make it. Its mean is the decision function of the fit. With
    `Lambda` the curvatures of the losses and k the covariances of a new point and the examples its variance
    is `k(x, x) - k' Lambda^(1/2) (I + Lambda^(1/2) K Lambda^(1/2))^-1 Lambda^(1/2) k`:
    [CKO04, eqs. 43-44].

    `fit` is the fit, `curvature` the diagonal of Lambda. `rows`, `root` and `factor` are the examples that
    have a positive curvature, its square roots, and the Cholesky factor of the matrix above. Where a
    loss is not convex `correction` holds what negative curvatures add: the variance grows by
    `|correction k|^2`.

    `jaxsvm.gp.laplace` adds `log_evidence`, minus the criterion `jaxsvm.gp.Laplace`, and `left_out`, what
    is predicted of each example from the others; without it they are None.
    """

    fit: Fit
    curvature: Float[Array, " n"]
    rows: Int[Array, " r"]
    root: Float[Array, " r"]
    factor: Float[Array, "r r"]
    correction: Float[Array, "s n"] | None
    log_evidence: Float[Array, ""] | None = None
    left_out: LeftOut | None = None

    @property
    def loss(self) -> AbstractLoss:
        """The loss of the machine."""
        return self.fit.model.loss

    @property
    def examples(self) -> Examples:
        """The data of the fit."""
        return self.fit.examples

    @property
    def model(self) -> KernelMachine:
        """The machine that was fitted."""
        return self.fit.model

    @property
    def x(self) -> Float[Array, "n d"]:
        """The inputs of the examples."""
        return self.fit.x

    @property
    def y(self) -> Float[Array, " n"]:
        """The labels or targets of the examples."""
        return self.fit.y

    @property
    def weights(self) -> Float[Array, " n"]:
        """The weights of the examples."""
        return self.fit.weights

    @property
    def mean(self) -> Float[Array, " n"]:
        """The latent values of the examples at the mode."""
        return self.fit.latent

    @property
    def result(self) -> Int[Array, ""]:
        """How the mode was found: a code of `jaxsvm.RESULTS`."""
        return self.fit.result

    @property
    def message(self) -> str:
        """What `result` means; for a batch, the meaning of its worst member."""
        return self.fit.message

    def decision(self, x: Any) -> Float[Array, " m"]:
        """The posterior mean of the latent function at new points: that of the fit.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one value for each point.
        """
        return self.fit.decision(as_points(x, self.x).astype(self.x.dtype))

    def deviation(self, x: Any) -> Float[Array, " m"]:
        """The standard deviation of the latent function at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one standard deviation for each point.
        """
        return _deviation(*self._parts(x))

    def covariance(self, x: Any) -> Float[Array, "m m"]:
        """The covariance of the latent function between new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** a symmetric matrix.
        """
        return _covariance(*self._parts(x))

    def _parts(self, x):
        points = as_points(x, self.x).astype(self.x.dtype)
        known = (self.rows, self.root, self.factor, self.correction)
        return unfreeze(self.model.kernel), self.x, points, *known


def whitened(
    root: Float[Array, " r"], factor: Float[Array, "r r"], covariances: Float[Array, "r m"]
) -> Float[Array, "r m"]:
    """`F^-1 Lambda^(1/2) k`, whose square is what the examples take from the variance."""
    return solve_triangular(factor, root[:, None] * covariances)


def _crossed(kernel, known, x, rows, root, factor, correction):
    """`F^-1 Lambda^(1/2) k`, and `correction k` if there is one, of new points."""
    if correction is None:
        some = kernel.matrix(x, known.at[rows].get(mode="clip"), same=False).T
        return whitened(root, factor, some), None
    everything = kernel.matrix(x, known, same=False).T
    some = everything.at[rows].get(mode="clip")
    return whitened(root, factor, some), correction @ everything


@jit
def _deviation(kernel, known, x, *parts) -> Float[Array, " m"]:
    half, added = _crossed(kernel, known, x, *parts)
    variance = kernel.diagonal(x) - jnp.sum(half**2, axis=0)
    return safe_root(variance if added is None else variance + jnp.sum(added**2, axis=0))


@jit
def _covariance(kernel, known, x, *parts) -> Float[Array, "m m"]:
    half, added = _crossed(kernel, known, x, *parts)
    covariance = kernel.matrix(x, x, same=True) - half.T @ half
    return covariance if added is None else covariance + added.T @ added

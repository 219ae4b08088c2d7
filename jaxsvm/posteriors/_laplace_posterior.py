"""A Gaussian posterior around a fit: Laplace's approximation."""

from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._fit import Fit
from .._machine import KernelMachine
from .._parameters import unfreeze
from .._predictor import Examples
from .._results import FitError, raise_on_failure
from .._roots import safe_root
from ..criteria import LaplaceEvidence
from ..gram import exact_gram
from ..linalg import cholesky, solve_triangular
from ..losses import AbstractLoss
from ..runtime import is_traced, jit
from ..validation import as_points
from ._abstract import AbstractGaussianPosterior, LeaveOneOutPredictions

_BLOCK = 32  # the number of rows is rounded up to a multiple of it, so that few shapes are compiled


class LaplacePosterior(AbstractGaussianPosterior):
    """The latent function as a Gaussian process around a fit: Laplace's approximation.

    `jaxsvm.laplace` and `jaxsvm.gp.laplace` make it. Its mean is the decision function of the fit. With
    `Lambda` the curvatures of the losses and k the covariances of a new point and the examples, its variance
    is `k(x, x) - k' Lambda^(1/2) (I + Lambda^(1/2) K Lambda^(1/2))^-1 Lambda^(1/2) k`:
    [CKO04, eqs. 43-44].

    `fit` is the fit, `curvature` the diagonal of Lambda. `rows` are the indices of the examples with positive
    curvature, padded with the number of examples; `root` holds the square roots of their curvatures, and
    `factor` the Cholesky factor of the matrix above for them. If the loss is not convex, `correction`
    accounts for negative curvatures: the variance grows by `|correction k|^2`.

    `jaxsvm.gp.laplace` adds `log_evidence`, minus the criterion `jaxsvm.gp.Laplace`, and `left_out`, the
    prediction of each example from the others; otherwise they are None.
    """

    fit: Fit
    curvature: Float[Array, " n"]
    rows: Int[Array, " r"]
    root: Float[Array, " r"]
    factor: Float[Array, "r r"]
    correction: Float[Array, "s n"] | None
    log_evidence: Float[Array, ""] | None = None
    left_out: LeaveOneOutPredictions | None = None

    @property
    def loss(self) -> AbstractLoss:
        return self.fit.loss

    @property
    def examples(self) -> Examples:
        return self.fit.examples

    @property
    def model(self) -> KernelMachine:
        """The machine of the fit."""
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
        """What `result` means; for a batch, the message of its worst member."""
        return self.fit.message

    def decision(self, x: Any) -> Array:
        return self.fit.decision(as_points(x, self.x).astype(self.x.dtype))

    def deviation(self, x: Any) -> Array:
        return _deviation(*self._covariance_arguments(x))

    def covariance(self, x: Any) -> Array:
        return _covariance(*self._covariance_arguments(x))

    def _covariance_arguments(self, x):
        points = as_points(x, self.x).astype(self.x.dtype)
        factors = (self.rows, self.root, self.factor, self.correction)
        return unfreeze(self.model.kernel), self.x, points, *factors


def _whitened(
    root: Float[Array, " r"], factor: Float[Array, "r r"], covariances: Float[Array, "r m"]
) -> Float[Array, "r m"]:
    """`F^-1 Lambda^(1/2) k`, whose squared norm is the reduction of the variance by the examples."""
    return solve_triangular(factor, root[:, None] * covariances)


def _transformed(kernel, examples, x, rows, root, factor, correction):
    """`F^-1 Lambda^(1/2) k`, and `correction k` if there is one, of new points."""
    if correction is None:
        cross = kernel.matrix(x, examples.at[rows].get(mode="clip"), same=False).T
        return _whitened(root, factor, cross), None
    cross = kernel.matrix(x, examples, same=False).T
    return _whitened(root, factor, cross.at[rows].get(mode="clip")), correction @ cross


@jit
def _deviation(kernel, examples, x, *factors) -> Float[Array, " m"]:
    half, added = _transformed(kernel, examples, x, *factors)
    variance = kernel.diagonal(x) - jnp.sum(half**2, axis=0)
    return safe_root(variance if added is None else variance + jnp.sum(added**2, axis=0))


@jit
def _covariance(kernel, examples, x, *factors) -> Float[Array, "m m"]:
    half, added = _transformed(kernel, examples, x, *factors)
    covariance = kernel.matrix(x, x, same=True) - half.T @ half
    return covariance if added is None else covariance + added.T @ added


def require_maximum(posterior: LaplacePosterior) -> LaplacePosterior:
    """Return the posterior, or raise if its fit failed or is not a maximum.

    **Arguments:** `posterior`, around a fit.

    **Returns:** the same posterior.
    """
    curvature = raise_on_failure(posterior.curvature, posterior.result)
    correction = posterior.correction
    if correction is None or is_traced(correction):
        is_maximum = True  # of a convex loss, or not known yet
    else:
        is_maximum = np.isfinite(np.asarray(correction)).all()
    if not is_maximum:
        raise FitError(
            "the curvature of the posterior is not positive at this fit, so the fit is not a maximum and "
            "there is no Gaussian around it. Fit from another `init=`"
        )
    return eqx.tree_at(lambda tree: tree.curvature, posterior, curvature)


def around(fit: Fit, evidence: LaplaceEvidence) -> LaplacePosterior:
    """The Gaussian posterior around a fit, without checks of the fit.

    **Arguments:** `fit`; `evidence`, whose curvatures to use.

    **Returns:** a `LaplacePosterior`.
    """
    curvature = evidence.curvature(fit)
    rows = _rows(curvature)
    nonconvex = not fit.model.loss.is_convex or evidence.hinge_steepness is not None
    kernel = unfreeze(fit.model.kernel)
    root, factor, correction = _factorize(kernel, fit.x, curvature, rows, nonconvex)
    return LaplacePosterior(fit, curvature, rows, root, factor, correction)


def _rows(curvature) -> Int[Array, " r"]:
    """The examples of positive curvature; in traced code, all examples."""
    examples = curvature.shape[0]
    if is_traced(curvature):
        return jnp.arange(examples)
    curved = np.flatnonzero(np.asarray(curvature) > 0)
    count = min(-(-max(len(curved), 1) // _BLOCK) * _BLOCK, examples)
    # the number of examples is not a valid row, so it marks padding
    return jnp.asarray(np.pad(curved, (0, count - len(curved)), constant_values=examples))


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

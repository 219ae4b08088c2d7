"""A Gaussian posterior around a fit: Laplace's approximation."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int

from .._fit import Fit
from .._machine import KernelMachine
from .._predictor import Examples
from ..criteria import LaplaceEvidence
from ..hyperparameters import unfreeze
from ..losses import AbstractLoss
from ..numerics import safe_root
from ..results import FitError, raise_on_failure
from ..runtime import filter_jit, jit
from ..validation import as_points
from ._abstract import AbstractGaussianPosterior, LeaveOneOutPredictions
from ._laplace_covariance import AbstractLaplaceCovariance, laplace_covariance


class LaplacePosterior(AbstractGaussianPosterior):
    """The latent function as a Gaussian process around a fit: Laplace's approximation.

    `jaxsvm.laplace` and `jaxsvm.gp.laplace` make it. Its mean is the decision function of the fit. With
    `Lambda` the curvatures of the losses and k the covariances of a new point and the examples, its variance
    is `k(x, x) - k' Lambda^(1/2) (I + Lambda^(1/2) K Lambda^(1/2))^-1 Lambda^(1/2) k`:
    [CKO04, eqs. 43-44]. At a low rank it is that of the features, plus the variance that they lack.

    `fit` is the fit, `curvature` the diagonal of Lambda, `posterior_covariance` has the variances.

    `jaxsvm.gp.laplace` adds `log_evidence`, minus the criterion `jaxsvm.gp.Laplace`, and `left_out`, the
    prediction of each example from the others; otherwise they are None.
    """

    fit: Fit
    curvature: Float[Array, " n"]
    posterior_covariance: AbstractLaplaceCovariance
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
        return unfreeze(self.model.kernel), self.x, points, self.posterior_covariance


@jit
def _deviation(kernel, examples, x, covariance) -> Float[Array, " m"]:
    return safe_root(covariance.variances(kernel, examples, x))


@jit
def _covariance(kernel, examples, x, covariance) -> Float[Array, "m m"]:
    return covariance.matrix(kernel, examples, x)


def require_maximum(posterior: LaplacePosterior) -> LaplacePosterior:
    """Return the posterior, or raise if its fit failed or is not a maximum.

    **Arguments:** `posterior`, around a fit.

    **Returns:** the same posterior.
    """
    curvature = raise_on_failure(posterior.curvature, posterior.result)
    if not posterior.posterior_covariance.is_positive():
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
    curvature = _curvature(evidence, fit)
    definite = fit.model.loss.is_convex and evidence.hinge_steepness is None
    return LaplacePosterior(fit, curvature, laplace_covariance(fit, curvature, definite))


@filter_jit
def _curvature(evidence: LaplaceEvidence, fit: Fit) -> Float[Array, " n"]:
    return evidence.curvature(fit)

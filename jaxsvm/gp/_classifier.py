"""The Gaussian posterior of a classifier, by mean field theory or expectation propagation."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._fit import decide, decide_by, warn_of_lost_variance
from .._machine import KernelMachine
from .._predictor import AbstractSolution
from ..approximations import Expansion, Representation
from ..gram import AbstractGram
from ..hyperparameters import unfreeze
from ..losses import AbstractLoss, FlipNoise, Logistic, Probit
from ..numerics import safe_root
from ..posteriors import AbstractGaussianPosterior, LeaveOneOutPredictions, averaged
from ..results import raise_on_failure
from ..runtime import jit
from ..validation import as_points
from ._sites import Sites


class ClassifierPosterior(AbstractGaussianPosterior, AbstractSolution):
    """The latent function as a Gaussian process, in which a Gaussian measurement replaces each example.

    `jaxsvm.gp.mean_field` and `jaxsvm.gp.expectation_propagation` make it. With k the covariances of a new
    point and the examples, its mean is `dual' k` and its variance `k(x, x) - k' response k`: predictions
    need nothing but `dual` and `response`. `mean` and `variance` are those at the examples, and `left_out`
    holds the prediction of each example from the others.

    `result` is a code of `jaxsvm.RESULTS`; `iterations` and `residual` describe how the fixed point was
    reached. `model`, `x`, `y` and `weights` are the machine and its data. All other fields are
    differentiable functions of them.

    Mean field theory gives `dual = weights y alpha`. Its variances and leave-one-out predictions are its
    linear response, `Cov(f) = K - K (K + Omega)^-1 K`, from which [OW00, eq. 8.41] follows. With input noise
    in the likelihood, `mean` is that of f alone; the paper's `<f_i>`, of the noisy process, is
    `mean + noise_variance dual`.

    At a low rank, `expansion` holds the features of the mean function and their coefficients, otherwise it is
    None. Then `response` is in the coordinates of the features: the variance is `k(x, x) - phi(x)' response
    phi(x)`. `lost_variance` is the share of the prior's variance that the low rank loses.

    Expectation propagation adds `sites`, the Gaussians that replace the likelihoods, and `log_evidence`,
    `ln Z_EP`; mean field theory leaves both None. Its leave-one-out predictions are the cavities.
    """

    model: KernelMachine
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    dual: Float[Array, " n"]
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    response: Float[Array, "k k"]
    left_out: LeaveOneOutPredictions
    result: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    sites: Sites | None = None
    log_evidence: Float[Array, ""] | None = None
    expansion: Expansion | None = None
    lost_variance: Float[Array, ""] | float = 0.0

    @property
    def alpha(self) -> Float[Array, " n"]:
        """The embedding strengths `y dual / weights` of the examples, [OW00, eq. 8.40]."""
        return self.y * self.dual / jnp.where(self.weights > 0, self.weights, 1.0)

    def decision(self, x: Any) -> Array:
        points = as_points(x, self.x).astype(self.x.dtype)
        zero, kernel = jnp.zeros((), self.x.dtype), unfreeze(self.model.kernel)
        if self.expansion is not None:
            return decide_by(self.expansion, kernel, zero, points)
        return decide(kernel, self.x, self.dual, zero, points)

    def deviation(self, x: Any) -> Array:
        return _deviation(*self._covariance_arguments(x))

    def covariance(self, x: Any) -> Array:
        return _covariance(*self._covariance_arguments(x))

    def _covariance_arguments(self, x):
        points = as_points(x, self.x).astype(self.x.dtype)
        basis = None if self.expansion is None else self.expansion.basis
        return unfreeze(self.model.kernel), self.x, basis, points, self.response


@jit
def _deviation(kernel, examples, basis, x, response) -> Float[Array, " m"]:
    rows = _features(kernel, examples, basis, x)
    return safe_root(kernel.diagonal(x) - jnp.sum((rows @ response) * rows, axis=1))


@jit
def _covariance(kernel, examples, basis, x, response) -> Float[Array, "m m"]:
    rows = _features(kernel, examples, basis, x)
    return kernel.matrix(x, x, same=True) - rows @ response @ rows.T


def _features(kernel, examples, basis, x) -> Float[Array, "m k"]:
    """The features of new points: their covariances with the examples, or those of a low rank."""
    if basis is None:
        return kernel.matrix(x, examples, same=False)
    return basis.features(kernel, x)[0]


def conclude(
    posterior: ClassifierPosterior,
    model: KernelMachine,
    representation: Representation,
    throw: bool,
) -> ClassifierPosterior:
    """The posterior of the user's model, after a warning if its kernel matrix loses too much.

    With `throw`, an error if the iteration did not reach the fixed point.
    """
    if posterior.expansion is not None:
        warn_of_lost_variance(representation, posterior.lost_variance)
    posterior = dataclasses.replace(posterior, model=model)
    if not throw:
        return posterior

    def details():
        return (
            f" (residual {float(posterior.residual):.1e} after {int(posterior.iterations)} iterations; "
            "`throw=False` returns the posterior anyway)"
        )

    dual = raise_on_failure(posterior.dual, posterior.result, details)
    return eqx.tree_at(lambda tree: tree.dual, posterior, dual)


def leave_out_by_response(
    gram: AbstractGram,
    loss: AbstractLoss,
    y: Float[Array, " n"],
    latent: Float[Array, " n"],
    dual: Float[Array, " n"],
    precision: Float[Array, " n"],
    marginal: Float[Array, " n"] | None,
) -> LeaveOneOutPredictions:
    """Predict each example from the others, by `f_i - S_i dual_i` and `cavity_variances` S: [OW00, eq. 8.41].

    **Arguments:** `gram`, the kernel matrix; `loss`; `y`, labels; `latent` and `dual`, the solution;
    `precision` and `marginal`, as for `cavity_variances`.

    **Returns:** `LeaveOneOutPredictions`, differentiable.
    """
    variance = cavity_variances(gram, precision, loss.is_convex, marginal)
    mean = latent - variance * dual
    # if the loss is not convex, removing an example that looks flipped may give a negative variance
    average = averaged(loss, y, mean, jnp.maximum(variance, 0))
    return LeaveOneOutPredictions(mean, variance, average.log_value)


def cavity_variances(
    gram: AbstractGram,
    precision: Float[Array, " n"],
    definite: bool,
    marginal: Float[Array, " n"] | None = None,
) -> Float[Array, " n"]:
    """The variance of each latent value when the Gaussian that replaces its example is removed.

    `S_i = 1 / [(K + Omega)^-1]_ii - Omega_i` with `Omega = 1 / precision`: [OW00, eq. 8.41]. As a precision
    tends to zero, S loses its digits unless it is computed from the variance with that Gaussian. (In eq.
    8.41, S is multiplied by an alpha that vanishes too.)

    **Arguments:** `gram`, the kernel matrix; `precision`, that of each Gaussian; `definite`, whether no
    precision is negative; `marginal`, the variances with all Gaussians, if known.

    **Returns:** one variance for each example, differentiable.
    """
    least = 4 * float(jnp.finfo(gram.dtype).eps) if marginal is None else 1e-3
    strong = jnp.abs(precision) * gram.diagonal() > least
    divisor = jnp.where(strong, precision, 1.0)
    # share = 1 / (1 + precision S), the diagonal of (I + precision K)^-1
    if definite:
        share = gram.inverse_diagonal(safe_root(precision), jnp.ones_like(precision))
    else:
        share = jnp.where(strong, gram.response_diagonal(precision, False) / divisor, 1.0)
    variance = (1 / share - 1) / divisor
    weak = gram.diagonal() if marginal is None else marginal / (1 - marginal * precision)
    return jnp.where(strong, variance, weak)


def check_classifier(model: KernelMachine, method: str, flips: bool) -> None:
    """Raise unless the model is a Gaussian process classifier that a method can treat.

    **Arguments:** `model`; `method`, its name in the error; `flips`, whether it can treat `FlipNoise`.

    **Returns:** nothing.
    """
    likelihoods = (Probit, FlipNoise, Logistic) if flips else (Probit, Logistic)
    if not isinstance(model.loss, likelihoods):
        names = ", ".join(f"losses.{kind.__name__}" for kind in likelihoods)
        hint = "" if flips else "; for flipped labels use `gp.mean_field`"
        raise ValueError(
            f"{method} needs one of the likelihoods {names}, but the model has the loss "
            f"{type(model.loss).__name__}{hint}"
        )
    if model.offset:
        raise ValueError(
            "a Gaussian process has no free, unpenalized offset: use `offset=False` and add a `Constant` "
            "kernel, whose variance is that of the offset"
        )

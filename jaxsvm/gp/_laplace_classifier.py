"""Laplace's approximation for Gaussian process classification."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._fit import Fit, as_data, fit
from .._machine import KernelMachine
from ..criteria import AbstractFitCriterion, LaplaceEvidence, Traits, evaluation
from ..gram import AbstractGram
from ..hyperparameters import unfreeze
from ..posteriors import (
    LaplacePosterior,
    LeaveOneOutPredictions,
    around,
    require_maximum,
)
from ..runtime import jit
from ._classifier import check_classifier, leave_out_by_response

_EVIDENCE = LaplaceEvidence()


class Laplace(AbstractFitCriterion):
    """Minus the logarithm of the evidence of a Gaussian process classifier, by Laplace's approximation.

    `-ln Z = sum_i L(y_i, f_i) + 1/2 f' K^-1 f + 1/2 ln det(I + W K)` at the posterior mode f, with W the
    second derivatives of L: Rasmussen and Williams, "Gaussian Processes for Machine Learning", eq. 3.32.
    It is `criteria.LaplaceEvidence`, restricted to the likelihoods of Gaussian process classification: the
    losses `Probit`, `FlipNoise` and `Logistic`. Freeze `loss.C` of `Logistic` at one, or it is selected too.

    **Arguments:** none.
    """

    @property
    def traits(self) -> Traits:
        return Traits(scale="total")

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        check_laplace(model)

    def of_fit(self, gram: AbstractGram, fit: Fit) -> Array:
        return _EVIDENCE.of_fit(gram, fit)


def laplace(
    model: KernelMachine, x: Any, y: Any, *, throw: bool = True, **options: Any
) -> LaplacePosterior:
    """Approximate the posterior of a Gaussian process classifier by a Gaussian around its mode.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning", sec. 3.4. This is
    `jaxsvm.laplace(jaxsvm.fit(model, x, y))`, which also works for other losses, plus the logarithm of the
    evidence and the prediction of each example from the others, by one Newton step from the mode.
    `jaxsvm.gp.LaplaceLeaveOneOut` scores these predictions.

    **Arguments:**

    - `model`: a kernel machine with the loss `Probit`, `FlipNoise` or `Logistic`.
    - `x`, `y`: inputs, one row for each example, and labels -1/+1.
    - `throw`: whether to raise if the mode is not found or is not a maximum; with `throw=False`, look at
      `result`.
    - `options`: as for `jaxsvm.fit`: `weights`, `init`, `approximation`, `tolerance`,
      `max_iterations`.

    **Returns:** a `LaplacePosterior` with `log_evidence` and `left_out`, differentiable under jit, grad and
    vmap.

    **Example:**

    >>> classifier = jsvm.KernelMachine(kernel, jsvm.losses.Probit(noise_variance=0.1))
    >>> process = jsvm.gp.laplace(classifier, x, y)
    >>> mean, deviation = process.latent(x)
    >>> bool(jnp.all(deviation > 0)), bool(process.log_evidence < 0)
    (True, True)
    """
    x, y, _ = as_data(model, x, y, None)
    check_laplace(model)
    fitted = fit(model, x, y, throw=throw, **options)
    quality = _quality(dataclasses.replace(fitted, model=unfreeze(model)))
    posterior = around(dataclasses.replace(fitted, result=quality.result), _EVIDENCE)
    posterior = dataclasses.replace(
        posterior, log_evidence=quality.log_evidence, left_out=quality.left_out
    )
    return require_maximum(posterior) if throw else posterior


def check_laplace(model: KernelMachine) -> None:
    """Raise unless the model is a Gaussian process classifier."""
    check_classifier(model, "Laplace's approximation", flips=True)


def leave_out_of_fit(
    gram: AbstractGram, fit: Fit, marginal: Float[Array, " n"] | None = None
) -> LeaveOneOutPredictions:
    """Predict each example from the Gaussian around the mode, without the example's own contribution.

    There an example acts as a Gaussian of precision `L''(f_i)`. Removing it gives the variance
    `S_i = 1 / [(K + 1/L'')^-1]_ii - 1/L''_i` and the mean `f_i - S_i dual_i`: one Newton step towards the fit
    without it, as in [OW00, eq. 8.41].

    **Arguments:** `gram`, the kernel matrix; `fit`, the mode; `marginal`, the variances of the latent values,
    if known; without them the predictions of examples with almost no influence are inexact.

    **Returns:** `LeaveOneOutPredictions`, differentiable.
    """
    precision = _EVIDENCE.curvature(fit)
    return leave_out_by_response(
        gram, fit.model.loss, fit.y, fit.latent, fit.dual, precision, marginal
    )


class _Quality(NamedTuple):
    log_evidence: Float[Array, ""]
    left_out: LeaveOneOutPredictions
    result: Int[Array, ""]


@jit
def _quality(fit: Fit) -> _Quality:
    gram = fit.gram()
    curvature, definite = _EVIDENCE.curvature(fit), fit.model.loss.is_convex
    _, variance = gram.posterior_marginals(jnp.zeros_like(fit.y), curvature, definite)
    score, result, _ = evaluation(_EVIDENCE.of_fit(gram, fit), fit.result, None)
    return _Quality(-score, leave_out_of_fit(gram, fit, variance), result)

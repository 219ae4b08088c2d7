"""Laplace's approximation in Gaussian process classification: that of the library, under one roof."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._fit import Fit, as_data, fit
from .._machine import KernelMachine
from .._parameters import unfreeze
from ..criteria import AbstractFitCriterion, LaplaceEvidence, evaluation
from ..gram import DenseGram
from ..linalg import cavity_variances, response
from ..posteriors import LaplacePosterior, LeftOut, around, averaged, require_maximum
from ..runtime import jit
from ._checks import check_likelihood, check_offset
from ._posterior import variances

_EVIDENCE = LaplaceEvidence()


class Laplace(AbstractFitCriterion):
    """Minus the logarithm of the evidence by Laplace's approximation, of a Gaussian process classifier.

    `-ln Z = sum_i L(y_i, f_i) + 1/2 f' K^-1 f + 1/2 ln det(I + W K)` at the posterior mode f, with W the
    second derivatives of L: Rasmussen and Williams, "Gaussian Processes for Machine Learning", eq. 3.32.
    It is `criteria.LaplaceEvidence`, for the likelihoods of Gaussian process classification only: the
    losses `Probit`, `FlipNoise` and `Logistic`. Freeze `loss.C` of the last at one, or it is selected too.

    **Arguments:** none.
    """

    def check(self, model, x, y):
        """A likelihood of labels, and a proper prior."""
        check_laplace(model)

    def score(self, gram, fit):
        """Minus the log evidence."""
        return _EVIDENCE.score(gram, fit)


def laplace(
    model: KernelMachine, x: Any, y: Any, *, throw: bool = True, **options: Any
) -> LaplacePosterior:
    """Approximate the posterior of a Gaussian process classifier by a Gaussian around its mode.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning", sec. 3.4. It is
    `jaxsvm.laplace(jaxsvm.fit(model, x, y))`, which also serves other losses, with two things more: the
    logarithm of the evidence, and what is predicted of each example from the others, by one Newton step
    from the mode: the predictions that `jaxsvm.gp.LaplaceLeftOut` scores.

    **Arguments:**

    - `model`: a kernel machine with the loss `Probit`, `FlipNoise` or `Logistic`.
    - `x`, `y`: inputs, one row for each example, and labels -1/+1.
    - `throw`: whether to raise where the mode is not found, or is no maximum; with `throw=False` look at
      `result`.
    - `options`: as for `jaxsvm.fit`: `weights`, `init`, `tolerance`, `max_iterations`.

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


class _Quality(NamedTuple):
    log_evidence: Float[Array, ""]
    left_out: LeftOut
    result: Int[Array, ""]


def left_out_of_fit(
    gram: Float[Array, "n n"], fit: Fit, marginal: Float[Array, " n"] | None = None
) -> LeftOut:
    """What the Gaussian around the mode predicts of each example when its own part is taken away.

    An example is a Gaussian of precision `L''(f_i)` there, whose removal gives the variance
    `S_i = 1 / [(K + 1/L'')^-1]_ii - 1/L''_i` and the mean `f_i - S_i dual_i`: one Newton step towards the fit
    without it, as in [OW00, eq. 8.41].

    **Arguments:** `gram`, the covariances; `fit`, the mode; `marginal`, the variances of the latent values
    if they are known, without which those of examples that hardly count are not exact.

    **Returns:** a `LeftOut`, differentiable.
    """
    loss = fit.model.loss
    variance = cavity_variances(gram, _EVIDENCE.curvature(fit), loss.is_convex, marginal)
    mean = fit.latent - variance * fit.dual
    # without convexity an example that looks like a flip may leave no variance
    average = averaged(loss, fit.y, mean, jnp.maximum(variance, 0))
    return LeftOut(mean, variance, average.log_value)


@jit
def _quality(fit: Fit) -> _Quality:
    gram = fit.model.kernel.matrix(fit.x, fit.x, same=True)
    matrix = response(gram, _EVIDENCE.curvature(fit), fit.model.loss.is_convex)
    left_out = left_out_of_fit(gram, fit, variances(gram, matrix))
    score, result, _ = evaluation(_EVIDENCE.score(DenseGram(gram), fit), fit.result, None)
    return _Quality(-score, left_out, result)


def check_laplace(model: KernelMachine) -> None:
    """Raise unless the model is one of Gaussian process classification."""
    check_likelihood(model.loss, "Laplace's approximation", flips=True)
    check_offset(model)

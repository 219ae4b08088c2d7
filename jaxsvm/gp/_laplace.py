"""Laplace's approximation in Gaussian process classification: that of the library, under one roof."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..criteria import LaplaceEvidence
from ..criteria._base import AbstractFitCriterion
from ..fit import Fit, as_data, fit
from ..machine import KernelMachine
from ..sampling import LaplacePosterior
from ..sampling import laplace as laplace_of_fit
from ._averages import averaged, check_likelihood
from ._posterior import LeftOut, check_offset
from ._response import without_own

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


def laplace(model: KernelMachine, x: Any, y: Any, **options: Any) -> LaplacePosterior:
    """Approximate the posterior of a Gaussian process classifier by a Gaussian around its mode.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning", sec. 3.4: short for
    `jaxsvm.laplace(jaxsvm.fit(model, x, y))`.

    **Arguments:**

    - `model`: a kernel machine with the loss `Probit`, `FlipNoise` or `Logistic`.
    - `x`, `y`: inputs, one row for each example, and labels -1/+1.
    - `options`: as for `jaxsvm.fit`, which raises where the mode is not found.

    **Returns:** a `LaplacePosterior`, with `probability`, `predict` and `latent` of new points.

    **Example:**

    >>> classifier = jsvm.KernelMachine(kernel, jsvm.losses.Probit(noise_variance=0.1))
    >>> mean, deviation = jsvm.gp.laplace(classifier, x, y).latent(x)
    >>> bool(jnp.all(deviation > 0))
    True
    """
    x, y, _ = as_data(model, x, y, None)
    check_laplace(model)
    return laplace_of_fit(fit(model, x, y, **options))


def left_out_of_fit(gram: Float[Array, "n n"], fit: Fit) -> LeftOut:
    """What the Gaussian around the mode predicts of each example when its own part is taken away.

    An example is a Gaussian of precision `L''(f_i)` there, whose removal gives the variance
    `S_i = 1 / [(K + 1/L'')^-1]_ii - 1/L''_i` and the mean `f_i - S_i dual_i`: one Newton step towards the fit
    without it, as in Opper and Winther, "Gaussian processes and SVM: mean field results and
    leave-one-out", eq. 8.41.

    **Arguments:** `gram`, the covariances; `fit`, the mode.

    **Returns:** a `LeftOut`, differentiable.
    """
    loss = fit.model.loss
    precision = fit.weights * loss.curvature(fit.y, fit.latent)
    variance = without_own(gram, precision, loss.is_convex)
    mean = fit.latent - variance * fit.dual
    # without convexity an example that looks like a flip may leave no variance
    average = averaged(loss, fit.y, mean, jnp.maximum(variance, 0))
    return LeftOut(mean, variance, average.log_value)


def check_laplace(model: KernelMachine) -> None:
    """Raise unless the model is one of Gaussian process classification."""
    check_likelihood(model.loss, "Laplace's approximation", flips=True)
    check_offset(model)

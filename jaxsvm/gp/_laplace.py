"""Laplace's approximation in Gaussian process classification: that of the library, under one roof."""

from typing import Any

from ..criteria import LaplaceEvidence
from ..criteria._base import AbstractFitCriterion
from ..fit import as_data, fit
from ..machine import KernelMachine
from ..sampling import LaplacePosterior
from ..sampling import laplace as laplace_of_fit
from ._averages import check_likelihood
from ._posterior import check_offset

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
        _check(model)

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
    """
    x, y, _ = as_data(model, x, y, None)
    _check(model)
    return laplace_of_fit(fit(model, x, y, **options))


def _check(model: KernelMachine) -> None:
    check_likelihood(model.loss, "Laplace's approximation", flips=True)
    check_offset(model)

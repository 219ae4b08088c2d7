"""Named methods of model selection: each combines a loss, a criterion and the treatment of the offset."""

from collections.abc import Callable
from typing import NamedTuple

from .._machine import KernelMachine
from ..criteria import (
    GACV,
    PRESS,
    AbstractCriterion,
    CrossValidation,
    LaplaceEvidence,
    LinearResponse,
    RadiusMargin,
    Regularized,
    Span,
)
from ..kernels import AbstractKernel
from ..losses import AbstractLoss, Hinge, LeastSquares, SquaredHinge
from ..priors import GaussianPenalty, relevance


class Method(NamedTuple):
    """How a classifier is tuned.

    `loss` takes the penalty C and returns the loss; `criterion` takes the name of the lengthscales and
    returns the criterion to minimize; with `offset` the machine has a free offset, otherwise a `Constant`
    kernel; `description` is a short text for users.
    """

    loss: Callable[[float], AbstractLoss]
    criterion: Callable[[str], AbstractCriterion]
    offset: bool
    description: str

    def machine(self, kernel: AbstractKernel) -> KernelMachine:
        """A machine with this kernel, an offset, and the penalty C = 1.

        **Arguments:** `kernel`, without an offset.

        **Returns:** a `KernelMachine`.
        """
        return KernelMachine(kernel if self.offset else kernel + 0.1, self.loss(1.0), self.offset)


def _with_prior(lengthscale: str) -> AbstractCriterion:
    return Regularized(PRESS(), GaussianPenalty(), lengthscale, relevance)


METHODS = {
    "laplace": Method(Hinge, lambda _: LaplaceEvidence(), False,
                      "the Laplace approximation of the evidence (hinge)"),
    "laplace2": Method(SquaredHinge, lambda _: LaplaceEvidence(), False,
                       "the Laplace approximation of the evidence (squared hinge)"),
    "gacv": Method(Hinge, lambda _: GACV(), False,
                   "generalized approximate cross-validation (hinge)"),
    "span": Method(SquaredHinge, lambda _: Span(), False,
                   "the smoothed span estimate of the leave-one-out error (squared hinge)"),
    "radius": Method(SquaredHinge, lambda _: RadiusMargin(), False,
                     "the radius-margin bound (squared hinge)"),
    "response": Method(Hinge, lambda _: LinearResponse("smooth"), False,
                       "leave-one-out by linear response, smoothed (hinge)"),
    "cv": Method(Hinge, lambda _: CrossValidation(5, "smooth"), False,
                 "five-fold cross-validation, smoothed (hinge)"),
    "press": Method(LeastSquares, lambda _: PRESS(), True,
                    "leave-one-out squared error (least squares)"),
    "press-prior": Method(LeastSquares, _with_prior, True,
                          "leave-one-out squared error with a prior over relevances (least squares)"),
}  # fmt: skip

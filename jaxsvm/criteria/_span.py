"""The span estimate of the leave-one-out error."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fit import Fit
from ..gram import AbstractGram
from ..losses import SquaredHinge, weighted_compliance
from ..validation import check_number
from . import scores
from ._base import AbstractFitCriterion, mean, require_loss
from ._linear_response import linear_response


class Span(AbstractFitCriterion):
    """The span estimate of the leave-one-out error of the squared hinge.

    `1/n sum_i H(alpha_i S_i^2 - 1)` with `alpha = |dual|` and the span `S_i^2 = 1 / [(K_SV + 1/C)^-1]_ii`,
    [GS03, eq. 12]. This is a count of errors, piecewise constant in the hyperparameters. Smoothed, as
    below eq. 12, the step H(z) is `1 / (1 + exp(-c1 z + c2))` and `S_i^2 = 1 / [(K_SV + 1/C + eta /
    alpha)^-1]_ii - eta / alpha_i`: then it is continuous everywhere, and differentiable but for kinks
    where the set of support vectors changes. With a free offset the vectors of the span sum to zero,
    which borders the matrices by a row of ones.

    **Arguments:** `smoothed`, whether to smooth; `c1`, the steepness of the step; `c2`, its shift; `eta`,
    the smoothing of the span, positive (`smoothed=False` leaves it out). The defaults are
    the paper's, sec. 4.1.
    """

    smoothed: bool = eqx.field(static=True)
    c1: float = eqx.field(static=True)
    c2: float = eqx.field(static=True)
    eta: float = eqx.field(static=True)

    def __init__(self, smoothed: bool = True, c1: float = 5.0, c2: float = 0.0, eta: float = 1.0):
        check_number("c1", c1, above=0)
        check_number("c2", c2)
        check_number("eta", eta, above=0)
        self.smoothed = bool(smoothed)
        self.c1, self.c2, self.eta = float(c1), float(c2), float(eta)

    def check(self, model, x, y):
        """The span in this form is that of the squared hinge."""
        hint = "use `LinearResponse`, its counterpart for other losses"
        require_loss(self, model, SquaredHinge, hint)

    def score(self, gram, fit):
        """The mean of the step over all examples."""
        if not self.smoothed:
            # the margin of the example left out is 1 - alpha S^2
            return mean(scores.error(fit.y, linear_response(gram, fit)), fit.weights)
        excess = _smooth_span(gram, fit, self.eta) - 1
        return mean(jax.nn.sigmoid(self.c1 * excess - self.c2), fit.weights)


def _smooth_span(gram: AbstractGram, fit: Fit, eta: float) -> Float[Array, " n"]:
    """`alpha_i S_i^2` with the penalty `eta / alpha`, zero where alpha is.

    With the rows scaled by `alpha^(1/2)` nothing is divided by alpha: `(M + eta / alpha)^-1` is
    `alpha^(1/2) (alpha^(1/2) M alpha^(1/2) + eta)^-1 alpha^(1/2)`.
    """
    loss = fit.model.loss
    assert isinstance(loss, SquaredHinge)
    alpha = jnp.where(fit.support, fit.y * fit.dual, 0.0)
    root = jnp.where(fit.support, jnp.sqrt(jnp.where(fit.support, alpha, 1.0)), 0.0)
    compliance = weighted_compliance(loss, fit.weights, gram.dtype)
    border = root if fit.model.offset else None
    return 1 / gram.inverse_diagonal(root, alpha * compliance + eta, border) - eta

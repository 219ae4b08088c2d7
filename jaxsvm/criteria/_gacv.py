"""Generalized approximate cross-validation."""

import jax.numpy as jnp

from ..losses import Hinge
from . import scores
from ._base import AbstractFitCriterion, mean, require_loss


class GACV(AbstractFitCriterion):
    """Wahba's generalized approximate cross-validation of the hinge, an estimate of the test loss.

    `1/n sum_i [max(1 - z_i, 0) + alpha_i K_ii g(z_i)]` with margins `z = y f`, `alpha = |dual|`, and g equal
    to 2 for `z < -1`, 1 up to `z = 1` and 0 beyond [GS03, eq. 13]. It jumps where a margin crosses -1
    (at +1 there is no jump, since beyond it alpha is zero); elsewhere it is differentiable but for kinks
    where an example changes its group.

    **Arguments:** none.
    """

    def check(self, model, x, y):
        """It estimates the hinge loss of a machine trained with it."""
        hint = "use `Span` for the squared hinge, `LinearResponse` or `CrossValidation` for other losses"
        require_loss(self, model, Hinge, hint)

    def score(self, gram, fit):
        """The training loss and what to add for its bias."""
        # g(z) = 0 for z > 1 is left to alpha = 0: marginal support vectors are at z = 1 but for rounding
        factor = jnp.where(fit.y * fit.latent < -1, 2.0, 1.0)
        bias = jnp.abs(fit.dual) * gram.diagonal() * factor
        return mean(scores.hinge(fit.y, fit.latent) + bias, fit.weights)

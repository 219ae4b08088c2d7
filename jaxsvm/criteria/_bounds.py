"""Bounds on the leave-one-out error, and an estimate of the test loss, that need only the fit."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._fit import Fit
from .._machine import KernelMachine
from ..gram import AbstractGram
from ..losses import Hinge, SquaredHinge
from . import scores
from ._criterion import AbstractFitCriterion, mean, require_loss

_HINT = "use `LinearResponse` or `CrossValidation` for other losses"


class JaakkolaHaussler(AbstractFitCriterion):
    """Jaakkola and Haussler's bound on the leave-one-out error of a support vector machine.

    Leaving out example i lowers its margin by at most `alpha_i K_ii`, `alpha = |dual|`, so
    `1/n sum_i score(y_i, f_i - dual_i K_ii)` is an upper bound of the leave-one-out score
    [GS03, below eq. 10]. The score "error" is piecewise constant; a smooth one is differentiable except for
    kinks where an example changes its group.

    **Arguments:** `score`, "error", "hinge", "smooth" or a function of `(y, f)` that falls with `y f`.
    """

    score: scores.Score = eqx.field(static=True)

    def __init__(self, score: scores.Score = "error"):
        scores.by_name(score)
        self.score = score

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        require_loss(self, model, (Hinge, SquaredHinge), _HINT)
        if model.offset:
            raise ValueError(
                "the bound does not hold for a free, unpenalized offset: use `offset=False` and add a "
                "`Constant` kernel, or use `LinearResponse`"
            )

    def of_fit(self, gram: AbstractGram, fit: Fit) -> Array:
        lowest = fit.latent - fit.dual * gram.diagonal()  # the worst case
        return mean(scores.by_name(self.score)(fit.y, lowest), fit.weights)


class SupportVectorCount(AbstractFitCriterion):
    """The training error plus the fraction of support vectors, the simplest bound on leave-one-out.

    Leaving out a non-support vector changes nothing [GS03, below eq. 10]. The value is a number of examples
    divided by n, so its gradient is zero everywhere: use it with methods that need only values.

    **Arguments:** none.
    """

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        require_loss(self, model, (Hinge, SquaredHinge), _HINT)

    def of_fit(self, gram: AbstractGram, fit: Fit) -> Array:
        support = fit.support.astype(gram.dtype)
        return mean(scores.error(fit.y, fit.latent) + support, fit.weights)


class GACV(AbstractFitCriterion):
    """Wahba's generalized approximate cross-validation of the hinge, an estimate of the test loss.

    `1/n sum_i [max(1 - z_i, 0) + alpha_i K_ii g(z_i)]` with margins `z = y f`, `alpha = |dual|`, and g equal
    to 2 for `z < -1`, 1 up to `z = 1` and 0 beyond [GS03, eq. 13]. It jumps where a margin crosses -1
    (at +1 there is no jump, since beyond it alpha is zero); elsewhere it is differentiable except for kinks
    where an example changes its group.

    **Arguments:** none.
    """

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        hint = "use `Span` for the squared hinge, `LinearResponse` or `CrossValidation` for other losses"
        require_loss(self, model, Hinge, hint)

    def of_fit(self, gram: AbstractGram, fit: Fit) -> Array:
        # for z > 1 alpha = 0 replaces g = 0: rounding may put marginal support vectors above z = 1
        factor = jnp.where(fit.y * fit.latent < -1, 2.0, 1.0)
        bias = jnp.abs(fit.dual) * gram.diagonal() * factor
        return mean(scores.hinge(fit.y, fit.latent) + bias, fit.weights)

"""Bounds on the leave-one-out error that need nothing but the fit."""

from collections.abc import Callable

import equinox as eqx

from ..losses import Hinge, SquaredHinge
from . import scores
from ._base import AbstractFitCriterion, mean, require_loss

_HINT = "use `LinearResponse` or `CrossValidation` for other losses"


class JaakkolaHaussler(AbstractFitCriterion):
    """Jaakkola and Haussler's bound on the leave-one-out error of a support vector machine.

    Leaving out example i lowers its margin by at most `alpha_i K_ii`, `alpha = |dual|`, so
    `1/n sum_i score(y_i, f_i - dual_i K_ii)` is an upper bound of the leave-one-out score
    [GS03, below eq. 10]. The score "error" is piecewise constant; a smooth one is differentiable but for
    kinks where an example changes its group.

    **Arguments:** `score`, "error", "hinge", "smooth" or a function of `(y, f)` that falls with `y f`.
    """

    scoring: str | Callable = eqx.field(static=True)

    def __init__(self, score: str | Callable = "error"):
        scores.by_name(score)
        self.scoring = score

    def check(self, model, x, y):
        """The bound is for margins, and without a free offset."""
        require_loss(self, model, (Hinge, SquaredHinge), _HINT)
        if model.offset:
            raise ValueError(
                "the bound does not hold for a free, unpenalized offset: use `offset=False` and add a "
                "`Constant` kernel, or use `LinearResponse`"
            )

    def score(self, gram, fit):
        """The mean score of the lowest latent values that are possible."""
        lowest = fit.latent - fit.dual * gram.diagonal()
        return mean(scores.by_name(self.scoring)(fit.y, lowest), fit.weights)


class SupportVectorCount(AbstractFitCriterion):
    """The training error plus the fraction of support vectors, the simplest bound on leave-one-out.

    Leaving out a non-support vector changes nothing [GS03, below eq. 10]. A number of examples divided
    by n, so its gradient is zero everywhere: for methods that need values only.

    **Arguments:** none.
    """

    def check(self, model, x, y):
        """Only sparse machines have something to count."""
        require_loss(self, model, (Hinge, SquaredHinge), _HINT)

    def score(self, gram, fit):
        """The mean number of an example's training errors and support vectors."""
        support = fit.support.astype(gram.dtype)
        return mean(scores.error(fit.y, fit.latent) + support, fit.weights)

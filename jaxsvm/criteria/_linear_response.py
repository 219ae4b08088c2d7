"""Leave-one-out by linear response: the sets of examples are taken to stay as they are."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fit import Fit
from ..gram import AbstractGram
from ..losses import AbstractPiecewise
from . import scores
from ._base import AbstractFitCriterion, mean, require_loss


class LinearResponse(AbstractFitCriterion):
    """The leave-one-out score, with latent values `f_i^(-i)` from the fit on all examples.

    When example i leaves, every other example is taken to stay in its group: duals of non-support and
    bound examples do not change, free ones adapt so that their conditions go on to hold. Then
    `f_i^(-i) = f_i - dual_i (S_i^2 - c_i)`, where `S_i^2` is the least `l' (K + c) l` over vectors with
    `l_i = 1` and `l_j = 0` unless j is i or free, and c is the compliance of the free examples: 0 for
    the hinge, `1/C` for the squared hinge. For a free example `S_i^2 = 1 / [(K + c)_free^-1]_ii`, for a
    bound one `S_i^2 = k_ii - k_i' K_free^-1 k_i`; with a free offset the `l` sum to zero.

    [OW00, eqs. 8.26-8.32]; for the squared hinge [GS03, below eq. 11]. For `LeastSquares` and `Quadratic`
    it is exact; otherwise it tends to count an error too many, above all where few examples are free.
    Where none is, as for a small C, a free offset is not determined, and how it turns when an example
    leaves is not seen. The score "error" is piecewise constant, a smooth one is differentiable but for
    jumps where an example changes its group.

    **Arguments:** `score`, how `f_i^(-i)` is compared with `y_i`: "error", "hinge", "smooth" (of labels),
    "squared", "absolute", or a function of `(y, f)`. For all losses of linear and quadratic pieces.
    """

    scoring: str | Callable = eqx.field(static=True)

    def __init__(self, score: str | Callable = "error"):
        scores.by_name(score)
        self.scoring = score

    def check(self, model, x, y):
        """The groups are those of a loss made of linear and quadratic pieces."""
        hint = "use `LeaveOneOut` or `CrossValidation` for other losses"
        require_loss(self, model, AbstractPiecewise, hint)
        scores.check(self.scoring, model.loss)

    def score(self, gram, fit):
        """The mean score of the examples left out."""
        left_out = linear_response(gram, fit)
        return mean(scores.by_name(self.scoring)(fit.y, left_out), fit.weights)


def linear_response(gram: AbstractGram, fit: Fit) -> Float[Array, " n"]:
    """The latent values `f_i^(-i)` of each example when it is left out, by linear response.

    Where a free offset loses its last free example it is taken to stay.

    **Arguments:** `gram`, the kernel matrix of the examples; `fit`, of a loss made of linear and quadratic
    pieces.

    **Returns:** a vector of latent values.
    """
    # the condition of a free example is `f + compliance dual = target`
    in_dual, _ = fit.model.loss.optimality_slopes(fit.y, fit.latent, fit.weights, fit.free)
    compliance = jnp.where(fit.free, in_dual, 0.0)
    squared_spans = gram.squared_spans(compliance, fit.free, fit.model.offset)
    return fit.latent - fit.dual * (squared_spans - compliance)

"""Leave-one-out of least-squares machines in closed form."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._results import RESULTS
from ..gram import AbstractGram, exact_gram
from ..losses import LeastSquares, Quadratic, weighted_compliance
from ._base import AbstractCriterion, evaluation, require_loss


class PRESS(AbstractCriterion):
    """The predicted residual sum of squares, `1/2 sum_i (y_i - f_i^(-i))^2`, exact and in closed form.

    With `M = K + 1/C`, `P = M^-1 - M^-1 1 1' M^-1 / (1' M^-1 1)` (without the second term if the machine
    has no free offset) and `dual = P y`, leaving out example i gives the residual `dual_i / P_ii`.
    [CT07, eqs. 7-12]; derivatives sec. 1.3.1, here for all hyperparameters at once by one matrix product.
    Differentiable everywhere.

    **Arguments:** none. For the losses `LeastSquares` and `Quadratic`.
    """

    def check(self, model, x, y):
        """Only quadratic losses have their leave-one-out residuals in closed form."""
        hint = "use `LeaveOneOut` or `CrossValidation` for other losses"
        require_loss(self, model, (LeastSquares, Quadratic), hint)

    def evaluate(self, model, x, y, weights, memory=None):
        """Half the sum of the squared residuals."""
        gram = exact_gram(model.kernel, x)
        residuals = press_residuals(gram, y, weights, model)
        value = jnp.sum(weights * residuals**2) / 2
        # row by row, with no array of n x n answers
        finite = jnp.all(jnp.isfinite(jax.lax.stop_gradient(gram) @ jnp.ones_like(y)))
        result = jnp.where(finite, RESULTS.successful, RESULTS.nonfinite)
        return evaluation(value, result, None)


def press_residuals(gram: AbstractGram, y, weights, model) -> Float[Array, " n"]:
    """`y_i - f_i^(-i)` of each example; zero for examples of weight zero."""
    compliance = weighted_compliance(model.loss, weights, gram.dtype)
    # one that is as large as its square allows takes an example out, with no mask of the matrix
    endless = jnp.finfo(gram.dtype).max ** 0.5
    diagonal = jnp.where(weights > 0, compliance, endless)
    dual, pivots = gram.solve_and_inverse_diagonal(diagonal, y, model.offset)
    # the pivot of an example that is taken out is so small that its square, which a gradient has, is zero
    counted = jnp.where(weights > 0, pivots, 1.0)
    return jnp.where(weights > 0, dual / counted, 0.0)

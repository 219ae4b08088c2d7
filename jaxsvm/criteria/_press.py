"""Leave-one-out of least-squares machines in closed form."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._results import RESULTS
from ..losses import LeastSquares, Quadratic
from ..losses._piecewise import weighted_compliance
from ._base import AbstractCriterion, evaluation, require_loss
from ._inverse import bordered_inverse


class PRESS(AbstractCriterion):
    """The predicted residual sum of squares, `1/2 sum_i (y_i - f_i^(-i))^2`, exact and in closed form.

    With `M = K + 1/C`, `P = M^-1 - M^-1 1 1' M^-1 / (1' M^-1 1)` (without the second term if the machine
    has no free offset) and `dual = P y`, leaving out example i gives the residual `dual_i / P_ii`.
    Cawley and Talbot, "Preventing over-fitting during model selection via Bayesian regularisation of
    the hyper-parameters", eqs. 7-12; derivatives sec. 1.3.1, here for all hyperparameters at once by one
    matrix product. Differentiable everywhere.

    **Arguments:** none. For the losses `LeastSquares` and `Quadratic`.
    """

    def check(self, model, x, y):
        """Only quadratic losses have their leave-one-out residuals in closed form."""
        hint = "use `LeaveOneOut` or `CrossValidation` for other losses"
        require_loss(self, model, (LeastSquares, Quadratic), hint)

    def evaluate(self, model, x, y, weights, memory=None):
        """Half the sum of the squared residuals."""
        gram = model.kernel.matrix(x, x, same=True)
        residuals = press_residuals(gram, y, weights, model)
        value = jnp.sum(weights * residuals**2) / 2
        finite = jnp.all(jnp.isfinite(gram))
        result = jnp.where(finite, RESULTS.successful, RESULTS.nonfinite)
        return evaluation(value, result, None)


def press_residuals(gram, y, weights, model) -> Float[Array, " n"]:
    """`y_i - f_i^(-i)` of each example; zero for examples of weight zero."""
    counts = (weights > 0).astype(gram.dtype)
    compliance = weighted_compliance(model.loss, weights, gram.dtype)
    diagonal = jnp.diag(jnp.where(weights > 0, compliance, 1.0))
    masked = counts[:, None] * gram * counts[None, :] + diagonal
    return _residuals(masked, y * counts, counts, model.offset)


@eqx.filter_custom_jvp
def _residuals(matrix, y, counts, offset: bool):
    return _projected_inverse(matrix, y, counts, offset)[0]


@_residuals.def_jvp
def _residuals_jvp(primals, tangents):
    matrix, y, counts, offset = primals
    matrix_dot, y_dot, _, _ = tangents
    residuals, dual, inverse = _projected_inverse(matrix, y, counts, offset)
    pivots = jnp.diag(inverse)
    change = jnp.zeros_like(dual)
    pivot_change = jnp.zeros_like(dual)
    if matrix_dot is not None:
        change = change - inverse @ (matrix_dot @ dual)
        # its transpose is `inverse' diag(g) inverse`, the one product that the gradient costs
        pivot_change = -jnp.sum((inverse @ matrix_dot) * inverse, axis=1)
    if y_dot is not None:
        change = change + inverse @ y_dot
    return residuals, (change - residuals * pivot_change) / pivots


def _projected_inverse(matrix, y, counts, offset: bool):
    inverse, _ = bordered_inverse(matrix, counts if offset else None)
    dual = inverse @ y
    return dual / jnp.diag(inverse), dual, inverse

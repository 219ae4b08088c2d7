"""Leave-one-out estimates from one fit: linear response, the span, and PRESS."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fit import Fit
from .._machine import KernelMachine
from ..gram import AbstractGram
from ..losses import (
    AbstractPiecewise,
    LeastSquares,
    Quadratic,
    SquaredHinge,
    weighted_compliance,
)
from ..results import RESULTS
from ..validation import check_number
from . import scores
from ._criterion import (
    AbstractCriterion,
    AbstractFitCriterion,
    Data,
    Evaluation,
    Traits,
    evaluation,
    mean,
    require_loss,
)


class LinearResponse(AbstractFitCriterion):
    """The leave-one-out score, with latent values `f_i^(-i)` from the fit on all examples.

    When example i is left out, every other example is assumed to stay in its group: duals of non-support and
    bound examples do not change, free ones adapt so that their conditions still hold. Then
    `f_i^(-i) = f_i - dual_i (S_i^2 - c_i)`, where `S_i^2` is the least `l' (K + c) l` over vectors with
    `l_i = 1` and `l_j = 0` unless j is i or free, and c is the compliance of the free examples: 0 for
    the hinge, `1/C` for the squared hinge. For a free example `S_i^2 = 1 / [(K + c)_free^-1]_ii`, for a
    bound one `S_i^2 = k_ii - k_i' K_free^-1 k_i`; with a free offset the `l` sum to zero.

    [OW00, eqs. 8.26-8.32]; for the squared hinge [GS03, below eq. 11]. For `LeastSquares` and `Quadratic`
    it is exact; otherwise it tends to overestimate the error, above all if few examples are free. If none
    is, as for a small C, a free offset is not determined, and its change when an example is left out is
    ignored. The score "error" is piecewise constant; a smooth one is differentiable except for jumps where
    an example changes its group.

    **Arguments:** `score`, which compares `f_i^(-i)` with `y_i`: "error", "hinge", "smooth" (for labels),
    "squared", "absolute", or a function of `(y, f)`. The loss must consist of linear and quadratic pieces.
    """

    score: scores.Score = eqx.field(static=True)

    def __init__(self, score: scores.Score = "error"):
        scores.by_name(score)
        self.score = score

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        hint = "use `LeaveOneOut` or `CrossValidation` for other losses"
        require_loss(self, model, AbstractPiecewise, hint)
        scores.check(self.score, model.loss)

    def of_fit(self, gram: AbstractGram, fit: Fit) -> Array:
        left_out = linear_response(gram, fit)
        return mean(scores.by_name(self.score)(fit.y, left_out), fit.weights)


def linear_response(gram: AbstractGram, fit: Fit) -> Float[Array, " n"]:
    """The latent value `f_i^(-i)` of each example when it is left out, by linear response.

    A free offset that loses its last free example is assumed not to change.

    **Arguments:** `gram`, the kernel matrix of the examples; `fit`, with a loss of linear and quadratic
    pieces.

    **Returns:** a vector of latent values.
    """
    # the condition of a free example is `f + compliance dual = target`
    in_dual, _ = fit.model.loss.optimality_slopes(fit.y, fit.latent, fit.weights, fit.free)
    compliance = jnp.where(fit.free, in_dual, 0.0)
    squared_spans = gram.squared_spans(compliance, fit.free, fit.model.offset)
    return fit.latent - fit.dual * (squared_spans - compliance)


class Span(AbstractFitCriterion):
    """The span estimate of the leave-one-out error of the squared hinge.

    `1/n sum_i H(alpha_i S_i^2 - 1)` with `alpha = |dual|` and the span `S_i^2 = 1 / [(K_SV + 1/C)^-1]_ii`,
    [GS03, eq. 12]. This is a count of errors, piecewise constant in the hyperparameters. In the smoothed
    version, below eq. 12, the step H(z) is `1 / (1 + exp(-c1 z + c2))` and `S_i^2 = 1 / [(K_SV + 1/C + eta /
    alpha)^-1]_ii - eta / alpha_i`: it is continuous everywhere, and differentiable except for kinks where
    the set of support vectors changes. With a free offset the vectors of the span sum to zero, which
    borders the matrices by a row of ones.

    **Arguments:** `smoothed`, whether to smooth; `c1`, the steepness of the step; `c2`, its shift; `eta`,
    the smoothing of the span, positive. `smoothed=False` ignores the last three. The defaults are the
    paper's, sec. 4.1.
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

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        hint = "use `LinearResponse`, its counterpart for other losses"
        require_loss(self, model, SquaredHinge, hint)

    def of_fit(self, gram: AbstractGram, fit: Fit) -> Array:
        if not self.smoothed:
            # the margin of the example left out is 1 - alpha S^2
            return mean(scores.error(fit.y, linear_response(gram, fit)), fit.weights)
        excess = _smooth_span(gram, fit, self.eta) - 1
        return mean(jax.nn.sigmoid(self.c1 * excess - self.c2), fit.weights)


def _smooth_span(gram: AbstractGram, fit: Fit, eta: float) -> Float[Array, " n"]:
    """`alpha_i S_i^2` with the penalty `eta / alpha`; zero if alpha is zero.

    Scaling the rows by `alpha^(1/2)` avoids a division by alpha: `(M + eta / alpha)^-1` is
    `alpha^(1/2) (alpha^(1/2) M alpha^(1/2) + eta)^-1 alpha^(1/2)`.
    """
    loss = fit.model.loss
    assert isinstance(loss, SquaredHinge)
    alpha = jnp.where(fit.support, fit.y * fit.dual, 0.0)
    root = jnp.where(fit.support, jnp.sqrt(jnp.where(fit.support, alpha, 1.0)), 0.0)
    compliance = weighted_compliance(loss, fit.weights, gram.dtype)
    border = root if fit.model.offset else None
    return 1 / gram.inverse_diagonal(root, alpha * compliance + eta, border) - eta


class PRESS(AbstractCriterion):
    """The predicted residual sum of squares, `1/2 sum_i (y_i - f_i^(-i))^2`, exact and in closed form.

    With `M = K + 1/C`, `P = M^-1 - M^-1 1 1' M^-1 / (1' M^-1 1)` (without the second term if the machine has
    no free offset) and `dual = P y`, leaving out example i gives the residual `dual_i / P_ii`.
    [CT07, eqs. 7-12]. It is differentiable everywhere. Sec. 1.3.1 of the paper takes its derivatives one by
    one; here those for all hyperparameters follow from one matrix product, since `dP = -P dM P` (eq. 13): see
    `solve_and_inverse_diagonal` in `jaxsvm/linalg/_inverse.py`.

    **Arguments:** none. The loss must be `LeastSquares` or `Quadratic`.
    """

    @property
    def traits(self) -> Traits:
        return Traits(scale="squares")

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        hint = "use `LeaveOneOut` or `CrossValidation` for other losses"
        require_loss(self, model, (LeastSquares, Quadratic), hint)

    def evaluate(self, model: KernelMachine, data: Data, memory: Any = None) -> Evaluation:
        gram, y, weights = data.gram(model.kernel), data.y, data.weights
        residuals = press_residuals(gram, y, weights, model)
        value = jnp.sum(weights * residuals**2) / 2
        # a product with K shows any entry that is not finite, without an n x n array of booleans
        finite = jnp.all(jnp.isfinite(jax.lax.stop_gradient(gram) @ jnp.ones_like(y)))
        result = jnp.where(finite, RESULTS.successful, RESULTS.nonfinite)
        return evaluation(value, result, None)


def press_residuals(gram: AbstractGram, y, weights, model) -> Float[Array, " n"]:
    """`y_i - f_i^(-i)` of each example; zero for examples of weight zero."""
    compliance = weighted_compliance(model.loss, weights, gram.dtype)
    # an example with the largest compliance whose square is finite is as good as removed, so the matrix needs
    # no mask
    largest = jnp.finfo(gram.dtype).max ** 0.5
    diagonal = jnp.where(weights > 0, compliance, largest)
    dual, pivots = gram.solve_and_inverse_diagonal(diagonal, y, model.offset)
    # the square of a removed example's pivot is zero, and a gradient would divide by it
    pivots = jnp.where(weights > 0, pivots, 1.0)
    return jnp.where(weights > 0, dual / pivots, 0.0)

"""The leave-one-out estimate of naive mean field theory."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..criteria import scores
from ..criteria._base import AbstractCriterion, evaluation, mean
from ._mean_field import check_mean_field, left_out_of, solve_mean_field
from ._posterior import LeftOut

_SCORES = ("error", "probability", "log")


class NaiveMeanField(AbstractCriterion):
    """The leave-one-out score of naive mean field theory, from its solution on all examples.

    Each example is left out by linear response, at the cost of one matrix inversion for all: Opper and
    Winther, "Gaussian processes and SVM: mean field results and leave-one-out", eqs. 8.41-8.42. The model
    is a kernel machine with the loss `Probit`, `FlipNoise` or `Logistic`, as for `gp.mean_field`.

    Eq. 8.42, `Omega_i = k_ii (1 / (y_i alpha_i <f_i>) - 1)`, holds for every flip rate kappa: the second
    derivative of `Z = kappa + (1 - 2 kappa) Phi(y h / sqrt(k))` is `-h / k` times its first, so with
    `a = d ln Z / dh` the curvature `-d2 ln Z / dh2` is `a (a + h / k) = a <f> / k`, whatever kappa.

    **Arguments:** `score`:

    - `"error"`: the share of examples whose left-out mean has the wrong sign, the paper's. Piecewise
      constant: minimize it with `optimizers.GreedyWalk`.
    - `"probability"`: the mean probability of the wrong label, when left out; the error made smooth.
    - `"log"`: minus the mean logarithm of the probability of the right label, when left out; smooth.
    - or a function of `(y, f)`, such as those in `criteria.scores`.
    """

    scoring: str | Callable = eqx.field(static=True)

    def __init__(self, score: str | Callable = "error"):
        if not callable(score) and score not in _SCORES:
            raise ValueError(
                f"`score` must be one of {', '.join(_SCORES)}, or a function of (y, f), not {score!r}"
            )
        self.scoring = score

    def check(self, model, x, y):
        """A likelihood of labels, and a proper prior."""
        check_mean_field(model)

    def evaluate(self, model, x, y, weights, memory=None):
        """Solve the mean field equations, then leave each example out."""
        gram = model.kernel.matrix(x, x, same=True)
        equations, step, solved = solve_mean_field(model, gram, y, weights, memory)
        left_out = left_out_of(equations, step)
        value = mean(self.score(y, left_out), weights)
        return evaluation(value, solved.result, jax.lax.stop_gradient(step))

    def score(self, y: Float[Array, " n"], left_out: LeftOut) -> Float[Array, " n"]:
        """The score of each example, from what is predicted of it when it is left out."""
        if callable(self.scoring):
            return self.scoring(y, left_out.mean)
        if self.scoring == "error":
            return scores.error(y, left_out.mean)
        if self.scoring == "log":
            return -left_out.log_probability
        return -jnp.expm1(left_out.log_probability)

"""Leave-one-out criteria: by mean field theory, Laplace's approximation, and expectation propagation."""

import abc
from collections.abc import Callable
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._fit import fit_gram
from .._machine import KernelMachine
from ..criteria import AbstractCriterion, Data, Evaluation, evaluation, mean, memory_of, scores
from ..gram import AbstractGram
from ..posteriors import LeaveOneOutPredictions
from ._expectation_propagation import check_sites, leave_out_of_sites, solve_sites
from ._laplace_classifier import check_laplace, leave_out_of_fit
from ._mean_field import check_mean_field, leave_out_of_mean_field, solve_mean_field

ScoreName = Literal["error", "probability", "log"]
Score = ScoreName | Callable[..., Any]


def _check_score(score: Score) -> Score:
    if not callable(score) and score not in get_args(ScoreName):
        raise ValueError(
            f"`score` must be one of {', '.join(get_args(ScoreName))}, or a function of (y, f), not {score!r}"
        )
    return score


class AbstractLeaveOneOut(AbstractCriterion):
    """The mean score of all examples, each predicted from the others without training again.

    **Arguments:** `score`:

    - `"error"`: the share of examples whose leave-one-out mean has the wrong sign. It is piecewise constant:
      minimize it with `optimizers.GreedyWalk`.
    - `"probability"`: the mean leave-one-out probability of the wrong label, a smooth version of the error.
    - `"log"`: minus the mean logarithm of the leave-one-out probability of the right label; smooth.
    - or a function of `(y, f)`, such as those in `criteria.scores`.
    """

    score: eqx.AbstractVar[Score]

    @abc.abstractmethod
    def predictions(
        self, model: KernelMachine, gram: AbstractGram, data: Data, memory: Any
    ) -> tuple[LeaveOneOutPredictions, Int[Array, ""], Any]:
        """Solve on all examples, and predict each of them from the others.

        **Arguments:** `model`; `gram`, its kernel matrix; `data`, which have been checked; `memory`, returned
        by an earlier evaluation nearby, or None.

        **Returns:** the predictions, the result code of the solution, and the memory for the next evaluation.
        """

    def evaluate(self, model: KernelMachine, data: Data, memory: Any = None) -> Evaluation:
        gram = data.gram(model.kernel)
        left_out, result, memory = self.predictions(model, gram, data, memory)
        value = mean(self.score_each(data.y, left_out), data.weights)
        return evaluation(value, result, jax.lax.stop_gradient(memory))

    def score_each(
        self, y: Float[Array, " n"], left_out: LeaveOneOutPredictions
    ) -> Float[Array, " n"]:
        """The score of each example.

        **Arguments:** `y`, the labels; `left_out`, the prediction of each example from the others.

        **Returns:** one score for each example.
        """
        if callable(self.score):
            return self.score(y, left_out.mean)
        if self.score == "error":
            return scores.error(y, left_out.mean)
        if self.score == "log":
            return -left_out.log_probability
        return -jnp.expm1(left_out.log_probability)


class NaiveMeanField(AbstractLeaveOneOut):
    """The leave-one-out score of naive mean field theory, from its solution on all examples.

    Linear response leaves out each example, at the cost of one matrix inversion for all:
    [OW00, eqs. 8.41-8.42]. The model is a kernel machine with the loss `Probit`, `FlipNoise` or
    `Logistic`, as for `gp.mean_field`.

    Eq. 8.42, `Omega_i = k_ii (1 / (y_i alpha_i <f_i>) - 1)`, holds for every flip rate kappa: the second
    derivative of `Z = kappa + (1 - 2 kappa) Phi(y h / sqrt(k))` is `-h / k` times its first, so with
    `a = d ln Z / dh` the curvature `-d2 ln Z / dh2` is `a (a + h / k) = a <f> / k`, for any kappa.

    **Arguments:** `score`: `"error"`, the paper's, `"probability"`, `"log"`, or a function of `(y, f)`, as in
    `gp.AbstractLeaveOneOut`.
    """

    score: Score = eqx.field(default="error", static=True, converter=_check_score)

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        check_mean_field(model)

    def predictions(
        self, model: KernelMachine, gram: AbstractGram, data: Data, memory: Any
    ) -> tuple[LeaveOneOutPredictions, Array, Any]:
        equations, step, outcome = solve_mean_field(model, gram, data.y, data.weights, memory)
        return leave_out_of_mean_field(equations, step), outcome.result, step


class LaplaceLeaveOneOut(AbstractLeaveOneOut):
    """The leave-one-out score of Laplace's approximation, from the posterior mode on all examples.

    With `S_i = 1 / [(K + W^-1)^-1]_ii - 1 / W_i` and W the second derivatives of the loss, the prediction of
    an example is a Gaussian of mean `f_i - S_i dual_i` and variance S_i: one Newton step towards the mode
    without it, as in [OW00, eq. 8.41]. The model is a kernel machine with the loss `Probit`, `FlipNoise`
    or `Logistic`; freeze `loss.C` of `Logistic`.

    **Arguments:** `score`: `"error"`, `"probability"`, `"log"`, or a function of `(y, f)`, as in
    `gp.AbstractLeaveOneOut`.
    """

    score: Score = eqx.field(default="error", static=True, converter=_check_score)

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        check_laplace(model)

    def predictions(
        self, model: KernelMachine, gram: AbstractGram, data: Data, memory: Any
    ) -> tuple[LeaveOneOutPredictions, Array, Any]:
        fitted = fit_gram(model, gram, data.x, data.y, data.weights, memory)
        return leave_out_of_fit(gram, fitted), fitted.result, memory_of(fitted)


class ExpectationPropagationLeaveOneOut(AbstractLeaveOneOut):
    """The leave-one-out score of expectation propagation, from its sites on all examples.

    The prediction of an example is its cavity, the posterior without its own site: Rasmussen and Williams,
    "Gaussian Processes for Machine Learning", eqs. 3.56 and 3.58. This is an estimate, since the other
    sites stay as they are; it costs nothing beyond the sites. Its gradient passes through them, by one
    system of 2n equations, which a low rank solves without its matrix. The model is a kernel machine with
    the loss `Probit` or `Logistic`.

    **Arguments:** `score`: `"error"`, `"probability"`, `"log"`, or a function of `(y, f)`, as in
    `gp.AbstractLeaveOneOut`.
    """

    score: Score = eqx.field(default="error", static=True, converter=_check_score)

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        check_sites(model)

    def predictions(
        self, model: KernelMachine, gram: AbstractGram, data: Data, memory: Any
    ) -> tuple[LeaveOneOutPredictions, Array, Any]:
        matching, sites, outcome = solve_sites(model, gram, data.y, data.weights, memory)
        left_out = leave_out_of_sites(matching, sites, matching.marginals(sites))
        return left_out, outcome.result, sites

"""Leave-one-out estimates as criteria: of mean field, Laplace's approximation, expectation propagation."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._fit import fit_gram
from ..criteria import AbstractCriterion, evaluation, mean, memory_of, scores
from ..gram import DenseGram
from ..posteriors import LeftOut
from ._expectation_propagation import check_sites, left_out_of_sites, solve_sites
from ._laplace import check_laplace, left_out_of_fit
from ._mean_field import check_mean_field, left_out_of, solve_mean_field

_SCORES = ("error", "probability", "log")


class AbstractLeftOut(AbstractCriterion):
    """The mean score of examples that are predicted from all others, each by an estimate of it.

    **Arguments:** `score`:

    - `"error"`: the share of examples whose left-out mean has the wrong sign. Piecewise constant: minimize
      it with `optimizers.GreedyWalk`.
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

    @abc.abstractmethod
    def left_out(
        self, model, gram: Float[Array, "n n"], x, y, weights, memory: Any
    ) -> tuple[LeftOut, Int[Array, ""], Any]:
        """What is predicted of each example, from the solution on all of them.

        **Arguments:** `model`; `gram`, its Gram matrix; `x`, `y`, `weights`, data that have been checked;
        `memory`, of an evaluation nearby, or None.

        **Returns:** a `LeftOut`, the code of the solution, and the memory for the next one.
        """

    def evaluate(self, model, x, y, weights, memory=None):
        """Solve on all examples, then leave each of them out."""
        gram = model.kernel.matrix(x, x, same=True)
        left_out, result, memory = self.left_out(model, gram, x, y, weights, memory)
        value = mean(self.score(y, left_out), weights)
        return evaluation(value, result, jax.lax.stop_gradient(memory))

    def score(self, y: Float[Array, " n"], left_out: LeftOut) -> Float[Array, " n"]:
        """The score of each example, from what is predicted of it when it is left out.

        **Arguments:** `y`, the labels; `left_out`, what is predicted of each from the others.

        **Returns:** one score for each example.
        """
        if callable(self.scoring):
            return self.scoring(y, left_out.mean)
        if self.scoring == "error":
            return scores.error(y, left_out.mean)
        if self.scoring == "log":
            return -left_out.log_probability
        return -jnp.expm1(left_out.log_probability)


class NaiveMeanField(AbstractLeftOut):
    """The leave-one-out score of naive mean field theory, from its solution on all examples.

    Each example is left out by linear response, at the cost of one matrix inversion for all:
    [OW00, eqs. 8.41-8.42]. The model is a kernel machine with the loss `Probit`, `FlipNoise` or
    `Logistic`, as for `gp.mean_field`.

    Eq. 8.42, `Omega_i = k_ii (1 / (y_i alpha_i <f_i>) - 1)`, holds for every flip rate kappa: the second
    derivative of `Z = kappa + (1 - 2 kappa) Phi(y h / sqrt(k))` is `-h / k` times its first, so with
    `a = d ln Z / dh` the curvature `-d2 ln Z / dh2` is `a (a + h / k) = a <f> / k`, whatever kappa.

    **Arguments:** `score`: `"error"`, the paper's, `"probability"`, `"log"`, or a function of `(y, f)`, as in
    `gp.AbstractLeftOut`.
    """

    def check(self, model, x, y):
        """A likelihood of labels, and a proper prior."""
        check_mean_field(model)

    def left_out(self, model, gram, x, y, weights, memory):
        """Solve the mean field equations; the linear response of their solution."""
        equations, step, solved = solve_mean_field(model, gram, y, weights, memory)
        return left_out_of(equations, step), solved.result, step


class LaplaceLeftOut(AbstractLeftOut):
    """The leave-one-out score of Laplace's approximation, from the posterior mode of all examples.

    With `S_i = 1 / [(K + W^-1)^-1]_ii - 1 / W_i` and W the second derivatives of the loss, an example is
    predicted by a Gaussian of mean `f_i - S_i dual_i` and variance S_i: one Newton step towards the mode
    without it, as in [OW00, eq. 8.41]. The model is a kernel machine with the loss `Probit`, `FlipNoise`
    or `Logistic`; freeze `loss.C` of the last.

    **Arguments:** `score`: `"error"`, `"probability"`, `"log"`, or a function of `(y, f)`, as in
    `gp.AbstractLeftOut`.
    """

    def check(self, model, x, y):
        """A likelihood of labels, and a proper prior."""
        check_laplace(model)

    def left_out(self, model, gram, x, y, weights, memory):
        """Find the mode; a Newton step from it for each example."""
        fitted = fit_gram(model, DenseGram(gram), x, y, weights, memory)
        return left_out_of_fit(gram, fitted), fitted.result, memory_of(fitted)


class ExpectationPropagationLeftOut(AbstractLeftOut):
    """The leave-one-out score of expectation propagation, from its sites on all examples.

    An example is predicted by its cavity, the posterior without its own site: Rasmussen and Williams,
    "Gaussian Processes for Machine Learning", eqs. 3.56 and 3.58. The other sites stay as they are,
    so it is an estimate; it costs nothing beyond the sites. Its gradient goes through them, by one system
    of 2n equations. The model is a kernel machine with the loss `Probit` or `Logistic`.

    **Arguments:** `score`: `"error"`, `"probability"`, `"log"`, or a function of `(y, f)`, as in
    `gp.AbstractLeftOut`.
    """

    def check(self, model, x, y):
        """A likelihood that is log-concave, and a proper prior."""
        check_sites(model)

    def left_out(self, model, gram, x, y, weights, memory):
        """Find the sites; the cavities."""
        matching, sites, found = solve_sites(model, gram, y, weights, memory)
        left_out = left_out_of_sites(matching, sites, matching.marginals(sites))
        return left_out, found.result, sites

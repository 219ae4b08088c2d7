"""Leave-one-out by retraining."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._fit import fit_gram
from ..gram import exact_gram
from ..runtime import is_traced
from ..solvers import Start
from ..validation import check_count
from . import scores
from ._base import AbstractCriterion, evaluation, mean, memory_of
from ._cross_validation import retrain


class LeaveOneOut(AbstractCriterion):
    """The exact leave-one-out score `1/n sum_i score(y_i, f_i^(-i))`, by training n times.

    [GS03, eq. 10]. Each training starts from the fit on all examples; for a non-support vector it ends
    there. An example of weight two is left out whole. Differentiable for a smooth score, but for kinks
    where an example changes its group in one of the fits; a gradient costs one Cholesky factorization for
    each example. The score "error" is piecewise constant.

    **Arguments:** `score`, "error", "hinge", "smooth" (of labels), "squared", "absolute", or a function of
    `(y, f)`; `batch_size`, how many of the fits are vectorized, which needs so many times the memory
    and pays on accelerators.
    """

    scoring: str | Callable = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def __init__(self, score: str | Callable = "error", batch_size: int = 1):
        scores.by_name(score)
        check_count("batch_size", batch_size)
        self.scoring = score
        self.batch_size = int(batch_size)

    def check(self, model, x, y):
        """What is left must determine the machine."""
        scores.check(self.scoring, model.loss)
        if x.shape[0] < 2:
            raise ValueError("leave-one-out needs two examples at least")
        if model.offset and model.loss.is_classifier and not is_traced(y):
            fewest = min(int(np.sum(np.asarray(y) == label)) for label in (1, -1))
            if fewest < 2:
                raise ValueError(
                    "one class has a single example: without it a free offset is not determined. Use "
                    "`offset=False` and a `Constant` kernel, or leave the class out"
                )

    def evaluate(self, model, x, y, weights, memory=None):
        """The fit on all examples, and from there one without each."""
        gram = exact_gram(model.kernel, x)
        fitted = fit_gram(model, gram, x, y, weights, memory)
        memory = memory_of(fitted)
        kept = ~jnp.eye(y.shape[0], dtype=bool)
        training = jnp.where(kept, weights[None, :], 0.0)
        starts = Start(
            jnp.where(kept, memory.dual[None, :], 0.0), jnp.broadcast_to(memory.offset, y.shape)
        )
        latents, results, _ = retrain(model, gram, x, y, training, starts, self.batch_size)
        value = mean(scores.by_name(self.scoring)(y, jnp.diag(latents)), weights)
        return evaluation(value, jnp.maximum(fitted.result, jnp.max(results)), memory)

"""Criteria that train again: cross-validation and leave-one-out."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .. import linalg
from .._fit import fit_gram
from .._machine import KernelMachine
from ..gram import AbstractGram
from ..results import worst
from ..runtime import is_divided, is_traced
from ..solvers import Problem, Start, attach_derivatives
from ..validation import check_count, count_where
from . import scores
from ._criterion import AbstractCriterion, Data, Evaluation, evaluation, mean, memory_of


class CrossValidation(AbstractCriterion):
    """The mean score of examples held out in folds, each predicted by a machine trained on the others.

    `1/n sum_i score(y_i, f_i^(-fold(i)))`. The folds are stratified: the k-th example of a class is in
    fold `k mod folds`; in a regression, the k-th of all. Every fit is differentiable; so is the criterion
    with a smooth score, except for kinks where an example changes its group. The score "error" is
    piecewise constant.

    **Arguments:**

    - `folds`: their number, at least two.
    - `score`: "error", "hinge", "smooth" (for labels), "squared", "absolute", or a function of `(y, f)`.
    - `key`: shuffles the examples before they are assigned to folds; by default the order of the data is
      used.
    - `assignment`: the fold of each example, any integers, instead of `folds` and `key`.
    """

    folds: int = eqx.field(static=True)
    score: scores.Score = eqx.field(static=True)
    key: Any
    assignment: Int[Array, " n"] | None

    def __init__(
        self,
        folds: int = 5,
        score: scores.Score = "error",
        *,
        key: Any = None,
        assignment: Any = None,
    ):
        scores.by_name(score)
        if assignment is not None:
            if key is not None:
                raise ValueError(
                    "`key` shuffles folds, but `assignment` fixes them: pass only one of them"
                )
            labels = np.asarray(assignment)
            if labels.ndim != 1 or labels.dtype.kind not in "iu":
                raise ValueError(
                    "`assignment` must be a vector of integers, the fold of each example, but has shape "
                    f"{labels.shape} and type {labels.dtype}"
                )
            distinct, numbers = np.unique(labels, return_inverse=True)
            folds, assignment = len(distinct), jnp.asarray(numbers)
            if folds < 2:
                raise ValueError("`assignment` must name at least two folds, but has one")
        check_count("folds", folds, 2)
        self.folds = int(folds)
        self.score = score
        self.key = key
        self.assignment = assignment

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        scores.check(self.score, model.loss)
        examples = x.shape[0]
        if self.assignment is not None and self.assignment.shape[0] != examples:
            raise ValueError(
                f"`assignment` has {self.assignment.shape[0]} entries, but there are {examples} examples"
            )
        if examples < self.folds:
            raise ValueError(f"there are {self.folds} folds for only {examples} examples")
        if not model.loss.is_classifier or is_traced(y, self.assignment):
            return
        for label in (1, -1):
            if self.assignment is None:
                folds_of_class = count_where(y, lambda y, label=label: y == label)
            else:
                folds_of_class = len(np.unique(np.asarray(self.assignment)[np.asarray(y) == label]))
            if folds_of_class < 2:
                raise ValueError(
                    f"all examples with the label {label:+d} are in one fold, and without it the machine "
                    "would train on one class: a class needs at least two examples, in different folds"
                )

    def evaluate(self, model: KernelMachine, data: Data, memory: Any = None) -> Evaluation:
        x, y, weights = data.x, data.y, data.weights
        gram = data.gram(model.kernel)
        fold = self._fold(y, weights, model.loss.is_classifier, gram.shards)
        training = jnp.where(
            fold[None, :] == jnp.arange(self.folds)[:, None], 0.0, weights[None, :]
        )
        latents, results, memory = retrain(model, gram, x, y, training, memory, None)
        held_out = jnp.take_along_axis(latents, fold[None, :], axis=0)[0]
        value = mean(scores.by_name(self.score)(y, held_out), weights)
        return evaluation(value, worst(results), memory)

    def _fold(self, y, weights, stratified: bool, shards: int = 1) -> Int[Array, " n"]:
        if self.assignment is not None:
            return self.assignment
        if self.key is None:
            return self._in_turn(y, weights, stratified, shards)
        order = jax.random.permutation(self.key, jnp.arange(y.shape[0]))
        folds = self._in_turn(y[order], weights[order], stratified, 1)
        return jnp.zeros_like(order).at[order].set(folds)

    def _in_turn(self, y, weights, stratified: bool, shards: int) -> Int[Array, " n"]:
        """The folds in turn, for each class by itself."""
        counts = weights > 0  # an example of weight zero is absent
        first = counts & (y > 0) if stratified else counts
        others = linalg.count_active(counts & ~first, shards)
        rank = jnp.where(first, linalg.count_active(first, shards), others) - 1
        return rank % self.folds


class LeaveOneOut(AbstractCriterion):
    """The exact leave-one-out score `1/n sum_i score(y_i, f_i^(-i))`, by training n times.

    [GS03, eq. 10]. Each training starts from the fit on all examples; for a non-support vector it ends
    there. An example of weight two is left out with its full weight. With a smooth score the criterion is
    differentiable, except for kinks where an example changes its group in one of the fits; a gradient
    costs one Cholesky factorization for each example. The score "error" is piecewise constant.

    **Arguments:** `score`, "error", "hinge", "smooth" (for labels), "squared", "absolute", or a function of
    `(y, f)`; `batch_size`, the number of fits that run as one vectorized batch, which multiplies the memory
    and is faster on accelerators.
    """

    score: scores.Score = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def __init__(self, score: scores.Score = "error", batch_size: int = 1):
        scores.by_name(score)
        check_count("batch_size", batch_size)
        self.score = score
        self.batch_size = int(batch_size)

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        scores.check(self.score, model.loss)
        if is_divided(x):
            raise ValueError(
                "`LeaveOneOut` trains once for each example, which processes that share the rows cannot do: "
                "use `CrossValidation` or `LinearResponse`"
            )
        if x.shape[0] < 2:
            raise ValueError("leave-one-out needs at least two examples")
        if model.offset and model.loss.is_classifier and not is_traced(y):
            fewest = min(count_where(y, lambda y, label=label: y == label) for label in (1, -1))
            if fewest < 2:
                raise ValueError(
                    "one class has a single example: without it, a free offset is not determined. Use "
                    "`offset=False` and a `Constant` kernel, or remove the class"
                )

    def evaluate(self, model: KernelMachine, data: Data, memory: Any = None) -> Evaluation:
        x, y, weights = data.x, data.y, data.weights
        gram = data.gram(model.kernel)
        fitted = fit_gram(model, gram, x, y, weights, memory)
        memory = memory_of(fitted)
        kept = ~jnp.eye(y.shape[0], dtype=bool)
        training = jnp.where(kept, weights[None, :], 0.0)
        starts = Start(
            jnp.where(kept, memory.dual[None, :], 0.0), jnp.broadcast_to(memory.offset, y.shape)
        )
        latents, results, _ = retrain(model, gram, x, y, training, starts, self.batch_size)
        value = mean(scores.by_name(self.score)(y, jnp.diag(latents)), weights)
        return evaluation(value, worst(jnp.append(results, fitted.result)), memory)


def retrain(
    model: KernelMachine,
    gram: AbstractGram,
    x: Float[Array, "n d"],
    y: Float[Array, " n"],
    weights: Float[Array, "k n"],
    starts: Start | None,
    batch_size: int | None,
) -> tuple[Float[Array, "k n"], Int[Array, " k"], Start]:
    """Fit one machine with several sets of weights.

    The fits come first, without derivatives. Derivatives are attached to one batch of fits after the other
    and recomputed in the backward pass, which therefore never holds the systems of more than one batch.

    **Arguments:** as for `fit_gram`; `weights` and `starts` have a leading axis; `batch_size`, the number of
    fits that run as one vectorized batch, or None for all.

    **Returns:** the latent values of each fit, its result code, and where the next fits can start.
    """

    def solve(arguments):
        weights, start = arguments
        fixed = jax.lax.stop_gradient((model, gram, x, y, weights))
        fitted = fit_gram(*fixed, start)
        return Start(fitted.dual, fitted.offset), fitted.free, fitted.result

    @jax.checkpoint
    def latent_values(arguments):
        weights, solution, free = arguments
        problem = Problem(gram, y, weights, model.loss, model.offset)
        dual, offset = attach_derivatives(problem, solution.dual, solution.offset, free)
        return gram @ dual + offset

    solutions, free, results = _map(solve, (weights, starts), batch_size)
    solutions, free = jax.lax.stop_gradient((solutions, free))
    latents = _map(latent_values, (weights, solutions, free), batch_size)
    return latents, results, solutions


def _map(function, arguments, batch_size: int | None):
    if batch_size is None:
        return jax.vmap(function)(arguments)
    return jax.lax.map(function, arguments, batch_size=None if batch_size == 1 else batch_size)

"""Cross-validation by retraining."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._fit import fit_gram
from .._machine import KernelMachine
from ..gram import AbstractGram, exact_gram
from ..runtime import is_traced
from ..solvers import Problem, Start, attach_derivatives
from ..validation import check_count
from . import scores
from ._base import AbstractCriterion, evaluation, mean


class CrossValidation(AbstractCriterion):
    """The mean score of examples held out in folds, each predicted by a machine trained on the others.

    `1/n sum_i score(y_i, f_i^(-fold(i)))`. The folds are stratified: the k-th example of a class is in
    fold `k mod folds`; without classes the k-th of all. A fit of every fold is differentiable, so the
    criterion is, for a smooth score, but for kinks where an example changes its group; the score
    "error" is piecewise constant.

    **Arguments:**

    - `folds`: how many, two at least.
    - `score`: "error", "hinge", "smooth" (of labels), "squared", "absolute", or a function of `(y, f)`.
    - `key`: shuffles the examples before they are dealt out to the folds; by default they are taken in
      the order of the data.
    - `assignment`: the fold of each example, any integers, instead of `folds` and `key`.
    """

    folds: int = eqx.field(static=True)
    scoring: str | Callable = eqx.field(static=True)
    key: Any
    assignment: Int[Array, " n"] | None

    def __init__(
        self,
        folds: int = 5,
        score: str | Callable = "error",
        *,
        key: Any = None,
        assignment: Any = None,
    ):
        scores.by_name(score)
        if assignment is not None:
            if key is not None:
                raise ValueError(
                    "`key` shuffles folds, but `assignment` fixes them: give one of them"
                )
            labels = np.asarray(assignment)
            if labels.ndim != 1 or labels.dtype.kind not in "iu":
                raise ValueError(
                    "`assignment` must be a vector of integers, the fold of each example, but has shape "
                    f"{labels.shape} and type {labels.dtype}"
                )
            different, places = np.unique(labels, return_inverse=True)
            folds, assignment = len(different), jnp.asarray(places)
            if folds < 2:
                raise ValueError("`assignment` must name at least two folds, but has one")
        check_count("folds", folds, 2)
        self.folds = int(folds)
        self.scoring = score
        self.key = key
        self.assignment = assignment

    def check(self, model, x, y):
        """Every fold needs examples, and every training set both classes."""
        scores.check(self.scoring, model.loss)
        examples = x.shape[0]
        if self.assignment is not None and self.assignment.shape[0] != examples:
            raise ValueError(
                f"`assignment` has {self.assignment.shape[0]} entries, but there are {examples} examples"
            )
        if examples < self.folds:
            raise ValueError(f"there are {self.folds} folds for only {examples} examples")
        if not model.loss.is_classifier or is_traced(y, self.assignment):
            return
        labels = np.asarray(y)
        for label in (1, -1):
            chosen = labels == label
            if self.assignment is None:
                spread = int(np.sum(chosen))
            else:
                spread = len(np.unique(np.asarray(self.assignment)[chosen]))
            if spread < 2:
                raise ValueError(
                    f"all examples with the label {label:+d} would be in one fold, so that the others "
                    "train without that class: it needs two examples at least, in different folds"
                )

    def evaluate(self, model, x, y, weights, memory=None):
        """One fit for each fold, then the mean score of what each holds out."""
        gram = exact_gram(model.kernel, x)
        fold = self._fold(y, weights, model.loss.is_classifier)
        training = jnp.where(
            fold[None, :] == jnp.arange(self.folds)[:, None], 0.0, weights[None, :]
        )
        latents, result, memory = retrain(model, gram, x, y, training, memory, None)
        held_out = jnp.take_along_axis(latents, fold[None, :], axis=0)[0]
        value = mean(scores.by_name(self.scoring)(y, held_out), weights)
        return evaluation(value, jnp.max(result), memory)

    def _fold(self, y, weights, stratified: bool) -> Int[Array, " n"]:
        if self.assignment is not None:
            return self.assignment
        order = jnp.arange(y.shape[0])
        if self.key is not None:
            order = jax.random.permutation(self.key, order)
        counts = weights[order] > 0  # an example of weight zero is absent
        first = counts & (y[order] > 0) if stratified else counts
        rank = jnp.where(first, jnp.cumsum(first), jnp.cumsum(counts & ~first)) - 1
        return jnp.zeros_like(order).at[order].set(rank % self.folds)


def retrain(
    model: KernelMachine,
    gram: AbstractGram,
    x: Float[Array, "n d"],
    y: Float[Array, " n"],
    weights: Float[Array, "k n"],
    starts: Start | None,
    batch_size: int | None,
) -> tuple[Float[Array, "k n"], Int[Array, " k"], Start]:
    """Fits of one machine with several sets of weights.

    The fits are made first, without derivatives. These are attached to one fit after the other, and
    computed anew in the backward pass, which so never holds more than one system of a batch.

    **Arguments:** as of `fit_gram`; `weights` and `starts` have a leading axis; `batch_size`, how many fits
    are vectorized, None for all of them.

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

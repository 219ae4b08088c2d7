"""What a criterion is: a number to minimize, as a function of the model."""

import abc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._fit import Fit, as_data, fit_gram
from .._machine import KernelMachine
from .._parameters import unfreeze
from .._results import RESULTS, raise_on_failure
from ..gram import AbstractGram, exact_gram
from ..losses import AbstractLoss
from ..runtime import jit
from ..solvers import Start
from ._objective import AbstractObjective, Observation, Traits


class Evaluation(NamedTuple):
    """A criterion's `value`, the `result` code of the fits behind it, and a `memory` for the next ones."""

    value: Float[Array, ""]
    result: Int[Array, ""]
    memory: Any


class AbstractCriterion(AbstractObjective):
    """A number to minimize: `criterion(model, x, y)`, a pure and differentiable function of the model.

    A criterion of your own defines `check` and `evaluate`; `jax.value_and_grad` does the rest.
    """

    @abc.abstractmethod
    def evaluate(
        self,
        model: KernelMachine,
        x: Float[Array, "n d"],
        y: Float[Array, " n"],
        weights: Float[Array, " n"],
        memory: Any = None,
    ) -> Evaluation:
        """The criterion of arrays that have been checked.

        **Arguments:**

        - `model`: the kernel machine, no parameter of it frozen.
        - `x`, `y`, `weights`: the data.
        - `memory`: of an evaluation nearby, which saves time.

        **Returns:** an `Evaluation`: the value, a result code, and the memory for the next one.
        """

    @property
    def traits(self) -> Traits:
        """Values and gradients without noise."""
        return Traits()

    def prepare(self, model, data, key):
        """The criterion itself."""
        return self

    def init(self, model, data, key):
        """Zeros, from which a fit begins as from nothing."""
        arguments = (data.complete(model), data.x, data.y, data.weights)
        shapes = jax.eval_shape(lambda: self.evaluate(*arguments, None).memory)
        return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    def observe(self, model, data, memory, key):
        """Value and gradient, by differentiating `evaluate`."""

        def value_of(model):
            seen = self.evaluate(data.complete(model), data.x, data.y, data.weights, memory)
            return seen.value, seen

        (value, seen), gradient = jax.value_and_grad(value_of, has_aux=True)(model)
        return Observation(value, gradient, None, seen.result, seen.memory, {})

    def compare(self, model, data, key):
        """The criterion."""
        return float(self.evaluate(data.complete(model), data.x, data.y, data.weights).value)

    def problems(self, model, info, end) -> tuple[str, ...]:
        """None: the result codes say it all."""
        return ()

    def __call__(
        self, model: KernelMachine, x: Any, y: Any, *, weights: Any = None, throw: bool = True
    ) -> Float[Array, ""]:
        """The criterion of a model on the data, in which smaller is better.

        **Arguments:**

        - `model`: the kernel machine.
        - `x`, `y`: inputs, one row for each example, and labels -1/+1 or targets.
        - `weights`: one for each example, default one.
        - `throw`: whether to raise where a fit fails; otherwise the value is NaN there.

        **Returns:** a number, differentiable by `jax.grad` except where the class says otherwise.
        """
        x, y, weights = prepare(self, model, x, y, weights)
        value, result, _ = _evaluate(self, unfreeze(model), x, y, weights)
        if throw:
            return raise_on_failure(value, result)
        return jnp.where(is_usable(result), value, jnp.nan)


def prepare(objective: AbstractObjective, model: KernelMachine, x: Any, y: Any, weights: Any):
    """The data of an objective as arrays of the model's precision, after all checks.

    **Arguments:** `objective`, a criterion or another objective; `model`; `x`, `y`, `weights`, the data.

    **Returns:** inputs, labels or targets, and weights.
    """
    if not isinstance(objective, AbstractObjective):
        raise TypeError(
            f"`criterion` must be one of `jaxsvm.criteria`, such as `LaplaceEvidence()`, not {objective!r}"
        )
    x, y, weights = as_data(model, x, y, weights)
    objective.check(model, x, y)
    return x, y, weights


@jit
def _evaluate(criterion, model, x, y, weights) -> Evaluation:
    return criterion.evaluate(model, x, y, weights)


def is_usable(result: Int[Array, "..."]):
    """Whether the fits behind a criterion satisfy their optimality conditions.

    **Arguments:** `result`, codes of `jaxsvm.RESULTS`.

    **Returns:** one truth value for each code.
    """
    return (result == RESULTS.successful) | (result == RESULTS.local_optimum)


class AbstractFitCriterion(AbstractCriterion):
    """A criterion that is a function of one fit and its Gram matrix, `score(gram, fit)`."""

    @abc.abstractmethod
    def score(self, gram: AbstractGram, fit: Fit) -> Float[Array, ""]:
        """The criterion of a fit and its Gram matrix.

        **Arguments:** `gram`, the kernel matrix of the examples, known by the operations of
        `jaxsvm.gram.AbstractGram`; `fit`, the solution.

        **Returns:** a number.
        """

    def evaluate(self, model, x, y, weights, memory=None):
        """Fit, then score."""
        gram = exact_gram(model.kernel, x)
        fitted = fit_gram(model, gram, x, y, weights, memory)
        return evaluation(self.score(gram, fitted), fitted.result, memory_of(fitted))


def memory_of(fitted: Fit) -> Start:
    """Where the next fit nearby can start.

    **Arguments:** `fitted`, a fit.

    **Returns:** its coefficients and offset, without derivatives.
    """
    return jax.lax.stop_gradient(Start(fitted.dual, fitted.offset))


def evaluation(value, result, memory) -> Evaluation:
    """An evaluation; a value that is not finite although the fit went well counts as a failure.

    **Arguments:** `value`, the criterion; `result`, the code of the fit; `memory`, for the next evaluation.

    **Returns:** an `Evaluation`.
    """
    broken = ~jnp.isfinite(value) & is_usable(result)
    code = jnp.where(broken, RESULTS.factorization_failed, result).astype(jnp.int32)
    return Evaluation(value, code, memory)


def require_loss(
    criterion: AbstractCriterion,
    model: KernelMachine,
    losses: type[AbstractLoss] | tuple[type[AbstractLoss], ...],
    hint: str,
) -> None:
    """Raise unless the model has one of the losses that the criterion is defined for."""
    if not isinstance(model.loss, losses):
        kinds = losses if isinstance(losses, tuple) else (losses,)
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ValueError(
            f"{type(criterion).__name__} needs the loss {names}, but the model has "
            f"{type(model.loss).__name__}: {hint}"
        )


def mean(values: Float[Array, " n"], weights: Float[Array, " n"]) -> Float[Array, ""]:
    """The weighted mean over examples, for which a weight of two is a repeated row.

    **Arguments:** `values`, one for each example; `weights` of the examples.

    **Returns:** a number.
    """
    return jnp.sum(jnp.where(weights > 0, weights * values, 0.0)) / jnp.sum(weights)

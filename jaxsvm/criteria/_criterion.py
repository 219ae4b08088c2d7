"""Objectives, which a search minimizes, and criteria: objectives with a value for every model."""

import abc
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._fit import Fit, as_data, fit_gram
from .._machine import KernelMachine
from ..approximations import EXACT, AbstractApproximation, Exact, Representation, represent
from ..gram import AbstractGram
from ..hyperparameters import join_frozen, unfreeze
from ..kernels import AbstractKernel
from ..losses import AbstractLoss
from ..results import RESULTS, raise_on_failure
from ..runtime import jit
from ..solvers import Start


class Data(NamedTuple):
    """The examples of a search, and the values of the frozen hyperparameters.

    `x`, `y` and `weights` are the inputs, labels or targets, and weights; `fixed` are the frozen values;
    `representation` is that of the kernel matrix.
    """

    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    fixed: tuple[Array, ...] = ()
    representation: Representation = EXACT

    def complete(self, model: KernelMachine) -> KernelMachine:
        """The model with all hyperparameters free, the frozen ones at their values.

        **Arguments:** `model`, whose leaves are the free hyperparameters.

        **Returns:** a `KernelMachine`.
        """
        return join_frozen(model, self.fixed)

    def gram(self, kernel: AbstractKernel) -> AbstractGram:
        """The kernel matrix of the examples.

        **Arguments:** `kernel`, that of a model without frozen parameters.

        **Returns:** the matrix, through the operations of `jaxsvm.gram.AbstractGram`.
        """
        return self.representation.matrix(kernel, self.x).gram


class Observation(NamedTuple):
    """The value of an objective at a model, with its gradient.

    `value` is NaN if only the gradient is known. `gradient` and `standard_error` have the structure of the
    model; the latter is None for a gradient without noise. `result` is a code of `jaxsvm.RESULTS`,
    `memory` is the warm start of the next observation, `info` holds numbers for the history. If several
    chains estimate the gradient, `by_chain` has the estimate of each, along a leading axis.
    """

    value: Float[Array, ""]
    gradient: KernelMachine
    standard_error: KernelMachine | None
    result: Int[Array, ""]
    memory: Any
    info: dict[str, Float[Array, ""]]
    by_chain: KernelMachine | None = None


class Traits(NamedTuple):
    """How a search must treat an objective.

    `has_value` is false if only gradients are known; `is_random` is true if the objective needs a key.
    `steps_at_once` is the number of steps between two checks by the host, `attempts` how often a failed
    observation is repeated with a new memory, `max_failures` the number of successive failures that a
    search tolerates, `default_steps` the default limit on steps, and `warning` the category of warnings
    about its problems. `scale` says what the value is, so that a prior can be added to it: minus a log
    likelihood of all examples (`"total"`), a mean over the examples (`"mean"`), or a mean of squares
    (`"squares"`). `chains` is the number of chains that estimate the gradient, one for a gradient without
    noise. A search along noisy gradients ends at the mean of the models whose values along the path
    are within `averaged` of the lowest; zero stands for the last model.
    """

    has_value: bool = True
    is_random: bool = False
    steps_at_once: int = 10
    attempts: int = 0
    max_failures: int = 12  # after each of them L-BFGS tries a shorter step
    default_steps: int = 200
    warning: type[Warning] = UserWarning
    scale: Literal["total", "mean", "squares"] = "mean"
    chains: int = 1
    averaged: float = 0.0


class AbstractObjective(eqx.Module):
    """What `jaxsvm.select` minimizes.

    A criterion is an objective: `jax.value_and_grad` gives its value and gradient. `jaxsvm.evidence.Sampled`
    is one whose gradient comes from chains.
    """

    @property
    @abc.abstractmethod
    def traits(self) -> Traits:
        """How a search must treat the objective."""

    @abc.abstractmethod
    def check(self, model: KernelMachine, x: Float[Array, "n d"], y: Float[Array, " n"]) -> None:
        """Raise an error if the objective is not defined for this model or these data.

        **Arguments:** `model`, the kernel machine; `x`, `y`, the data.
        """

    @abc.abstractmethod
    def prepare(self, model: KernelMachine, data: Data, key: Any) -> Self:
        """The objective with everything that stays fixed during a search, such as landmarks.

        **Arguments:** `model`, where the search begins; `data`; `key`, a PRNG key, or None.

        **Returns:** an objective of the same kind.
        """

    @abc.abstractmethod
    def init(self, model: KernelMachine, data: Data, key: Any) -> Any:
        """The memory before the first observation.

        **Arguments:** `model`; `data`; `key`, a PRNG key.

        **Returns:** a pytree of arrays.
        """

    @abc.abstractmethod
    def observe(self, model: KernelMachine, data: Data, memory: Any, key: Any) -> Observation:
        """The value of the objective at a model, with its gradient.

        **Arguments:** `model`, whose leaves are the free hyperparameters; `data`; `memory`, returned with the
        previous observation; `key`, a PRNG key.

        **Returns:** an `Observation`.
        """

    @abc.abstractmethod
    def compare(self, model: KernelMachine, data: Data, key: Any) -> float:
        """A value for comparing end points, for objectives that have only gradients.

        **Arguments:** `model`, an end point; `data`; `key`, a PRNG key.

        **Returns:** a number, the smaller the better, or NaN.
        """

    @abc.abstractmethod
    def problems(
        self, model: KernelMachine, info: Mapping[str, np.ndarray], end: int
    ) -> tuple[str, ...]:
        """Warnings about a search.

        **Arguments:** `model`, its end point; `info`, numbers of all its steps; `end`, the number of the
        step that reached the end point.

        **Returns:** sentences that say what to do; none if nothing is wrong.
        """


class Evaluation(NamedTuple):
    """A criterion's `value`, the `result` code of the fits behind it, and a `memory` for the next ones."""

    value: Float[Array, ""]
    result: Int[Array, ""]
    memory: Any


class AbstractCriterion(AbstractObjective):
    """A number to minimize: `criterion(model, x, y)`, a pure and differentiable function of the model.

    To write your own criterion, define `check` and `evaluate`; `jax.value_and_grad` does the rest.
    """

    @abc.abstractmethod
    def evaluate(self, model: KernelMachine, data: Data, memory: Any = None) -> Evaluation:
        """The criterion for data that have been checked.

        **Arguments:**

        - `model`: the kernel machine, without frozen parameters.
        - `data`: the examples; `data.gram(model.kernel)` is their kernel matrix.
        - `memory`: returned by an earlier evaluation nearby, as a warm start, or None.

        **Returns:** an `Evaluation`: the value, a result code, and the memory for the next one.
        """

    @property
    def traits(self) -> Traits:
        return Traits()

    def prepare(self, model: KernelMachine, data: Data, key: Any) -> Self:
        return self

    def init(self, model: KernelMachine, data: Data, key: Any) -> Any:
        # a fit that starts from zeros is a cold start
        shapes = jax.eval_shape(lambda: self.evaluate(data.complete(model), data).memory)
        return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    def observe(self, model: KernelMachine, data: Data, memory: Any, key: Any) -> Observation:
        def value_of(model):
            result = self.evaluate(data.complete(model), data, memory)
            return result.value, result

        (value, result), gradient = jax.value_and_grad(value_of, has_aux=True)(model)
        return Observation(value, gradient, None, result.result, result.memory, {})

    def compare(self, model: KernelMachine, data: Data, key: Any) -> float:
        return float(self.evaluate(data.complete(model), data).value)

    def problems(
        self, model: KernelMachine, info: Mapping[str, np.ndarray], end: int
    ) -> tuple[str, ...]:
        return ()

    def __call__(
        self,
        model: KernelMachine,
        x: Any,
        y: Any,
        *,
        weights: Any = None,
        approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
        throw: bool = True,
    ) -> Float[Array, ""]:
        """The criterion of a model on the data; smaller is better.

        **Arguments:**

        - `model`: the kernel machine.
        - `x`, `y`: inputs, one row for each example, and labels -1/+1 or targets.
        - `weights`: one for each example, default one.
        - `approximation`: how to represent the kernel matrix, as for `jaxsvm.fit`. A choice of landmarks
          that depends on the hyperparameters has no derivative: for a gradient along a path, pass the same
          `jaxsvm.approximations.represent(...)` everywhere.
        - `throw`: whether to raise if a fit fails; otherwise the value is NaN.

        **Returns:** a number, differentiable by `jax.grad` except where the class says otherwise.
        """
        x, y, weights = prepare(self, model, x, y, weights)
        data = Data(x, y, weights, representation=represent(approximation, model, x))
        value, result, _ = _evaluate(self, unfreeze(model), data)
        if throw:
            return raise_on_failure(value, result)
        return jnp.where(is_usable(result), value, jnp.nan)


def prepare(
    objective: AbstractObjective, model: KernelMachine, x: Any, y: Any, weights: Any
) -> tuple[Array, Array, Array]:
    """Check the data of an objective, and convert them to arrays of the model's precision.

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
def _evaluate(criterion, model, data) -> Evaluation:
    return criterion.evaluate(model, data)


def is_usable(result: Int[Array, "..."]) -> Array:
    """Whether fits satisfy their optimality conditions, so that criteria of them can be used.

    **Arguments:** `result`, codes of `jaxsvm.RESULTS`.

    **Returns:** one boolean for each code.
    """
    return (result == RESULTS.successful) | (result == RESULTS.local_optimum)


class AbstractFitCriterion(AbstractCriterion):
    """A criterion that is a function of one fit and its Gram matrix, `of_fit(gram, fit)`."""

    @abc.abstractmethod
    def of_fit(self, gram: AbstractGram, fit: Fit) -> Float[Array, ""]:
        """The criterion of a fit and its Gram matrix.

        **Arguments:** `gram`, the kernel matrix of the examples, through the operations of
        `jaxsvm.gram.AbstractGram`; `fit`, the solution.

        **Returns:** a number.
        """

    def evaluate(self, model: KernelMachine, data: Data, memory: Any = None) -> Evaluation:
        gram = data.gram(model.kernel)
        fitted = fit_gram(model, gram, data.x, data.y, data.weights, memory)
        return evaluation(self.of_fit(gram, fitted), fitted.result, memory_of(fitted))


def memory_of(fitted: Fit) -> Start:
    """The warm start that a fit gives to the next fit nearby.

    **Arguments:** `fitted`, a fit.

    **Returns:** its coefficients and offset, without derivatives.
    """
    return jax.lax.stop_gradient(Start(fitted.dual, fitted.offset))


def evaluation(value: Array, result: Array, memory: Any) -> Evaluation:
    """An `Evaluation`, which is a failure if the fit succeeded but the value is not finite.

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
    """The weighted mean over examples; a weight of two is a repeated row.

    **Arguments:** `values`, one for each example; `weights` of the examples.

    **Returns:** a number.
    """
    return jnp.sum(jnp.where(weights > 0, weights * values, 0.0)) / jnp.sum(weights)

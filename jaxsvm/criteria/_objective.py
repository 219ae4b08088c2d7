"""What a search minimizes: anything that can be observed at a model, with a gradient."""

import abc
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int

from .._machine import KernelMachine
from .._parameters import join_frozen


class Data(NamedTuple):
    """The examples of a search, and the values of the frozen hyperparameters.

    `x`, `y` and `weights` are the inputs, labels or targets, and weights; `fixed` are the frozen values.
    """

    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    fixed: tuple[Array, ...] = ()

    def complete(self, model: KernelMachine) -> KernelMachine:
        """The model with all hyperparameters free, the frozen ones at their values.

        **Arguments:** `model`, whose leaves are the hyperparameters that are searched.

        **Returns:** a `KernelMachine`.
        """
        return join_frozen(model, self.fixed)


class Observation(NamedTuple):
    """What an objective shows at a model.

    `value` is NaN where only the gradient is known. `gradient` and `standard_error` have the structure of the
    model; the second is None for a gradient without noise. `result` is a code of `jaxsvm.RESULTS`,
    `memory` is what the next observation nearby begins with, `info` holds numbers for the history.
    """

    value: Float[Array, ""]
    gradient: KernelMachine
    standard_error: KernelMachine | None
    result: Int[Array, ""]
    memory: Any
    info: dict[str, Float[Array, ""]]


class Traits(NamedTuple):
    """How a search has to treat an objective.

    `has_value` says whether values are known, or gradients alone; `is_random`, whether it needs a key.
    `steps_at_once` is the number of steps between two looks of the host, `attempts` how often a failed
    observation is repeated with a new memory, `most_failures` how many failures in a row a search
    survives, `default_steps` the limit of steps unless another is given, and `warning` the category of
    warnings about its problems.
    """

    has_value: bool = True
    is_random: bool = False
    steps_at_once: int = 10
    attempts: int = 0
    most_failures: int = 12  # L-BFGS goes back from each of them
    default_steps: int = 200
    warning: type[Warning] = UserWarning


class AbstractObjective(eqx.Module):
    """What `jaxsvm.select` minimizes.

    Every criterion is an objective through `jax.value_and_grad`; `jaxsvm.evidence.Sampled` is one through its
    chains.
    """

    @property
    @abc.abstractmethod
    def traits(self) -> Traits:
        """How a search has to treat it."""

    @abc.abstractmethod
    def check(self, model: KernelMachine, x: Float[Array, "n d"], y: Float[Array, " n"]) -> None:
        """Raise a clear error where the objective is not defined for this model or these data.

        **Arguments:** `model`, the kernel machine; `x`, `y`, the data.
        """

    @abc.abstractmethod
    def prepare(self, model: KernelMachine, data: Data, key: Any) -> Self:
        """The objective with all that is fixed once for a search, such as landmarks.

        **Arguments:** `model`, where the search begins; `data`; `key`, of JAX's random numbers, or None.

        **Returns:** an objective of the same kind.
        """

    @abc.abstractmethod
    def init(self, model: KernelMachine, data: Data, key: Any) -> Any:
        """The memory before the first observation.

        **Arguments:** `model`; `data`; `key`, of JAX's random numbers.

        **Returns:** a pytree of arrays.
        """

    @abc.abstractmethod
    def observe(self, model: KernelMachine, data: Data, memory: Any, key: Any) -> Observation:
        """Look at a model.

        **Arguments:** `model`, whose leaves are the hyperparameters that are searched; `data`, with
        `data.complete(model)`; `memory`, of the observation before; `key`, of JAX's random numbers.

        **Returns:** an `Observation`.
        """

    @abc.abstractmethod
    def compare(self, model: KernelMachine, data: Data, key: Any) -> float:
        """A value by which end points are compared where observations have none.

        **Arguments:** `model`, an end point; `data`; `key`, of JAX's random numbers.

        **Returns:** a number to be small, or NaN.
        """

    @abc.abstractmethod
    def problems(
        self, model: KernelMachine, info: Mapping[str, np.ndarray], end: int
    ) -> tuple[str, ...]:
        """What is wrong with a search, in words.

        **Arguments:** `model`, its end point; `info`, numbers of all its steps; `end`, the number of the
        step at which it found the end point.

        **Returns:** sentences that say what to do; none if nothing is wrong.
        """

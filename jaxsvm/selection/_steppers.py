"""How a search moves: by an optimizer of optax along gradients, or by a greedy random walk."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from .._machine import KernelMachine
from .._parameters import free_parameters, is_positive
from .._results import RESULTS
from ..criteria import (
    AbstractCriterion,
    AbstractObjective,
    Data,
    Evaluation,
    Observation,
    is_usable,
)
from ..optimizers import GreedyWalk
from ._coordinates import clip


class Limits(NamedTuple):
    """The lowest and the highest model that the bounds allow, in unconstrained leaves."""

    low: KernelMachine
    high: KernelMachine


class Look(NamedTuple):
    """An observation, where it was made, whether it can be used, and whether the stepper is done.

    `gradient` is the part of the observed gradient that does not lead out of the bounds, zero where the
    observation failed; NaN for a stepper without gradients.
    """

    model: KernelMachine
    seen: Observation
    gradient: KernelMachine
    is_sound: Bool[Array, ""]
    has_arrived: Bool[Array, ""]


class AbstractStepper(eqx.Module):
    """Looks at the objective, then moves on."""

    @abc.abstractmethod
    def check(self, objective: AbstractObjective, model: KernelMachine) -> None:
        """Raise a clear error where the stepper cannot minimize this objective."""

    @abc.abstractmethod
    def init(self, model: KernelMachine, key: Any) -> Any:
        """The state before the first step."""

    @abc.abstractmethod
    def look(
        self,
        objective: AbstractObjective,
        data: Data,
        limits: Limits,
        model: KernelMachine,
        memory: Any,
        state: Any,
        is_first: Bool[Array, ""],
        key: Any,
    ) -> tuple[Look, Any]:
        """Observe the objective at the model, or near it; the look, and the next state."""

    @abc.abstractmethod
    def move(
        self,
        objective: AbstractObjective,
        data: Data,
        limits: Limits,
        look: Look,
        memory: Any,
        state: Any,
    ) -> tuple[KernelMachine, Any]:
        """The model to look at next, and the next state; `memory` is that before the look."""


class OptaxStepper(AbstractStepper):
    """One evaluation of value and gradient, then an update by optax."""

    optimizer: optax.GradientTransformation = eqx.field(static=True)

    def check(self, objective, model):
        """Any objective has a gradient."""

    def init(self, model, key):
        """The optimizer's own state."""
        leaves: Any = model
        return self.optimizer.init(leaves)

    def look(self, objective, data, limits, model, memory, state, is_first, key):
        """Value and gradient at the model."""
        seen = objective.observe(model, data, memory, key)
        flat, _ = ravel_pytree(seen.gradient)
        sound = is_usable(seen.result) & jnp.all(jnp.isfinite(flat))
        if objective.traits.has_value:
            sound &= jnp.isfinite(seen.value)
        # a component that leads out of the bounds does not count
        gradient = jax.tree.map(
            lambda g, leaf, low, high: jnp.where(
                ((leaf <= low) & (g > 0)) | ((leaf >= high) & (g < 0)) | ~sound, 0.0, g
            ),
            seen.gradient,
            model,
            limits.low,
            limits.high,
        )
        return Look(model, seen, gradient, sound, jnp.asarray(False)), state

    def move(self, objective, data, limits, look, memory, state):
        """Follow the optimizer's update, within the bounds."""
        arguments: dict[str, Any] = {}
        if isinstance(objective, AbstractCriterion) and objective.traits.has_value:
            arguments = {
                "value": jnp.where(look.is_sound, look.seen.value, jnp.inf),
                "grad": look.gradient,
                "value_fn": lambda model: evaluate(objective, model, data, memory).value,
            }
        # wrapped here, while tracing: the optimizer itself is what a compiled program is known by
        wrapped: Any = optax.with_extra_args_support(self.optimizer)
        updates, state = wrapped.update(look.gradient, state, look.model, **arguments)
        moved = jax.tree.map(jnp.add, look.model, updates)
        return clip(moved, limits.low, limits.high), state


class WalkState(NamedTuple):
    """The random walk: the current value, one step size for each coordinate, and the key."""

    value: Float[Array, ""]
    result: Int[Array, ""]
    sizes: Float[Array, " p"]
    key: Any


class WalkStepper(AbstractStepper):
    """The greedy random walk: one round through all coordinates, each with a Gaussian step."""

    walk: GreedyWalk

    def check(self, objective, model):
        """The walk compares values; `linear` names positive parameters."""
        if not objective.traits.has_value:
            raise ValueError(
                "`GreedyWalk` compares values, but this objective has gradients alone: choose an optimizer "
                "of optax"
            )
        names = list(free_parameters(model))
        for name in self.walk.linear:
            if name not in names:
                raise ValueError(
                    f"`linear` names `{name}`, but the free parameters are: {', '.join(names)}"
                )
            if not is_positive(model, name):
                raise ValueError(
                    f"`{name}` is not a positive parameter, which steps could be linear in"
                )

    def init(self, model, key):
        """No value so far, and all step sizes at their first."""
        flat, _ = ravel_pytree(model)
        sizes = jnp.full(flat.shape, self.walk.step, flat.dtype)
        infinity = jnp.asarray(jnp.inf, flat.dtype)
        return WalkState(infinity, jnp.zeros((), jnp.int32), sizes, key)

    def look(self, objective, data, limits, model, memory, state, is_first, key):
        """One round through all coordinates; first of all a look at the start."""
        point, unravel = ravel_pytree(model)
        ends = [ravel_pytree(tree)[0] for tree in limits]
        linear = ravel_pytree(self._linear(model))[0]

        def value_at(point, memory):
            return evaluate(objective, unravel(point), data, memory)

        def try_coordinate(carry, index):
            return self._try(value_at, ends, linear, carry, index), None

        def look_at_start():
            seen = value_at(point, memory)
            sound = is_usable(seen.result) & jnp.isfinite(seen.value)
            value = jnp.where(sound, seen.value, jnp.inf)
            return point, seen.memory, state._replace(value=value, result=seen.result)

        def go_round():
            carry = (point, memory, state)
            return jax.lax.scan(try_coordinate, carry, jnp.arange(point.shape[0]))[0]

        moved, memory, state = jax.lax.cond(is_first, look_at_start, go_round)
        sound = jnp.isfinite(state.value)
        result = jnp.where(sound, state.result, RESULTS.nonfinite)
        nothing = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), model)
        arrived = sound & (jnp.max(state.sizes, initial=0.0) < self.walk.step_tolerance)
        seen = Observation(state.value, nothing, None, result, memory, {})
        return Look(unravel(moved), seen, nothing, sound, arrived), state

    def move(self, objective, data, limits, look, memory, state):
        """The walk has moved already."""
        return look.model, state

    def _try(self, value_at, ends, linear, carry, index):
        """A Gaussian step along one coordinate, kept if and only if the value gets lower."""
        point, memory, (value, result, sizes, key) = carry
        low, high = ends
        key, draw = jax.random.split(key)
        step = sizes[index] * jax.random.normal(draw, dtype=point.dtype)
        old = point[index]
        natural = jnp.exp(old) + step
        straight = jnp.log(jnp.where(natural > 0, natural, 1.0))
        allowed = (linear[index] == 0) | (natural > 0)
        new = jnp.where(linear[index] > 0, straight, old + step)
        allowed &= (new >= low[index]) & (new <= high[index])
        trial = point.at[index].set(jnp.where(allowed, new, old))
        seen = value_at(trial, memory)
        better = allowed & is_usable(seen.result) & (seen.value < value)
        factor = self.walk.factor
        sizes = sizes.at[index].multiply(jnp.where(better, factor, 1 / factor))
        point, value, result, memory = jax.tree.map(
            lambda a, b: jnp.where(better, a, b),
            (trial, seen.value, seen.result, seen.memory),
            (point, value, result, memory),
        )
        return point, memory, WalkState(value, result, sizes, key)

    def _linear(self, model):
        """One for each coordinate that steps in natural units, else zero."""
        leaves, structure = jax.tree.flatten(model)
        marks = [
            jnp.full_like(leaf, float(name in self.walk.linear))
            for name, leaf in zip(free_parameters(model), leaves, strict=True)
        ]
        return structure.unflatten(marks)


def evaluate(objective: Any, model: KernelMachine, data: Data, memory: Any) -> Evaluation:
    """The value of a criterion, without its gradient."""
    return objective.evaluate(data.complete(model), data.x, data.y, data.weights, memory)


def as_stepper(optimizer: Any) -> AbstractStepper:
    """The stepper of an optimizer, or a clear error."""
    if isinstance(optimizer, GreedyWalk):
        return WalkStepper(optimizer)
    if isinstance(optimizer, optax.GradientTransformation):
        return OptaxStepper(optimizer)
    raise TypeError(
        f"`optimizer` must be one of optax or a `GreedyWalk`, not {type(optimizer).__name__}"
    )

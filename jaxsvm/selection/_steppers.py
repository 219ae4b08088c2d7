"""How a search moves: with an optax optimizer along gradients, or with a greedy random walk."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from .._machine import KernelMachine
from ..criteria import (
    AbstractCriterion,
    AbstractObjective,
    Data,
    Evaluation,
    Observation,
    is_usable,
)
from ..hyperparameters import free_parameters, is_positive
from ..numerics import choose
from ..optimizers import GreedyWalk
from ..results import RESULTS
from ._coordinates import clip


class Problem(NamedTuple):
    """What a search minimizes, and where.

    `low` and `high` are the lowest and the highest model within the bounds, in unconstrained leaves.
    """

    objective: AbstractObjective
    data: Data
    low: KernelMachine
    high: KernelMachine

    def evaluate(self, model: KernelMachine, memory: Any) -> Evaluation:
        """The value of a criterion, without its gradient."""
        criterion: Any = self.objective
        return criterion.evaluate(self.data.complete(model), self.data, memory)


class Look(NamedTuple):
    """An observation, the model at which it was made, and what the stepper says about it.

    `gradient` is the observed gradient without the components that lead out of the bounds, zero where the
    observation failed, and NaN for a stepper without gradients. `is_sound` says whether the observation can
    be used, `has_arrived` whether the stepper is done.
    """

    model: KernelMachine
    observation: Observation
    gradient: KernelMachine
    is_sound: Bool[Array, ""]
    has_arrived: Bool[Array, ""]


class AbstractStepper(eqx.Module):
    """Observes the objective, then moves to the next model."""

    @abc.abstractmethod
    def check(self, objective: AbstractObjective, model: KernelMachine) -> None:
        """Raise if the stepper cannot minimize this objective."""

    @abc.abstractmethod
    def init(self, model: KernelMachine, key: Any) -> Any:
        """The state before the first step."""

    @abc.abstractmethod
    def step(
        self, problem: Problem, model: KernelMachine, memory: Any, state: Any, key: Any
    ) -> tuple[Look, KernelMachine, Any]:
        """Observe the objective at the model or near it; return a `Look`, the next model and state."""


class OptaxStepper(AbstractStepper):
    """One evaluation of value and gradient, then an update by optax."""

    optimizer: optax.GradientTransformation = eqx.field(static=True)

    def check(self, objective: AbstractObjective, model: KernelMachine) -> None:
        """Accept any objective: all have a gradient."""

    def init(self, model: KernelMachine, key: Any) -> Any:
        leaves: Any = model
        return self.optimizer.init(leaves)

    def step(
        self, problem: Problem, model: KernelMachine, memory: Any, state: Any, key: Any
    ) -> tuple[Look, KernelMachine, Any]:
        look = self._look(problem, model, memory, key)
        arguments: dict[str, Any] = {}
        objective = problem.objective
        if isinstance(objective, AbstractCriterion) and objective.traits.has_value:
            arguments = {
                "value": jnp.where(look.is_sound, look.observation.value, jnp.inf),
                "grad": look.gradient,
                "value_fn": lambda model: problem.evaluate(model, memory).value,
            }
        # wrapped here, while tracing: compiled programs are identified by the optimizer itself
        wrapped: Any = optax.with_extra_args_support(self.optimizer)
        updates, state = wrapped.update(look.gradient, state, model, **arguments)
        moved = jax.tree.map(jnp.add, model, updates)
        return look, clip(moved, problem.low, problem.high), state

    def _look(self, problem: Problem, model: KernelMachine, memory, key) -> Look:
        """Value and gradient at the model."""
        observation = problem.objective.observe(model, problem.data, memory, key)
        flat, _ = ravel_pytree(observation.gradient)
        sound = is_usable(observation.result) & jnp.all(jnp.isfinite(flat))
        if problem.objective.traits.has_value:
            sound &= jnp.isfinite(observation.value)
        # drop components that lead out of the bounds
        gradient = jax.tree.map(
            lambda g, leaf, low, high: jnp.where(
                ((leaf <= low) & (g > 0)) | ((leaf >= high) & (g < 0)) | ~sound, 0.0, g
            ),
            observation.gradient,
            model,
            problem.low,
            problem.high,
        )
        return Look(model, observation, gradient, sound, jnp.asarray(False))


class WalkState(NamedTuple):
    """The random walk: the current value (infinite at first), a step size per coordinate, and the key."""

    value: Float[Array, ""]
    result: Int[Array, ""]
    sizes: Float[Array, " p"]
    key: Any


class WalkStepper(AbstractStepper):
    """The greedy random walk: one round through all coordinates, each with a Gaussian step."""

    walk: GreedyWalk

    def check(self, objective: AbstractObjective, model: KernelMachine) -> None:
        if not objective.traits.has_value:
            raise ValueError(
                "`GreedyWalk` compares values, but this objective has only gradients: use an optax "
                "optimizer"
            )
        names = list(free_parameters(model))
        for name in self.walk.linear:
            if name not in names:
                raise ValueError(
                    f"`linear` names `{name}`, but the free parameters are: {', '.join(names)}"
                )
            if not is_positive(model, name):
                raise ValueError(
                    f"`linear` names `{name}`, which is not a positive parameter: its steps are always "
                    "in natural units"
                )

    def init(self, model: KernelMachine, key: Any) -> Any:
        flat, _ = ravel_pytree(model)
        sizes = jnp.full(flat.shape, self.walk.step, flat.dtype)
        infinity = jnp.asarray(jnp.inf, flat.dtype)
        return WalkState(infinity, jnp.zeros((), jnp.int32), sizes, key)

    def step(
        self, problem: Problem, model: KernelMachine, memory: Any, state: Any, key: Any
    ) -> tuple[Look, KernelMachine, Any]:
        point, unravel = ravel_pytree(model)
        ends = [ravel_pytree(tree)[0] for tree in (problem.low, problem.high)]
        linear = ravel_pytree(self._linear(model))[0]

        def evaluate(point, memory):
            return problem.evaluate(unravel(point), memory)

        def try_coordinate(carry, index):
            return self._try(evaluate, ends, linear, carry, index), None

        def look_at_start():
            outcome = evaluate(point, memory)
            sound = is_usable(outcome.result) & jnp.isfinite(outcome.value)
            value = jnp.where(sound, outcome.value, jnp.inf)
            return point, outcome.memory, state._replace(value=value, result=outcome.result)

        def go_round():
            carry = (point, memory, state)
            return jax.lax.scan(try_coordinate, carry, jnp.arange(point.shape[0]))[0]

        # a start without a finite value ends at once, so only the first step sees an infinite one
        is_first = jnp.isposinf(state.value)
        moved, memory, state = jax.lax.cond(is_first, look_at_start, go_round)
        sound = jnp.isfinite(state.value)
        result = jnp.where(sound, state.result, RESULTS.nonfinite)
        no_gradient = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), model)
        arrived = sound & (jnp.max(state.sizes, initial=0.0) < self.walk.step_tolerance)
        observation = Observation(state.value, no_gradient, None, result, memory, {})
        moved = unravel(moved)
        return Look(moved, observation, no_gradient, sound, arrived), moved, state

    def _try(self, evaluate, ends, linear, carry, index):
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
        outcome = evaluate(trial, memory)
        better = allowed & is_usable(outcome.result) & (outcome.value < value)
        factor = self.walk.factor
        sizes = sizes.at[index].multiply(jnp.where(better, factor, 1 / factor))
        point, value, result, memory = choose(
            better,
            (trial, outcome.value, outcome.result, outcome.memory),
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


def as_stepper(optimizer: Any) -> AbstractStepper:
    """The stepper of an optimizer; raise if it is neither of optax nor a `GreedyWalk`."""
    if isinstance(optimizer, GreedyWalk):
        return WalkStepper(optimizer)
    if isinstance(optimizer, optax.GradientTransformation):
        return OptaxStepper(optimizer)
    raise TypeError(
        f"`optimizer` must be an optax optimizer or a `GreedyWalk`, not {type(optimizer).__name__}"
    )

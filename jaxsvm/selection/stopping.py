"""Stopping rules: they end a search, passed to `jaxsvm.select` as `stop=`; several can be combined."""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..results import RESULTS
from ..validation import check_count, check_number, check_switch
from ._path import mean_over_chains


class Step(NamedTuple):
    """One step of a search, as the rules see it.

    `value` is the objective (NaN if it is not known, infinite if the observation failed); `gradient_norm`
    the largest component of the gradient that does not lead out of the bounds; `magnitudes` those of its
    components, less the part that is due to noise, and `magnitude` their mean; `change` the change of the
    objective since the first step, with one entry for each chain that estimates it (one in all if values are
    known); `move` the largest change of an unconstrained leaf in this step; `validation` the error on the
    validation data (NaN without them).
    `is_lowest` says whether no earlier step had a lower value, `is_sound` whether the observation can be
    used.
    """

    value: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    magnitude: Float[Array, ""]
    magnitudes: Float[Array, " p"]
    change: Float[Array, " chains"]
    move: Float[Array, ""]
    validation: Float[Array, ""]
    is_lowest: Bool[Array, ""]
    is_sound: Bool[Array, ""]


class AbstractRule(eqx.Module):
    """A reason for a search to end, and the result code it ends with."""

    code: ClassVar[RESULTS]

    @abc.abstractmethod
    def init(self, step: Step) -> Any:
        """The memory of the rule before the first step.

        **Arguments:** `step`, a `Step` with the shapes and types of those to come; its numbers mean nothing.

        **Returns:** a pytree of arrays.
        """

    @abc.abstractmethod
    def update(self, memory: Any, step: Step) -> tuple[Any, Bool[Array, ""]]:
        """Decide whether the search ends after a step.

        **Arguments:** `memory`, returned after the previous step; `step`, the present one.

        **Returns:** the memory for the next step, and whether the search should end.
        """


class SmallGradient(AbstractRule):
    """End at a minimum: no component of the gradient is larger than `tolerance * max(1, |value|)`.

    **Arguments:** `tolerance`, zero or positive.
    """

    code: ClassVar[RESULTS] = RESULTS.successful
    tolerance: float = eqx.field(static=True, default=1e-4)

    def __check_init__(self) -> None:
        check_number("tolerance", self.tolerance, least=0)

    def init(self, step: Step) -> Any:
        return ()

    def update(self, memory: Any, step: Step) -> tuple[Any, Array]:
        small = step.gradient_norm <= self.tolerance * jnp.maximum(1.0, jnp.abs(step.value))
        return memory, step.is_sound & step.is_lowest & small


class _Stalled(NamedTuple):
    reference: Float[Array, ""]  # the value when it last fell by more than the tolerance
    steps: Int[Array, ""]  # since then


class SmallChange(AbstractRule):
    """End when the value no longer falls by more than `tolerance * max(1, |value|)`.

    **Arguments:** `tolerance`, zero or positive; `patience`, the number of consecutive steps without such a
    fall.
    """

    code: ClassVar[RESULTS] = RESULTS.small_change
    tolerance: float = eqx.field(static=True, default=1e-7)
    patience: int = eqx.field(static=True, default=10)

    def __check_init__(self) -> None:
        check_number("tolerance", self.tolerance, least=0)
        check_count("patience", self.patience)

    def init(self, step: Step) -> Any:
        return _Stalled(jnp.full_like(step.value, jnp.inf), jnp.zeros((), jnp.int32))

    def update(self, memory: Any, step: Step) -> tuple[Any, Array]:
        slack = self.tolerance * jnp.maximum(1.0, jnp.abs(step.value))
        progress = step.value < memory.reference - slack
        reference = jnp.where(progress, step.value, memory.reference)
        steps = jnp.where(progress, 0, memory.steps + 1)
        return _Stalled(reference, steps), steps >= self.patience


class ValidationStalled(AbstractRule):
    """End when the error on the validation data no longer falls.

    **Arguments:** `patience`, the number of consecutive steps without a fall.
    """

    code: ClassVar[RESULTS] = RESULTS.stopped_early
    patience: int = eqx.field(static=True, default=10)

    def __check_init__(self) -> None:
        check_count("patience", self.patience)

    def init(self, step: Step) -> Any:
        return _Stalled(jnp.full_like(step.value, jnp.inf), jnp.zeros((), jnp.int32))

    def update(self, memory: Any, step: Step) -> tuple[Any, Array]:
        better = step.validation < memory.reference
        reference = jnp.where(better, step.validation, memory.reference)
        steps = jnp.where(better | jnp.isnan(step.validation), 0, memory.steps + 1)
        return _Stalled(reference, steps), steps >= self.patience


class GradientFallen(AbstractRule):
    """End when the gradient has fallen to a share of its peak [GS05, sec. IV].

    **Arguments:** `share`, between zero and one; `each`, whether each component is divided by a peak of its
    own, and the ratios are averaged. By default it is the mean magnitude of the components that has to fall
    to a share of its peak. The paper averages "normalized gradients", which can be read either way.
    """

    code: ClassVar[RESULTS] = RESULTS.small_gradient
    share: float = eqx.field(static=True, default=0.15)
    each: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        check_number("share", self.share, above=0, below=1)
        check_switch("each", self.each)

    def init(self, step: Step) -> Any:
        return jnp.zeros_like(step.magnitudes if self.each else step.magnitude)

    def update(self, memory: Any, step: Step) -> tuple[Any, Array]:
        magnitude = step.magnitudes if self.each else step.magnitude
        peak = jnp.maximum(memory, jnp.where(step.is_sound, magnitude, 0.0))
        ratios = jnp.where(peak > 0, magnitude / jnp.where(peak > 0, peak, 1.0), 0.0)
        return peak, step.is_sound & (jnp.mean(ratios) <= self.share)


class _Recent(NamedTuple):
    changes: Float[Array, "steps chains"]  # of the last steps, the oldest first
    steps: Int[Array, ""]  # since the start


class SmallGain(AbstractRule):
    """End when several steps together have gained little, or no more than noise.

    The gain is the fall of the objective over the last steps: of its values or, if only gradients are known,
    of their integral along the path. The search ends when the gain is at most `gain`, or at most its standard
    error. No decision is made before `2 * steps` steps. A step that the optimizer discards is a detour, on
    which the integral loses what it regains on the way back.

    **Arguments:** `gain`, in units of the objective (nats for a log evidence), zero or positive; `steps`, the
    number of steps.
    """

    code: ClassVar[RESULTS] = RESULTS.small_gain
    gain: float = eqx.field(static=True, default=0.1)
    steps: int = eqx.field(static=True, default=5)

    def __check_init__(self) -> None:
        check_number("gain", self.gain, least=0)
        check_count("steps", self.steps)

    def init(self, step: Step) -> Any:
        changes = jnp.zeros((self.steps, *step.change.shape), step.change.dtype)
        return _Recent(changes, jnp.zeros((), jnp.int32))

    def update(self, memory: Any, step: Step) -> tuple[Any, Array]:
        gain, error = mean_over_chains(memory.changes[0] - step.change)
        changes = jnp.concatenate([memory.changes[1:], step.change[None]])
        changes = jnp.where(step.is_sound, changes, memory.changes)
        steps = memory.steps + step.is_sound
        is_small = gain <= jnp.maximum(self.gain, error)
        return _Recent(changes, steps), step.is_sound & is_small & (steps > 2 * self.steps)


class Settled(AbstractRule):
    """End when no unconstrained hyperparameter has moved by more than `share` for several steps.

    For a positive hyperparameter the leaf is its logarithm, so `share` is a relative change.

    **Arguments:** `share`, between zero and one; `steps`, the number of consecutive steps.
    """

    code: ClassVar[RESULTS] = RESULTS.settled
    share: float = eqx.field(static=True, default=0.01)
    steps: int = eqx.field(static=True, default=5)

    def __check_init__(self) -> None:
        check_number("share", self.share, above=0, below=1)
        check_count("steps", self.steps)

    def init(self, step: Step) -> Any:
        return jnp.zeros((), jnp.int32)

    def update(self, memory: Any, step: Step) -> tuple[Any, Array]:
        quiet = step.is_sound & (step.move < self.share)
        still = jnp.where(quiet, memory + 1, 0)
        return still, still >= self.steps

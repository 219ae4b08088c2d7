"""When a search ends: rules that can be combined, passed to `jaxsvm.select` as `stop=`."""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._results import RESULTS
from ..validation import check_count, check_number


class Seen(NamedTuple):
    """What a rule sees of a step.

    `value` of the objective (NaN where it is not known, infinite where the observation failed);
    `gradient_norm`, the largest component of the gradient that does not lead out of the bounds;
    `magnitude`, the mean magnitude of its components with what noise adds taken off; `move`, the largest
    change of an unconstrained leaf in this step; `validation`, the error on validation data (NaN without
    them); `is_lowest`, whether no step before had a lower value; `is_sound`, whether the observation can
    be used.
    """

    value: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    magnitude: Float[Array, ""]
    move: Float[Array, ""]
    validation: Float[Array, ""]
    is_lowest: Bool[Array, ""]
    is_sound: Bool[Array, ""]


class AbstractRule(eqx.Module):
    """A reason for a search to end, and the result code it ends with."""

    code: ClassVar[RESULTS]

    @abc.abstractmethod
    def init(self, dtype: Any) -> Any:
        """The memory of the rule before the first step.

        **Arguments:** `dtype`, of the numbers that it will see.

        **Returns:** a pytree of arrays.
        """

    @abc.abstractmethod
    def update(self, memory: Any, seen: Seen) -> tuple[Any, Bool[Array, ""]]:
        """Look at a step.

        **Arguments:** `memory`, of the steps before; `seen`, what there is to see.

        **Returns:** the memory for the next step, and whether the search should end.
        """


class SmallGradient(AbstractRule):
    """End at a minimum: no component of the gradient is larger than `tolerance * max(1, |value|)`.

    **Arguments:** `tolerance`, zero or positive.
    """

    code: ClassVar[RESULTS] = RESULTS.successful
    tolerance: float = eqx.field(static=True, default=1e-4)

    def __check_init__(self):
        check_number("tolerance", self.tolerance, least=0)

    def init(self, dtype):
        """Nothing."""
        return ()

    def update(self, memory, seen):
        """Whether the gradient is small at the lowest value so far."""
        small = seen.gradient_norm <= self.tolerance * jnp.maximum(1.0, jnp.abs(seen.value))
        return memory, seen.is_sound & seen.is_lowest & small


class _Stalled(NamedTuple):
    reference: Float[Array, ""]  # the value when it last fell by more than the tolerance
    steps: Int[Array, ""]  # since then


class SmallChange(AbstractRule):
    """End when the value no longer falls by more than `tolerance * max(1, |value|)`.

    **Arguments:** `tolerance`, zero or positive; `patience`, the number of steps in a row.
    """

    code: ClassVar[RESULTS] = RESULTS.small_change
    tolerance: float = eqx.field(static=True, default=1e-7)
    patience: int = eqx.field(static=True, default=10)

    def __check_init__(self):
        check_number("tolerance", self.tolerance, least=0)
        check_count("patience", self.patience)

    def init(self, dtype):
        """No value so far."""
        return _Stalled(jnp.asarray(jnp.inf, dtype), jnp.zeros((), jnp.int32))

    def update(self, memory, seen):
        """Whether the value has stalled."""
        slack = self.tolerance * jnp.maximum(1.0, jnp.abs(seen.value))
        progress = seen.value < memory.reference - slack
        reference = jnp.where(progress, seen.value, memory.reference)
        steps = jnp.where(progress, 0, memory.steps + 1)
        return _Stalled(reference, steps), steps >= self.patience


class ValidationStalled(AbstractRule):
    """End when the error on the validation data no longer falls.

    **Arguments:** `patience`, the number of steps in a row.
    """

    code: ClassVar[RESULTS] = RESULTS.stopped_early
    patience: int = eqx.field(static=True, default=10)

    def __check_init__(self):
        check_count("patience", self.patience)

    def init(self, dtype):
        """No error so far."""
        return _Stalled(jnp.asarray(jnp.inf, dtype), jnp.zeros((), jnp.int32))

    def update(self, memory, seen):
        """Whether the error has stalled; it has not where there are no validation data."""
        better = seen.validation < memory.reference
        reference = jnp.where(better, seen.validation, memory.reference)
        steps = jnp.where(better | jnp.isnan(seen.validation), 0, memory.steps + 1)
        return _Stalled(reference, steps), steps >= self.patience


class GradientFallen(AbstractRule):
    """End when the mean magnitude of the gradient has fallen to a share of its peak [GS05, sec. IV].

    **Arguments:** `share`, between zero and one.
    """

    code: ClassVar[RESULTS] = RESULTS.small_gradient
    share: float = eqx.field(static=True, default=0.15)

    def __check_init__(self):
        check_number("share", self.share, above=0, below=1)

    def init(self, dtype):
        """No peak so far."""
        return jnp.zeros((), dtype)

    def update(self, memory, seen):
        """Whether the magnitude is small compared with its peak."""
        peak = jnp.maximum(memory, jnp.where(seen.is_sound, seen.magnitude, 0.0))
        return peak, seen.magnitude <= self.share * peak


class Settled(AbstractRule):
    """End when no unconstrained hyperparameter has moved by more than `share` for several steps.

    For a positive hyperparameter, whose logarithm is searched, this is a relative change.

    **Arguments:** `share`, between zero and one; `steps`, the number of steps in a row.
    """

    code: ClassVar[RESULTS] = RESULTS.settled
    share: float = eqx.field(static=True, default=0.01)
    steps: int = eqx.field(static=True, default=5)

    def __check_init__(self):
        check_number("share", self.share, above=0, below=1)
        check_count("steps", self.steps)

    def init(self, dtype):
        """No quiet step so far."""
        return jnp.zeros((), jnp.int32)

    def update(self, memory, seen):
        """Whether this and the last steps were small."""
        quiet = seen.is_sound & (seen.move < self.share)
        still = jnp.where(quiet, memory + 1, 0)
        return still, still >= self.steps

"""Fields of kernels and losses: hyperparameters stored as unconstrained leaves, read in natural units.

A positive parameter `q` is stored as the leaf `log_q`, one between 0 and 1 as `logit_q`, one between 0 and
1/2 as `half_logit_q`, and any other under its own name. A constructor converts its arguments with
`positive`, `proportion` or `half_proportion`, and `natural` declares the property `q`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from .persistence import store_as_array
from .runtime import is_traced, require_own_process
from .validation import require_unmasked

Values = ArrayLike | Sequence[float]  # of a hyperparameter: one number, or one for each input


class _Constant:
    """An array that compares and hashes by value, so that it can be static in a pytree."""

    def __init__(self, array: ArrayLike):
        self.array: np.ndarray = np.array(array)
        self.array.setflags(write=False)
        self._key = (self.array.shape, self.array.dtype.str, self.array.tobytes())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and self._key == other._key

    def __repr__(self) -> str:
        return f"{self.array}"


class Frozen(eqx.Module):
    """A parameter that is no longer a leaf, so `jax.grad`, optax and samplers skip it.

    **Arguments:** `value`, the leaf that it replaces.
    """

    constant: _Constant = eqx.field(static=True)

    def __init__(self, value: ArrayLike):
        if is_traced(value):
            raise ValueError("a traced value cannot be frozen: freeze before jit, vmap or grad")
        self.constant = _Constant(value)


store_as_array(Frozen, "frozen", lambda frozen: frozen.constant.array, Frozen)


def read(field: Any) -> Float[Array, "..."]:
    """The unconstrained value of a parameter's field, frozen or not.

    **Arguments:** `field`, the leaf or the `Frozen` in its place, such as `self.log_q`.

    **Returns:** the array.
    """
    require_own_process()
    return jnp.asarray(field.constant.array) if isinstance(field, Frozen) else field


class Natural(Protocol):
    """The type of the properties that `natural` declares: they return arrays."""

    def __get__(self, instance: Any, owner: Any = None) -> Array: ...


def natural(field: str, description: str) -> Natural:
    """Declare a property of a module that returns one of its fields in natural units.

    **Arguments:** `field`, the name of the field, such as `"log_q"`; `description`, the docstring.

    **Returns:** the property.
    """
    to_natural = transform_of(field).to_natural
    read_field = property(lambda self: to_natural(read(getattr(self, field))), doc=description)
    return cast(Natural, read_field)


def positive(value: Any, name: str, max_axes: int = 0) -> Float[Array, "..."]:
    """The leaf of a positive parameter: its logarithm.

    **Arguments:** `value`, a number or an array; `name` of the parameter, for error messages; `max_axes`, 0
    for one number, 1 if an array may have a value for each input.

    **Returns:** the leaf, to be stored in a field called `log_` and the name. Raises an error for a value
    that is not positive and finite.
    """
    return jnp.log(_checked(value, name, max_axes, lambda v: v > 0, "positive"))


def proportion(value: Any, name: str, max_axes: int = 0) -> Float[Array, "..."]:
    """The leaf of a parameter strictly between 0 and 1: its logit.

    **Arguments:** `value`, `name`, `max_axes`, as for `positive`.

    **Returns:** the leaf, to be stored in a field called `logit_` and the name.
    """
    requirement = "strictly between 0 and 1"
    inside = _checked(value, name, max_axes, lambda v: (v > 0) & (v < 1), requirement)
    return jax.scipy.special.logit(inside)


def half_proportion(value: Any, name: str, max_axes: int = 0) -> Float[Array, "..."]:
    """The leaf of a parameter strictly between 0 and 1/2: the logit of its double.

    **Arguments:** `value`, `name`, `max_axes`, as for `positive`.

    **Returns:** the leaf, to be stored in a field called `half_logit_` and the name.
    """
    requirement = "strictly between 0 and 1/2"
    inside = _checked(value, name, max_axes, lambda v: (v > 0) & (v < 0.5), requirement)
    return jax.scipy.special.logit(2 * inside)


def _checked(
    value: Any,
    name: str,
    max_axes: int,
    holds: Callable[[np.ndarray], Bool[np.ndarray, "..."]],
    requirement: str,
) -> Float[Array, "..."]:
    require_unmasked(value, f"`{name}`")
    require_own_process()
    try:
        if isinstance(value, str):  # JAX would take some strings for names of types
            raise TypeError("text")
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`{name}` must be a number or an array of numbers, not {value!r}"
        ) from error
    if not jnp.issubdtype(array.dtype, jnp.floating):
        if jnp.issubdtype(array.dtype, jnp.complexfloating) or array.dtype == bool:
            raise TypeError(f"`{name}` must be real numbers, not {array.dtype}")
        array = array.astype(jnp.result_type(float))
    elif array.weak_type:
        array = array.astype(array.dtype)
    if array.ndim > max_axes:
        wanted = "one number" if max_axes == 0 else "one number, or one for each input"
        raise ValueError(f"`{name}` must be {wanted}, but has shape {array.shape}")
    if not is_traced(array):
        values = np.asarray(array)
        if not np.all(holds(values) & np.isfinite(values)):
            raise ValueError(f"`{name}` must be {requirement} and finite, but is {values}")
    return array


class Transform(NamedTuple):
    """How a field stores a parameter.

    **Arguments:** `prefix` of the field's name; `to_natural`, a function from the leaf to natural units;
    `log_slope`, the logarithm of its derivative; `to_leaf`, its inverse, which checks values as `positive`
    does; `domain`, the open interval of values.
    """

    prefix: str
    to_natural: Callable[[Array], Array]
    log_slope: Callable[[Array], Array]
    to_leaf: Callable[[Any, str, int], Array]
    domain: tuple[float, float]


def _as_it_is(value: Any, name: str, max_axes: int) -> Array:
    return jnp.asarray(value)


def _log_slope_of_sigmoid(leaf: Array) -> Array:
    return jax.nn.log_sigmoid(leaf) + jax.nn.log_sigmoid(-leaf)


_TRANSFORMS = (
    Transform("log_", jnp.exp, lambda leaf: leaf, positive, (0.0, np.inf)),
    Transform("logit_", jax.nn.sigmoid, _log_slope_of_sigmoid, proportion, (0.0, 1.0)),
    Transform(
        "half_logit_",
        lambda leaf: jax.nn.sigmoid(leaf) / 2,
        lambda leaf: _log_slope_of_sigmoid(leaf) - jnp.log(2.0),
        half_proportion,
        (0.0, 0.5),
    ),
)
_IDENTITY = Transform("", lambda leaf: leaf, jnp.zeros_like, _as_it_is, (-np.inf, np.inf))


def transform_of(field: str) -> Transform:
    """How a field stores its parameter, by the prefix of its name.

    **Arguments:** `field`, a name such as `"log_q"`.

    **Returns:** the `Transform`; the identity for a name without one of the prefixes.
    """
    return next((t for t in _TRANSFORMS if field.startswith(t.prefix)), _IDENTITY)

"""Hyperparameters: stored as unconstrained leaves, read and set by name in natural units."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .persistence import store_as_array
from .runtime import is_traced, require_own_process
from .validation import require_unmasked

Model = TypeVar("Model")
Values = ArrayLike | Sequence[float]  # of a hyperparameter: one number, or one for each input

# A positive quantity q is stored as the leaf `log_q`, one between 0 and 1 as `logit_q`, one between 0 and
# 1/2 as `half_logit_q`; the property `q` returns it in natural units.
_TO_NATURAL = {
    "log_": jnp.exp,
    "logit_": jax.nn.sigmoid,
    "half_logit_": lambda leaf: jax.nn.sigmoid(leaf) / 2,
}


class _Constant:
    """An array that compares and hashes by value, so that it can be static in a pytree."""

    def __init__(self, array):
        self.array = np.array(array)
        self.array.setflags(write=False)
        self._key = (self.array.shape, self.array.dtype.str, self.array.tobytes())

    def __hash__(self):
        return hash(self._key)

    def __eq__(self, other):
        return isinstance(other, _Constant) and self._key == other._key

    def __repr__(self):
        return f"{self.array}"


class Frozen(eqx.Module):
    """A parameter that is no longer a leaf, so `jax.grad`, optax and samplers skip it."""

    constant: _Constant = eqx.field(static=True)


store_as_array(
    Frozen,
    "frozen",
    lambda frozen: frozen.constant.array,
    lambda array: Frozen(_Constant(array)),
)


def read(field: Any) -> Float[Array, "..."]:
    """The unconstrained value of a parameter's field, frozen or not."""
    return jnp.asarray(field.constant.array) if isinstance(field, Frozen) else field


class _Natural(Protocol):
    """A property that returns an array; the type checker knows no type of a plain `property`."""

    def __get__(self, instance: Any, owner: Any = None) -> Array: ...


def natural(field: str, description: str) -> _Natural:
    """A property of a module that returns one of its fields in natural units."""
    transform = _TO_NATURAL[_prefix(field)]
    read_field = property(lambda self: transform(read(getattr(self, field))), doc=description)
    return cast(_Natural, read_field)


def _prefix(field: str) -> str:
    return next((prefix for prefix in _TO_NATURAL if field.startswith(prefix)), "")


def positive(value: Any, name: str, max_axes: int = 0) -> Float[Array, "..."]:
    """The leaf of a positive parameter: its logarithm, as an array with at most `max_axes` axes."""
    return jnp.log(_checked(value, name, max_axes, lambda v: v > 0, "positive"))


def proportion(value: Any, name: str, max_axes: int = 0) -> Float[Array, "..."]:
    """The leaf of a parameter strictly between 0 and 1: its logit."""
    requirement = "strictly between 0 and 1"
    inside = _checked(value, name, max_axes, lambda v: (v > 0) & (v < 1), requirement)
    return jax.scipy.special.logit(inside)


def half_proportion(value: Any, name: str, max_axes: int = 0) -> Float[Array, "..."]:
    """The leaf of a parameter strictly between 0 and 1/2: the logit of its double."""
    requirement = "strictly between 0 and 1/2"
    inside = _checked(value, name, max_axes, lambda v: (v > 0) & (v < 0.5), requirement)
    return jax.scipy.special.logit(2 * inside)


_DOMAINS = {
    "": (-np.inf, np.inf),
    "log_": (0.0, np.inf),
    "logit_": (0.0, 1.0),
    "half_logit_": (0.0, 0.5),
}
_TO_LEAF = {"log_": positive, "logit_": proportion, "half_logit_": half_proportion}


def _checked(value, name, max_axes, holds, requirement) -> Float[Array, "..."]:
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


def _is_frozen(node) -> bool:
    return isinstance(node, Frozen)


def _fields(model) -> dict[str, tuple[str, tuple]]:
    """Map each dotted name to the prefix of its transform and the path of its field, in tree order."""
    entries, _ = jax.tree_util.tree_flatten_with_path(model, is_leaf=_is_frozen)
    fields = {}
    for path, _leaf in entries:
        parts = [_part(entry) for entry in path]
        prefix = _prefix(parts[-1])
        parts[-1] = parts[-1].removeprefix(prefix)
        fields[".".join(parts)] = (prefix, path)
    return fields


def _part(entry) -> str:
    for attribute in ("name", "key", "idx"):
        value = getattr(entry, attribute, None)
        if value is not None:
            return str(value)
    return str(entry)


def _get(model, path):
    for entry in path:
        if isinstance(entry, jax.tree_util.GetAttrKey):
            model = getattr(model, entry.name)
        elif isinstance(entry, jax.tree_util.SequenceKey):
            model = model[entry.idx]
        elif isinstance(entry, jax.tree_util.DictKey):
            model = model[entry.key]
        else:
            raise TypeError(f"cannot reach a parameter inside {type(model).__name__}")
    return model


def _select(model, names) -> dict[str, tuple[str, tuple]]:
    """The fields of `names`; a name stands for a parameter, or for all parameters below it."""
    fields = _fields(model)
    selected = {}
    for name in names:
        below = {k: v for k, v in fields.items() if k == name or k.startswith(name + ".")}
        if not below:
            raise ValueError(f"the model has no parameter `{name}`; it has: {', '.join(fields)}")
        selected.update(below)
    return selected


def matching(model: Any, names: Iterable[str]) -> tuple[str, ...]:
    """The full names of the parameters that `names` stand for; raises an error for an unknown name."""
    return tuple(_select(model, names))


def domain(model: Any, name: str) -> tuple[float, float]:
    """The open interval of values that a hyperparameter may take.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss; `name`, dotted as in `parameters`.

    **Returns:** both ends, such as `(0.0, inf)` for a positive parameter.
    """
    return _DOMAINS[_fields(model)[name][0]]


def is_positive(model: Any, name: str) -> bool:
    """Whether the parameter with this full name is positive, so that its leaf is its logarithm."""
    return _fields(model)[name][0] == "log_"


def parameters(model: Any) -> dict[str, Float[Array, "..."]]:
    """All hyperparameters by their dotted names, in natural units, frozen ones included.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss.

    **Returns:** a dictionary such as `{"kernel.lengthscale": ..., "loss.C": ...}`.

    **Example:**

    >>> list(jsvm.parameters(model))
    ['kernel.left.lengthscale', 'kernel.left.variance', 'kernel.right.variance', 'loss.C']
    """
    natural = {}
    for name, (prefix, path) in _fields(model).items():
        value = read(_get(model, path))
        natural[name] = _TO_NATURAL[prefix](value) if prefix else value
    return natural


def free_parameters(model: Any) -> dict[str, Float[Array, "..."]]:
    """The hyperparameters that are not frozen, in natural units and in the order of the model's leaves.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss.

    **Returns:** a dictionary, as from `parameters`.
    """
    fixed = frozen(model)
    return {name: value for name, value in parameters(model).items() if name not in fixed}


def format_parameters(model: Any) -> list[str]:
    """One line of text for each hyperparameter, such as `loss.C = 1. (frozen)`.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss.

    **Returns:** the lines.
    """
    fixed = frozen(model)
    lines = []
    for name, value in parameters(model).items():
        text = np.array2string(np.asarray(value), precision=4, max_line_width=90)
        lines.append(f"{name} = {text}{' (frozen)' if name in fixed else ''}")
    return lines


def replace(model: Model, values: Mapping[str, Any]) -> Model:
    """The same model with new values of some hyperparameters, by name and in natural units.

    **Arguments:** `model`; `values`, a mapping such as `{"loss.C": 10.0}`. Shapes must agree. A frozen
    parameter stays frozen, at its new value.

    **Returns:** a new model; the old one is unchanged.

    **Example:**

    >>> round(float(jsvm.replace(model, {"loss.C": 10.0}).loss.C), 9)
    10.0
    """
    for name, value in values.items():
        fields = _select(model, [name])
        if name not in fields:
            raise ValueError(f"`{name}` names several parameters: {', '.join(fields)}")
        prefix, path = fields[name]
        old = _get(model, path)
        current = read(old)
        to_leaf = _TO_LEAF.get(prefix, lambda value, *_: jnp.asarray(value))
        new = to_leaf(value, name, jnp.ndim(value))
        if new.shape != current.shape:
            raise ValueError(f"`{name}` has shape {current.shape}, but the value has {new.shape}")
        new = new.astype(current.dtype)
        model = _set(model, path, _freeze_leaf(new) if _is_frozen(old) else new)
    return model


def freeze(model: Model, *names: str) -> Model:
    """The same model with some hyperparameters frozen at their values.

    A frozen parameter is no longer a leaf of the model, so `jax.grad`, optax, restarts and samplers skip
    it. Its value is part of the model's static structure, so functions that you jit are compiled again for
    each frozen value (`jaxsvm.fit` is not).

    **Arguments:** `model`; `names`, dotted as in `parameters`; `"kernel"` stands for all parameters of the
    kernel.

    **Returns:** a new model.

    **Example:**

    >>> tuned = jsvm.freeze(model, "loss.C", "kernel.right")
    >>> len(jax.tree.leaves(model)), len(jax.tree.leaves(tuned))
    (4, 2)
    """
    for path in [path for _, path in _select(model, names).values()]:
        leaf = _get(model, path)
        if not _is_frozen(leaf):
            model = _set(model, path, _freeze_leaf(leaf))
    return model


def unfreeze(model: Model, *names: str) -> Model:
    """The same model with some frozen hyperparameters free again; without names, all of them.

    **Arguments:** `model`; `names`, dotted as in `parameters`.

    **Returns:** a new model.

    **Example:**

    >>> bool(jsvm.unfreeze(jsvm.freeze(model, "loss.C")) == model)
    True
    """
    if not names:
        return jax.tree.map(read, model, is_leaf=_is_frozen)
    for path in [path for _, path in _select(model, names).values()]:
        model = _set(model, path, read(_get(model, path)))
    return model


def split_frozen(model: Model) -> tuple[Model, tuple[Float[Array, "..."], ...]]:
    """Split a model into the model with zeros for its frozen values, and these values.

    Frozen values are static, so a program is compiled for each of them; split off, they can be arguments.
    """
    nodes, structure = jax.tree.flatten(model, is_leaf=_is_frozen)
    values = tuple(read(node) for node in nodes if _is_frozen(node))
    empty = [_freeze_leaf(jnp.zeros_like(read(n))) if _is_frozen(n) else n for n in nodes]
    return structure.unflatten(empty), values


def join_frozen(model: Model, values: tuple[Float[Array, "..."], ...]) -> Model:
    """The model with all parameters free, the frozen ones at the values from `split_frozen`."""
    frozen_values = iter(values)
    return jax.tree.map(
        lambda node: next(frozen_values) if _is_frozen(node) else node, model, is_leaf=_is_frozen
    )


def restore_frozen(model: Any, original: Model) -> Model:
    """The model with the frozen parameters of the original model, before `split_frozen`."""
    nodes, structure = jax.tree.flatten(model, is_leaf=_is_frozen)
    old = jax.tree.leaves(original, is_leaf=_is_frozen)
    pairs = zip(nodes, old, strict=True)
    return structure.unflatten([then if _is_frozen(then) else now for now, then in pairs])


def frozen(model: Any) -> tuple[str, ...]:
    """The names of the frozen hyperparameters.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss.

    **Returns:** a tuple of dotted names, as in `parameters`.

    **Example:**

    >>> jsvm.frozen(jsvm.freeze(model, "kernel.left"))
    ('kernel.left.lengthscale', 'kernel.left.variance')
    """
    return tuple(
        name for name, (_, path) in _fields(model).items() if _is_frozen(_get(model, path))
    )


def _freeze_leaf(leaf) -> Frozen:
    if is_traced(leaf):
        raise ValueError("a traced value cannot be frozen: freeze before jit, vmap or grad")
    return Frozen(_Constant(leaf))


def _set(model, path, value):
    return eqx.tree_at(lambda m: _get(m, path), model, value, is_leaf=_is_frozen)

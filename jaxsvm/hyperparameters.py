"""Hyperparameters by name, in natural units; frozen and free ones.

`jaxsvm` exports what users need; the other functions here are for contributors.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .fields import Frozen, Transform, read, transform_of

Model = TypeVar("Model")


def _is_frozen(node) -> bool:
    return isinstance(node, Frozen)


def _fields(model) -> dict[str, tuple[Transform, tuple]]:
    """Map each dotted name to its transform and the path of its field, in tree order."""
    entries, _ = jax.tree_util.tree_flatten_with_path(model, is_leaf=_is_frozen)
    fields = {}
    for path, _leaf in entries:
        parts = [_part(entry) for entry in path]
        transform = transform_of(parts[-1])
        parts[-1] = parts[-1].removeprefix(transform.prefix)
        fields[".".join(parts)] = (transform, path)
    return fields


def _part(entry) -> str:
    for attribute in ("name", "key", "idx"):
        value = getattr(entry, attribute, None)
        if value is not None:
            return str(value)
    return str(entry)


def _get(model: Any, path: tuple) -> Any:
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


def _select(model, names) -> dict[str, tuple[Transform, tuple]]:
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
    """The full names of the parameters that `names` stand for; raises an error for an unknown name.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss; `names`, dotted as in `parameters`; `"kernel"`
    stands for all parameters of the kernel.

    **Returns:** the names.
    """
    return tuple(_select(model, names))


def domain(model: Any, name: str) -> tuple[float, float]:
    """The open interval of values that a hyperparameter may take.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss; `name`, dotted as in `parameters`.

    **Returns:** both ends, such as `(0.0, inf)` for a positive parameter.
    """
    return _fields(model)[name][0].domain


def is_positive(model: Any, name: str) -> bool:
    """Whether a hyperparameter is positive, so that its leaf is its logarithm.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss; `name`, dotted as in `parameters`.

    **Returns:** a truth value.
    """
    return _fields(model)[name][0].prefix == "log_"


def parameters(model: Any) -> dict[str, Float[Array, "..."]]:
    """All hyperparameters by their dotted names, in natural units, frozen ones included.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss.

    **Returns:** a dictionary such as `{"kernel.lengthscale": ..., "loss.C": ...}`.

    **Example:**

    >>> list(jsvm.parameters(model))
    ['kernel.left.lengthscale', 'kernel.left.variance', 'kernel.right.variance', 'loss.C']
    """
    return {
        name: transform.to_natural(read(_get(model, path)))
        for name, (transform, path) in _fields(model).items()
    }


def leaves(model: Any) -> dict[str, Float[Array, "..."]]:
    """All hyperparameters of a model in unconstrained coordinates.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss.

    **Returns:** a dictionary with the names of `parameters`.
    """
    return {name: read(_get(model, path)) for name, (_, path) in _fields(model).items()}


def log_slopes(model: Any) -> dict[str, Float[Array, "..."]]:
    """`ln |dv / dleaf|` of each hyperparameter v, which turns densities of values into those of leaves.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss.

    **Returns:** a dictionary with the names of `parameters`.
    """
    return {
        name: transform.log_slope(read(_get(model, path)))
        for name, (transform, path) in _fields(model).items()
    }


def owners(model: Any, name: str) -> tuple[Any, ...]:
    """The kernels or losses that a hyperparameter belongs to, from the model down to its own.

    **Arguments:** `model`, a `KernelMachine`, kernel or loss; `name`, dotted as in `parameters`.

    **Returns:** the nodes of the tree.
    """
    path = _fields(model)[name][1]
    return tuple(_get(model, path[:depth]) for depth in range(len(path)))


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
        transform, path = fields[name]
        old = _get(model, path)
        current = read(old)
        new = transform.to_leaf(value, name, jnp.ndim(value))
        if new.shape != current.shape:
            raise ValueError(f"`{name}` has shape {current.shape}, but the value has {new.shape}")
        new = new.astype(current.dtype)
        model = _set(model, path, Frozen(new) if _is_frozen(old) else new)
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
            model = _set(model, path, Frozen(leaf))
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

    **Arguments:** `model`, a `KernelMachine`, kernel or loss.

    **Returns:** the model, and the frozen values in the order of the tree.
    """
    nodes, structure = jax.tree.flatten(model, is_leaf=_is_frozen)
    values = tuple(read(node) for node in nodes if _is_frozen(node))
    empty = [Frozen(jnp.zeros_like(read(n))) if _is_frozen(n) else n for n in nodes]
    return structure.unflatten(empty), values


def join_frozen(model: Model, values: tuple[Float[Array, "..."], ...]) -> Model:
    """The model with all parameters free, the frozen ones at the values from `split_frozen`.

    **Arguments:** `model` and `values`, as from `split_frozen`.

    **Returns:** a new model.
    """
    frozen_values = iter(values)
    return jax.tree.map(
        lambda node: next(frozen_values) if _is_frozen(node) else node, model, is_leaf=_is_frozen
    )


def restore_frozen(model: Any, original: Model) -> Model:
    """The model with the frozen parameters of the original model, before `split_frozen`.

    **Arguments:** `model`, as from `split_frozen`, possibly with other values of the free parameters;
    `original`, the model that was split.

    **Returns:** a new model.
    """
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


def _set(model, path, value):
    return eqx.tree_at(lambda m: _get(m, path), model, value, is_leaf=_is_frozen)

"""Bounds of hyperparameters and starts of a search, in the unconstrained coordinates of the optimizer."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._machine import KernelMachine
from ..criteria import PRUNED_LENGTHSCALE
from ..hyperparameters import (
    Model,
    domain,
    free_parameters,
    frozen,
    is_positive,
    parameters,
    replace,
    split_frozen,
)

Ranges = Mapping[str, tuple[Any, Any]]


def limits(model: KernelMachine, bounds: Ranges | None) -> tuple[KernelMachine, KernelMachine]:
    """The bounds as two models, the lowest and the highest, in unconstrained leaves.

    **Arguments:** `model`; `bounds`, by name and in natural units, or None.

    **Returns:** two models; their leaves are infinite without a bound.
    """
    ranges = _checked(model, bounds, "bounds")
    pruned = jax.tree.leaves(_pruned(model))
    leaves, structure = jax.tree.flatten(model)
    lows, highs = [], []
    for name, leaf, is_pruned in zip(free_parameters(model), leaves, pruned, strict=True):
        for limits_of_side, beyond in ((lows, -np.inf), (highs, np.inf)):
            limit = beyond
            if name in ranges:
                limit = _limit(model, name, leaf, ranges[name], beyond)
            limits_of_side.append(jnp.where(is_pruned, beyond, limit).astype(leaf.dtype))
    return structure.unflatten(lows), structure.unflatten(highs)


def _limit(model, name, leaf, pair, beyond: float):
    """A limit as a leaf; infinite (`beyond`) at the end of the parameter's domain."""
    side = 0 if beyond < 0 else 1
    end = domain(model, name)[side]
    value = _spread(name, pair[side], leaf.shape, "bounds")
    is_open = (value == end) | (value == beyond)
    # a placeholder that is valid for the parameter, where there is no limit
    inside = np.where(is_open, np.asarray(parameters(model)[name]), value)
    position = list(free_parameters(model)).index(name)
    limit = jax.tree.leaves(replace(model, {name: inside}))[position]
    return jnp.where(is_open, beyond, limit)


def hold_pruned(
    model: KernelMachine, low: KernelMachine, high: KernelMachine
) -> tuple[KernelMachine, KernelMachine]:
    """Limits that keep the lengthscales of pruned inputs at their values."""
    pruned = _pruned(model)
    low, high = (jax.tree.map(jnp.where, pruned, model, limit) for limit in (low, high))
    return low, high


def _pruned(model):
    """Which entries of lengthscale vectors `criteria.prune` has switched off."""
    leaves, structure = jax.tree.flatten(model)
    least = np.log(PRUNED_LENGTHSCALE / 2)  # its logarithm is rounded
    marks = [
        leaf >= least if leaf.ndim == 1 and is_positive(model, name) else jnp.zeros_like(leaf, bool)
        for name, leaf in zip(free_parameters(model), leaves, strict=True)
    ]
    return structure.unflatten(marks)


def check_inside(model: KernelMachine, bounds: Ranges | None) -> None:
    """Raise if a hyperparameter of the model is outside its bounds; pruned inputs have none.

    **Arguments:** `model`; `bounds`, by name and in natural units, or None.
    """
    values = parameters(model)
    pruned = dict(zip(free_parameters(model), jax.tree.leaves(_pruned(model)), strict=True))
    for name, (lowest, highest) in _checked(model, bounds, "bounds").items():
        value = np.asarray(values[name])
        slack = 1e-6 * np.abs(value)  # natural units come from rounded logarithms
        low, high = (_spread(name, end, value.shape, "bounds") for end in (lowest, highest))
        outside = (value < low - slack) | (value > high + slack)
        if (outside & ~np.asarray(pruned[name])).any():
            raise ValueError(
                f"the start `{name}` = {value} is outside its bounds ({lowest}, {highest}): change the model "
                "or the bounds"
            )


def draw_starts(
    model: KernelMachine,
    starts: Ranges | KernelMachine | float,
    bounds: Ranges | None,
    restarts: int,
    key: Any,
) -> KernelMachine:
    """Draw the models that a search starts from, stacked along the leading axis of each leaf.

    **Arguments:** `model`, `starts`, `bounds`, `restarts`: as for `jaxsvm.select`; `key`, a random key.

    **Returns:** the stacked models.
    """
    if isinstance(starts, KernelMachine):
        _check_stacked(model, starts, bounds, restarts)
        return starts
    low, high = hold_pruned(model, *limits(model, bounds))
    if isinstance(starts, Mapping):
        bottom, top = _ends(model, starts, bounds)

        def draw(key):
            share = _noise(jax.random.uniform, key, model)
            drawn = jax.tree.map(lambda a, b, s: a + s * (b - a), bottom, top, share)
            return clip(drawn, low, high)

        return jax.vmap(draw)(jax.random.split(key, restarts))

    def scatter(key, size):
        noise = _noise(jax.random.normal, key, model)
        moved = jax.tree.map(lambda leaf, n: leaf + size * n, model, noise)
        return clip(moved, low, high)

    keys = jax.random.split(jax.random.key(0) if key is None else key, restarts)
    sizes = jnp.full(restarts, starts).at[0].set(0.0)  # the first is the model itself
    return jax.vmap(scatter)(keys, sizes)


def _check_stacked(model, starts: KernelMachine, bounds: Ranges | None, restarts: int) -> None:
    """Raise unless the starts have the model's parameters, free and frozen, and are within the bounds."""
    if not _is_like(starts, model):
        raise ValueError(
            "`starts` must be a model of the same kernel and loss, with the same parameters frozen: the "
            f"model has {_listed(model)}, but `starts` has {_listed(starts)}"
        )
    pairs = zip(split_frozen(starts)[1], split_frozen(model)[1], strict=True)
    for name, (in_starts, in_model) in zip(frozen(model), pairs, strict=True):
        if not np.array_equal(in_starts, in_model):
            raise ValueError(
                f"`starts` and the model have different values of `{name}`, which is frozen: `unfreeze` it "
                "in both to start from several values, or freeze it at the same value"
            )
    pairs = zip(jax.tree.leaves(starts), jax.tree.leaves(model), strict=True)
    if any(stacked.shape != (restarts, *leaf.shape) for stacked, leaf in pairs):
        raise ValueError(
            f"the leaves of `starts` must have a leading axis of length {restarts}, one entry for each "
            "start"
        )
    for start in range(restarts):
        try:
            check_inside(jax.tree.map(lambda leaf, i=start: leaf[i], starts), bounds)
        except ValueError as error:
            raise ValueError(f"in entry {start} of `starts`, {error}") from None


def _is_like(starts, model) -> bool:
    """Whether both models have the same free and the same frozen parameters, at any values."""
    free, fixed = zip(*(split_frozen(each) for each in (starts, model)), strict=True)
    shapes = [[value.shape for value in values] for values in fixed]
    return shapes[0] == shapes[1] and jax.tree.structure(free[0]) == jax.tree.structure(free[1])


def _listed(model) -> str:
    fixed = frozen(model)
    return ", ".join(f"{name}{' (frozen)' if name in fixed else ''}" for name in parameters(model))


def _ends(model, starts: Ranges, bounds: Ranges | None) -> tuple[KernelMachine, KernelMachine]:
    """The models at the lower and the upper ends of the ranges of `starts`."""
    bottom = top = model
    outer = _checked(model, bounds, "bounds")
    for name, (lowest, highest) in _checked(model, starts, "starts").items():
        low, high = outer.get(name, (-np.inf, np.inf))
        if np.any(np.asarray(lowest) < np.asarray(low)) or np.any(np.asarray(highest) > high):
            raise ValueError(
                f"`starts` of `{name}` ({lowest}, {highest}) exceed its bounds ({low}, {high})"
            )
        bottom, top = _set(bottom, name, lowest), _set(top, name, highest)
    return bottom, top


def _noise(draw, key, model):
    leaves, structure = jax.tree.flatten(model)
    keys = jax.random.split(key, len(leaves))
    drawn = [draw(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    return structure.unflatten(drawn)


def clip(model: Model, low: Any, high: Any) -> Model:
    """The model with each leaf clipped to its limits.

    **Arguments:** `model`; `low`, `high`, the models returned by `limits`.

    **Returns:** a model.
    """
    return jax.tree.map(jnp.clip, model, low, high)


def _set(model, name, value):
    shape = parameters(model)[name].shape
    return replace(model, {name: _spread(name, value, shape, "starts")})


def _spread(name, value, shape, what: str) -> np.ndarray:
    """An end of a range as one number for each entry of a parameter."""
    value = np.asarray(value, float)
    if value.ndim and value.shape != shape:
        raise ValueError(
            f"`{what}` of `{name}` must be numbers or of shape {shape}, but have {value.shape}"
        )
    return np.broadcast_to(value, shape)


def _checked(model, ranges: Ranges | None, what: str) -> dict[str, tuple[Any, Any]]:
    """The ranges as a dictionary; raise unless they name free parameters and are ordered pairs."""
    names = parameters(model)
    fixed = frozen(model)
    for name, pair in (ranges or {}).items():
        if name not in names:
            raise ValueError(
                f"`{what}` names `{name}`, but the model has no such parameter; it has: {', '.join(names)}"
            )
        if name in fixed:
            raise ValueError(f"`{what}` names `{name}`, which is frozen: `unfreeze` it first")
        if len(pair) != 2 or not np.all(np.asarray(pair[0]) <= np.asarray(pair[1])):
            raise ValueError(f"`{what}` of `{name}` must be (lowest, highest), but is {pair}")
    return dict(ranges or {})

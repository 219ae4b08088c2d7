"""Bounds of hyperparameters and the starts of a selection, in the optimizer's own coordinates."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._machine import KernelMachine
from .._parameters import (
    domain,
    free_parameters,
    frozen,
    is_positive,
    parameters,
    replace,
    take_out,
)
from ..criteria import FAR

Ranges = Mapping[str, tuple[Any, Any]]


def limits(model: KernelMachine, bounds: Ranges | None) -> tuple[KernelMachine, KernelMachine]:
    """The lowest and the highest model that bounds in natural units allow, in unconstrained leaves.

    **Arguments:** `model`; `bounds`, by name, or None for none.

    **Returns:** two models.
    """
    ranges = _checked(model, bounds, "bounds")
    pruned = jax.tree.leaves(_pruned(model))
    leaves, structure = jax.tree.flatten(model)
    lows, highs = [], []
    for name, leaf, off in zip(free_parameters(model), leaves, pruned, strict=True):
        for limits_of_side, beyond in ((lows, -np.inf), (highs, np.inf)):
            limit = beyond
            if name in ranges:
                limit = _limit(model, name, leaf, ranges[name], beyond)
            limits_of_side.append(jnp.where(off, beyond, limit).astype(leaf.dtype))
    return structure.unflatten(lows), structure.unflatten(highs)


def _limit(model, name, leaf, pair, beyond: float):
    """A limit as a leaf; infinite (`beyond`) where it is the end of what the parameter can be at all."""
    side = 0 if beyond < 0 else 1
    end = domain(model, name)[side]
    value = _spread(name, pair[side], leaf.shape, "bounds")
    is_open = (value == end) | (value == beyond)
    # where there is no limit, any value that the parameter can have
    inside = np.where(is_open, np.asarray(parameters(model)[name]), value)
    position = list(free_parameters(model)).index(name)
    limit = jax.tree.leaves(replace(model, {name: inside}))[position]
    return jnp.where(is_open, beyond, limit)


def hold_pruned(
    model: KernelMachine, low: KernelMachine, high: KernelMachine
) -> tuple[KernelMachine, KernelMachine]:
    """Limits that leave no room to inputs which have been switched off, so that they stay so."""
    pruned = _pruned(model)
    low, high = (jax.tree.map(jnp.where, pruned, model, limit) for limit in (low, high))
    return low, high


def _pruned(model):
    """Which entries of a vector are at the lengthscale that `criteria.prune` gives."""
    leaves, structure = jax.tree.flatten(model)
    far = np.log(FAR / 2)  # a logarithm is rounded
    marks = [
        leaf >= far if leaf.ndim == 1 and is_positive(model, name) else jnp.zeros_like(leaf, bool)
        for name, leaf in zip(free_parameters(model), leaves, strict=True)
    ]
    return structure.unflatten(marks)


def check_inside(model: KernelMachine, bounds: Ranges | None) -> None:
    """Raise if a hyperparameter of the model is out of its bounds; inputs switched off have none.

    **Arguments:** `model`; `bounds`, by name, or None for none.
    """
    values = parameters(model)
    pruned = dict(zip(free_parameters(model), jax.tree.leaves(_pruned(model)), strict=True))
    for name, (least, most) in _checked(model, bounds, "bounds").items():
        value = np.asarray(values[name])
        slack = 1e-6 * np.abs(value)  # natural units come from rounded logarithms
        least_each, most_each = (_spread(name, end, value.shape, "bounds") for end in (least, most))
        outside = (value < least_each - slack) | (value > most_each + slack)
        if (outside & ~np.asarray(pruned[name])).any():
            raise ValueError(
                f"the start `{name}` = {value} is out of its bounds ({least}, {most}): change the model "
                "or the bounds"
            )


def draw_starts(
    model: KernelMachine,
    starts: Ranges | KernelMachine | float,
    bounds: Ranges | None,
    restarts: int,
    key,
) -> KernelMachine:
    """Stacked models to start from: the leading axis of each leaf counts the starts.

    With a number, the first start is the model itself, and the others have a Gaussian of that standard
    deviation added to each leaf. With ranges, each start is drawn uniformly between the leaves of the two
    ends (so log-uniformly for a positive parameter); what has no range stays as in the model.

    **Arguments:** `model`; `starts`, `bounds`, `restarts`: as for `jaxsvm.select`; `key`, of JAX's random
    numbers.

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
    """Raise unless these are starts of that model: the same parameters, frozen or free, in the bounds."""
    if not _is_like(starts, model):
        raise ValueError(
            "`starts` must be a model of the same kernel and loss, with the same parameters frozen: the "
            f"model has {_listed(model)}, but `starts` has {_listed(starts)}"
        )
    pairs = zip(take_out(starts)[1], take_out(model)[1], strict=True)
    for name, (given, own) in zip(frozen(model), pairs, strict=True):
        if not np.array_equal(given, own):
            raise ValueError(
                f"`starts` has another value of `{name}`, which is frozen and the same for all starts: "
                "`unfreeze` it in both to start from several, or freeze it at the same value"
            )
    pairs = zip(jax.tree.leaves(starts), jax.tree.leaves(model), strict=True)
    if any(given.shape != (restarts, *leaf.shape) for given, leaf in pairs):
        raise ValueError(
            f"`starts` must be a model whose leaves have a leading axis of {restarts}, one entry for "
            "each start"
        )
    for start in range(restarts):
        try:
            check_inside(jax.tree.map(lambda leaf, i=start: leaf[i], starts), bounds)
        except ValueError as error:
            raise ValueError(f"in entry {start} of `starts`, {error}") from None


def _is_like(starts, model) -> bool:
    """Whether both have the same free and the same frozen parameters, whatever their values."""
    free, fixed = zip(*(take_out(each) for each in (starts, model)), strict=True)
    shapes = [[value.shape for value in values] for values in fixed]
    return shapes[0] == shapes[1] and jax.tree.structure(free[0]) == jax.tree.structure(free[1])


def _listed(model) -> str:
    fixed = frozen(model)
    return ", ".join(f"{name}{' (frozen)' if name in fixed else ''}" for name in parameters(model))


def _ends(model, starts: Ranges, bounds: Ranges | None) -> tuple[KernelMachine, KernelMachine]:
    bottom = top = model
    outer = _checked(model, bounds, "bounds")
    for name, (least, most) in _checked(model, starts, "starts").items():
        low, high = outer.get(name, (-np.inf, np.inf))
        if np.any(np.asarray(least) < np.asarray(low)) or np.any(np.asarray(most) > high):
            raise ValueError(
                f"`starts` of `{name}` ({least}, {most}) reach out of its bounds ({low}, {high})"
            )
        bottom, top = _set(bottom, name, least), _set(top, name, most)
    return bottom, top


def _noise(draw, key, model):
    leaves, structure = jax.tree.flatten(model)
    keys = jax.random.split(key, len(leaves))
    drawn = [draw(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    return structure.unflatten(drawn)


def clip(model, low, high):
    """The model with each leaf moved into its limits.

    **Arguments:** `model`; `low` and `high`, models with the limits.

    **Returns:** a model.
    """
    return jax.tree.map(jnp.clip, model, low, high)


def _set(model, name, value):
    shape = parameters(model)[name].shape
    return replace(model, {name: _spread(name, value, shape, "starts")})


def _spread(name, value, shape, what: str) -> np.ndarray:
    """One number for all entries of a parameter, or one for each."""
    value = np.asarray(value, float)
    if value.ndim and value.shape != shape:
        raise ValueError(
            f"`{what}` of `{name}` must be numbers or of shape {shape}, but have {value.shape}"
        )
    return np.broadcast_to(value, shape)


def _checked(model, ranges: Ranges | None, what: str) -> dict[str, tuple[Any, Any]]:
    known = parameters(model)
    fixed = frozen(model)
    for name, pair in (ranges or {}).items():
        if name not in known:
            raise ValueError(
                f"`{what}` names `{name}`, but the model has no such parameter; it has: {', '.join(known)}"
            )
        if name in fixed:
            raise ValueError(f"`{what}` names `{name}`, which is frozen")
        if len(pair) != 2 or not np.all(np.asarray(pair[0]) <= np.asarray(pair[1])):
            raise ValueError(f"`{what}` of `{name}` must be (lowest, highest), but is {pair}")
    return dict(ranges or {})

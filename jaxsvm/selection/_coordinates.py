"""Bounds of hyperparameters and the starts of a selection, in the optimizer's own coordinates."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._parameters import frozen, parameters, replace
from ..machine import KernelMachine

Ranges = Mapping[str, tuple[Any, Any]]


def limits(model: KernelMachine, bounds: Ranges | None) -> tuple[KernelMachine, KernelMachine]:
    """The lowest and the highest model that bounds in natural units allow, in unconstrained leaves."""
    low = jax.tree.map(lambda leaf: jnp.full_like(leaf, -jnp.inf), model)
    high = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.inf), model)
    for name, (least, most) in _checked(model, bounds, "bounds").items():
        low, high = _set(low, name, least), _set(high, name, most)
    return low, high


def check_inside(model: KernelMachine, bounds: Ranges | None) -> None:
    """Raise if a hyperparameter of the model is out of its bounds."""
    values = parameters(model)
    for name, (least, most) in _checked(model, bounds, "bounds").items():
        value = np.asarray(values[name])
        slack = 1e-6 * np.abs(value)  # natural units come from rounded logarithms
        if (value < np.asarray(least) - slack).any() or (value > np.asarray(most) + slack).any():
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
    """
    if isinstance(starts, KernelMachine):
        return starts
    low, high = limits(model, bounds)
    if isinstance(starts, Mapping):
        bottom, top = _ends(model, starts, bounds)

        def draw(key):
            share = _noise(jax.random.uniform, key, model)
            return jax.tree.map(lambda a, b, s: a + s * (b - a), bottom, top, share)

        return jax.vmap(draw)(jax.random.split(key, restarts))

    def scatter(key, size):
        noise = _noise(jax.random.normal, key, model)
        moved = jax.tree.map(lambda leaf, n: leaf + size * n, model, noise)
        return clip(moved, low, high)

    keys = jax.random.split(jax.random.key(0) if key is None else key, restarts)
    sizes = jnp.full(restarts, starts).at[0].set(0.0)  # the first is the model itself
    return jax.vmap(scatter)(keys, sizes)


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
    """The model with each leaf moved into its limits."""
    return jax.tree.map(jnp.clip, model, low, high)


def _set(model, name, value):
    shape = parameters(model)[name].shape
    return replace(model, {name: np.broadcast_to(np.asarray(value, float), shape)})


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

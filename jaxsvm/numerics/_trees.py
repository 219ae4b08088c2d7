"""Pytrees of arrays: choose between two, stack several, take one out of a stack."""

from typing import Any

import jax
import jax.numpy as jnp


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """`jnp.where` for two pytrees of the same structure.

    **Arguments:** `condition`, a truth value; `yes` and `no`, the pytrees.

    **Returns:** a pytree of their structure.
    """
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def stack(trees: Any) -> Any:
    """Stack pytrees of the same structure along a new leading axis of their leaves.

    **Arguments:** `trees`, a sequence of pytrees.

    **Returns:** one pytree.
    """
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def member(stacked: Any, index: int) -> Any:
    """One of the pytrees that `stack` has joined.

    **Arguments:** `stacked`, as from `stack`; `index`, the number of the pytree.

    **Returns:** the pytree.
    """
    return jax.tree.map(lambda leaf: leaf[index], stacked)

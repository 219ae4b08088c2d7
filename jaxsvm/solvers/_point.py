"""Points on the way to a solution."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Point(NamedTuple):
    """Coefficients, offset, and the latent values `K beta + offset` that belong to them."""

    beta: Float[Array, " n"]
    offset: Float[Array, ""]
    latent: Float[Array, " n"]


def choose(condition, yes, no):
    """One of two pytrees of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)

"""Square roots that are safe to differentiate."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def safe_root(squared: Float[Array, "..."]) -> Float[Array, "..."]:
    """The square root, zero with derivative zero where its argument is zero, or negative by rounding.

    NaN stays NaN.
    """
    vanishes = squared <= 0
    return jnp.where(vanishes, 0.0, jnp.sqrt(jnp.where(vanishes, 1.0, squared)))

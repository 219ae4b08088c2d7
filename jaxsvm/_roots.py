"""Square roots that are safe to differentiate."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def safe_root(squared: Float[Array, "..."]) -> Float[Array, "..."]:
    """The square root, zero with derivative zero where its argument is zero, or negative by rounding."""
    positive = squared > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)

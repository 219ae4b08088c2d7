"""A square root that is safe to differentiate."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def safe_root(squared: Float[Array, "..."]) -> Float[Array, "..."]:
    """The square root; zero, with zero derivative, where the argument is zero or negative from rounding.

    NaN stays NaN.
    """
    vanishes = squared <= 0
    return jnp.where(vanishes, 0.0, jnp.sqrt(jnp.where(vanishes, 1.0, squared)))

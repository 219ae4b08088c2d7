"""The exact minimum along a line of a convex function whose slope is piecewise linear."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def exact_line_search(slope, first, wanted) -> Float[Array, ""]:
    """The distance in (0, 1] at which an increasing slope vanishes, one if it is not positive there."""
    last = slope(1.0)
    small = 1e-3 * jnp.abs(first)

    def body(state):
        count, low, high, slope_low, slope_high, _ = state
        secant = low - slope_low * (high - low) / (slope_high - slope_low)
        # a root near zero is a matter of orders of magnitude
        halfway = jnp.where(low > 0, jnp.sqrt(low * high), high / 64)
        middle = jnp.where(count % 3 == 2, halfway, jnp.clip(secant, low, high))
        value = slope(middle)
        return (
            count + 1,
            jnp.where(value > 0, low, middle),
            jnp.where(value > 0, middle, high),
            jnp.where(value > 0, slope_low, value),
            jnp.where(value > 0, value, slope_high),
            (jnp.abs(value) > small) & (count < 30),
        )

    zero, one = jnp.zeros_like(first), jnp.ones_like(first)
    search = wanted & (first < 0) & (last > small)
    _, low, high, slope_low, slope_high, _ = jax.lax.while_loop(
        lambda state: state[-1], body, (0, zero, one, first, last, search)
    )
    best = jnp.where(jnp.abs(slope_low) < jnp.abs(slope_high), low, high)
    return jnp.where(search, best, one)

"""Gauss-Legendre quadrature on panels, and averages over Gaussians.

All quadrature in the library uses these functions. The caller chooses the ends of the panels such that its
integrand is smooth between them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Panels end at these multiples of the standard deviation; a Gaussian has 1e-17 of its mass beyond the last.
STEPS = np.array([-8.5, -6.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 6.0, 8.5])

_NODES, _WEIGHTS = (0.5 * array for array in np.polynomial.legendre.leggauss(8))
_HALVINGS = 40
_ROOT = float(np.sqrt(2 * np.pi))


def panels(ends: Float[Array, " j"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Nodes and weights for an integral from the smallest to the largest end of the panels.

    Each panel, between two neighboring ends, has eight nodes, so the integrand should be smooth within it. A
    panel of zero width has weights of zero.

    **Arguments:** `ends`, the ends of the panels, in any order.

    **Returns:** nodes and weights.
    """
    ends = jnp.sort(ends)
    left, widths = ends[:-1], jnp.diff(ends)
    positions, shares = (array.astype(ends.dtype)[None, :] for array in (0.5 + _NODES, _WEIGHTS))
    nodes = left[:, None] + widths[:, None] * positions
    return nodes.ravel(), (widths[:, None] * shares).ravel()


def log_panels(ends: Float[Array, " j"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """The nodes of `panels` and the logarithms of their weights, without derivatives.

    With constant nodes, the derivative of a sum over them is that of the integral.

    **Arguments:** `ends`, the ends of the panels, in any order.

    **Returns:** nodes and logarithms of weights, minus infinity for an empty panel.
    """
    nodes, weights = jax.lax.stop_gradient(panels(ends))
    filled = weights > 0
    return nodes, jnp.where(filled, jnp.log(jnp.where(filled, weights, 1.0)), -jnp.inf)


def standard_normal(ends: Float[Array, " j"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Nodes and weights for an average over a standard Gaussian, `<g> = sum g(node) weight`.

    This is for bounded functions, which need no logarithms.

    **Arguments:** `ends`, the ends of the panels, which must cover the mass of the Gaussian.

    **Returns:** nodes and weights, without derivatives.
    """
    nodes, weights = jax.lax.stop_gradient(panels(ends))
    return nodes, weights * jnp.exp(-(nodes**2) / 2) / _ROOT


def over_gaussian(
    ends: Float[Array, " j"], mean: Float[Array, ""] | float, deviation: Float[Array, ""] | float
) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Nodes and logarithms of weights for an average over a Gaussian.

    `<g> = int g(f) N(f; mean, deviation^2) df` is the sum of `g(node) exp(log weight)`.

    **Arguments:** `ends`, the ends of the panels, which must cover the mass of the Gaussian; `mean` and
    `deviation` of the Gaussian.

    **Returns:** nodes and logarithms of weights.
    """
    nodes, log_weights = log_panels(ends)
    log_density = -(((nodes - mean) / deviation) ** 2) / 2
    return nodes, log_weights + log_density - jnp.log(deviation * _ROOT)


def peak(
    slope: Callable[[Float[Array, ""]], Float[Array, ""]],
    center: Float[Array, ""],
    deviation: Float[Array, ""],
) -> Float[Array, ""]:
    """Where `exp(-L(f))` times a Gaussian is largest, for a convex L.

    The slope `L'` never decreases, so the solution of `f = center - deviation^2 L'(f)` is between the center
    and `center - deviation^2 L'(center)`.

    **Arguments:** `slope`, the function `L'`; `center` and `deviation` of the Gaussian.

    **Returns:** the location of the maximum.
    """
    end = center - deviation**2 * slope(center)

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        rising = (middle - center) / deviation**2 + slope(middle) < 0
        return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

    ends = (jnp.minimum(center, end), jnp.maximum(center, end))
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, ends)
    return (low + high) / 2

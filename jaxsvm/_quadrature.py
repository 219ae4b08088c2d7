"""Integrals by Gauss and Legendre's rule on panels, and averages over Gaussians.

All quadrature of the library is made of these functions. A caller chooses the ends of the panels, so that
its integrand is smooth between them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Multiples of the standard deviation at which panels end: beyond the last a Gaussian has 1e-17 of its mass.
STEPS = np.array([-8.5, -6.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 6.0, 8.5])

_NODES, _WEIGHTS = (0.5 * array for array in np.polynomial.legendre.leggauss(8))
_HALVINGS = 40
_ROOT = float(np.sqrt(2 * np.pi))


def panels(ends: Float[Array, " j"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Nodes and weights for an integral between the least and the largest of some places.

    Eight nodes lie between each two neighbours, which should be so near that the integrand is smooth
    between them; places that coincide have weights of zero.

    **Arguments:** `ends`, of the panels, in any order.

    **Returns:** nodes and weights.
    """
    ends = jnp.sort(ends)
    left, widths = ends[:-1], jnp.diff(ends)
    places, shares = (array.astype(ends.dtype)[None, :] for array in (0.5 + _NODES, _WEIGHTS))
    nodes = left[:, None] + widths[:, None] * places
    return nodes.ravel(), (widths[:, None] * shares).ravel()


def log_panels(ends: Float[Array, " j"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """The nodes of `panels` and the logarithms of their weights, as constants.

    If the nodes stay, the derivative of a sum over them is that of the integral.

    **Arguments:** `ends`, of the panels, in any order.

    **Returns:** nodes and logarithms of weights, minus infinity for an empty panel.
    """
    nodes, weights = jax.lax.stop_gradient(panels(ends))
    filled = weights > 0
    return nodes, jnp.where(filled, jnp.log(jnp.where(filled, weights, 1.0)), -jnp.inf)


def standard_normal(ends: Float[Array, " j"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Nodes and weights for an average over a standard Gaussian, `<g> = sum g(node) weight`.

    For bounded functions, which need no logarithms.

    **Arguments:** `ends`, of the panels, which cover the Gaussian as far as it matters.

    **Returns:** nodes and weights, as constants.
    """
    nodes, weights = jax.lax.stop_gradient(panels(ends))
    return nodes, weights * jnp.exp(-(nodes**2) / 2) / _ROOT


def over_gaussian(
    ends: Float[Array, " j"], mean: Float[Array, ""] | float, deviation: Float[Array, ""] | float
) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Nodes and logarithms of weights for an average over any Gaussian.

    `<g> = int g(f) N(f; mean, deviation^2) df` is the sum of `g(node) exp(log weight)`.

    **Arguments:** `ends`, of the panels, which cover the Gaussian as far as it matters; `mean` and
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

    **Returns:** the place.
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

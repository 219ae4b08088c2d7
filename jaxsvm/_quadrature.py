"""Integrals by Gauss and Legendre's rule on panels."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_NODES, _WEIGHTS = (0.5 * array for array in np.polynomial.legendre.leggauss(8))


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

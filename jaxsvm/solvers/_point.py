"""Points on the way to a solution."""

from typing import NamedTuple

from jaxtyping import Array, Float


class Point(NamedTuple):
    """Coefficients, offset, and the latent values `K beta + offset` that belong to them."""

    beta: Float[Array, " n"]
    offset: Float[Array, ""]
    latent: Float[Array, " n"]

"""Kernels that ignore the inputs: a constant, and white noise."""

from typing import ClassVar

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..fields import Natural, natural, positive
from ._algebra import AbstractSpectral
from ._spectrum import Waves


class Constant(AbstractSpectral):
    """The constant kernel `k(x, x') = variance`: a random offset of that variance.

    It takes the place of a penalized offset in a kernel machine: the term `k_off` of [GS03, eq. 8].

    **Arguments:** `variance`, positive.
    """

    log_variance: Float[Array, ""]

    def __init__(self, variance: ArrayLike = 1.0):
        self.log_variance = positive(variance, "variance")

    variance: ClassVar[Natural] = natural("log_variance", "The variance of the offset.")

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        return jnp.broadcast_to(self.variance, (x1.shape[0], x2.shape[0]))

    def diagonal(self, x: Array) -> Array:
        return jnp.broadcast_to(self.variance, (x.shape[0],))

    def waves(self) -> tuple[Waves, ...]:
        return (Waves(self.variance),)


class White(AbstractSpectral):
    """White noise: `variance` for an example with itself, zero for any two different examples.

    Two examples differ even where their inputs coincide, so `gram` has the variance on its diagonal and
    `cross` is zero. As input noise of a classifier: [OW00, eq. 8.16].

    **Arguments:** `variance`, positive.
    """

    log_variance: Float[Array, ""]

    def __init__(self, variance: ArrayLike = 1.0):
        self.log_variance = positive(variance, "variance")

    variance: ClassVar[Natural] = natural("log_variance", "The variance of the noise.")

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        eye = jnp.eye(x1.shape[0], x2.shape[0], dtype=self.variance.dtype)
        return self.variance * eye if same else jnp.zeros_like(eye)

    def diagonal(self, x: Array) -> Array:
        return jnp.broadcast_to(self.variance, (x.shape[0],))

    def waves(self) -> tuple[Waves, ...]:
        return ()

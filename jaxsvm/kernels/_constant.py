"""Kernels that ignore the inputs: a constant, and white noise."""

from typing import ClassVar

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..fields import Natural, natural, positive
from ._algebra import AbstractKernel, AbstractSpectral, Sum
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


def varying_part(kernel: AbstractKernel) -> AbstractKernel:
    """The kernel without the `Constant` kernels among its terms.

    The variance of an offset may be many times that of the function, and says nothing about its shape.

    **Arguments:** `kernel`.

    **Returns:** a kernel; a constant one if it has no other terms.
    """
    if not isinstance(kernel, Sum):
        return kernel
    left, right = varying_part(kernel.left), varying_part(kernel.right)
    if isinstance(left, Constant):
        return right
    return left if isinstance(right, Constant) else left + right

"""Kernels of the inner product: linear and polynomial."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..fields import Natural, Values, natural, positive
from ..persistence import check_fields
from ..validation import plain
from ._algebra import AbstractKernel
from ._distances import per_input


def _inner(x1, x2, same):
    product = jnp.matmul(x1, x2.T, precision=jax.lax.Precision.HIGHEST)
    return (product + product.T) / 2 if same else product


class Linear(AbstractKernel):
    """The linear kernel `k(x, x') = sum_a variance_a x_a x'_a`.

    **Arguments:** `variance` of the weights, one number or one for each input, positive.
    """

    log_variance: Float[Array, "..."]

    def __init__(self, variance: Values = 1.0):
        self.log_variance = positive(variance, "variance", max_axes=1)

    variance: ClassVar[Natural] = natural("log_variance", "The prior variance of the weights.")

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        deviation = per_input(jnp.sqrt(self.variance), x1, "variances")
        return _inner(x1 * deviation, x2 * deviation, same)

    def diagonal(self, x: Array) -> Array:
        return jnp.sum(per_input(self.variance, x, "variances") * x**2, axis=1)


class Polynomial(AbstractKernel):
    """The polynomial kernel `k(x, x') = variance * (x . x' + shift)^degree`.

    **Arguments:** `degree`, a whole number from 1 on (fixed); `shift` and `variance`, positive.
    """

    log_shift: Float[Array, ""]
    log_variance: Float[Array, ""]
    degree: int = eqx.field(static=True)

    def __init__(self, degree: int = 2, shift: ArrayLike = 1.0, variance: ArrayLike = 1.0):
        if (problem := _problem_of_degree(degree)) is not None:
            raise ValueError(problem)
        self.degree = degree
        self.log_shift = positive(shift, "shift")
        self.log_variance = positive(variance, "variance")

    shift: ClassVar[Natural] = natural("log_shift", "The constant added to the inner product.")
    variance: ClassVar[Natural] = natural("log_variance", "The factor before the power.")

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        return self.variance * (_inner(x1, x2, same) + self.shift) ** self.degree

    def diagonal(self, x: Array) -> Array:
        return self.variance * (jnp.sum(x**2, axis=1) + self.shift) ** self.degree


def _problem_of_degree(degree: Any) -> str | None:
    if isinstance(degree, int) and not isinstance(degree, bool) and degree >= 1:
        return None
    return f"`degree` must be a whole number from 1 on, but is {plain(degree)!r}"


check_fields(Polynomial, lambda kernel: _problem_of_degree(kernel.degree))

"""Kernels that depend only on the scaled distance between two points."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..fields import Natural, Values, natural, positive
from ..numerics import safe_root
from ._algebra import AbstractSpectral
from ._distances import per_input, scale_inputs, squared_distances
from ._spectrum import Waves, log_gamma_quantile, orthogonal_normals, wave_phases

_NORMALS = 5  # for each frequency, as many as the smoothest Matern kernel needs


class AbstractStationary(AbstractSpectral):
    """`k(x, x') = variance * correlation(r^2)` with `r^2 = sum_a (x_a - x'_a)^2 / lengthscale_a^2`."""

    log_lengthscale: eqx.AbstractVar[Float[Array, "..."]]
    log_variance: eqx.AbstractVar[Float[Array, ""]]

    @abc.abstractmethod
    def correlation(self, squared: Float[Array, "n m"]) -> Float[Array, "n m"]:
        """The correlation of two points as a function of their squared scaled distance.

        **Arguments:** `squared`, distances `r^2`.

        **Returns:** as many correlations.
        """

    @abc.abstractmethod
    def frequency_scales(self, normals: Float[Array, "count 5"]) -> Float[Array, " count"]:
        """Random numbers `s` with `correlation(r^2) = E[exp(-s^2 r^2 / 2)]`.

        So `s` times a standard normal vector is a random frequency of the kernel of lengthscale 1.

        **Arguments:** `normals`, five independent standard normal numbers for each `s`.

        **Returns:** a vector.
        """

    lengthscale: ClassVar[Natural] = natural(
        "log_lengthscale",
        "The distance over which the function varies: one number, or one for each input.",
    )
    variance: ClassVar[Natural] = natural(
        "log_variance", "The variance of the function at a point."
    )

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        return self.variance * self.correlation(squared_distances(x1, x2, self.lengthscale, same))

    def diagonal(self, x: Array) -> Array:
        return jnp.broadcast_to(self.variance, (x.shape[0],))

    def waves(self) -> tuple[Waves, ...]:
        def draw(key, count, x):
            vector_key, scale_key = jax.random.split(key)
            vectors = orthogonal_normals(vector_key, count, x.shape[1], x.dtype)
            return vectors, jax.random.normal(scale_key, (count, _NORMALS), x.dtype)

        def phases(noise, x):
            vectors, normals = noise
            frequencies = self.frequency_scales(normals)[:, None] * vectors
            return wave_phases(scale_inputs(x, self.lengthscale), frequencies)

        return (Waves(self.variance, draw, phases),)


class RBF(AbstractStationary):
    """The squared-exponential kernel `variance * exp(-sum_a (x_a - x'_a)^2 / (2 lengthscale_a^2))`.

    [GS03, eq. 8].

    **Arguments:** `lengthscale`, one number or one for each input (automatic relevance
    determination); `variance`; both positive.
    """

    log_lengthscale: Float[Array, "..."]
    log_variance: Float[Array, ""]

    def __init__(self, lengthscale: Values = 1.0, variance: ArrayLike = 1.0):
        self.log_lengthscale = positive(lengthscale, "lengthscale", max_axes=1)
        self.log_variance = positive(variance, "variance")

    def correlation(self, squared: Array) -> Array:
        """`exp(-r^2 / 2)`."""
        return jnp.exp(-squared / 2)

    def frequency_scales(self, normals: Array) -> Array:
        """`s = 1`."""
        return jnp.ones_like(normals[:, 0])


class Matern12(AbstractStationary):
    """The Matern kernel of smoothness 1/2, `variance * exp(-r)`: continuous, nowhere differentiable.

    **Arguments:** `lengthscale`, one number or one for each input; `variance`; both positive.
    """

    log_lengthscale: Float[Array, "..."]
    log_variance: Float[Array, ""]

    def __init__(self, lengthscale: Values = 1.0, variance: ArrayLike = 1.0):
        self.log_lengthscale = positive(lengthscale, "lengthscale", max_axes=1)
        self.log_variance = positive(variance, "variance")

    def correlation(self, squared: Array) -> Array:
        """`exp(-r)`."""
        return jnp.exp(-safe_root(squared))

    def frequency_scales(self, normals: Array) -> Array:
        """`s^-2` has a chi-squared distribution with 1 degree of freedom."""
        return _inverse_chi(normals, 1)


class Matern32(AbstractStationary):
    """The Matern kernel of smoothness 3/2, `variance * (1 + sqrt(3) r) exp(-sqrt(3) r)`.

    **Arguments:** `lengthscale`, one number or one for each input; `variance`; both positive.
    """

    log_lengthscale: Float[Array, "..."]
    log_variance: Float[Array, ""]

    def __init__(self, lengthscale: Values = 1.0, variance: ArrayLike = 1.0):
        self.log_lengthscale = positive(lengthscale, "lengthscale", max_axes=1)
        self.log_variance = positive(variance, "variance")

    def correlation(self, squared: Array) -> Array:
        """`(1 + sqrt(3) r) exp(-sqrt(3) r)`."""
        root = safe_root(3 * squared)
        return (1 + root) * jnp.exp(-root)

    def frequency_scales(self, normals: Array) -> Array:
        """`3 s^-2` has a chi-squared distribution with 3 degrees of freedom."""
        return _inverse_chi(normals, 3)


class Matern52(AbstractStationary):
    """The Matern kernel of smoothness 5/2, `variance * (1 + s + s^2/3) exp(-s)`, `s = sqrt(5) r`.

    **Arguments:** `lengthscale`, one number or one for each input; `variance`; both positive.
    """

    log_lengthscale: Float[Array, "..."]
    log_variance: Float[Array, ""]

    def __init__(self, lengthscale: Values = 1.0, variance: ArrayLike = 1.0):
        self.log_lengthscale = positive(lengthscale, "lengthscale", max_axes=1)
        self.log_variance = positive(variance, "variance")

    def correlation(self, squared: Array) -> Array:
        """`(1 + s + s^2/3) exp(-s)`."""
        root = safe_root(5 * squared)
        return (1 + root + 5 * squared / 3) * jnp.exp(-root)

    def frequency_scales(self, normals: Array) -> Array:
        """`5 s^-2` has a chi-squared distribution with 5 degrees of freedom."""
        return _inverse_chi(normals, 5)


class RationalQuadratic(AbstractStationary):
    """A scale mixture of RBF kernels, `variance * (1 + r^2 / (2 mixture))^(-mixture)`.

    **Arguments:** `lengthscale`, one number or one for each input; `variance`; `mixture`, large for
    an RBF kernel, small for a wide mixture of lengthscales; all positive.
    """

    log_lengthscale: Float[Array, "..."]
    log_variance: Float[Array, ""]
    log_mixture: Float[Array, ""]

    def __init__(
        self, lengthscale: Values = 1.0, variance: ArrayLike = 1.0, mixture: ArrayLike = 1.0
    ):
        self.log_lengthscale = positive(lengthscale, "lengthscale", max_axes=1)
        self.log_variance = positive(variance, "variance")
        self.log_mixture = positive(mixture, "mixture")

    mixture: ClassVar[Natural] = natural("log_mixture", "The exponent of the mixture.")

    def correlation(self, squared: Array) -> Array:
        """`(1 + r^2 / (2 mixture))^(-mixture)`."""
        return jnp.exp(-self.mixture * jnp.log1p(squared / (2 * self.mixture)))

    def frequency_scales(self, normals: Array) -> Array:
        """`mixture s^2` has a gamma distribution of shape `mixture`."""
        quantile = log_gamma_quantile(ndtr(normals[:, 0]), self.mixture.astype(normals.dtype))
        return jnp.exp((quantile - jnp.log(self.mixture)) / 2)


class Periodic(AbstractSpectral):
    """The periodic kernel: the RBF kernel on a circle.

    `k(x, x') = variance * exp(-2 sum_a sin^2(pi (x_a - x'_a) / period_a) / lengthscale_a^2)`.
    `4 sin^2(t / 2)` is the squared distance of two points of the unit circle at angle `t`, so one matrix
    product of cosines and sines gives all distances.

    **Arguments:** `lengthscale` and `period`, each one number or one for each input; `variance`; all
    positive.
    """

    log_lengthscale: Float[Array, "..."]
    log_variance: Float[Array, ""]
    log_period: Float[Array, "..."]

    def __init__(self, lengthscale: Values = 1.0, variance: ArrayLike = 1.0, period: Values = 1.0):
        self.log_lengthscale = positive(lengthscale, "lengthscale", max_axes=1)
        self.log_variance = positive(variance, "variance")
        self.log_period = positive(period, "period", max_axes=1)

    lengthscale: ClassVar[Natural] = natural(
        "log_lengthscale", "The distance on the unit circle over which the function varies."
    )
    variance: ClassVar[Natural] = natural(
        "log_variance", "The variance of the function at a point."
    )
    period: ClassVar[Natural] = natural("log_period", "The period of each input.")

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        circle1 = self._on_circles(x1)
        circle2 = circle1 if same else self._on_circles(x2)
        distances = squared_distances(circle1, circle2, self._lengthscales(x1), same)
        return self.variance * jnp.exp(-distances / 2)

    def diagonal(self, x: Array) -> Array:
        return jnp.broadcast_to(self.variance, (x.shape[0],))

    def waves(self) -> tuple[Waves, ...]:
        """Those of the RBF kernel on the circles."""

        def draw(key, count, x):
            return orthogonal_normals(key, count, 2 * x.shape[1], x.dtype)

        def phases(noise, x):
            circles = scale_inputs(self._on_circles(x), self._lengthscales(x))
            return wave_phases(circles, noise)

        return (Waves(self.variance, draw, phases),)

    def _lengthscales(self, x):
        """Cosines and sines of an input share its lengthscale."""
        lengthscale = per_input(self.lengthscale, x, "lengthscales")
        return jnp.tile(jnp.broadcast_to(lengthscale, (1, x.shape[1]))[0], 2)

    def _on_circles(self, x):
        angles = 2 * jnp.pi * scale_inputs(x, self.period, "periods")
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=1)


def _inverse_chi(normals, degrees: int):
    """`s` such that `degrees s^-2` has a chi-squared distribution: a frequency has a t-distribution."""
    squares = jnp.sum(normals[:, :degrees] ** 2, axis=1)
    return jnp.sqrt(degrees / jnp.maximum(squares, jnp.finfo(squares.dtype).tiny))

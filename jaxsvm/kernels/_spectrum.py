"""Kernels as averages over random waves: `k(x, x') = sum_t variance_t E[cos(phase_t(x) - phase_t(x'))]`.

For a stationary kernel `phase(x) = w'x`, where the frequency w has the kernel's spectrum as its distribution
(Bochner's theorem).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..linalg import one_by_one


class Waves(NamedTuple):
    """One term of a kernel, `variance E[cos(phase(x) - phase(x'))]`, with the mean over random phases.

    `variance` is that of the term. `draw`, a function `(key, count, x)`, returns the random numbers of
    `count` phases, a pytree of arrays that do not depend on hyperparameters; of `x` only its shape and type
    matter. `phases`, a function `(noise, x)`, returns the phases that belong to these numbers, with one row
    for each point. Both functions are None for a term without waves, the constant `variance`.
    """

    variance: Float[Array, ""]
    draw: Callable[[Any, int, Array], Any] | None = None
    phases: Callable[[Any, Array], Array] | None = None

    def times(self, other: "Waves") -> "Waves":
        """The product of two terms: the phases are added.

        **Arguments:** `other`, the other term.

        **Returns:** a term.
        """
        variance = self.variance * other.variance
        if self.draw is None or self.phases is None:
            return other._replace(variance=variance)
        if other.draw is None or other.phases is None:
            return self._replace(variance=variance)
        draw1, draw2, phases1, phases2 = self.draw, other.draw, self.phases, other.phases

        def draw(key, count, x):
            key1, key2 = jax.random.split(key)
            return draw1(key1, count, x), draw2(key2, count, x)

        def phases(noise, x):
            return phases1(noise[0], x) + phases2(noise[1], x)

        return Waves(variance, draw, phases)

    def after(self, function: Callable[[Array], Array]) -> "Waves":
        """The same term for transformed inputs.

        **Arguments:** `function`, from a matrix of points to a matrix of transformed points.

        **Returns:** a term.
        """
        if self.draw is None or self.phases is None:
            return self
        inner_draw, inner_phases = self.draw, self.phases

        def draw(key, count, x):
            return inner_draw(key, count, function(x))

        def phases(noise, x):
            return inner_phases(noise, function(x))

        return Waves(self.variance, draw, phases)


def orthogonal_normals(key: Any, count: int, inputs: int, dtype: Any) -> Float[Array, "count d"]:
    """Standard normal vectors, in groups as large as their dimension that are orthogonal to each other.

    Each vector alone is standard normal. Averages over groups have a lower variance than over independent
    vectors (F. X. Yu and others, "Orthogonal random features", 2016).
    """
    direction_key, length_key = jax.random.split(key)
    groups = -(-count // inputs)
    matrices = jax.random.normal(direction_key, (groups, inputs, inputs), dtype)
    directions = jax.vmap(one_by_one(_orthogonal))(matrices)
    lengths = jnp.linalg.norm(
        jax.random.normal(length_key, (groups, inputs, inputs), dtype), axis=2
    )
    return (directions * lengths[:, :, None]).reshape(groups * inputs, inputs)[:count]


def _orthogonal(matrix):
    """The orthogonal factor of a matrix; with this choice of signs it has no preferred direction."""
    factor, triangle = jnp.linalg.qr(matrix)
    return (factor * jnp.sign(jnp.diag(triangle))[None, :]).T


def wave_phases(
    x: Float[Array, "n d"], frequencies: Float[Array, "count d"]
) -> Float[Array, "n count"]:
    """The phases `w_j'x_i`."""
    return jnp.matmul(x, frequencies.T, precision=jax.lax.Precision.HIGHEST)


@jax.custom_jvp
def log_gamma_quantile(
    probability: Float[Array, " count"], shape: Float[Array, ""]
) -> Float[Array, " count"]:
    """`ln s` such that `s` is a quantile of the gamma distribution of scale 1.

    It is differentiable with respect to the shape, which sampling by rejection is not.

    **Arguments:** `probability`, between 0 and 1; `shape`, positive.

    **Returns:** a vector.
    """
    kind = jnp.finfo(probability.dtype)
    inside = jnp.clip(probability, kind.tiny, 1 - kind.epsneg)
    # bounds: P(a, s) <= s^a / Gamma(a + 1), and 1 - P(a, 2 a + 2 c) <= exp(-c) by Chernoff's bound
    low = (jnp.log(inside) + jax.scipy.special.gammaln(shape + 1)) / shape
    high = jnp.log(2 * shape - 2 * jnp.log1p(-inside))

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        below = jax.scipy.special.gammainc(shape, jnp.exp(middle)) < inside
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, kind.nmant // 2, halve, (low, high))

    def improve(_, value):
        """A step of Newton's method, within the bounds."""
        excess = jax.scipy.special.gammainc(shape, jnp.exp(value)) - inside
        return jnp.clip(value - excess * _slope(value, shape), low, high)

    return jax.lax.fori_loop(0, 4, improve, (low + high) / 2)


@log_gamma_quantile.defjvp
def _log_gamma_quantile_jvp(primals, tangents):
    """`dP(a, s) = du` at `s = exp(t)`."""
    (_, shape), (in_probability, in_shape) = primals, tangents
    value = log_gamma_quantile(*primals)
    quantile = jnp.maximum(jnp.exp(value), jnp.finfo(value.dtype).tiny)
    shapes = jnp.broadcast_to(shape, value.shape)
    by_shape = jax.lax.random_gamma_grad(shapes, quantile)  # pyright: ignore[reportCallIssue]
    change = by_shape / quantile * in_shape + _slope(value, shape) * in_probability
    return value, change


def _slope(value, shape):
    """The derivative of the logarithm of a quantile with respect to the probability."""
    return jnp.exp(jax.scipy.special.gammaln(shape) + jnp.exp(value) - shape * value)

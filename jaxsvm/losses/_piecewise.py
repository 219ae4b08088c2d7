"""Convex losses made of linear and quadratic pieces: the family behind all support vector machines.

With the `excess` of an example (by how much it misses its margin, or its residual the insensitive
zone), every such loss is

    L = 0                                   for excess <= 0,
    L = excess^2 / (2 compliance)           for 0 < excess < compliance * bound,
    L = bound * excess - compliance * bound^2 / 2    beyond,

so that the dual coefficient `-dL/df` has the magnitude `clip(excess / compliance, 0, bound)`. Without
compliance it jumps at `excess = 0`; without bound it grows for ever. Fenchel's conjugate is a
quadratic on an interval, which makes the dual problem a box-constrained quadratic program.
"""

import abc
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._base import AbstractClassification, AbstractLoss, AbstractRegression


class Shape(NamedTuple):
    """The three numbers of a piecewise loss; `None` for one that it does not have.

    `dead_zone` is the largest residual without a loss, `compliance` the inverse of the curvature of the
    quadratic piece, `bound` the slope of the linear one. Compliance or bound there must be, else there
    would be no loss.
    """

    dead_zone: Float[Array, ""] | None = None
    compliance: Float[Array, ""] | None = None
    bound: Float[Array, ""] | None = None

    @property
    def like(self) -> Float[Array, ""]:
        """Any of the numbers, for its dtype."""
        return jnp.asarray(self.bound if self.compliance is None else self.compliance)


class AbstractPiecewise(AbstractLoss):
    """A convex loss of linear and quadratic pieces, given by its `shape`.

    A two-sided loss depends on the residual `y - f`, a one-sided loss on the margin `y f`.
    """

    is_convex: ClassVar[bool] = True
    is_two_sided: ClassVar[bool]

    @abc.abstractmethod
    def shape(self) -> Shape:
        """The dead zone, compliance and bound of the loss."""

    @abc.abstractmethod
    def excess(
        self, y: Float[Array, " n"], f: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The sign of the dual coefficient and the excess of each example.

        **Arguments:** `y`, labels or targets; `f`, latent values.

        **Returns:** two vectors.
        """

    @property
    def has_flat_zone(self) -> bool:
        """Whether latent values over an interval have no loss, so that solutions are sparse."""
        return not self.is_two_sided or self.shape().dead_zone is not None

    def value(self, y, f):
        """The loss `L(y, f)`."""
        _, compliance, bound = self.shape()
        excess = self._positive_excess(y, f)[1]
        if compliance is None:
            return jnp.asarray(bound) * excess
        if bound is None:
            return excess**2 / (2 * compliance)
        knee = compliance * bound
        quadratic = jnp.minimum(excess, knee) ** 2 / (2 * compliance)
        return quadratic + bound * jnp.maximum(excess - knee, 0)

    def derivative(self, y, f):
        """`dL/df`; at a kink, the subgradient of smallest magnitude."""
        sign, excess = self._positive_excess(y, f)
        _, compliance, bound = self.shape()
        if compliance is None:
            return -sign * jnp.where(excess > 0, jnp.asarray(bound), 0.0)
        magnitude = excess / compliance
        return -sign * (magnitude if bound is None else jnp.minimum(magnitude, bound))

    def curvature(self, y, f):
        """`1 / compliance` on the quadratic pieces, zero elsewhere (at a kink it is infinite)."""
        _, compliance, bound = self.shape()
        if compliance is None:
            return jnp.zeros_like(f)
        _, excess = self.excess(y, f)
        inside = excess > 0 if self.has_flat_zone else jnp.ones_like(f, dtype=bool)
        if bound is not None:
            inside &= excess < compliance * bound
        return jnp.where(inside, 1 / compliance, 0.0)

    def _positive_excess(self, y, f):
        # without a flat zone it is never negative, and `maximum` would halve its slope at zero
        sign, excess = self.excess(y, f)
        return sign, jnp.maximum(excess, 0) if self.has_flat_zone else excess

    def conjugate(self, y, dual, weights) -> Float[Array, " n"]:
        """Fenchel's conjugate `sup_f (-dual f - weights L(y, f))`, for coefficients within their bounds.

        **Arguments:** `y`, labels or targets; `dual`, coefficients; `weights` of the examples.

        **Returns:** one number for each example.
        """
        dead_zone = self.shape().dead_zone
        linear = -y * dual if dead_zone is None else dead_zone * jnp.abs(dual) - y * dual
        return linear + weighted_compliance(self, weights, dual.dtype) * dual**2 / 2

    def respond(
        self, y, f, compliance: Float[Array, " n"], bound: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
        """Dual coefficients of the loss with another compliance and bound, and which of them are free.

        With `compliance + step` at `f - step * center` this is the resolvent of the subdifferential,
        one step of the proximal-point method in the dual.

        **Arguments:** `y`, labels or targets; `f`, latent values; `compliance` and `bound`, one for each
        example.

        **Returns:** the coefficients, and which of them are free.
        """
        sign, excess = self.excess(y, f)
        magnitude = excess / compliance
        free = magnitude < bound
        if self.has_flat_zone:
            free &= magnitude > 0
        return sign * jnp.clip(magnitude, 0, bound), free

    def target(self, y, dual) -> Float[Array, " n"]:
        """What `f + compliance dual` is for a free example whose dual coefficient has that sign.

        **Arguments:** `y`, labels or targets; `dual`, coefficients.

        **Returns:** one value for each example.
        """
        dead_zone = self.shape().dead_zone
        return y if dead_zone is None else y - jnp.sign(dual) * dead_zone

    def cheaper_side(self, y, dual, bound) -> Float[Array, " n"]:
        """The direction, -1 or +1, in which leaving the edge of the flat zone costs the lesser duality gap.

        **Arguments:** `y`, labels or targets; `dual`, coefficients; `bound`, one for each example.

        **Returns:** one sign for each example.
        """
        outward = jnp.sign(dual) if self.is_two_sided else y
        return jnp.where(2 * jnp.abs(dual) < bound, outward, -outward)

    def latent_range(self, y, dual, weights) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The interval of latent values at which `-dual` is a subgradient of `weights * L`.

        One point for a free example, a half-line for one at its bound, the flat zone for a zero coefficient.

        **Arguments:** `y`, labels or targets; `dual`, coefficients; `weights` of the examples.

        **Returns:** the lower and the upper ends.
        """
        bound = weighted_bound(self, weights, dual.dtype)
        knee = weighted_compliance(self, weights, dual.dtype) * jnp.abs(dual)
        if self.is_two_sided:
            zone = self.shape().dead_zone
            knee = knee if zone is None else knee + zone
            is_zero = dual == 0
            low = jnp.where(is_zero, y - knee, y - jnp.sign(dual) * knee)
            high = jnp.where(is_zero, y + knee, low)
        else:
            is_zero = y * dual <= 0
            low = high = y * (1 - knee)
            low = jnp.where(is_zero & (y < 0), -jnp.inf, low)
            high = jnp.where(is_zero & (y > 0), jnp.inf, high)
        low = jnp.where(dual >= bound, -jnp.inf, low)
        return low, jnp.where(dual <= -bound, jnp.inf, high)

    def violation(self, y, f, dual, weights) -> Float[Array, " n"]:
        """By how much a latent value misses what its dual coefficient asks for, in units of `f`.

        **Arguments:** `y`, labels or targets; `f`, latent values; `dual`, coefficients; `weights` of the
        examples.

        **Returns:** one number for each example, zero at the solution.
        """
        low, high = self.latent_range(y, dual, weights)
        return jnp.maximum(jnp.maximum(low - f, f - high), 0.0)

    def fenchel_gap(self, y, f, dual, weights) -> Float[Array, " n"]:
        """`weights L(y, f) + conjugate(dual) + dual f`: never negative, zero at the solution.

        **Arguments:** `y`, labels or targets; `f`, latent values; `dual`, coefficients within their bounds;
        `weights` of the examples.

        **Returns:** one number for each example.
        """
        zone = self.shape().dead_zone
        side = jnp.sign(dual) if self.is_two_sided else y
        excess = side * (y - f) - (0.0 if zone is None else zone)
        # with the excess on the side of the coefficient, so that large terms cancel exactly
        compliance = weighted_compliance(self, weights, f.dtype)
        magnitude = jnp.abs(dual)
        return weights * self.value(y, f) - magnitude * (excess - compliance * magnitude / 2)


def weighted_compliance(loss: AbstractPiecewise, weights, dtype) -> Float[Array, " n"]:
    """The compliance of `weight * L` for each example; of no interest where the weight is zero.

    **Arguments:** `loss`; `weights` of the examples; `dtype` of the result.

    **Returns:** one number for each example.
    """
    compliance = loss.shape().compliance
    if compliance is None:
        return jnp.zeros_like(weights, dtype=dtype)
    return (compliance / jnp.where(weights > 0, weights, 1.0)).astype(dtype)


def weighted_bound(loss: AbstractPiecewise, weights, dtype) -> Float[Array, " n"]:
    """The bound of `weight * L` for each example: zero where the weight is zero.

    **Arguments:** `loss`; `weights` of the examples; `dtype` of the result.

    **Returns:** one number for each example.
    """
    bound = loss.shape().bound
    if bound is None:
        return jnp.where(weights > 0, jnp.inf, 0.0).astype(dtype)
    return (bound * weights).astype(dtype)


class AbstractOneSided(AbstractPiecewise):
    """A piecewise loss of the margin `z = y f`, with `excess = 1 - z`."""

    is_two_sided: ClassVar[bool] = False

    def excess(self, y, f):
        """The label, and `1 - y f`."""
        return y, 1 - y * f


class AbstractTwoSided(AbstractPiecewise):
    """A piecewise loss of the residual, with `excess = |y - f| - dead_zone`."""

    is_two_sided: ClassVar[bool] = True

    def excess(self, y, f):
        """The sign of the residual, and by how much it leaves the insensitive zone."""
        residual = y - f
        sign = jnp.where(residual >= 0, 1.0, -1.0).astype(residual.dtype)
        dead_zone = self.shape().dead_zone
        size = sign * residual
        return sign, size if dead_zone is None else size - dead_zone


class AbstractMargin(AbstractOneSided, AbstractClassification):
    """A piecewise loss of support vector classification."""


class AbstractResidual(AbstractTwoSided, AbstractRegression):
    """A piecewise loss of the residual `r = y - f`, a noise model in closed form [CKO04, eq. 14]."""

    def log_normalizer(self):
        """`-ln Z` with `Z = 2 (zone + gauss + tail)`, the three parts of the half-line's integral.

        `zone = dead_zone`, `gauss = sqrt(pi compliance / 2) erf(bound sqrt(compliance / 2))`,
        `tail = exp(-compliance bound^2 / 2) / bound` [CKO04, eq. 14].
        """
        return -jnp.log(2 * sum(self._masses()))

    @property
    def noise_variance(self):
        """The variance of the noise, in closed form.

        [CKO04, eq. 15], which is the case of the soft insensitive loss.
        """
        dead_zone, compliance, bound = self.shape()
        zone, gauss, tail = self._masses()
        start = jnp.zeros_like(zone) if dead_zone is None else dead_zone
        second_moment = start**3 / 3
        knee = start  # where the linear piece begins
        if compliance is not None:
            # with t = excess: int t e^(-t^2/2c) = c (1 - e), int t^2 e^(-t^2/2c) = c (gauss - knee e)
            end = jnp.zeros_like(zone) if bound is None else jnp.exp(-compliance * bound**2 / 2)
            length = jnp.zeros_like(zone) if bound is None else compliance * bound
            second_moment += start**2 * gauss + 2 * start * compliance * (1 - end)
            second_moment += compliance * (gauss - length * end)
            knee = start + length
        if bound is not None:
            second_moment += tail * (knee**2 + 2 * knee / bound + 2 / bound**2)
        return second_moment / (zone + gauss + tail)

    def noise_cumulative(self, residual):
        """The probability that the noise is at most so large, in closed form."""
        _, compliance, bound = self.shape()
        zone, gauss, tail = self._masses()
        size = jnp.abs(residual)
        covered, knee = jnp.minimum(size, zone), zone
        if compliance is not None:
            length = jnp.inf if bound is None else compliance * bound
            inside = jnp.clip(size - zone, 0.0, length)
            covered += jnp.sqrt(jnp.pi * compliance / 2) * jax.lax.erf(
                inside / jnp.sqrt(2 * compliance)
            )
            knee = zone + length
        if bound is not None:
            covered -= tail * jnp.expm1(-bound * jnp.maximum(size - knee, 0.0))
        return 0.5 + jnp.sign(residual) * covered / (2 * (zone + gauss + tail))

    def sample_noise(self, shape, *, key):
        """Draws from the noise: uniform in the zone, a truncated Gaussian, an exponential tail."""
        dead_zone, compliance, bound = self.shape()
        masses = jnp.stack(self._masses())
        keys = jax.random.split(key, 4)
        piece = jax.random.categorical(keys[0], jnp.log(masses), shape=shape)
        uniform = jax.random.uniform(keys[1], shape, masses.dtype)
        start = 0.0 if dead_zone is None else dead_zone
        size, knee = start * uniform, start
        if compliance is not None:
            deviation = jnp.sqrt(compliance)
            upper = jnp.inf if bound is None else bound * deviation
            gauss = jax.random.truncated_normal(keys[2], 0.0, upper, shape, masses.dtype)
            size = jnp.where(piece == 1, start + deviation * gauss, size)
            knee = start if bound is None else start + compliance * bound
        if bound is not None:
            tail = knee + jax.random.exponential(keys[2], shape, masses.dtype) / bound
            size = jnp.where(piece == 2, tail, size)
        return size * jax.random.rademacher(keys[3], shape, masses.dtype)

    def _masses(self):
        dead_zone, compliance, bound = self.shape()
        zero = jnp.zeros_like(self.shape().like)
        zone = zero if dead_zone is None else dead_zone
        gauss, tail = zero, zero
        if compliance is not None:
            full = jnp.sqrt(jnp.pi * compliance / 2)
            gauss = full if bound is None else full * jax.lax.erf(bound * jnp.sqrt(compliance / 2))
        if bound is not None:
            tail = 1 / bound
            if compliance is not None:
                tail = tail * jnp.exp(-compliance * bound**2 / 2)
        return zone, gauss, tail

"""Convex losses made of linear and quadratic pieces: the family behind all support vector machines.

Let the `excess` of an example be how far it falls short of its margin, or how far its residual lies outside
the insensitive zone. Every such loss is

    L = 0                                   for excess <= 0,
    L = excess^2 / (2 compliance)           for 0 < excess < compliance * bound,
    L = bound * excess - compliance * bound^2 / 2    beyond,

so that the dual coefficient `-dL/df` has the magnitude `clip(excess / compliance, 0, bound)`. Without
compliance it jumps at `excess = 0`; without a bound it grows without limit. Fenchel's conjugate is a
quadratic on an interval, which makes the dual problem a box-constrained quadratic program. It is solved in
`jaxsvm/solvers/_proximal.py`.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._likelihood import AbstractClassification, AbstractLoss


class Shape(NamedTuple):
    """The three numbers that define a piecewise loss; `None` where it has no such piece.

    `dead_zone` is the largest residual without a loss, `compliance` the inverse of the curvature of the
    quadratic piece, `bound` the slope of the linear one. At least one of `compliance` and
    `bound` is required.
    """

    dead_zone: Float[Array, ""] | None = None
    compliance: Float[Array, ""] | None = None
    bound: Float[Array, ""] | None = None

    @property
    def like(self) -> Float[Array, ""]:
        """One of the numbers, to read the dtype from."""
        return jnp.asarray(self.bound if self.compliance is None else self.compliance)


class AbstractPiecewise(AbstractLoss):
    """A convex loss of linear and quadratic pieces, given by its `shape`.

    A two-sided loss depends on the residual `y - f`, a one-sided loss on the margin `y f`.
    """

    is_convex: ClassVar[bool] = True
    vanishes_slowly: ClassVar[bool] = False
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
        """Whether the loss is zero on an interval of latent values, so that solutions are sparse."""
        return not self.is_two_sided or self.shape().dead_zone is not None

    def value(self, y: Array, f: Array) -> Array:
        _, compliance, bound = self.shape()
        excess = self._positive_excess(y, f)[1]
        if compliance is None:
            return jnp.asarray(bound) * excess
        if bound is None:
            return excess**2 / (2 * compliance)
        knee = compliance * bound
        quadratic = jnp.minimum(excess, knee) ** 2 / (2 * compliance)
        return quadratic + bound * jnp.maximum(excess - knee, 0)

    def derivative(self, y: Array, f: Array) -> Array:
        """`dL/df`; at a kink, the subgradient of smallest magnitude."""
        sign, excess = self._positive_excess(y, f)
        _, compliance, bound = self.shape()
        if compliance is None:
            return -sign * jnp.where(excess > 0, jnp.asarray(bound), 0.0)
        magnitude = excess / compliance
        return -sign * (magnitude if bound is None else jnp.minimum(magnitude, bound))

    def curvature(self, y: Array, f: Array) -> Array:
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
        # without a flat zone the excess is never negative, and `maximum` would halve its slope at zero
        sign, excess = self.excess(y, f)
        return sign, jnp.maximum(excess, 0) if self.has_flat_zone else excess

    def conjugate(self, y: Array, dual: Array, weights: Array) -> Float[Array, " n"]:
        """Fenchel's conjugate `sup_f (-dual f - weights L(y, f))`, for coefficients within their bounds.

        **Arguments:** `y`, labels or targets; `dual`, coefficients; `weights` of the examples.

        **Returns:** one number for each example.
        """
        dead_zone = self.shape().dead_zone
        linear = -y * dual if dead_zone is None else dead_zone * jnp.abs(dual) - y * dual
        return linear + weighted_compliance(self, weights, dual.dtype) * dual**2 / 2

    def respond(
        self, y: Array, f: Array, compliance: Float[Array, " n"], bound: Float[Array, " n"]
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

    def target(self, y: Array, dual: Array) -> Float[Array, " n"]:
        """The value of `f + compliance dual` for a free example whose dual coefficient has this sign.

        **Arguments:** `y`, labels or targets; `dual`, coefficients.

        **Returns:** one value for each example.
        """
        dead_zone = self.shape().dead_zone
        return y if dead_zone is None else y - jnp.sign(dual) * dead_zone

    def cheaper_side(self, y: Array, dual: Array, bound: Array) -> Float[Array, " n"]:
        """The direction, -1 or +1, in which leaving the edge of the flat zone costs the smaller duality gap.

        **Arguments:** `y`, labels or targets; `dual`, coefficients; `bound`, one for each example.

        **Returns:** one sign for each example.
        """
        outward = jnp.sign(dual) if self.is_two_sided else y
        return jnp.where(2 * jnp.abs(dual) < bound, outward, -outward)

    def latent_range(
        self, y: Array, dual: Array, weights: Array
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
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

    def violation(self, y: Array, f: Array, dual: Array, weights: Array) -> Float[Array, " n"]:
        """How far a latent value is from the interval that its dual coefficient requires, in units of `f`.

        **Arguments:** `y`, labels or targets; `f`, latent values; `dual`, coefficients; `weights` of the
        examples.

        **Returns:** one number for each example, zero at the solution.
        """
        low, high = self.latent_range(y, dual, weights)
        return jnp.maximum(jnp.maximum(low - f, f - high), 0.0)

    def fenchel_gap(self, y: Array, f: Array, dual: Array, weights: Array) -> Float[Array, " n"]:
        """`weights L(y, f) + conjugate(dual) + dual f`: never negative, zero at the solution.

        **Arguments:** `y`, labels or targets; `f`, latent values; `dual`, coefficients within their bounds;
        `weights` of the examples.

        **Returns:** one number for each example.
        """
        zone = self.shape().dead_zone
        side = jnp.sign(dual) if self.is_two_sided else y
        excess = side * (y - f) - (0.0 if zone is None else zone)
        # the excess on the side of the coefficient, so that large terms cancel exactly
        compliance = weighted_compliance(self, weights, f.dtype)
        magnitude = jnp.abs(dual)
        return weights * self.value(y, f) - magnitude * (excess - compliance * magnitude / 2)

    def optimality(self, y: Array, f: Array, dual: Array, weights: Array, free: Array) -> Array:
        """`R = f + compliance dual - target` of a free example, `dual` minus its bound or zero of others."""
        compliance = weighted_compliance(self, weights, f.dtype)
        held = jnp.zeros_like(dual)
        if self.shape().bound is not None:
            held = jnp.sign(dual) * weighted_bound(self, weights, f.dtype)
        return jnp.where(free, f + compliance * dual - self.target(y, dual), dual - held)

    def optimality_slopes(
        self, y: Array, f: Array, weights: Array, free: Array
    ) -> tuple[Array, Array]:
        """The compliance and one for a free example, one and zero for others."""
        compliance = weighted_compliance(self, weights, f.dtype)
        return jnp.where(free, compliance, 1.0), jnp.where(free, 1.0, 0.0)

    def laplace_curvature(
        self, y: Array, f: Array, dual: Array, weights: Array, free: Array
    ) -> Array:
        """`1 / compliance` for a free example; at a kink, that of a Gaussian with the same integral.

        With the dual coefficient `a` between the slopes `low` and `high`, `exp(-slope t)` on both sides of a
        kink has the integral `1 / (a - low) + 1 / (high - a)`, and a Gaussian `sqrt(2 pi / curvature)`.
        """
        if self.shape().compliance is not None:
            return jnp.where(free, 1 / weighted_compliance(self, weights, f.dtype), 0.0)
        high = weighted_bound(self, weights, dual.dtype)
        low = jnp.zeros_like(high) if self.has_flat_zone else -high
        size = jnp.abs(dual)
        width = jnp.where(weights > 0, high - low, 1.0)
        return jnp.where(free, 2 * jnp.pi * ((size - low) * (high - size) / width) ** 2, 0.0)

    def softened(
        self, y: Array, f: Array, weights: Array, width: float | Array
    ) -> tuple[Array, Array]:
        """Slope and curvature with the width added to the compliance."""
        compliance = weighted_compliance(self, weights, f.dtype) + width
        bound = weighted_bound(self, weights, f.dtype)
        response, free = self.respond(y, f, compliance, bound)
        return -response, jnp.where(free, 1 / compliance, 0.0)

    def stationary_objective(
        self,
        y: Array,
        weights: Array,
        dual: Array,
        offset: Array,
        product: Callable[[Array], Array],
    ) -> Array:
        """The dual objective, of the same value but without kinks; coefficients at a bound move with it."""
        held = dual
        if self.shape().bound is not None:
            bound = weighted_bound(self, weights, dual.dtype)
            held = jnp.where(jnp.abs(dual) >= bound, jnp.sign(dual) * bound, dual)
        conjugates = self.conjugate(y, held, weights)
        return -jnp.sum(jnp.where(weights > 0, conjugates, 0.0)) - held @ product(held) / 2


def weighted_compliance(loss: AbstractPiecewise, weights: Array, dtype: Any) -> Float[Array, " n"]:
    """The compliance of `weight * L` for each example; meaningless where the weight is zero.

    **Arguments:** `loss`; `weights` of the examples; `dtype` of the result.

    **Returns:** one number for each example.
    """
    compliance = loss.shape().compliance
    if compliance is None:
        return jnp.zeros_like(weights, dtype=dtype)
    return (compliance / jnp.where(weights > 0, weights, 1.0)).astype(dtype)


def weighted_bound(loss: AbstractPiecewise, weights: Array, dtype: Any) -> Float[Array, " n"]:
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

    def excess(self, y: Array, f: Array) -> tuple[Array, Array]:
        """The label, and `1 - y f`."""
        return y, 1 - y * f


class AbstractTwoSided(AbstractPiecewise):
    """A piecewise loss of the residual, with `excess = |y - f| - dead_zone`."""

    is_two_sided: ClassVar[bool] = True

    def excess(self, y: Array, f: Array) -> tuple[Array, Array]:
        """The sign of the residual, and by how much it leaves the insensitive zone."""
        residual = y - f
        sign = jnp.where(residual >= 0, 1.0, -1.0).astype(residual.dtype)
        dead_zone = self.shape().dead_zone
        size = sign * residual
        return sign, size if dead_zone is None else size - dead_zone


class AbstractMargin(AbstractOneSided, AbstractClassification):
    """A piecewise loss of support vector classification."""

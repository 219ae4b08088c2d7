"""Whether a point is a solution: its KKT residual and duality gap, compared with rounding errors.

Both are computed from the point that is returned. The gap is taken at the worst latent values within their
rounding errors, so a gap that rounding hides does not count as small.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..losses import AbstractPiecewise
from ._problem import Options, Problem


class Verdict(NamedTuple):
    """How good a point is.

    `residual` is the largest violation of the KKT conditions, in units of the latent function. `gap` is the
    primal minus the dual objective, relative to the primal; `largest_gap` is the same difference at the
    worst latent values within rounding errors, absolute. `is_solution` is true if both the residual
    and the largest gap are within their tolerances. Newton's method aims at less than its tolerance, since
    its last step costs little; `is_acceptable` is true if the tolerance itself is met.
    """

    residual: Float[Array, ""]
    gap: Float[Array, ""]
    largest_gap: Float[Array, ""]
    is_solution: Bool[Array, ""]
    is_acceptable: Bool[Array, ""]


def latent_size(problem: Problem) -> Float[Array, ""]:
    """The natural size of latent values: one for margins, the largest target for a regression."""
    if problem.loss.is_classifier:
        return jnp.ones((), problem.gram.dtype)
    return jnp.max(jnp.where(problem.weights > 0, jnp.abs(problem.y), 0.0))


def rounding_errors(
    problem: Problem, dual: Float[Array, " n"], offset: Float[Array, ""]
) -> Float[Array, " n"]:
    """The rounding error of each latent value `(K dual)_i + offset`, roughly; `|K_ij|^2 <= K_ii K_jj`."""
    deviations = jnp.sqrt(jnp.maximum(problem.gram.diagonal(), 0))
    norms = deviations * jnp.sqrt(jnp.sum((deviations * dual) ** 2))
    return _errors_of_sums(norms, dual) + jnp.finfo(dual.dtype).eps * jnp.abs(offset)


def sharp_rounding_errors(
    problem: Problem, dual: Float[Array, " n"], offset: Float[Array, ""]
) -> Float[Array, " n"]:
    """A sharper estimate for one product more: errors are small far from large coefficients."""
    norms = jnp.sqrt(problem.gram.squared_product(dual**2))
    return _errors_of_sums(norms, dual) + jnp.finfo(dual.dtype).eps * jnp.abs(offset)


def _errors_of_sums(norms, terms):
    """The rounding errors of sums of `terms`, each with one of these Euclidean norms.

    Partial sums of random terms grow with the root of their number, and each is rounded; a few are added
    at a time.
    """
    return max(1.0, terms.shape[0] ** 0.5 / 4) * jnp.finfo(terms.dtype).eps * norms


def weighted_curvatures(
    problem: Problem, latent: Float[Array, " n"], errors: Float[Array, " n"]
) -> Float[Array, " n"]:
    """The curvature of each example's loss, times its weight, within the rounding errors of latent values.

    A curvature may jump where there is a wall, as that of the trigonometric loss does at the margin. On the
    wrong side of the jump, by a rounding error, a steep loss would look flat. So there it is the
    largest curvature at the value and at both ends; an end behind the wall does not count.
    """
    loss, y, weights = problem.loss, problem.y, problem.weights
    if not loss.has_wall:
        return jnp.where(weights > 0, weights * loss.curvature(y, latent), 0.0)
    around = jnp.stack([latent, latent - errors, latent + errors])
    curvatures = jax.vmap(lambda f: loss.curvature(y, f))(around)
    curvatures = jnp.where(jnp.isfinite(curvatures), curvatures, curvatures[:1])
    return jnp.where(weights > 0, weights * jnp.max(curvatures, axis=0), 0.0)


def judge_piecewise(
    problem: Problem[AbstractPiecewise],
    options: Options,
    dual: Float[Array, " n"],
    offset: Float[Array, ""],
    latent: Float[Array, " n"],
    errors: Float[Array, " n"] | None = None,
) -> Verdict:
    """The verdict on coefficients within their bounds, for a piecewise loss.

    The gap is the sum of the gaps in Fenchel's inequality, one for each example, plus the cost of making the
    coefficients sum to zero if the offset is free.
    """
    loss, y, weights = problem.loss, problem.y, problem.weights
    residual = jnp.max(loss.violation(y, latent, dual, weights))
    if errors is None:
        errors = rounding_errors(problem, dual, offset)

    def fenchel(latent):
        return jnp.where(weights > 0, loss.fenchel_gap(y, latent, dual, weights), 0.0)

    gap = jnp.sum(fenchel(latent))
    largest_gap = jnp.sum(jnp.maximum(fenchel(latent - errors), fenchel(latent + errors)))
    tolerance, point = options.tolerance_in(dual.dtype), (dual, offset, latent)
    return _verdict(problem, options, tolerance, point, residual, gap, largest_gap, errors, dual)


def judge_smooth(
    problem: Problem,
    options: Options,
    beta: Float[Array, " n"],
    offset: Float[Array, ""],
    latent: Float[Array, " n"],
    errors: Float[Array, " n"] | None = None,
) -> Verdict:
    """The verdict for a smooth loss; if it is not convex, how far the point is from a stationary one.

    Dual coefficients are the slopes at the latent values where the loss is flat compared with the prior, and
    `beta` where it is steep: there a rounding error of the latent value changes the slope a lot. The gap is
    Fenchel's for the steep examples, to second order `(beta + w L')^2 / (2 w L'')`, plus
    `1/2 (beta - dual)' K (beta - dual)` for the flat ones. A coefficient may not be a slope of the loss
    anywhere near the latent value, for example if it has the wrong sign beyond the margin. Then the part that
    no slope explains counts as flat.
    """
    loss, y, weights = problem.loss, problem.y, problem.weights
    counts = weights > 0
    if errors is None:
        errors = rounding_errors(problem, beta, offset)
    slopes = jnp.where(counts, weights * loss.derivative(y, latent), 0.0)
    curvatures = jnp.abs(weighted_curvatures(problem, latent, errors))
    misfit = beta + slopes
    steep = curvatures * problem.gram.diagonal() > 1
    # the change of the latent value that would give a steep example its coefficient
    shift = jnp.where(steep, jnp.abs(misfit) / jnp.where(steep, curvatures, 1.0), 0.0)
    unreachable = _unreachable(problem, beta, latent, shift + errors)
    flat_misfit = jnp.where(steep, unreachable, misfit)
    smooth = problem.gram @ flat_misfit
    flat_gap = jnp.maximum(flat_misfit @ smooth, 0) / 2
    gap = flat_gap + jnp.sum(curvatures * shift**2) / 2
    # the slopes of flat examples have the errors of their latent values
    slope_errors = jnp.where(steep, 0.0, curvatures * errors)
    deviations = jnp.sqrt(jnp.maximum(problem.gram.diagonal(), 0))
    spread = jnp.sqrt(jnp.sum((deviations * slope_errors) ** 2))
    # a product of large coefficients that cancel is small only up to its rounding errors
    norm = jnp.sqrt(jnp.sum((deviations * flat_misfit) ** 2))
    hidden = jnp.sum(jnp.abs(flat_misfit) * _errors_of_sums(deviations * norm, flat_misfit)) / 2
    steep_gap = jnp.sum(jnp.where(steep, curvatures * (shift + errors) ** 2, 0.0)) / 2
    largest_gap = (jnp.sqrt(2 * flat_gap) + spread) ** 2 / 2 + hidden + steep_gap
    residual = jnp.maximum(jnp.max(jnp.abs(smooth)), jnp.max(shift))
    errors = errors + deviations * jnp.sum(deviations * slope_errors)  # the product adds them up
    dual = jnp.where(steep, beta, -slopes)
    # one more step of Newton's method squares the error, down to rounding errors
    tolerance = max(0.01 * options.tolerance_in(beta.dtype), 2 * float(jnp.finfo(beta.dtype).eps))
    point = (beta, offset, latent)
    return _verdict(problem, options, tolerance, point, residual, gap, largest_gap, errors, dual)


def _unreachable(problem: Problem, beta, latent, reach) -> Float[Array, " n"]:
    """The part of each coefficient that no slope of the loss explains, at any latent value within reach."""
    loss, y, weights = problem.loss, problem.y, problem.weights
    ends = [weights * loss.derivative(y, latent + step) for step in (-reach, reach)]
    low, high = -jnp.maximum(*ends), -jnp.minimum(*ends)
    missing = beta - jnp.clip(beta, low, high)
    return jnp.where(weights > 0, missing, 0.0)


def _verdict(
    problem, options, tolerance, point, residual, gap, largest_gap, errors, dual
) -> Verdict:
    beta, offset, latent = point
    dtype = beta.dtype
    size = latent_size(problem)
    primal = primal_objective(problem, beta, offset, latent)
    at_zero = primal_objective(problem, jnp.zeros_like(beta), 0.0, jnp.zeros_like(latent))
    at_zero = jnp.where(jnp.isfinite(at_zero), jnp.abs(at_zero), 0.0)
    epsilon = jnp.finfo(dtype).eps
    if problem.has_offset:
        # `sum(dual) = 0`, relative to the coefficients and in units of the latent function
        excess, total = jnp.abs(jnp.sum(dual)), jnp.sum(jnp.abs(dual))
        reach = size + jnp.abs(offset)  # how far the offset may be from its optimum
        matters = excess * reach > epsilon * at_zero  # a bounded loss is almost flat far away
        relative_excess = jnp.where(matters, excess / jnp.where(matters, total, 1.0), 0.0)
        residual = jnp.maximum(residual, 2 * size * relative_excess)
        largest_gap = largest_gap + excess * reach
    # losses that differ by less than the rounding error of a latent value of unit size cannot be
    # distinguished
    noise = 64 * epsilon * at_zero
    certainty = options.gap_tolerance_in(dtype)
    allowed_gap = certainty * jnp.abs(primal) + noise
    # rounding errors excuse a residual, unless it is so large that a user would notice it
    excused = jnp.minimum(8 * jnp.max(errors), options.visible_in(dtype) * size)
    relative = jnp.where(gap == 0, 0.0, gap / jnp.where(primal == 0, 1.0, jnp.abs(primal)))

    def within(tolerance):
        allowed = jnp.maximum(tolerance * size, excused)
        return (residual <= allowed) & (largest_gap <= allowed_gap)

    acceptable = within(options.tolerance_in(dtype))
    return Verdict(residual, relative, largest_gap, within(tolerance), acceptable)


def primal_objective(
    problem: Problem, dual: Array, offset: Array | float, latent: Array
) -> Float[Array, ""]:
    """`sum_i w_i L(y_i, f_i) + 1/2 f' K^-1 f`, where `f = K dual` apart from the offset.

    **Arguments:** `problem`; `dual`, coefficients; `offset`; `latent`, the values `K dual + offset`.

    **Returns:** a number.
    """
    counts = problem.weights > 0
    losses = jnp.where(counts, problem.weights * problem.loss.value(problem.y, latent), 0.0)
    return jnp.sum(losses) + dual @ (latent - offset) / 2


def best_offset(
    problem: Problem[AbstractPiecewise],
    dual: Float[Array, " n"],
    product: Float[Array, " n"],
    offset,
) -> Float[Array, ""]:
    """The offset with the smallest KKT residual for these coefficients; `product` is `K dual`.

    Each example leaves an interval of offsets. Where no example is free the intervals usually share more
    than a point: then every offset in that range is optimal, and this is its middle.
    """
    loss = problem.loss
    low, high = loss.latent_range(problem.y, dual, problem.weights)
    low, high = jnp.max(low - product), jnp.min(high - product)
    return jnp.where(jnp.isfinite(low) & jnp.isfinite(high), low / 2 + high / 2, offset)

"""The sites of expectation propagation: how they are found, and their derivatives."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import linalg
from ..gram import AbstractGram
from ..losses import AbstractLoss
from ..posteriors import Average, averaged
from ..results import RESULTS
from ._fixed_point import Limits, Outcome, iterate

_SLOWEST = 1e-3  # the smallest share of the way to the matched sites that a step takes
_PATIENCE = 100  # iterations without progress


class Sites(NamedTuple):
    """The Gaussians `exp(shift f - precision f^2 / 2)` that replace the likelihood of each example.

    `shift` and `precision` have one entry for each example.
    """

    shift: Float[Array, " n"]
    precision: Float[Array, " n"]


class Marginals(NamedTuple):
    """Mean and variance of each latent value under the Gaussian posterior."""

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]


class Matching(eqx.Module):
    """The conditions of expectation propagation: each site's marginal has the moments of the likelihood.

    The cavity `N(m, v)` of an example is its marginal without its own site. The likelihood times the cavity
    and the site times the cavity have the same mean and variance: Rasmussen and Williams, "Gaussian
    Processes for Machine Learning", sec. 3.6, eqs. 3.56-3.59. An example of weight two is a repeated row,
    whose two sites are the same.
    """

    gram: AbstractGram
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    loss: AbstractLoss

    def marginals(self, sites: Sites) -> Marginals:
        """The marginals of the posterior `N(f; 0, K) prod_i site_i^weight_i`, eq. 3.53."""
        shift, precision = self.weights * sites.shift, self.weights * sites.precision
        return Marginals(*self.gram.posterior_marginals(shift, precision))

    def cavities(self, sites: Sites, marginals: Marginals, copies=None) -> Marginals:
        """The marginals without some copies of each example's own site, by default one: eq. 3.56."""
        if copies is None:
            copies = jnp.where(self.weights > 0, 1.0, 0.0)
        share = 1 - marginals.variance * copies * sites.precision
        mean = (marginals.mean - marginals.variance * copies * sites.shift) / share
        return Marginals(mean, marginals.variance / share)

    def average(self, cavities: Marginals) -> Average:
        """The likelihood averaged over the cavities, eq. 3.58."""
        return averaged(self.loss, self.y, cavities.mean, cavities.variance)

    def matched(self, sites: Sites, marginals: Marginals) -> Sites:
        """The sites that would match the moments, eq. 3.59."""
        cavities = self.cavities(sites, marginals)
        average = self.average(cavities)
        stiffness = 1 - cavities.variance * average.curvature
        shift = average.slope + cavities.mean * average.curvature
        return Sites(shift / stiffness, average.curvature / stiffness)


class _State(NamedTuple):
    sites: Sites
    change: Sites
    rate: Float[Array, ""]
    residual: Float[Array, ""]


def default_tolerance(dtype) -> float:
    """The change of the sites to accept: 1e-9 in float64, 1e-4 in float32."""
    return 1e-9 if dtype == jnp.float64 else 1e-4


def find_sites(matching: Matching, start: Sites, limits: Limits) -> tuple[Sites, Outcome]:
    """Update all sites at once until they hardly change, without derivatives.

    A step goes all the way to the matched sites while the residual falls, and only part of the way when it
    does not. The residual measures a site's change in units of its marginal: `max(|d precision| variance,
    |d shift| deviation)`.

    **Arguments:** `matching`; `start`, the first sites, which may be zero; `limits`.

    **Returns:** the sites and an `Outcome`.
    """
    limits = Limits(
        jnp.asarray(limits.tolerance, start.shift.dtype), jnp.asarray(limits.max_iterations)
    )
    return linalg.one_by_one(_iterate)(*jax.lax.stop_gradient((matching, start)), limits)


def _iterate(matching: Matching, start: Sites, limits):
    def change_of(sites: Sites):
        marginals = matching.marginals(sites)
        matched = matching.matched(sites, marginals)
        # rounding can make a precision negative
        matched = matched._replace(precision=jnp.maximum(matched.precision, 0))
        change = jax.tree.map(jnp.subtract, matched, sites)
        in_shift = jnp.abs(change.shift) * jnp.sqrt(marginals.variance)
        in_precision = jnp.abs(change.precision) * marginals.variance
        return change, jnp.max(jnp.maximum(in_shift, in_precision))

    def advance(state: _State):
        sites = jax.tree.map(lambda s, c: s + state.rate * c, state.sites, state.change)
        change, residual = change_of(sites)
        rate = jnp.where(residual < state.residual, 1.25 * state.rate, state.rate / 2)
        return _State(sites, change, jnp.clip(rate, _SLOWEST, 1.0), residual), residual

    change, residual = change_of(start)
    last, outcome = iterate(
        advance,
        _State(start, change, jnp.ones_like(residual), residual),
        residual,
        limits,
        patience=_PATIENCE,
        success=RESULTS.successful,
        is_finite=matching.gram.is_finite(),
    )
    return last.sites, outcome


@jax.custom_jvp
def attach_derivatives(matching: Matching, sites: Sites) -> Sites:
    """The sites as a differentiable function of the conditions that they satisfy."""
    return sites


@attach_derivatives.defjvp
def _attach_derivatives_jvp(primals, tangents):
    matching, sites = primals
    # the sites depend on the conditions here too, so that this rule can itself be differentiated
    sites = attach_derivatives(matching, sites)
    _, explicit = jax.jvp(
        lambda m: m.matched(sites, m.marginals(sites)), (matching,), (tangents[0],)
    )
    explicit = Sites(*explicit)
    if matching.gram.has_cheap_rows:
        change = linalg.solve(_jacobian(matching, sites), jnp.concatenate(explicit))
        return sites, Sites(*jnp.split(change, 2))
    return sites, _solve_by_products(matching, sites, explicit)


def _solve_by_products(matching: Matching, sites: Sites, right: Sites) -> Sites:
    """Solve the system of `_jacobian` without its matrix, as a low rank requires.

    At a rank of p, a product takes the time of one update of all sites, `n p^2`. There are about as many
    products as updates, since the updates converge if the eigenvalues are near one.
    """
    variance = jax.lax.stop_gradient(matching.marginals(sites).variance)
    variance = jnp.where(variance > 0, variance, 1.0)
    # in units of the marginals, as the residual of `find_sites`
    units = Sites(1 / jnp.sqrt(variance), 1 / variance)
    scaled = jax.tree.map(jnp.divide, right, units)
    answer = linalg.solve_by_products(_operator, (matching, sites, units), scaled)
    return jax.tree.map(jnp.multiply, answer, units)


def _operator(arguments):
    """The derivative of `sites - matched(sites)` as a linear function, in given units."""
    matching, sites, units = arguments
    _, slope = jax.linearize(lambda s: matching.matched(s, matching.marginals(s)), sites)

    def product(vector: Sites) -> Sites:
        moved = slope(jax.tree.map(jnp.multiply, vector, units))
        return jax.tree.map(lambda v, m, u: v - m / u, vector, moved, units)

    return product


def _jacobian(matching: Matching, sites: Sites) -> Float[Array, "m m"]:
    """The derivative of `sites - matched(sites)`, shifts first.

    With the posterior covariance S, the marginal means change by `S (dshift - mean dprecision)` and the
    variances by `-(S * S) dprecision`, elementwise; the rest is local to each example.
    """
    weights, gram = matching.weights, matching.gram.dense()
    marginals = matching.marginals(sites)
    response = linalg.response(gram, weights * sites.precision, definite=True)
    covariance = gram - gram @ response @ gram
    by_shift = covariance * weights[None, :]
    mean_by_precision = -by_shift * marginals.mean[None, :]
    variance_by_precision = -by_shift * covariance

    def matched(values):
        return matching.matched(Sites(*values[:2]), Marginals(*values[2:]))

    values = jnp.stack([*sites, *marginals])
    units = jnp.broadcast_to(jnp.eye(4, dtype=gram.dtype)[:, :, None], (4, *values.shape))
    local = jax.vmap(lambda unit: jax.jvp(matched, (values,), (unit,))[1])(units)
    rows = []
    for row, derivatives in enumerate(local):  # with respect to shift, precision, mean and variance
        shift, precision, mean, variance = derivatives
        local_shift = jnp.diag(1.0 * (row == 0) - shift)
        local_precision = jnp.diag(1.0 * (row == 1) - precision)
        in_precision = mean[:, None] * mean_by_precision + variance[:, None] * variance_by_precision
        rows.append([local_shift - mean[:, None] * by_shift, local_precision - in_precision])
    return jnp.block(rows)

"""The sites of expectation propagation: how they are found, and their derivatives."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .. import linalg
from .._results import RESULTS
from .._roots import safe_root
from ..linalg import response
from ..losses import AbstractLoss
from ..posteriors import Average, averaged

_SLOWEST = 1e-3  # of a step towards the new sites


class Sites(NamedTuple):
    """The Gaussians `exp(shift f - precision f^2 / 2)` that stand for the likelihood of each example.

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

    With the cavity `N(m, v)` of an example, its marginal without its own site, the likelihood times the
    cavity and the site times the cavity have the same mean and variance: Rasmussen and Williams, "Gaussian
    Processes for Machine Learning", sec. 3.6, eqs. 3.56-3.59. An example of weight two is a repeated row,
    whose two sites are the same.
    """

    gram: Float[Array, "n n"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    loss: AbstractLoss

    def marginals(self, sites: Sites) -> Marginals:
        """Those of the posterior `N(f; 0, K) prod_i site_i^weight_i`, eq. 3.53."""
        root = safe_root(self.weights * sites.precision)
        matrix = root[:, None] * self.gram * root[None, :]
        eye = jnp.eye(self.gram.shape[0], dtype=self.gram.dtype)
        factor = linalg.cholesky(matrix + eye)
        half = linalg.solve_triangular(factor, root[:, None] * self.gram)
        shift = self.weights * sites.shift
        mean = self.gram @ shift - half.T @ (half @ shift)
        return Marginals(mean, jnp.diag(self.gram) - jnp.sum(half**2, axis=0))

    def cavities(self, sites: Sites, marginals: Marginals, copies=None) -> Marginals:
        """The marginals, each without one copy of its own site, eq. 3.56; or without so many."""
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


class Found(NamedTuple):
    """Where the iteration ended: no derivatives are known of it."""

    sites: Sites
    result: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]


class _State(NamedTuple):
    sites: Sites
    change: Sites
    rate: Float[Array, ""]
    residual: Float[Array, ""]
    least: Float[Array, ""]
    stalls: Int[Array, ""]
    iterations: Int[Array, ""]


def default_tolerance(dtype) -> float:
    """By how much sites may still change: 1e-9 in float64, 1e-4 in float32."""
    return 1e-9 if dtype == jnp.float64 else 1e-4


def find_sites(matching: Matching, start: Sites, tolerance, max_iterations) -> Found:
    """Update all sites at once until they hardly change; no derivatives pass through.

    The step goes the whole way to the matched sites while they get nearer, and a part of it where they do
    not. A site's change counts in units of its marginal: `max(|d precision| variance, |d shift|
    deviation)`.

    **Arguments:** `matching`; `start`, sites, zero for none; `tolerance`; `max_iterations`.

    **Returns:** a `Found`.
    """
    limits = (jnp.asarray(tolerance, matching.gram.dtype), jnp.asarray(max_iterations))
    return linalg.one_by_one(_iterate)(*jax.lax.stop_gradient((matching, start)), *limits)


def _iterate(matching: Matching, start: Sites, tolerance, max_iterations) -> Found:
    def look(sites: Sites):
        marginals = matching.marginals(sites)
        matched = matching.matched(sites, marginals)
        matched = matched._replace(
            precision=jnp.maximum(matched.precision, 0)
        )  # but for rounding it is
        change = jax.tree.map(jnp.subtract, matched, sites)
        in_shift = jnp.abs(change.shift) * jnp.sqrt(marginals.variance)
        in_precision = jnp.abs(change.precision) * marginals.variance
        return change, jnp.max(jnp.maximum(in_shift, in_precision))

    def body(state: _State) -> _State:
        sites = jax.tree.map(lambda s, c: s + state.rate * c, state.sites, state.change)
        change, residual = look(sites)
        nearer = residual < state.residual
        rate = jnp.where(nearer, 1.25 * state.rate, state.rate / 2)
        return _State(
            sites=sites,
            change=change,
            rate=jnp.clip(rate, _SLOWEST, 1.0),
            residual=residual,
            least=jnp.minimum(residual, state.least),
            stalls=jnp.where(residual < 0.99 * state.least, 0, state.stalls + 1),
            iterations=state.iterations + 1,
        )

    def unfinished(state: _State) -> Bool[Array, ""]:
        return (
            (state.residual > tolerance)
            & (state.stalls < 100)
            & (state.iterations < max_iterations)
        )

    change, residual = look(start)
    none = jnp.zeros((), int)
    first = _State(start, change, jnp.ones_like(residual), residual, residual, none, none)
    last = jax.lax.while_loop(unfinished, body, first)
    result = jnp.select(
        [last.residual <= tolerance, ~jnp.isfinite(last.residual), last.stalls >= 100],
        [RESULTS.successful, RESULTS.nonfinite, RESULTS.precision_limit],
        RESULTS.iteration_limit,
    )
    return Found(last.sites, result.astype(jnp.int32), last.iterations, last.residual)


@jax.custom_jvp
def attach_derivatives(matching: Matching, sites: Sites) -> Sites:
    """The sites as a differentiable function of the conditions that they satisfy."""
    return sites


@attach_derivatives.defjvp
def _attach_derivatives_jvp(primals, tangents):
    matching, sites = primals
    # the sites themselves depend on the conditions: so that this rule can be differentiated again
    sites = attach_derivatives(matching, sites)
    _, explicit = jax.jvp(
        lambda m: m.matched(sites, m.marginals(sites)), (matching,), (tangents[0],)
    )
    change = linalg.solve(_jacobian(matching, sites), jnp.concatenate(explicit))
    return sites, Sites(*jnp.split(change, 2))


def _jacobian(matching: Matching, sites: Sites) -> Float[Array, "m m"]:
    """The derivative of `sites - matched(sites)`, shifts first.

    With the covariance S of the posterior the marginal means change by `S (dshift - mean dprecision)`,
    and the variances by `-(S * S) dprecision`, elementwise; the rest is local to each example.
    """
    weights, gram = matching.weights, matching.gram
    marginals = matching.marginals(sites)
    matrix = response(gram, weights * sites.precision, definite=True)
    covariance = gram - gram @ matrix @ gram
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
        own = [jnp.diag(1.0 * (row == 0) - shift), jnp.diag(1.0 * (row == 1) - precision)]
        in_precision = mean[:, None] * mean_by_precision + variance[:, None] * variance_by_precision
        rows.append([own[0] - mean[:, None] * by_shift, own[1] - in_precision])
    return jnp.block(rows)

"""The normalizer and the noise of a loss, found from its values alone by quadrature and search.

The losses of this package have closed forms. These functions serve losses that users define.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..numerics import log_panels
from ..runtime import is_traced

_DECADES = 9  # of sizes on either side of one
_SIZES = 10.0 ** np.linspace(-_DECADES, _DECADES, 2 * _DECADES * 12 + 1)
_ENDS = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])
_MAX_TAIL = 1e-3  # an integral with a larger share than this in the last decade counts as infinite
_BATCH = 256  # residuals at a time, each with some thousand nodes
_HALVINGS = 50
_ROUNDS, _POINTS = 5, 33  # of the search for a maximum; a round spans two steps of the previous one


def log_noise_mass(loss: Any) -> Float[Array, ""]:
    """`ln int exp(-L(r, 0)) dr`, the normalizer of a noise; NaN, or an error, where it is infinite.

    Eight Gauss-Legendre nodes lie in each of 12 panels for each decade of residuals from 1e-9 to 1e9.
    """
    nodes, log_terms = _log_terms(loss, jnp.asarray(_ENDS, _dtype(loss)))
    total = jax.scipy.special.logsumexp(log_terms)
    last = jnp.where(jnp.abs(nodes) > 10.0 ** (_DECADES - 1), log_terms, -jnp.inf)
    proper = jax.scipy.special.logsumexp(last) - total < np.log(_MAX_TAIL)
    proper &= jnp.isfinite(total)
    if not is_traced(proper) and not bool(proper):
        raise ValueError(
            f"exp(-L) of {type(loss).__name__} has no finite integral over the residuals, so it is not a "
            "density of noise: the evidence is not defined. Make the loss grow faster, or define "
            "`log_normalizer`"
        )
    return jnp.where(proper, total, jnp.nan)


def noise_variance(loss: Any) -> Float[Array, ""]:
    """The variance of the noise; infinite where its integral diverges."""
    nodes, log_terms = _log_terms(loss, jnp.asarray(_ENDS, _dtype(loss)))
    shares = jax.nn.softmax(log_terms)
    mean = jnp.sum(shares * nodes)
    squares = shares * (nodes - mean) ** 2
    last = jnp.sum(jnp.where(jnp.abs(nodes) > 10.0 ** (_DECADES - 1), squares, 0.0))
    total = jnp.sum(squares)
    return jnp.where(last < _MAX_TAIL * total, total, jnp.inf)


def noise_cumulative(loss: Any, residual: Float[Array, "..."]) -> Float[Array, "..."]:
    """The probability that the noise is at most as large as each residual."""
    ends = jnp.asarray(_ENDS, _dtype(loss))
    total = jax.scipy.special.logsumexp(_log_terms(loss, ends)[1])

    def below(r):
        # panels beyond the residual shrink to nothing, and the one around it ends there
        log_terms = _log_terms(loss, jnp.minimum(ends, r))[1]
        return jnp.exp(jax.scipy.special.logsumexp(log_terms) - total)

    flat = jnp.ravel(residual).astype(ends.dtype)
    return jax.lax.map(below, flat, batch_size=_BATCH).reshape(jnp.shape(residual))


def sample_noise(loss: Any, shape: tuple[int, ...], key: Any) -> Float[Array, "..."]:
    """Independent draws from the noise: a panel by its probability, then the quantile inside it."""
    ends = jnp.asarray(_ENDS, _dtype(loss))
    _, log_terms = _log_terms(loss, ends)
    scale = jnp.max(log_terms)
    masses = jnp.sum(jnp.exp(log_terms - scale).reshape(len(_ENDS) - 1, -1), axis=1)
    panel_key, place_key = jax.random.split(key)
    panel = jax.random.categorical(panel_key, jnp.log(masses), shape=shape)
    share = jax.random.uniform(place_key, shape, ends.dtype)
    left, right, mass = ends[panel], ends[panel + 1], masses[panel]

    def one(left, right, wanted):
        def halve(_, bracket):
            low, high = bracket
            middle = (low + high) / 2
            below = jnp.sum(jnp.exp(_log_terms(loss, jnp.stack([left, middle]))[1] - scale))
            return jnp.where(below < wanted, middle, low), jnp.where(below < wanted, high, middle)

        low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (left, right))
        return (low + high) / 2

    columns = (left.ravel(), right.ravel(), (share * mass).ravel())
    return jax.vmap(one)(*columns).reshape(shape)


def log_kappa(loss: Any) -> Float[Array, ""]:
    """`ln kappa` with `1 / kappa = max_f (exp(-L(+1, f)) + exp(-L(-1, f)))`, by search.

    With this factor kappa the likelihoods of both labels add up to at most one for every f; it is the largest
    such factor: [GS03, below eq. 6].
    """
    points = jnp.asarray(_ENDS, _dtype(loss))

    def log_sum(f):
        one = jnp.ones_like(f)
        total = jnp.logaddexp(-loss.value(one, f), -loss.value(-one, f))
        return jnp.where(jnp.isnan(total), -jnp.inf, total)

    for _ in range(_ROUNDS):
        best = jnp.argmax(log_sum(points))
        low = points[jnp.maximum(best - 1, 0)]
        high = points[jnp.minimum(best + 1, points.shape[0] - 1)]
        points = jnp.linspace(low, high, _POINTS)
    # at a maximum the derivative with respect to its position is zero
    peak = jax.lax.stop_gradient(points[jnp.argmax(log_sum(points))])
    largest = log_sum(peak)
    # at the outermost points a bounded sum has levelled off
    bounded = largest - log_sum(peak / 2) < np.log(2.0)
    bounded |= jnp.abs(peak) < 10.0 ** (_DECADES - 1)
    bounded &= jnp.isfinite(largest)
    if not is_traced(bounded) and not bool(bounded):
        raise ValueError(
            f"exp(-L) of {type(loss).__name__} has no upper bound, so it is not a likelihood of labels: "
            "the evidence is not defined. Bound the loss from below, or define `log_normalizer`"
        )
    return jnp.where(bounded, -largest, jnp.nan)


def _log_terms(loss, ends):
    """Nodes of all panels, and the logarithm of weight times density at each."""
    nodes, log_widths = log_panels(ends)
    log_density = -loss.value(nodes, jnp.zeros_like(nodes))
    return nodes, jnp.where(log_widths > -jnp.inf, log_widths + log_density, -jnp.inf)


def _dtype(loss) -> Any:
    kinds = [jnp.result_type(leaf) for leaf in jax.tree.leaves(loss)]
    floating = [kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)]
    return jnp.result_type(*floating) if floating else jnp.result_type(float)

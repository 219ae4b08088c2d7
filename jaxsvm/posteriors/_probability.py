"""Class probabilities, when the latent values have a distribution."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._quadrature import STEPS, over_gaussian, peak
from .._roots import safe_root
from ..losses import (
    AbstractClassification,
    AbstractLoss,
    AbstractTwoSided,
    FlipNoise,
    Probit,
    Trigonometric,
)
from ..runtime import jit
from ._averages import averaged
from ._components import Components

RULES = ("normalized", "average")

_NORMALIZED = (
    FlipNoise,
    Probit,
    Trigonometric,
)  # `exp(-L)` of both labels is one, and so the rules one

_NEAR = np.array([-16.0, -4.0, -1.0, 1.0, 4.0, 16.0])
# the loss, and the difference of the losses of both labels, at the ends of panels: between them they
# change by little, or are so small or so large that it does not matter
_LARGE_LOSSES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 512.0, 4096.0])
_SMALL_LOSSES = 4.0 ** np.arange(-13, 0)
_DIFFERENCE_LEVELS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
_FAR = 40.0  # the logarithm of a latent value that is larger than any
_BATCH = 512  # Gaussians at a time, so that memory stays bounded


def probability(
    loss: AbstractLoss,
    means: Float[Array, "k m"],
    variances: Float[Array, " m"] | None = None,
    rule: str = "normalized",
) -> Float[Array, " m"]:
    """`P(y = +1)` at m points, where the latent value of each is one of k Gaussians, all equally likely.

    With `<.>` the average over latent values and `p(f)` the conditional probability
    `exp(-L(+1, f)) / (exp(-L(+1, f)) + exp(-L(-1, f)))`:

    - `"normalized"`: `<exp(-L(+1, f))> / (<exp(-L(+1, f))> + <exp(-L(-1, f))>)`. Latent values for which no
      label is likely, inside the gap between the margins, count for less. It is the prediction of the
      likelihood `exp(-L)`, which does not sum to one over the labels: [GS03, eq. 6]; Sollich, "Bayesian
      methods for support vector machines: evidence and predictive class probabilities".
    - `"average"`: `<p(f)>`.

    They are the same where the likelihood is normalized by itself (logistic with `C = 1`, probit,
    flips, trigonometric). For one Gaussian both are above one half where its mean is positive.

    Each integral is over panels that end at levels of the loss and at multiples of the standard deviation
    around its largest part, with eight Gauss-Legendre nodes in each. It is good to better than 1e-6, for
    penalties and standard deviations of all sizes, and small probabilities are good to about as many
    digits, down to 1e-15.

    **Arguments:**

    - `loss`: a classification loss.
    - `means`: of the Gaussians, one row for each of the k components.
    - `variances`: of the Gaussians, the same for all components at a point; zero, or None for all zero, is
      fine.
    - `rule`: `"normalized"` or `"average"`.

    **Returns:** one probability for each point; differentiable, except with respect to a variance of zero.
    """
    check_rule(loss, rule)
    deviations = None
    if variances is not None:
        deviations = jnp.broadcast_to(safe_root(variances.astype(means.dtype)), means.shape)
    return _of_machine(loss, means, deviations, _is_weighted(loss, rule))


def mixture_probability(parts: Components, rule: str = "normalized") -> Float[Array, " m"]:
    """`P(y = +1)` at m points: the mean over machines of `probability`.

    **Arguments:** `parts`, the latent values as Gaussians; `rule`, one that `check_rule` lets pass, for each
    machine by itself.

    **Returns:** one probability for each point.
    """
    return _of_machines(parts, _is_weighted(parts.losses, rule))


def _is_weighted(loss: AbstractLoss, rule: str) -> bool:
    return rule == "normalized" and not isinstance(loss, _NORMALIZED)


@partial(jit, static_argnames="weighted")
def _of_machines(parts: Components, weighted: bool) -> Float[Array, " m"]:
    def one(machine):
        loss, means, deviations = machine
        return _of_machine(loss, means, deviations, weighted)

    values = jax.lax.map(one, (parts.losses, parts.means, parts.deviations))
    return parts.shares @ values


@partial(jit, static_argnames="weighted")
def _of_machine(loss, means, deviations, weighted: bool) -> Float[Array, " m"]:
    if deviations is None:
        log_weights, shares = _at(loss, means, weighted)
    elif isinstance(loss, Probit | FlipNoise):  # in closed form
        wrong = -jnp.ones_like(means)
        small = jnp.exp(averaged(loss, wrong, jnp.abs(means), deviations**2).log_value)
        log_weights, shares = jnp.zeros_like(means), jnp.where(means >= 0, 1 - small, small)
    else:
        breaks = jax.lax.stop_gradient(_breaks(loss, means.dtype))

        @jax.checkpoint  # or the derivative would keep all nodes of all Gaussians
        def one(mean_and_deviation):
            return _integrate(loss, breaks, weighted, *mean_and_deviation)

        found = jax.lax.map(
            one, (means.ravel(), deviations.ravel()), batch_size=min(_BATCH, means.size)
        )
        log_weights, shares = (array.reshape(means.shape) for array in found)
    return jnp.sum(jax.nn.softmax(log_weights, axis=0) * shares, axis=0)


def check_rule(loss: AbstractLoss, rule: str) -> None:
    """Raise unless the loss is one of labels and the rule is known.

    **Arguments:** `loss`; `rule`, the name of the rule.

    **Returns:** nothing.
    """
    if not isinstance(loss, AbstractClassification):
        raise ValueError(
            f"{type(loss).__name__} is a regression loss: class probabilities need a loss of labels, such "
            "as `losses.Hinge`"
        )
    if rule not in RULES:
        raise ValueError(f'`rule` must be "normalized" or "average", not {rule!r}')


def _parts(loss, f):
    """`ln(exp(-L(+1, f)) + exp(-L(-1, f)))` and `L(-1, f) - L(+1, f)`, for `f >= 0`."""
    one = jnp.ones_like(f)
    likely = loss.value(one, f)
    difference = loss.value(-one, f) - likely
    return jax.nn.softplus(-difference) - likely, difference


def _at(loss, f, weighted):
    """Logarithm of the weight, and probability, of latent values without spread."""
    total, difference = _parts(loss, jnp.abs(f))
    small = jax.nn.sigmoid(-difference)
    share = jnp.where(f >= 0, 1 - small, small)
    return total if weighted else jnp.zeros_like(total), share


def _integrate(loss, breaks, weighted, mean, deviation):
    """Logarithm of `<w>`, and `<w p> / <w>`, for one Gaussian, with the weight `w = exp(-L) + exp(-L)`.

    The weight is an even function of f, and so is `p(f) + p(-f) = 1`. So fold the integral to `f >= 0`, where
    with a Gaussian `N` around `|mean|` the density of `-f` is `N exp(-2 f |mean| / variance)`, and sum up
    the smaller of the two probabilities: all its terms are positive, so it has a small relative
    error, and however coarse the nodes it is less than one half.
    """
    spread = deviation > 0
    scale = jnp.where(spread, deviation, 1.0)
    center = jnp.abs(mean)
    nodes, log_terms = over_gaussian(_ends(loss, breaks, weighted, center, scale), center, scale)
    total, difference = _parts(loss, nodes)
    log_terms = log_terms + (total if weighted else 0.0)
    largest = jax.lax.stop_gradient(jnp.max(log_terms))
    terms = jnp.exp(log_terms - largest)
    mirrored = jnp.exp(-2 * (nodes / scale) * (center / scale))
    small = jax.nn.sigmoid(-difference)
    whole = jnp.sum(terms * (1 + mirrored))
    smaller = jnp.sum(terms * (small + (1 - small) * mirrored)) / whole
    smaller = jnp.minimum(smaller, 0.5)
    log_weight = jnp.log(whole) + largest
    share = jnp.where(mean >= 0, 1 - smaller, smaller)
    exact_weight, exact_share = _at(loss, mean, weighted)
    log_weight = log_weight if weighted else jnp.zeros_like(log_weight)
    return jnp.where(spread, log_weight, exact_weight), jnp.where(spread, share, exact_share)


def _ends(loss, breaks, weighted, center, scale):
    """Ends of panels for the integral of one Gaussian with the weight over `f >= 0`."""
    top = center
    if weighted and loss.is_convex:  # with a large penalty the mass may be far from the center
        top = peak(lambda f: loss.derivative(jnp.ones_like(f), f), center, scale)
    own = top + scale * STEPS.astype(scale.dtype)
    # at a peak that is many deviations from the center, the Gaussian falls the more steeply
    near = top + scale / (1 + jnp.abs(top - center) / scale) * _NEAR.astype(scale.dtype)
    ends = jnp.concatenate([breaks, own, near])
    return jnp.clip(ends, jnp.maximum(own[0], 0), own[-1])


def _breaks(loss, dtype):
    """Ends of panels, the same for all Gaussians: 0, 1 and where the losses have their levels."""
    ends = jnp.asarray([0.0, 1.0], dtype)
    differences = jnp.asarray(_DIFFERENCE_LEVELS, dtype)
    one = jnp.ones((), dtype)
    lowest = jnp.minimum(loss.value(one, one), loss.value(one, jnp.exp(_FAR * one)))
    levels = lowest + jnp.asarray(_LARGE_LOSSES, dtype)
    if loss.vanishes_slowly:
        levels = jnp.concatenate([lowest + jnp.asarray(_SMALL_LOSSES, dtype), levels])

    two_sided = isinstance(loss, AbstractTwoSided)  # zero at one, it grows again behind

    def low_loss(f):
        low = loss.value(jnp.ones_like(f), f) <= levels
        return low | (f >= 1) if two_sided else low

    def large_loss_behind(f):
        return (loss.value(jnp.ones_like(f), f) >= levels) & (f >= 1)

    def large_difference(f):
        label = jnp.ones_like(f)
        return loss.value(-label, f) - loss.value(label, f) >= differences

    found = [ends, _first(low_loss, levels), _first(large_difference, differences)]
    if two_sided:
        found.append(_first(large_loss_behind, levels))
    return jnp.concatenate(found)


def _first(holds, like):
    """The smallest positive numbers for which something holds, for each entry of `like`, by halving.

    The logarithm is halved: it does not matter how small or large the numbers are.
    """

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        true = holds(jnp.exp(middle))
        return jnp.where(true, low, middle), jnp.where(true, middle, high)

    ends = (jnp.full_like(like, -_FAR), jnp.full_like(like, _FAR))
    return jnp.exp(jax.lax.fori_loop(0, 56, halve, ends)[1])

"""Class probabilities, averaged over the distribution of the latent values."""

from functools import partial
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..losses import (
    AbstractClassification,
    AbstractLoss,
    AbstractTwoSided,
    FlipNoise,
    Probit,
    Trigonometric,
)
from ..numerics import STEPS, over_gaussian, peak, safe_root
from ..runtime import jit
from ._averages import averaged
from ._components import Components

Rule = Literal["normalized", "average"]
RULES = get_args(Rule)

# `exp(-L)` sums to one over the labels, so that both rules agree
_NORMALIZED = (FlipNoise, Probit, Trigonometric)

_NEAR = np.array([-16.0, -4.0, -1.0, 1.0, 4.0, 16.0])
# Values of the loss, and of the difference of the losses of both labels, at the ends of panels. Between two
# of them either changes little, or is so small or so large that its change does not matter.
_LARGE_LOSSES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 512.0, 4096.0])
_SMALL_LOSSES = 4.0 ** np.arange(-13, 0)
_DIFFERENCE_LEVELS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
_LOG_LARGEST = 40.0  # the logarithm of the largest latent value considered
_BATCH = 512  # Gaussians at a time, so that memory stays bounded


def probability(
    loss: AbstractLoss,
    means: Float[Array, "k m"],
    variances: Float[Array, " m"] | None = None,
    rule: Rule = "normalized",
) -> Float[Array, " m"]:
    """`P(y = +1)` at m points, whose latent values have mixtures of k equally likely Gaussians.

    With `<.>` the average over latent values and `p(f)` the conditional probability
    `exp(-L(+1, f)) / (exp(-L(+1, f)) + exp(-L(-1, f)))`:

    - `"normalized"`: `<exp(-L(+1, f))> / (<exp(-L(+1, f))> + <exp(-L(-1, f))>)`. Latent values between the
      margins, for which neither label is likely, count less. This is the prediction of the likelihood
      `exp(-L)`, which does not sum to one over the labels: [GS03, eq. 6]; Sollich, "Bayesian methods for
      support vector machines: evidence and predictive class probabilities".
    - `"average"`: `<p(f)>`.

    They agree if the likelihood is normalized (logistic with `C = 1`, probit, flips, trigonometric). For one
    Gaussian both are above one half if its mean is positive.

    Each integral is a sum over panels with eight Gauss-Legendre nodes each. The panels end at levels of the
    loss and at multiples of the standard deviation around the peak. The error is below 1e-6 for penalties
    and standard deviations of all sizes; for small probabilities, down to 1e-15, this holds for the
    relative error.

    **Arguments:**

    - `loss`: a classification loss.
    - `means`: the means of the Gaussians, one row for each of the k components.
    - `variances`: the variances of the Gaussians, the same for all components at a point; zero is allowed,
      and None means all zero.
    - `rule`: `"normalized"` or `"average"`.

    **Returns:** one probability for each point; differentiable, except with respect to a variance of zero.
    """
    check_rule(loss, rule)
    deviations = None
    if variances is not None:
        deviations = jnp.broadcast_to(safe_root(variances.astype(means.dtype)), means.shape)
    return _of_machine(loss, means, deviations, _is_weighted(loss, rule))


def mixture_probability(parts: Components, rule: Rule = "normalized") -> Float[Array, " m"]:
    """`P(y = +1)` at m points: the mean over machines of `probability`.

    **Arguments:** `parts`, the latent values as Gaussians; `rule`, one that `check_rule` accepts, applied to
    each machine separately.

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

        @jax.checkpoint  # otherwise the derivative would store all nodes of all Gaussians
        def one(mean_and_deviation):
            return _integrate(loss, breaks, weighted, *mean_and_deviation)

        integrals = jax.lax.map(
            one, (means.ravel(), deviations.ravel()), batch_size=min(_BATCH, means.size)
        )
        log_weights, shares = (array.reshape(means.shape) for array in integrals)
    return jnp.sum(jax.nn.softmax(log_weights, axis=0) * shares, axis=0)


def check_rule(loss: AbstractLoss, rule: str) -> None:
    """Raise unless the loss is a classification loss and the rule is known.

    **Arguments:** `loss`; `rule`, the name of the rule.

    **Returns:** nothing.
    """
    if not isinstance(loss, AbstractClassification):
        raise ValueError(
            f"{type(loss).__name__} is a regression loss: class probabilities need a classification loss, "
            "such as `losses.Hinge`"
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
    """Logarithm of the weight, and probability, of latent values without uncertainty."""
    total, difference = _parts(loss, jnp.abs(f))
    small = jax.nn.sigmoid(-difference)
    share = jnp.where(f >= 0, 1 - small, small)
    return total if weighted else jnp.zeros_like(total), share


def _integrate(loss, breaks, weighted, mean, deviation):
    """Logarithm of `<w>`, and `<w p> / <w>`, for one Gaussian, with the weight `w = exp(-L) + exp(-L)`.

    The weight is an even function of f, and so is `p(f) + p(-f) = 1`. So the integral is folded to `f >= 0`,
    where with a Gaussian `N` around `|mean|` the density of `-f` is `N exp(-2 f |mean| / variance)`. The sum
    gives the smaller of the two probabilities: all its terms are positive, so its relative error is small,
    and it is below one half however coarse the nodes are.
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
    """The ends of panels for the integral of one Gaussian times the weight over `f >= 0`."""
    top = center
    if weighted and loss.is_convex:  # with a large penalty the mass may be far from the center
        top = peak(lambda f: loss.derivative(jnp.ones_like(f), f), center, scale)
    wide = top + scale * STEPS.astype(scale.dtype)
    # many deviations from the center, the Gaussian falls more steeply
    near = top + scale / (1 + jnp.abs(top - center) / scale) * _NEAR.astype(scale.dtype)
    ends = jnp.concatenate([breaks, wide, near])
    return jnp.clip(ends, jnp.maximum(wide[0], 0), wide[-1])


def _breaks(loss, dtype):
    """The ends of panels that all Gaussians share: 0, 1 and where the losses reach given levels."""
    ends = jnp.asarray([0.0, 1.0], dtype)
    differences = jnp.asarray(_DIFFERENCE_LEVELS, dtype)
    one = jnp.ones((), dtype)
    lowest = jnp.minimum(loss.value(one, one), loss.value(one, jnp.exp(_LOG_LARGEST * one)))
    levels = lowest + jnp.asarray(_LARGE_LOSSES, dtype)
    if loss.vanishes_slowly:
        levels = jnp.concatenate([lowest + jnp.asarray(_SMALL_LOSSES, dtype), levels])

    two_sided = isinstance(loss, AbstractTwoSided)  # zero at one, and growing again beyond it

    def low_loss(f):
        low = loss.value(jnp.ones_like(f), f) <= levels
        return low | (f >= 1) if two_sided else low

    def large_loss_beyond(f):
        return (loss.value(jnp.ones_like(f), f) >= levels) & (f >= 1)

    def large_difference(f):
        label = jnp.ones_like(f)
        return loss.value(-label, f) - loss.value(label, f) >= differences

    breaks = [ends, _first(low_loss, levels), _first(large_difference, differences)]
    if two_sided:
        breaks.append(_first(large_loss_beyond, levels))
    return jnp.concatenate(breaks)


def _first(holds, like):
    """The smallest positive number at which `holds` is true, for each entry of `like`, by bisection.

    Bisecting the logarithm works for numbers of any size.
    """

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        true = holds(jnp.exp(middle))
        return jnp.where(true, low, middle), jnp.where(true, middle, high)

    ends = (jnp.full_like(like, -_LOG_LARGEST), jnp.full_like(like, _LOG_LARGEST))
    return jnp.exp(jax.lax.fori_loop(0, 56, halve, ends)[1])

"""Losses written out from the papers' formulas, one number at a time, and integrals by quadrature.

`CASES` pairs every loss of the library with its formula; `grid` and `dual_grid` are where to compare
them, `compiled` and `log_kappa_of` the library's side, compiled once for all tests.
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import integrate, optimize, special

from jaxsvm import losses

# ---------------------------------------------------------------------------- classification


def hinge(y, f, C):
    """Gold and Sollich, eqs. 1-2 with p = 1."""
    return C * (1 - y * f) if 1 - y * f >= 0 else 0.0


def squared_hinge(y, f, C):
    """Gold and Sollich, eqs. 1-2 with p = 2."""
    return C * (1 - y * f) ** 2 / 2 if 1 - y * f >= 0 else 0.0


def least_squares(y, f, C):
    return C * (y - f) ** 2 / 2


def logistic(y, f, C):
    return -C * special.log_expit(y * f)


def probit(y, f, noise_variance):
    """Opper and Winther, eq. 8.15."""
    return -special.log_ndtr(y * f / math.sqrt(noise_variance))


def flip_noise(y, f, flip_rate, noise_variance):
    """Opper and Winther, eq. 8.17, with the input noise of eq. 8.15."""
    step = special.ndtr(y * f / math.sqrt(noise_variance))
    return -math.log(flip_rate + (1 - 2 * flip_rate) * step)


def trigonometric(y, f):
    """Gold and Sollich, "Fast Bayesian support vector machine parameter tuning", sec. IV."""
    z = y * f
    if z <= -1:
        return math.inf
    return 2 * math.log(1 / math.cos(math.pi / 4 * (1 - z))) if z < 1 else 0.0


def normalized_hinge(y, f, C):
    """Minus the logarithm of the label's share of the two hinge likelihoods."""
    right, wrong = math.exp(-hinge(y, f, C)), math.exp(-hinge(-y, f, C))
    return -math.log(right / (right + wrong))


def inverse_kappa(loss):
    """`max_z exp(-L(1, z)) + exp(-L(-1, z))` on a grid, then refined around the best point."""

    def total(z):
        return math.exp(-loss(1.0, z)) + math.exp(-loss(-1.0, z))

    grid = np.concatenate([np.linspace(-2, 2, 4001), np.linspace(2, 60, 581)])
    values = [total(z) for z in grid]
    best = grid[int(np.argmax(values))]
    refined = optimize.minimize_scalar(
        lambda z: -total(z), bounds=(best - 2e-3, best + 2e-3), options={"xatol": 1e-13}
    )
    return max(max(values), -refined.fun)


# ---------------------------------------------------------------------------- regression


def soft_insensitive(y, f, C, epsilon, beta):
    """Chu, Keerthi and Ong, eq. 11."""
    delta = y - f
    if delta < -(1 + beta) * epsilon:
        return C * (-delta - epsilon)
    if delta <= -(1 - beta) * epsilon:
        return C * (delta + (1 - beta) * epsilon) ** 2 / (4 * beta * epsilon)
    if delta < (1 - beta) * epsilon:
        return 0.0
    if delta <= (1 + beta) * epsilon:
        return C * (delta - (1 - beta) * epsilon) ** 2 / (4 * beta * epsilon)
    return C * (delta - epsilon)


def epsilon_insensitive(y, f, C, epsilon):
    return 0.0 if abs(y - f) <= epsilon else C * (abs(y - f) - epsilon)


def huber(y, f, C, epsilon):
    """Chu, Keerthi and Ong, eq. 10."""
    delta = y - f
    return C * (delta**2 / (4 * epsilon) if abs(delta) <= 2 * epsilon else abs(delta) - epsilon)


def laplacian(y, f, C):
    return C * abs(y - f)


def quadratic(y, f, noise_variance):
    return (y - f) ** 2 / (2 * noise_variance)


def soft_insensitive_normalizer(C, epsilon, beta):
    """`Z_S` of Chu, Keerthi and Ong, eq. 14."""
    return (
        2 * (1 - beta) * epsilon
        + 2 * math.sqrt(math.pi * beta * epsilon / C) * math.erf(math.sqrt(C * beta * epsilon))
        + 2 / C * math.exp(-C * beta * epsilon)
    )


def soft_insensitive_variance(C, epsilon, beta):
    """`sigma_n^2` of Chu, Keerthi and Ong, eq. 15."""
    gauss = math.sqrt(math.pi * beta * epsilon / C)
    error_function = math.erf(math.sqrt(C * beta * epsilon))
    tail = epsilon**2 * (1 - beta) ** 2 / C + 2 * epsilon * (1 + beta) / C**2 + 2 / C**3
    total = (
        (1 - beta) ** 3 * epsilon**3 / 3
        + 4 * (1 - beta) * beta * epsilon**2 / C
        + gauss * (2 * beta * epsilon / C + (1 - beta) ** 2 * epsilon**2) * error_function
        + tail * math.exp(-C * beta * epsilon)
    )
    return 2 / soft_insensitive_normalizer(C, epsilon, beta) * total


def moment(loss, kinks, power):
    """The integral of `r^power exp(-L(r, 0))` for an even power, piece by piece."""

    def density(r):
        return r**power * math.exp(-loss(r, 0.0))

    ends = [0.0, *sorted(kinks)]
    total = sum(
        integrate.quad(density, a, b, epsabs=0, epsrel=1e-13)[0]
        for a, b in itertools.pairwise(ends)
    )
    return 2 * (total + integrate.quad(density, ends[-1], np.inf, epsabs=0, epsrel=1e-12)[0])


def cumulative(loss, points=20_001, reach=40.0):
    """The distribution function of the noise, from Simpson's rule on a fine grid."""
    grid = np.linspace(-reach, reach, points)
    density = np.array([math.exp(-loss(r, 0.0)) for r in grid])
    areas = integrate.cumulative_simpson(density, x=grid, initial=0)
    return lambda r: np.interp(r, grid, areas / areas[-1])


# ---------------------------------------------------------------------------- duality


def latent_interval(pieces, y, dual, weight):
    """All `f` with `-dual` among the subgradients of `weight L(y, .)` at `f`, as `(lowest, highest)`."""
    bound, compliance = weight * pieces.bound, pieces.compliance / weight
    if not pieces.two_sided:
        size = y * dual
        lowest = -math.inf if size >= bound else 1 - compliance * size
        highest = math.inf if size <= 0 else 1 - compliance * size
        ends = (y * lowest, y * highest)
    elif dual == 0:
        ends = (y - pieces.dead_zone, y + pieces.dead_zone)
    else:
        side = math.copysign(1.0, dual)
        least = pieces.dead_zone + compliance * abs(dual)  # of the residual on that side
        most = math.inf if abs(dual) >= bound else least
        ends = (y - side * least, y - side * most)
    return min(ends), max(ends)


# ---------------------------------------------------------------------------- differences


def slopes(function, x, step=3e-4):
    """Central differences of fourth order of an elementwise function."""
    near = function(x + step) - function(x - step)
    far = function(x + 2 * step) - function(x - 2 * step)
    return (8 * near - far) / (12 * step)


def loop(formula, y, f):
    """The formula for one example after the other."""
    return np.array([formula(a, b) for a, b in zip(y, f, strict=True)])


# ---------------------------------------------------------------------------- all losses


class Pieces(NamedTuple):
    """The numbers of a piecewise loss, with zero or infinity for one that it does not have."""

    two_sided: bool
    dead_zone: float
    compliance: float
    bound: float


class Case(NamedTuple):
    """A loss, its formula `(y, f)`, where it is not smooth (margins or sizes of residuals)."""

    loss: losses.AbstractLoss
    formula: Callable
    kinks: tuple[float, ...]
    pieces: Pieces | None = None


def _with(formula, *parameters):
    return lambda y, f: formula(y, f, *parameters)


def hinge_case(C):
    pieces = Pieces(False, 0.0, 0.0, C)
    return Case(losses.Hinge(C), _with(hinge, C), (1.0,), pieces)


def squared_hinge_case(C):
    pieces = Pieces(False, 0.0, 1 / C, math.inf)
    return Case(losses.SquaredHinge(C), _with(squared_hinge, C), (1.0,), pieces)


def least_squares_case(C):
    pieces = Pieces(True, 0.0, 1 / C, math.inf)
    return Case(losses.LeastSquares(C), _with(least_squares, C), (), pieces)


def logistic_case(C):
    return Case(losses.Logistic(C), _with(logistic, C), ())


def soft_insensitive_case(C, epsilon, beta):
    pieces = Pieces(True, (1 - beta) * epsilon, 2 * beta * epsilon / C, C)
    kinks = ((1 - beta) * epsilon, (1 + beta) * epsilon)
    loss = losses.SoftInsensitive(C, epsilon, beta)
    return Case(loss, _with(soft_insensitive, C, epsilon, beta), kinks, pieces)


def epsilon_insensitive_case(C, epsilon):
    pieces = Pieces(True, epsilon, 0.0, C)
    loss = losses.EpsilonInsensitive(C, epsilon)
    return Case(loss, _with(epsilon_insensitive, C, epsilon), (epsilon,), pieces)


def huber_case(C, epsilon):
    pieces = Pieces(True, 0.0, 2 * epsilon / C, C)
    return Case(losses.Huber(C, epsilon), _with(huber, C, epsilon), (2 * epsilon,), pieces)


def laplacian_case(C):
    return Case(losses.Laplacian(C), _with(laplacian, C), (0.0,), Pieces(True, 0.0, 0.0, C))


def quadratic_case(variance):
    pieces = Pieces(True, 0.0, variance, math.inf)
    return Case(losses.Quadratic(variance), _with(quadratic, variance), (), pieces)


# name -> the case with its main parameter multiplied by s
CASES = {
    "hinge": lambda s: hinge_case(1.7 * s),
    "squared-hinge": lambda s: squared_hinge_case(1.7 * s),
    "least-squares": lambda s: least_squares_case(0.6 * s),
    "logistic": lambda s: logistic_case(1.3 * s),
    "probit": lambda s: Case(losses.Probit(0.8 * s), _with(probit, 0.8 * s), ()),
    "flip-noise": lambda s: Case(
        losses.FlipNoise(0.07, 0.8 * s), _with(flip_noise, 0.07, 0.8 * s), ()
    ),
    "trigonometric": lambda s: Case(losses.Trigonometric(), trigonometric, (1.0, -1.0)),
    "normalized": lambda s: Case(
        losses.Normalized(losses.Hinge(0.9 * s)), _with(normalized_hinge, 0.9 * s), (1.0, -1.0)
    ),
    "soft-insensitive": lambda s: soft_insensitive_case(2.0 * s, 0.7, 0.4),
    "epsilon-insensitive": lambda s: epsilon_insensitive_case(2.0 * s, 0.7),
    "huber": lambda s: huber_case(1.4 * s, 0.6),
    "laplacian": lambda s: laplacian_case(1.4 * s),
    "quadratic": lambda s: quadratic_case(0.5 * s),
}
LABELS = ("hinge", "squared-hinge", "least-squares", "logistic", "probit", "flip-noise")
LABELS += ("trigonometric", "normalized")
NOISES = tuple(name for name in CASES if name not in LABELS)


def corners(name, y):
    """The latent values where the loss is not smooth."""
    kinks = CASES[name](1.0).kinks
    if name in LABELS:
        return [y * z for z in kinks]
    return [y + side * r for r in kinks for side in (1, -1)]


def grid(name, reach=4.0, count=81):
    """Targets and latent values, those where the loss is not smooth among them."""
    pairs = []
    for y in (1.0, -1.0) if name in LABELS else (0.7, -1.3):
        center = 0.0 if name in LABELS else y
        steps = center + np.linspace(-reach, reach, count)
        pairs += [(y, f) for f in (*corners(name, y), *steps)]
    return np.array(pairs).T


def distance_to_kinks(name, y, f):
    places = y * f if name in LABELS else np.abs(y - f)
    kinks = CASES[name](1.0).kinks
    return np.min([np.abs(places - kink) for kink in kinks] or [np.full_like(f, np.inf)], axis=0)


def dual_grid(name):
    """Targets, latent values, dual coefficients within their bounds, weights; and what is allowed."""
    pieces = CASES[name](1.0).pieces
    rows = []
    for weight in (0.5, 1.0, 2.0):
        sizes = min(weight * pieces.bound, 3.0) * np.array([0.0, 0.1, 0.5, 0.9, 1.0])
        for y in (1.0, -1.0) if name in LABELS else (0.7, -1.3):
            duals = [*sizes, *-sizes[1:]] if pieces.two_sided else y * sizes
            for dual in duals:
                lowest, highest = latent_interval(pieces, y, dual, weight)
                ends = [end for end in (lowest, highest) if np.isfinite(end)]
                moved = [end + move for end in ends for move in (-2, -0.3, 0.2, 1)]
                for f in (*ends, np.mean(ends), *moved):
                    rows.append((y, f, dual, weight, lowest, highest))
    return np.array(rows).T


def supremum(name, y, dual, weight, reach=50.0):
    """`sup_f (-dual f - weight L(y, f))`: a concave function of one number, by search."""
    formula = CASES[name](1.0).formula

    def negative(f):
        return dual * f + weight * formula(y, f)

    found = optimize.minimize_scalar(negative, bounds=(y - reach, y + reach), method="bounded")
    return -min(found.fun, *(negative(f) for f in corners(name, y)), math.inf)


@functools.cache
def compiled(name, dtype):
    """All methods of a loss in one compilation, and a list of its traces."""
    usable = distance_to_kinks(name, *grid(name)) > 5e-3
    if name == "trigonometric":
        usable &= np.prod(grid(name), axis=0) > -0.8  # the wall is too steep for differences
    traces = []

    @jax.jit
    def evaluate(loss, y, f):
        traces.append(name)
        found = {
            "value": loss.value(y, f),
            "derivative": loss.derivative(y, f),
            "curvature": loss.curvature(y, f),
            "log_likelihood": loss.log_likelihood(y, f),
            "log_normalizer": loss.log_normalizer(),
        }
        if name in NOISES:
            found["noise_variance"] = loss.noise_variance
        if dtype == "float64":  # bare: no filter between `jax.grad` and the leaves
            found["objective"], (found["gradient"], found["slope"]) = jax.value_and_grad(
                lambda loss, f: jnp.sum(loss.value(y, f), where=usable), (0, 1)
            )(loss, f)
            found["bend"] = jax.grad(lambda f: jnp.sum(loss.derivative(y, f), where=usable))(f)
        return found

    return evaluate, usable, traces


CS = np.array([0.2, 0.9, 0.999, 1.0, 1.001, 1.1, 3.0, 30.0])
CLASSES = {
    "hinge": losses.Hinge,
    "squared-hinge": losses.SquaredHinge,
    "least-squares": losses.LeastSquares,
    "logistic": losses.Logistic,
}


@functools.cache
def log_kappa_of(name):
    """`ln kappa(C)` and its two derivatives in `C`, for all of `CS` at once."""

    def log_kappa(C):
        return CLASSES[name](C).log_normalizer()

    first = jax.value_and_grad(log_kappa)
    return jax.jit(jax.vmap(lambda C: (*first(C), jax.grad(jax.grad(log_kappa))(C))))

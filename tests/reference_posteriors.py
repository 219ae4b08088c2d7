"""Posteriors written out: Gaussians from plain inverses, averages over fine grids, in loops."""

from typing import NamedTuple

import numpy as np
import scipy.special
import scipy.stats

LENGTHSCALE, VARIANCE, CONSTANT = np.array([0.8, 1.7]), 1.9, 0.3
_Z = np.linspace(-9, 9, 4001)
_RESIDUALS = np.linspace(-30, 30, 1_200_001)


class Machine(NamedTuple):
    """One machine: k equally likely means of the latent values at m points, and one covariance.

    `values` and `deviations` are the same point by point, `log_likelihood` is a function of the margin, or of
    the residual.
    """

    share: float
    means: np.ndarray
    covariance: np.ndarray
    values: np.ndarray
    deviations: np.ndarray
    log_likelihood: object


def kernel(a, b, lengthscale=LENGTHSCALE):
    """The covariances of two sets of points."""
    gaps = (a[:, None, :] - b[None, :, :]) / lengthscale
    return VARIANCE * np.exp(-np.sum(gaps**2, axis=2) / 2) + CONSTANT


def gaussian(share, x, new, dual, precision, log_likelihood, lengthscale=LENGTHSCALE):
    """The machine whose examples are noisy measurements of these precisions, none where it is zero."""
    some = np.asarray(precision) != 0
    cross = kernel(new, x, lengthscale)
    mean = cross @ np.asarray(dual)
    noisy = kernel(x[some], x[some], lengthscale) + np.diag(1 / np.asarray(precision)[some])
    taken = cross[:, some] @ np.linalg.solve(noisy, cross[:, some].T)
    covariance = kernel(new, new, lengthscale) - taken
    deviations = np.sqrt(np.diag(covariance))[None]
    return Machine(share, mean[None], covariance, mean[None], deviations, log_likelihood)


def drawn(x, new, points, projection, b, log_likelihood):
    """Draws in white coordinates; what these do not reach is spread evenly over the draws."""
    features = kernel(new, np.asarray(points)) @ np.asarray(projection)
    means = np.asarray(b).reshape(-1, b.shape[2]) @ features.T
    covariance = kernel(new, new) - features @ features.T
    count = len(means)
    order = np.random.default_rng(0).permutation(count)
    normal = scipy.special.ndtri((order + 0.5) / count)
    values = means + normal[:, None] * np.sqrt(np.diag(covariance))[None, :]
    return Machine(1.0, means, covariance, values, np.zeros(values.shape), log_likelihood)


def moments(machines):
    """Mean and covariance of the latent values of all points."""
    mean = sum(machine.share * machine.means.mean(axis=0) for machine in machines)
    second = np.zeros((len(mean), len(mean)))
    for machine in machines:
        around = machine.means - mean
        second += machine.share * (machine.covariance + around.T @ around / len(around))
    return mean, second


def _over(machine, i, function):
    """The average of a function over the latent values of one point."""
    total = 0.0
    for value, deviation in zip(machine.values[:, i], machine.deviations[:, i], strict=True):
        if deviation == 0:
            total += function(np.array([value]))[0]
        else:
            total += np.trapezoid(scipy.stats.norm.pdf(_Z) * function(value + deviation * _Z), _Z)
    return total / len(machine.values)


def probability(machines, i, rule="normalized"):
    """`P(y = +1)` of one point."""
    found = 0.0
    for machine in machines:
        log_likelihood = machine.log_likelihood

        def conditional(f, log_likelihood=log_likelihood):
            return scipy.special.expit(log_likelihood(f) - log_likelihood(-f))

        if rule == "average":
            share = _over(machine, i, conditional)
        else:
            yes = _over(machine, i, lambda f, log=log_likelihood: np.exp(log(f)))
            no = _over(machine, i, lambda f, log=log_likelihood: np.exp(log(-f)))
            share = yes / (yes + no)
        found += machine.share * share
    return found


def noise(log_likelihood):
    """The residuals of a fine grid, and their density, distribution and variance."""
    density = np.exp(log_likelihood(_RESIDUALS))
    step = _RESIDUALS[1] - _RESIDUALS[0]
    density /= density.sum() * step
    below = (np.cumsum(density) - density / 2) * step
    return _RESIDUALS, density, below, np.sum(density * _RESIDUALS**2) * step


def predictive(machines, i, target):
    """The density of a target at one point, and its cumulative probability."""
    density, below = 0.0, 0.0
    for machine in machines:
        grid, at, under, _ = noise(machine.log_likelihood)
        density += machine.share * _over(
            machine, i, lambda f, g=grid, a=at: np.interp(target - f, g, a)
        )
        below += machine.share * _over(
            machine, i, lambda f, g=grid, u=under: np.interp(target - f, g, u)
        )
    return density, below

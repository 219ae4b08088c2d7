"""Class probabilities against quadrature, and the Gaussian posterior against exact regression and loops."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels

import jaxsvm as jsvm
from jaxsvm import RESULTS, criteria, kernels, losses
from jaxsvm.posteriors import LaplacePosterior, around, laplace
from jaxsvm.posteriors._probability import RULES, probability

RNG = np.random.default_rng(3)
X = RNG.normal(size=(26, 2))
Y = np.where(X[:, 0] + 0.7 * RNG.normal(size=26) > 0, 1.0, -1.0)
NEW = RNG.normal(size=(40, 2))

# the losses again, as functions of the margin
LOG_LIKELIHOODS = {
    "hinge": (losses.Hinge(3.0), lambda z: -3 * np.maximum(1 - z, 0)),
    "steep hinge": (losses.Hinge(1e4), lambda z: -1e4 * np.maximum(1 - z, 0)),
    "squared hinge": (losses.SquaredHinge(20.0), lambda z: -10 * np.maximum(1 - z, 0) ** 2),
    "least squares": (losses.LeastSquares(2.0), lambda z: -((1 - z) ** 2)),
    "logistic": (losses.Logistic(50.0), lambda z: -50 * np.logaddexp(0, -z)),
    "probit": (losses.Probit(0.04), lambda z: scipy.special.log_ndtr(z / 0.2)),
    "flips": (
        losses.FlipNoise(0.1, 0.04),
        lambda z: np.log(0.1 + 0.8 * scipy.special.ndtr(z / 0.2)),
    ),
    "trigonometric": (
        losses.Trigonometric(),
        lambda z: 2 * np.log(np.cos(np.pi / 4 * (1 - np.clip(z, -1 + 1e-12, 1)))),
    ),
}


def integral(function, mean, deviation):
    """Over a Gaussian, piece by piece between places that crowd where the functions have kinks or layers."""
    places = np.concatenate([[0.0], np.geomspace(1e-7, 1e3, 61)])
    places = np.concatenate([c + s * places for c in (-1, 0, 1) for s in (-1, 1)])
    places = np.concatenate([places, mean + deviation * np.arange(-9.0, 9.5, 0.5)])
    ends = np.unique(np.clip(places, mean - 9 * deviation, mean + 9 * deviation))

    def integrand(f):
        return function(f) * np.exp(-(((f - mean) / deviation) ** 2) / 2)

    pieces = [
        scipy.integrate.fixed_quad(integrand, a, b, n=12)[0] for a, b in itertools.pairwise(ends)
    ]
    return sum(pieces) / (deviation * np.sqrt(2 * np.pi))


def literal_probability(log_likelihood, means, deviation, rule):
    def conditional(f):
        return scipy.special.expit(log_likelihood(f) - log_likelihood(-f))

    if rule == "average":
        return np.mean([integral(conditional, mean, deviation) for mean in means])
    yes = sum(integral(lambda f: np.exp(log_likelihood(f)), mean, deviation) for mean in means)
    no = sum(integral(lambda f: np.exp(log_likelihood(-f)), mean, deviation) for mean in means)
    return yes / (yes + no)


@pytest.mark.parametrize("name", LOG_LIKELIHOODS)
def test_probability_by_quadrature(name):
    loss, log_likelihood = LOG_LIKELIHOODS[name]
    # the mean of three, and a Gaussian each: narrow, as wide as the gap between margins, very wide
    means = np.array([[0.8, -0.3, 4.0], [1.2, 0.4, -30.0], [0.7, -1.5, 11.0]])
    deviations = np.array([0.03, 0.9, 50.0])
    for rule in RULES:
        found = probability(loss, jnp.asarray(means), jnp.asarray(deviations**2), rule)
        for i in range(3):
            expected = literal_probability(log_likelihood, means[:, i], deviations[i], rule)
            assert abs(float(found[i]) - expected) < 1e-6, (rule, i)


def test_probability_far_in_the_tails():
    """In closed form: between the margins `exp(-L)` is exponential, and so only tilts the Gaussian."""
    C, mean, deviation = 200.0, 1e-3, 0.05  # the largest part of <exp(-L)> is ten deviations away
    assert C * deviation**2 + 8 * deviation < 1
    means = jnp.tile(jnp.array([mean, -mean, 0.0]), (3, 1))
    found = probability(losses.Hinge(C), means, jnp.full(3, deviation**2))
    np.testing.assert_allclose(found, scipy.special.expit(2 * C * means[0]), rtol=1e-9)
    # a small probability, to many digits
    found = probability(losses.Probit(1.0), jnp.full((3, 3), -8.0), jnp.ones(3))
    np.testing.assert_allclose(found, scipy.special.ndtr(-8 / np.sqrt(2)), rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_probability_without_spread(rule):
    means = jnp.array([[0.3, -2.0, 0.0], [0.3, 5.0, 0.0], [0.3, 5.0, 0.0]])
    for loss in (losses.Hinge(2.0), losses.Trigonometric()):
        exact = probability(loss, means, None, rule)
        np.testing.assert_array_equal(probability(loss, means, jnp.zeros(3), rule), exact)
        np.testing.assert_allclose(exact[0], loss.probability(means[0])[0], rtol=1e-12)
        near = probability(loss, means, jnp.full(3, 1e-14), rule)
        np.testing.assert_allclose(near, exact, atol=1e-6)
    one, other = np.exp(-2 * 3.0), np.exp(-2 * 6.0)  # of f = -2 and of f = 5
    expected = {
        "normalized": (one + 2) / (one + 2 + 1 + 2 * other),
        "average": (one / (one + 1) + 2 / (1 + other)) / 3,
    }
    np.testing.assert_allclose(probability(losses.Hinge(2.0), means, None, rule)[1], expected[rule])


@pytest.mark.parametrize("rule", RULES)
def test_probability_is_monotone_and_symmetric(rule):
    means = jnp.concatenate([jnp.array([1e-12, 1e-6]), jnp.linspace(0.01, 4, 17)])
    signed = jnp.concatenate([means, -means, jnp.zeros(2)])[None, :]
    for variance in (1e-4, 0.3, 400.0):
        p = probability(losses.Hinge(7.0), signed, jnp.full(40, variance), rule)
        assert bool(jnp.all(p[:19] > 0.5)) and bool(jnp.all(jnp.diff(p[:19]) >= -1e-9))
        np.testing.assert_allclose(p[:19] + p[19:38], 1, rtol=0, atol=1e-15)
        assert p[38:].tolist() == [0.5, 0.5]


def test_probability_has_derivatives():
    def value(log_C, mean, variance):
        means = jnp.full((3, 3), 0.2).at[0, 0].set(mean)
        return probability(losses.Hinge(jnp.exp(log_C)), means, jnp.full(3, variance))[0]

    point = (jnp.asarray(0.7), jnp.asarray(0.4), jnp.asarray(0.5))
    slopes = jax.grad(value, (0, 1, 2))(*point)
    for place in range(3):
        up, down = (tuple(p + s * (i == place) for i, p in enumerate(point)) for s in (1e-5, -1e-5))
        expected = (value(*up) - value(*down)) / 2e-5
        np.testing.assert_allclose(slopes[place], expected, rtol=1e-6)
    wall = jax.grad(lambda m: probability(losses.Trigonometric(), m)[0])(jnp.array([[3.0]]))
    assert bool(jnp.isfinite(wall[0, 0]))


def test_probability_in_single_precision():
    log_likelihood = LOG_LIKELIHOODS["hinge"][1]
    with jax.enable_x64(False):
        means = jnp.array([[0.3, 2.0, 0.0]])
        found = probability(losses.Hinge(3.0), means, jnp.array([0.04, 900.0, 0.0]))
        assert found.dtype == jnp.float32
        means, variances = jnp.array([[1e4, -1e4, 1e-9]]), jnp.array([1.0, 1e6, 1e-9])
        huge = probability(losses.Hinge(1e6), means, variances)
    cases = ((0.3, 0.2), (2.0, 30.0))
    expected = [literal_probability(log_likelihood, [m], s, "normalized") for m, s in cases]
    np.testing.assert_allclose(found, [*expected, 0.5], atol=1e-5)
    np.testing.assert_allclose(huge[:2], [1.0, 0.0], atol=1e-5)
    assert 0.5 <= float(huge[2]) <= 1.0


def test_probability_says_what_is_wrong():
    with pytest.raises(ValueError, match="Quadratic is a regression loss"):
        probability(losses.Quadratic(), jnp.zeros((1, 1)), jnp.ones(1))
    with pytest.raises(ValueError, match='"normalized" or "average", not \'mean\''):
        probability(losses.Hinge(), jnp.zeros((1, 1)), jnp.ones(1), "mean")


def machine(loss):
    kernel = kernels.RBF(jnp.array([0.8, 1.7]), 1.9) + kernels.Constant(0.3)
    return jsvm.KernelMachine(kernel, loss)


def literal_variance(x, curvatures):
    """`k(x, x) - k' (Lambda^-1 + K)^-1 k` over the examples whose curvature is not zero, point by point."""

    def kernel(a, b):
        return 1.9 * np.exp(-(((a - b) / [0.8, 1.7]) ** 2).sum() / 2) + 0.3

    chosen = [i for i in range(len(x)) if curvatures[i] != 0]
    matrix = np.array([[kernel(x[i], x[j]) for j in chosen] for i in chosen])
    matrix += np.diag([1 / curvatures[i] for i in chosen])
    variances = []
    for point in NEW:
        k = np.array([kernel(x[i], point) for i in chosen])
        variances.append(kernel(point, point) - k @ np.linalg.solve(matrix, k))
    return np.array(variances)


def test_hinge_posterior_by_loops():
    fit = jsvm.fit(machine(losses.Hinge(1.4)), X, Y)
    curvatures = np.zeros(len(X))
    for i in range(len(X)):
        alpha, margin = float(jnp.abs(fit.dual[i])), float(fit.y[i] * fit.latent[i])
        if abs(margin - 1) < 1e-7 and 0 < alpha < 1.4:
            curvatures[i] = 2 * np.pi * (alpha * (1.4 - alpha) / 1.4) ** 2
    posterior = laplace(fit)
    mean, deviation = posterior.latent(NEW)
    np.testing.assert_array_equal(mean, fit.decision(NEW))
    np.testing.assert_allclose(deviation**2, literal_variance(X, curvatures), rtol=1e-9)
    # under jit the rows are not picked, with the same result
    evidence = criteria.LaplaceEvidence()
    traced = jax.jit(lambda fit: around(fit, evidence).latent(NEW)[1])(fit)
    np.testing.assert_allclose(traced, deviation, rtol=1e-8)


def test_flipped_labels_have_negative_curvature():
    y = np.where(np.arange(len(X)) < 13, 1.0, -1.0)
    x = 0.1 * X + np.stack([1.5 * y, 0 * y], axis=1)
    y[0] = -1.0  # in the midst of the others
    fit = jsvm.fit(machine(losses.FlipNoise(0.1, 0.3)), x, y)
    curvatures = np.asarray(fit.model.loss.curvature(fit.y, fit.latent))
    assert curvatures.min() < -0.5
    _, deviation = laplace(fit).latent(NEW)
    np.testing.assert_allclose(deviation**2, literal_variance(x, curvatures), rtol=1e-8)
    # with all labels where the loss bends down most there is no maximum
    moved = dataclasses.replace(fit, latent=-1.1 * fit.y)
    with pytest.raises(jsvm.FitError, match="not positive at this fit"):
        laplace(moved)


def test_quadratic_loss_is_gaussian_process_regression():
    targets = np.sin(2 * X[:, 0]) + 0.1 * X[:, 1]
    fit = jsvm.fit(machine(losses.Quadratic(0.3)), X, targets)
    kernel = sklearn_kernels.ConstantKernel(1.9) * sklearn_kernels.RBF([0.8, 1.7])
    kernel += sklearn_kernels.ConstantKernel(0.3)
    exact = GaussianProcessRegressor(kernel, alpha=0.3, optimizer=None).fit(X, targets)
    mean, deviation = exact.predict(NEW, return_std=True)
    posterior = laplace(fit)
    np.testing.assert_allclose(posterior.latent(NEW)[0], mean, rtol=1e-7)
    np.testing.assert_allclose(posterior.latent(NEW)[1], deviation, rtol=1e-7)
    np.testing.assert_allclose(posterior.predict(NEW), mean, rtol=1e-7)
    with pytest.raises(ValueError, match="regression loss"):
        posterior.probability(NEW)


def test_probabilities_agree_with_the_classifier():
    loss = losses.Hinge(30.0)
    model = jsvm.freeze(machine(loss), "kernel")
    posterior = laplace(jsvm.fit(model, X, Y))
    assert isinstance(posterior, LaplacePosterior)
    mean, deviation = posterior.latent(NEW)
    for rule in RULES:
        p = posterior.probability(NEW, rule)
        np.testing.assert_array_equal(p > 0.5, mean > 0)
        np.testing.assert_array_equal(np.where(p > 0.5, 1, -1), posterior.predict(NEW))
        np.testing.assert_allclose(p, probability(loss, mean[None], deviation**2, rule))


def test_posterior_says_what_is_wrong():
    fit = jsvm.fit(machine(losses.Hinge()), X, Y)
    model = jsvm.KernelMachine(kernels.RBF(), losses.Hinge(), offset=True)
    with pytest.raises(ValueError, match="free, unpenalized offset"):
        laplace(dataclasses.replace(fit, model=model))
    with pytest.raises(TypeError, match="not a KernelMachine"):
        laplace(model)
    with pytest.raises(jsvm.FitError, match="iteration limit"):
        laplace(dataclasses.replace(fit, result=jnp.asarray(int(RESULTS.iteration_limit))))
    with pytest.raises(ValueError, match="fitted on 2 inputs, but `x` has 1"):
        laplace(fit).latent(NEW[:, :1])
    squared = dataclasses.replace(fit, model=machine(losses.SquaredHinge()))
    with pytest.raises(ValueError, match="leave out `hinge_steepness=`"):
        laplace(squared, criteria.LaplaceEvidence(hinge_steepness=4.0))

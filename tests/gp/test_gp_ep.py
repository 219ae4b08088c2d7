"""Expectation propagation against a sequential loop, quadrature and central differences."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special
from as_dense import AsDense
from jaxprs import largest_array
from reference import central_difference, rbf
from scipy.stats import norm

import jaxsvm as jsvm
from jaxsvm import RESULTS, criteria, gp, kernels, losses
from jaxsvm.approximations import ApproximationWarning
from jaxsvm.gp._expectation_propagation import solve_sites
from jaxsvm.gp._fixed_point import Limits
from jaxsvm.gram import DenseGram, LowRankGram
from jaxsvm.posteriors import averaged

RNG = np.random.default_rng(5)
X = RNG.normal(size=(12, 2))
Y = np.where(X[:, 0] + X[:, 1] ** 2 - 0.7 + 0.5 * RNG.normal(size=12) > 0, 1.0, -1.0)
NEW = RNG.normal(size=(12, 2))
PAIR = np.array([[0.0, 0.0], [0.7, 0.0]])
LIKELIHOODS = {
    "probit": (losses.Probit(0.3), lambda z: scipy.special.log_ndtr(z / np.sqrt(0.3))),
    "logistic": (losses.Logistic(), lambda z: -np.logaddexp(0, -z)),
}
EVIDENCE = gp.ExpectationPropagation()
LEFT_OUT = gp.ExpectationPropagationLeaveOneOut("log")


def of_few(loss, x, labels):
    """The posterior of a few examples: all others have no weight, so that nothing new is compiled."""
    count = len(labels)
    few_x, few_y = X.copy(), Y.copy()
    few_x[:count], few_y[:count] = x, labels
    weights = np.where(np.arange(len(Y)) < count, 1.0, 0.0)
    return gp.expectation_propagation(machine(loss), few_x, few_y, weights=weights)


def machine(loss, lengthscale=1.1, variance=2.5):
    return jsvm.KernelMachine(kernels.RBF(lengthscale, variance) + kernels.Constant(0.4), loss)


@pytest.fixture(scope="module", params=LIKELIHOODS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def fits():
    models = {name: machine(loss) for name, (loss, _) in LIKELIHOODS.items()}
    return {name: gp.expectation_propagation(model, X, Y) for name, model in models.items()}


def moments(log_likelihood, mean, variance):
    """`ln Z`, mean and variance of a likelihood times a Gaussian, by a sum over a fine grid."""
    f = mean + np.sqrt(variance) * np.linspace(-12, 12, 4001)
    weights = np.exp(log_likelihood(f) - (f - mean) ** 2 / (2 * variance))
    total = weights.sum()
    center = (weights * f).sum() / total
    spread = (weights * (f - center) ** 2).sum() / total
    step = f[1] - f[0]
    return np.log(total * step / np.sqrt(2 * np.pi * variance)), center, spread


def sequential(gram, y, log_likelihood, sweeps=30):
    """Rasmussen and Williams, algorithm 3.5, with plain solves; returns ln Z, mean and covariance."""
    n = len(y)
    shift, precision = np.zeros(n), np.zeros(n)
    for _ in range(sweeps):
        for i in range(n):
            covariance = np.linalg.solve(np.eye(n) + gram * precision[None, :], gram)
            mean = covariance @ shift
            cavity_precision = 1 / covariance[i, i] - precision[i]
            cavity = (mean[i] / covariance[i, i] - shift[i]) / cavity_precision
            _, m, v = moments(log_likelihood, y[i] * cavity, 1 / cavity_precision)
            m = y[i] * m
            precision[i] = 1 / v - cavity_precision
            shift[i] = m / v - cavity * cavity_precision
    covariance = np.linalg.solve(np.eye(n) + gram * precision[None, :], gram)
    mean = covariance @ shift
    # eq. 3.65 by its definition: the integral of the product of normalized sites and the prior
    total = 0.0
    for i in range(n):
        v = 1 / (1 / covariance[i, i] - precision[i])
        m = v * (mean[i] / covariance[i, i] - shift[i])
        site_mean, site_variance = shift[i] / precision[i], 1 / precision[i]
        total += moments(log_likelihood, y[i] * m, v)[0]
        total -= norm.logpdf(m, site_mean, np.sqrt(v + site_variance))
    noisy = gram + np.diag(1 / precision)
    target = shift / precision
    total -= np.linalg.slogdet(2 * np.pi * noisy)[1] / 2
    return total - target @ np.linalg.solve(noisy, target) / 2, mean, covariance


def test_the_fixed_point_is_that_of_the_sequential_algorithm(fits, name):
    fit, log_likelihood = fits[name], LIKELIHOODS[name][1]
    gram = rbf(X, 1.1, 2.5, 0.4)
    value, mean, covariance = sequential(gram, Y, log_likelihood)
    assert fit.result == RESULTS.successful and fit.residual < 1e-9
    np.testing.assert_allclose(fit.mean, mean, atol=1e-6)
    np.testing.assert_allclose(fit.variance, np.diag(covariance), rtol=1e-6)
    np.testing.assert_allclose(fit.log_evidence, value, rtol=1e-8)
    np.testing.assert_allclose(fit.mean, gram @ fit.dual, atol=1e-8)


def test_one_example_is_exact(name):
    loss, log_likelihood = LIKELIHOODS[name]
    fit = of_few(loss, PAIR[:1], [-1.0])
    value, mean, variance = moments(lambda f: log_likelihood(-f), 0.0, 2.9)
    np.testing.assert_allclose(fit.log_evidence, value, rtol=1e-8)
    np.testing.assert_allclose(fit.mean[0], mean, rtol=1e-7)
    np.testing.assert_allclose(fit.variance[0], variance, rtol=1e-7)
    np.testing.assert_allclose(fit.left_out.mean[0], 0.0, atol=1e-12)  # the prior
    np.testing.assert_allclose(fit.left_out.variance[0], 2.9, rtol=1e-9)


@pytest.mark.parametrize("labels", [(1.0, 1.0), (1.0, -1.0)])
def test_two_examples_are_nearly_exact(name, labels):
    """At a correlation of 0.84: evidence within 0.012 nats, means 0.4 % of a deviation, widths 3 %."""
    loss, log_likelihood = LIKELIHOODS[name]
    fit = of_few(loss, PAIR, labels)
    gram = rbf(PAIR, 1.1, 2.5, 0.4)
    grid = np.linspace(-14, 14, 701)
    parts = np.meshgrid(grid, grid, indexing="ij")
    points = np.stack([part.ravel() for part in parts], axis=1)
    exponent = -np.sum((points @ np.linalg.inv(gram)) * points, axis=1) / 2
    density = np.exp(exponent + log_likelihood(points * np.array(labels)).sum(axis=1))
    total = density.sum()
    scale = np.sqrt(np.linalg.det(2 * np.pi * gram)) / (grid[1] - grid[0]) ** 2
    mean = density @ points / total
    deviation = np.sqrt(density @ (points - mean) ** 2 / total)
    np.testing.assert_allclose(fit.log_evidence, np.log(total / scale), atol=0.012)
    np.testing.assert_allclose(fit.mean[:2] / deviation, mean / deviation, atol=0.004)
    np.testing.assert_allclose(np.sqrt(fit.variance[:2]), deviation, rtol=0.03)


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Probit(0.3)])
def test_fifty_examples_against_thermodynamic_integration(loss):
    """Within two standard errors, of 0.03 nats."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(50, 2))
    y = np.where(x[:, 0] + x[:, 1] ** 2 - 0.7 + 0.5 * rng.normal(size=50) > 0, 1.0, -1.0)
    model = machine(loss)
    exact = jsvm.log_evidence(model, x, y, key=jax.random.key(0))
    assert exact.problems == () and exact.standard_error < 0.06
    found = gp.expectation_propagation(model, x, y).log_evidence
    assert abs(found - exact.value) < 2 * exact.standard_error


def test_averages_over_any_gaussian():
    """Penalties, means and widths of all sizes, against a sum over a grid."""
    means = np.array([-60.0, -20.0, -1.0, 0.3, 4.0, 30.0])
    average = jax.jit(lambda C, m, s: averaged(losses.Logistic(C), jnp.ones(6), m, s))
    for C, deviation in itertools.product((0.3, 1.0, 30.0), (0.05, 0.7, 12.0)):
        found = average(C, jnp.asarray(means), jnp.full(6, deviation**2))
        for i, mean in enumerate(means):
            # the likelihood moves the mass up to where it levels off
            high = mean + min(C * deviation**2, max(-mean, 0) + 5) + 12 * deviation
            f = np.linspace(mean - 12 * deviation, high, 20_001)
            logs = -((f - mean) ** 2) / (2 * deviation**2) - C * np.logaddexp(0, -f)
            weights = np.exp(logs - logs.max())
            integral = np.log(weights.sum() * (f[1] - f[0])) + logs.max()
            value = integral - np.log(np.sqrt(2 * np.pi) * deviation) + min(C - 1, 0) * np.log(2)
            np.testing.assert_allclose(found.log_value[i], value, rtol=1e-9, atol=1e-9)
            center = weights @ f / weights.sum()
            spread = weights @ (f - center) ** 2 / weights.sum()
            moved = found.slope[i] * deviation**2
            shrunk = deviation**2 * (1 - deviation**2 * found.curvature[i])
            np.testing.assert_allclose(moved, center - mean, atol=1e-8 * deviation)
            np.testing.assert_allclose(shrunk, spread, rtol=1e-7)


def test_probabilities(fits, name):
    fit, log_likelihood = fits[name], LIKELIHOODS[name][1]
    covariance = np.diag(1 / np.asarray(fit.sites.precision)) + rbf(X, 1.1, 2.5, 0.4)
    everything = rbf(np.concatenate([NEW, X]), 1.1, 2.5, 0.4)
    cross, own = everything[: len(NEW), len(NEW) :], np.diag(everything)[: len(NEW)]
    targets = np.asarray(fit.sites.shift / fit.sites.precision)
    mean = cross @ np.linalg.solve(covariance, targets)
    variance = own - np.sum(cross * np.linalg.solve(covariance, cross.T).T, axis=1)
    found = fit.latent(NEW)
    np.testing.assert_allclose(found[0], mean, rtol=1e-7)
    np.testing.assert_allclose(found[1] ** 2, variance, rtol=1e-7)
    expected = [
        np.exp(moments(log_likelihood, m, v)[0]) for m, v in zip(mean, variance, strict=True)
    ]
    np.testing.assert_allclose(fit.probability(NEW), expected, rtol=1e-7)
    np.testing.assert_array_equal(fit.predict(NEW), np.sign(mean))
    np.testing.assert_array_equal(fit.decision(NEW), found[0])


def test_cavities_are_nearly_what_retraining_predicts(fits):
    """Probabilities within 0.03, their mean logarithm 2 %; an example of weight zero has no influence."""
    fit = fits["probit"]
    means, logs = np.zeros(len(Y)), np.zeros(len(Y))
    for i in range(len(Y)):
        weights = np.where(np.arange(len(Y)) == i, 0.0, 1.0)
        exact = gp.expectation_propagation(fit.model, X, Y, weights=weights).left_out
        means[i], logs[i] = exact.mean[i], exact.log_probability[i]
        assert abs(np.exp(fit.left_out.log_probability[i]) - np.exp(logs[i])) < 0.03
        assert abs(fit.left_out.mean[i] - means[i]) < 0.1 * np.sqrt(exact.variance[i])
    errors = gp.ExpectationPropagationLeaveOneOut().score_each(Y, fit.left_out)
    np.testing.assert_array_equal(errors, Y * means < 0)
    np.testing.assert_allclose(np.mean(fit.left_out.log_probability), np.mean(logs), rtol=0.02)


def test_the_criterion_of_leaving_out_and_its_gradient(fits):
    """The reverse-mode gradient, which passes through the sites."""
    flat, unravel = jax.flatten_util.ravel_pytree(fits["probit"].model)
    both = jax.jit(jax.value_and_grad(lambda flat: LEFT_OUT(unravel(flat), X, Y, throw=False)))
    value, gradient = both(flat)
    np.testing.assert_allclose(-value, np.mean(fits["probit"].left_out.log_probability), rtol=1e-8)
    expected = central_difference(lambda flat: both(flat)[0], np.asarray(flat), 1e-4)
    assert np.any(np.abs(expected) > 1e-2)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8)


def test_gradients_of_the_evidence():
    flat, unravel = jax.flatten_util.ravel_pytree(machine(losses.Logistic(1.3)))
    both = jax.jit(jax.value_and_grad(lambda flat: EVIDENCE(unravel(flat), X, Y, throw=False)))
    expected = central_difference(lambda flat: both(flat)[0], np.asarray(flat))
    np.testing.assert_allclose(both(flat)[1], expected, rtol=1e-5, atol=1e-6)


def test_the_tolerance_of_the_evidence(fits):
    """The tolerance decides when the sites are good enough; the value is stationary, so it hardly changes."""
    model, weights = fits["probit"].model, jnp.ones(12)
    data = criteria.Data(jnp.asarray(X), jnp.asarray(Y), weights)
    rough = jax.jit(gp.ExpectationPropagation(tolerance=1e-3).evaluate)(model, data)
    early = gp.expectation_propagation(model, X, Y, tolerance=1e-3)
    assert early.iterations < fits["probit"].iterations - 2
    np.testing.assert_allclose(rough.memory.shift, early.sites.shift, rtol=1e-12)
    assert np.max(np.abs(early.sites.shift - fits["probit"].sites.shift)) > 1e-6
    np.testing.assert_allclose(-rough.value, fits["probit"].log_evidence, rtol=1e-6)
    for wrong in (1.0, -1e-9, np.nan):
        with pytest.raises(
            ValueError, match=r"`tolerance` must be at least zero and less than one"
        ):
            gp.ExpectationPropagation(tolerance=wrong)
        with pytest.raises(ValueError, match="tolerance"):
            gp.expectation_propagation(model, X, Y, tolerance=wrong)


def test_derivatives_of_the_posterior():
    """Through sites that are found by iteration, along a direction in all hyperparameters."""
    flat, unravel = jax.flatten_util.ravel_pytree(machine(losses.Probit(0.3)))

    def quality(flat):
        fit = gp.expectation_propagation(unravel(flat), X, Y, tolerance=1e-11, throw=False)
        return jnp.array([fit.left_out.log_probability @ jnp.arange(12.0), fit.mean @ fit.dual])

    both = jax.jit(lambda flat, way: jax.jvp(quality, (flat,), (way,)))
    way = jnp.array([1.0, -0.5, 0.8, 0.7])
    ahead, behind = (both(flat + step * way, way)[0] for step in (1e-4, -1e-4))
    np.testing.assert_allclose(both(flat, way)[1], (ahead - behind) / 2e-4, rtol=1e-5)


def test_weights_of_two_are_repeated_rows(fits):
    rows = np.concatenate([np.arange(9), np.arange(3)])
    weights = np.where(np.arange(12) < 3, 2.0, np.where(np.arange(12) < 9, 1.0, 0.0))
    model = fits["probit"].model
    found = gp.expectation_propagation(model, X[rows], Y[rows], weights=weights)
    twice = gp.expectation_propagation(model, X[rows], Y[rows])
    np.testing.assert_allclose(found.log_evidence, twice.log_evidence, rtol=1e-8)
    np.testing.assert_allclose(found.mean, twice.mean, rtol=1e-6)


def test_selection_by_the_evidence(fits):
    start = fits["probit"].model
    found = jsvm.select(start, X, Y, EVIDENCE, optimizer=optax.adam(0.1), max_steps=10)
    before = float(EVIDENCE(start, X, Y))
    np.testing.assert_allclose(-before, fits["probit"].log_evidence, rtol=1e-9)
    assert float(found.value) < before - 0.1
    np.testing.assert_allclose(EVIDENCE(found.model, X, Y), found.value, rtol=1e-8)


@pytest.mark.parametrize(
    ("criterion", "posterior"),
    [
        (LEFT_OUT, gp.expectation_propagation),
        (gp.LaplaceLeaveOneOut("log"), gp.laplace),
    ],
)
def test_selection_by_leaving_out(fits, criterion, posterior):
    start = fits["probit"].model
    found = jsvm.select(start, X, Y, criterion, optimizer=optax.adam(0.1), max_steps=4)
    values = np.asarray(found.history.value)[0]
    first = posterior(start, X, Y).left_out.log_probability
    np.testing.assert_allclose(values[0], -np.mean(first), rtol=1e-7)
    assert np.all(np.diff(values) < 0) and float(found.value) < values[0] - 0.01


def test_warm_starts_end_where_cold_ones_do(fits):
    fit = fits["probit"]
    again = gp.expectation_propagation(fit.model, X, Y, init=fit)
    assert again.iterations == 0
    np.testing.assert_allclose(again.mean, fit.mean)
    with pytest.raises(TypeError, match=r"of `gp.expectation_propagation`.* not a Sites"):
        gp.expectation_propagation(fit.model, X, Y, init=fit.sites)
    with pytest.raises(TypeError, match=r"`gp.mean_field`.* not a posterior of `gp.expec"):
        gp.mean_field(fit.model, X, Y, init=fit)
    with pytest.raises(TypeError, match=r"not a ClassifierPosterior without sites"):
        gp.expectation_propagation(fit.model, X, Y, init=gp.mean_field(fit.model, X, Y))
    with pytest.raises(ValueError, match="same examples"):
        gp.expectation_propagation(fit.model, X[:6], Y[:6], init=fit)


def test_what_does_not_converge_says_so(fits):
    model = fits["probit"].model
    with pytest.raises(jsvm.FitError, match=r"after 2 iterations"):
        gp.expectation_propagation(model, X, Y, max_iterations=2)
    half = gp.expectation_propagation(model, X, Y, max_iterations=2, throw=False)
    assert half.result == RESULTS.iteration_limit and "max_iterations" in half.message
    huge = {"kernel.left.variance": 1e308, "kernel.right.variance": 1e308}
    infinite = jsvm.replace(model, huge)
    assert jnp.isnan(EVIDENCE(infinite, X, Y, throw=False))
    with pytest.raises(jsvm.FitError, match="not finite"):
        EVIDENCE(infinite, X, Y)


def test_bad_input(fits):
    model = fits["probit"].model
    with pytest.raises(ValueError, match=r"losses.Probit, losses.Logistic.*FlipNoise.*mean_field"):
        EVIDENCE(machine(losses.FlipNoise()), X, Y)
    with pytest.raises(ValueError, match="has the loss Hinge"):
        gp.expectation_propagation(machine(losses.Hinge()), X, Y)
    with pytest.raises(ValueError, match=r"FlipNoise.*mean_field"):
        LEFT_OUT(machine(losses.FlipNoise()), X, Y)
    with pytest.raises(ValueError, match="score"):
        gp.ExpectationPropagationLeaveOneOut("squared")
    with pytest.raises(ValueError, match="Constant"):
        EVIDENCE(jsvm.KernelMachine(kernels.RBF(), losses.Probit(), offset=True), X, Y)
    with pytest.raises(ValueError, match="both classes"):
        EVIDENCE(model, X, np.ones(12))
    with pytest.raises(ValueError, match="NaN"):
        EVIDENCE(model, np.where(X > 1, np.nan, X), Y)
    with pytest.raises(ValueError, match="12 rows, but `y` has 11"):
        EVIDENCE(model, X, Y[1:])
    with pytest.raises(ValueError, match="fitted on 2 inputs"):
        fits["probit"].probability(np.zeros((3, 5)))


def test_single_precision(fits):
    with jax.enable_x64(False):
        model = machine(losses.Probit(jnp.float32(0.3)))
        fit = gp.expectation_propagation(model, X.astype("float32"), Y.astype("float32"))
        assert fit.mean.dtype == jnp.float32
        values = np.asarray(fit.probability(NEW.astype("float32")))
        evidence = float(fit.log_evidence)
    np.testing.assert_allclose(values, fits["probit"].probability(NEW), atol=1e-4)
    np.testing.assert_allclose(evidence, fits["probit"].log_evidence, rtol=1e-4)


# ---------------------------------------------------------------------------- low ranks

LOW = jsvm.Nystrom(4, 5, "pivoted")
RANKS = {"low rank": LOW, "corrected": jsvm.approximations.Corrected(LOW)}
quiet = pytest.mark.filterwarnings("ignore::jaxsvm.approximations.ApproximationWarning")
CASES = pytest.mark.parametrize(
    ("name", "rank"), [("probit", "low rank"), ("logistic", "corrected")]
)
WEIGHTS = jnp.asarray(np.where(np.arange(12) < 3, 2.0, np.where(np.arange(12) < 10, 1.0, 0.0)))


def kept(approximation, model, x=X):
    return jsvm.approximations.represent(approximation, model, jnp.asarray(x))


def flat(tree):
    return np.asarray(jax.flatten_util.ravel_pytree(tree)[0])


def test_a_full_rank_gives_the_exact_posterior(fits, name):
    exact = fits[name]
    full = gp.expectation_propagation(exact.model, X, Y, approximation=jsvm.Nystrom(rank=12))
    assert exact.expansion is None and exact.lost_variance == 0
    assert full.expansion is not None and full.lost_variance < 1e-10
    np.testing.assert_allclose(full.log_evidence, exact.log_evidence, rtol=1e-8)
    np.testing.assert_allclose(full.covariance(NEW), exact.covariance(NEW), atol=1e-6)
    np.testing.assert_allclose(full.probability(NEW), exact.probability(NEW), rtol=1e-6)
    for one, other in zip(full.left_out, exact.left_out, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


@quiet
@CASES
def test_a_low_rank_is_the_sequential_algorithm_on_its_matrix(name, rank):
    """Evidence, marginals and predictions at new points, by plain NumPy on `V V'` plus a diagonal."""
    loss, log_likelihood = LIKELIHOODS[name]
    model = machine(loss)
    representation = kept(RANKS[rank], model)
    found = gp.expectation_propagation(model, X, Y, approximation=representation)
    gram, basis, error = representation.matrix(model.kernel, jnp.asarray(X))
    dense, rows = np.asarray(gram.dense()), np.asarray(gram.factor)
    value, mean, covariance = sequential(dense, Y, log_likelihood)
    assert found.result == RESULTS.successful and found.response.shape == (4, 4)
    np.testing.assert_allclose(found.lost_variance, error)
    np.testing.assert_allclose(found.log_evidence, value, rtol=1e-8)
    np.testing.assert_allclose(found.mean, mean, atol=1e-6)
    np.testing.assert_allclose(found.mean, dense @ found.dual, atol=1e-8)
    np.testing.assert_allclose(found.variance, np.diag(covariance), rtol=1e-6)
    features = np.asarray(basis.features(model.kernel, jnp.asarray(NEW))[0])
    noisy = dense + np.diag(1 / np.asarray(found.sites.precision))
    targets = np.asarray(found.sites.shift / found.sites.precision)
    at_new, deviation = found.latent(NEW)
    cross = features @ rows.T
    np.testing.assert_allclose(at_new, cross @ np.linalg.solve(noisy, targets), rtol=1e-7)
    taken = np.sum(cross * np.linalg.solve(noisy, cross.T).T, axis=1)
    np.testing.assert_allclose(deviation**2, 2.9 - taken, rtol=1e-7)


@CASES
def test_the_evidence_and_its_derivatives_are_those_of_the_dense_matrix(name, rank):
    """The value, the gradient and a product with the Hessian, with respect to all hyperparameters."""
    model = machine(LIKELIHOODS[name][0])
    representation, criterion = kept(RANKS[rank], model), gp.ExpectationPropagation(1e-12)
    seen = set()

    def of(representation):
        def value(model):
            data = criteria.Data(*map(jnp.asarray, (X, Y, WEIGHTS)), representation=representation)
            seen.add(type(data.gram(model.kernel)))
            return criterion.evaluate(model, data).value

        way = jax.tree.map(jnp.ones_like, model)
        both = jax.value_and_grad(value)
        return jax.jit(lambda m: jax.jvp(both, (m,), (way,)))(model)

    found, expected = (flat(of(some)) for some in (representation, AsDense(representation)))
    assert seen == {LowRankGram, DenseGram} and np.all(np.abs(expected) > 1e-4)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


@CASES
def test_derivatives_of_the_sites_are_those_of_the_dense_matrix(name, rank):
    """In both modes; a low rank solves the linearized conditions without their matrix."""
    model = machine(LIKELIHOODS[name][0])
    representation, limits = kept(RANKS[rank], model), Limits(1e-13, 1000)

    def of(representation):
        def total(model):
            gram = representation.matrix(model.kernel, jnp.asarray(X)).gram
            _, sites, _ = solve_sites(model, gram, jnp.asarray(Y), WEIGHTS, limits=limits)
            return sum(jnp.sum(jnp.sin(part) * jnp.arange(12.0)) for part in sites)

        way = jax.tree.map(jnp.ones_like, model)
        return jax.jit(lambda m: (jax.grad(total)(m), jax.jvp(total, (m,), (way,))))(model)

    found, expected = (flat(of(some)) for some in (representation, AsDense(representation)))
    np.testing.assert_allclose(found, expected, rtol=1e-8)


@CASES
def test_a_low_rank_forms_no_array_of_n_x_n_numbers(name, rank):
    """Neither in the posterior nor in its derivatives, nor in those of the criteria."""
    examples = 1000
    most = {"probit": 64, "logistic": 600}[name] * examples  # 576 nodes of quadrature each
    x = np.random.default_rng(0).normal(size=(examples, 2))
    y = np.where(x[:, 0] > 0, 1.0, -1.0)
    model = machine(LIKELIHOODS[name][0])
    options = {"approximation": kept(RANKS[rank], model, x), "throw": False}

    def everything(model):
        posterior = gp.expectation_propagation(model, x, y, **options)
        parts = jax.tree.leaves(
            (posterior.sites, posterior.left_out, posterior.response, posterior.dual)
        )
        return sum(jnp.sum(part) for part in parts) + posterior.log_evidence

    of_criteria = (lambda m, c=c: c(m, x, y, **options) for c in (EVIDENCE, LEFT_OUT))
    for function in (everything, *of_criteria):
        assert largest_array(jax.grad(function), model) <= most
    assert largest_array(lambda m: jax.jvp(everything, (m,), (m,)), model) <= most


def test_a_low_rank_warns_of_what_it_loses_and_comes_back_from_a_file(fits, tmp_path):
    with pytest.warns(ApproximationWarning, match="loses"):
        found = gp.expectation_propagation(fits["probit"].model, X, Y, approximation=LOW)
    assert found.lost_variance > 0.01
    jsvm.save(tmp_path / "posterior.jaxsvm", found)
    back = jsvm.load(tmp_path / "posterior.jaxsvm")
    np.testing.assert_array_equal(back.probability(NEW), found.probability(NEW))
    np.testing.assert_array_equal(back.deviation(NEW), found.deviation(NEW))
    assert back.lost_variance == found.lost_variance and back.log_evidence == found.log_evidence


@quiet
def test_weights_at_a_low_rank_are_repeated_rows(fits):
    rows = np.concatenate([np.arange(9), np.arange(3)])
    weights = np.where(np.arange(12) < 3, 2.0, np.where(np.arange(12) < 9, 1.0, 0.0))
    landmarks = jsvm.Nystrom(4, landmarks=[0, 3, 5, 8])
    model, options = fits["probit"].model, {"approximation": landmarks}
    found = gp.expectation_propagation(model, X[rows], Y[rows], weights=weights, **options)
    twice = gp.expectation_propagation(model, X[rows], Y[rows], **options)
    np.testing.assert_allclose(found.log_evidence, twice.log_evidence, rtol=1e-8)
    np.testing.assert_allclose(found.decision(NEW), twice.decision(NEW), rtol=1e-6, atol=1e-8)
    assert (
        gp.expectation_propagation(model, X[rows], Y[rows], init=twice, **options).iterations == 0
    )

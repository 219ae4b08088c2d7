"""Naive mean field theory against its equations in loops, quadrature, retraining and central differences."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.special
from reference import central_difference, rbf
from scipy.stats import norm

import jaxsvm as jsvm
from jaxsvm import RESULTS, criteria, gp, kernels, losses
from jaxsvm.gp._classifier import cavity_variances
from jaxsvm.gram import DenseGram

RNG = np.random.default_rng(5)
EXAMPLES = 60
X = RNG.normal(size=(EXAMPLES, 2))
Y = np.where(X[:, 0] + X[:, 1] ** 2 - 0.7 + 0.5 * RNG.normal(size=EXAMPLES) > 0, 1.0, -1.0)
NEW = RNG.normal(size=(EXAMPLES, 2))
PAIR = np.array([[0.0, 0.0], [0.7, 0.0]])
LIKELIHOODS = {
    "probit": (losses.Probit(0.05), lambda z: scipy.special.ndtr(z / np.sqrt(0.05))),
    "flips": (
        losses.FlipNoise(0.05, 0.3),
        lambda z: 0.05 + 0.9 * scipy.special.ndtr(z / np.sqrt(0.3)),
    ),
}
FLIP_RATES = {"probit": 0.0, "flips": 0.05}


def machine(loss):
    kernel = kernels.RBF(1.1, 2.5) + kernels.Constant(0.4)
    # input noise of 0.3, most of it in the covariance: eq. 8.16
    if isinstance(loss, losses.Probit):
        kernel = kernel + kernels.White(0.25)
    return jsvm.KernelMachine(kernel, loss)


@pytest.fixture(scope="module")
def fits():
    models = {name: machine(loss) for name, (loss, _) in LIKELIHOODS.items()}
    return {name: gp.mean_field(model, X, Y) for name, model in models.items()}


def literal_change(gram, alpha, kappa):
    """The change that Table 8.1 asks for, example by example; `gram` holds the input noise, eq. 8.16."""
    change = np.zeros(len(Y))
    for i in range(len(Y)):
        f = sum(gram[i, j] * Y[j] * alpha[j] for j in range(len(Y)))
        z = Y[i] * (f - gram[i, i] * Y[i] * alpha[i]) / np.sqrt(gram[i, i])
        likely = kappa + (1 - 2 * kappa) * norm.cdf(z)
        change[i] = (1 - 2 * kappa) * norm.pdf(z) / likely / np.sqrt(gram[i, i]) - alpha[i]
    return change


@pytest.mark.parametrize("name", FLIP_RATES)
def test_the_solution_satisfies_the_equations(fits, name):
    fit = fits[name]
    noisy = rbf(X, 1.1, 2.5, 0.4) + 0.3 * np.eye(EXAMPLES)
    change = literal_change(noisy, np.asarray(fit.alpha), FLIP_RATES[name])
    assert np.max(np.abs(change)) < 1e-10 and fit.residual < 1e-10
    assert np.min(fit.alpha) > 0 and fit.iterations < 15
    expected = RESULTS.successful if name == "probit" else RESULTS.local_optimum
    assert fit.result == expected


def test_the_adaptive_iteration_is_that_of_the_table(fits):
    noisy = rbf(X, 1.1, 2.5, 0.4) + 0.3 * np.eye(EXAMPLES)
    alpha, rate, error = np.zeros(EXAMPLES), 0.05, np.inf
    for _ in range(25):
        change = literal_change(noisy, alpha, 0.05)
        if np.isfinite(error):
            rate = 1.1 * rate if np.sum(change**2) < error else rate / 2
        error = np.sum(change**2)
        alpha = alpha + rate * change
    options = {"method": "adaptive", "throw": False}
    model = fits["flips"].model
    found = gp.mean_field(model, X, Y, max_iterations=25, **options)
    assert found.result == RESULTS.iteration_limit and "max_iterations" in found.message
    np.testing.assert_allclose(found.alpha, alpha, rtol=1e-9)
    # and ends where Newton's method does
    found = gp.mean_field(model, X, Y, tolerance=1e-11, **options)
    assert found.result == RESULTS.local_optimum
    np.testing.assert_allclose(found.alpha, fits["flips"].alpha, rtol=1e-8)
    with pytest.raises(jsvm.FitError, match=r"residual .* after 25 iterations"):
        gp.mean_field(model, X, Y, method="adaptive", max_iterations=25)


def exact(gram, labels, likelihood):
    """Posterior means and standard deviations of one or two latent values, by a sum over a grid."""
    grid = np.linspace(-14, 14, 701)
    parts = np.meshgrid(*[grid] * len(labels), indexing="ij")
    points = np.stack([part.ravel() for part in parts], axis=1)
    density = np.exp(-np.sum((points @ np.linalg.inv(gram)) * points, axis=1) / 2)
    density *= np.prod(likelihood(points * np.array(labels)), axis=1)
    mean = density @ points / density.sum()
    return mean, np.sqrt(density @ (points - mean) ** 2 / density.sum())


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_one_example_is_exact_and_two_nearly(name):
    """Two examples at a correlation of 0.84, in standard deviations: means within 0.11, widths 18 %."""
    loss, likelihood = LIKELIHOODS[name]
    for labels, near, wide in (
        ((-1.0,), 1e-9, 1e-9),
        ((1.0, 1.0), 0.11, 0.03),
        ((1.0, -1.0), 0.07, 0.18),
    ):
        count = len(labels)
        few_x, few_y = X.copy(), Y.copy()
        few_x[:count], few_y[:count] = PAIR[:count], labels
        weights = np.where(np.arange(EXAMPLES) < count, 1.0, 0.0)  # the others are absent
        fit = gp.mean_field(machine(loss), few_x, few_y, weights=weights)
        gram = rbf(PAIR[:count], 1.1, 2.5, 0.4)
        gram += (0.25 if name == "probit" else 0.0) * np.eye(count)
        mean, deviation = exact(gram, labels, likelihood)
        np.testing.assert_allclose(fit.mean[:count] / deviation, mean / deviation, atol=near)
        np.testing.assert_allclose(np.sqrt(fit.variance[:count]), deviation, rtol=wide)


@pytest.mark.parametrize("name", FLIP_RATES)
def test_leave_one_out_is_that_of_the_paper(fits, name):
    """Eqs. 8.41 and 8.42, with the latent values of the noisy process."""
    fit = fits[name]
    noisy = rbf(X, 1.1, 2.5, 0.4) + 0.3 * np.eye(EXAMPLES)
    alpha = np.asarray(fit.alpha)
    f = noisy @ (Y * alpha)
    omega = np.diag(noisy) * (1 / (Y * alpha * f) - 1)
    inverse = np.linalg.inv(np.diag(omega) + noisy)
    expected = f - (1 / np.diag(inverse) - omega) * Y * alpha
    np.testing.assert_allclose(fit.left_out.mean, expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(gp.NaiveMeanField().score_each(Y, fit.left_out), Y * expected < 0)


@pytest.mark.parametrize("name", FLIP_RATES)
def test_leave_one_out_is_within_one_example_of_retraining(fits, name):
    fit = fits[name]
    means, logs = np.zeros(EXAMPLES), np.zeros(EXAMPLES)
    for i in range(EXAMPLES):
        weights = np.where(np.arange(EXAMPLES) == i, 0.0, 1.0)  # predicted, not learnt from
        rest = gp.mean_field(fit.model, X, Y, weights=weights, init=fit).left_out
        means[i], logs[i] = rest.mean[i], rest.log_probability[i]
    errors = np.sum(Y * means < 0)
    assert errors > 3 and abs(np.sum(Y * np.asarray(fit.left_out.mean) < 0) - errors) <= 1
    np.testing.assert_allclose(np.mean(fit.left_out.log_probability), np.mean(logs), rtol=0.01)


@pytest.mark.skipif("JAXSVM_DATA" not in os.environ, reason="needs data: set JAXSVM_DATA")
def test_leave_one_out_on_wisconsin_is_within_one_example_of_retraining():
    """Every third example, with the hyperparameters of sec. 8.7; all are in the script of the paper."""
    x, y = (np.asarray(part)[::3] for part in jsvm.datasets.load("wbc_original"))
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    model = jsvm.KernelMachine(kernels.RBF(np.sqrt(0.15 * 9)), losses.Probit(1.3))
    fit = gp.mean_field(model, x, y)
    wrong = 0
    for i in range(len(y)):
        weights = np.where(np.arange(len(y)) == i, 0.0, 1.0)
        rest = gp.mean_field(model, x, y, weights=weights, init=fit).left_out
        wrong += int(y[i] * rest.mean[i] < 0)
    estimate = int(np.sum(gp.NaiveMeanField().score_each(y, fit.left_out)))
    assert wrong > 3 and abs(estimate - wrong) <= 1


def test_weights_of_two_are_repeated_rows(fits):
    rows = np.concatenate([np.arange(50), np.arange(10)])
    places = np.arange(EXAMPLES)
    weights = np.where(places < 10, 2.0, np.where(places < 50, 1.0, 0.0))
    model = fits["flips"].model
    found = gp.mean_field(model, X[rows], Y[rows], weights=weights)
    twice = gp.mean_field(model, X[rows], Y[rows])
    np.testing.assert_allclose(found.alpha[:50], twice.alpha[:50], rtol=1e-8)
    np.testing.assert_allclose(found.mean, twice.mean, rtol=1e-7)
    np.testing.assert_allclose(found.variance, twice.variance, rtol=1e-7)
    # what has no weight is absent, and predicted
    mean, deviation = (value[50:] for value in found.latent(X[rows]))
    np.testing.assert_allclose(found.left_out.mean[50:], mean, rtol=1e-7)
    np.testing.assert_allclose(found.left_out.variance[50:], deviation**2, rtol=1e-7)


def test_gradients_of_the_criterion():
    """Of the logistic likelihood, which is averaged by quadrature."""
    criterion = gp.NaiveMeanField("log")
    flat, unravel = jax.flatten_util.ravel_pytree(machine(losses.Logistic(1.3)))

    def value(flat):
        return criterion(unravel(flat), X[:20], Y[:20], throw=False)

    both = jax.jit(jax.value_and_grad(value))
    expected = central_difference(lambda flat: both(flat)[0], np.asarray(flat))
    assert np.any(np.abs(expected) > 1e-3)
    np.testing.assert_allclose(both(flat)[1], expected, rtol=1e-5, atol=1e-7)


def test_derivatives_of_the_solution_in_a_batch():
    """Forward, of all fields, under jit and vmap."""
    flat, unravel = jax.flatten_util.ravel_pytree(machine(losses.FlipNoise(0.05, 0.3)))

    def quality(flat):
        fit = gp.mean_field(unravel(flat), X[:20], Y[:20], throw=False)
        return jnp.stack([fit.alpha, fit.mean, fit.variance, fit.left_out.mean])

    way = jnp.array([1.0, -0.5, 0.8, 0.7, 0.6])
    both = jax.jit(jax.vmap(lambda flat: jax.jvp(quality, (flat,), (way,))))
    shifts = jnp.array([1e-5, 0.0, -1e-5])
    values, changes = both(flat[None, :] + shifts[:, None] * way[None, :])
    np.testing.assert_allclose(changes[1], (values[0] - values[2]) / 2e-5, rtol=1e-5, atol=1e-7)


def test_selection_by_leaving_out(fits):
    start = fits["probit"].model
    criterion = gp.NaiveMeanField("log")
    found = jsvm.select(start, X, Y, criterion, optimizer=optax.adam(0.1), max_steps=10)
    before = float(found.history.value[0, 0])
    np.testing.assert_allclose(before, -np.mean(fits["probit"].left_out.log_probability), rtol=1e-8)
    assert float(found.value) < before - 0.01


def test_scores(fits):
    mean, variance, log_probability = fits["flips"].left_out
    z = Y * np.asarray(mean) / np.sqrt(0.3 + np.asarray(variance))
    likely = 0.05 + 0.9 * norm.cdf(z)
    np.testing.assert_allclose(log_probability, np.log(likely), rtol=1e-7)
    found = gp.NaiveMeanField("probability").score_each(Y, fits["flips"].left_out)
    np.testing.assert_allclose(found, 1 - likely, rtol=1e-7)
    hinge = gp.NaiveMeanField(criteria.scores.hinge).score_each(Y, fits["flips"].left_out)
    np.testing.assert_allclose(hinge, np.maximum(1 - Y * np.asarray(mean), 0), rtol=1e-7)


def test_predictions(fits):
    fit = fits["flips"]
    everything = rbf(np.concatenate([NEW, X]), 1.1, 2.5, 0.4)
    cross = everything[:EXAMPLES, EXAMPLES:]
    mean = cross @ (Y * np.asarray(fit.alpha))  # eq. 8.35
    np.testing.assert_allclose(fit.decision(NEW), mean, rtol=1e-9)
    np.testing.assert_array_equal(fit.predict(NEW), np.sign(mean))
    deviation = np.asarray(fit.latent(NEW)[1])
    assert np.all((deviation > 0) & (deviation < np.sqrt(2.9)))
    z = mean / np.sqrt(0.3 + deviation**2)
    np.testing.assert_allclose(fit.probability(NEW), 0.05 + 0.9 * norm.cdf(z), rtol=1e-9)
    error = np.mean(np.asarray(fit.predict(X)) != Y)
    assert error < 0.2


def test_warm_starts_and_failures(fits):
    fit = fits["probit"]
    assert gp.mean_field(fit.model, X, Y, init=fit).iterations == 0
    with pytest.raises(jsvm.FitError, match=r"after 1 iterations"):
        gp.mean_field(fit.model, X, Y, max_iterations=1)
    # the adaptive iteration does not get stuck, not even before it has begun
    none = gp.mean_field(
        fits["flips"].model, X, Y, method="adaptive", max_iterations=0, throw=False
    )
    assert none.result == RESULTS.iteration_limit and none.iterations == 0
    half = gp.mean_field(fit.model, X, Y, max_iterations=1, throw=False)
    assert half.result == RESULTS.iteration_limit and half.residual > 1e-10
    huge = {"kernel.left.left.variance": 1e308, "kernel.left.right.variance": 1e308}
    infinite = jsvm.replace(fit.model, huge)
    assert gp.mean_field(infinite, X, Y, throw=False).result == RESULTS.nonfinite
    frozen = jsvm.freeze(fit.model, "loss")
    assert jsvm.frozen(gp.mean_field(frozen, X, Y).model) == ("loss.noise_variance",)


def test_bad_input(fits):
    model = fits["probit"].model
    with pytest.raises(ValueError, match=r"mean field theory needs.*has the loss Hinge"):
        gp.mean_field(machine(losses.Hinge()), X, Y)
    with pytest.raises(ValueError, match="Constant"):
        free = jsvm.KernelMachine(kernels.RBF(), losses.Probit(), offset=True)
        gp.NaiveMeanField()(free, X, Y)
    with pytest.raises(ValueError, match="method"):
        gp.mean_field(model, X, Y, method="sequential")
    with pytest.raises(ValueError, match="score"):
        gp.NaiveMeanField("squared")
    with pytest.raises(ValueError, match="labels must be"):
        gp.mean_field(model, X, X[:, 0])
    with pytest.raises(ValueError, match="both classes"):
        gp.mean_field(model, X, np.ones(EXAMPLES))
    with pytest.raises(ValueError, match="NaN"):
        gp.mean_field(model, np.where(X > 1, np.nan, X), Y)
    with pytest.raises(ValueError, match="60 rows, but `y` has 59"):
        gp.mean_field(model, X, Y[1:])
    with pytest.raises(ValueError, match="same examples"):
        gp.mean_field(model, X, Y, init=np.zeros(3))
    with pytest.raises(
        TypeError, match=r"an earlier posterior of `gp.mean_field`.* not a KernelMachine"
    ):
        gp.mean_field(model, X, Y, init=model)
    for wrong in (10.0, 1.0, -1e-3, np.nan):  # a start at zero violates the equations by one
        with pytest.raises(ValueError, match="`tolerance` must be at least zero and less than one"):
            gp.mean_field(model, X, Y, tolerance=wrong)
    with pytest.raises(ValueError, match="fitted on 2 inputs"):
        fits["probit"].decision(np.zeros((3, 5)))
    with pytest.raises(TypeError, match="KernelMachine"):
        gp.mean_field(kernels.RBF(), X, Y)


def test_single_precision(fits):
    with jax.enable_x64(False):
        model = machine(losses.FlipNoise(jnp.float32(0.05), jnp.float32(0.3)))
        fit = gp.mean_field(model, X.astype("float32"), Y.astype("float32"))
        assert fit.alpha.dtype == jnp.float32
        found = np.asarray(fit.probability(NEW.astype("float32")))
    np.testing.assert_allclose(found, fits["flips"].probability(NEW), atol=1e-4)


@pytest.mark.parametrize("variance", [1.0, 1e4])
def test_leave_one_out_variances_keep_their_digits_in_single_precision(variance):
    """With flipped labels a precision may be negative; a difference of near-equal numbers would show."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 2))
    precision = rng.uniform(0.5, 2.0, 12)
    precision[3] = -1e-7 / variance
    gram = rbf(x, 1.0, variance, 0.0)
    expected = 1 / np.diag(np.linalg.inv(gram + np.diag(1 / precision))) - 1 / precision
    strong = np.arange(12) != 3
    with jax.enable_x64(False):
        single = DenseGram(jnp.asarray(gram, "float32"))
        weights = jnp.asarray(precision, "float32")
        variances = np.asarray(cavity_variances(single, weights, definite=False))
    np.testing.assert_allclose(variances[strong], expected[strong], rtol=2e-3)


def test_a_full_rank_gives_the_exact_posterior():
    model = jsvm.KernelMachine(kernels.RBF(1.1, 2.5) + kernels.Constant(0.4), losses.Probit(0.3))
    exact = gp.mean_field(model, X, Y)
    full = gp.mean_field(model, X, Y, approximation=jsvm.Nystrom(rank=EXAMPLES))
    assert exact.expansion is None and exact.lost_variance == 0
    assert full.expansion is not None and full.lost_variance < 1e-10
    for one, other in zip(full.latent(NEW), exact.latent(NEW), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(full.covariance(NEW), exact.covariance(NEW), atol=1e-6)
    np.testing.assert_allclose(full.probability(NEW), exact.probability(NEW), rtol=1e-6)
    for one, other in zip(full.left_out, exact.left_out, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


@pytest.mark.filterwarnings("ignore::jaxsvm.approximations.ApproximationWarning")
def test_a_low_rank_solves_the_equations_of_its_matrix():
    model = jsvm.KernelMachine(kernels.RBF(1.1, 2.5) + kernels.Constant(0.4), losses.Probit(0.3))
    kept = jsvm.approximations.represent(jsvm.Nystrom(8, 8, "pivoted"), model, jnp.asarray(X))
    found = gp.mean_field(model, X, Y, approximation=kept)
    gram, basis, error = kept.matrix(model.kernel, jnp.asarray(X))
    dense = np.asarray(gram.dense())
    np.testing.assert_allclose(found.lost_variance, error)
    np.testing.assert_allclose(found.mean, dense @ found.dual, rtol=1e-10)
    change = literal_change(dense + 0.3 * np.eye(EXAMPLES), np.asarray(found.alpha), 0.0)
    np.testing.assert_allclose(change, 0, atol=1e-8)
    features, residual = (np.asarray(part) for part in basis.features(model.kernel, NEW))
    mean, deviation = found.latent(NEW)
    rows = np.asarray(gram.factor)
    np.testing.assert_allclose(mean, features @ (rows.T @ found.dual), rtol=1e-8)
    inside = np.eye(8) - np.asarray(found.response)  # the covariance of the white coordinates
    np.testing.assert_allclose(np.sum((rows @ inside) * rows, axis=1), found.variance, rtol=1e-8)
    wanted = residual + np.sum((features @ inside) * features, axis=1)
    np.testing.assert_allclose(deviation**2, wanted, rtol=1e-8)
    assert found.response.shape == (8, 8)

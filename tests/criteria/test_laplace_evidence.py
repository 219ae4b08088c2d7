"""The Laplace evidence against loops, exact marginal likelihoods and central differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from grid import LOSSES, check_gradient

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm.criteria import LaplaceEvidence
from jaxsvm.linalg import laplace_log_determinant

EXAMPLES = 26


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(EXAMPLES, 2))
    y = np.where(x[:, 0] + 0.7 * rng.normal(size=EXAMPLES) > 0, 1.0, -1.0)
    return jnp.asarray(x), jnp.asarray(y)


def machine(loss):
    kernel = kernels.RBF(jnp.array([0.8, 1.7]), 1.9) + kernels.Constant(0.3)
    return jsvm.KernelMachine(kernel, loss)


def literal_laplace(fit, curvatures):
    """`-ln Q` from sums over examples and a determinant by cofactors of NumPy's LU."""
    gram = np.asarray(fit.model.kernel.gram(fit.x))
    y, f, dual = (np.asarray(a) for a in (fit.y, fit.latent, fit.dual))
    total = 0.0
    for i in range(len(y)):
        total += float(fit.model.loss.value(fit.y[i : i + 1], fit.latent[i : i + 1])[0])
        total += dual[i] * f[i] / 2
        total -= float(fit.model.loss.log_normalizer())
    matrix = np.eye(len(y))
    for i in range(len(y)):
        for j in range(len(y)):
            matrix[i, j] += curvatures[i] * gram[i, j]
    return total + np.log(np.linalg.det(matrix)) / 2


def test_hinge_by_loops(data):
    fit = jsvm.fit(machine(losses.Hinge(1.4)), *data)
    curvatures = np.zeros(EXAMPLES)
    for i in range(EXAMPLES):
        alpha, margin = float(jnp.abs(fit.dual[i])), float(fit.y[i] * fit.latent[i])
        if abs(margin - 1) < 1e-7 and 0 < alpha < 1.4:
            curvatures[i] = 2 * np.pi * (alpha * (1.4 - alpha) / 1.4) ** 2
    assert 0 < np.sum(curvatures > 0) < EXAMPLES
    expected = literal_laplace(fit, curvatures)
    np.testing.assert_allclose(LaplaceEvidence()(fit.model, *data), expected, rtol=1e-10)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_squared_hinge_by_loops(data, smoothing):
    fit = jsvm.fit(machine(losses.SquaredHinge(1.4)), *data)
    curvatures = np.zeros(EXAMPLES)
    for i in range(EXAMPLES):
        slack = 1 - float(fit.y[i] * fit.latent[i])
        if slack > 0:
            curvatures[i] = 1.4 * np.exp(-smoothing / slack)
    expected = literal_laplace(fit, curvatures)
    value = LaplaceEvidence(smoothing=smoothing)(fit.model, *data)
    np.testing.assert_allclose(value, expected, rtol=1e-10)


def test_kwok_by_differences_of_his_smooth_hinge(data):
    fit = jsvm.fit(machine(losses.Hinge(1.4)), *data)

    def smooth_hinge(z, c=4.0):
        return (1 - z) / (1 + np.exp(-c * (1 - z)))

    step = 1e-4
    z = np.asarray(fit.y * fit.latent)
    second = (smooth_hinge(z + step) - 2 * smooth_hinge(z) + smooth_hinge(z - step)) / step**2
    expected = literal_laplace(fit, 1.4 * second)
    value = LaplaceEvidence(hinge_steepness=4.0)(fit.model, *data)
    np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_logistic_by_loops(data):
    fit = jsvm.fit(machine(losses.Logistic()), *data)
    share = 1 / (1 + np.exp(-np.asarray(fit.latent)))
    expected = literal_laplace(fit, share * (1 - share))
    np.testing.assert_allclose(LaplaceEvidence()(fit.model, *data), expected, rtol=1e-10)


def test_quadratic_is_the_marginal_likelihood_of_a_gaussian_process(data):
    x, _ = data
    targets = jnp.sin(x[:, 0]) + 0.1 * x[:, 1]
    model = machine(losses.Quadratic(noise_variance=0.3))
    covariance = np.asarray(model.kernel.gram(x)) + 0.3 * np.eye(EXAMPLES)
    expected = -scipy.stats.multivariate_normal.logpdf(np.asarray(targets), cov=covariance)
    np.testing.assert_allclose(LaplaceEvidence()(model, x, targets), expected, rtol=1e-11)


def test_a_kink_integrates_to_the_gaussian_that_stands_for_it():
    # one example at the kink of the absolute value: exp(-C |t| + a t) against sqrt(2 pi / L)
    one, free = jnp.ones(1), jnp.ones(1, bool)
    for loss, slopes in ((losses.Laplacian(1.3), (-1.3, 1.3)), (losses.Hinge(1.3), (0.0, 1.3))):
        dual = 0.5
        grid = np.linspace(0, 400, 4_000_001)
        low, high = slopes
        both = np.exp(-(dual - low) * grid) + np.exp(-(high - dual) * grid)
        integral = np.trapezoid(both, grid)
        curvature = loss.laplace_curvature(one, one, jnp.array([dual]), one, free)[0]
        np.testing.assert_allclose(np.sqrt(2 * np.pi / curvature), integral, rtol=1e-6)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=lambda loss: type(loss).__name__)
def test_gradients(data, loss):
    x, y = data
    if not loss.is_classifier:
        y = jnp.sin(2 * x[:, 0]) + 0.3 * x[:, 1]
    criterion = LaplaceEvidence()
    check_gradient(lambda m, x, y: criterion(m, x, y, throw=False), machine(loss), x, y)


def test_gradient_with_kwoks_smoothing(data):
    criterion = LaplaceEvidence(hinge_steepness=4.0)
    model = machine(losses.Hinge(1.4))
    check_gradient(lambda m, x, y: criterion(m, x, y, throw=False), model, *data)


def test_weights_of_two_are_repeated_rows_for_smooth_losses(data):
    x, y = data
    model = machine(losses.Logistic())
    weights = jnp.where(jnp.arange(EXAMPLES) < 5, 2.0, 1.0)
    twice = LaplaceEvidence()(model, jnp.concatenate([x, x[:5]]), jnp.concatenate([y, y[:5]]))
    np.testing.assert_allclose(LaplaceEvidence()(model, x, y, weights=weights), twice, rtol=1e-9)


def test_bad_input(data):
    with pytest.raises(ValueError, match="Constant"):
        free = jsvm.KernelMachine(kernels.RBF(), losses.Hinge(), offset=True)
        LaplaceEvidence()(free, *data)
    with pytest.raises(ValueError, match="needs the loss Hinge"):
        LaplaceEvidence(hinge_steepness=1.0)(machine(losses.Logistic()), *data)
    with pytest.raises(ValueError, match="smoothing"):
        LaplaceEvidence(smoothing=-1.0)
    with pytest.raises(TypeError, match="KernelMachine"):
        LaplaceEvidence()(kernels.RBF(), *data)


def test_a_failed_factorization_is_reported(data):
    """A kernel that is not positive semi-definite makes the determinant negative or the fit fail."""
    indefinite = kernels.Custom(lambda a, b: -jnp.sum((a - b) ** 2))
    model = jsvm.KernelMachine(indefinite, losses.Logistic())
    with pytest.raises(jsvm.FitError):
        LaplaceEvidence()(model, *data)
    assert jnp.isnan(LaplaceEvidence()(model, *data, throw=False))


def test_derivatives_of_determinants_in_batches():
    """Value, gradient and Hessian against those of an LU factorization; a fifth of the examples is active."""
    examples = 70  # more than 64: the active ones are gathered
    rng = np.random.default_rng(0)
    x = rng.normal(size=(examples, 3))
    squares = jnp.asarray(np.sum((x[:, None] - x[None]) ** 2, axis=2))
    some = jnp.asarray(np.where(rng.uniform(size=examples) < 0.2, rng.uniform(size=examples), 0.0))

    def of(function):
        def value(v):
            return function(jnp.exp(v[0] - squares * jnp.exp(v[1])), jnp.exp(v[2] + some) * some)

        return jax.jit(lambda v: (value(v), jax.grad(value)(v), jax.hessian(value)(v)))

    def by_lu(gram, curvature):
        return jnp.linalg.slogdet(jnp.eye(examples) + curvature[:, None] * gram)[1]

    places = jnp.asarray(rng.normal(size=(3, 3)))
    found = jax.jit(jax.vmap(of(laplace_log_determinant)))(places)
    for member, place in enumerate(places):
        for ours, theirs in zip(found, of(by_lu)(place), strict=True):
            np.testing.assert_allclose(ours[member], theirs, rtol=1e-10, atol=1e-12)

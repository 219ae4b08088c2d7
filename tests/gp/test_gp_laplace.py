"""Laplace's approximation of Gaussian process classification against scikit-learn and loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import central_difference
from scipy.special import ndtr
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process import kernels as sklearn_kernels

import jaxsvm as jsvm
from jaxsvm import criteria, gp, kernels, losses

RNG = np.random.default_rng(7)
X = RNG.normal(size=(30, 2))
Y = np.where(X[:, 0] + X[:, 1] ** 2 - 0.7 + 0.5 * RNG.normal(size=30) > 0, 1.0, -1.0)
NEW = 2 * RNG.normal(size=(30, 2))


def machine(loss):
    return jsvm.KernelMachine(kernels.RBF(jnp.array([0.8, 1.7]), 4.0), loss)


@pytest.fixture(scope="module")
def theirs():
    kernel = sklearn_kernels.ConstantKernel(4.0) * sklearn_kernels.RBF([0.8, 1.7])
    return GaussianProcessClassifier(kernel, optimizer=None, max_iter_predict=500).fit(X, Y)


def test_the_evidence_and_its_gradient_are_those_of_scikit_learn(theirs):
    value, gradient = jax.value_and_grad(gp.Laplace())(machine(losses.Logistic()), X, Y)
    logs = np.log([4.0, 0.8, 1.7])  # theirs has the amplitude first
    expected, slopes = theirs.log_marginal_likelihood(logs, eval_gradient=True)
    np.testing.assert_allclose(-value, expected, rtol=1e-8)
    found = np.array([gradient.kernel.log_variance, *gradient.kernel.log_lengthscale])
    np.testing.assert_allclose(-found, slopes, rtol=1e-6)


def test_probabilities_are_those_of_scikit_learn(theirs):
    """scikit-learn averages over the Gaussian with five error functions, accurate to about 1e-4."""
    posterior = gp.laplace(machine(losses.Logistic()), X, Y)
    expected = theirs.predict_proba(NEW)[:, 1]
    assert expected.min() < 0.2 and expected.max() > 0.6
    np.testing.assert_allclose(posterior.probability(NEW), expected, atol=1e-4)
    np.testing.assert_array_equal(posterior.predict(NEW), theirs.predict(NEW))


def test_probit_by_loops():
    """Newton's method and the determinant with plain inverses."""
    model = machine(losses.Probit(0.5))
    gram = np.asarray(model.kernel.gram(X))
    f = np.zeros(30)
    for _ in range(50):
        slopes, curvatures, total = np.zeros(30), np.zeros(30), 0.0
        for i in range(30):
            z = Y[i] * f[i] / np.sqrt(0.5)
            phi, Phi = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), ndtr(z)
            slopes[i] = Y[i] * phi / Phi / np.sqrt(0.5)
            curvatures[i] = phi / Phi * (phi / Phi + z) / 0.5
            total += np.log(Phi)
        inverse = np.linalg.inv(gram)
        f_new = np.linalg.solve(inverse + np.diag(curvatures), curvatures * f + slopes)
        if np.max(np.abs(f_new - f)) < 1e-12:
            break
        f = f_new
    determinant = np.linalg.det(np.eye(30) + gram * curvatures)
    expected = total - f @ inverse @ f / 2 - np.log(determinant) / 2
    np.testing.assert_allclose(-gp.Laplace()(model, X, Y), expected, rtol=1e-8)
    posterior = gp.laplace(model, X, Y)
    assert posterior.result == jsvm.RESULTS.successful and posterior.message
    np.testing.assert_allclose(posterior.log_evidence, expected, rtol=1e-8)
    np.testing.assert_allclose(posterior.fit.latent, f, atol=1e-7)
    mean, deviation = posterior.latent(X)
    covariance = np.linalg.inv(inverse + np.diag(curvatures))
    np.testing.assert_allclose(mean, f, atol=1e-7)
    np.testing.assert_allclose(deviation**2, np.diag(covariance), rtol=1e-6)
    expected = [ndtr(m / np.sqrt(0.5 + v)) for m, v in zip(f, np.diag(covariance), strict=True)]
    np.testing.assert_allclose(posterior.probability(X), expected, atol=1e-7)


def left_out_by_loops(gram, curvature, i):
    """The variance of example i, given Gaussians of these precisions for all others, by plain inverses."""
    rest = np.arange(len(Y)) != i
    noisy = gram[np.ix_(rest, rest)] + np.diag(1 / np.asarray(curvature)[rest])
    return gram[i, i] - gram[i, rest] @ np.linalg.solve(noisy, gram[rest, i])


def test_leave_one_out_and_its_gradient():
    """One Newton step from the mode. Against retraining: means within 0.11 deviations, probabilities
    within 0.01, their mean logarithm 0.5 %; the gradient against central differences."""
    model = machine(losses.Probit(0.5))
    gram = np.asarray(model.kernel.gram(X))
    posterior = gp.laplace(model, X, Y)
    near, curvature = posterior.left_out, posterior.curvature
    np.testing.assert_allclose(curvature, model.loss.curvature(posterior.y, posterior.mean))
    literal = [left_out_by_loops(gram, curvature, i) for i in range(len(Y))]
    np.testing.assert_allclose(near.variance, literal, rtol=1e-8)

    means, variances = np.zeros(len(Y)), np.zeros(len(Y))
    for i in range(len(Y)):
        weights = np.where(np.arange(len(Y)) == i, 0.0, 1.0)
        rest = gp.laplace(model, X, Y, weights=weights)
        means[i] = rest.mean[i]
        variances[i] = left_out_by_loops(gram, model.loss.curvature(rest.y, rest.mean), i)
        # what has no weight is absent, and predicted
        np.testing.assert_allclose(rest.left_out.mean[i], means[i], rtol=1e-9)
        np.testing.assert_allclose(rest.left_out.variance[i], variances[i], rtol=1e-7)
    assert np.max(np.abs(near.mean - means) / np.sqrt(variances)) < 0.11
    exact = ndtr(Y * means / np.sqrt(0.5 + variances))
    np.testing.assert_allclose(np.exp(near.log_probability), exact, atol=0.01)
    errors = gp.LaplaceLeaveOneOut().score_each(jnp.asarray(Y), near)
    np.testing.assert_array_equal(errors, Y * means < 0)

    criterion = gp.LaplaceLeaveOneOut("log")
    flat, unravel = jax.flatten_util.ravel_pytree(model)
    both = jax.jit(jax.value_and_grad(lambda flat: criterion(unravel(flat), X, Y, throw=False)))
    value, gradient = both(flat)
    np.testing.assert_allclose(value, -np.mean(near.log_probability), rtol=1e-8)
    np.testing.assert_allclose(value, -np.mean(np.log(exact)), rtol=0.005)
    expected = central_difference(lambda flat: both(flat)[0], np.asarray(flat))
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8)


# the other pairs have separate tests
GRADIENTS = {
    "probit": (
        losses.Probit(0.5),
        [gp.Laplace(), gp.NaiveMeanField("log"), gp.ExpectationPropagation()],
    ),
    "logistic": (
        losses.Logistic(1.3),
        [gp.LaplaceLeaveOneOut("log"), gp.ExpectationPropagationLeaveOneOut("log")],
    ),
    "flips": (
        losses.FlipNoise(0.08, 0.4),
        [gp.Laplace(), gp.LaplaceLeaveOneOut("log"), gp.NaiveMeanField("probability")],
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_criteria(name):
    """All methods that can treat a likelihood, in one function, against central differences."""
    loss, some = GRADIENTS[name]
    flat, unravel = jax.flatten_util.ravel_pytree(machine(loss))
    x, y = X[:10], Y[:10]

    def values(flat):
        return jnp.stack([one(unravel(flat), x, y, throw=False) for one in some])

    # along a direction in all hyperparameters
    way = jnp.linspace(1.0, -0.7, flat.size)
    both = jax.jit(lambda flat: jax.jvp(values, (flat,), (way,)))
    ahead, behind = (both(flat + step * way)[0] for step in (1e-4, -1e-4))
    expected = (ahead - behind) / 2e-4
    assert np.all(np.abs(expected) > 1e-3)
    np.testing.assert_allclose(both(flat)[1], expected, rtol=1e-5)


def test_it_is_the_criterion_of_the_library():
    model = machine(losses.Logistic())
    np.testing.assert_array_equal(
        gp.Laplace()(model, X, Y), criteria.LaplaceEvidence()(model, X, Y)
    )


def test_what_does_not_converge_says_so():
    model = machine(losses.Probit(0.5))
    half = gp.laplace(model, X, Y, max_iterations=1, throw=False)
    assert half.result == jsvm.RESULTS.iteration_limit and "max_iterations" in half.message
    frozen = jsvm.freeze(model, "loss")
    assert jsvm.frozen(gp.laplace(frozen, X, Y).model) == ("loss.noise_variance",)


def test_flipped_labels():
    """A loss that is not convex: against plain inverses, in which a precision may be negative."""
    model = machine(losses.FlipNoise(0.1, 0.3))
    apart = 0.1 * X + np.stack([1.5 * Y, 0 * Y], axis=1)
    flipped = np.where(np.arange(len(Y)) < 1, -Y, Y)  # in the midst of the others
    found = gp.laplace(model, apart, flipped)
    assert found.result == jsvm.RESULTS.local_optimum and found.curvature.min() < -0.05

    def covariances(a, b):
        gaps = (a[:, None, :] - b[None, :, :]) / [0.8, 1.7]
        return 4.0 * np.exp(-np.sum(gaps**2, axis=2) / 2)

    cross = covariances(NEW, apart)
    noisy = covariances(apart, apart) + np.diag(1 / np.asarray(found.curvature))
    covariance = covariances(NEW, NEW) - cross @ np.linalg.solve(noisy, cross.T)
    mean, deviation = found.latent(NEW)
    np.testing.assert_allclose(mean, cross @ np.asarray(found.fit.dual), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(deviation**2, np.diag(covariance), rtol=1e-8)
    np.testing.assert_allclose(found.covariance(NEW), covariance, atol=1e-8)
    # the same posterior as that of the library, except for the fields that describe its quality
    same = jsvm.laplace(found.fit)
    assert isinstance(found, jsvm.LaplacePosterior) and same.left_out is same.log_evidence is None
    np.testing.assert_allclose(same.latent(NEW), (mean, deviation), rtol=1e-12)


def test_bad_input():
    with pytest.raises(ValueError, match=r"Laplace's approximation needs.*has the loss Hinge"):
        gp.Laplace()(machine(losses.Hinge()), X, Y)
    with pytest.raises(ValueError, match="has the loss Hinge"):
        gp.LaplaceLeaveOneOut()(machine(losses.Hinge()), X, Y)
    with pytest.raises(ValueError, match="has the loss Huber"):
        gp.laplace(machine(losses.Huber()), X, X[:, 0])
    with pytest.raises(ValueError, match="Constant"):
        gp.laplace(jsvm.KernelMachine(kernels.RBF(), losses.Probit(), offset=True), X, Y)
    with pytest.raises(ValueError, match="0 and 1"):
        gp.laplace(machine(losses.Probit()), X, (Y + 1) / 2)
    with pytest.raises(TypeError, match="KernelMachine"):
        gp.laplace(kernels.RBF(), X, Y)
    with pytest.raises(jsvm.FitError):
        gp.laplace(machine(losses.Probit()), X, Y, max_iterations=1)

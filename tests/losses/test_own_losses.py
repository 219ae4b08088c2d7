"""Losses that users define: a value is enough for fits, samples and the evidence."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxsvm as jsvm
from jaxsvm import losses

X = jnp.linspace(-2, 2, 12)[:, None]
TARGETS = jnp.sin(2 * X[:, 0])
LABELS = jnp.where(TARGETS > 0, 1.0, -1.0).at[3].set(1.0)
KERNEL = jsvm.kernels.RBF(1.0) + jsvm.kernels.Constant(0.1)
KEY = jax.random.key(0)


class OwnLogistic(losses.AbstractClassification):
    is_convex = True
    log_C: jax.Array

    def __init__(self, C=1.0):
        self.log_C = jnp.log(jnp.asarray(C, float))

    def value(self, y, f):
        return jnp.exp(self.log_C) * jax.nn.softplus(-y * f)


class OwnQuadratic(losses.AbstractRegression):
    is_convex = True
    log_noise: jax.Array

    def __init__(self, noise=1.0):
        self.log_noise = jnp.log(jnp.asarray(noise, float))

    def value(self, y, f):
        return (y - f) ** 2 * jnp.exp(-self.log_noise) / 2


class Student(losses.AbstractRegression):
    """Noise of Student's t distribution: a loss that is not convex and is not declared so."""

    freedom: int = eqx.field(static=True)

    def value(self, y, f):
        return (self.freedom + 1) / 2 * jnp.log1p((y - f) ** 2 / self.freedom)


class Skewed(losses.AbstractRegression):
    is_convex = True

    def value(self, y, f):
        return jnp.exp(y - f) - 1.5 * (y - f)


class Bounded(losses.AbstractRegression):
    def value(self, y, f):
        return 1 - jnp.exp(-((y - f) ** 2))


class Falling(losses.AbstractClassification):
    is_convex = True

    def value(self, y, f):
        return -y * f


PAIRS = {
    "labels": (losses.Logistic(2.0), OwnLogistic(2.0), LABELS),
    "targets": (losses.Quadratic(0.1), OwnQuadratic(0.1), TARGETS),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_value_does_what_closed_forms_do(name):
    known, own, y = PAIRS[name]
    f = jnp.linspace(-3, 3, 12)
    for method in ("value", "derivative", "curvature", "log_likelihood"):
        expected = getattr(known, method)(y, f)
        np.testing.assert_allclose(
            getattr(own, method)(y, f), expected, rtol=1e-12, atol=1e-14, err_msg=method
        )
    models = [jsvm.KernelMachine(KERNEL, loss) for loss in (known, own)]
    fits = [jsvm.fit(model, X, y) for model in models]
    assert int(fits[1].result) == jsvm.RESULTS.successful
    np.testing.assert_allclose(fits[0].dual, fits[1].dual, atol=1e-9)
    gradients = [jax.grad(jsvm.criteria.LaplaceEvidence())(model, X, y) for model in models]
    for a, b in zip(*map(jax.tree.leaves, gradients), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    found = [
        jsvm.evidence_gradient(model, X, y, key=KEY, chains=8, draws=160, warmup=60).gradient
        for model in models
    ]
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("C", [0.01, 0.5, 3.0, 1e4])
def test_the_normalizer_of_labels(C, dtype):
    own, known = OwnLogistic(C), losses.Logistic(C)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(own.log_normalizer(), known.log_normalizer(), atol=tolerance)
    slopes = [jax.grad(lambda loss: loss.log_normalizer())(loss).log_C for loss in (own, known)]
    np.testing.assert_allclose(*slopes, atol=tolerance)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_the_noise_of_targets(scale, dtype):
    """Against closed forms, whatever its scale."""
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    own, known = OwnQuadratic(scale**2), losses.Quadratic(scale**2)
    np.testing.assert_allclose(own.log_normalizer(), known.log_normalizer(), rtol=tolerance)
    slope = jax.grad(lambda loss: loss.log_normalizer())(own).log_noise
    np.testing.assert_allclose(slope, -0.5, rtol=tolerance)
    np.testing.assert_allclose(own.noise_variance, scale**2, rtol=tolerance)
    residual = scale * jnp.array([[-6.0, -1.0, -1e-3], [0.0, 0.7, 4.0]])
    expected = known.noise_cumulative(residual)
    np.testing.assert_allclose(own.noise_cumulative(residual), expected, atol=tolerance)
    draws = np.asarray(own.sample_noise((40, 50), key=KEY)).ravel() / scale
    assert stats.kstest(draws, "norm").pvalue > 1e-3


def test_noise_with_long_tails_or_on_one_side():
    student, t = Student(3), stats.t(3)
    np.testing.assert_allclose(student.log_normalizer(), t.logpdf(0.0), rtol=1e-12)
    np.testing.assert_allclose(student.noise_variance, 3.0, rtol=1e-6)
    r = np.array([-50.0, -1.0, 0.3, 7.0])
    np.testing.assert_allclose(student.noise_cumulative(jnp.asarray(r)), t.cdf(r), atol=1e-12)
    draws = np.asarray(student.sample_noise((2000,), key=KEY))
    assert stats.kstest(draws, t.cdf).pvalue > 1e-3
    assert float(Student(2).noise_variance) == np.inf
    # the logarithm of a gamma variable of shape 1.5
    skewed, gamma = Skewed(), stats.loggamma(1.5)
    np.testing.assert_allclose(skewed.log_normalizer(), gamma.logpdf(0.0) + 1.0, rtol=1e-10)
    np.testing.assert_allclose(skewed.noise_variance, gamma.var(), rtol=1e-9)
    r = np.array([-4.0, 0.0, 1.5])
    np.testing.assert_allclose(skewed.noise_cumulative(jnp.asarray(r)), gamma.cdf(r), atol=1e-10)


def test_what_follows_from_a_fit():
    model = jsvm.KernelMachine(KERNEL, Student(3))
    fitted = jsvm.fit(model, X, TARGETS)
    assert int(fitted.result) == jsvm.RESULTS.local_optimum  # it is not declared convex
    posterior = jsvm.laplace(fitted)
    assert jsvm.laplace(jsvm.fit(jsvm.KernelMachine(KERNEL, Bounded()), X, TARGETS)).latent(X)
    (_, latent), (_, target) = posterior.latent(X), posterior.target(X)
    np.testing.assert_allclose(target**2, latent**2 + 3.0, rtol=1e-5)
    with pytest.raises(ValueError, match="need a loss of linear and quadratic pieces"):
        posterior.interval(X)


@pytest.mark.parametrize(
    "loss, y, words",
    [(Bounded(), TARGETS, "no finite integral"), (Falling(), LABELS, "no upper bound")],
    ids=["targets", "labels"],
)
def test_a_loss_that_is_not_a_likelihood_has_no_evidence(loss, y, words):
    model = jsvm.KernelMachine(KERNEL, loss)
    for function in (jsvm.evidence_gradient, jsvm.evidence_ascent, jsvm.log_evidence):
        with pytest.raises(ValueError, match=words):
            function(model, X, y, key=KEY)
    with pytest.raises(ValueError, match=words):
        jsvm.criteria.LaplaceEvidence()(model, X, y)
    with pytest.raises(ValueError, match=words):
        jsvm.select(jsvm.freeze(model, "kernel.right"), X, y, jsvm.criteria.LaplaceEvidence())


class SquaredInsensitive(losses.AbstractResidual):
    """`C/2 max(|y - f| - epsilon, 0)^2`: a flat zone and no bound."""

    C: float = eqx.field(static=True, default=2.0)

    def shape(self):
        return losses.Shape(jnp.asarray(0.3), jnp.asarray(1 / self.C), None)


def test_a_loss_with_a_flat_zone_and_no_bound_is_solved():
    """One linear system does not give its solution, since the examples in the zone take no part."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, 2))
    y = np.sin(x[:, 0]) + 0.5 * rng.normal(size=30)
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), SquaredInsensitive())
    fitted = jsvm.fit(model, x, y)
    assert int(fitted.result) == jsvm.RESULTS.successful
    excess = np.maximum(np.abs(y - np.asarray(fitted.latent)) - 0.3, 0)
    expected = 2.0 * np.sign(y - np.asarray(fitted.latent)) * excess
    np.testing.assert_allclose(fitted.dual, expected, atol=1e-9)
    assert 0 < np.sum(expected != 0) < 30

"""Random waves of kernels: the distribution of frequencies, and what has none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from reference import central_difference

from jaxsvm import kernels
from jaxsvm.kernels import waves_of
from jaxsvm.kernels._spectrum import log_gamma_quantile, orthogonal_normals

STATIONARY = {
    "RBF": kernels.RBF(),
    "Matern12": kernels.Matern12(),
    "Matern32": kernels.Matern32(),
    "Matern52": kernels.Matern52(),
    "RationalQuadratic": kernels.RationalQuadratic(mixture=0.8),
    "RationalQuadratic, near RBF": kernels.RationalQuadratic(mixture=30.0),
}


@pytest.mark.parametrize("name", STATIONARY)
def test_correlations_are_mixtures_of_gaussians(name):
    """`correlation(r^2) = E[exp(-s^2 r^2 / 2)]`."""
    kernel = STATIONARY[name]
    normals = jnp.asarray(np.random.default_rng(0).normal(size=(10_000, 5)))
    scales = np.asarray(kernel.frequency_scales(normals))
    for distance in (0.2, 1.0, 2.5):
        values = np.exp(-(scales**2) * distance**2 / 2)
        expected = float(kernel.correlation(jnp.full((1, 1), distance**2))[0, 0])
        error = np.std(values) / 10_000**0.5
        assert abs(np.mean(values) - expected) <= 4 * error + 1e-12


PROBABILITIES = np.array([1e-6, 0.01, 0.2, 0.5, 0.9, 0.999, 1 - 1e-9])


@pytest.mark.parametrize("shape", [0.05, 0.4, 1.0, 3.7, 60.0, 2000.0])
def test_quantiles_of_the_gamma_distribution(shape):
    found = log_gamma_quantile(jnp.asarray(PROBABILITIES), jnp.asarray(shape))
    expected = np.log(scipy.special.gammaincinv(shape, PROBABILITIES))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)

    def total(log_shape):
        quantiles = log_gamma_quantile(jnp.asarray(PROBABILITIES), jnp.exp(log_shape))
        return jnp.sum(jnp.arange(1.0, 8.0) * quantiles)

    def literal(log_shape):
        quantiles = scipy.special.gammaincinv(np.exp(log_shape[0]), PROBABILITIES)
        return np.sum(np.arange(1.0, 8.0) * np.log(quantiles))

    slope = float(jax.grad(total)(jnp.log(shape)))
    assert slope == pytest.approx(central_difference(literal, [np.log(shape)])[0], rel=1e-5)


def test_quantiles_by_probability():
    at = jnp.array([0.1, 0.6])
    slopes = jax.vmap(jax.grad(lambda u: log_gamma_quantile(u[None], jnp.asarray(1.7))[0]))(at)
    quantile = scipy.special.gammaincinv(1.7, np.asarray(at))
    density = quantile**0.7 * np.exp(-quantile) / scipy.special.gamma(1.7)
    np.testing.assert_allclose(slopes, 1 / (density * quantile), rtol=1e-8)


def test_extreme_quantiles_are_finite(dtype):
    probability = jnp.asarray([0.0, 1e-30, 0.5, 1.0], dtype)
    for shape in (1e-3, 1.0, 1e5):
        function = jax.value_and_grad(
            lambda a, u=probability: jnp.sum(jnp.exp(log_gamma_quantile(u, a) / 2))
        )
        value, slope = function(jnp.asarray(shape, dtype))
        assert bool(jnp.isfinite(value)) and bool(jnp.isfinite(slope))


@pytest.mark.parametrize("inputs, count", [(1, 5), (3, 7), (8, 5)])
def test_orthogonal_normals(inputs, count):
    draw = jax.vmap(lambda key: orthogonal_normals(key, count, inputs, float))
    vectors = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))
    assert vectors.shape == (4000, count, inputs)
    group = vectors[:, : min(inputs, count)]
    products = group @ np.swapaxes(group, 1, 2)
    lengths = np.einsum("kii->ki", products)
    np.testing.assert_allclose(
        products, np.einsum("ki,ij->kij", lengths, np.eye(group.shape[1])), atol=1e-10
    )
    for number in (0, count - 1):  # each alone is standard normal: moments up to the fourth
        alone = vectors[:, number]
        for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
            error = np.std(alone**power, axis=0) / 4000**0.5
            assert np.all(np.abs(np.mean(alone**power, axis=0) - moment) < 5 * error)
        squares = np.sum(alone**2, axis=1)  # a chi-squared distribution
        assert np.var(squares) == pytest.approx(2 * inputs, rel=0.15)
        if inputs > 1:
            product = alone[:, 0] * alone[:, 1]
            assert abs(np.mean(product)) < 5 * np.std(product) / 4000**0.5


def test_kernels_without_waves_are_named():
    for kernel, name in (
        (kernels.Linear(), "Linear"),
        (kernels.RBF() + kernels.Polynomial(2), "Polynomial"),
        (kernels.RBF() * kernels.Custom(lambda a, b: jnp.sum(a * b)), "Custom"),
        (kernels.ARD(kernels.Linear(), [1.0, 2.0]), "Linear"),
    ):
        with pytest.raises(ValueError, match=f"kernel `{name}`: use `jaxsvm.Nystrom"):
            waves_of(kernel)


def test_terms_of_sums_and_products():
    rbf, constant = kernels.RBF(variance=2.0), kernels.Constant(3.0)
    kernel = (rbf + constant) * (kernels.Matern32(variance=5.0) + constant)
    variances = [float(term.variance) for term in waves_of(kernel)]
    assert variances == pytest.approx([10.0, 6.0, 15.0, 9.0])
    assert [term.draw is None for term in waves_of(kernel)] == [False, False, False, True]
    assert waves_of(kernels.White() * rbf) == ()

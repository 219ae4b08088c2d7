"""Bridge sampling against the exact Gaussian case, quadrature in white coordinates, and another method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from reference import rbf

import jaxsvm as jsvm
from jaxsvm.evidence import Bridge, Thermodynamic, log_evidence
from jaxsvm.evidence._bridge import _partition
from jaxsvm.sampling import SGLD, SamplingWarning

RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(300, 2))
Y = np.where(X[:, 0] + 0.8 * RANDOM.normal(size=300) > 0, 1.0, -1.0)
SHORT = Bridge(chains=16, warmup=60, draws=60)


def test_a_gaussian_posterior():
    x, y = X[:20], np.sin(2 * X[:20, 0]) + 0.3 * RANDOM.normal(size=20)
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.2, 2.0), jsvm.losses.Quadratic(0.1))
    covariance = rbf(x, 1.2, 2.0, 0.0) + 0.1 * np.eye(20)
    exact = scipy.stats.multivariate_normal.logpdf(y, np.zeros(20), covariance)  # pyright: ignore
    found = log_evidence(model, x, y, key=jax.random.key(0), method=SHORT)
    assert not found.problems and 0 < float(found.standard_error) < 0.1
    assert abs(float(found.value) - exact) < 3 * float(found.standard_error)


@pytest.mark.parametrize("sampler", [jsvm.sampling.HMC(), SGLD(60, step_size=0.05)])
@pytest.mark.parametrize("C", [1.0, 0.1])
def test_quadrature_in_white_coordinates(sampler, C):
    """Two white coordinates, so that the evidence is an integral over a plane; a wave has full variance.

    Batches have a bias, here below 0.02 nats at this step size.
    """
    bias = 0.02 if isinstance(sampler, SGLD) else 0.0
    low, loss = jsvm.RandomFourier(2), jsvm.losses.Hinge(C)
    model, key = jsvm.KernelMachine(jsvm.kernels.RBF(2.0, 1.5), loss), jax.random.key(5)
    method = Bridge(chains=16, warmup=60, draws=100, sampler=sampler)
    found = log_evidence(model, X, Y, key=key, approximation=low, method=method)
    # the waves are drawn with the first of the keys that the run is given
    subspace = low.subspace(model, jnp.asarray(X), jax.random.split(key)[0])
    factor = np.asarray(subspace.whiten(model.kernel, jnp.asarray(X)).factor)
    grid, step = np.linspace(-6, 6, 601, retstep=True)
    b = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    exponent = -np.sum(b**2, axis=1) / 2 - np.log(2 * np.pi)
    for row, sign in zip(factor, Y, strict=True):
        exponent -= C * np.maximum(1 - sign * (b @ row), 0)
    exact = scipy.special.logsumexp(exponent) + 2 * np.log(step)
    exact -= len(Y) * np.log1p(np.exp(-2 * C))
    assert float(found.standard_error) < 0.05
    assert abs(float(found.value) - exact) < 3 * float(found.standard_error) + bias
    assert not found.problems


def test_thermodynamic_integration():
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.2, 2.0), jsvm.losses.Hinge(1.5))
    found = log_evidence(model, X[:50], Y[:50], key=jax.random.key(0), method=SHORT)
    method = Thermodynamic(temperatures=12, chains=32, warmup=20, draws=30)
    other = log_evidence(model, X[:50], Y[:50], key=jax.random.key(1), method=method)
    error = np.hypot(float(found.standard_error), float(other.standard_error))
    assert error < 0.3
    assert abs(float(found.value - other.value)) < 3 * error


def test_partition_of_known_densities():
    """`p = 3 N(0.5, 1)` and `g = N(0, 1)`: the logarithm of 3, and no overflow for huge ratios."""
    draws, points = RANDOM.normal(size=(2, 200_000))
    draws = draws + 0.5
    ratio = [np.log(3) + (b**2 - (b - 0.5) ** 2) / 2 for b in (draws, points)]
    value, converged = _partition(*ratio)
    assert converged and abs(value - np.log(3)) < 0.01
    moved, _ = _partition(*(part - 5000 for part in ratio))
    np.testing.assert_allclose(moved + 5000, value, atol=1e-8)


def test_problems_are_reported():
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.2, 2.0), jsvm.losses.Hinge(1.5))
    method = Bridge(chains=4, warmup=0, draws=8, sampler=jsvm.sampling.HMC(step_size=1e-6))
    with pytest.warns(SamplingWarning, match="the chains hardly move"):
        log_evidence(model, X[:50], Y[:50], key=jax.random.key(0), method=method)
    with pytest.raises(ValueError, match="`chains` must be even"):
        Bridge(chains=5)
    with pytest.raises(TypeError, match="`sampler` must be"):
        Bridge(sampler="hmc")  # pyright: ignore

"""Random Fourier features against the kernels they average to."""

import grid
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jaxprs import largest_array
from reference import central_difference

import jaxsvm as jsvm
from jaxsvm import kernels
from jaxsvm.approximations import RandomFourier

# name -> a kernel of points with d inputs
KERNELS = {
    name: grid.KERNELS[name]
    for name in (
        "RBF", "RBF, ARD", "Matern12", "Matern32", "Matern52", "RationalQuadratic", "Periodic", "Constant",
        "ARD", "Subspace", "Transform",
    )
} | {
    "sum": lambda d: kernels.RBF(0.7, 2.0) + kernels.Matern32(2.0, 0.5) + kernels.Constant(0.3),
    "scaled": lambda d: 3.0 * kernels.RBF(0.7),
    "product": lambda d: kernels.RBF(2.0) * kernels.Periodic(1.0, 1.5, 2.0),
    "product of sums": lambda d: (kernels.RBF(2.0) + 0.5) * (kernels.Matern52(1.0) + kernels.RBF(0.5)),
    "white noise": lambda d: kernels.RBF(1.3) + kernels.White(0.4),
}  # fmt: skip


def machine(kernel):
    return jsvm.KernelMachine(kernel, jsvm.losses.Hinge())


def points(inputs, count=6):
    return jnp.asarray(np.random.default_rng(inputs).normal(size=(count, inputs)))


def factor(kernel, x, features, key=None):
    return RandomFourier(features).subspace(machine(kernel), x, key).whiten(kernel, x).factor


@pytest.mark.parametrize("inputs", [1, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_the_mean_over_seeds_is_the_kernel_matrix(name, inputs):
    kernel, x = KERNELS[name](inputs), points(inputs)
    keys = jax.random.split(jax.random.key(0), 600)
    factors = jax.jit(jax.vmap(lambda key: factor(kernel, x, 31, key)))(keys)
    matrices = np.asarray(factors @ jnp.swapaxes(factors, 1, 2))
    mean, error = np.mean(matrices, axis=0), np.std(matrices, axis=0) / 600**0.5
    # white noise is not a function of the inputs
    smooth = kernel.left if name == "white noise" else kernel
    expected = np.asarray(smooth.gram(x))
    assert np.all(np.abs(mean - expected) <= 4.5 * error + 1e-12)
    diagonals = np.einsum("kii->ki", matrices)
    np.testing.assert_allclose(diagonals, np.tile(np.diag(expected), (600, 1)), rtol=1e-12)


@pytest.mark.parametrize("name", ["RBF", "Matern32", "sum"])
def test_many_features_are_near_the_kernel_matrix(name, dtype):
    with_kernel = KERNELS[name](3)
    x = jnp.asarray(points(3, 30), dtype)
    gram = np.asarray(with_kernel.gram(x))
    errors = []
    for features in (50, 800, 12800):
        white = factor(with_kernel, x, features)
        assert white.dtype == dtype and features - 1 <= white.shape[1] <= features
        errors.append(np.sqrt(np.mean((np.asarray(white @ white.T) - gram) ** 2)))
    # sixteen times as many features: a quarter of the error
    assert errors[0] / 8 < errors[1] < errors[0] / 2 and errors[1] / 8 < errors[2] < errors[1] / 2
    # each of the terms has a standard error of at most variance / sqrt(its share of the features)
    variances = {"RBF": [2.0], "Matern32": [1.0], "sum": [2.0, 0.5]}[name]
    bound = np.sqrt(np.sum(np.square(variances)) * len(variances) / 12800)
    assert errors[2] < 1.1 * bound


def test_orthogonal_frequencies_lower_the_error():
    x, kernel = points(4, 10), kernels.RBF(2.0)
    gram = np.asarray(kernel.gram(x))
    keys = jax.random.split(jax.random.key(1), 200)
    factors = np.asarray(jax.vmap(lambda key: factor(kernel, x, 32, key))(keys))
    ours = np.mean((factors @ np.swapaxes(factors, 1, 2) - gram) ** 2, axis=(1, 2))
    generator, theirs = np.random.default_rng(2), []
    for _ in range(200):  # independent frequencies
        phases = np.asarray(x) @ (generator.normal(size=(4, 16)) / 2.0)
        waves = np.concatenate([np.cos(phases), np.sin(phases)], axis=1) / 4.0
        theirs.append(np.mean((waves @ waves.T - gram) ** 2))
    deviation = np.sqrt((np.var(ours) + np.var(theirs)) / 200)
    assert np.mean(ours) < np.mean(theirs) - 4 * deviation


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "Matern12"])
def test_derivatives(name):
    """With respect to all hyperparameters and to the inputs, at fixed random numbers."""
    kernel, x = KERNELS[name](2), points(2)
    subspace = RandomFourier(15).subspace(machine(kernel), x)
    weight = jnp.asarray(np.random.default_rng(3).normal(size=(6, 6)))
    flat, restore = ravel_pytree((kernel, x))

    @jax.jit
    def value(flat):
        kernel, x = restore(flat)
        white = subspace.whiten(kernel, x).factor
        return jnp.sum(weight * (white @ white.T))

    gradient = jax.grad(value)(flat)
    expected = central_difference(value, flat)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


def test_new_points():
    kernel, x = kernels.RBF(1.3) + kernels.Constant(0.2) + kernels.White(0.4), points(3)
    white = RandomFourier(21).subspace(machine(kernel), x).whiten(kernel, x)
    assert float(white.error) == pytest.approx(0.4 / 1.4, abs=1e-12)  # the white noise is lost
    rows, residual = white.basis.features(kernel, x)
    np.testing.assert_allclose(rows, white.factor, atol=1e-14)
    np.testing.assert_allclose(residual, 0.4, atol=1e-12)
    rows, covariance = white.basis.joint_features(kernel, x)
    np.testing.assert_allclose(rows, white.factor, atol=1e-14)
    np.testing.assert_allclose(covariance, 0.4 * np.eye(6), atol=1e-12)


def test_seeds_and_keys():
    x, kernel = points(3), kernels.RBF(1.3)

    def rows(approximation, key=None):
        return np.asarray(approximation.subspace(machine(kernel), x, key).whiten(kernel, x).factor)

    first = rows(RandomFourier(10))
    np.testing.assert_array_equal(first, rows(RandomFourier(10)))
    np.testing.assert_array_equal(first, rows(RandomFourier(10, seed=7), jax.random.key(0)))
    assert not np.allclose(first, rows(RandomFourier(10, seed=1)))
    # the waves are the same for other hyperparameters: only their frequencies are scaled
    subspace = RandomFourier(10).subspace(machine(kernel), x)
    scaled = subspace.whiten(kernels.RBF(2.6), 2 * x).factor
    np.testing.assert_allclose(scaled, first, rtol=1e-12)


def test_each_term_has_its_share():
    x = points(2)
    three = kernels.RBF() + kernels.Matern32() + kernels.Constant()
    subspace = RandomFourier(12).subspace(machine(three), x)
    assert [None if n is None else n[0].shape[0] for n in subspace.noise] == [3, 2, None]
    assert subspace.whiten(three, x).factor.shape == (6, 11)
    constant = kernels.Constant(2.0)
    alone = RandomFourier(12).subspace(machine(constant), x).whiten(constant, x).factor
    np.testing.assert_allclose(alone, np.full((6, 1), 2.0**0.5))


def test_invalid_options_are_reported():
    x = points(2)
    for kernel, message in (
        (kernels.RBF() + kernels.Linear(), "kernel `Linear`: use `jaxsvm.Nystrom"),
        (kernels.White(), "white noise alone has no random Fourier features"),
        (
            kernels.RBF() + kernels.Matern32() + 1.0,
            "`features` must be at least 5 .* sum of 3 terms",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            RandomFourier(4).subspace(machine(kernel), x)
    for seed in (-1, 0.5):
        with pytest.raises(ValueError, match="`seed` must be an integer of at least 0"):
            RandomFourier(5, seed=seed)


def test_batches_and_memory():
    x = points(3, 300)
    subspace = RandomFourier(20).subspace(machine(kernels.RBF()), x)

    def matrix(lengthscale):
        return subspace.whiten(kernels.RBF(lengthscale), x).factor

    scales = jnp.array([0.5, 2.0])
    together = jax.jit(jax.vmap(matrix))(scales)
    for scale, one in zip(scales, together, strict=True):
        np.testing.assert_allclose(one, matrix(scale), rtol=1e-12)
    assert largest_array(jax.grad(lambda scale: jnp.sum(matrix(scale))), scales[0]) <= 300 * 20


def test_chains_and_files(tmp_path):
    """Draws in a space of waves predict, and are saved, as those of any other."""
    x = jnp.asarray(np.random.default_rng(5).uniform(-2, 2, size=(40, 1)))
    y = jnp.where(jnp.sin(2 * x[:, 0]) > 0, 1.0, -1.0)
    kernel = kernels.RBF(0.6, 4.0) + kernels.Constant(0.5)
    model = jsvm.KernelMachine(kernel, jsvm.losses.Logistic(1.0))
    options = {"key": jax.random.key(0), "draws": 400, "warmup": 100}
    waves = jsvm.sample(model, x, y, approximation=jsvm.RandomFourier(401), **options)
    exact = jsvm.sample(model, x, y, **options)
    new = jnp.linspace(-2, 2, 9)[:, None]
    np.testing.assert_allclose(waves.probability(new), exact.probability(new), atol=0.1)
    assert waves.sample(new, 3, key=jax.random.key(1)).shape == (3, 9)
    jsvm.save(tmp_path / "posterior.jaxsvm", waves)
    again = jsvm.load(tmp_path / "posterior.jaxsvm")
    np.testing.assert_array_equal(again.decision(new), waves.decision(new))
    gradient = jsvm.evidence_gradient(
        model, x, y, approximation=jsvm.RandomFourier(41), route="fisher", **options
    )
    assert all(jnp.isfinite(leaf) for leaf in jax.tree.leaves(gradient.gradient))

"""White coordinates, exact and by Nystrom's method, and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxprs import largest_array

import jaxsvm as jsvm
from jaxsvm.approximations import LandmarkSubspace, _blocks, residual_variance

X = jax.random.normal(jax.random.key(0), (12, 3))
KERNEL = jsvm.kernels.RBF(1.2, 2.0) + jsvm.kernels.Constant(0.3)
MARKS = jnp.array([0, 2, 3, 7, 8, 11])


def test_exact_whitening_is_a_root_of_the_kernel_matrix():
    white = LandmarkSubspace(None, 12).whiten(KERNEL, X)
    np.testing.assert_allclose(white.factor @ white.factor.T, KERNEL.gram(X), atol=1e-12)
    assert float(white.error) < 1e-12


def test_nystrom_against_its_formula():
    gram = np.asarray(KERNEL.gram(X))
    marks = np.asarray(MARKS)
    values, vectors = np.linalg.eigh(gram[np.ix_(marks, marks)])
    for rank in (2, 4, 6):
        kept = vectors[:, -rank:]
        inverse = kept @ np.diag(1 / values[-rank:]) @ kept.T
        literal = gram[:, marks] @ inverse @ gram[marks]
        white = LandmarkSubspace(MARKS, rank).whiten(KERNEL, X)
        assert white.factor.shape == (12, rank)
        np.testing.assert_allclose(white.factor @ white.factor.T, literal, atol=1e-10)
        lost = np.trace(gram - literal) / np.trace(gram - 0.3)  # a constant of 0.3 does not count
        assert float(white.error) == pytest.approx(lost, abs=1e-12)


def test_all_examples_as_landmarks_are_exact():
    white = LandmarkSubspace(jnp.arange(12), 12).whiten(KERNEL, X)
    np.testing.assert_allclose(white.factor @ white.factor.T, KERNEL.gram(X), atol=1e-10)


def test_features_continue_the_factor_to_new_points():
    white = LandmarkSubspace(MARKS, 4).whiten(KERNEL, X)
    rows, residual = white.basis.features(KERNEL, X)
    np.testing.assert_allclose(rows, white.factor, atol=1e-12)
    np.testing.assert_allclose(residual, 2.3 - jnp.sum(rows**2, axis=1), atol=1e-12)
    new = jnp.array([[0.1, 0.2, -0.3]])
    exact = LandmarkSubspace(None, 12).whiten(KERNEL, X)
    rows, residual = exact.basis.features(KERNEL, new)
    cross, gram = np.asarray(KERNEL.cross(new, X))[0], np.asarray(KERNEL.gram(X))
    assert float(residual[0]) == pytest.approx(2.3 - cross @ np.linalg.solve(gram, cross), abs=1e-9)


@pytest.mark.parametrize("landmarks", [None, MARKS])
def test_some_rows_are_those_of_the_factor(landmarks):
    noisy = KERNEL + jsvm.kernels.White(0.5)
    subspace = LandmarkSubspace(landmarks, 6)
    some = jnp.array([9, 3, 0, 3])
    rows = subspace.rows(noisy, subspace.shared(noisy, X), X[some], some)
    np.testing.assert_allclose(rows, subspace.whiten(noisy, X).factor[some], atol=1e-12)


def test_white_noise_belongs_to_the_examples_themselves():
    noisy = KERNEL + jsvm.kernels.White(0.5)
    white = LandmarkSubspace(MARKS, 6).whiten(noisy, X)
    rows = np.asarray(white.factor)[np.asarray(MARKS)]
    expected = noisy.gram(X)[MARKS][:, MARKS]
    np.testing.assert_allclose(rows @ rows.T, expected, atol=1e-10)
    exact = LandmarkSubspace(None, 12).whiten(noisy, X).factor
    np.testing.assert_allclose(exact @ exact.T, noisy.gram(X), atol=1e-10)


def triangle():
    """Three points at equal distances, twice: two pairs of equal eigenvalues."""
    corners = jnp.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]])
    return jnp.concatenate([corners, corners + 50.0])


@pytest.mark.parametrize(
    "points, subspace",
    [
        (X, LandmarkSubspace(None, 12)),
        (X, LandmarkSubspace(MARKS, 4)),
        (triangle(), LandmarkSubspace(None, 6)),
        (triangle(), LandmarkSubspace(None, 2)),
        (jnp.concatenate([X[:5], X[:5]]), LandmarkSubspace(None, 10)),
    ],
    ids=["exact", "nystrom", "equal eigenvalues", "equal and cut between groups", "duplicates"],
)
def test_derivatives_of_what_the_factor_stands_for(points, subspace):
    weight = jax.random.normal(jax.random.key(1), (points.shape[0],) * 2)

    def value(logs):
        kernel = jsvm.replace(KERNEL, {"left.lengthscale": jnp.exp(logs[0])})
        kernel = jsvm.replace(kernel, {"left.variance": jnp.exp(logs[1])})
        factor = subspace.whiten(kernel, points).factor
        return jnp.sum(weight * (factor @ factor.T))

    value = jax.jit(value)
    at = jnp.array([0.2, 0.5])
    gradient = jax.jit(jax.grad(value))(at)
    step = 1e-5
    for place in range(2):
        move = step * jnp.eye(2)[place]
        difference = (value(at + move) - value(at - move)) / (2 * step)
        assert float(gradient[place]) == pytest.approx(float(difference), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    "points, subspace",
    [
        (X, LandmarkSubspace(None, 12)),
        (X, LandmarkSubspace(MARKS, 6)),
        (X, LandmarkSubspace(MARKS, 4)),
        (triangle(), LandmarkSubspace(None, 6)),
        (triangle(), LandmarkSubspace(jnp.array([0, 1, 2, 3]), 4)),
        (jnp.concatenate([X[:5], X[:5]]), LandmarkSubspace(None, 10)),
        (jnp.concatenate([X[:5], X[:5]]), LandmarkSubspace(jnp.arange(5), 5)),
    ],
    ids=[
        "exact", "nystrom", "low rank", "equal eigenvalues", "equal eigenvalues of landmarks", "duplicates",
        "copies of landmarks",
    ],
)  # fmt: skip
def test_derivatives_with_respect_to_inputs(points, subspace):
    """Each input is moved on its own: those of landmarks move the subspace as well."""
    weight = jax.random.normal(jax.random.key(1), (points.shape[0],) * 2)

    @jax.jit
    def value(points):
        factor = subspace.whiten(KERNEL, points).factor
        return jnp.sum(weight * (factor @ factor.T))

    gradient = np.asarray(jax.jit(jax.grad(value))(points))
    step = 1e-5
    for place in np.ndindex(points.shape):
        forth, back = (value(points.at[place].add(sign * step)) for sign in (1, -1))
        assert gradient[place] == pytest.approx(
            float(forth - back) / (2 * step), rel=1e-5, abs=1e-6
        )


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_the_diagonal_correction_makes_prior_variances_exact(noise, dtype):
    kernel = jsvm.kernels.RBF(1.2, 2.0) + jsvm.kernels.Constant(0.3)
    if noise:
        kernel = kernel + jsvm.kernels.White(noise)
    x = jnp.asarray(np.asarray(X), dtype)
    factor = LandmarkSubspace(jnp.array([0, 2, 3, 7, 8, 11]), 4).whiten(kernel, x).factor
    extra = residual_variance(kernel, x, factor)
    assert extra.dtype == dtype and bool(jnp.all(extra >= 0))
    corrected = factor @ factor.T + jnp.diag(extra)
    atol = 1e-13 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(jnp.diag(corrected), 2.3 + noise, atol=atol)
    # at full rank nothing is lost, and rounding errors are not negative variances
    full = LandmarkSubspace(None, 12).whiten(kernel, x).factor
    lost = residual_variance(kernel, x, full)
    assert bool(jnp.all(lost >= 0)) and float(jnp.max(lost)) < atol


def test_derivatives_of_the_diagonal_correction():
    @jax.jit
    def value(log_lengthscale):
        kernel = jsvm.replace(KERNEL, {"left.lengthscale": jnp.exp(log_lengthscale)})
        factor = LandmarkSubspace(MARKS, 4).whiten(kernel, X).factor
        return jnp.sum(jnp.arange(12.0) * residual_variance(kernel, X, factor))

    at, step = jnp.asarray(0.2), 1e-5
    difference = (value(at + step) - value(at - step)) / (2 * step)
    assert float(jax.grad(value)(at)) == pytest.approx(float(difference), rel=1e-7)


def test_residuals_of_several_points_together():
    basis = LandmarkSubspace(MARKS, 4).whiten(KERNEL, X).basis
    new = jax.random.normal(jax.random.key(5), (4, 3))
    rows, covariance = basis.joint_features(KERNEL, new)
    alone, variance = basis.features(KERNEL, new)
    np.testing.assert_allclose(rows, alone, atol=1e-14)
    np.testing.assert_allclose(jnp.diag(covariance), variance, atol=1e-13)
    np.testing.assert_allclose(rows @ rows.T + covariance, KERNEL.gram(new), atol=1e-13)


def test_batches_of_kernels():
    scales = jnp.array([0.7, 1.2, 2.0])

    def factor(lengthscale):
        return LandmarkSubspace(MARKS, 4).whiten(jsvm.kernels.RBF(lengthscale), X).factor

    together = jax.jit(jax.vmap(factor))(scales)
    for scale, one in zip(scales, together, strict=True):
        expected = factor(scale)
        np.testing.assert_allclose(one @ one.T, expected @ expected.T, atol=1e-12)


def test_no_matrix_of_all_pairs_of_examples():
    """With few landmarks memory and time grow like the number of examples."""
    x = jnp.zeros((400, 3))

    def value(kernel, x):
        factor = LandmarkSubspace(jnp.arange(20), 10).whiten(kernel, x).factor
        return jnp.sum(jnp.sin(factor)) + jnp.sum(residual_variance(kernel, x, factor))

    largest = largest_array(jax.grad(value, (0, 1)), KERNEL, x)
    assert largest <= 400 * 20


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("low", [jsvm.Nystrom(landmarks=9), jsvm.RandomFourier(7)])
def test_blocks_of_rows_give_the_same_factor_and_derivatives(monkeypatch, low, shards):
    monkeypatch.setattr(_blocks, "_BLOCK", 4)
    random = np.random.default_rng(3)
    x, mixture = jnp.asarray(random.normal(size=(30, 2))), jnp.asarray(random.normal(size=30))
    kernel = jsvm.kernels.RBF(jnp.array([1.0, 2.0]), 1.5) + jsvm.kernels.White(0.3)
    kept = low.subspace(jsvm.KernelMachine(kernel, jsvm.losses.Hinge()), x)

    def mixed(kernel, x, shards):
        # a gradient that has a gradient of its own
        return jnp.sum(jnp.sin(mixture @ kept.whiten(kernel, x, shards).factor))

    def first_and_second(shards):
        gradient = jax.grad(mixed, (0, 1))
        moved = jax.tree.map(jnp.ones_like, (kernel, x))
        return jax.jvp(lambda *both: gradient(*both, shards), (kernel, x), moved)

    np.testing.assert_allclose(
        kept.whiten(kernel, x, shards).factor, kept.whiten(kernel, x).factor, rtol=1e-12, atol=1e-13
    )
    for blocks, whole in zip(
        *map(jax.tree.leaves, map(first_and_second, (shards, None))), strict=True
    ):
        np.testing.assert_allclose(blocks, whole, rtol=1e-9, atol=1e-10)

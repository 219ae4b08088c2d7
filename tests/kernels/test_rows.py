"""One bad row changes nothing but itself: in kernels, in predictions, in batches."""

import functools

import jax
import numpy as np
import pytest
from grid import KERNELS

import jaxsvm as jsvm
from jaxsvm import kernels

LISTS = 12  # training points, and seven new ones with four bad ones among them
STATIONARY = [name for name in KERNELS if name.startswith(("RBF", "Matern", "Rational", "ARD"))]


def _points(d, dtype, seed=0):
    """Training points far from the origin, and new ones of which four are bad."""
    rng = np.random.default_rng([seed, d])
    x = 20 + rng.normal(size=(LISTS, d))
    points = 20 + rng.normal(size=(7, d))
    huge = 1e150 if dtype == "float64" else 1e17
    for row, value in ((1, huge), (3, np.nan), (4, np.inf), (5, -np.inf)):
        points[row, 0] = value
    return x.astype(dtype), points.astype(dtype)


@functools.cache
def _compiled(name, dtype):
    @jax.jit
    def values(kernel, points, x):
        alone = jax.lax.map(lambda row: kernel.cross(row[None], x)[0], points)
        return kernel.cross(points, x), alone

    return values


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("d", [1, 4, 5, 60])
def test_a_row_of_a_matrix_depends_on_its_point_alone(name, d, dtype):
    x, points = _points(d, dtype)
    kernel = KERNELS[name](d)
    together, alone = map(np.asarray, _compiled(name, dtype)(kernel, points, x))
    good = [0, 2, 6]
    size = 1 + 2 * np.max(np.sum((x - np.median(x, axis=0)) ** 2, axis=1)) / 0.25
    np.testing.assert_allclose(
        together[good], alone[good], rtol=64 * size * np.finfo(dtype).eps, atol=1e-30
    )
    assert np.all(np.isfinite(together[good]))
    if name not in ("Transform", "Constant", "White"):  # tanh maps infinity to one
        assert np.all(np.isnan(together[3])) and np.all(np.isnan(alone[3]))
    if name in STATIONARY:  # far from everything
        far = together[[1, 4, 5]]
        assert np.all((far >= 0) & (far < 1e-10))


@pytest.mark.parametrize("name", ["RBF", "Matern52", "RBF, ARD"])
@pytest.mark.parametrize("d", [3, 7])
def test_outliers_among_the_training_points_leave_other_covariances_alone(name, d, dtype):
    x, _ = _points(d, dtype)
    kernel = KERNELS[name](d)
    expected = np.asarray(kernel.gram(x))
    for value in (1e9, np.finfo(dtype).max, np.inf):
        outlying = x.copy()
        outlying[4, 1] = value
        values = np.asarray(jax.jit(lambda k, x: k.gram(x))(kernel, outlying))
        others = np.arange(LISTS) != 4
        np.testing.assert_allclose(
            values[others][:, others],
            expected[others][:, others],
            rtol=1e4 * np.finfo(dtype).eps,
        )
        assert np.all(values[4, others] < 1e-10) and values[4, 4] == expected[4, 4]


@pytest.mark.parametrize("d", [4, 5])
def test_members_of_a_batch_of_gram_matrices_are_independent(d, dtype):
    x, _ = _points(d, dtype)
    batch = np.stack([x, x, x])
    batch[0, 2, 0], batch[1, 3, 0] = np.nan, 1e30
    kernel = kernels.RBF(1.3)
    grams = np.asarray(jax.vmap(kernel.gram)(batch))
    np.testing.assert_array_equal(grams[2], jax.vmap(kernel.gram)(batch[2:])[0])
    bad = np.isnan(grams[0])
    assert np.all(bad[2]) and np.all(bad[:, 2]) and bad.sum() == 2 * LISTS - 1


@pytest.fixture(scope="module", params=[4, 5])
def machine(request):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, request.param))
    y = np.where(x[:, 0] * x[:, 1] > 0, 1.0, -1.0)
    model = jsvm.KernelMachine(kernels.RBF(1.5), jsvm.losses.Hinge(10.0))
    points = rng.normal(size=(20, request.param))
    return model, x, y, points


def test_a_far_point_changes_no_other_prediction(machine):
    model, x, y, points = machine
    fitted = jsvm.fit(model, x, y)
    bad = np.zeros((1, x.shape[1]))
    bad[0, 2] = 1e9
    more = np.vstack([points, bad])
    np.testing.assert_allclose(fitted.decision(more)[:20], fitted.decision(points), atol=1e-12)
    assert float(fitted.decision(more)[20]) == pytest.approx(0, abs=1e-12)


def test_nan_stays_in_its_row_of_every_prediction(machine):
    model, x, y, points = machine
    fitted = jsvm.fit(model, x, y)
    posterior = jsvm.laplace(fitted)
    bad = points.copy()
    bad[7, 1] = np.nan
    others = np.arange(20) != 7

    def predictions(points):
        latent = posterior.latent(points)
        return fitted.decision(points), fitted.predict(points), *jax.tree.leaves(latent)

    for value, expected in zip(
        jax.jit(predictions)(bad), jax.jit(predictions)(points), strict=True
    ):
        assert np.isnan(value[7])
        np.testing.assert_allclose(value[others], expected[others], atol=1e-11)


def test_bad_data_fail_in_their_member_of_a_batch_alone(machine):
    model, x, y, _ = machine
    count = 9
    xs, ys, weights = (np.stack([a] * count) for a in (x, y, np.ones(len(y))))
    xs[1, 3, 0], xs[2, 3, 0] = np.nan, np.inf
    ys[3, 5], ys[4, 5] = np.nan, 0.5
    weights[5, 2], weights[6, 2], weights[7] = -1.0, np.nan, 0.0

    def result(x, y, w):
        return jsvm.fit(model, x, y, weights=w, throw=False).result

    codes = jax.vmap(result)(xs, ys, weights)
    R = jsvm.RESULTS
    expected = [R.successful, *[R.nonfinite] * 3, R.invalid_data, R.invalid_data, R.nonfinite]
    assert codes.tolist() == [*expected, R.invalid_data, R.successful]

"""Regression of odd targets: far from zero, all the same, in single precision; limits of the losses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import kernels, losses, regression
from jaxsvm.regression._adaptation import center_and_scale

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 1))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=40)
NEW = np.linspace(-1.5, 1.5, 9)[:, None]


@pytest.fixture(scope="module")
def centered():
    return regression.adapt(X, Y, progress=False)


def noise_of(selection) -> Any:
    return selection.model.loss


@pytest.mark.parametrize("shift", [1e3, -1e4])
def test_targets_far_from_zero_give_the_shifted_answer(centered, shift):
    adapted = regression.adapt(X, Y + shift, progress=False)
    difference = adapted.fit().predict(NEW) - shift - centered.fit().predict(NEW)
    assert float(jnp.max(jnp.abs(difference))) < 0.02  # noise: 0.1
    found, wanted = (noise_of(each).noise_variance for each in (adapted, centered))
    np.testing.assert_allclose(found, wanted, rtol=0.05)


def test_targets_so_far_from_zero_that_rounding_is_noise_are_refused():
    for shift, noise in ((1e5, "0.22%"), (1e7, "22%")):
        with pytest.raises(ValueError, match=rf"noise of {noise} .* center them \(`y - y.mean"):
            regression.adapt(X, Y + shift, progress=False)
    with jax.enable_x64(False):
        y = np.asarray(Y, np.float32)
        with pytest.raises(ValueError, match=r"rounding in float32 acts like noise of 2\.5%"):
            regression.machine(X, y + 50)
        regression.machine(X, y + 10)


def test_single_precision(centered):
    with jax.enable_x64(False):  # warnings are errors: none of lost digits
        x, y = X.astype(np.float32), Y.astype(np.float32)
        adapted = regression.adapt(x, y, progress=False)
        predicted = adapted.fit().predict(NEW.astype(np.float32))
        assert predicted.dtype == jnp.float32
    np.testing.assert_allclose(predicted, centered.fit().predict(NEW), atol=0.05)


@pytest.mark.parametrize("examples, value", [(3, 0.1), (37, 1 / 3), (40, 2.0)])
def test_targets_that_are_the_same_but_for_rounding_of_their_mean(examples, value):
    with pytest.raises(ValueError, match="all targets are the same"):
        regression.machine(X[:examples], np.full(examples, value))


def test_center_and_scale():
    center, scale = center_and_scale(np.array([1.0, 4.0, 9.0]), np.array([2.0, 1.0, 0.0]))
    np.testing.assert_allclose([center, scale], [2.0, 2**0.5])
    with pytest.raises(ValueError, match="too large"):
        center_and_scale(np.array([1e200, -1e200]), np.ones(2))


def test_beta_of_a_given_loss_is_frozen_too():
    given = losses.SoftInsensitive(1.0, 0.05, 0.3)
    assert set(jsvm.frozen(regression.machine(X, Y, loss=given))) == {
        "kernel.left.variance",
        "loss.beta",
    }
    free = jsvm.frozen(regression.machine(X, Y, loss=losses.Huber(1.0, 0.05)))
    assert set(free) == {"kernel.left.variance"}
    assert not jsvm.frozen(regression.machine(X, Y, loss=losses.Quadratic()))


LIMITS = {
    "small beta": (losses.SoftInsensitive(8.0, 0.09, 1e-6), losses.EpsilonInsensitive(8.0, 0.09)),
    "beta one": (losses.SoftInsensitive(8.0, 0.09, 1 - 1e-9), losses.Huber(8.0, 0.09)),
    "small epsilon": (losses.SoftInsensitive(8.0, 1e-8, 0.3), losses.Laplacian(8.0)),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_of_the_soft_insensitive_loss_are_fits_of_the_others(limit):
    kernel = kernels.RBF(0.7, 0.5) + kernels.Constant(1.0)
    soft, other = (jsvm.fit(jsvm.KernelMachine(kernel, loss), X, Y) for loss in LIMITS[limit])
    np.testing.assert_allclose(soft.predict(NEW), other.predict(NEW), atol=1e-6)
    np.testing.assert_allclose(soft.dual, other.dual, atol=1e-4)


@pytest.mark.parametrize(
    "factor, shift", [(1e-300, 0.0), (1e-200, 1e-195), (2.0, 1e15), (1e150, 0.0)]
)
def test_center_and_scale_of_numbers_of_any_size(factor, shift):
    values = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])
    center, scale = center_and_scale(factor * values + shift, np.ones(5))
    np.testing.assert_allclose(scale, 2 * factor)
    np.testing.assert_allclose(center, shift, atol=1e-15 * factor)


def test_targets_that_differ_by_rounding_or_are_out_of_range():
    for values in (0.3 + 5e-17 * np.arange(9), np.where(np.arange(9) > 3, 1e15, 1e15 + 0.125)):
        with pytest.raises(ValueError, match="differ only by rounding errors"):
            center_and_scale(values, np.ones(9))
    for factor, size in ((1e-300, "small"), (1e-160, "small")):
        with pytest.raises(ValueError, match=f"targets are too {size} for float64.*unit"):
            regression.machine(X, factor * Y)
    with jax.enable_x64(False):
        with pytest.raises(ValueError, match="targets are too small for float32"):
            regression.machine(X, 1e-30 * Y)
        for factor in (1e-60, 1e60):
            with pytest.raises(ValueError, match=r"`y` has numbers of size .* float32 cannot hold"):
                regression.machine(X, factor * Y)
            with pytest.raises(ValueError, match=r"`x` has numbers of size .* float32 cannot hold"):
                regression.machine(factor * X, Y)

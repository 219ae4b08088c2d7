"""Data sets of the papers whose files need preparation."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference_datasets import arm, check_gaussian
from scripts import module_of

from jaxsvm import datasets

sets = module_of("papers/sets.py")
needs_files = pytest.mark.skipif(
    not os.environ.get("JAXSVM_DATA"),
    reason="JAXSVM_DATA is not set to a folder with the benchmark files",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    np.savez(tmp_path / "santafe_laser_a.npz", series=np.arange(30), n_train=np.int16(20))
    np.savez(tmp_path / "ida_toy.npz", X=np.eye(3), published=np.array([1, 0, 0], np.int8))
    np.savez(tmp_path / "own.npz", X=np.eye(3))
    np.savez(tmp_path / "abalone.npz", X=np.eye(3), y=np.arange(3), sex=np.array(["F", "M", "x"]))
    monkeypatch.setenv("JAXSVM_DATA", str(tmp_path))


def check_floats(*arrays):
    for array in arrays:
        assert isinstance(array, jax.Array)
        assert array.dtype == jnp.result_type(float)
        assert np.isfinite(array).all()


def test_laser_embedding(folder):
    x, y, x_test, y_test = sets.laser()
    assert x.shape == (12, 8) and x_test.shape == (10, 8)
    np.testing.assert_array_equal(x[0], np.arange(8))
    np.testing.assert_array_equal(np.append(y, y_test), np.arange(8, 30))
    split = sets.laser(3)
    np.testing.assert_array_equal(split.y_train, np.arange(3, 20))
    np.testing.assert_array_equal(split.y_test, np.arange(20, 30))
    np.testing.assert_array_equal(split.x_test[0], [17, 18, 19])
    for lags in (0, 20):
        with pytest.raises(ValueError, match=f"`lags` must be from 1 to 19, but is {lags}"):
            sets.laser(lags)


def test_published_splits_and_errors(folder):
    assert sets.published("toy").tolist() == [True, False, False]
    assert sets.published("toy").dtype == bool
    with pytest.raises(ValueError, match="'own' does not say which of its splits are published"):
        sets.published("own")
    with pytest.raises(ValueError, match="must be F, I or M"):
        sets.abalone()


@needs_files
def test_crabs():
    x, y = sets.crabs()
    check_floats(x, y)
    assert x.shape == (200, 5) and y.shape == (200,)
    assert set(np.unique(y)) == {-1.0, 1.0}
    assert np.sum(np.asarray(y) == 1) == 100


@needs_files
def test_abalone_sex_codes():
    x, y = sets.abalone()
    check_floats(x, y)
    assert x.shape == (4177, 8) and y.shape == (4177,)
    codes, counts = np.unique(x[:, 0], return_counts=True)
    assert dict(zip(codes.tolist(), counts.tolist(), strict=True)) == {
        -1.0: 1307,  # F
        0.0: 1342,  # I
        1.0: 1528,  # M
    }
    assert (float(y.min()), float(y.max())) == (1.0, 29.0)


@needs_files
def test_robot_arm_file():
    fields = datasets.arrays("robot_arm")
    x, y = fields["X"], fields["Y"]
    assert x.shape == y.shape == (600, 2)
    check_gaussian(y - arm(x), 0.0, 0.05**2)
    split = sets.robot_arm()
    check_floats(*split)
    np.testing.assert_array_equal(split.x_train, x[:200])
    np.testing.assert_array_equal(split.y_train, y[:200])
    np.testing.assert_array_equal(split.x_test, x[200:400])
    np.testing.assert_array_equal(split.y_test, y[200:400])


@needs_files
def test_laser_file():
    split = sets.laser()
    check_floats(*split)
    np.testing.assert_array_equal(split.x_train[0, :5], [86, 141, 95, 41, 22])
    assert split.x_train.shape == (1000 - 8, 8)
    assert split.x_test.shape == (9093, 8)
    np.testing.assert_array_equal(
        split.x_test[0], np.append(split.x_train[-1, 1:], split.y_train[-1])
    )
    series = datasets.arrays("santafe_laser_a")["series"]
    np.testing.assert_array_equal(np.append(split.y_train, split.y_test), series[8:])

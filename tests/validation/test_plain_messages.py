"""Messages show values as the user would write them, not as NumPy prints its scalars."""

import jax
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import calibration, datasets, optimizers, regression

X = np.random.default_rng(0).normal(size=(12, 2))


def calls():
    yield lambda: calibration.reliability(np.ones(3), np.full(3, 0.5), bins=np.int64(0)), "is 0$"
    yield lambda: datasets.robot_arm(10, key=jax.random.key(0), inputs=np.int64(3)), "is 3$"
    yield lambda: optimizers.lbfgs(window=np.int64(0)), "is 0$"
    yield lambda: jsvm.kernels.Polynomial(np.float64(1.5)), "is 1.5$"
    yield lambda: regression.adapt(X, X[:, 0], restarts=np.int64(9)), "is 9$"


@pytest.mark.parametrize("call, words", list(calls()))
def test_scalars_print_as_plain_values(call, words):
    with pytest.raises(ValueError, match=words):
        call()

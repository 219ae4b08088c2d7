"""Masked entries are refused wherever data come in, so that no mask is lost."""

import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import calibration

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(12, 2))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)
MODEL = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), jsvm.losses.Hinge(1.0))


def masked(array):
    mask = np.zeros(array.shape, bool)
    mask.flat[3] = True
    return np.ma.array(array, mask=mask)


def uses():
    """Functions of the data, and the name of the argument in their error messages."""
    yield "x", lambda: jsvm.fit(MODEL, masked(X), Y)
    yield "x", lambda: jsvm.fit(MODEL, list(masked(X)), Y)
    yield "y", lambda: jsvm.fit(MODEL, X, masked(Y))
    yield "weights", lambda: jsvm.fit(MODEL, X, Y, weights=masked(np.ones(12)))
    yield "x1", lambda: MODEL.kernel.cross(masked(X), X)
    yield "lengthscale", lambda: jsvm.kernels.RBF(masked(np.ones(5)))
    yield "p", lambda: calibration.log_loss(Y, masked(np.full(12, 0.5)))
    yield "y", lambda: calibration.log_loss(masked(Y), np.full(12, 0.5))
    yield "x", lambda: jsvm.select(MODEL, masked(X), Y, jsvm.criteria.Span())


@pytest.mark.parametrize("name, use", list(uses()))
def test_masked_entries_are_refused(name, use):
    with pytest.raises(ValueError, match=rf"`{name}` has 1 masked entry: remove or impute"):
        use()


@pytest.mark.parametrize("kind", ["BayesianSVC", "BayesianSVR"])
def test_estimators_refuse_masked_entries(kind):
    sklearn = pytest.importorskip("jaxsvm.sklearn")
    estimator = getattr(sklearn, kind)()
    with pytest.raises(ValueError, match="`X` has 1 masked entry"):
        estimator.fit(masked(X), Y)
    with pytest.raises(ValueError, match="`y` has 1 masked entry"):
        estimator.fit(X, masked(Y))
    with pytest.raises(ValueError, match="`sample_weight` has 1 masked entry"):
        estimator.fit(X, Y, masked(np.ones(12)))
    estimator.n_features_in_ = 2
    with pytest.raises(ValueError, match="`X` has 1 masked entry"):
        estimator._validate_points(masked(X))


def test_a_masked_array_without_masked_entries_is_an_array():
    fit = jsvm.fit(MODEL, np.ma.array(X), np.ma.array(Y, mask=np.zeros(12, bool)))
    np.testing.assert_array_equal(fit.dual, jsvm.fit(MODEL, X, Y).dual)

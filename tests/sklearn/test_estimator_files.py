"""Inputs of any scale, and estimators in files that were tampered with."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from jaxsvm import FileError
from jaxsvm.persistence import load_as, save_as
from jaxsvm.sklearn import LSSVC, BayesianSVR, load, save
from jaxsvm.sklearn._data import scaling

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(30, 2))
Y = np.where(X[:, 0] > 0, "good", "bad")
TARGET = np.sin(X[:, 0]) + 0.1 * RANDOM.normal(size=30)


@pytest.fixture(scope="module")
def classifier():
    return LSSVC(ard=False).fit(X, Y)


@pytest.fixture(scope="module")
def regressor():
    return BayesianSVR(ard=False, restarts=1).fit(X, TARGET)


@pytest.mark.parametrize("factor, shift", [(1e-200, 0.0), (1e-310, 0.0), (1e140, 0.0), (2.0, 1e15)])
def test_inputs_of_any_size_are_scaled(factor, shift):
    values = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])[:, None]
    found = scaling(factor * values + shift, np.ones(5), True)
    np.testing.assert_allclose(found(factor * values + shift), values / 2, rtol=1e-12)


def test_constant_inputs_have_a_scale_of_one():
    found = scaling(np.full((7, 2), [0.1, -1e300]), np.arange(1.0, 8.0), True)
    np.testing.assert_array_equal(found.scale, 1)
    np.testing.assert_array_equal(found(np.full((7, 2), [0.1, -1e300])), 0)
    rounding = np.where(np.arange(7) > 3, 1.0, 1 + 2e-16)[:, None]
    with pytest.warns(UserWarning, match="input 0 varies only by rounding error"):
        assert scaling(rounding, np.ones(7), True).scale == 1


def test_predictions_do_not_depend_on_units(classifier, regressor):
    other = LSSVC(ard=False).fit(1e-200 * X, Y)
    np.testing.assert_allclose(
        other.predict_proba(1e-200 * X), classifier.predict_proba(X), rtol=1e-6
    )
    other = BayesianSVR(ard=False, restarts=1).fit(X, 1e-300 * TARGET)
    np.testing.assert_allclose(1e300 * other.predict(X), regressor.predict(X), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "labels, shown", [(["1"] * 30, "'1'"), (np.zeros(30, int), "0"), (Y == "x", "False")]
)
def test_labels_print_as_plain_values(labels, shown):
    with pytest.raises(ValueError, match=rf"one class only: {shown} \(30 times\)"):
        LSSVC().fit(X, np.asarray(labels))
    with pytest.raises(ValueError, match=r"`tol` must be positive and finite, but is -1\.0$"):
        LSSVC(tol=np.float64(-1)).fit(X, Y)
    weights = np.where(Y == "good", 1.0, 0.0)
    with pytest.raises(ValueError, match="examples of class 'bad' have"):
        LSSVC().fit(X, Y, weights)
    with pytest.raises(ValueError, match="`class_weight` has 'ugly'"):
        LSSVC(class_weight={np.str_("ugly"): 1.0}).fit(X, Y)


def changes(content):
    """Names and values of attributes that a fitted classifier must not have."""
    fit = content["state"]["machines_"][0]
    yield "classes_", np.array(["bad"])
    yield "classes_", np.array(["good", "bad"])
    yield "classes_", np.array([["bad", "good"]])
    yield "classes_", ["bad", "good"]
    yield "machines_", []
    yield "machines_", [fit, fit]
    yield "machines_", [1]
    yield "machines_", fit
    for name, value in (("predictive", None), ("sigmoid", None), ("search", 1), ("score", "x")):
        yield "machines_", [{**fit, "fields": {**fit["fields"], name: value}}]
    yield "scaling_", None
    yield "scaling_", {"part": "Scaling", "fields": {"center": np.zeros(3), "scale": np.ones(3)}}
    yield "scaling_", {"part": "Scaling", "fields": {"center": np.zeros(2), "scale": "x"}}
    yield "scaling_", {"part": [], "fields": {}}
    yield "scaling_", {"part": "Scaling", "fields": 3}
    yield "n_features_in_", 3
    yield "n_features_in_", 0
    yield "n_features_in_", True
    yield "n_iter_", "many"
    yield "feature_names_in_", np.array(["a"])
    yield "feature_names_in_", {"text": [1, 2]}
    yield "predict", 1
    yield "_validate_points", None


def test_estimators_whose_parts_do_not_belong_together(classifier, tmp_path):
    path = tmp_path / "estimator"
    save(path, classifier)
    content = load_as("estimator", path)
    np.testing.assert_array_equal(load(path).predict(X), classifier.predict(X))
    for name, value in changes(content):
        save_as("estimator", path, {**content, "state": {**content["state"], name: value}})
        with pytest.raises(FileError, match=r"inconsistent|unknown part|not text"):
            load(path)
    machine = content["state"]["machines_"][0]
    for name, value in (
        ("relevance", [["a", {}]]), ("relevance", np.zeros(3)), ("relevance", np.array([1.0, np.nan])),
        ("criterion", "x"), ("criterion", None), ("evidence", "x"), ("evidence", [1.0]),
    ):  # fmt: skip
        forged = {**machine, "fields": {**machine["fields"], name: value}}
        save_as(
            "estimator", path, {**content, "state": {**content["state"], "machines_": [forged]}}
        )
        with pytest.raises(FileError, match=f"{name}.* of one of its machines"):
            load(path)
    for name in ("classes_", "machines_", "scaling_", "n_features_in_", "tol"):
        state = {key: value for key, value in content["state"].items() if key != name}
        save_as("estimator", path, {**content, "state": state})
        with pytest.raises(FileError, match=r"is missing|lacks a part"):
            load(path)
    for thing in (1, [], {}, {"estimator": 1, "state": {}}, {"estimator": "LSSVC", "state": 1}):
        save_as("estimator", path, thing)
        with pytest.raises(FileError):
            load(path)


def test_regressions_whose_parts_do_not_belong_together(regressor, tmp_path):
    path = tmp_path / "estimator"
    save(path, regressor)
    content = load_as("estimator", path)
    np.testing.assert_array_equal(load(path).predict(X), regressor.predict(X))
    part = content["state"]["regression_"]
    swapped = {**part, "fields": {**part["fields"], "posterior": part["fields"]["search"]}}
    for name, value in (
        ("target_scale_", -1.0), ("target_scale_", np.nan), ("target_center_", np.inf),
        ("target_center_", "0"), ("regression_", swapped), ("regression_", 1), ("n_features_in_", 3),
        *(("regression_", {**part, "fields": {**part["fields"], field: forged}})
          for field in ("relevance", "noise_deviation", "score") for forged in ("x", [1.0])),
    ):  # fmt: skip
        save_as("estimator", path, {**content, "state": {**content["state"], name: value}})
        with pytest.raises(FileError, match="its BayesianSVR is inconsistent"):
            load(path)


def test_what_cannot_be_read_is_not_saved(tmp_path):
    broken = LSSVC()
    broken.predict = 3
    with pytest.raises(ValueError, match="`predict` would hide an attribute of its class"):
        save(tmp_path / "estimator", broken)
    assert list(tmp_path.iterdir()) == []

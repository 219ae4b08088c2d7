"""scikit-learn estimators: labels, weights, frames, probabilities, files; and scikit-learn's own checks."""

import pickle
import warnings

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interruptions import watch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import jaxsvm as jsvm
from jaxsvm.sklearn import LSSVC, BayesianSVC, BayesianSVR, MeanFieldGPC, load, save
from jaxsvm.sklearn._data import padded, rounded_up, scaling
from jaxsvm.sklearn._sigmoid import fit_sigmoid

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 3)) * [1, 10, 100] + [5, 0, -3]
F = (X[:, 0] - 5) + 0.02 * X[:, 1]
Y = np.where(F + 0.5 * RANDOM.normal(size=60) > 0, "good", "bad")
TARGET = 1000 + 50 * (np.sin(F) + 0.1 * RANDOM.normal(size=60))
QUICK = {"ard": False}

# Why a check may fail. Leave-one-out removes a row of weight two completely, but only one of two equal rows.
# So hyperparameters chosen by leave-one-out should differ. Those chosen by the evidence should not, so
# BayesianSVR must pass.
_EQUIVALENCE = "check_sample_weight_equivalence_on_dense_data"
LEAVES_OUT = {
    "LSSVC": {_EQUIVALENCE: "the leave-one-out squared error of weights is not that of copies"},
    "BayesianSVC": {_EQUIVALENCE: "the span estimate, of leave-one-out, is not that of copies"},
    "MeanFieldGPC": {_EQUIVALENCE: "the leave-one-out log loss of weights is not that of copies"},
    "BayesianSVR": {},
}


@parametrize_with_checks(
    [LSSVC(ard=False), BayesianSVC(ard=False), BayesianSVR(ard=False, restarts=1), MeanFieldGPC(ard=False)],
    expected_failed_checks=lambda estimator: LEAVES_OUT[type(estimator).__name__],
)  # fmt: skip
def test_the_checks_of_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.fixture(scope="module")
def classifier():
    return LSSVC(**QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def regressor():
    return BayesianSVR(ard=False, restarts=1).fit(X, TARGET)


@pytest.mark.parametrize("kind", [LSSVC, BayesianSVC, MeanFieldGPC])
def test_probabilities_agree_with_labels_and_odds(kind):
    found = kind(**QUICK).fit(X, Y)
    p, odds = found.predict_proba(X), found.decision_function(X)
    assert list(found.classes_) == ["bad", "good"]
    assert found.score(X, Y) > 0.8
    np.testing.assert_array_equal(found.predict(X), found.classes_[np.argmax(p, axis=1)])
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(np.log(p[:, 1] / p[:, 0]), odds, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.exp(found.predict_log_proba(X)), p, rtol=1e-12)
    assert found.n_iter_ >= 1 and np.isfinite(found.criterion_)
    assert found.calibration_ == ("posterior" if kind is MeanFieldGPC else "sigmoid")
    assert found.history_.value.shape[1] >= found.n_iter_
    if kind is BayesianSVC:
        model = found.machines_[0].predictive
        with jax.enable_x64(True):
            value = jsvm.criteria.LaplaceEvidence()(
                model.model, model.x[:60], model.y[:60], weights=model.weights[:60]
            )
        np.testing.assert_allclose(found.evidence_, -value, rtol=1e-8)
    else:
        assert not hasattr(found, "evidence_")


def test_relevance_finds_the_input_that_matters():
    x = RANDOM.normal(size=(60, 3))
    y = np.sign(x[:, 1] ** 2 - 0.6 + 0.1 * RANDOM.normal(size=60))
    found = LSSVC(ard=True).fit(x, y)
    assert found.relevance_[1] == 1 and found.relevance_[[0, 2]].max() < 0.3
    np.testing.assert_array_equal(LSSVC(**QUICK).fit(X, Y).relevance_, np.ones(3))


def test_sigmoid_is_the_maximum_of_the_likelihood():
    from scipy.optimize import minimize

    f = RANDOM.normal(size=200) * 3 + 1
    y = np.where(RANDOM.random(200) < 1 / (1 + np.exp(-0.7 * f - 0.4)), 1.0, -1.0)
    weights = RANDOM.integers(1, 4, 200).astype(float)
    positive, negative = weights[y > 0].sum(), weights[y < 0].sum()
    targets = np.where(y > 0, (positive + 1) / (positive + 2), 1 / (negative + 2))

    def minus_log_likelihood(c):
        odds = c[0] * f + c[1]
        return weights @ (np.logaddexp(0, odds) - targets * odds)

    wanted = minimize(minus_log_likelihood, [0.0, 0.0], method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(fit_sigmoid(f, y, weights), wanted, rtol=1e-5)
    backwards = fit_sigmoid(-f, y, weights)
    assert backwards.slope > 0  # never turned around


def test_padding_changes_nothing():
    x, y, weights = padded(X, np.where(Y == "good", 1.0, -1.0), np.ones(60))
    assert len(y) == rounded_up(60) == 64 and rounded_up(1000) == 1024 and rounded_up(1025) == 1152
    standardized = scaling(x, weights, True)
    np.testing.assert_allclose(standardized(X).mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(standardized(X).std(axis=0), 1)
    machine = jsvm.KernelMachine(jsvm.kernels.RBF(2.0), jsvm.losses.LeastSquares(1.0), offset=True)
    press = jsvm.criteria.PRESS()
    x, points = standardized(x), standardized(X)
    np.testing.assert_allclose(
        press(machine, x, y, weights=weights), press(machine, points, y[:60]), rtol=1e-10
    )


def test_three_classes_are_coupled():
    x, y = load_iris(return_X_y=True)
    found = LSSVC(**QUICK).fit(x[::2], y[::2])
    p = found.predict_proba(x[1::2])
    assert found.score(x[1::2], y[1::2]) > 0.9 and len(found.model_) == 3
    odds = found.decision_function(x[1::2])
    np.testing.assert_allclose(p, np.exp(odds) / np.exp(odds).sum(axis=1)[:, None], rtol=1e-10)
    np.testing.assert_array_equal(np.argmax(p, axis=1), found.predict(x[1::2]))
    assert -np.mean(np.log(p[np.arange(75), y[1::2]])) < 0.2


def test_weights_count(classifier):
    none = clone(classifier).fit(X, Y, sample_weight=np.ones(60))
    np.testing.assert_allclose(none.predict_proba(X), classifier.predict_proba(X), rtol=1e-10)
    half = np.arange(60) < 40
    weighted = clone(classifier).fit(X, Y, sample_weight=half.astype(float))
    part = clone(classifier).fit(X[half], Y[half])
    np.testing.assert_allclose(weighted.predict_proba(X), part.predict_proba(X), rtol=1e-6)
    rare = np.concatenate([np.flatnonzero(Y == "bad")[:5], np.flatnonzero(Y == "good")])
    plain = clone(classifier).fit(X[rare], Y[rare]).predict_proba(X)[:, 0]
    balanced = LSSVC(class_weight="balanced", **QUICK).fit(X[rare], Y[rare])
    assert balanced.predict_proba(X)[:, 0].mean() > plain.mean()
    for wrong, words in (
        ({"ugly": 2.0}, "not a class of"),
        ({"good": -2}, "`class_weight` of 'good' must be a positive number, but is -2"),
        ({"bad": np.nan}, "`class_weight` of 'bad' must be a positive number, but is nan"),
        ({"bad": "much"}, "must be a positive number, but is 'much'"),
        ("even", '`class_weight` must be None, "balanced" or a dictionary'),
    ):
        with pytest.raises(ValueError, match=words):
            LSSVC(class_weight=wrong, **QUICK).fit(X, Y)


def test_weights_of_an_evidence_are_copies(regressor):
    counts = np.arange(60) % 3
    weighted = clone(regressor).fit(X, TARGET, sample_weight=counts)
    copies = clone(regressor).fit(X.repeat(counts, axis=0), TARGET.repeat(counts))
    np.testing.assert_allclose(weighted.evidence_, copies.evidence_, rtol=1e-7)
    np.testing.assert_allclose(weighted.predict(X), copies.predict(X), rtol=1e-5)


@pytest.mark.parametrize("case", ["rows twice", "a line"])
def test_targets_without_noise_are_fitted(case, regressor):
    x = np.linspace(0, 1, 60)[:, None] * [1, 1, 1]
    x, y = (x, 3 * x[:, 0]) if case == "a line" else (X.repeat(2, axis=0), TARGET.repeat(2))
    found = clone(regressor).fit(x, y)
    np.testing.assert_allclose(found.predict(x), y, atol=0.01 * y.std())
    # the evidence has no end as the noise vanishes: it must be kept from vanishing
    assert found.noise_std_ > 5e-5 * y.std()


def test_a_regression_with_another_kernel(regressor):
    found = clone(regressor).set_params(kernel="matern52").fit(X, TARGET)
    assert isinstance(found.model_.kernel.left, jsvm.kernels.Matern52)
    assert jsvm.frozen(found.model_) == jsvm.frozen(regressor.model_)
    assert found.score(X, TARGET) > 0.9
    with pytest.raises(ValueError, match="`kernel` must be one of rbf"):
        BayesianSVR(kernel="foo").fit(X, TARGET)


def test_a_user_defined_kernel():
    kernel = 2.0 * jsvm.kernels.Matern32(1.5) + jsvm.kernels.Linear()
    found = LSSVC(kernel=kernel).fit(X, Y)
    assert found.score(X, Y) > 0.8
    assert found.relevance_.shape == (3,)  # its one lengthscale is that of all inputs
    assert clone(found).get_params()["kernel"] is not kernel


def test_pipelines_and_grid_search():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LSSVC(**QUICK)), {"lssvc__prior": [True, False]}, cv=2
    ).fit(X, Y)
    assert search.best_score_ > 0.7


def test_frames_have_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    found = LSSVC(**QUICK).fit(frame, pandas.Series(Y))
    assert list(found.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(found.predict(frame), LSSVC(**QUICK).fit(X, Y).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame[["c", "b", "a"]])
    polars = pytest.importorskip("polars")
    other = polars.DataFrame(X, schema=["a", "b", "c"])
    np.testing.assert_array_equal(found.predict(other), found.predict(frame))


@pytest.mark.parametrize("double", [False, True])
def test_files_and_pickles_predict_bit_for_bit_the_same(double, classifier, regressor, tmp_path):
    with jax.enable_x64(double):
        for found in (classifier, regressor):
            save(tmp_path / "estimator", found)
            for copy in (load(tmp_path / "estimator"), pickle.loads(pickle.dumps(found))):
                np.testing.assert_array_equal(copy.predict(X), found.predict(X))
                if found is classifier:
                    np.testing.assert_array_equal(copy.predict_proba(X), found.predict_proba(X))
                    assert copy.predict(X).dtype.kind == "U"
                assert copy.get_params() == found.get_params()
        with pytest.raises(
            jsvm.FileError, match=r"an estimator: read it with `jaxsvm.sklearn.load`"
        ):
            jsvm.load(tmp_path / "estimator")
    jsvm.save(tmp_path / "kernel", jsvm.kernels.RBF())
    with pytest.raises(jsvm.persistence.FileError, match="does not hold an estimator"):
        load(tmp_path / "kernel")
    with pytest.raises(TypeError, match="must be one of `jaxsvm"):
        save(tmp_path / "other", StandardScaler())


def test_regression_has_error_bars(regressor):
    mean, deviation = regressor.predict(X, return_std=True)
    latent, narrow = regressor.predict_function(X)
    low, high = regressor.predict_interval(X, 0.9)
    np.testing.assert_allclose(mean, latent, rtol=1e-10)
    np.testing.assert_allclose(deviation**2, narrow**2 + regressor.noise_std_**2, rtol=1e-8)
    assert np.all((low < mean) & (mean < high))
    assert 0.75 < np.mean((low <= TARGET) & (high >= TARGET)) <= 1
    assert regressor.score(X, TARGET) > 0.9
    assert 2 < regressor.noise_std_ < 10  # it is 5
    # the evidence of targets is that of standardized ones over the scale
    inner = regressor.posterior_.fit
    with jax.enable_x64(True):
        value = jsvm.criteria.LaplaceEvidence()(
            inner.model, inner.x, inner.y, weights=inner.weights
        )
    np.testing.assert_allclose(
        regressor.evidence_, -value - 60 * np.log(regressor.target_scale_), rtol=1e-8
    )


def test_regression_does_not_depend_on_units(regressor):
    other = BayesianSVR(ard=False, restarts=1).fit(X, 1e6 + 1e-3 * TARGET)
    np.testing.assert_allclose(
        (other.predict(X) - 1e6) * 1e3, regressor.predict(X), rtol=1e-4, atol=0.05
    )


def test_an_interrupted_fit_continues(tmp_path, monkeypatch):
    folder = tmp_path / "searches"
    saved = LSSVC(**QUICK, checkpoint=folder, random_state=0)
    whole, begun = watch(monkeypatch, lambda: LSSVC(**QUICK, random_state=0).fit(X, Y))
    with pytest.raises(KeyboardInterrupt):
        watch(monkeypatch, lambda: saved.fit(X, Y), 1)
    assert [path.name for path in folder.iterdir()] == ["class-0.jaxsvm"]
    again, after = watch(monkeypatch, lambda: clone(saved).set_params(seconds=1e6).fit(X, Y))
    assert after == begun[1:] != []
    np.testing.assert_array_equal(again.predict_proba(X), whole.predict_proba(X))
    with pytest.raises(ValueError, match="belongs to a run with another model, data, key"):
        clone(saved).fit(X, Y[::-1])
    save(tmp_path / "file", again)
    assert load(tmp_path / "file").checkpoint == str(folder)


def test_time_ends_a_fit():
    with pytest.warns(ConvergenceWarning, match="stopped at `seconds=0` before it converged"):
        found = BayesianSVR(restarts=1, seconds=0, tol=1e-12).fit(X, TARGET)
    assert found.n_iter_ == 10 and found.score(X, TARGET) > 0


def test_invalid_parameters_are_reported(classifier, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for settings_, words in (
        ({"kernel": "rbff"}, "`kernel` must be one of rbf"),
        ({"ard": "maybe"}, '`ard` must be True, False or "auto"'),
        ({"restarts": 0}, "`restarts` must be a positive integer"),
        ({"max_iter": 1.5}, "`max_iter` must be a positive integer"),
        ({"tol": -1}, "`tol` must be positive"),
        ({"max_examples": 3}, "`max_examples` must be at least 10"),
        ({"seconds": -1}, "`seconds` must be"),
        ({"checkpoint": __file__}, "`checkpoint` must be a folder, but .* is a file"),
        ({"checkpoint": "no-folder"}, "`checkpoint` needs an integer `random_state`"),
    ):
        with pytest.raises(ValueError, match=words):
            LSSVC(**settings_).fit(X, Y)
    with pytest.raises(TypeError, match="not of type int"):
        LSSVC(kernel=3).fit(X, Y)
    with pytest.raises(TypeError, match="`checkpoint` must be the path of a folder, not 3"):
        LSSVC(checkpoint=3).fit(X, Y)
    with pytest.raises(ValueError, match="`method` must be one of evidence, laplace"):
        BayesianSVC("guess").fit(X, Y)
    with pytest.raises(ValueError, match="`loss` must be one of soft"):
        BayesianSVR(loss="hard").fit(X, TARGET)
    with pytest.raises(ValueError, match="one class only"):
        LSSVC().fit(X, np.ones(60))
    with pytest.raises(ValueError, match="all targets are the same"):
        BayesianSVR().fit(X, np.ones(60))
    with pytest.raises(ValueError, match="`sample_weight` of zero"):
        LSSVC().fit(X, Y, sample_weight=(Y == "good").astype(float))
    with pytest.raises(NotFittedError):
        LSSVC().predict(X)


def test_the_search_uses_a_subset_of_many_examples():
    x = RANDOM.normal(size=(150, 3))
    y = np.sign(x[:, 0] + 0.3 * RANDOM.normal(size=150))
    found = LSSVC(max_examples=60, random_state=1, **QUICK).fit(x, y)
    assert found.machines_[0].search.x.shape[0] == 64 and found.score(x, y) > 0.8
    assert np.sum(found.machines_[0].predictive.weights > 0) == 150


@pytest.mark.parametrize("kind", [LSSVC, BayesianSVC, MeanFieldGPC, BayesianSVR])
def test_any_data_is_fitted_or_refused_with_a_message(kind):
    fitted = []
    rare = [0.0, 1.0, -1.0, 1e-8, 1e8, 3.5, -2.0]

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def fits_or_refuses(data):
        count = data.draw(st.integers(2, 30))  # all of which are padded to the same size
        # one NaN is enough to be refused, so most data have none
        special = st.sampled_from(data.draw(st.sampled_from([rare, rare, [*rare, np.nan, 1e300]])))
        cell = st.floats(-10, 10) | st.floats(-10, 10) | special
        drawn = st.lists(cell, min_size=2 * count, max_size=2 * count)
        x = np.array(data.draw(drawn)).reshape(count, 2)
        label = cell if kind is BayesianSVR else st.integers(0, 1)
        y = np.array(data.draw(st.lists(label, min_size=count, max_size=count)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = kind(max_iter=3, restarts=1, **QUICK).fit(x, y)
            except (ValueError, jsvm.FitError) as error:
                assert str(error)
                return
            fitted.append(found)
            if kind is BayesianSVR:
                assert all(np.isfinite(part).all() for part in found.predict(x, return_std=True))
            else:
                p = found.predict_proba(x)
                assert np.isfinite(p).all() and np.allclose(p.sum(axis=1), 1)

    fits_or_refuses()
    assert fitted


@pytest.mark.parametrize("kind", [LSSVC, BayesianSVC, MeanFieldGPC, BayesianSVR])
def test_looking_at_an_estimator_computes_nothing(kind):
    """Its arrays are NumPy arrays. A computation would transfer them to JAX, which is forbidden here."""
    target = TARGET if kind is BayesianSVR else Y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = kind(max_iter=3, restarts=1, **QUICK).fit(X, target)
    with jax.transfer_guard("disallow"):
        shown = found._repr_mimebundle_()["text/html"]
        names = [name for name in dir(found) if name.endswith("_") and not name.startswith("_")]
        assert "relevance_" in names and "model_" in names
        for name in names:
            getattr(found, name, None)
    assert kind.__name__ in shown

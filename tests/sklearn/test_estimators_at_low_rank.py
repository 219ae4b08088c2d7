"""Estimators whose kernel matrix has a low rank: predictions, files, memory, and the automatic choice."""

import pickle

import jax
import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone

import jaxsvm as jsvm
from jaxsvm.sklearn import LSSVC, BayesianSVC, BayesianSVR, MeanFieldGPC, _kernel_matrix, load, save
from jaxsvm.sklearn._kernel_matrix import matrix_of, represented

RANDOM = np.random.default_rng(0)
ROWS = 150  # padded to 160
X = RANDOM.normal(size=(ROWS, 2))
F = np.sin(2 * X[:, 0]) + X[:, 1]
Y = np.where(F + 0.3 * RANDOM.normal(size=ROWS) > 0, "good", "bad")
TARGET = 3 + 10 * F + RANDOM.normal(size=ROWS)
POINTS = RANDOM.normal(size=(40, 2))
FULL = jsvm.Nystrom(rank=ROWS)
LOW = jsvm.Nystrom(rank=40, landmarks=40, choice="randomly pivoted")
QUICK = {"ard": False, "restarts": 1, "random_state": 0}
CLASSIFIERS = {
    "span": BayesianSVC(**QUICK),
    "response": BayesianSVC("response", **QUICK),
    "laplace": BayesianSVC("laplace", **QUICK),
    "least squares": LSSVC(**QUICK),
    "mean field": MeanFieldGPC(**QUICK),
}


@pytest.fixture(scope="module")
def fitted():
    return LSSVC(approximation=LOW, **QUICK).fit(X, Y)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_full_rank_gives_the_exact_classifier(name):
    exact = clone(CLASSIFIERS[name]).set_params(max_iter=5)
    full = clone(exact).set_params(approximation=FULL)
    with pytest.warns(UserWarning, match="before it converged"):
        exact.fit(X, Y)
    with pytest.warns(UserWarning, match="before it converged"):
        full.fit(X, Y)
    assert exact.rank_ is None and exact.lost_variance_ == 0
    assert full.rank_ == ROWS and full.lost_variance_ < 1e-9
    np.testing.assert_allclose(
        full.predict_proba(POINTS), exact.predict_proba(POINTS), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(full.criterion_, exact.criterion_, rtol=1e-6)
    if name in ("span", "laplace", "response"):
        np.testing.assert_allclose(full.evidence_, exact.evidence_, rtol=1e-6)


@pytest.mark.parametrize("loss", ["soft", "quadratic"])
def test_a_full_rank_gives_the_exact_regression(loss):
    exact = BayesianSVR(loss=loss, max_iter=5, **QUICK)
    full = clone(exact).set_params(approximation=FULL)
    with pytest.warns(UserWarning, match="before it converged"):
        exact.fit(X, TARGET)
    with pytest.warns(UserWarning, match="before it converged"):
        full.fit(X, TARGET)
    assert exact.rank_ is None and full.rank_ == ROWS
    for answer in ("predict_function", "predict_interval"):
        for one, other in zip(
            getattr(full, answer)(POINTS), getattr(exact, answer)(POINTS), strict=True
        ):
            # searches differ by rounding errors, which matter most far from the examples
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-4 * TARGET.std())
    np.testing.assert_allclose(full.evidence_, exact.evidence_, rtol=1e-6)


@pytest.mark.parametrize("name", ["span", "least squares", "mean field"])
def test_a_low_rank_is_near_the_exact_classifier(name):
    exact = clone(CLASSIFIERS[name]).fit(X, Y)
    # for the span, the largest difference over three seeds is 0.08 at rank 40, 0.012 at 60, 0.0003 at 80
    near = jsvm.Nystrom(rank=60, landmarks=60, choice="randomly pivoted")
    low = clone(exact).set_params(approximation=near).fit(X, Y)
    assert low.rank_ == 60 and 0 < low.lost_variance_ < 0.001
    np.testing.assert_allclose(low.predict_proba(POINTS), exact.predict_proba(POINTS), atol=0.02)


def test_a_low_rank_is_near_the_exact_regression():
    exact = BayesianSVR(**QUICK).fit(X, TARGET)
    low = clone(exact).set_params(approximation=LOW).fit(X, TARGET)
    assert low.rank_ == 40 and 1e-6 < low.lost_variance_ < 0.01
    mean, deviation = exact.predict(POINTS, return_std=True)
    near, similar = low.predict(POINTS, return_std=True)
    assert np.sqrt(np.mean(((near - mean) / deviation) ** 2)) < 0.25
    assert np.sqrt(np.mean(np.log(similar / deviation) ** 2)) < 0.1
    bounds = low.predict_interval(X)
    assert 0.9 < np.mean((bounds[0] <= TARGET) & (bounds[1] >= TARGET)) <= 1


def test_landmarks_of_the_fit_are_chosen_at_the_best_hyperparameters(fitted):
    machine = fitted.machines_[0]
    with jax.enable_x64(True):
        wanted = jsvm.approximations.represent(
            LOW, machine.search.model, machine.predictive.x[:ROWS]
        )
    np.testing.assert_array_equal(
        machine.predictive.representation.kept.landmarks, wanted.kept.landmarks
    )
    assert not np.array_equal(machine.search.representation.kept.landmarks, wanted.kept.landmarks)


def test_three_classes_relevances_and_weights_at_a_low_rank():
    y = np.digitize(F + 0.5 * RANDOM.normal(size=ROWS), [-0.7, 0.7])
    weights = RANDOM.uniform(0.5, 2, ROWS)
    exact = LSSVC(ard=True, random_state=0).fit(X, y, sample_weight=weights)
    low = clone(exact).set_params(approximation=jsvm.Nystrom(landmarks=100, choice="pivoted"))
    low.fit(X, y, sample_weight=weights)
    assert low.rank_ == [100, 100, 100] and low.lost_variance_.shape == (3,)
    assert low.relevance_.shape == (3, 2)
    p, near = exact.predict_proba(POINTS), low.predict_proba(POINTS)
    assert np.mean(np.abs(near - p)) < 0.03


def test_files_and_pickles_hold_landmarks_and_not_the_features(fitted, tmp_path):
    regression = BayesianSVR(approximation=LOW, **QUICK).fit(X, TARGET)
    for found in (fitted, regression):
        save(tmp_path / "low", found)
        for copy in (load(tmp_path / "low"), pickle.loads(pickle.dumps(found))):
            np.testing.assert_array_equal(copy.predict(POINTS), found.predict(POINTS))
            assert copy.get_params() == found.get_params() and copy.rank_ == 40
            assert copy.lost_variance_ == found.lost_variance_
            shapes = {np.shape(leaf) for leaf in jax.tree.leaves(vars(copy))}
            assert (160, 40) not in shapes and (40, 2) in shapes


def test_samples_use_the_approximation():
    found = BayesianSVC("evidence", max_iter=2, approximation=jsvm.Nystrom(30), **QUICK)
    with pytest.warns(UserWarning):
        found.fit(X, Y)
    assert found.rank_ == 30 and found.lost_variance_ > 0 and found.score(X, Y) > 0.8


def test_automatic_ranks(monkeypatch):
    monkeypatch.setattr(_kernel_matrix, "EXACT_ROWS", 100)
    found = LSSVC(max_examples=90, **QUICK).fit(X, Y)
    search = found.machines_[0].search  # began on 90 rows, and ended on all
    assert np.count_nonzero(search.weights) == ROWS and search.representation.kept.rank == ROWS
    assert found.rank_ in range(32, 100) and 0 < found.lost_variance_ < 0.0011
    monkeypatch.setattr(_kernel_matrix, "_SEARCH_WORK", 150 * 60**2)
    low = LSSVC(**QUICK).fit(X, Y)
    assert low.machines_[0].search.representation.kept.rank == 60
    exact = LSSVC(approximation="exact", **QUICK).fit(X, Y)
    assert exact.rank_ is None
    np.testing.assert_allclose(low.predict_proba(POINTS), exact.predict_proba(POINTS), atol=0.05)
    monkeypatch.setattr(_kernel_matrix, "_WORK", 150 * 3**2)
    with pytest.warns(jsvm.approximations.ApproximationWarning, match="rank 3 loses .* than 5%"):
        assert LSSVC(max_examples=90, **QUICK).fit(X, Y).rank_ == 3


@pytest.mark.parametrize("kind", [BayesianSVC, LSSVC])
def test_a_search_continues_on_more_examples(monkeypatch, kind):
    monkeypatch.setattr(_kernel_matrix, "EXACT_ROWS", 100)
    found = kind(max_examples=25, ard="auto", random_state=0).fit(X, Y)
    search = found.machines_[0].search
    assert np.count_nonzero(search.weights) == 125
    assert search.value < search.history.value[0, 0] and found.score(X, Y) > 0.85
    few = kind(max_examples=25, approximation="exact", **QUICK).fit(X, Y)
    assert np.count_nonzero(few.machines_[0].search.weights) == 25


def test_a_regression_continues_on_more_examples(monkeypatch):
    monkeypatch.setattr(_kernel_matrix, "EXACT_ROWS", 100)
    found = BayesianSVR(max_examples=25, **QUICK).fit(X, TARGET)
    search = found.regression_.search
    assert np.count_nonzero(search.weights) == 125 and search.value < search.history.value[0, 0]
    assert found.score(X, TARGET) > 0.95
    with pytest.warns(UserWarning, match="before it converged"):  # no time to continue
        found.set_params(seconds=0).fit(X, TARGET)
    assert np.count_nonzero(found.regression_.search.weights) == 25


def test_too_little_memory_is_refused(monkeypatch):
    monkeypatch.setattr(_kernel_matrix, "available_memory", lambda: 200_000)
    words = r"150 examples with an exact kernel matrix needs about .* use a low rank of at most \d+"
    with pytest.raises(MemoryError, match=words):
        LSSVC(**QUICK).fit(X, Y)
    with pytest.raises(MemoryError, match=r"a kernel matrix of rank 40 needs about .* memory are"):
        LSSVC(approximation=LOW, **QUICK).fit(X, Y)
    monkeypatch.setattr(_kernel_matrix, "available_memory", lambda: 10_000)
    with pytest.raises(MemoryError, match="free: use fewer examples"):
        LSSVC(approximation=LOW, **QUICK).fit(X, Y)
    monkeypatch.setattr(_kernel_matrix, "available_memory", lambda: None)
    LSSVC(**QUICK).fit(X, Y)


@pytest.mark.parametrize(
    "approximation, rank",
    [
        ("auto", "up to 150"),
        (jsvm.Nystrom("auto", max_rank=120), "up to 120"),
        (jsvm.Nystrom(landmarks=90), "90"),
        (jsvm.Nystrom(landmarks=range(80)), "80"),
        (jsvm.RandomFourier(71), "71"),
        (jsvm.Corrected(jsvm.Nystrom(70)), "70"),
    ],
)
def test_too_little_memory_is_refused_before_the_search(monkeypatch, approximation, rank):
    monkeypatch.setattr(_kernel_matrix, "EXACT_ROWS", 100)
    monkeypatch.setattr(_kernel_matrix, "available_memory", lambda: 200_000)
    for module in ("_binary", "_regressor"):
        monkeypatch.setattr(f"jaxsvm.sklearn.{module}.select", None)  # no search begins
    for estimator, y in ((LSSVC(**QUICK), Y), (BayesianSVR(**QUICK), TARGET)):
        estimator.set_params(approximation=approximation)
        words = (
            f"150 examples with a kernel matrix of rank {rank} needs .* use a low rank of at most"
        )
        with pytest.raises(MemoryError, match=words):
            estimator.fit(X, y)


@pytest.mark.parametrize("wrong", ["low", 40, None])
def test_other_approximations_are_refused(wrong):
    with pytest.raises(ValueError, match='`approximation` must be "auto", "exact" or'):
        LSSVC(approximation=wrong).fit(X, Y)
    with pytest.raises(ValueError, match='`approximation` must be "auto", "exact" or'):
        BayesianSVR(approximation=wrong).fit(X, TARGET)


def test_many_points_are_predicted_in_parts(fitted, monkeypatch):
    from jaxsvm.sklearn import _data

    whole = fitted.predict_proba(X)
    monkeypatch.setattr(_data, "_POINTS", 64)
    np.testing.assert_allclose(fitted.predict_proba(X), whole, rtol=1e-12)


def test_the_variance_of_an_offset_does_not_hide_what_is_lost(monkeypatch):
    monkeypatch.setattr(_kernel_matrix, "EXACT_ROWS", 100)
    with jax.enable_x64(True):
        kernel = jsvm.kernels.RBF(1.0) + jsvm.kernels.Constant(1e3)
        machine = jsvm.KernelMachine(kernel, jsvm.losses.Quadratic(0.1))
        kept = represented("auto", machine, X)
        fit = jsvm.fit(machine, X, F, approximation=kept)
        found = matrix_of(fit.expansion, fit.stats.lost_variance)
        low = np.asarray(fit.gram().dense())
    lost = ROWS * 1001 - np.trace(low)  # of which the RBF has a variance of 1 for each row
    np.testing.assert_allclose(found.lost_variance, lost / ROWS, rtol=1e-6)
    assert found.rank >= 32 and found.lost_variance < 0.02

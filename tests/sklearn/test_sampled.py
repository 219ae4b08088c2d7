"""`BayesianSVC("evidence")`: its rank, its probabilities, and what it saves."""

import itertools

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import jaxsvm as jsvm
from jaxsvm.sklearn import BayesianSVC, _binary, load, save
from jaxsvm.sklearn._sigmoid import Sigmoid, recalibrated

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 3)) * [1, 10, 100] + [5, 0, -3]
Y = np.where(X[:, 0] - 5 + X[:, 1] / 10 + 0.3 * RANDOM.normal(size=60) > 0, "good", "bad")
QUICK = {"ard": False, "max_iter": 2, "random_state": 0}


@pytest.fixture(scope="module")
def sampled():
    with pytest.warns(ConvergenceWarning, match="stopped at `max_iter=2` before it converged"):
        return BayesianSVC("evidence", **QUICK).fit(X, Y)


def test_it_predicts_from_the_posterior_and_is_saved(sampled, tmp_path):
    assert sampled.score(X, Y) > 0.8 and np.isfinite(sampled.evidence_)
    assert sampled.rank_ is None and sampled.lost_variance_ == 0
    p = sampled.predict_proba(X)
    np.testing.assert_array_equal(sampled.predict(X), sampled.classes_[np.argmax(p, axis=1)])
    save(tmp_path / "sampled", sampled)
    again = load(tmp_path / "sampled")
    np.testing.assert_array_equal(again.predict_proba(X), p)
    assert again.calibration_ == sampled.calibration_


def test_a_sigmoid_of_the_posterior_counts_and_is_saved(sampled, tmp_path):
    """The log odds are those of the posterior, mapped."""
    machine = sampled.machines_[0]
    plain = machine._replace(sigmoid=None)
    mapped = machine._replace(sigmoid=Sigmoid(0.5, 0.3))
    points = sampled.scaling_(X[:7])
    assert plain.calibration == "posterior" and mapped.calibration == "recalibrated posterior"
    np.testing.assert_allclose(mapped.log_odds(points), 0.5 * plain.log_odds(points) + 0.3)
    whole = sampled.machines_
    try:
        sampled.machines_ = [mapped]
        p = sampled.predict_proba(X)
        save(tmp_path / "mapped", sampled)
    finally:
        sampled.machines_ = whole
    again = load(tmp_path / "mapped")
    assert again.calibration_ == "recalibrated posterior"
    np.testing.assert_array_equal(again.predict_proba(X), p)


def test_log_odds_are_recalibrated_only_if_that_helps():
    """True odds stay as they are; odds that are too small by a factor of three get a slope of three."""
    odds = 2 * RANDOM.normal(size=2000)
    y = np.where(RANDOM.random(2000) < 1 / (1 + np.exp(-odds)), 1.0, -1.0)
    assert recalibrated(odds, y, np.ones(2000)) is None
    slope, intercept = recalibrated(odds / 3, y, np.ones(2000)) or (0, 0)
    assert abs(slope - 3) < 0.4 and abs(intercept) < 0.2


def test_the_rank_grows_until_little_is_lost(monkeypatch):
    """From a rank that is too low the search goes on at twice the rank, from where it was."""
    monkeypatch.setattr(_binary, "_RANK", 5)
    monkeypatch.setattr(_binary, "_MAX_RANK", 20)
    ranks, starts = [], []
    original = _binary._search

    def watched(settings, model, *args, **options):
        found = original(settings, model, *args, **options)
        low = args[1].approximation
        ranks.append(getattr(low, "rank", None))
        starts.append((jsvm.parameters(model), jsvm.parameters(found.model)))
        return found

    monkeypatch.setattr(_binary, "_search", watched)
    with pytest.warns(ConvergenceWarning):
        BayesianSVC("evidence", **QUICK).fit(X, Y)
    assert ranks[0] == 5 and ranks[1:] == [10, 20][: len(ranks) - 1] and len(ranks) > 1
    for (_, end), (begin, _) in itertools.pairwise(starts):
        assert all(np.array_equal(end[name], begin[name]) for name in end)

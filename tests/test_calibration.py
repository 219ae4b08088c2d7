"""Scores of probabilities against scikit-learn and by hand, and the reliability diagram."""

import numpy as np
import pytest
import sklearn.metrics

from jaxsvm import calibration

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402, after the choice of a backend

from jaxsvm import plot  # noqa: E402

RNG = np.random.default_rng(0)
P = RNG.uniform(size=200)
Y = np.where(RNG.uniform(size=200) < P**2, 1, -1)


def test_scores_by_scikit_learn():
    np.testing.assert_allclose(calibration.log_loss(Y, P), sklearn.metrics.log_loss(Y, P))
    expected = sklearn.metrics.brier_score_loss(Y, P, pos_label=1)
    np.testing.assert_allclose(calibration.brier_score(Y, P), expected)


def test_log_loss_is_finite():
    assert calibration.log_loss([1, -1], [1.0, 0.0]) < 1e-15
    wrong = calibration.log_loss([1.0, -1.0], np.array([0.0, 1.0]))
    np.testing.assert_allclose(wrong, -np.log(np.finfo(float).eps))
    single = calibration.log_loss([1.0, -1.0], np.array([0.0, 1.0], np.float32))
    np.testing.assert_allclose(single, -np.log(np.finfo(np.float32).eps), rtol=1e-6)


def test_reliability_by_hand():
    y = [-1, 1, 1, -1, 1, 1]
    p = [0.0, 0.1, 0.29, 0.3, 0.9, 1.0]
    prediction, frequency, counts = calibration.reliability(y, p)
    assert counts.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 2]
    nan = np.nan
    np.testing.assert_allclose(prediction, [0, 0.1, 0.29, 0.3, nan, nan, nan, nan, nan, 0.95])
    np.testing.assert_allclose(frequency, [0, 1, 1, 0, nan, nan, nan, nan, nan, 1])
    expected = (0 + 0.9 + 0.71 + 0.3 + 2 * 0.05) / 6
    np.testing.assert_allclose(calibration.expected_calibration_error(y, p), expected)
    one = abs(np.mean(p) - 4 / 6)
    np.testing.assert_allclose(calibration.expected_calibration_error(y, p, bins=1), one)
    # the edge 0.29 begins a bin, though 0.29 * 100 is less than 29
    assert calibration.reliability([1], [0.29], bins=100).counts[29] == 1


def test_reliability_by_loops():
    table = calibration.reliability(Y, P, 7)
    for i in range(7):
        chosen = [j for j in range(200) if i / 7 <= P[j] < (i + 1) / 7]
        assert table.counts[i] == len(chosen)
        np.testing.assert_allclose(table.prediction[i], np.mean([P[j] for j in chosen]))
        np.testing.assert_allclose(table.frequency[i], np.mean([Y[j] > 0 for j in chosen]))


@pytest.mark.parametrize(
    "function",
    [
        calibration.log_loss,
        calibration.brier_score,
        calibration.reliability,
        calibration.expected_calibration_error,
        plot.reliability,
    ],
)
def test_scores_say_what_is_wrong(function):
    for y, p, words in (
        ([0, 1], [0.1, 0.2], "use `2 \\* y - 1`"),
        ([1, 2], [0.1, 0.2], r"`y` holds \[1, 2\]"),
        ([1, -1], [0.1, 1.2], "reaches from 0.1 to 1.2"),
        ([1, -1], [0.1, np.nan], "holds NaN"),
        ([1, -1], [0.1], r"shapes \(2,\) and \(1,\)"),
        ([], np.zeros(0), "`y` is empty"),
    ):
        with pytest.raises(ValueError, match=words):
            function(y, p)
    with pytest.raises(TypeError, match="must be probabilities"):
        function([1, -1], ["a", "b"])


def test_bins_must_be_a_number():
    for bins in (0, 2.5, True):
        with pytest.raises(ValueError, match="`bins` must be a positive integer"):
            calibration.reliability(Y, P, bins)


def test_reliability_diagram():
    ax = plot.reliability(Y, {"first": P, "second": P**2}, bins=5)
    first, second = ax.collections[1::2]
    for drawn, p in ((first, P), (second, P**2)):
        table = calibration.reliability(Y, p, 5)
        np.testing.assert_allclose(drawn.get_offsets(), np.stack(table[:2], axis=1))
        areas = drawn.get_sizes()
        assert np.argsort(areas).tolist() == np.argsort(table.counts, kind="stable").tolist()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    error = calibration.expected_calibration_error(Y, P, 5)
    assert labels[0] == f"first (ECE {error:.3f})" and labels[1].startswith("second")
    ax.figure.canvas.draw()
    own = pyplot.figure().subplots()
    # empty bins are left out
    assert plot.reliability([1, -1], [0.9, 0.1], ax=own) is own
    assert len(own.collections[-1].get_offsets()) == 2
    pyplot.close("all")
    with pytest.raises(ValueError, match="nothing to draw"):
        plot.reliability(Y, {})
    assert not pyplot.get_fignums()

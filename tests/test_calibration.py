"""Scores of probabilities against scikit-learn and by hand, the reliability diagram, and coverage."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics
from scipy.stats import norm

import jaxsvm as jsvm
from jaxsvm import calibration, kernels, losses

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
        ([1, -1], [0.1, 1.2], "ranges from 0.1 to 1.2"),
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


X = RNG.normal(size=(40, 3))
NEW = RNG.normal(size=(200, 3))


@pytest.fixture(scope="module")
def gaussian_process():
    machine = jsvm.KernelMachine(kernels.RBF(2.0), losses.Quadratic(0.3))
    return jsvm.laplace(jsvm.fit(machine, X, np.sin(X[:, 0])))


def test_coverage_of_a_gaussian_process(gaussian_process):
    """Targets at known quantiles of their predictive distributions: the shares are known exactly."""
    mean, deviation = (np.asarray(row) for row in gaussian_process.target(NEW))
    quantiles = (np.arange(200) + 0.5) / 200
    y = mean + deviation * norm.ppf(RNG.permutation(quantiles))
    levels, shares, errors = calibration.coverage(gaussian_process, NEW, y, [0.1, 0.5, 0.901])
    np.testing.assert_array_equal(levels, [0.1, 0.5, 0.901])
    expected = [np.mean(np.abs(2 * quantiles - 1) <= level) for level in levels]
    np.testing.assert_array_equal(shares, expected)
    np.testing.assert_allclose(shares, levels, atol=0.01)
    np.testing.assert_allclose(errors, np.sqrt(levels * (1 - levels) / 200), rtol=0.03)
    # half of the deviation: all targets come closer to the middle, where the normal distribution says so
    narrow = calibration.coverage(gaussian_process, NEW, mean + (y - mean) / 2)
    np.testing.assert_allclose(narrow.levels, np.arange(0.05, 1, 0.05))
    known = 2 * norm.cdf(2 * norm.ppf((1 + narrow.levels) / 2)) - 1
    np.testing.assert_allclose(narrow.shares, known, atol=0.01)
    # all, or none: not without error
    all_inside = calibration.coverage(gaussian_process, NEW, mean, 0.5)
    np.testing.assert_array_equal(all_inside.shares, [1.0])
    assert all_inside.standard_errors[0] > 0
    assert calibration.coverage(gaussian_process, NEW, mean + 99, 0.99).shares == [0.0]


def test_coverage_is_that_of_the_intervals(gaussian_process):
    """Counted by their ends, for a mixture of two noises with long tails."""
    members = []
    for C, shift in ((8.0, 0.0), (3.0, 0.4)):
        model = dataclasses.replace(gaussian_process.fit.model, loss=losses.SoftInsensitive(C, 0.2))
        offset = gaussian_process.fit.offset + shift
        fit = dataclasses.replace(gaussian_process.fit, model=model, offset=offset)
        members.append(dataclasses.replace(gaussian_process, fit=fit))
    mixture = jsvm.LaplaceMixture(tuple(members), jnp.array([0.6, 0.4]))
    y = np.sin(NEW[:, 0]) + 0.3 * RNG.standard_t(3, size=200)
    table = calibration.coverage(mixture, NEW, y, [0.3, 0.8])
    for level, share in zip(*table[:2], strict=True):
        low, high = (np.asarray(row) for row in mixture.interval(NEW, level))
        assert share == sum(a <= t <= b for a, t, b in zip(low, y, high, strict=True)) / 200
    assert 0.1 < table.shares[0] < table.shares[1] < 1


def test_coverage_says_what_is_wrong(gaussian_process):
    y = np.zeros(200)
    for levels in (0.0, 1.0, [0.5, 95], [np.nan], -0.1):
        with pytest.raises(ValueError, match="`levels` must be between zero and one"):
            calibration.coverage(gaussian_process, NEW, y, levels)
    for levels in ([], [[0.5]]):
        with pytest.raises(ValueError, match="`levels` must be a list of probabilities"):
            calibration.coverage(gaussian_process, NEW, y, levels)
    with pytest.raises(TypeError, match="`levels` must be probabilities"):
        calibration.coverage(gaussian_process, NEW, y, "all")
    with pytest.raises(ValueError, match="`x` has 200 rows, but `y` has 3 entries"):
        calibration.coverage(gaussian_process, NEW, y[:3])
    with pytest.raises(ValueError, match=r"`y` must be a vector .* shape \(200, 1\)"):
        calibration.coverage(gaussian_process, NEW, y[:, None])
    with pytest.raises(ValueError, match="fitted on 3 inputs, but `x` has 6"):
        calibration.coverage(gaussian_process, np.tile(NEW, 2), y)
    with pytest.raises(TypeError, match="`posterior` must be the result of"):
        calibration.coverage(gaussian_process.fit, NEW, y)
    model = dataclasses.replace(gaussian_process.fit.model, loss=losses.Hinge())
    fit = dataclasses.replace(gaussian_process.fit, model=model)
    with pytest.raises(ValueError, match="Hinge is not a noise model"):
        calibration.coverage(dataclasses.replace(gaussian_process, fit=fit), NEW, y)

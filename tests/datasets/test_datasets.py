"""Generated data against the formulas that generate them.

Tolerances are five standard errors of the statistic under the generating formula.
"""

import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference_datasets import (
    CLASSIFICATION,
    ERRORS,
    GENERATORS,
    Laplace,
    arm,
    check_gaussian,
    check_mean,
    check_uncorrelated,
    check_uniform,
    draw,
    wave,
)

from jaxsvm import datasets
from jaxsvm.datasets import Dataset

# --- All generators ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", GENERATORS)
def test_shapes_types_and_determinism(name):
    generator, inputs, outputs = GENERATORS[name]
    data = generator(9, key=jax.random.key(0))
    again = generator(9, key=jax.random.key(0))
    other = generator(9, key=jax.random.key(1))
    assert isinstance(data, Dataset)
    assert data.x.shape == (9, inputs)
    assert data.y.shape == (9, *outputs)
    assert data.x.dtype == data.y.dtype == jnp.result_type(float)
    np.testing.assert_array_equal(data.x, again.x)
    np.testing.assert_array_equal(data.y, again.y)
    assert not np.any(np.asarray(data.x) == np.asarray(other.x))


@pytest.mark.parametrize("name", GENERATORS)
def test_keys_may_be_mapped_over(name):
    generator, _, _ = GENERATORS[name]
    keys = jax.random.split(jax.random.key(0), 2)
    with jax.numpy_rank_promotion("raise"):
        batch = jax.jit(jax.vmap(lambda key: generator(9, key=key)))(keys)
    one = generator(9, key=keys[1])
    np.testing.assert_allclose(batch.x[1], one.x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(batch.y[1], one.y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", GENERATORS)
def test_one_example_is_the_least(name):
    generator, inputs, _ = GENERATORS[name]
    assert generator(1, key=jax.random.key(0)).x.shape == (1, inputs)
    for n in (0, -3):
        with pytest.raises(ValueError, match=f"number of examples, must be at least 1, but is {n}"):
            generator(n, key=jax.random.key(0))


@pytest.mark.parametrize("name", GENERATORS)
def test_key_is_keyword_only_and_has_no_default(name):
    generator, _, _ = GENERATORS[name]
    with pytest.raises(TypeError):
        generator(5)
    with pytest.raises(TypeError):
        generator(5, jax.random.key(0))


@pytest.mark.parametrize(("name", "probability"), CLASSIFICATION.items())
def test_class_proportions(name, probability):
    _, y = draw(GENERATORS[name][0])
    assert set(np.unique(y)) == {-1.0, 1.0}
    check_mean(y > 0, probability, probability * (1 - probability))


# --- Each generator against its formula -------------------------------------------------------


def test_twonorm_moments_and_bayes_error():
    x, y = draw(datasets.twonorm)
    a = 2 / math.sqrt(20)
    check_gaussian(x[y > 0], a, 1.0)
    check_gaussian(x[y < 0], -a, 1.0)
    check_uncorrelated(x[y > 0, 0], x[y > 0, 1])
    bayes = 0.5 * math.erfc(2 / math.sqrt(2))  # Φ(-2) = 0.0228
    assert bayes == pytest.approx(0.023, abs=5e-4)
    check_mean(np.sign(x.sum(axis=1)) != y, bayes, bayes * (1 - bayes))


@pytest.mark.parametrize("a", [None, 1 / math.sqrt(20)])
def test_ringnorm_moments_and_covariance_traces(a):
    x, y = draw(datasets.ringnorm, **({} if a is None else {"center": a}))
    wide, narrow = x[y > 0], x[y < 0]
    check_gaussian(wide, 0.0, 4.0)
    check_gaussian(narrow, 2 / math.sqrt(20) if a is None else a, 1.0)
    for sample, variance in ((wide, 4.0), (narrow, 1.0)):
        trace = np.trace(np.cov(sample, rowvar=False))
        # A trace sums twenty independent variance estimates, each with variance 2σ⁴/n.
        error = variance * math.sqrt(2 * 20 / len(sample))
        assert abs(trace - 20 * variance) < ERRORS * error
        check_uncorrelated(sample[:, 3], sample[:, 7])


def test_waveform_moments():
    x, y = draw(datasets.waveform)
    early, middle, late = wave(7), wave(11), wave(15)
    # With u uniform, u h + (1 - u) h' has mean (h + h')/2 and variance (h - h')²/12.
    check_mean(x[y > 0], (middle + early) / 2, 1 + (middle - early) ** 2 / 12)
    pairs = [(middle, late), (late, early)]
    means = np.array([(h + g) / 2 for h, g in pairs])
    variance = 1 + np.mean([(h - g) ** 2 / 12 for h, g in pairs], axis=0) + means.var(axis=0)
    check_mean(x[y < 0], means.mean(axis=0), variance)
    # The class +1 mixes waves that are zero from the seventeenth input on: there is only noise.
    check_gaussian(x[y > 0][:, 16:], 0.0, 1.0)


def test_noisy_xor_moments_and_bayes_error():
    x, y = draw(datasets.noisy_xor)
    check_gaussian(x, 0.0, 1.0)
    wrong = y != np.sign(x[:, 0] * x[:, 1])
    check_mean(wrong, 0.13636, 0.13636 * (1 - 0.13636))  # by quadrature of P(noise > |x_1 x_2|)
    assert datasets.noisy_xor(3, key=jax.random.key(0), inputs=2).x.shape == (3, 2)
    with pytest.raises(ValueError, match="at least 2"):
        datasets.noisy_xor(3, key=jax.random.key(0), inputs=1)


def test_sinc_with_and_without_noise():
    x, y = draw(datasets.sinc, noise=None)
    check_uniform(x[:, 0], -10.0, 10.0)
    np.testing.assert_allclose(y, np.sin(np.abs(x[:, 0])) / np.abs(x[:, 0]), atol=2e-6)
    noisy_x, noisy_y = draw(datasets.sinc, noise=Laplace())
    np.testing.assert_array_equal(noisy_x, x)
    noise = noisy_y - y
    # Laplace noise of scale b: variance 2b², fourth moment 24b⁴, so Var e² = 20b⁴.
    check_mean(noise, 0.0, 2 * 0.1**2)
    check_mean(noise**2, 2 * 0.1**2, 20 * 0.1**4)
    check_uncorrelated(noise, x[:, 0])


def test_sinc_interval_and_value_at_zero():
    x, _ = draw(datasets.sinc, noise=None, low=2.0, high=5.0)
    check_uniform(x[:, 0], 2.0, 5.0)
    tiny = datasets.sinc(50, noise=None, key=jax.random.key(0), low=-1e-30, high=1e-30)
    np.testing.assert_array_equal(tiny.y, 1.0)
    with pytest.raises(ValueError, match=r"`low` must be less than `high`.* 3.0 and 1.0"):
        datasets.sinc(5, noise=None, key=jax.random.key(0), low=3.0, high=1.0)


def test_sinc_noise_must_be_a_noise_model():
    with pytest.raises(TypeError, match=r"method `sample_noise\(shape, \*, key\)`.*but is 0\.1"):
        datasets.sinc(5, noise=0.1, key=jax.random.key(0))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_robot_arm_angles_and_targets(noise):
    x, y = draw(datasets.robot_arm, noise=noise)
    check_mean(x[:, 0] > 0, 0.5, 0.25)
    check_uniform(np.abs(x[:, 0]), 0.453, 1.932)
    check_uniform(x[:, 1], 0.534, 3.142)
    check_uncorrelated(x[:, 0], x[:, 1])
    check_gaussian(y - arm(x), 0.0, noise**2)


def test_robot_arm_outputs():
    _, both = draw(datasets.robot_arm, n=30)
    for output in (0, 1):
        _, one = draw(datasets.robot_arm, n=30, output=output)
        np.testing.assert_array_equal(one, both[:, output])
    _, clean = draw(datasets.robot_arm, n=30, noise=0.0)
    x, _ = draw(datasets.robot_arm, n=30)
    np.testing.assert_allclose(clean, arm(x), atol=1e-5)


def test_robot_arm_with_six_inputs():
    x, y = draw(datasets.robot_arm, inputs=6)
    two, targets = draw(datasets.robot_arm)
    np.testing.assert_array_equal(x[:, :2], two)
    np.testing.assert_array_equal(y, targets)
    corruption = (x[:, 2:4] - x[:, :2]) / 0.02
    check_gaussian(corruption, 0.0, 1.0)
    check_gaussian(x[:, 4:], 0.0, 1.0)
    residual = (y - arm(x)) / 0.05
    parts = np.column_stack([corruption, x[:, 4:], residual, x[:, :2]])
    for i in range(parts.shape[1]):
        for j in range(i):
            check_uncorrelated(parts[:, i], parts[:, j])


def test_robot_arm_errors():
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="`inputs` must be 2 or 6, but is 4"):
        datasets.robot_arm(5, key=key, inputs=4)
    with pytest.raises(ValueError, match="`output` must be 0, 1 or None for both, but is 2"):
        datasets.robot_arm(5, key=key, output=2)


# --- scikit-learn -----------------------------------------------------------------------------


def test_wdbc():
    pytest.importorskip("sklearn")
    x, y = datasets.wdbc()
    assert x.shape == (569, 30)
    assert x.dtype == y.dtype == jnp.result_type(float)
    assert (np.sum(np.asarray(y) == 1), np.sum(np.asarray(y) == -1)) == (212, 357)
    # Malignant nuclei are the larger ones.
    assert x[y == 1, 0].mean() > x[y == -1, 0].mean()


def test_wdbc_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r'pip install "jaxsvm\[sklearn\]"'):
        datasets.wdbc()

"""Generators against their formulas; files against what is known of them.

Tolerances are five standard errors of the statistic under the generating formula.
"""

import math
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsvm import datasets
from jaxsvm.datasets import Dataset, Split

N = 20_000
ERRORS = 5.0  # how many standard errors are tolerated
HAS_FILES = bool(os.environ.get("JAXSVM_DATA"))
needs_files = pytest.mark.skipif(
    not HAS_FILES, reason="JAXSVM_DATA is not set to a folder with the benchmark files"
)

IDA = {  # training examples, test examples, inputs, published splits
    "banana": (400, 4900, 2, 10),
    "breast_cancer": (200, 77, 9, 10),
    "diabetis": (468, 300, 8, 0),
    "flare_solar": (666, 400, 9, 1),
    "german": (700, 300, 20, 10),
    "heart": (170, 100, 13, 10),
    "image": (1300, 1010, 18, 9),
    "ringnorm": (400, 7000, 20, 10),
    "splice": (1000, 2175, 60, 1),
    "thyroid": (140, 75, 5, 1),
    "titanic": (150, 2051, 3, 10),
    "twonorm": (400, 7000, 20, 1),
    "waveform": (400, 4600, 21, 10),
}


class Laplace:
    """A stub of a noise model."""

    def sample_noise(self, shape, *, key):
        return 0.1 * jax.random.laplace(key, shape)


def _sinc(n, *, key):
    return datasets.sinc(n, noise=Laplace(), key=key)


def _robot_arm_six(n, *, key):
    return datasets.robot_arm(n, key=key, inputs=6)


GENERATORS = {
    "twonorm": (datasets.twonorm, 20, ()),
    "ringnorm": (datasets.ringnorm, 20, ()),
    "waveform": (datasets.waveform, 21, ()),
    "sinc": (_sinc, 1, ()),
    "robot_arm": (datasets.robot_arm, 2, (2,)),
    "robot_arm_six": (_robot_arm_six, 6, (2,)),
}
CLASSIFICATION = {"twonorm": 1 / 2, "ringnorm": 1 / 2, "waveform": 1 / 3}


def _draw(generator, seed=0, n=N, **options):
    x, y = generator(n, key=jax.random.key(seed), **options)
    return np.asarray(x, np.float64), np.asarray(y, np.float64)


def _check_mean(sample, mean, variance):
    """The mean over rows is `mean` up to its standard error, column by column."""
    error = np.sqrt(np.asarray(variance) / len(sample))
    assert np.all(np.abs(sample.mean(axis=0) - mean) < ERRORS * error)


def _check_gaussian(sample, mean, variance):
    _check_mean(sample, mean, variance)
    # The squared deviation of a Gaussian has mean σ² and variance 2σ⁴.
    _check_mean((sample - mean) ** 2, variance, 2 * np.asarray(variance) ** 2)


def _check_uniform(sample, low, high):
    assert sample.min() >= low - 1e-6 and sample.max() <= high + 1e-6
    width = high - low
    _check_mean(sample, (low + high) / 2, width**2 / 12)
    _check_mean((sample - (low + high) / 2) ** 2, width**2 / 12, width**4 / 180)


def _check_uncorrelated(a, b):
    assert abs(np.corrcoef(a, b)[0, 1]) < ERRORS / math.sqrt(len(a))


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
    _, y = _draw(GENERATORS[name][0])
    assert set(np.unique(y)) == {-1.0, 1.0}
    _check_mean(y > 0, probability, probability * (1 - probability))


# --- Each generator against its formula -------------------------------------------------------


def test_twonorm_moments_and_bayes_error():
    x, y = _draw(datasets.twonorm)
    a = 2 / math.sqrt(20)
    _check_gaussian(x[y > 0], a, 1.0)
    _check_gaussian(x[y < 0], -a, 1.0)
    _check_uncorrelated(x[y > 0, 0], x[y > 0, 1])
    bayes = 0.5 * math.erfc(2 / math.sqrt(2))  # Φ(-2) = 0.0228
    assert bayes == pytest.approx(0.023, abs=5e-4)
    _check_mean(np.sign(x.sum(axis=1)) != y, bayes, bayes * (1 - bayes))


@pytest.mark.parametrize("a", [None, 2 / math.sqrt(20)])
def test_ringnorm_moments_and_covariance_traces(a):
    x, y = _draw(datasets.ringnorm, **({} if a is None else {"center": a}))
    wide, narrow = x[y > 0], x[y < 0]
    _check_gaussian(wide, 0.0, 4.0)
    _check_gaussian(narrow, 1 / math.sqrt(20) if a is None else a, 1.0)
    for sample, variance in ((wide, 4.0), (narrow, 1.0)):
        trace = np.trace(np.cov(sample, rowvar=False))
        # A trace sums twenty independent variance estimates, each with variance 2σ⁴/n.
        error = variance * math.sqrt(2 * 20 / len(sample))
        assert abs(trace - 20 * variance) < ERRORS * error
        _check_uncorrelated(sample[:, 3], sample[:, 7])


def _wave(peak):
    return np.array([max(6 - abs(i - peak), 0) for i in range(1, 22)], dtype=float)


def test_waveform_moments():
    x, y = _draw(datasets.waveform)
    early, middle, late = _wave(7), _wave(11), _wave(15)
    # With u uniform, u h + (1 - u) h' has mean (h + h')/2 and variance (h - h')²/12.
    _check_mean(x[y > 0], (middle + early) / 2, 1 + (middle - early) ** 2 / 12)
    pairs = [(middle, late), (late, early)]
    means = np.array([(h + g) / 2 for h, g in pairs])
    variance = 1 + np.mean([(h - g) ** 2 / 12 for h, g in pairs], axis=0) + means.var(axis=0)
    _check_mean(x[y < 0], means.mean(axis=0), variance)
    # The class +1 mixes waves that are zero from the seventeenth input on: there is only noise.
    _check_gaussian(x[y > 0][:, 16:], 0.0, 1.0)


def test_sinc_with_and_without_noise():
    x, y = _draw(datasets.sinc, noise=None)
    _check_uniform(x[:, 0], -10.0, 10.0)
    np.testing.assert_allclose(y, np.sin(np.abs(x[:, 0])) / np.abs(x[:, 0]), atol=2e-6)
    noisy_x, noisy_y = _draw(datasets.sinc, noise=Laplace())
    np.testing.assert_array_equal(noisy_x, x)
    noise = noisy_y - y
    # Laplace noise of scale b: variance 2b², fourth moment 24b⁴, so Var e² = 20b⁴.
    _check_mean(noise, 0.0, 2 * 0.1**2)
    _check_mean(noise**2, 2 * 0.1**2, 20 * 0.1**4)
    _check_uncorrelated(noise, x[:, 0])


def test_sinc_interval_and_value_at_zero():
    x, _ = _draw(datasets.sinc, noise=None, low=2.0, high=5.0)
    _check_uniform(x[:, 0], 2.0, 5.0)
    tiny = datasets.sinc(50, noise=None, key=jax.random.key(0), low=-1e-30, high=1e-30)
    np.testing.assert_array_equal(tiny.y, 1.0)
    with pytest.raises(ValueError, match=r"`low` must be less than `high`.* 3.0 and 1.0"):
        datasets.sinc(5, noise=None, key=jax.random.key(0), low=3.0, high=1.0)


def test_sinc_noise_must_be_a_noise_model():
    with pytest.raises(TypeError, match=r"method `sample_noise\(shape, \*, key\)`.*but is 0\.1"):
        datasets.sinc(5, noise=0.1, key=jax.random.key(0))  # pyright: ignore[reportArgumentType]


def _arm(x):
    first, both = x[:, 0], x[:, 0] + x[:, 1]
    return np.stack(
        [2 * np.cos(first) + 1.3 * np.cos(both), 2 * np.sin(first) + 1.3 * np.sin(both)], axis=1
    )


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_robot_arm_angles_and_targets(noise):
    x, y = _draw(datasets.robot_arm, noise=noise)
    _check_mean(x[:, 0] > 0, 0.5, 0.25)
    _check_uniform(np.abs(x[:, 0]), 0.453, 1.932)
    _check_uniform(x[:, 1], 0.534, 3.142)
    _check_uncorrelated(x[:, 0], x[:, 1])
    _check_gaussian(y - _arm(x), 0.0, noise**2)


def test_robot_arm_outputs():
    _, both = _draw(datasets.robot_arm, n=30)
    for output in (0, 1):
        _, one = _draw(datasets.robot_arm, n=30, output=output)
        np.testing.assert_array_equal(one, both[:, output])
    _, clean = _draw(datasets.robot_arm, n=30, noise=0.0)
    x, _ = _draw(datasets.robot_arm, n=30)
    np.testing.assert_allclose(clean, _arm(x), atol=1e-5)


def test_robot_arm_with_six_inputs():
    x, y = _draw(datasets.robot_arm, inputs=6)
    two, targets = _draw(datasets.robot_arm)
    np.testing.assert_array_equal(x[:, :2], two)
    np.testing.assert_array_equal(y, targets)
    corruption = (x[:, 2:4] - x[:, :2]) / 0.02
    _check_gaussian(corruption, 0.0, 1.0)
    _check_gaussian(x[:, 4:], 0.0, 1.0)
    residual = (y - _arm(x)) / 0.05
    parts = np.column_stack([corruption, x[:, 4:], residual, x[:, :2]])
    for i in range(parts.shape[1]):
        for j in range(i):
            _check_uncorrelated(parts[:, i], parts[:, j])


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


# --- A folder of files made up here -----------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 2)), np.array([1, -1, 1, -1, 1, -1], dtype=np.int8)
    order = np.stack([rng.permutation(6) for _ in range(3)]).astype(np.int16)
    np.savez(
        tmp_path / "ida_toy.npz",
        X=x,
        y=y,
        train_idx=order[:, :4],
        test_idx=order[:, 4:],
        published=np.array([True, False, False]),
    )
    np.savez(tmp_path / "own.npz", X=x, y=y)
    np.savez(tmp_path / "strange.npz", inputs=x, targets=y)
    np.savez(tmp_path / "pickled.npz", X=x, y=np.array([None] * 6, dtype=object))
    np.savez(tmp_path / "santafe_laser_a.npz", series=np.arange(30), n_train=np.int16(20))
    monkeypatch.setenv("JAXSVM_DATA", str(tmp_path))
    return tmp_path


def test_available_lists_the_folder(folder):
    assert datasets.available() == ("ida_toy", "own", "pickled", "santafe_laser_a", "strange")


def test_partitioned_file(folder):
    whole = datasets.load("toy")
    assert isinstance(whole, Dataset)
    np.testing.assert_array_equal(whole.x, datasets.load("ida_toy").x)
    with np.load(folder / "ida_toy.npz") as file:
        train, test = file["train_idx"], file["test_idx"]
    for k in range(3):
        split = datasets.load("toy", k)
        assert isinstance(split, Split)
        np.testing.assert_array_equal(split.x_train, whole.x[train[k]])
        np.testing.assert_array_equal(split.y_train, whole.y[train[k]])
        np.testing.assert_array_equal(split.x_test, whole.x[test[k]])
        np.testing.assert_array_equal(split.y_test, whole.y[test[k]])
    assert datasets.published("toy").tolist() == [True, False, False]
    assert datasets.published("toy").dtype == bool


def test_laser_embedding(folder):
    x, y = datasets.load("santafe_laser_a")
    assert x.shape == (22, 8)
    np.testing.assert_array_equal(x[0], np.arange(8))
    np.testing.assert_array_equal(y, np.arange(8, 30))
    split = datasets.load("santafe_laser_a", 0, lags=3)
    np.testing.assert_array_equal(split.y_train, np.arange(3, 20))
    np.testing.assert_array_equal(split.y_test, np.arange(20, 30))
    np.testing.assert_array_equal(split.x_test[0], [17, 18, 19])
    for lags in (0, 20):
        with pytest.raises(ValueError, match=f"`lags` must be from 1 to 19, but is {lags}"):
            datasets.load("santafe_laser_a", lags=lags)


def test_file_errors(folder):
    with pytest.raises(ValueError, match=r"no data set 'bananas' .*ida_toy, own, pickled"):
        datasets.load("bananas")
    with pytest.raises(ValueError, match="no data set"):
        datasets.load("../own")
    with pytest.raises(ValueError, match="'own' has no splits: leave `split` out"):
        datasets.load("own", 0)
    for split in (3, -1):
        with pytest.raises(
            ValueError, match=f"`split` must be from 0 to 2 for 'ida_toy', but is {split}"
        ):
            datasets.load("toy", split)
    with pytest.raises(ValueError, match="`split` must be 0 for 'santafe_laser_a', but is 1"):
        datasets.load("santafe_laser_a", 1)
    with pytest.raises(ValueError, match="`lags` is for the time series 'santafe_laser_a' only"):
        datasets.load("toy", lags=4)
    with pytest.raises(ValueError, match="must hold arrays `X` and `y`, but holds inputs, targets"):
        datasets.load("strange")
    with pytest.raises(ValueError, match="'own' does not say which of its splits are published"):
        datasets.published("own")
    with pytest.raises(ValueError, match="allow_pickle"):
        datasets.load("pickled")


def test_empty_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXSVM_DATA", str(tmp_path))
    assert datasets.available() == ()
    with pytest.raises(ValueError, match=r"it holds no \.npz files"):
        datasets.load("banana")


def test_folder_errors(tmp_path, monkeypatch):
    calls = (
        datasets.available,
        lambda: datasets.load("banana"),
        lambda: datasets.published("banana"),
    )
    for call in calls:
        monkeypatch.setenv("JAXSVM_DATA", str(tmp_path / "nowhere"))
        with pytest.raises(FileNotFoundError, match=r"JAXSVM_DATA must be .*no folder .*nowhere"):
            call()
        for setting in ("", None):
            if setting is None:
                monkeypatch.delenv("JAXSVM_DATA")
            else:
                monkeypatch.setenv("JAXSVM_DATA", setting)
            with pytest.raises(
                FileNotFoundError, match=r"set the environment variable JAXSVM_DATA"
            ):
                call()


# --- The benchmark files themselves -----------------------------------------------------------


def _check_floats(*arrays):
    for array in arrays:
        assert isinstance(array, jax.Array)
        assert array.dtype == jnp.result_type(float)
        assert np.isfinite(array).all()


@needs_files
@pytest.mark.parametrize("name", IDA)
def test_ida(name):
    n_train, n_test, inputs, n_published = IDA[name]
    x, y = datasets.load(name)
    _check_floats(x, y)
    assert x.shape == (n_train + n_test, inputs)
    assert y.shape == (n_train + n_test,)
    assert set(np.unique(y)) == {-1.0, 1.0}
    assert datasets.published(name).tolist() == [k < n_published for k in range(20)]
    pool = np.column_stack([x, y])
    pool = pool[np.lexsort(pool.T)]
    for k in (0, 19):
        split = datasets.load(f"ida_{name}", split=k)
        assert split.x_train.shape == (n_train, inputs)
        assert split.x_test.shape == (n_test, inputs)
        rows = np.concatenate(
            [
                np.column_stack([split.x_train, split.y_train]),
                np.column_stack([split.x_test, split.y_test]),
            ]
        )
        np.testing.assert_array_equal(rows[np.lexsort(rows.T)], pool)
    with pytest.raises(ValueError, match="from 0 to 19"):
        datasets.load(name, 20)


@needs_files
@pytest.mark.parametrize("name", CLASSIFICATION)
def test_generated_class_means_agree_with_the_file(name):
    options = {"center": 2 / math.sqrt(20)} if name == "ringnorm" else {}
    x, y = _draw(GENERATORS[name][0], **options)
    x = (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)  # as the files are
    file = datasets.load(name)
    for label in (-1, 1):
        ours, theirs = x[y == label], np.asarray(file.x)[np.asarray(file.y) == label]
        error = np.sqrt(ours.var(axis=0) * (1 / len(ours) + 1 / len(theirs)))
        assert np.all(np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) < ERRORS * error)


@needs_files
def test_waveform_classes_fit_the_file_best():
    # Of the three pairs of waves, the file's class +1 is nearest to the one that we give +1.
    file = datasets.load("waveform")
    theirs = np.asarray(file.x)[np.asarray(file.y) > 0].mean(axis=0)
    waves = [_wave(7), _wave(11), _wave(15)]
    pairs = [(0, 1), (1, 2), (0, 2)]
    means = np.array([(waves[i] + waves[j]) / 2 for i, j in pairs])
    within = 1 + np.mean([(waves[i] - waves[j]) ** 2 / 12 for i, j in pairs], axis=0)
    standardized = (means - means.mean(axis=0)) / np.sqrt(within + means.var(axis=0))
    distances = np.abs(standardized - theirs).max(axis=1)
    assert distances[0] < 0.1 < 1.0 < distances[1:].min()


@needs_files
def test_pima_is_always_split():
    for split in (None, 0):
        data = datasets.load("pima_ripley", split)
        assert isinstance(data, Split)
        _check_floats(*data)
        assert data.x_train.shape == (200, 7)
        assert data.x_test.shape == (332, 7)
        assert [np.sum(np.asarray(y) == 1) for y in (data.y_train, data.y_test)] == [68, 109]
        assert set(np.unique(data.y_train)) == set(np.unique(data.y_test)) == {-1.0, 1.0}
    with pytest.raises(ValueError, match="`split` must be 0"):
        datasets.load("pima_ripley", 1)


@needs_files
@pytest.mark.parametrize(
    ("name", "shape", "positive"),
    [
        ("crabs", (200, 5), 100),
        ("wbc_original", (683, 9), 239),
        ("boston", (506, 13), None),
        ("cpu_act", (8192, 21), None),
        ("abalone", (4177, 8), None),
    ],
)
def test_sets_without_splits(name, shape, positive):
    x, y = datasets.load(name)
    _check_floats(x, y)
    assert x.shape == shape
    assert y.shape == shape[:1]
    if positive is not None:
        assert set(np.unique(y)) == {-1.0, 1.0}
        assert np.sum(np.asarray(y) == 1) == positive
    with pytest.raises(ValueError, match=f"'{name}' has no splits"):
        datasets.load(name, 0)


@needs_files
def test_abalone_sex_codes():
    x, y = datasets.load("abalone")
    codes, counts = np.unique(x[:, 0], return_counts=True)
    assert dict(zip(codes.tolist(), counts.tolist(), strict=True)) == {
        -1.0: 1307,  # F
        0.0: 1342,  # I
        1.0: 1528,  # M
    }
    assert (float(y.min()), float(y.max())) == (1.0, 29.0)


@needs_files
def test_robot_arm_file():
    x, y = datasets.load("robot_arm")
    _check_floats(x, y)
    assert x.shape == y.shape == (600, 2)
    residual = np.asarray(y, np.float64) - _arm(np.asarray(x, np.float64))
    _check_gaussian(residual, 0.0, 0.05**2)
    split = datasets.load("robot_arm", 0)
    np.testing.assert_array_equal(split.x_train, x[:200])
    np.testing.assert_array_equal(split.y_train, y[:200])
    np.testing.assert_array_equal(split.x_test, x[200:400])
    np.testing.assert_array_equal(split.y_test, y[200:400])


@needs_files
def test_laser_file():
    x, y = datasets.load("santafe_laser_a")
    _check_floats(x, y)
    assert x.shape == (10093 - 8, 8)
    np.testing.assert_array_equal(x[0, :5], [86, 141, 95, 41, 22])
    split = datasets.load("santafe_laser_a", split=0)
    assert split.x_train.shape == (1000 - 8, 8)
    assert split.x_test.shape == (9093, 8)
    np.testing.assert_array_equal(
        split.x_test[0], np.append(split.x_train[-1, 1:], split.y_train[-1])
    )
    np.testing.assert_array_equal(np.append(split.y_train, split.y_test), y)


@needs_files
def test_every_file_loads():
    for name in datasets.available():
        assert isinstance(datasets.load(name), Dataset | Split)

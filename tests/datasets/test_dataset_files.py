"""Files of benchmark data: a folder made up here, and the benchmark files where there are any."""

import io
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference_datasets import CLASSIFICATION, ERRORS, GENERATORS, draw, wave

from jaxsvm import datasets
from jaxsvm.datasets import Dataset, Split

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
    monkeypatch.setenv("JAXSVM_DATA", str(tmp_path))
    return tmp_path


def test_available_lists_the_folder(folder):
    assert datasets.available() == ("ida_toy", "own", "pickled", "strange")


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
    assert set(datasets.arrays("toy")) == {"X", "y", "train_idx", "test_idx", "published"}
    np.testing.assert_array_equal(datasets.arrays("ida_toy")["train_idx"], train)


def test_file_errors(folder):
    with pytest.raises(ValueError, match=r"no data set 'bananas' .*ida_toy, own, pickled"):
        datasets.load("bananas")
    with pytest.raises(ValueError, match="no data set"):
        datasets.load("../own")
    with pytest.raises(ValueError, match="'own' has no splits: omit `split`"):
        datasets.load("own", 0)
    for split in (3, -1):
        with pytest.raises(
            ValueError, match=f"`split` must be from 0 to 2 for 'ida_toy', but is {split}"
        ):
            datasets.load("toy", split)
    with pytest.raises(ValueError, match="must hold arrays `X`, `y`, but holds inputs, targets"):
        datasets.load("strange")
    with pytest.raises(ValueError, match="no data set 'bananas'"):
        datasets.arrays("bananas")
    with pytest.raises(ValueError, match="allow_pickle"):
        datasets.load("pickled")


def test_a_single_split_may_be_a_vector(folder):
    x, y = np.arange(12.0).reshape(6, 2), np.array([1, -1, 1, -1, 1, -1])
    np.savez(folder / "single.npz", X=x, y=y, train_idx=np.array([0, 2, 3]), test_idx=np.array([5]))
    split = datasets.load("single", 0)
    np.testing.assert_array_equal(split.x_train, x[[0, 2, 3]])
    np.testing.assert_array_equal(split.y_test, y[[5]])
    with pytest.raises(ValueError, match="`split` must be 0 for 'single', but is 1"):
        datasets.load("single", 1)


def test_damaged_files(folder):
    whole = (folder / "ida_toy.npz").read_bytes()
    random = np.random.default_rng(0)
    for length in random.integers(0, len(whole), 20):
        (folder / "ida_toy.npz").write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is damaged, or not a file of NumPy arrays"):
            datasets.load("toy")
    with np.load(io.BytesIO(whole)) as file:
        arrays = dict(file)
    for name, value, words in (
        (
            "train_idx",
            arrays["train_idx"] + 1000,
            "must be row indices from 0 to .*, with one row for each split",
        ),
        (
            "train_idx",
            arrays["train_idx"].astype(float),
            "must be row indices from 0 to .*, with one row for each split",
        ),
        (
            "test_idx",
            arrays["test_idx"][:1],
            "must be row indices from 0 to .*, with one row for each split",
        ),
        ("X", arrays["X"].astype(str), "`X` in the file of 'ida_toy' must be numbers"),
        ("y", None, "must hold arrays `X`, `y`, `train_idx`, `test_idx`"),
        ("test_idx", None, "must hold arrays `X`, `y`, `train_idx`, `test_idx`"),
    ):
        changed = {key: array for key, array in arrays.items() if key != name}
        np.savez(folder / "ida_toy.npz", **changed | ({} if value is None else {name: value}))
        with pytest.raises(ValueError, match=words):
            datasets.load("toy", 0)


def test_empty_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXSVM_DATA", str(tmp_path))
    assert datasets.available() == ()
    with pytest.raises(ValueError, match=r"it holds no \.npz files"):
        datasets.load("banana")


def test_folder_errors(tmp_path, monkeypatch):
    calls = (
        datasets.available,
        lambda: datasets.load("banana"),
        lambda: datasets.arrays("banana"),
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
    published = datasets.arrays(name)["published"]
    assert published.tolist() == [k < n_published for k in range(20)]
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
@pytest.mark.parametrize("name", sorted(set(CLASSIFICATION) - {"noisy_xor"}))
def test_generated_class_means_agree_with_the_file(name):
    x, y = draw(GENERATORS[name][0])
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
    waves = [wave(7), wave(11), wave(15)]
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
        ("wbc_original", (683, 9), 239),
        ("boston", (506, 13), None),
        ("cpu_act", (8192, 21), None),
        ("abalone", (4177, 7), None),
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
def test_every_file_loads():
    for name in set(datasets.available()) - {"crabs", "robot_arm", "santafe_laser_a"}:
        assert isinstance(datasets.load(name), Dataset | Split)

"""Benchmark data read from a folder of the user's, and from scikit-learn."""

import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ._types import Dataset, Split

_VARIABLE = "JAXSVM_DATA"
_LASER = "santafe_laser_a"
_SEX_CODES = {"F": -1.0, "I": 0.0, "M": 1.0}


def available() -> tuple[str, ...]:
    """The names that `load` accepts: those of the `.npz` files in the folder `JAXSVM_DATA`.

    **Returns:**

    The names without ".npz", in alphabetical order.
    """
    return tuple(sorted(path.stem for path in _folder().glob("*.npz")))


@overload
def load(name: str, split: None = None, *, lags: int | None = None) -> Dataset | Split: ...
@overload
def load(name: str, split: int, *, lags: int | None = None) -> Split: ...
def load(name: str, split: int | None = None, *, lags: int | None = None) -> Dataset | Split:
    """A benchmark set from the folder that the environment variable `JAXSVM_DATA` names.

    The package holds no benchmark data itself: the folder is one of your own, with a file
    `<name>.npz` for each set. Values come as stored (nothing is standardized here), as arrays of
    JAX's default floating-point type; class labels are -1 and +1.

    | name | without `split` | with `split` |
    |---|---|---|
    | `ida_*` (the prefix may be left out) | `Dataset` of all examples | `Split` number 0, 1, ... |
    | `pima_ripley` | the `Split` of Ripley's book | 0: the same |
    | `crabs` | `Dataset`; five measurements, male = +1, female = -1 | none |
    | `wbc_original` | `Dataset`; nine inputs, malignant = +1 | none |
    | `boston`, `cpu_act` | `Dataset` | none |
    | `abalone` | `Dataset`; eight inputs, see below | none |
    | `robot_arm` | `Dataset`; two targets | 0: first 200 to train, second 200 to test |
    | `santafe_laser_a` | `Dataset` of lagged values, see below | 0: cut where the competition cut |

    The sex of an abalone is its first input, coded F = -1, I (infant) = 0, M = +1. Where a paper
    uses three indicators instead, `jax.nn.one_hot(x[:, 0].astype(int) + 1, 3)` gives them.

    The laser series s becomes the regression problem

        x_t = (s_{t-lags}, ..., s_{t-1}),    y_t = s_t,

    oldest value first. `split=0` trains on every target among the first 1000 values and tests on
    every later one; the inputs of the first tests reach back into the training part. The
    competition, and Chu, Keerthi and Ong, test on the first hundred of these: `x_test[:100]`,
    `y_test[:100]`.

    Other files are read too, if they hold arrays `X` and `y`, and for splits the rows' numbers
    `train_idx` and `test_idx`, one line for each split, or a vector for a single split.

    **Arguments:**

    - `name`: the name of the set, one of `available()`.
    - `split`: the number of the split, from zero; `published` says which splits of an IDA set are
        those of the literature.
    - `lags`: how many previous values of the laser series make an input; 8 if not given. No other
        set takes it.

    **Returns:**

    A `Dataset` or a `Split`, as in the table.

    Rätsch, Onoda and Müller, "Soft margins for AdaBoost", Machine Learning 42, 2001 (IDA); Ripley,
    "Pattern Recognition and Neural Networks", 1996 (Pima); [CKO04], IEEE Transactions on Neural Networks
    15, 2004, section VII (regression sets).
    """
    name, fields = _read(name)
    if lags is not None and name != _LASER:
        raise ValueError(f"`lags` is for the time series {_LASER!r} only; {name!r} takes none")
    if "train_idx" in fields:
        return _partitioned(name, fields, split)
    if "X_train" in fields:
        _check_split(name, split, 1)
        parts = ("X_train", "y_train", "X_test", "y_test")
        _require(name, fields, *parts)
        return Split(*(_floats(fields[part]) for part in parts))
    if name == _LASER:
        return _laser(fields, split, 8 if lags is None else lags)
    if name == "robot_arm":
        _check_split(name, split, 1)
        _require(name, fields, "X", "Y")
        train, test = slice(0, 200), slice(200, 400)
        return _select(fields["X"], fields["Y"], None if split is None else (train, test))
    _check_split(name, split, 0)
    if name == "crabs":
        _require(name, fields, "X", "sex")
        return Dataset(_floats(fields["X"]), _floats(fields["sex"]))
    if name == "abalone":
        _require(name, fields, "X", "y")
        letters: list[Any] = fields["sex"].tolist() if "sex" in fields else []
        if len(letters) != len(fields["X"]) or not set(letters) <= set(_SEX_CODES):
            raise ValueError("`sex` in the file of 'abalone' must be F, I or M")
        sex = np.array([_SEX_CODES[letter] for letter in letters])
        return Dataset(_floats(np.column_stack([sex, fields["X"]])), _floats(fields["y"]))
    _require(name, fields, "X", "y")
    return Dataset(_floats(fields["X"]), _floats(fields["y"]))


def published(name: str) -> Bool[Array, " splits"]:
    """Which splits of an IDA set are realizations published with the collection.

    The others are random splits of the same sizes: results on them compare with those of the
    literature only as averages over other draws.

    **Arguments:**

    - `name`: the name of the set, as for `load`.

    **Returns:**

    One truth value for each split that `load(name, split)` knows.
    """
    name, fields = _read(name)
    if "published" not in fields:
        raise ValueError(
            f"{name!r} does not say which of its splits are published: only IDA sets do"
        )
    return jnp.asarray(fields["published"], dtype=bool)


def wdbc() -> Dataset:
    """The Wisconsin diagnostic breast cancer data, through scikit-learn.

    **Returns:**

    A `Dataset` of 569 examples with 30 inputs, not standardized; malignant = +1, benign = -1.

    Street, Wolberg and Mangasarian, "Nuclear feature extraction for breast tumor diagnosis", 1993.
    """
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise ImportError(
            "`wdbc` reads the copy that comes with scikit-learn, which is not installed: "
            'pip install "jaxsvm[sklearn]"'
        ) from error
    bunch: Any = load_breast_cancer()
    malignant = bunch.target == list(bunch.target_names).index("malignant")
    return Dataset(_floats(bunch.data), _floats(np.where(malignant, 1, -1)))


def _folder() -> Path:
    value = os.environ.get(_VARIABLE, "")
    if not value:
        raise FileNotFoundError(
            "the benchmark data are not part of the package: set the environment variable "
            f"{_VARIABLE} to the path of the folder that holds their .npz files"
        )
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"the environment variable {_VARIABLE} must be the path of a folder with .npz files, "
            f"but there is no folder {str(folder)!r}"
        )
    return folder


def _read(name: str) -> tuple[str, Mapping[str, np.ndarray]]:
    """The full name of a set, and the arrays in its file."""
    names = available()
    for full in (name, f"ida_{name}"):
        # Looked up among the folder's own names, so that a name cannot lead out of the folder.
        if full in names:
            return full, _arrays(_folder() / f"{full}.npz")
    raise ValueError(
        f"there is no data set {name!r} in the folder {str(_folder())!r} ({_VARIABLE}); it holds "
        f"{_listed(names)}"
    )


def _arrays(path: Path) -> Mapping[str, np.ndarray]:
    try:
        # opened here, since NumPy leaves a file open that it cannot read
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return dict(file)
    except Exception as error:  # NumPy's reader fails in many ways on a damaged file
        raise ValueError(f"{path} is damaged, or not a file of NumPy arrays: {error}") from error


def _require(name: str, fields: Mapping[str, np.ndarray], *wanted: str) -> None:
    """Raise where a file lacks an array, or holds something else than numbers in it."""
    if not set(wanted) <= set(fields):
        listed = ", ".join(f"`{array}`" for array in wanted)
        raise ValueError(
            f"the file of {name!r} must hold arrays {listed}, but holds {_listed(fields)}"
        )
    for array in wanted:
        if fields[array].dtype.kind not in "biuf":
            raise ValueError(
                f"`{array}` in the file of {name!r} must be numbers, but is {fields[array].dtype}"
            )


def _partitioned(name: str, fields: Mapping[str, np.ndarray], split: int | None) -> Dataset | Split:
    _require(name, fields, "X", "y", "train_idx", "test_idx")
    train, test = (np.atleast_2d(fields[part]) for part in ("train_idx", "test_idx"))
    count = len(fields["X"])
    for rows in (train, test):
        whole = rows.dtype.kind in "iu" and rows.ndim == 2 and len(rows) == len(train)
        if not whole or not np.all((rows >= 0) & (rows < count)):
            raise ValueError(
                f"the splits in the file of {name!r} are not rows from 0 to {count - 1}"
            )
    _check_split(name, split, len(train))
    rows = None if split is None else (train[split], test[split])
    return _select(fields["X"], fields["y"], rows)


def _laser(fields: Mapping[str, np.ndarray], split: int | None, lags: int) -> Dataset | Split:
    _check_split(_LASER, split, 1)
    _require(_LASER, fields, "n_train", "series")
    n_train = int(fields["n_train"])
    if not 1 <= operator.index(lags) < n_train:
        raise ValueError(f"`lags` must be from 1 to {n_train - 1}, but is {lags}")
    windows = np.lib.stride_tricks.sliding_window_view(fields["series"], lags + 1)
    cut = n_train - lags  # row i predicts value i + lags
    rows = None if split is None else (slice(0, cut), slice(cut, None))
    return _select(windows[:, :-1], windows[:, -1], rows)


def _select(x: np.ndarray, y: np.ndarray, rows: tuple[Any, Any] | None) -> Dataset | Split:
    """All of the examples, or the training rows and the test rows of them."""
    if rows is None:
        return Dataset(_floats(x), _floats(y))
    # Rows are picked in NumPy: JAX would compile a gather for the shape of every set.
    train, test = rows
    return Split(_floats(x[train]), _floats(y[train]), _floats(x[test]), _floats(y[test]))


def _check_split(name: str, split: int | None, count: int) -> None:
    if split is None:
        return
    if count == 0:
        raise ValueError(f"{name!r} has no splits: leave `split` out and split the data yourself")
    if not 0 <= operator.index(split) < count:
        allowed = "0" if count == 1 else f"from 0 to {count - 1}"
        raise ValueError(f"`split` must be {allowed} for {name!r}, but is {split}")


def _floats(values: np.ndarray) -> Float[Array, "..."]:
    return jnp.asarray(values, dtype=float)


def _listed(names) -> str:
    return ", ".join(names) or "no .npz files"

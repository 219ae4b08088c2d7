"""Benchmark data from the folder `JAXSVM_DATA` and from scikit-learn."""

import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._containers import Dataset, Split

_VARIABLE = "JAXSVM_DATA"


def available() -> tuple[str, ...]:
    """The names that `load` accepts: the `.npz` files in the folder `JAXSVM_DATA`.

    **Returns:**

    The names without ".npz", in alphabetical order.
    """
    return tuple(sorted(path.stem for path in _folder().glob("*.npz")))


@overload
def load(name: str, split: None = None) -> Dataset | Split: ...
@overload
def load(name: str, split: int) -> Split: ...
def load(name: str, split: int | None = None) -> Dataset | Split:
    """A benchmark set from the folder that the environment variable `JAXSVM_DATA` names.

    The package does not include benchmark data. The folder is yours, with a file `<name>.npz` for each data
    set, which holds one of these:

    - arrays `X` and `y`: a `Dataset`;
    - in addition the row indices `train_idx` and `test_idx`, one row for each split, or a vector for a
      single split: a `Dataset`, or with `split` that `Split`;
    - `X_train`, `y_train`, `X_test` and `y_test`: a single `Split`, with `split=0` or without.

    Values are not standardized. They are arrays of JAX's default floating-point type; labels should be -1
    and +1. `arrays` reads files with any other content.

    **Arguments:**

    - `name`: the name of the data set, one of `available()`; the prefix `ida_` is optional.
    - `split`: the number of the split, from zero.

    **Returns:**

    A `Dataset` or a `Split`.

    Rätsch, Onoda and Müller, "Soft margins for AdaBoost", Machine Learning 42, 2001 (the IDA sets).
    """
    name, fields = _read(name)
    if "train_idx" in fields:
        return _partitioned(name, fields, split)
    if "X_train" in fields:
        _check_split(name, split, 1)
        parts = ("X_train", "y_train", "X_test", "y_test")
        _require(name, fields, *parts)
        return Split(*(_floats(fields[part]) for part in parts))
    _check_split(name, split, 0)
    _require(name, fields, "X", "y")
    return Dataset(_floats(fields["X"]), _floats(fields["y"]))


def arrays(name: str) -> dict[str, np.ndarray]:
    """All arrays of a file in the folder `JAXSVM_DATA`, unchanged.

    **Arguments:**

    - `name`: the name of the data set, as for `load`.

    **Returns:**

    NumPy arrays by their names in the file.
    """
    return dict(_read(name)[1])


def wdbc() -> Dataset:
    """The Wisconsin diagnostic breast cancer data, from scikit-learn.

    **Returns:**

    A `Dataset` of 569 examples with 30 inputs, not standardized; malignant = +1, benign = -1.

    Street, Wolberg and Mangasarian, "Nuclear feature extraction for breast tumor diagnosis", 1993.
    """
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise ImportError(
            "`wdbc` needs scikit-learn, which has the data and is not installed: "
            'pip install "jaxsvm[sklearn]"'
        ) from error
    bunch: Any = load_breast_cancer()
    malignant = bunch.target == list(bunch.target_names).index("malignant")
    return Dataset(_floats(bunch.data), _floats(np.where(malignant, 1, -1)))


def _folder() -> Path:
    value = os.environ.get(_VARIABLE, "")
    if not value:
        raise FileNotFoundError(
            "the package does not include benchmark data: set the environment variable "
            f"{_VARIABLE} to the path of a folder with .npz files"
        )
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"the environment variable {_VARIABLE} must be the path of a folder with .npz files, "
            f"but there is no folder {str(folder)!r}"
        )
    return folder


def _read(name: str) -> tuple[str, Mapping[str, np.ndarray]]:
    """The full name of a data set, and the arrays in its file."""
    names = available()
    for full in (name, f"ida_{name}"):
        # looked up among the names in the folder, so that no name leads out of it
        if full in names:
            return full, _arrays(_folder() / f"{full}.npz")
    raise ValueError(
        f"there is no data set {name!r} in the folder {str(_folder())!r} ({_VARIABLE}); it holds "
        f"{_listed(names)}"
    )


def _arrays(path: Path) -> Mapping[str, np.ndarray]:
    try:
        # opened here, since NumPy does not close a file that it cannot read
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return dict(file)
    except Exception as error:  # NumPy's reader fails in many ways on a damaged file
        raise ValueError(f"{path} is damaged, or not a file of NumPy arrays: {error}") from error


def _require(name: str, fields: Mapping[str, np.ndarray], *wanted: str) -> None:
    """Raise if a file lacks an array, or if one does not hold numbers."""
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
                f"`train_idx` and `test_idx` in the file of {name!r} must be row indices from 0 to "
                f"{count - 1}, with one row for each split"
            )
    _check_split(name, split, len(train))
    x, y = fields["X"], fields["y"]
    if split is None:
        return Dataset(_floats(x), _floats(y))
    # with NumPy, since JAX would compile a program for the shape of every data set
    splits = (train[split], test[split])
    return Split(*(_floats(part[rows]) for rows in splits for part in (x, y)))


def _check_split(name: str, split: int | None, count: int) -> None:
    if split is None:
        return
    if count == 0:
        raise ValueError(f"{name!r} has no splits: omit `split`, and split the data yourself")
    if not 0 <= operator.index(split) < count:
        allowed = "0" if count == 1 else f"from 0 to {count - 1}"
        raise ValueError(f"`split` must be {allowed} for {name!r}, but is {split}")


def _floats(values: np.ndarray) -> Float[Array, "..."]:
    return jnp.asarray(values, dtype=float)


def _listed(names) -> str:
    return ", ".join(names) or "no .npz files"

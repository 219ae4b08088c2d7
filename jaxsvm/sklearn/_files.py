"""Estimators in files that hold data and no code."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..persistence import FileError, load_as, save_as
from ._base import AbstractEstimator
from ._binary import Binary
from ._checks import problem_of
from ._data import Scaling
from ._gpc import MeanFieldGPC
from ._lssvc import LSSVC
from ._sigmoid import Sigmoid
from ._svc import BayesianSVC
from ._svr import BayesianSVR, Regression

KIND = "estimator"  # of file
_HINT = "an estimator: read it with `jaxsvm.sklearn.load`"
_ESTIMATORS = {kind.__name__: kind for kind in (BayesianSVC, LSSVC, BayesianSVR, MeanFieldGPC)}
_PARTS = {kind.__name__: kind for kind in (Binary, Regression, Scaling, Sigmoid)}


def save(path: str | Path, estimator: AbstractEstimator) -> None:
    """Write an estimator into a file of the format of `jaxsvm.save`.

    **Arguments:** `path`, of the file, which is replaced at once or not at all; `estimator`, fitted or
    not. Labels must be numbers, truth values or text.
    """
    if type(estimator) not in _ESTIMATORS.values():
        raise TypeError(
            f"`estimator` must be one of `jaxsvm.sklearn`, not {type(estimator).__name__}"
        )
    problem = problem_of(estimator)
    if problem is not None:
        raise ValueError(f"`estimator` cannot be saved: {problem}")
    save_as(KIND, path, described(estimator), hint=_HINT)


def load(path: str | Path, module: Any = None) -> AbstractEstimator:
    """Read an estimator that `jaxsvm.sklearn.save` wrote; it predicts bit for bit the same.

    **Arguments:** `path`, of the file; `module`, which has the functions of custom kernels, as for
    `jaxsvm.load`.

    **Returns:** the estimator.
    """
    with jax.enable_x64(True):
        return rebuilt(load_as(KIND, path, module))


def described(estimator: AbstractEstimator) -> dict[str, Any]:
    """An estimator as a dictionary that `jaxsvm.save` can write, as a part of something larger.

    **Arguments:** `estimator`, fitted or not.

    **Returns:** the dictionary.
    """
    state = {name: _flat(value) for name, value in vars(estimator).items()}
    return {"estimator": type(estimator).__name__, "state": state}


def rebuilt(description: Any) -> AbstractEstimator:
    """The estimator that `described` has made a dictionary of.

    **Arguments:** `description`, as `jaxsvm.load` has read it, with double precision switched on.

    **Returns:** the estimator; raises `FileError` for any other dictionary.
    """
    if not isinstance(description, dict) or set(description) != {"estimator", "state"}:
        raise FileError("it holds something else than an estimator: read it with `jaxsvm.load`")
    name, state = description["estimator"], description["state"]
    kind = _ESTIMATORS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise FileError(f"it names the estimator {name!r}, which this jaxsvm does not know")
    sound = isinstance(state, dict) and all(isinstance(key, str) for key in state)
    if not sound or not set(kind().get_params()) <= set(state):
        raise FileError(f"it lacks a part of a {name}")
    estimator = kind()
    vars(estimator).update({name: _whole(value) for name, value in state.items()})
    problem = problem_of(estimator)
    if problem is not None:
        raise FileError(f"it has a {name} whose parts do not belong together: {problem}")
    return estimator


def _flat(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if type(value) in _PARTS.values():
        fields = {name: _flat(part) for name, part in value._asdict().items()}
        return {"part": type(value).__name__, "fields": fields}
    if isinstance(value, list):
        return [_flat(entry) for entry in value]
    if isinstance(value, np.ndarray) and value.dtype == object:  # text of a data frame
        if not all(isinstance(entry, str) for entry in value.flat):
            kinds = sorted({type(entry).__name__ for entry in value.flat})
            raise TypeError(f"labels of type {', '.join(kinds)} cannot be saved: make them text")
        return {"text": [str(entry) for entry in value]}
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, list):
        return [_whole(entry) for entry in value]
    if isinstance(value, dict) and set(value) == {"part", "fields"}:
        name, fields = value["part"], value["fields"]
        kind: Any = _PARTS.get(name) if isinstance(name, str) else None
        if kind is None or not isinstance(fields, dict) or set(fields) != set(kind._fields):
            raise FileError(f"it has a part {name!r} that this jaxsvm does not know")
        return kind(**{name: _whole(part) for name, part in fields.items()})
    if isinstance(value, dict) and set(value) == {"text"}:
        texts = value["text"]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise FileError("it has labels that are not text")
        return np.array(value["text"], dtype=object)
    return value

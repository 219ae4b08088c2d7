"""Saving and loading estimators, in files that hold data and no code."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import Selection
from ..persistence import FileError, load_as, save_as
from ..posteriors import AbstractPointEstimate, AbstractPosterior
from ._binary import Binary
from ._classifiers import LSSVC, AbstractClassifier, BayesianSVC, MeanFieldGPC
from ._data import Scaling
from ._estimator import AbstractEstimator
from ._regressor import BayesianSVR, Regression
from ._sigmoid import Sigmoid

KIND = "estimator"  # of file
_HINT = "an estimator: read it with `jaxsvm.sklearn.load`"
_ESTIMATORS = {kind.__name__: kind for kind in (BayesianSVC, LSSVC, BayesianSVR, MeanFieldGPC)}
_PARTS = {kind.__name__: kind for kind in (Binary, Regression, Scaling, Sigmoid)}
# the attributes of fitted estimators, and their types
_ALWAYS = {"n_features_in_": int, "n_iter_": int, "scaling_": Scaling}
_OF_CLASSIFIERS = _ALWAYS | {"classes_": np.ndarray, "machines_": list}
_OF_REGRESSORS = _ALWAYS | {
    "regression_": Regression,
    "target_center_": float,
    "target_scale_": float,
}
_OPTIONAL = {"feature_names_in_": np.ndarray}


def save(path: str | Path, estimator: AbstractEstimator) -> None:
    """Write an estimator to a file, in the format of `jaxsvm.save`.

    Parameters
    ----------
    path : str or Path
        The file. An existing one is replaced only when all of the new one is written.
    estimator : estimator of `jaxsvm.sklearn`
        Fitted or not. Labels must be numbers, booleans or text.
    """
    if type(estimator) not in _ESTIMATORS.values():
        raise TypeError(
            f"`estimator` must be one of `jaxsvm.sklearn`, not {type(estimator).__name__}"
        )
    problem = _problem_of(estimator)
    if problem is not None:
        raise ValueError(f"`estimator` cannot be saved: {problem}")
    save_as(KIND, path, described(estimator), hint=_HINT)


def load(path: str | Path, module: Any = None) -> AbstractEstimator:
    """Read an estimator that `jaxsvm.sklearn.save` wrote; its predictions are identical bit for bit.

    Parameters
    ----------
    path : str or Path
        The file.
    module : module, default=None
        Where to look up the functions of custom kernels, as for `jaxsvm.load`.

    Returns
    -------
    AbstractEstimator
        The estimator.
    """
    with jax.enable_x64(True):
        return rebuilt(load_as(KIND, path, module))


def described(estimator: AbstractEstimator) -> dict[str, Any]:
    """An estimator as a dictionary that `jaxsvm.save` can write, for use inside larger structures.

    Parameters
    ----------
    estimator : estimator of `jaxsvm.sklearn`
        Fitted or not.

    Returns
    -------
    dict
        Its class and attributes.
    """
    state = {name: _to_plain(value) for name, value in vars(estimator).items()}
    return {"estimator": type(estimator).__name__, "state": state}


def rebuilt(description: Any) -> AbstractEstimator:
    """The estimator from the dictionary that `described` returned.

    Parameters
    ----------
    description : dict
        As `jaxsvm.load` read it, in double precision.

    Returns
    -------
    AbstractEstimator
        The estimator; raises `FileError` for any other dictionary.
    """
    if not isinstance(description, dict) or set(description) != {"estimator", "state"}:
        raise FileError("it does not hold an estimator: read it with `jaxsvm.load`")
    name, state = description["estimator"], description["state"]
    kind = _ESTIMATORS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise FileError(f"it holds an unknown estimator, {name!r}")
    valid = isinstance(state, dict) and all(isinstance(key, str) for key in state)
    if not valid or not set(kind().get_params()) <= set(state):
        raise FileError(f"it lacks a part of a {name}")
    estimator = kind()
    vars(estimator).update({key: _from_plain(value) for key, value in state.items()})
    problem = _problem_of(estimator)
    if problem is not None:
        raise FileError(f"its {name} is inconsistent: {problem}")
    return estimator


def _to_plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if type(value) in _PARTS.values():
        fields = {name: _to_plain(part) for name, part in value._asdict().items()}
        return {"part": type(value).__name__, "fields": fields}
    if isinstance(value, list):
        return [_to_plain(entry) for entry in value]
    if isinstance(value, np.ndarray) and value.dtype == object:  # text from a data frame
        if not all(isinstance(entry, str) for entry in value.flat):
            kinds = sorted({type(entry).__name__ for entry in value.flat})
            raise TypeError(
                f"labels of type {', '.join(kinds)} cannot be saved: convert them to text"
            )
        return {"text": [str(entry) for entry in value]}
    return value


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_plain(entry) for entry in value]
    if isinstance(value, dict) and set(value) == {"part", "fields"}:
        name, fields = value["part"], value["fields"]
        kind: Any = _PARTS.get(name) if isinstance(name, str) else None
        if kind is None or not isinstance(fields, dict) or set(fields) != set(kind._fields):
            raise FileError(f"it has an unknown part, {name!r}")
        return kind(**{field: _from_plain(part) for field, part in fields.items()})
    if isinstance(value, dict) and set(value) == {"text"}:
        texts = value["text"]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise FileError("its labels are not text")
        return np.array(texts, dtype=object)
    return value


def _problem_of(estimator: AbstractEstimator) -> str | None:
    """What is wrong with the attributes of an estimator, or None.

    The shapes of predictions are checked without computing them.
    """
    is_classifier = isinstance(estimator, AbstractClassifier)
    kinds = _OF_CLASSIFIERS if is_classifier else _OF_REGRESSORS
    attributes = {n: v for n, v in vars(estimator).items() if n not in estimator.get_params()}
    for name, value in attributes.items():
        kind = (kinds | _OPTIONAL).get(name)
        if kind is None and name in dir(type(estimator)):
            return f"`{name}` would hide an attribute of its class"
        if kind is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            return f"`{name}` is a {type(value).__name__}"
    missing = sorted(set(kinds) - set(attributes))
    if missing:  # all are missing before a fit
        return None if len(missing) == len(kinds) else f"`{missing[0]}` is missing"
    inputs, names = attributes["n_features_in_"], attributes.get("feature_names_in_")
    if inputs < 1 or (names is not None and names.shape != (inputs,)):
        return "`n_features_in_` does not agree with `feature_names_in_`, or is not positive"
    if not all(_is_vector(part, inputs) for part in attributes["scaling_"]):
        return f"`scaling_` does not have {inputs} inputs"
    if is_classifier:
        return _problem_of_machines(attributes["classes_"], attributes["machines_"], inputs)
    if not attributes["target_scale_"] > 0 or not np.isfinite(attributes["target_center_"]):
        return "`target_scale_` is not positive, or `target_center_` is not finite"
    return _problem_of_regression(attributes["regression_"], inputs)


def _problem_of_machines(labels: np.ndarray, machines: list, inputs: int) -> str | None:
    if labels.ndim != 1 or len(labels) < 2 or list(labels) != sorted(set(labels.tolist())):
        return "`classes_` are not two or more different labels in order"
    if len(machines) != (1 if len(labels) == 2 else len(labels)):
        return f"it has {len(machines)} machines for {len(labels)} classes"
    for machine in machines:
        if not isinstance(machine, Binary):
            return "`machines_` has an entry of the wrong type"
        predictive, sigmoid = machine.predictive, machine.sigmoid
        has_sigmoid = isinstance(sigmoid, Sigmoid) and all(map(_is_number, sigmoid))
        if isinstance(predictive, AbstractPosterior):
            complete, predict = sigmoid is None or has_sigmoid, predictive.probability
        elif isinstance(predictive, AbstractPointEstimate):
            complete, predict = has_sigmoid, predictive.decision
        else:
            complete, predict = False, None
        if not complete:
            return "one of its machines cannot predict probabilities"
        if not isinstance(machine.search, Selection) or not _is_number(machine.score):
            return "one of its machines has no record of its search"
        evidence = 0.0 if machine.evidence is None else machine.evidence
        if not _is_number(machine.criterion) or not _is_number(evidence):
            return "the criterion or the evidence of one of its machines is not a number"
        if machine.relevance is not None and not _is_vector(machine.relevance, inputs):
            return f"the relevance of one of its machines does not have {inputs} inputs"
        if (problem := _problem_of_shape(predict, inputs)) is not None:
            return problem
    return None


def _problem_of_regression(regression: Regression, inputs: int) -> str | None:
    if not isinstance(regression.posterior, AbstractPosterior) or not isinstance(
        regression.search, Selection
    ):
        return "`regression_` has a part of the wrong type"
    if not _is_number(regression.score) or not _is_number(regression.noise_deviation):
        return "its score or its noise is not a number"
    if regression.relevance is not None and not _is_vector(regression.relevance, inputs):
        return f"its relevance does not have {inputs} inputs"
    return _problem_of_shape(regression.posterior.decision, inputs)


def _problem_of_shape(predict: Any, inputs: int) -> str | None:
    point = jax.ShapeDtypeStruct((1, inputs), np.dtype(np.float64))
    try:
        with jax.enable_x64(True):
            shape = jax.eval_shape(predict, point).shape
    except Exception as error:  # of any kind: wrong shapes fail in many ways
        return f"it cannot predict: {error}"
    return None if shape == (1,) else f"its predictions have shape {shape}"


def _is_vector(value: Any, length: int) -> bool:
    valid = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.shape == (length,)
    return bool(valid and np.isfinite(value).all())


def _is_number(value: Any) -> bool:
    return isinstance(value, float | np.floating)

"""Whether the parts of an estimator from a file belong together."""

from typing import Any

import jax
import numpy as np

from ..posteriors import AbstractPointEstimate, AbstractPosterior
from ..selection import Selection
from ._base import AbstractEstimator
from ._binary import Binary
from ._classifier import AbstractClassifier
from ._data import Scaling
from ._sigmoid import Sigmoid
from ._svr import Regression

_ALWAYS = {"n_features_in_": int, "n_iter_": int, "scaling_": Scaling}
_OF_CLASSIFIERS = _ALWAYS | {"classes_": np.ndarray, "machines_": list}
_OF_REGRESSIONS = _ALWAYS | {
    "regression_": Regression,
    "target_center_": float,
    "target_scale_": float,
}
_OPTIONAL = {"feature_names_in_": np.ndarray}


def problem_of(estimator: AbstractEstimator) -> str | None:
    """What is wrong with the attributes of an estimator; None if nothing is.

    That predictions have the right shapes is seen without computing them.
    """
    is_classifier = isinstance(estimator, AbstractClassifier)
    kinds = _OF_CLASSIFIERS if is_classifier else _OF_REGRESSIONS
    found = {n: v for n, v in vars(estimator).items() if n not in estimator.get_params()}
    for name, value in found.items():
        kind = (kinds | _OPTIONAL).get(name)
        if kind is None and hasattr(type(estimator), name):
            return f"`{name}` would hide a part of its class"
        if kind is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            return f"`{name}` is a {type(value).__name__}"
    missing = sorted(set(kinds) - set(found))
    if missing:  # all are, unless it is fitted
        return None if len(missing) == len(kinds) else f"`{missing[0]}` is missing"
    inputs, names = found["n_features_in_"], found.get("feature_names_in_")
    if inputs < 1 or (names is not None and names.shape != (inputs,)):
        return "the number of its inputs is not clear"
    if not all(_is_vector(part, inputs) for part in found["scaling_"]):
        return f"`scaling_` is not of {inputs} inputs"
    if is_classifier:
        return _problem_of_machines(found["classes_"], found["machines_"], inputs)
    if not found["target_scale_"] > 0 or not np.isfinite(found["target_center_"]):
        return "the scale of its targets is not a positive number"
    return _problem_of_regression(found["regression_"], inputs)


def _is_vector(value: Any, length: int) -> bool:
    sound = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.shape == (length,)
    return bool(sound and np.isfinite(value).all())


def _problem_of_machines(labels: np.ndarray, machines: list, inputs: int) -> str | None:
    if labels.ndim != 1 or len(labels) < 2 or list(labels) != sorted(set(labels.tolist())):
        return "its classes are not at least two different ones in order"
    if len(machines) != (1 if len(labels) == 2 else len(labels)):
        return f"it has {len(machines)} machines for {len(labels)} classes"
    for machine in machines:
        if not isinstance(machine, Binary):
            return "its machines are of another kind"
        predictive, sigmoid = machine.predictive, machine.sigmoid
        if not isinstance(predictive, AbstractPointEstimate | AbstractPosterior):
            return "a machine of it cannot predict"
        if isinstance(predictive, AbstractPosterior):
            complete, predict = sigmoid is None, predictive.probability
        else:
            complete = isinstance(sigmoid, Sigmoid) and all(map(_is_number, sigmoid))
            predict = predictive.decision
        if not complete:
            return "a machine of it cannot predict"
        if not isinstance(machine.search, Selection) or not _is_number(machine.score):
            return "a machine of it does not say where it comes from"
        if (problem := _problem_of_shape(predict, inputs)) is not None:
            return problem
    return None


def _problem_of_regression(found: Regression, inputs: int) -> str | None:
    if not isinstance(found.posterior, AbstractPosterior) or not isinstance(
        found.search, Selection
    ):
        return "its parts are of other kinds"
    if not _is_number(found.score):
        return "its score is not a number"
    return _problem_of_shape(found.posterior.decision, inputs)


def _is_number(value: Any) -> bool:
    return isinstance(value, float | np.floating)


def _problem_of_shape(predict: Any, inputs: int) -> str | None:
    point = jax.ShapeDtypeStruct((1, inputs), np.dtype(np.float64))
    try:
        with jax.enable_x64(True):
            shape = jax.eval_shape(predict, point).shape
    except Exception as error:  # of whatever kind: shapes fail in many ways
        return f"it cannot predict: {error}"
    return None if shape == (1,) else f"its predictions have shape {shape}"

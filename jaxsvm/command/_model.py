"""What `tune` writes and `predict` reads: an estimator, and how a table becomes its inputs."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..persistence import FileError, load_as, save_as
from ._cells import DataError
from ._table import Column

_KIND = "command"  # of file
_HINT = "a model of `jaxsvm tune`: use it with `jaxsvm predict` and `jaxsvm show`"


class SavedModel(NamedTuple):
    """An estimator, the columns of its inputs, the name of its target, and what was measured."""

    estimator: Any
    columns: list[Column]
    target: str
    measured: dict[str, Any]

    @property
    def inputs(self) -> list[str]:
        """The names of all inputs."""
        return [name for column in self.columns for name in column.inputs]

    @property
    def is_classifier(self) -> bool:
        """Whether the target is a class."""
        return hasattr(self.estimator, "classes_")


def require_estimators() -> Any:
    """The estimators, or a clear error if scikit-learn is not installed."""
    try:
        from .. import sklearn
    except ImportError as error:
        raise DataError("this command needs scikit-learn: pip install 'jaxsvm[sklearn]'") from error
    return sklearn


def save(path: Path, model: SavedModel) -> None:
    """Write the model into a file, at once or not at all."""
    from ..sklearn import described

    columns = [list(column) for column in model.columns]
    thing = {"estimator": described(model.estimator), "columns": columns}
    save_as(_KIND, path, thing | {"target": model.target, "measured": model.measured}, hint=_HINT)


def load(path: Path) -> SavedModel:
    """Read such a file; a `FileError` for any other file."""
    require_estimators()
    from ..sklearn import rebuilt

    with jax.enable_x64(True):
        thing = load_as(_KIND, path)
        if not isinstance(thing, dict) or "columns" not in thing:
            raise FileError(f"{path} was not written by `jaxsvm tune`: read it with `jaxsvm.load`")
        if set(thing) != {"estimator", "columns", "target", "measured"}:
            raise FileError(f"{path} lacks a part of the model")
        try:
            estimator = rebuilt(thing["estimator"])
        except FileError as error:
            raise FileError(f"{path} cannot be loaded: {error}") from error
    columns, target, measured = thing["columns"], thing["target"], thing["measured"]
    texts = isinstance(measured, dict) and all(
        isinstance(text, str) for text in (target, *measured, *measured.values())
    )
    if not texts or not isinstance(columns, list) or not all(map(_is_column, columns)):
        raise FileError(f"{path} does not say in a known way what its columns are")
    model = SavedModel(estimator, [Column(*column) for column in columns], target, measured)
    if vars(estimator).get("n_features_in_") != len(model.inputs):
        raise FileError(f"{path} has columns for {len(model.inputs)} inputs, but its model has not")
    return model


def _is_column(entry: Any) -> bool:
    if not isinstance(entry, list | tuple) or len(entry) != 3:
        return False
    name, levels, fill = entry
    known = levels is None or (
        isinstance(levels, list | tuple) and all(isinstance(level, str) for level in levels)
    )
    return isinstance(name, str) and known and isinstance(fill, float) and math.isfinite(fill)


def relevant_inputs(model: SavedModel) -> list[tuple[str, float]]:
    """The inputs and their relevances, the largest first; of many classes, the largest of each."""
    try:
        relevance = np.atleast_2d(model.estimator.relevance_).max(axis=0)
    except AttributeError:
        return []
    order = np.argsort(-relevance, kind="stable")
    return [(model.inputs[place], float(relevance[place])) for place in order]

"""What `tune` writes and `predict` reads: an estimator, and how a table becomes its inputs."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..persistence import FileError, load_as, save_as
from ._table import Column, DataError

_KIND = "command"  # of file


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
    """The estimators, or an error in words where scikit-learn is not there."""
    try:
        from .. import sklearn
    except ImportError as error:
        raise DataError("this command needs scikit-learn: pip install 'jaxsvm[sklearn]'") from error
    return sklearn


def save(path: Path, model: SavedModel) -> None:
    """Write the model into a file, at once or not at all."""
    from ..sklearn._files import described

    columns = [list(column) for column in model.columns]
    thing = {"estimator": described(model.estimator), "columns": columns}
    save_as(_KIND, path, thing | {"target": model.target, "measured": model.measured})


def load(path: Path) -> SavedModel:
    """Read such a file; a `FileError` where it is none."""
    require_estimators()
    from ..sklearn._files import rebuilt

    with jax.enable_x64(True):
        thing = load_as(_KIND, path)
        if not isinstance(thing, dict) or "columns" not in thing:
            raise FileError(f"{path} was not written by `jaxsvm tune`: read it with `jaxsvm.load`")
        try:
            columns = [Column(*column) for column in thing["columns"]]
            return SavedModel(
                rebuilt(thing["estimator"]), columns, thing["target"], thing["measured"]
            )
        except (KeyError, TypeError) as error:
            raise FileError(f"{path} lacks a part of the model") from error


def relevant_inputs(model: SavedModel) -> list[tuple[str, float]]:
    """The inputs and their relevances, the largest first; of many classes, the largest of each."""
    try:
        relevance = np.atleast_2d(model.estimator.relevance_).max(axis=0)
    except AttributeError:
        return []
    order = np.argsort(-relevance, kind="stable")
    return [(model.inputs[place], float(relevance[place])) for place in order]

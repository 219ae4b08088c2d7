"""The models that `tune` writes: measured, saved, loaded, and printed by `jaxsvm show`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import FileError, calibration, format_parameters
from ..numerics import mean_and_deviation
from ..persistence import load_as, save_as
from ._columns import Column
from ._table import DataError, printable

_KIND = "command"  # of file
_HINT = "a model of `jaxsvm tune`: use it with `jaxsvm predict` and `jaxsvm show`"


class SavedModel(NamedTuple):
    """A fitted estimator, the columns of its inputs, the name of its target, and its test results."""

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
        from sklearn.base import is_classifier

        return is_classifier(self.estimator)

    @property
    def relevances(self) -> list[tuple[str, float]]:
        """The inputs and their relevances, the largest first; with many classes, the largest of each."""
        relevance = getattr(self.estimator, "relevance_", None)  # not every kernel has one
        if relevance is None:
            return []
        largest = np.atleast_2d(relevance).max(axis=0)
        order = np.argsort(-largest, kind="stable")
        return [(self.inputs[i], float(largest[i])) for i in order]


def add_to(commands) -> None:
    """Add the subcommand `show` to the parser."""
    parser = commands.add_parser(
        "show",
        help="print what a model file holds",
        description="Print what a model predicts, its test results, the most relevant inputs, and its "
        "hyperparameters.",
    )
    parser.add_argument("model", type=Path, help="a model file written by `jaxsvm tune`")
    parser.set_defaults(run=lambda options: print(described(load(options.model))))


def require_estimators() -> Any:
    """The package `jaxsvm.sklearn`, or a clear error if scikit-learn is not installed."""
    try:
        from .. import sklearn
    except ImportError as error:
        raise DataError("this command needs scikit-learn: pip install 'jaxsvm[sklearn]'") from error
    return sklearn


# ---------------------------------------------------------------------------- files


def save(path: Path, model: SavedModel) -> None:
    """Write the model to a file; an existing one is replaced only when all of the new one is written."""
    content = {
        "estimator": require_estimators().described(model.estimator),
        "columns": [list(column) for column in model.columns],
        "target": model.target,
        "measured": model.measured,
    }
    save_as(_KIND, path, content, hint=_HINT)


def load(path: Path) -> SavedModel:
    """Read a model; raises `FileError` for any other file."""
    estimators = require_estimators()
    with jax.enable_x64(True):
        content = load_as(_KIND, path)
        if not isinstance(content, dict) or "columns" not in content:
            raise FileError(f"{path} was not written by `jaxsvm tune`: read it with `jaxsvm.load`")
        if set(content) != {"estimator", "columns", "target", "measured"}:
            raise FileError(f"{path} lacks a part of the model")
        try:
            estimator = estimators.rebuilt(content["estimator"])
        except FileError as error:
            raise FileError(f"{path} cannot be loaded: {error}") from error
    columns, target, measured = content["columns"], content["target"], content["measured"]
    texts = isinstance(measured, dict) and all(
        isinstance(text, str) for text in (target, *measured, *measured.values())
    )
    if not texts or not isinstance(columns, list) or not all(map(_is_column, columns)):
        raise FileError(f"{path} does not describe its columns correctly")
    model = SavedModel(estimator, [Column(*column) for column in columns], target, measured)
    if vars(estimator).get("n_features_in_") != len(model.inputs):
        raise FileError(
            f"{path} has columns for {len(model.inputs)} inputs, but its estimator has another number"
        )
    return model


def _is_column(entry: Any) -> bool:
    if not isinstance(entry, list | tuple) or len(entry) != 3:
        return False
    name, levels, fill = entry
    valid = levels is None or (
        isinstance(levels, list | tuple) and all(isinstance(level, str) for level in levels)
    )
    return isinstance(name, str) and valid and isinstance(fill, float) and math.isfinite(fill)


# ---------------------------------------------------------------------------- test results


def measure_classifier(estimator: Any, x, y, y_train) -> dict[str, str]:
    """Results on held-out rows, with those of the class frequencies for comparison."""
    p = estimator.predict_proba(x)
    codes = np.searchsorted(estimator.classes_, y)
    labels, counts = np.unique(y_train, return_counts=True)
    trivial_error = np.mean(y != labels[np.argmax(counts)])
    loss = -np.mean(np.log(np.clip(p[np.arange(len(y)), codes], 1e-15, 1)))
    frequencies = counts / counts.sum()
    trivial_loss = -np.mean(np.log(frequencies[np.searchsorted(labels, y)]))
    confidence = p.max(axis=1)
    is_right = np.where(np.argmax(p, axis=1) == codes, 1.0, -1.0)
    gap = calibration.expected_calibration_error(is_right, confidence)
    results = {
        "test error": f"{np.mean(is_right < 0):.2%} (always the most frequent class: {trivial_error:.2%})",
        "log loss": f"{loss:.3f} nats (always the class frequencies: {trivial_loss:.3f})",
        "calibration": f"mean confidence {confidence.mean():.1%}, accuracy {np.mean(is_right > 0):.1%}, "
        f"calibration error {gap:.3f}",
    }
    evidence = getattr(estimator, "evidence_", None)  # not every machine has one
    if evidence is not None:
        values = ", ".join(f"{value:.2f}" for value in np.atleast_1d(evidence))
        results["log evidence"] = f"{values} nats"
    return results


def measure_regressor(estimator: Any, x, y, y_train) -> dict[str, str]:
    """Results on held-out rows, with those of the mean for comparison."""
    error = root_mean_square(y - estimator.predict(x))
    trivial = root_mean_square(y - mean_and_deviation(y_train, np.ones(len(y_train)))[0])
    low, high = estimator.predict_interval(x)
    return {
        "test error": f"root mean square {error:.4g} (always the mean: {trivial:.4g})",
        "R squared": f"{1 - (error / trivial) ** 2:.3f}" if trivial > 0 else "not defined",
        "95 % intervals": f"hold {np.mean((low <= y) & (y <= high)):.1%} of the held-out targets",
        "noise": f"standard deviation {estimator.noise_std_:.4g}",
        "log evidence": f"{estimator.evidence_:.2f} nats (Laplace)",
    }


def kernel_matrix(estimator: Any) -> str:
    """Whether the kernel matrix of a fitted estimator is exact, or which rank it has and what it loses."""
    ranks = estimator.rank_ if isinstance(estimator.rank_, list) else [estimator.rank_]
    if None in ranks:
        return "exact"
    shown = ", ".join(map(str, ranks))
    lost = float(np.max(estimator.lost_variance_))
    return f"rank {shown}, which loses {lost:.2%} of the prior's variance"


def root_mean_square(errors: np.ndarray) -> float:
    """The root mean square, in units of the largest error, so that no square overflows or underflows."""
    largest = float(np.abs(errors).max())
    return largest * float(np.sqrt(np.mean((errors / largest) ** 2))) if largest > 0 else 0.0


# ---------------------------------------------------------------------------- text


def described(model: SavedModel) -> str:
    """What the model predicts, its test results, the most relevant inputs, and its hyperparameters."""
    estimator = model.estimator
    task = "classification" if model.is_classifier else "regression"
    rows = dict(model.measured)
    if model.is_classifier:
        labels = ", ".join(printable(str(label)) for label in estimator.classes_)
        rows = {"classes": labels, **rows}
    lines = [f"{type(estimator).__name__}: {task} of {model.target!r}"]
    lines += aligned(rows)
    lines += relevance_lines(model.relevances)
    machines = estimator.model_ if isinstance(estimator.model_, list) else [estimator.model_]
    for number, machine in enumerate(machines):
        which = (
            f" of class {printable(str(estimator.classes_[number]))}" if len(machines) > 1 else ""
        )
        lines.append(f"hyperparameters{which} (inputs have mean 0 and variance 1):")
        lines += [f"  {line}" for line in format_parameters(machine)]
    return "\n".join(lines)


def aligned(rows: dict[str, str]) -> list[str]:
    """One line for each label and its text."""
    return [f"{label:16s} {text}" for label, text in rows.items()]


def relevance_lines(relevances: Sequence[tuple[str, float]], count: int = 10) -> list[str]:
    """The first inputs of a sorted list with their relevances, as bars."""
    if not relevances:
        return []
    if all(relevance == 1 for _, relevance in relevances):
        return aligned({"relevance": "equal for all inputs, which have a common lengthscale"})
    rows = [(printable(name), relevance) for name, relevance in relevances[:count]]
    width = max(len(name) for name, _ in rows)
    lines = [f"most relevant of {len(relevances)} inputs (1 / lengthscale^2, largest = 1):"]
    for name, relevance in rows:
        bar = "#" * max(round(30 * relevance), 1)
        lines.append(f"  {name:{width}s}  {relevance:8.2g}  {bar}")
    return lines

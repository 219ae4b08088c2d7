"""`jaxsvm predict`: apply a saved model to a table."""

import csv
import io
import math
import sys
from pathlib import Path

import numpy as np

from .._results import FitError
from ..persistence import write_whole
from ._arguments import output_file, share
from ._cells import escaped
from ._model import SavedModel, load
from ._table import as_data_errors, as_inputs, read, say


def add_to(commands) -> None:
    """Add the subcommand to the parser."""
    parser = commands.add_parser(
        "predict",
        help="apply a model to a table",
        description="Predict the target of each row, with probabilities or error bars, as CSV. A class or "
        "name that a spreadsheet would run as a formula is written with an apostrophe before it.",
    )
    parser.add_argument("model", type=Path, help="a file that `jaxsvm tune` wrote")
    parser.add_argument(
        "data", type=Path, help="a CSV file with the same columns; the target column is optional"
    )
    parser.add_argument(
        "--output", type=output_file, help="where to write; by default standard output"
    )
    parser.add_argument(
        "--level", type=share, default=0.95, help="of the intervals of a regression"
    )
    parser.set_defaults(run=run)


def run(chosen) -> None:
    """Read, predict, write."""
    model = load(chosen.model)
    x = as_inputs(read(chosen.data), model.columns, say)
    with as_data_errors():
        names, columns = predictions(model, x, chosen.level)
    texts = [names[0], *(columns[0].tolist() if model.is_classifier else [])]
    formulas = sorted({text for text in texts if escaped(text) != text})
    if formulas:
        say(
            f"{', '.join(map(repr, formulas))} would be a formula in a spreadsheet: written with an "
            "apostrophe before it"
        )
    text = _as_csv(names, columns, has_labels=model.is_classifier)
    if chosen.output is None:
        sys.stdout.write(text)
    else:
        write_whole(chosen.output, text.encode())


def predictions(model: SavedModel, x: np.ndarray, level: float):
    """The names of the columns of an answer, and the columns."""
    estimator = model.estimator
    if model.is_classifier:
        p = estimator.predict_proba(x)
        _require_finite(p)
        labels = estimator.classes_[np.argmax(p, axis=1)]
        names = [model.target, *(f"P({label})" for label in estimator.classes_)]
        return names, [labels, *(np.char.mod("%.6g", column) for column in p.T)]
    mean, deviation = estimator.predict(x, return_std=True)
    low, high = estimator.predict_interval(x, level)
    _require_finite(np.column_stack([mean, deviation, low, high]))
    percent = f"{100 * level:g}%"
    names = [model.target, "standard deviation", f"lower {percent}", f"upper {percent}"]
    form = f"%.{_digits(mean, deviation)}g"
    return names, [np.char.mod(form, column) for column in (mean, deviation, low, high)]


def _require_finite(answers: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(answers).all(axis=1))
    if len(bad):
        raise FitError(
            f"the model gives no finite prediction for row {bad[0] + 1}, and {len(bad) - 1} others: its "
            "inputs may be too far from those it was trained on"
        )


def _digits(mean: np.ndarray, deviation: np.ndarray) -> int:
    """How many digits show four of the standard deviation, too: eight, and more far from zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.max(np.abs(mean) / deviation, initial=1.0)
    return min(17, max(8, 4 + math.ceil(math.log10(ratio)))) if np.isfinite(ratio) else 17


def _as_csv(names, columns, *, has_labels: bool) -> str:
    """The answer as text, in which nothing that came from the data is a formula."""
    first = [escaped(label) for label in columns[0].tolist()] if has_labels else columns[0]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([escaped(name) for name in names])
    writer.writerows(zip(first, *columns[1:], strict=True))
    return stream.getvalue()

"""`jaxsvm predict`: apply a saved model to a table."""

import csv
import sys
from pathlib import Path

import numpy as np

from ._arguments import output_file, share
from ._model import SavedModel, load
from ._table import as_data_errors, as_inputs, read, say


def add_to(commands) -> None:
    """Add the subcommand to the parser."""
    parser = commands.add_parser(
        "predict",
        help="apply a model to a table",
        description="Predict the target of each row, with probabilities or error bars, as CSV.",
    )
    parser.add_argument("model", type=Path, help="a file that `jaxsvm tune` wrote")
    parser.add_argument(
        "data", type=Path, help="a CSV file with the same columns; the target may lack"
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
    rows = zip(*columns, strict=True)
    if chosen.output is None:
        _write(sys.stdout, names, rows)
    else:
        with chosen.output.open("w", newline="", encoding="utf-8") as file:
            _write(file, names, rows)


def predictions(model: SavedModel, x: np.ndarray, level: float):
    """The names of the columns of an answer, and the columns."""
    estimator = model.estimator
    if model.is_classifier:
        p = estimator.predict_proba(x)
        labels = estimator.classes_[np.argmax(p, axis=1)]
        names = [model.target, *(f"P({label})" for label in estimator.classes_)]
        return names, [labels, *(np.char.mod("%.6g", column) for column in p.T)]
    mean, deviation = estimator.predict(x, return_std=True)
    low, high = estimator.predict_interval(x, level)
    percent = f"{100 * level:g}%"
    names = [model.target, "standard deviation", f"lower {percent}", f"upper {percent}"]
    return names, [np.char.mod("%.8g", column) for column in (mean, deviation, low, high)]


def _write(file, names, rows) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)

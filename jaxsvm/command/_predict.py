"""`jaxsvm predict`: apply a saved model to a table."""

import csv
import io
import math
import sys
from pathlib import Path

import numpy as np

from .. import FitError
from ..persistence import write_whole
from ._arguments import fraction, output_file, refuse_overwriting
from ._columns import as_inputs
from ._model import SavedModel, load
from ._table import as_data_errors, as_number, read, say

# characters that begin a formula in a spreadsheet, with their full-width forms
_FORMULA = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"


def add_to(commands) -> None:
    """Add the subcommand to the parser."""
    parser = commands.add_parser(
        "predict",
        help="apply a model to a table",
        description="Predict the target of each row and write a CSV table: classes with their "
        "probabilities, or numbers with error bars. An apostrophe is put before any text that a spreadsheet "
        "would run as a formula.",
    )
    parser.add_argument("model", type=Path, help="a model file written by `jaxsvm tune`")
    parser.add_argument(
        "data",
        type=Path,
        help="a CSV file with the columns of the training data; the target column is optional",
    )
    parser.add_argument(
        "--output", type=output_file, metavar="FILE", help="output file (default: standard output)"
    )
    parser.add_argument(
        "--level", type=fraction, default=0.95, metavar="P",
        help="probability of the intervals of a regression (default: 0.95)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options) -> None:
    """Read, predict, write."""
    refuse_overwriting([options.output], [options.model, options.data])
    model = load(options.model)
    x = as_inputs(read(options.data), model.columns, say)
    with as_data_errors():
        names, columns = predictions(model, x, options.level)
    texts = [names[0], *(columns[0].tolist() if model.is_classifier else [])]
    formulas = sorted({text for text in texts if escaped(text) != text})
    if formulas:
        say(
            f"a spreadsheet would run {', '.join(map(repr, formulas))} as a formula: written with an "
            "apostrophe before it"
        )
    text = _as_csv(names, columns, has_labels=model.is_classifier)
    if options.output is None:
        sys.stdout.write(text)
    else:
        write_whole(options.output, text.encode())


def predictions(model: SavedModel, x: np.ndarray, level: float):
    """The names and the contents of the output columns."""
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


def escaped(text: str) -> str:
    """The text, with an apostrophe before it if a spreadsheet would run it as a formula.

    Numbers such as `-1` and single characters are left alone. A formula that already begins with an
    apostrophe gets another one, so that different texts stay different.
    """
    bare = text.lstrip("'")
    is_formula = len(bare) > 1 and bare[0] in _FORMULA and as_number(bare) is None
    return f"'{text}" if is_formula else text


def _require_finite(answers: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(answers).all(axis=1))
    if len(bad):
        raise FitError(
            f"the predictions for {len(bad)} row{'s' if len(bad) > 1 else ''} are not finite, first in row "
            f"{bad[0] + 1}: its inputs may be too far from the training data"
        )


def _digits(mean: np.ndarray, deviation: np.ndarray) -> int:
    """Significant digits that show four digits of the standard deviation: at least eight, at most 17."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.max(np.abs(mean) / deviation, initial=1.0)
    return min(17, max(8, 4 + math.ceil(math.log10(ratio)))) if np.isfinite(ratio) else 17


def _as_csv(names, columns, *, has_labels: bool) -> str:
    """The output as text, with formulas escaped."""
    first = [escaped(label) for label in columns[0].tolist()] if has_labels else columns[0]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([escaped(name) for name in names])
    writer.writerows(zip(first, *columns[1:], strict=True))
    return stream.getvalue()

"""`jaxsvm tune`: from a table to a tuned, tested and saved model."""

import argparse
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..selection import METHODS
from ._arguments import at_least, output_file, seed, share
from ._cells import (
    DataError,
    as_labels,
    as_number,
    as_numbers,
    is_blank,
    is_missing,
    is_numeric,
    odd_cell,
    quoted,
    refuse_commas,
    same_numbers,
    shown,
)
from ._measure import measure
from ._model import SavedModel, require_estimators, save
from ._show import relevance_lines
from ._state import State, fingerprint
from ._table import Table, as_data_errors, as_inputs, find_columns, read, say

_MOST_CLASSES = 20  # of a target of whole numbers, for it to be taken for classes
_MOST_ROWS = 10_000  # to train on
_TASKS = ("auto", "classification", "regression")
KERNELS = ("rbf", "matern12", "matern32", "matern52", "rational_quadratic")  # of the estimators
_ENDS = """
A search is one run of the optimizer from one start. An interrupted run (Ctrl-C) leaves a folder beside the
output, whose name ends in `.state`; run the same command with the same data again to resume, with the same
result as without the interruption. At most the last ten steps of a search are lost (with `--method evidence`
the last step), and the fit or draws that follow it. Once the model is written, the run removes its folder.
"""


def add_to(commands) -> None:
    """Add the subcommand to the parser."""
    methods = ("evidence", *METHODS, "mean-field")
    parser = commands.add_parser(
        "tune",
        help="fit a machine to a table",
        description="Fit a machine that chooses its hyperparameters by itself to the rows of a CSV file, "
        "measure it on rows that were held out, and save it.",
        epilog="methods:\n"
        + "\n".join(f"  {name:12s} {m.description}" for name, m in METHODS.items())
        + "\n  evidence     the exact evidence, by sampling (hinge)"
        + "\n  mean-field   leave-one-out of a Gaussian process by mean field theory\n"
        + _ENDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", type=Path, help="a CSV file, with the names of its columns first")
    parser.add_argument("--target", required=True, help="the column to predict")
    parser.add_argument("--task", choices=_TASKS, default="auto", help="what the target is")
    parser.add_argument("--method", choices=methods, help="of a classification; default span")
    parser.add_argument("--kernel", choices=KERNELS, default="rbf", help="default rbf")
    parser.add_argument(
        "--ard", choices=("auto", "yes", "no"), default="auto", help="a lengthscale for each input"
    )
    parser.add_argument("--ignore", nargs="+", default=[], metavar="COLUMN", help="leave these out")
    parser.add_argument(
        "--restarts", type=at_least(1, int), default=1, metavar="R",
        help="searches from different starts; a regression has at most four",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=at_least(0, float),
        help="end all searches after so many, but none before its first ten steps",
    )  # fmt: skip
    parser.add_argument(
        "--test-share", type=share, default=0.25, help="of the rows, to be held out"
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the rows held out and the starts")
    parser.add_argument("--output", type=output_file, default="model.jaxsvm", help="the model file")
    parser.add_argument(
        "--report", type=output_file, help="write an HTML report with plots to this file"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run, parser=parser)


def run(chosen) -> None:
    """Read, split, tune, measure, save, report."""
    estimators = require_estimators()
    write_report = None
    if chosen.report is not None:
        from ._report import write as write_report  # now, lest matplotlib lacks after hours of work
    if chosen.task == "regression" and chosen.method is not None:
        _refuse_method(chosen)
    names, cells, table = _target(read(chosen.data), chosen)
    is_classes = _is_classes(cells, table.numbers, chosen)
    if is_classes:
        y = as_labels(cells)
        _check_classes(y)
    else:
        if chosen.method is not None:
            _refuse_method(chosen)
        y = np.array(as_numbers(f"the target {chosen.target!r}", cells, table.numbers), float)
        if y.min() == y.max():
            raise DataError(f"the target {chosen.target!r} is constant: there is nothing to learn")
    train, test = _split(y, is_classes, chosen)
    columns = find_columns(table, names, say, train)
    x = as_inputs(table, columns)
    estimator = _estimator(estimators, chosen, is_classes)
    begin = time.perf_counter()
    state = _fit(estimator, x[train], y[train], chosen)
    seconds = time.perf_counter() - begin
    measured = measure(estimator, is_classes, x[test], y[test], y[train])
    measured["rows"] = f"{len(train)} to train on, {len(test)} held out"
    measured["time"] = f"{seconds:.1f} s, compilation included"
    model = SavedModel(estimator, columns, chosen.target, measured)
    save(chosen.output, model)
    state.remove()
    print(_summary(model, chosen.output))
    if write_report is not None and chosen.report is not None:
        write_report(chosen.report, model, x[test], y[test])
        print(f"report written to {chosen.report}")


def _refuse_method(chosen) -> None:
    chosen.parser.error("argument --method: it is for classifications, and this is a regression")


def _target(table: Table, chosen):
    """The names of the other columns, the cells of the target, and the table of rows that have one."""
    for name in (chosen.target, *chosen.ignore):
        if name not in table.names:
            raise DataError(f"there is no column {name!r}; there are: {', '.join(table.names)}")
    cells = table.column(chosen.target)
    is_absent = is_blank if is_numeric(cells) else is_missing
    kept = [row for row, cell in enumerate(cells) if not is_absent(cell)]
    if len(kept) < len(cells):
        texts = sorted({cell for cell in cells if is_absent(cell)})
        say(
            f"{len(cells) - len(kept)} rows without a target are left out (cells that hold "
            f"{', '.join(map(repr, texts))})"
        )
    if len(kept) < 10:
        raise DataError(f"{len(kept)} rows have a target: at least 10 are needed")
    names = [n for n in table.names if n != chosen.target and n not in chosen.ignore]
    rows = Table(table.names, [table.rows[i] for i in kept], [table.numbers[i] for i in kept])
    return names, [cells[i] for i in kept], rows


def _is_classes(cells: list[str], rows, chosen) -> bool:
    """Whether the target is a class: text, or few different whole numbers, unless the user says."""
    if chosen.task == "classification":
        return True
    if chosen.task == "regression":
        if not any(as_number(cell) is not None for cell in cells):
            refuse_commas(f"the target {chosen.target!r}", cells)
            raise DataError(f"a regression needs numbers, but the target holds {quoted(cells[0])}")
        return False
    numbers = [as_number(cell) for cell in cells]
    whole = all(math.isfinite(n) and n == int(n) for n in numbers if n is not None)
    few = whole and len(set(cells)) <= min(_MOST_CLASSES, max(2, len(cells) // 5))
    if None not in numbers:
        what = "classification: few whole numbers" if few else "regression"
        say(f"the target is taken for a {what} (--task to change it)")
        return few
    refuse_commas(f"the target {chosen.target!r}", cells)
    odd = None if few else odd_cell(cells, rows)
    if odd is not None:
        raise DataError(
            f"the target {chosen.target!r} holds {quoted(odd[1])} in row {odd[0]}, which is not a number, "
            "where most rows hold one: correct the cell, or empty it to leave the row out; --task "
            "classification takes all of them for classes"
        )
    return True


def _check_classes(y) -> None:
    found, counts = np.unique(y, return_counts=True)
    labels = found.tolist()
    pair = same_numbers(labels)
    if pair is not None:
        say(f"{quoted(pair[0])} and {quoted(pair[1])} are the same number, but different classes")
    if len(labels) < 2:
        raise DataError(f"all targets are {quoted(labels[0])}: two classes are needed")
    if len(labels) > 100:
        raise DataError(f"the target has {len(labels)} classes; try --task regression")
    if counts.min() < 2:
        rare = labels[np.argmin(counts)]
        raise DataError(
            f"the class {quoted(rare)} has one row only: leave it out, or join it with another"
        )


def _split(y, is_classes: bool, chosen):
    """Rows to train on and rows to hold out, of each class its share and at least one of each."""
    random = np.random.default_rng(chosen.seed)
    groups = [np.flatnonzero(y == label) for label in np.unique(y)] if is_classes else [
        np.arange(len(y))
    ]  # fmt: skip
    train, test = [], []
    for group in groups:
        order = random.permutation(group)
        count = min(max(1, round(chosen.test_share * len(group))), len(group) - 1)
        test.append(order[:count])
        train.append(order[count:])
    train, test = (np.sort(np.concatenate(parts)) for parts in (train, test))
    if len(train) > _MOST_ROWS:
        say(f"{len(train)} rows are many: {_MOST_ROWS} of them, drawn at random, are trained on")
        train = np.sort(random.permutation(train)[:_MOST_ROWS])
    return train, test


def _estimator(estimators, chosen, is_classes: bool) -> Any:
    options: dict[str, Any] = {
        "ard": {"auto": "auto", "yes": True, "no": False}[chosen.ard],
        "random_state": chosen.seed,
        "kernel": chosen.kernel,
        "restarts": chosen.restarts,
        "verbose": not chosen.quiet and sys.stderr.isatty(),
    }
    if not is_classes:
        return estimators.BayesianSVR(**options)
    if chosen.method == "mean-field":
        return estimators.MeanFieldGPC(**options)
    return estimators.BayesianSVC(chosen.method or "span", **options)


def _fit(estimator, x, y, chosen) -> State:
    """Fit the estimator; its searches save their progress, so that an interrupted run can resume."""
    state = State(chosen.output, fingerprint(estimator, x, y), say)
    estimator.set_params(checkpoint=str(state.folder), seconds=chosen.seconds)
    try:
        with warnings.catch_warnings(record=True) as caught, as_data_errors():
            warnings.simplefilter("always")
            estimator.fit(x, y)
    except KeyboardInterrupt:
        if state.checkpoints():
            say(f"progress is saved in {state.folder}; run the same command again to resume")
        raise
    finally:
        state.remove_empty()
    estimator.set_params(checkpoint=None)
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        say(text)
    return state


def _summary(model: SavedModel, output: Path) -> str:
    estimator = model.estimator
    title = f"{shown(model.target)}: {type(estimator).__name__}, {len(model.inputs)} inputs"
    lines = [title, "-" * len(title)]
    lines += [f"{name:16s} {text}" for name, text in model.measured.items()]
    lines += relevance_lines(model)
    return "\n".join([*lines, f"model written to {output}"])

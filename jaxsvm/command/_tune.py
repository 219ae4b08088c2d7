"""`jaxsvm tune`: from a table to a tuned, tested and saved model."""

import argparse
import os
import re
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from .. import selection
from ..persistence import WriteError, require_writable
from ..selection import METHODS
from ._arguments import (
    approximation,
    at_least,
    fraction,
    output_file,
    refuse_overwriting,
    seed,
)
from ._columns import as_inputs, as_labels, as_targets, find_columns, is_class, separate_target
from ._model import (
    SavedModel,
    aligned,
    kernel_matrix,
    measure_classifier,
    measure_regressor,
    relevance_lines,
    require_estimators,
    save,
)
from ._table import as_data_errors, printable, read, say

KERNELS = ("rbf", "matern12", "matern32", "matern52", "rational_quadratic")  # of the estimators
_TASKS = ("auto", "classification", "regression")
_MARK = 12  # digits of a fingerprint in the name of a folder
_IS_MARK = re.compile(f"[0-9a-f]{{{_MARK}}}")
_IS_CHECKPOINT = re.compile(r"[a-z0-9-]+\.jaxsvm")
_RESUMING = """
An interrupted run (Ctrl-C) leaves a folder beside the output file, with a name that ends in `.state`. To
resume, run the same command on the same data again; the result is the same as without the interruption. At
most the last ten steps of each search are repeated (one step with `--method evidence`), and the fit or
sampling after it. The folder is removed when the model is written.
"""


def add_to(commands) -> None:
    """Add the subcommand to the parser."""
    descriptions = {name: method.description for name, method in METHODS.items()} | {
        "evidence": "the exact evidence, by sampling (hinge)",
        "mean-field": "leave-one-out log loss of a Gaussian process, by mean field theory",
    }
    parser = commands.add_parser(
        "tune",
        help="fit a model to a table",
        description="Fit a support vector machine to the rows of a CSV file, choose its hyperparameters,\n"
        "test it on held-out rows, and save it.",
        epilog="methods (the criterion that chooses the hyperparameters):\n"
        + "".join(f"  {name:12s} {text}\n" for name, text in descriptions.items())
        + _RESUMING,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "data", type=Path, help="a CSV file whose first line holds the column names"
    )
    parser.add_argument("--target", required=True, metavar="COLUMN", help="the column to predict")
    parser.add_argument(
        "--ignore", nargs="+", default=[], metavar="COLUMN", help="columns to leave out"
    )
    parser.add_argument(
        "--task", choices=_TASKS, default="auto",
        help="whether the target is a class or a number (default: decide from its values)",
    )  # fmt: skip
    _add_search_options(parser, tuple(descriptions))
    parser.add_argument(
        "--test-share", type=fraction, default=0.25, metavar="P",
        help="fraction of the rows to hold out for testing (default: 0.25)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=seed, default=0, metavar="N",
        help="random seed for the held-out rows and the starts (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=output_file, default="model.jaxsvm", metavar="FILE",
        help="the model file to write (default: model.jaxsvm)",
    )  # fmt: skip
    parser.add_argument(
        "--report", type=output_file, metavar="FILE",
        help="an HTML report with plots to write (needs matplotlib)",
    )  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    parser.set_defaults(run=run, parser=parser)


def _add_search_options(parser: argparse.ArgumentParser, methods: tuple[str, ...]) -> None:
    """Add the options of the machine and of the search for its hyperparameters."""
    parser.add_argument(
        "--method", choices=methods, metavar="METHOD",
        help="how to choose the hyperparameters of a classifier, see below (default: span)",
    )  # fmt: skip
    parser.add_argument(
        "--kernel", choices=KERNELS, default="rbf", help="the kernel (default: rbf)"
    )
    parser.add_argument(
        "--ard", choices=("auto", "yes", "no"), default="auto",
        help="whether each input has its own lengthscale (default: if it improves predictions)",
    )  # fmt: skip
    parser.add_argument(
        "--restarts", type=at_least(1, int), default=1, metavar="N",
        help="number of searches from different starts (default: 1; a regression has at most 4)",
    )  # fmt: skip
    parser.add_argument(
        "--approximation", type=approximation, default="auto", metavar="RANK",
        help='"exact", or the rank of the kernel matrix (default: "auto", exact up to 5000 rows and then a '
        "rank that loses at most 0.1 %% of the variance, if the fit does not take too long)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=at_least(0, float), metavar="S",
        help="time limit for all searches; each takes at least its first ten steps",
    )  # fmt: skip


def run(options) -> None:
    """Read, split, tune, test, save, report."""
    refuse_overwriting([options.output, options.report], [options.data])
    estimators = require_estimators()
    write_report = None
    if options.report is not None:  # imported now, so that a missing matplotlib fails at once
        from ._report import write as write_report
    if options.task == "regression" and options.method is not None:
        _refuse_method(options)
    names, cells, table = separate_target(read(options.data), options.target, options.ignore)
    classify = is_class(options.target, cells, table.numbers, options.task)
    if not classify and options.method is not None:
        _refuse_method(options)
    y = as_labels(cells) if classify else as_targets(options.target, cells, table.numbers)
    train, test = _split(y, classify, options)
    columns = find_columns(table, names, say, train)
    x = as_inputs(table, columns)
    estimator = _estimator(estimators, options, classify)
    begin = time.perf_counter()
    state = _fit(estimator, x[train], y[train], options)
    seconds = time.perf_counter() - begin
    measure = measure_classifier if classify else measure_regressor
    measured = measure(estimator, x[test], y[test], y[train])
    measured["kernel matrix"] = kernel_matrix(estimator)
    measured["rows"] = f"{len(train)} for training, {len(test)} for testing"
    measured["time"] = f"{seconds:.1f} s, including compilation"
    model = SavedModel(estimator, columns, options.target, measured)
    save(options.output, model)
    state.remove()
    print(_summary(model, options.output))
    if write_report is not None and options.report is not None:
        write_report(options.report, model, x[test], y[test])
        print(f"report written to {options.report}")


def _refuse_method(options) -> None:
    options.parser.error("argument --method: only for classification, but this is a regression")


def _split(y, classify: bool, options):
    """The rows to train on and the rows to hold out; both have rows of each class."""
    random = np.random.default_rng(options.seed)
    groups = [np.arange(len(y))]
    if classify:
        groups = [np.flatnonzero(y == label) for label in np.unique(y)]
    train, test = [], []
    for group in groups:
        order = random.permutation(group)
        count = min(max(1, round(options.test_share * len(group))), len(group) - 1)
        test.append(order[:count])
        train.append(order[count:])
    train, test = (np.sort(np.concatenate(parts)) for parts in (train, test))
    return train, test


def _estimator(estimators, options, classify: bool) -> Any:
    parameters: dict[str, Any] = {
        "ard": {"auto": "auto", "yes": True, "no": False}[options.ard],
        "random_state": options.seed,
        "kernel": options.kernel,
        "restarts": options.restarts,
        "approximation": options.approximation,
        "verbose": not options.quiet and sys.stderr.isatty(),
    }
    if not classify:
        return estimators.BayesianSVR(**parameters)
    if options.method == "mean-field":
        return estimators.MeanFieldGPC(**parameters)
    return estimators.BayesianSVC(options.method or "span", **parameters)


def _fit(estimator, x, y, options) -> "State":
    """Fit the estimator; its searches save their progress, so that an interrupted run can resume."""
    state = State(options.output, fingerprint(estimator, x, y), say)
    estimator.set_params(checkpoint=str(state.folder), seconds=options.seconds)
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
    name = type(model.estimator).__name__
    title = f"{printable(model.target)}: {name}, {len(model.inputs)} inputs"
    lines = [title, "-" * len(title), *aligned(model.measured), *relevance_lines(model.relevances)]
    return "\n".join([*lines, f"model written to {output}"])


class State:
    """A folder beside the output file with the progress of all searches.

    Its name includes a part of the fingerprint, so that runs with other data or settings have other
    folders. A run removes its own folder with the checkpoints in it, and no other file.

    **Arguments:** `output`, the model file; `mark`, the fingerprint of the data and settings; `say`, which
    reports whether the run resumes, and unfinished runs with other data or settings.
    """

    def __init__(self, output: Path, mark: str, say: Any):
        self._output = output
        self.folder = output.with_name(f"{output.name}.{mark[:_MARK]}.state")
        for folder in self._unfinished():
            say(f"keeping {folder}: it belongs to an unfinished run with other data or settings")
        has_begun = os.path.isdir(self.folder)  # false for a name that is too long
        require_writable(self.folder / "search.jaxsvm" if has_begun else self.folder)
        if self.folder.is_symlink():  # to a folder whose files this run must not remove
            raise WriteError(f"{self.folder} is a link: remove it")
        if self.checkpoints():
            say(f"resuming from {self.folder}")

    def checkpoints(self) -> list[Path]:
        """The files that searches have saved."""
        with suppress(OSError):  # the folder does not exist
            names = sorted(os.listdir(self.folder))
            return [self.folder / name for name in names if _IS_CHECKPOINT.fullmatch(name)]
        return []

    def remove(self) -> None:
        """Remove the checkpoints and their folder; a folder that holds anything else stays."""
        for path in self.checkpoints():
            with suppress(OSError):  # it is a folder
                path.unlink(missing_ok=True)
        self.remove_empty()

    def remove_empty(self) -> None:
        """Remove the folder if it is empty."""
        with suppress(OSError):
            self.folder.rmdir()

    def _unfinished(self) -> list[Path]:
        """The folders of other unfinished runs with the same output."""
        prefix = self._output.name + "."
        folders, names = [], []
        with suppress(OSError):  # a folder may be writable, but not readable
            names = os.listdir(self._output.parent)
        for path in map(self._output.with_name, names):
            mark = path.name.removeprefix(prefix).removesuffix(".state")
            is_state = path.name == f"{prefix}{mark}.state" and _IS_MARK.fullmatch(mark)
            if is_state and path != self.folder:
                folders.append(path)
        return sorted(folders)


def fingerprint(estimator: Any, x: np.ndarray, y: np.ndarray) -> str:
    """A hash of the data and settings of a run."""
    ignored = ("verbose", "seconds", "checkpoint")
    settings = {k: v for k, v in estimator.get_params().items() if k not in ignored}
    return selection.fingerprint((type(estimator).__name__, settings, x, list(map(str, y))))

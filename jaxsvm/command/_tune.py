"""`jaxsvm tune`: from a table to a tuned, tested and saved model."""

import argparse
import hashlib
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .. import calibration, persistence
from ..persistence import FileError
from ..selection import METHODS
from ._model import SavedModel, require_estimators, save
from ._show import relevance_lines
from ._table import DataError, Table, as_inputs, as_number, find_columns, is_missing, read

_MOST_CLASSES = 20  # of a target of whole numbers, for it to be taken for classes
_MOST_ROWS = 10_000  # to train on
_TASKS = ("auto", "classification", "regression")


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
        + "\n  mean-field   leave-one-out of a Gaussian process by mean field theory",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", type=Path, help="a CSV file, with the names of its columns first")
    parser.add_argument("--target", required=True, help="the column to predict")
    parser.add_argument("--task", choices=_TASKS, default="auto", help="what the target is")
    parser.add_argument("--method", choices=methods, help="of a classification; default span")
    parser.add_argument("--kernel", default="rbf", help="rbf, matern12, matern32, matern52, ...")
    parser.add_argument(
        "--ard", choices=("auto", "yes", "no"), default="auto", help="a lengthscale for each input"
    )
    parser.add_argument("--ignore", nargs="+", default=[], metavar="COLUMN", help="leave these out")
    parser.add_argument("--restarts", type=int, default=1, metavar="R", help="searches")
    parser.add_argument(
        "--seconds", type=float, help="begin no search after so many; the first is always done"
    )
    parser.add_argument(
        "--test-share", type=float, default=0.25, help="of the rows, to be held out"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the rows held out and the starts")
    parser.add_argument("--output", type=Path, default=Path("model.jaxsvm"), help="the model file")
    parser.add_argument(
        "--report", type=Path, help="write an HTML report with plots into this file"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


def run(chosen) -> None:
    """Read, split, tune, measure, save, report."""
    estimators = require_estimators()
    write_report = None
    if chosen.report is not None:
        from ._report import write as write_report  # now, lest matplotlib lacks after hours of work
    for name, holds, wanted in (
        ("--restarts", chosen.restarts >= 1, "at least 1"),
        ("--test-share", 0 < chosen.test_share < 1, "between 0 and 1"),
    ):
        if not holds:
            raise SystemExit(f"jaxsvm tune: {name} must be {wanted}")
    table = read(chosen.data)
    names, cells, table = _target(table, chosen)
    is_classes = _is_classes(cells, chosen.task)
    columns = find_columns(table, names, _say)
    x = as_inputs(table, columns)
    y = np.array(cells) if is_classes else np.array([as_number(cell) for cell in cells], float)
    if is_classes:
        _check_classes(y)
    elif y.min() == y.max():
        raise DataError(f"the target {chosen.target!r} is constant: there is nothing to learn")
    train, test = _split(y, is_classes, chosen)
    estimator = _estimator(estimators, chosen, is_classes)
    begin = time.perf_counter()
    estimator = _search(estimator, x[train], y[train], chosen, begin)
    seconds = time.perf_counter() - begin
    measured = _measure(estimator, is_classes, x[test], y[test], y[train])
    measured["rows"] = f"{len(train)} to train on, {len(test)} held out"
    measured["time"] = f"{seconds:.1f} s, compilation included"
    model = SavedModel(estimator, columns, chosen.target, measured)
    save(chosen.output, model)
    _state_of(chosen).unlink(missing_ok=True)
    print(_summary(model, chosen.output))
    if write_report is not None and chosen.report is not None:
        write_report(chosen.report, model, x[test], y[test])
        print(f"report written to {chosen.report}")


def _say(text: str) -> None:
    print(f"jaxsvm: {text}", file=sys.stderr)


def _target(table: Table, chosen):
    """The names of the other columns, the cells of the target, and the table of rows that have one."""
    for name in (chosen.target, *chosen.ignore):
        if name not in table.names:
            raise DataError(f"there is no column {name!r}; there are: {', '.join(table.names)}")
    cells = table.column(chosen.target)
    kept = [not is_missing(cell) for cell in cells]
    if not all(kept):
        _say(f"{len(kept) - sum(kept)} rows without a target are left out")
    rows = [row for row, keep in zip(table.rows, kept, strict=True) if keep]
    if len(rows) < 10:
        raise DataError(f"{len(rows)} rows have a target: at least 10 are needed")
    names = [n for n in table.names if n != chosen.target and n not in chosen.ignore]
    return names, [cell for cell in cells if not is_missing(cell)], Table(table.names, rows)


def _is_classes(cells: list[str], task: str) -> bool:
    """Whether the target is a class: text, or few different whole numbers, unless it is told."""
    numbers = [as_number(cell) for cell in cells]
    if task == "regression":
        if None in numbers:
            bad = cells[numbers.index(None)]
            raise DataError(f"a regression needs numbers, but the target holds {bad!r}")
        return False
    if task == "classification" or None in numbers:
        return True
    different = set(numbers)
    whole = all(number == int(number) for number in different if number is not None)
    found = whole and len(different) <= min(_MOST_CLASSES, max(2, len(cells) // 5))
    what = "classification: few whole numbers" if found else "regression"
    _say(f"the target is taken for a {what} (--task to change it)")
    return found


def _check_classes(y) -> None:
    labels, counts = np.unique(y, return_counts=True)
    if len(labels) < 2:
        raise DataError(f"all targets are {labels[0]!r}: two classes are needed")
    if len(labels) > 100:
        raise DataError(f"the target has {len(labels)} classes; try --task regression")
    if counts.min() < 2:
        rare = labels[np.argmin(counts)]
        raise DataError(
            f"the class {rare!r} has one row only: leave it out, or join it with another"
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
        _say(f"{len(train)} rows are many: {_MOST_ROWS} of them, drawn at random, are trained on")
        train = np.sort(random.permutation(train)[:_MOST_ROWS])
    return train, test


def _estimator(estimators, chosen, is_classes: bool) -> Any:
    options: dict[str, Any] = {
        "ard": {"auto": "auto", "yes": True, "no": False}[chosen.ard],
        "random_state": chosen.seed,
        "verbose": not chosen.quiet and sys.stderr.isatty(),
    }
    if not is_classes:
        if chosen.method is not None or chosen.kernel != "rbf":
            raise SystemExit("jaxsvm tune: --method and --kernel are for classifications")
        return estimators.BayesianSVR(**options)
    options["kernel"] = chosen.kernel
    if chosen.method == "mean-field":
        return estimators.MeanFieldGPC(**options)
    return estimators.BayesianSVC(chosen.method or "span", **options)


def _search(estimator, x, y, chosen, begin: float) -> Any:
    """The best of several searches, saved after each, so that an interrupted run can go on."""
    from sklearn.base import clone

    from ..sklearn._files import described

    state_file, mark = _state_of(chosen), _fingerprint(estimator, x, y)
    done, best = _resumed(state_file, mark)
    single = not hasattr(estimator, "kernel")  # the starts of a regression are the paper's
    if single:
        estimator.set_params(restarts=min(chosen.restarts, 4))
    while done < (1 if single else chosen.restarts):
        if done and chosen.seconds is not None and time.perf_counter() - begin > chosen.seconds:
            _say(f"{chosen.seconds:g} seconds have passed: the best of {done} searches is taken")
            break
        candidate = clone(estimator)
        if done:  # another start: lengthscales wider or narrower than at first
            candidate._widening = float(np.exp(np.random.default_rng([chosen.seed, done]).normal()))
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                candidate.fit(x, y)
        except KeyboardInterrupt:
            if done:
                _say(f"{done} searches are saved in {state_file}; the same command goes on there")
            raise
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            _say(text)
        if best is None or candidate._score() < best._score():
            best = candidate
        done += 1
        if done < chosen.restarts:
            persistence.save(state_file, {"of": mark, "done": done, "estimator": described(best)})
    return best


def _state_of(chosen) -> Path:
    return chosen.output.with_name(chosen.output.name + ".state")


def _fingerprint(estimator, x, y) -> str:
    """What a state must belong to: the same data and the same settings."""
    digest = hashlib.sha256()
    settings = {k: v for k, v in estimator.get_params().items() if k not in ("verbose", "restarts")}
    digest.update(json.dumps([type(estimator).__name__, settings], sort_keys=True).encode())
    digest.update(np.ascontiguousarray(x).tobytes())
    digest.update("\0".join(map(str, y)).encode())
    return digest.hexdigest()


def _resumed(state_file: Path, mark: str):
    """How many searches are done, and the best of them, by a state that belongs to this run."""
    import jax

    from ..sklearn._files import rebuilt

    if not state_file.exists():
        return 0, None
    try:
        with jax.enable_x64(True):
            state = persistence.load(state_file)
            if isinstance(state, dict) and state.get("of") == mark:
                _say(f"going on after {state['done']} searches, by {state_file}")
                return int(state["done"]), rebuilt(state["estimator"])
    except FileError as error:
        _say(f"{state_file} is of no use, and everything begins anew: {error}")
        return 0, None
    _say(f"{state_file} is of other data or settings, and everything begins anew")
    return 0, None


def _measure(estimator, is_classes: bool, x, y, y_train) -> dict[str, str]:
    """What the held-out rows say, beside what is easily had."""
    if not is_classes:
        mean = estimator.predict(x)
        error, trivial = np.mean((y - mean) ** 2), np.mean((y - y_train.mean()) ** 2)
        low, high = estimator.predict_interval(x)
        return {
            "test error": f"root mean square {error**0.5:.4g} (of the mean of all: {trivial**0.5:.4g})",
            "R squared": f"{1 - error / trivial:.3f}" if trivial > 0 else "not defined",
            "95 % intervals": f"hold {np.mean((low <= y) & (y <= high)):.1%} of the targets held out",
            "noise": f"standard deviation {estimator.noise_std_:.4g}",
            "log evidence": f"{estimator.evidence_:.2f} nats (Laplace)",
        }
    p = estimator.predict_proba(x)
    codes = np.searchsorted(estimator.classes_, y)
    labels, counts = np.unique(y_train, return_counts=True)
    trivial = np.mean(y != labels[np.argmax(counts)])
    loss = -np.mean(np.log(np.clip(p[np.arange(len(y)), codes], 1e-15, 1)))
    frequencies = counts / counts.sum()
    base = -np.mean(np.log(frequencies[np.searchsorted(labels, y)]))
    certain = p.max(axis=1)
    right = np.where(np.argmax(p, axis=1) == codes, 1.0, -1.0)
    gap = calibration.expected_calibration_error(right, certain)
    found = {
        "test error": f"{np.mean(right < 0):.2%} (of the most frequent class: {trivial:.2%})",
        "log loss": f"{loss:.3f} nats (of class frequencies: {base:.3f})",
        "calibration": f"certainty {certain.mean():.1%}, right {np.mean(right > 0):.1%}, "
        f"calibration error {gap:.3f}",
    }
    if hasattr(estimator, "evidence_"):
        values = np.atleast_1d(estimator.evidence_)
        found["log evidence"] = ", ".join(f"{value:.2f}" for value in values) + " nats"
    return found


def _summary(model: SavedModel, output: Path) -> str:
    estimator = model.estimator
    title = f"{model.target}: {type(estimator).__name__}, {len(model.inputs)} inputs"
    lines = [title, "-" * len(title)]
    lines += [f"{name:16s} {text}" for name, text in model.measured.items()]
    lines += relevance_lines(model)
    return "\n".join([*lines, f"model written to {output}"])

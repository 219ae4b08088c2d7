"""Our estimators without any tuning against scikit-learn's grid search: error, log loss, time.

    python examples/benchmarks/estimators.py                     # 13 sets, 5 partitions: an hour
    python examples/benchmarks/estimators.py --sets heart        # one set
    python examples/benchmarks/estimators.py --quick             # generated data, a minute; also with --parts
    python examples/benchmarks/estimators.py --parts regression classes    # the other parts
    python examples/benchmarks/estimators.py --show              # prints the saved tables
    python examples/benchmarks/estimators.py --methods evidence CatBoost --first 5    # see below

Classification: `BayesianSVC()`, `LSSVC()` and `MeanFieldGPC()`, called without arguments, against
`GridSearchCV(make_pipeline(StandardScaler(), SVC()), ..., cv=5)` over 5 values of C (0.1 to 1000) and 9 of
gamma (2^-6 to 2^10, divided by the number of inputs). The probabilities of the grid search come from
`CalibratedClassifierCV` with five folds around its best machine. Everything runs in one process with one
thread for linear algebra. Seconds are those of `fit`; a fit to another partition beforehand excludes
compilation.

More methods: `BayesianSVC(...)` with the name of a criterion, such as `evidence`, and the defaults of
`RandomForest`, `HistGradientBoosting`, `LightGBM` and `CatBoost` (the last two if they are installed). With
`--first 5` the partitions begin at 5. The tables compare methods on the partitions that all of them have.

Regression: `BayesianSVR()` against `GridSearchCV` over `SVR` (C, gamma and epsilon, 5 x 5 x 3) and against
`GaussianProcessRegressor` with an ARD kernel and noise. They train on 1000 rows of each set (481 of Boston)
and are tested on the others, with 95 % intervals. Classes: `BayesianSVC()` against the grid search on iris
(three classes) and digits (ten).

Each record is saved in `results/estimators.json` as it is computed; run the script again to resume. Needs
the benchmark data (see `docs/files.md`) and scikit-learn.
"""

import argparse
import functools
import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))

import jax
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from store import Store

import jaxsvm as jsvm
from jaxsvm.selection import METHODS
from jaxsvm.sklearn import LSSVC, BayesianSVC, BayesianSVR, MeanFieldGPC

RESULTS = Path(__file__).parent / "results" / "estimators.json"
SETS = (
    "thyroid", "titanic", "heart", "breast_cancer", "banana", "twonorm", "ringnorm", "waveform",
    "diabetis", "flare_solar", "german", "splice", "image",
)  # fmt: skip
OWN: dict[str, Callable[[], Any]] = {
    "BayesianSVC": BayesianSVC,
    "LSSVC": LSSVC,
    "MeanFieldGPC": MeanFieldGPC,
}
DEFAULTS = (*OWN, "GridSearchCV")
CRITERIA = ("evidence", *METHODS)
ESTIMATORS = OWN | {name: functools.partial(BayesianSVC, cast(Any, name)) for name in CRITERIA}
PEERS = {  # names of classes, by module
    "RandomForest": "sklearn.ensemble.RandomForestClassifier",
    "HistGradientBoosting": "sklearn.ensemble.HistGradientBoostingClassifier",
    "LightGBM": "lightgbm.LGBMClassifier",
    "CatBoost": "catboost.CatBoostClassifier",
}
QUIET = {"LightGBM": {"verbose": -1}, "CatBoost": {"verbose": False, "allow_writing_files": False}}
PEER = "GridSearchCV"
PARTS = ("classification", "regression", "classes")
REGRESSIONS = {"boston": 481, "abalone": 1000, "cpu_act": 1000}  # rows to train on
REGRESSORS = ("BayesianSVR", "SVR by grid", "GaussianProcessRegressor")


def grid_search(inputs: int) -> GridSearchCV:
    grid = {"svc__C": np.logspace(-1, 3, 5), "svc__gamma": 4.0 ** np.arange(-3, 6) / inputs}
    return GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=5)


def run(method: str, data: Sequence[Any], other: Sequence[Any] | None) -> dict[str, Any]:
    """Error (in %), log loss and seconds of one method on one partition."""
    x, y, x_test, y_test = (np.asarray(part) for part in data)
    if method == PEER:
        begin = time.perf_counter()
        search = grid_search(x.shape[1]).fit(x, y)
        seconds = time.perf_counter() - begin
        labels = search.predict(x_test)
        calibrated = CalibratedClassifierCV(search.best_estimator_, cv=5).fit(x, y)
        p = calibrated.predict_proba(x_test)
        both = time.perf_counter() - begin
    else:
        estimator = peer(method) if method in PEERS else ESTIMATORS[method]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            if other is not None and method not in PEERS:  # compile first
                estimator.fit(*(np.asarray(part) for part in other[:2]))
            begin = time.perf_counter()
            estimator.fit(x, y)
        seconds = both = time.perf_counter() - begin
        labels, p = estimator.predict(x_test), estimator.predict_proba(x_test)
    return {
        "error": round(100 * float(np.mean(labels != y_test)), 4),
        "log_loss": round(float(log_loss(y_test, p)), 5),
        "seconds": round(seconds, 3),
        "seconds_with_probabilities": round(both, 3),
    }


def peer(method: str) -> Any:
    """A peer with its defaults and one thread."""
    module, name = PEERS[method].rsplit(".", 1)
    found = getattr(importlib.import_module(module), name)(random_state=0, **QUIET.get(method, {}))
    threads = "thread_count" if method == "CatBoost" else "n_jobs"
    return found if method == "HistGradientBoosting" else found.set_params(**{threads: 1})


def load(name: str, partition: int) -> Sequence[Any]:
    if name != "generated":
        return jsvm.datasets.load(name, split=partition)
    x, y = jsvm.datasets.twonorm(500, key=jax.random.key(partition))
    return x[:60], y[:60], x[60:], y[60:]


def run_regression(method: str, data: Sequence[np.ndarray]) -> dict[str, Any]:
    """Mean squared error, share of targets in 95 % intervals, and seconds."""
    x, y, x_test, y_test = data
    inputs = x.shape[1]
    regressor: Any
    if method == "BayesianSVR":
        regressor = BayesianSVR()
    elif method == "SVR by grid":
        scale = float(np.std(y))
        grid = {
            "svr__C": scale * np.logspace(-1, 3, 5), "svr__gamma": 4.0 ** np.arange(-2, 3) / inputs,
            "svr__epsilon": scale * np.array([0.01, 0.1, 0.3]),
        }  # fmt: skip
        regressor = GridSearchCV(make_pipeline(StandardScaler(), SVR()), grid, cv=5)
    else:
        kernel = ConstantKernel(1.0) * RBF(cast(Any, np.full(inputs, inputs**0.5))) + WhiteKernel(
            0.1
        )
        process = GaussianProcessRegressor(kernel, normalize_y=True)
        regressor = make_pipeline(StandardScaler(), process)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if method == "BayesianSVR":  # compile first
            regressor.fit(x, y)
            begin = time.perf_counter()
        regressor.fit(x, y)
    seconds = time.perf_counter() - begin
    record = {"error": round(float(np.mean((regressor.predict(x_test) - y_test) ** 2)), 5)}
    if method == "BayesianSVR":
        low, high = regressor.predict_interval(x_test)
    elif method == "SVR by grid":
        low = high = np.full_like(y_test, np.nan)
    else:
        mean, deviation = regressor.predict(x_test, return_std=True)
        low, high = mean - 1.96 * deviation, mean + 1.96 * deviation
    inside = float(np.mean((low <= y_test) & (y_test <= high)))
    return record | {"coverage": None if np.isnan(low).any() else round(inside, 4),
                     "seconds": round(seconds, 3)}  # fmt: skip


def run_classes(method: str, name: str) -> dict[str, Any]:
    """Train on half of iris or on 600 digits."""
    x, y = (load_iris if name == "iris" else load_digits)(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order, [75 if name == "iris" else 600])
    data = (x[train], y[train], x[test], y[test])
    return run(method, data, data if method != PEER else None)


def rows_of(name: str, partition: int) -> tuple[np.ndarray, ...]:
    if name == "generated":
        random = np.random.default_rng(partition)
        x = random.normal(size=(200, 3))
        y = np.sin(x[:, 0]) + 0.1 * random.normal(size=200)
        return x[:60], y[:60], x[60:], y[60:]
    x, y = (np.asarray(part) for part in jsvm.datasets.load(name))
    if name == "abalone":
        sexes = jsvm.datasets.arrays(name)["sex"]
        x = np.column_stack([sexes[:, None] == np.array(["F", "I", "M"]), x])
    order = np.random.default_rng([2026, partition]).permutation(len(y))
    train, test = np.split(order, [REGRESSIONS[name]])
    return x[train], y[train], x[test], y[test]


def show_others(records: dict[str, Any]) -> None:
    for part, columns in (("regression", ("error", "coverage", "seconds")),
                          ("classes", ("error", "log_loss", "seconds"))):  # fmt: skip
        of_part = {k: v for k, v in records.items() if k.startswith(part)}
        if not of_part:
            continue
        print(f"\n{part}: means over partitions\n\n| set | method | partitions | "
              + " | ".join(columns) + " |\n|---|---|---|---|---|---|")  # fmt: skip
        for start in dict.fromkeys(key.rsplit("/", 1)[0] for key in of_part):
            rows = [v for k, v in of_part.items() if k.startswith(start + "/")]
            # None: the method has no such score, or the machine was suspended during the run
            columns_of = ([row[c] for row in rows if row[c] is not None] for c in columns)
            cells = [f"{np.mean(values):.4g}" if values else "-" for values in columns_of]
            _, name, method = start.split("/")
            print(f"| {name} | {method} | {len(rows)} | " + " | ".join(cells) + " |")


def show(records: dict[str, Any], methods: Sequence[str], partitions: Sequence[int]) -> None:
    """Tables of the methods, over the partitions that all of them have."""
    methods = [m for m in methods if any(key.split("/")[1:2] == [m] for key in records)]
    if not methods:
        return
    print("Means over partitions: error in %, log loss in nats, seconds of `fit`\n")
    print("| set | partitions | " + " | ".join(f"{m} | log loss | s" for m in methods) + " |")
    print("|---|---|" + "---|---|---|" * len(methods))
    means: dict[str, dict[str, list[float]]] = {}
    for name in dict.fromkeys(key.split("/")[0] for key in records if key.count("/") == 2):
        common = [
            one for one in partitions if all(f"{name}/{m}/{one:02d}" in records for m in methods)
        ]
        if not common:
            continue
        rows = {m: [records[f"{name}/{m}/{one:02d}"] for one in common] for m in methods}
        means[name] = {
            m: [float(np.mean([row[what] for row in rows[m]])) for what in rows[m][0]]
            for m in methods
        }
        cells = [
            f"{e:.2f} | {loss:.4f} | {s:.2f}" for e, loss, s, _ in (means[name][m] for m in methods)
        ]
        print(f"| {name} | {len(common)} | " + " | ".join(cells) + " |")
    if not means or PEER not in methods:
        return
    table = np.array([[means[name][m] for m in methods] for name in means]).round(6)
    grid = table[:, methods.index(PEER)]
    print("\n| method | mean error | mean log loss | sets of lower error | sets of lower log loss |"
          " time over the peer's (geometric mean) | largest |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for column, method in enumerate(methods):
        ours = table[:, column]
        ratios = ours[:, 2] / grid[:, 2]
        print(
            f"| {method} | {ours[:, 0].mean():.2f} | {ours[:, 1].mean():.4f} | "
            f"{np.sum(ours[:, 0] < grid[:, 0])} of {len(ours)} | "
            f"{np.sum(ours[:, 1] < grid[:, 1])} of {len(ours)} | "
            f"{np.exp(np.log(ratios).mean()):.2f} | {ratios.max():.2f} |"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument(
        "--methods", nargs="+", default=DEFAULTS, choices=[*ESTIMATORS, *PEERS, PEER]
    )
    parser.add_argument("--partitions", type=int, default=5, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first partition")
    parser.add_argument("--parts", nargs="+", default=["classification"], choices=PARTS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="generated data, nothing saved")
    parser.add_argument(
        "--show", action="store_true", help="print saved results and compute nothing"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets, options.partitions, options.methods = ["generated"], 1, ["LSSVC", PEER]
        options.output = None if options.output == RESULTS else options.output
    chosen = range(options.first, options.first + options.partitions)
    store = Store(options.output, "examples/benchmarks/estimators.py")
    parts = () if options.show else options.parts
    if "regression" in parts:
        for name in ("generated",) if options.quick else REGRESSIONS:
            for method in REGRESSORS:
                for partition in range(options.partitions):
                    key = f"regression/{name}/{method}/{partition:02d}"
                    data = rows_of(name, partition)
                    print(key, store.compute(key, lambda: run_regression(method, data)), flush=True)
    if "classes" in parts:
        for name in ("iris",) if options.quick else ("iris", "digits"):
            for method in ("BayesianSVC", PEER):
                key = f"classes/{name}/{method}/00"
                print(key, store.compute(key, lambda: run_classes(method, name)), flush=True)
    for name in options.sets if "classification" in parts else []:
        for method in options.methods:
            for partition in chosen:
                # the first partition of a set compiles, so another one is fitted before it
                other = load(name, chosen.stop) if partition == chosen.start else None
                key = f"{name}/{method}/{partition:02d}"
                record = store.compute(key, lambda: run(method, load(name, partition), other))
                print(f"{key:32s} {record}", flush=True)
    show(store.records, options.methods, chosen)
    show_others(store.records)


if __name__ == "__main__":
    main()

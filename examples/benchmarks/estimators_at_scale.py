"""Estimators with their defaults on 15,000 to 244,000 rows, against a grid search and boosted trees.

    python examples/benchmarks/estimators_at_scale.py                    # all sets; three or four hours
    python examples/benchmarks/estimators_at_scale.py --sets magic casp  # some of the sets
    python examples/benchmarks/estimators_at_scale.py --methods ours trees
    python examples/benchmarks/estimators_at_scale.py --quick            # generated data, to see that it runs
    python examples/benchmarks/estimators_at_scale.py --show             # prints the saved tables

Classification (`magic`, `electricity`, and `nycflights`: is the flight late?): `BayesianSVC()` and `LSSVC()`
choose a lengthscale for each input, and C. The grid is `GridSearchCV` over `StandardScaler`, `Nystroem` and
`LinearSVC` with 5 values of gamma (1/4 to 64, divided by the number of inputs), 5 of C (0.01 to 100), 3 folds
and 300 landmarks (`--landmarks`). Its best machine is fitted to all rows. Its probabilities are a sigmoid of
decision values of 3 held-out folds; the fits for them count in the time.

Regression (`casp`): `BayesianSVR()`. The grid is over `Nystroem` and `Ridge`, with 5 values of alpha (0.001
to 10). Only `BayesianSVR` has intervals.

Boosted trees are `HistGradientBoostingClassifier()` and `HistGradientBoostingRegressor()`.

Each method runs once in this process, with one job, and ours with compilation. `s` are seconds on the clock,
`CPU s` those of all threads of the process, which matter if other work shares the machine. Each record is
saved in `results/estimators_at_scale.json` as it is computed, and each point of a grid in
`results/estimators_at_scale_grids.json`; run the script again to resume. `cores` is the number of cores that
the process may use. The sets come from the folder `JAXSVM_DATA`.
"""

import argparse
import itertools
import os
import resource
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from store import Store

import jaxsvm as jsvm
from jaxsvm.sklearn import LSSVC, BayesianSVC, BayesianSVR

RESULTS = Path(__file__).parent / "results" / "estimators_at_scale.json"
POINTS = RESULTS.with_name("estimators_at_scale_grids.json")
CLASSES, TARGETS = ("magic", "electricity", "nycflights"), ("casp",)
METHODS = ("ours", "grid", "trees")
OURS = {"BayesianSVC": BayesianSVC, "LSSVC": LSSVC, "BayesianSVR": BayesianSVR}
FOLDS = 3
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def data(name: str) -> Data:
    """Inputs and targets of the training rows and of the test rows."""
    if name.startswith("generated"):
        random = np.random.default_rng(0)
        x = random.normal(size=(400, 4))
        latent = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * random.normal(size=400)
        y = np.sign(latent) if name.endswith("classes") else latent
        return x[:200], y[:200], x[200:], y[200:]
    found = jsvm.datasets.arrays(name)
    x, y = (np.asarray(found[field], float) for field in ("X", "y"))
    if name == "nycflights":
        y = np.where(y > 0, 1.0, -1.0)
    train, test = found["train_idx"], found["test_idx"]
    return x[train], y[train], x[test], y[test]


class Grid:
    """A grid search over Nystrom features and a linear machine, with probabilities for classes.

    Each point of the grid is a `GridSearchCV` of its own, so that `store` saves it and an interrupted search
    goes on. `seconds` and `cpu_seconds` are those of all points and of the last fits together, whichever run
    they come from.
    """

    def __init__(self, classify: bool, landmarks: int, store: Store, name: str, points: int = 5):
        self.classify, self.landmarks, self.points = classify, landmarks, points
        self.store, self.name = store, name

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Grid":
        """Search, fit the best to all rows, and fit the sigmoid."""
        features = Nystroem(n_components=self.landmarks, random_state=0)
        machine: Any = LinearSVC(random_state=0) if self.classify else Ridge()
        pipeline = make_pipeline(StandardScaler(), features, machine)
        gammas = 4.0 ** np.arange(-1, 4)[: self.points] / x.shape[1]
        penalty = "linearsvc__C" if self.classify else "ridge__alpha"
        penalties = np.logspace(-2, 2, 5) if self.classify else np.logspace(-3, 1, 5)
        found = []
        for values in itertools.product(gammas.tolist(), penalties[: self.points].tolist()):
            point: dict[str, float] = dict(zip(("nystroem__gamma", penalty), values, strict=True))
            key = f"{self.name}/{text(point)}"
            scored = self.store.compute(key, lambda point=point: score(pipeline, point, x, y))
            print(f"{key:40s} {scored}", flush=True)
            found.append((scored["score"], point, scored))
        _, self.point, _ = max(found, key=lambda one: one[0])
        begin, work = time.perf_counter(), time.process_time()
        best: Any = clone(pipeline)
        self.best = best.set_params(**self.point).fit(x, y)
        if self.classify:
            held_out: Any = cross_val_predict(self.best, x, y, cv=FOLDS, method="decision_function")
            self.sigmoid = LogisticRegression(C=1e6).fit(held_out[:, None], y)
        self.seconds = time.perf_counter() - begin + sum(one["seconds"] for *_, one in found)
        self.cpu_seconds = time.process_time() - work + sum(one["cpu_seconds"] for *_, one in found)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The labels, or the targets."""
        return self.best.predict(x)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """The probabilities of both classes."""
        return self.sigmoid.predict_proba(self.best.decision_function(x)[:, None])

    @property
    def chosen(self) -> str:
        """The best point of the grid."""
        return text(self.point)


def text(point: dict[str, float]) -> str:
    """The values of a point of the grid."""
    return ", ".join(f"{key.split('__')[1]} {value:.3g}" for key, value in point.items())


def score(pipeline: Any, point: dict[str, float], x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """The mean score of the folds at a point of the grid, and the time that it takes."""
    begin, work = time.perf_counter(), time.process_time()
    grid = {key: [value] for key, value in point.items()}
    search = GridSearchCV(pipeline, grid, cv=FOLDS, refit=False).fit(x, y)
    return {
        "score": round(float(search.best_score_), 6),
        "seconds": round(time.perf_counter() - begin, 2),
        "cpu_seconds": round(time.process_time() - work, 2),
    }


def make(method: str, classify: bool, options: Any, points: Store, name: str) -> Any:
    """An estimator with its defaults, or a quick one."""
    if method in OURS:
        quick: dict[str, Any] = {"max_iter": 3, "ard": False} if options.quick else {}
        return OURS[method](random_state=0, **quick)
    if method == "grid":
        if options.quick:
            return Grid(classify, 30, points, name, points=2)
        return Grid(classify, options.landmarks, points, name)
    trees = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    return trees(random_state=0)


def run(method: str, name: str, options: Any, grids: Store) -> dict[str, Any]:
    """Time of the fit, errors on the test rows, and what was chosen."""
    classify = name.endswith("classes") or name in CLASSES
    x, y, points, answers = data(name)
    estimator = make(method, classify, options, grids, name)
    begin, work = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # searches and peers may reach their limits of iterations
        estimator.fit(x, y)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - work
    if method == "grid":
        seconds, cpu_seconds = estimator.seconds, estimator.cpu_seconds
    record: dict[str, Any] = {
        "rows": len(y),
        "cores": len(os.sched_getaffinity(0)),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }
    guesses = estimator.predict(points)
    if classify:
        record["error"] = round(100 * float(np.mean(guesses != answers)), 3)
        record["log_loss"] = round(float(log_loss(answers, estimator.predict_proba(points))), 5)
    else:
        record["error"] = round(float(np.mean((guesses - answers) ** 2)) ** 0.5, 4)
        if method in OURS:
            low, high = estimator.predict_interval(points)
            record["coverage"] = round(float(np.mean((low <= answers) & (answers <= high))), 4)
    if method in OURS:
        lost = f"{100 * estimator.lost_variance_:.1f} % lost"
        record["chosen"] = f"rank {estimator.rank_ or 'exact'}, {lost}, {estimator.n_iter_} steps"
    elif method == "grid":
        record["chosen"] = estimator.chosen
    return record


def show(records: dict[str, Any]) -> None:
    """Print the records as tables: error in % or root mean square error, log loss or coverage."""
    for names, columns in ((CLASSES, "error % | log loss"), (TARGETS, "error | coverage of 95 %")):
        rows = [key for key in records if key.split("/")[0] in names]
        if not rows:
            continue
        print(f"\n| set | method | s | CPU s | {columns} | chosen |\n|---|---|---|---|---|---|---|")
        for key in rows:
            name, method = key.split("/")
            found = records[key]
            second = found.get("log_loss", found.get("coverage"))
            error = f"{found['error']:.2f}" if names is CLASSES else f"{found['error']:.3f}"
            print(
                f"| {name} | {method} | {found['seconds']:.0f} | {found['cpu_seconds']:.0f} | {error} | "
                f"{'-' if second is None else format(second, '.4f')} | {found.get('chosen', '-')} |"
            )
    compare(records)


def compare(records: dict[str, Any]) -> None:
    """Print times as shares of the grid's, and differences of errors."""
    for key, found in records.items():
        name, method = key.split("/")
        grid, trees = records.get(f"{name}/grid"), records.get(f"{name}/trees")
        if method not in OURS or grid is None or trees is None:
            continue
        time_share = found["seconds"] / grid["seconds"]
        work_share = found["cpu_seconds"] / grid["cpu_seconds"]
        print(
            f"{name}, {method}: {time_share:.2f} of the grid's seconds, {work_share:.2f} of its CPU seconds; "
            f"error {found['error'] - grid['error']:+.3f} to the grid's, "
            f"{found['error'] - trees['error']:+.3f} to the trees'"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = (*CLASSES, *TARGETS)
    parser.add_argument("--sets", nargs="+", default=names, choices=names)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=(*METHODS, *OURS))
    parser.add_argument("--landmarks", type=int, default=300, help="of the grid search")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--points", type=Path, default=POINTS, help="saved points of the grids")
    parser.add_argument("--quick", action="store_true", help="generated data, nothing saved")
    parser.add_argument("--show", action="store_true", help="print saved tables, compute nothing")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets = ["generated classes", "generated targets"]
    about = "examples/benchmarks/" + Path(__file__).name
    store = Store(None if options.quick else options.output, about)
    grids = Store(None if options.quick else options.points, about)
    for name in () if options.show else options.sets:
        classify = name.endswith("classes") or name in CLASSES
        ours = ("BayesianSVC", "LSSVC") if classify else ("BayesianSVR",)
        wanted = [one for m in options.methods for one in (ours if m == "ours" else (m,))]
        for method in wanted:
            key = f"{name}/{method}"
            record = store.compute(key, lambda: run(method, name, options, grids))
            print(f"{key:24s} {record}", flush=True)
    show(store.records)


if __name__ == "__main__":
    main()

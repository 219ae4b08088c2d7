"""The quality of class probabilities of support vector machines, on the IDA benchmark sets.

    python examples/papers/calibration.py                  # 13 sets, five partitions of each
    python examples/papers/calibration.py --quick          # one set, one partition: a few seconds
    python examples/papers/calibration.py --show           # prints the saved table
    python examples/papers/calibration.py --show --figure calibration.png   # also reliability diagrams

On every partition a hinge machine with a spherical RBF kernel and an offset is tuned by ascending the exact
evidence (rank 40). Then probabilities are computed at the same kernel and C:

- samples, normalized and average: from draws of the posterior (`jaxsvm.sample`, the exact kernel), with
  both rules for a probability;
- Laplace, normalized and average: from the Gaussian posterior around the fit (`jaxsvm.laplace`);
- Platt: scikit-learn's `CalibratedClassifierCV` (a sigmoid of the decision value, five folds) around `SVC`.

[GS03, sec. 4] note that C matters for class probabilities, but do not study them. The scores on test data
are the log loss in nats, the expected calibration error (ten bins), the Brier score, and the error of the
more probable label in %.

Results are saved in `results/calibration.json` as they are computed; run the script again to resume. Needs
the benchmark data (see `docs/files.md`) and scikit-learn.
"""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

# several threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpy as np
from sklearn import calibration as sklearn_calibration
from sklearn import svm
from store import Store

import jaxsvm as jsvm
from jaxsvm import calibration, kernels, losses

RESULTS = Path(__file__).parent / "results" / "calibration.json"
SETS = (
    "thyroid", "titanic", "heart", "breast_cancer", "banana", "diabetis", "twonorm", "ringnorm",
    "waveform", "flare_solar", "german", "splice", "image",
)  # fmt: skip
SCORES = ("log_loss", "ece", "brier", "error")
DRAWN = (
    "samples, normalized",
    "Laplace, normalized",
    "Platt",
)  # the two averages would hide the others


def tune(x: np.ndarray, y: np.ndarray, max_steps: int) -> jsvm.KernelMachine:
    kernel = kernels.RBF(np.sqrt(x.shape[1])) + kernels.Constant(0.1)
    model = jsvm.KernelMachine(kernel, losses.Hinge(0.6))
    low_rank = jsvm.Nystrom(rank=40, landmarks=min(200, len(y)))
    return jsvm.evidence_ascent(
        model, x, y, key=jax.random.key(0), approximation=low_rank, max_steps=max_steps
    ).model


def laplace_probabilities(
    model: jsvm.KernelMachine, x: np.ndarray, y: np.ndarray, x_test: np.ndarray
) -> dict[str, Any]:
    posterior = jsvm.laplace(jsvm.fit(model, x, y, tolerance=1e-7))
    return {
        f"Laplace, {rule}": np.asarray(posterior.probability(x_test, rule))
        for rule in ("normalized", "average")
    }


def sample_probabilities(
    model: jsvm.KernelMachine, x: np.ndarray, y: np.ndarray, x_test: np.ndarray
) -> dict[str, Any]:
    posterior = jsvm.sample(model, x, y, key=jax.random.key(1))
    return {
        f"samples, {rule}": np.asarray(posterior.probability(x_test, rule))
        for rule in ("normalized", "average")
    }


def platt_probabilities(
    model: jsvm.KernelMachine, x: np.ndarray, y: np.ndarray, x_test: np.ndarray
) -> dict[str, Any]:
    def gram(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(model.kernel.cross(a, b))

    # SVC has a free offset, so the Constant kernel hardly matters
    penalty = float(jsvm.parameters(model)["loss.C"])
    machine = svm.SVC(C=penalty, kernel=cast(Any, gram))  # its types know names of kernels only
    calibrated: Any = sklearn_calibration.CalibratedClassifierCV(
        machine, method="sigmoid", cv=5
    ).fit(x, y)
    positive = list(calibrated.classes_).index(1)
    return {"Platt": calibrated.predict_proba(x_test)[:, positive]}


METHODS = (laplace_probabilities, sample_probabilities, platt_probabilities)


def scores_of(y: np.ndarray, p: np.ndarray) -> dict[str, Any]:
    return {
        "log_loss": round(calibration.log_loss(y, p), 5),
        "ece": round(calibration.expected_calibration_error(y, p), 5),
        "brier": round(calibration.brier_score(y, p), 5),
        "error": round(100 * float(np.mean(np.where(p > 0.5, 1, -1) != y)), 3),
        "bins": bins_of(y, p),
    }


def bins_of(y: np.ndarray, p: np.ndarray) -> dict[str, Any]:
    """The data of a reliability diagram: for each bin the predictions, their sum, and the labels +1."""
    bins = calibration.reliability(y, p)
    prediction, frequency = (np.nan_to_num(part) for part in bins[:2])
    return {
        "count": bins.counts.tolist(),
        "sum": (prediction * bins.counts).tolist(),
        "positive": np.round(frequency * bins.counts).astype(int).tolist(),
    }


def pooled(rows: list[dict[str, Any]], label: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels (all +1 first) and predictions of all partitions; predictions are the means of their bins.

    The reliability diagram does not change, and the labels are the same for all methods.
    """
    parts = [row[label]["bins"] for row in rows]
    count, total, positive = (
        np.sum([part[name] for part in parts], axis=0) for name in ("count", "sum", "positive")
    )
    mean = total / np.maximum(count, 1)
    p = np.concatenate([np.repeat(mean, positive), np.repeat(mean, count - positive)])
    return np.where(np.arange(len(p)) < positive.sum(), 1, -1), p


def draw(store: Store, path: Path) -> None:
    """Draw a reliability diagram for each set, with all its partitions together."""
    from matplotlib import pyplot

    from jaxsvm import plot

    sets: dict[str, list[dict[str, Any]]] = {}
    for name in SETS:
        rows = [v for k, v in store.records.items() if k.startswith(f"{name}/")]
        rows = [row for row in rows if all("bins" in row[label] for label in DRAWN)]
        if rows:
            sets[name] = rows
    if not sets:
        raise SystemExit(
            "no record holds the bins of a reliability diagram, because an earlier version computed them; "
            "use --output with another file to compute them again"
        )
    columns = min(3, len(sets))
    figure, grid = pyplot.subplots(
        -(-len(sets) // columns), columns, squeeze=False, layout="constrained",
        figsize=(4 * columns, 3.8 * -(-len(sets) // columns)),
    )  # fmt: skip
    for ax in grid.flat[len(sets) :]:
        ax.set_visible(False)
    for ax, (name, rows) in zip(grid.flat, sets.items(), strict=False):
        pairs = {label: pooled(rows, label) for label in DRAWN}
        plot.reliability(pairs[DRAWN[0]][0], {label: p for label, (_, p) in pairs.items()}, ax=ax)
        ax.set_title(f"{name}, {len(rows)} partitions")
    figure.savefig(path, dpi=80)
    print(f"figure in {path}")


def run_partition(name: str, partition: int, max_steps: int) -> dict[str, Any]:
    """Test scores of all methods on one partition, and the parameters of the machine."""
    x, y, x_test, y_test = (np.asarray(a) for a in jsvm.datasets.load(name, split=partition))
    begin = time.perf_counter()
    model = tune(x, y, max_steps)
    values = {k: float(f"{float(v):.4g}") for k, v in jsvm.parameters(model).items()}
    record: dict[str, Any] = {
        "parameters": values,
        "tuning_seconds": round(time.perf_counter() - begin, 2),
    }
    for method in METHODS:
        begin = time.perf_counter()
        for label, p in method(model, x, y, x_test).items():
            record[label] = scores_of(y_test, p)
            record[label]["seconds"] = round(time.perf_counter() - begin, 2)
    return record


def table(store: Store) -> str:
    """Means and standard errors over partitions."""
    lines = [
        "Means and standard errors over partitions.",
        "",
        "| set | partitions | method | log loss | calibration error | Brier | error (%) |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in SETS:
        rows = [v for k, v in store.records.items() if k.startswith(f"{name}/")]
        labels = [k for row in rows[:1] for k in row if k not in ("parameters", "tuning_seconds")]
        for label in labels:
            cells: list[str] = []
            for score in SCORES:
                values = np.array([row[label][score] for row in rows if label in row])
                digits = 1 if score == "error" else 3
                spread = ""
                if len(values) > 1:
                    spread = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.{digits}f}"
                cells.append(f"{values.mean():.{digits}f}{spread}")
            lines.append(f"| {name} | {len(rows)} | {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--partitions", type=int, default=5, help="how many partitions")
    parser.add_argument("--max-steps", type=int, default=40)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--figure", type=Path, help="draw reliability diagrams into this file")
    parser.add_argument("--no-save", action="store_true", help="print the table only")
    parser.add_argument("--quick", action="store_true", help="one small set, one partition")
    parser.add_argument(
        "--show", action="store_true", help="print saved results and compute nothing"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets, options.partitions, options.max_steps = ("thyroid",), 1, 3
        options.output = None if options.output == RESULTS else options.output
    about = "Scores of class probabilities, python examples/papers/calibration.py"
    store = Store(None if options.no_save else options.output, about)
    if not options.show:
        with jax.enable_x64(True):
            for name in options.sets:  # all partitions of a set compile once
                for partition in range(options.partitions):
                    store.compute(
                        f"{name}/{partition:02d}",
                        lambda n=name, p=partition: run_partition(n, p, options.max_steps),
                    )
                    print(f"{name} {partition}: done", flush=True)
    print(table(store))
    if options.figure:
        draw(store, options.figure)


if __name__ == "__main__":
    main()

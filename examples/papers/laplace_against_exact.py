"""The Laplace approximations of the evidence compared with the exact evidence.

    python examples/papers/laplace_against_exact.py                      # Twonorm, 100 examples
    python examples/papers/laplace_against_exact.py --quick              # 40 examples, three points, hinge
    python examples/papers/laplace_against_exact.py --data pima_ripley   # needs the benchmark data
    python examples/papers/laplace_against_exact.py --show               # prints the saved tables
    python examples/papers/laplace_against_exact.py --figure laplace.png

[GS03] approximate the evidence of hinge and squared hinge (eqs. 15 and 17, and for comparison Kwok's
smoothing of the hinge). They could not measure the error, since only the gradient of the evidence was known
exactly. Here all are compared in nats, for several values of C, of the lengthscale and of the amplitude of
an RBF kernel, with the other two at their middle values. Error bars are standard errors of
`jaxsvm.evidence.log_evidence`.

Results are saved in `results/laplace_against_exact.json` as they are computed; run the script again to
resume.
"""

import argparse
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# several threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpy as np
from store import Store

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm.criteria import LaplaceEvidence
from jaxsvm.evidence import Thermodynamic, log_evidence

RESULTS = Path(__file__).parent / "results" / "laplace_against_exact.json"
DATA = ("twonorm", "pima_ripley")
LOSSES = {"hinge": losses.Hinge, "squared hinge": losses.SquaredHinge}
KWOK = 5.0  # steepness of Kwok's smoothing
# the scans: middle values, and the factors that multiply them
MIDDLE = {"C": 1.0, "lengthscale": 1.0, "variance": 4.0}
FACTORS = {
    "C": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    "lengthscale": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    "variance": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0),
}
Rows = list[tuple[float, dict[str, Any]]]  # of a scan: a value and its record
QUICK_FACTORS = {name: (0.25, 1.0, 4.0) for name in FACTORS}


def load(name: str, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """The first examples of a set, standardized."""
    if name == "twonorm":
        x, y = jsvm.datasets.twonorm(examples, key=jax.random.key(2003))
    else:
        parts = jsvm.datasets.load(name, split=0)
        x, y = parts.x_train[:examples], parts.y_train[:examples]
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def machine(
    loss: str, inputs: int, C: float, lengthscale: float, variance: float
) -> jsvm.KernelMachine:
    """The lengthscale is in units of the square root of the number of inputs, a typical distance."""
    kernel = kernels.RBF(lengthscale * inputs**0.5, variance) + kernels.Constant(0.1)
    return jsvm.KernelMachine(kernel, LOSSES[loss](C))


APPROXIMATIONS = {
    "hinge": {"Laplace": LaplaceEvidence(), "Kwok": LaplaceEvidence(hinge_steepness=KWOK)},
    "squared hinge": {"Laplace": LaplaceEvidence(), "unsmoothed": LaplaceEvidence(smoothing=0.0)},
}


def compare(
    x: np.ndarray, y: np.ndarray, loss: str, values: dict[str, Any], method: Thermodynamic
) -> dict[str, Any]:
    """The log evidence and all its approximations at one point."""
    model = machine(loss, x.shape[1], **values)
    record: dict[str, Any] = {}
    for name, criterion in APPROXIMATIONS[loss].items():
        # Kwok's curvatures can be negative; then the approximation may not exist
        value = -float(criterion(model, x, y, throw=False))
        record[name] = round(value, 4) if np.isfinite(value) else None
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jsvm.sampling.SamplingWarning)  # they are in the record
        z = log_evidence(model, x, y, key=jax.random.key(1), method=method)
    return record | {
        "exact": round(float(z.value), 4),
        "standard_error": round(float(z.standard_error), 4),
        "problems": list(z.problems),
        "seconds": round(time.perf_counter() - begin, 2),
    }


def points(factors: dict[str, tuple[float, ...]]) -> Iterator[tuple[str, dict[str, float]]]:
    """All points of the three scans: the name of the scanned parameter, and all values."""
    for name, multiples in factors.items():
        for factor in multiples:
            yield name, MIDDLE | {name: round(MIDDLE[name] * factor, 6)}


def label(data: str, examples: int, loss: str, values: dict[str, Any]) -> str:
    return f"{data}/{examples}/{loss}/" + "/".join(f"{name}={v:g}" for name, v in values.items())


def scan(
    store: Store, data: str, examples: int, loss: str, name: str, factors: dict[str, Any]
) -> Rows:
    """The saved records of one scan, each with the value of its parameter, in order."""
    rows: Rows = []
    for moved, values in points(factors):
        record = store.records.get(label(data, examples, loss, values))
        if moved == name and record is not None:
            rows.append((values[name], record))
    return rows


def table(store: Store, data: str, examples: int, factors: dict[str, Any]) -> str:
    lines = [
        f"{data}, {examples} examples: ln Q(Y|X) in nats, and how far each approximation is above it."
    ]
    for loss in LOSSES:
        other = list(APPROXIMATIONS[loss])[1]
        for name in FACTORS:
            rows = scan(store, data, examples, loss, name, factors)
            if not rows:
                continue
            lines += [
                "",
                f"| {loss}, {name} | evidence | Laplace | {other} | remarks |",
                "|---|---|---|---|---|",
            ]
            for value, record in rows:
                cells = [
                    f"{value:g}",
                    f"{record['exact']:.2f} ± {record['standard_error']:.2f}",
                    *(_difference(record, column) for column in ("Laplace", other)),
                    "; ".join(record["problems"]),
                ]
                lines.append(f"| {' | '.join(cells)} |")
            lines.append(f"\n{verdict(rows, name, other)}")
    return "\n".join(lines)


def _difference(record: dict[str, Any], column: str) -> str:
    return "-" if record[column] is None else f"{record[column] - record['exact']:+.1f}"


def verdict(rows: Rows, name: str, other: str) -> str:
    """The optimum of each, and the largest error of the approximations."""
    words: list[str] = []
    for column in ("exact", "Laplace", other):
        there = [(value, record) for value, record in rows if record[column] is not None]
        best = max(there, key=lambda row: row[1][column])[0]
        gaps = {value: abs(record[column] - record["exact"]) for value, record in there}
        near = ", ".join(f"{value:g}" for value, gap in gaps.items() if gap < 2)
        words.append(f"{column} {best:g}")
        if column != "exact":
            words[-1] += (
                f" (within 2 nats at: {near or 'none'}; at most {max(gaps.values()):.0f} off)"
            )
    return f"Best {name}: " + "; ".join(words) + "."


def draw(store: Store, data: str, examples: int, factors: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, 3, figsize=(10, 5.6), layout="constrained", sharey="row")
    for row, loss in zip(grid, LOSSES, strict=True):
        for ax, name in zip(row, FACTORS, strict=True):
            rows = scan(store, data, examples, loss, name, factors)
            at = [value for value, _ in rows]
            exact = np.array([record["exact"] for _, record in rows])
            error = np.array([record["standard_error"] for _, record in rows])
            ax.errorbar(at, exact, 2 * error, color="black", marker=".", label="evidence")
            for column, style in zip(APPROXIMATIONS[loss], ("C0--", "C1:"), strict=True):
                values = [record[column] for _, record in rows]
                values = [np.nan if value is None else value for value in values]
                ax.plot(at, values, style, label=column)
            ax.set(xscale="log", xlabel=name, title=loss)
            ax.set_xticks(at, [f"{value:g}" for value in at])
            ax.minorticks_off()
        row[0].set_ylabel("log evidence / nats")
        row[0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    print(f"figure in {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", default="twonorm", choices=DATA)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="40 examples, three points per scan")
    parser.add_argument(
        "--show", action="store_true", help="print saved results and compute nothing"
    )
    parser.add_argument("--figure", type=Path, help="draw the scans into this file")
    options = parser.parse_args(arguments)
    method, factors = Thermodynamic(), FACTORS
    if options.quick:
        options.examples, factors = 40, QUICK_FACTORS
        options.output = None if options.output == RESULTS else options.output
        method = Thermodynamic(temperatures=12, chains=8, warmup=20, draws=30)
    about = "Laplace against exact evidence, python examples/papers/laplace_against_exact.py"
    store = Store(options.output, about)
    if not options.show:
        with jax.enable_x64(True):
            x, y = load(options.data, options.examples)
            for loss in list(LOSSES)[:1] if options.quick else LOSSES:
                for _, values in points(factors):
                    key = label(options.data, options.examples, loss, values)
                    record = store.compute(key, lambda: compare(x, y, loss, values, method))
                    print(
                        f"{key}: {record['exact']:.2f} ± {record['standard_error']:.2f}", flush=True
                    )
    print(table(store, options.data, options.examples, factors))
    if options.figure:
        draw(store, options.data, options.examples, factors, options.figure)


if __name__ == "__main__":
    main()

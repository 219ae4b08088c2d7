"""Laplace's approximations of the evidence against the evidence itself.

    python examples/papers/laplace_against_exact.py                      # Twonorm, 100 examples
    python examples/papers/laplace_against_exact.py --quick              # 40 examples, three points, hinge
    python examples/papers/laplace_against_exact.py --data pima_ripley   # needs the benchmark data
    python examples/papers/laplace_against_exact.py --show               # the tables of what is there
    python examples/papers/laplace_against_exact.py --figure laplace.png

[GS03] approximate the evidence of hinge and squared hinge (eqs. 15 and 17, and Kwok's smoothing of the
hinge, for comparison); what they miss could not be told, since only the gradient of the evidence was
known exactly. Here all are compared in nats, along C, the lengthscale and the amplitude of an RBF kernel,
each with the others held at their middle values. Error bars are standard errors of
`jaxsvm.evidence.log_evidence`.

Results are saved as they come in `results/laplace_against_exact.json`; a second call goes on.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # threads that wait for each other cost more than they give

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
# parameters of the scans: the middle, and what is multiplied to it
MIDDLE = {"C": 1.0, "lengthscale": 1.0, "variance": 4.0}
FACTORS = {
    "C": (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    "lengthscale": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    "variance": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0),
}
QUICK_FACTORS = {name: (0.25, 1.0, 4.0) for name in FACTORS}


def load(name: str, examples: int):
    """The first examples of a set, standardized."""
    if name == "twonorm":
        x, y = jsvm.datasets.twonorm(examples, key=jax.random.key(2003))
    else:
        parts = jsvm.datasets.load(name)
        x, y = parts.x_train[:examples], parts.y_train[:examples]
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def machine(loss: str, inputs: int, C: float, lengthscale: float, variance: float):
    """A lengthscale of one is the square root of the number of inputs: the middle of distances."""
    kernel = kernels.RBF(lengthscale * inputs**0.5, variance) + kernels.Constant(0.1)
    return jsvm.KernelMachine(kernel, LOSSES[loss](C))


APPROXIMATIONS = {
    "hinge": {"Laplace": LaplaceEvidence(), "Kwok": LaplaceEvidence(kwok=KWOK)},
    "squared hinge": {"Laplace": LaplaceEvidence(), "unsmoothed": LaplaceEvidence(smoothing=0.0)},
}


def compare(x, y, loss: str, values: dict, method: Thermodynamic) -> dict:
    """The log evidence and all approximations of it at one point."""
    model = machine(loss, x.shape[1], **values)
    record = {}
    for name, criterion in APPROXIMATIONS[loss].items():
        # Kwok's curvatures can be negative, and then there may be no approximation
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


def points(factors: dict):
    """All points of the three scans: which parameter is moved, and all values."""
    for name, multiples in factors.items():
        for factor in multiples:
            yield name, MIDDLE | {name: round(MIDDLE[name] * factor, 6)}


def label(data: str, examples: int, loss: str, values: dict) -> str:
    return f"{data}/{examples}/{loss}/" + "/".join(f"{name}={v:g}" for name, v in values.items())


def scan(store: Store, data: str, examples: int, loss: str, name: str, factors: dict):
    """The records of one scan that are there, in order, and where they are."""
    found = []
    for moved, values in points(factors):
        record = store.records.get(label(data, examples, loss, values))
        if moved == name and record is not None:
            found.append((values[name], record))
    return found


def table(store: Store, data: str, examples: int, factors: dict) -> str:
    lines = [f"{data}, {examples} examples: ln Q(Y|X) in nats, and approximations minus that."]
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


def _difference(record: dict, column: str) -> str:
    return "-" if record[column] is None else f"{record[column] - record['exact']:+.1f}"


def verdict(rows, name: str, other: str) -> str:
    """Where each has its optimum, and how far the approximations are off."""
    words = []
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


def draw(store: Store, data: str, examples: int, factors: dict, path: Path) -> None:
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


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="twonorm", choices=DATA)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="40 examples, three points a scan")
    parser.add_argument("--show", action="store_true", help="compute nothing")
    parser.add_argument("--figure", type=Path, help="draw the scans into this file")
    chosen = parser.parse_args(arguments)
    method, factors = Thermodynamic(), FACTORS
    if chosen.quick:
        chosen.examples, factors = 40, QUICK_FACTORS
        chosen.output = None if chosen.output == RESULTS else chosen.output
        method = Thermodynamic(temperatures=12, chains=8, warmup=20, draws=30)
    about = "Laplace against exact evidence, python examples/papers/laplace_against_exact.py"
    store = Store(chosen.output, about)
    if not chosen.show:
        with jax.enable_x64(True):
            x, y = load(chosen.data, chosen.examples)
            for loss in list(LOSSES)[:1] if chosen.quick else LOSSES:
                for _, values in points(factors):
                    key = label(chosen.data, chosen.examples, loss, values)
                    record = store.compute(key, lambda: compare(x, y, loss, values, method))
                    print(
                        f"{key}: {record['exact']:.2f} ± {record['standard_error']:.2f}", flush=True
                    )
    print(table(store, chosen.data, chosen.examples, factors))
    if chosen.figure:
        draw(store, chosen.data, chosen.examples, factors, chosen.figure)


if __name__ == "__main__":
    main()

"""Chu, Keerthi and Ong on Boston housing, computer activity and abalone: Tables V, VI and VII.

    python examples/papers/chu_benchmarks.py                  # all: hours; or --sets boston, --methods BSVR
    python examples/papers/chu_benchmarks.py --quick          # generated data, a minute
    python examples/papers/chu_benchmarks.py --show           # prints the saved tables

Bayesian support vector regression (BSVR) and Gaussian process regression (GPR) are selected by the
evidence, with one lengthscale and with one for each input (ARD), and support vector regression (SVR) by
cross-validation, on each of several random partitions. Paired t-tests compare two methods over the
partitions that both have.

- The partitions are drawn from seed 2004 and differ from the paper's. Boston has 20 of them (the paper:
  100), the others at most 10; the tables give the numbers. SVR needs 650 fits per partition, so
  `--svr-partitions` can give it fewer.
- Inputs of Boston and of computer activity are standardized with the training part; targets are not. All of
  abalone is standardized beforehand, targets included, with three indicators of the sex, as in the paper.
- beta is the paper's choice for the number of examples: 0.3 for Boston, 0.1 for the others.
- The paper fixes the epsilon of SVR "at a reasonable value" that it does not give. Here it is a tenth of
  the standard deviation of the targets.

Each record is saved in `results/chu_benchmarks.json` as it is computed; run the script again to resume.
Seconds are processor time without compilation. Needs the benchmark data (see `docs/files.md`).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chu_methods as methods  # first: it limits the threads of linear algebra
import jax
import numpy as np
import sets
from store import Store

import jaxsvm as jsvm

RESULTS = Path(__file__).parent / "results" / "chu_benchmarks.json"
METHODS = ("BSVR", "BSVR ARD", "GPR", "GPR ARD", "SVR")
TRAINING = {"boston": 481, "cpu_act": 2000, "abalone": 3000}  # examples; the others are for testing
PARTITIONS = {"boston": 20, "cpu_act": 10, "abalone": 10}

# Tables VI and VII, and footnote 24: ASE and its standard deviation, AAE and its, hours for all partitions
PAPER = {
    "boston": {
        "BSVR": (12.34, 9.20, 2.19, 0.48, 0.9), "SVR": (10.27, 7.21, 2.13, 0.48, 22.0),
        "BSVR ARD": (6.99, 4.38, 1.86, 0.37, 2.2), "GPR ARD": (8.32, 4.35, 2.01, 0.40, 2.4),
    },
    "cpu_act": {
        "BSVR": (17.59, 0.98, 2.33, 0.05, 4.7), "SVR": (13.80, 0.93, 2.28, 0.04, 45.6),
        "BSVR ARD": (5.80, 0.27, 1.687, 0.026, 12.1), "GPR ARD": (5.58, 0.25, 1.686, 0.023, 23.0),
        "GPR": (18.21, 1.07, 2.36, 0.046, None),
    },
    "abalone": {
        "BSVR": (0.438, 0.024, 0.454, 0.0086, 6.5), "SVR": (0.441, 0.021, 0.455, 0.0088, 67.8),
        "BSVR ARD": (0.432, 0.023, 0.451, 0.0095, 13.6),
        "GPR ARD": (0.428, 0.022, 0.463, 0.0087, 43.6),
    },
}  # fmt: skip
# p-values of the paired t-tests, on ASE and on AAE
PAPER_TESTS = {
    ("boston", "BSVR", "SVR"): (0.078, 0.32), ("boston", "BSVR ARD", "GPR ARD"): (0.032, 0.0060),
    ("cpu_act", "BSVR", "SVR"): (5.5e-8, 0.026), ("cpu_act", "BSVR ARD", "GPR ARD"): (0.070, 0.99),
    ("abalone", "BSVR", "SVR"): (0.78, 0.95), ("abalone", "BSVR ARD", "GPR ARD"): (0.73, 0.0094),
}  # fmt: skip
# Table V: ASE on Boston
PAPER_BOSTON = {
    "Ridge regression, polynomial": 10.44, "Ridge regression, splines": 8.51,
    "Ridge regression, ANOVA splines": 7.69, "Relevance vector machine": 7.46, "SVR": 10.27,
    "GPR": 9.13, "BSVR": 12.34, "GPR ARD": 8.32, "BSVR ARD": 6.99,
}  # fmt: skip


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All examples of a set; abalone is standardized as in the paper."""
    data = sets.abalone() if name == "abalone" else jsvm.datasets.load(name)
    x, y = (np.asarray(part) for part in data)
    if name != "abalone":
        return x, y
    sexes = np.eye(3)[x[:, 0].astype(int) + 1]
    return np.column_stack([sexes, *methods.standardize(x[:, 1:])]), methods.standardize(y)[0]


def generated() -> tuple[np.ndarray, np.ndarray]:
    """Two inputs, of which the second is irrelevant."""
    x, noise = np.split(np.asarray(jax.random.normal(methods.key_of(6), (80, 3))), [2], axis=1)
    return x, np.sin(2 * x[:, 0]) + 0.1 * noise[:, 0]


def run(
    data: tuple[np.ndarray, np.ndarray],
    training: int,
    method: str,
    partition: int,
    scale_inputs: bool,
) -> dict[str, Any]:
    """One method on one partition."""
    x, y = data
    order = np.random.default_rng([methods.SEED, len(y), partition]).permutation(len(y))
    train, test = order[:training], order[training:]
    x_train, x_test = x[train], x[test]
    if scale_inputs:
        x_train, x_test = methods.standardize(x_train, x_test)
    if method == "SVR":
        epsilon = 0.1 * float(np.std(y[train]))
        machine, record = methods.by_cross_validation(x_train, y[train], epsilon)
    else:
        loss = methods.gaussian_noise(y[train]) if method.startswith("GPR") else None
        selection, machine, seconds = methods.by_evidence(
            x_train, y[train], ard=method.endswith("ARD"), loss=loss
        )
        record = methods.described(selection, machine, seconds)
    return record | methods.errors(machine.predict(x_test), y[test])


def rows(records: dict[str, Any], name: str, method: str) -> dict[int, dict[str, Any]]:
    """The records of one method on one set, by partition."""
    start = f"{name}/{method}/"
    return {
        int(key.removeprefix(start)): row for key, row in records.items() if key.startswith(start)
    }


def column(records: dict[int, dict[str, Any]], name: str) -> np.ndarray:
    return np.array([row[name] for row in records.values()])


def spread(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def show_boston(records: dict[str, Any]) -> None:
    print("Table V: Boston housing, test ASE ± standard error\n")
    print("| method | partitions | ours | paper |\n|---|---|---|---|")
    for method, paper in PAPER_BOSTON.items():
        errors = column(rows(records, "boston", method), "ASE")
        ours = (
            f"{errors.mean():.2f} ± {spread(errors) / len(errors) ** 0.5:.2f}"
            if errors.size
            else ""
        )
        print(f"| {method} | {errors.size or ''} | {ours} | {paper:.2f} |")


def show_methods(records: dict[str, Any]) -> None:
    print("\nTables VI and VII: mean ± standard deviation over partitions\n")
    print("| set | method | partitions | ASE | paper | AAE | paper | seconds each | paper |")
    print("|---" * 9 + "|")
    for name in dict.fromkeys(key.split("/")[0] for key in records):
        for method in METHODS:
            selected = rows(records, name, method)
            if not selected:
                continue
            paper = PAPER.get(name, {}).get(method)
            cells: list[str] = []
            for number, error in enumerate(("ASE", "AAE")):
                values = column(selected, error)
                about = f" ± {spread(values):.2g}" if len(values) > 1 else ""
                cells.append(f"{values.mean():.4g}{about}")
                theirs = paper[2 * number : 2 * number + 2] if paper else ()
                cells.append(" ± ".join(f"{value:g}" for value in theirs))
            cells.append(f"{column(selected, 'seconds').mean():.1f}")
            hours = paper[4] if paper else None
            count = 100 if name == "boston" else 10
            cells.append("" if hours is None else f"{3600 * hours / count:.0f}")
            print(f"| {name} | {method} | {len(selected)} | {' | '.join(cells)} |")


def show_tests(records: dict[str, Any]) -> None:
    from scipy.stats import ttest_rel

    print("\nPaired t-tests: p-values, and the method with the smaller mean error\n")
    print(
        "| set | methods | partitions | ASE | paper | AAE | paper |\n|---|---|---|---|---|---|---|"
    )
    for (name, first, second), paper in PAPER_TESTS.items():
        one, other = rows(records, name, first), rows(records, name, second)
        common = sorted(one.keys() & other.keys())
        if len(common) < 2:
            continue
        cells: list[str] = []
        for error, theirs in zip(("ASE", "AAE"), paper, strict=True):
            a, b = (np.array([selected[p][error] for p in common]) for selected in (one, other))
            better = first if a.mean() < b.mean() else second
            cells += [f"{ttest_rel(a, b).pvalue:.2g} ({better})", f"{theirs:g}"]
        print(f"| {name} | {first}, {second} | {len(common)} | {' | '.join(cells)} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", nargs="+", default=list(TRAINING), choices=list(TRAINING))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--partitions", type=int, help="default 20 for Boston, 10 for the others")
    parser.add_argument("--svr-partitions", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="a small run on generated data")
    parser.add_argument(
        "--show", action="store_true", help="print saved results and compute nothing"
    )
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    training, partitions = TRAINING, PARTITIONS
    if options.quick:
        options.sets = ["generated"]
        training, partitions = {"generated": 50}, {"generated": 2}
        options.output = None if options.output == RESULTS else options.output
    store = Store(options.output, "examples/papers/chu_benchmarks.py")
    for name in [] if options.show else options.sets:
        data = generated() if options.quick else load(name)
        for partition in range(options.partitions or partitions[name]):
            for method in options.methods:
                if method == "SVR" and partition >= options.svr_partitions:
                    continue
                key = f"{name}/{method}/{partition:02d}"
                scale = name != "abalone"
                record = store.compute(
                    key, lambda: run(data, training[name], method, partition, scale)
                )
                print(f"{key:22s} ASE {record['ASE']:.4f}  {record['seconds']:.1f} s", flush=True)
    show_boston(store.records)
    show_methods(store.records)
    show_tests(store.records)


if __name__ == "__main__":
    main()

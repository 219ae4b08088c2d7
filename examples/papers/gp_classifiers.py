"""All classifiers of the library on the 13 benchmark sets, with the EP-GPC columns of Cawley and Talbot.

    python examples/papers/gp_classifiers.py               # 13 sets, five partitions of each
    python examples/papers/gp_classifiers.py --methods Laplace "Mean field" --partitions 20   # cheap ones
    python examples/papers/gp_classifiers.py --quick       # a part of one set, two partitions, one method
    python examples/papers/gp_classifiers.py --show        # prints the saved tables
    python examples/papers/gp_classifiers.py --show --figure ranks.png    # the critical-difference plot

Hyperparameters are selected on every partition; the selection never uses test data. The kernel is a
spherical RBF kernel with an amplitude, plus a `Constant` kernel for the offset. The columns EP-GPC have the
zero-mean process of the software that Cawley and Talbot used. "ARD" means one lengthscale for each input.

- SVM evidence, SVM GACV: the hinge, by the Laplace evidence and by GACV. SVM span: the squared hinge, by
  the smoothed span estimate.
- Evidence ascent: the hinge, by ascending the exact evidence, sampled in a Nystrom subspace (rank 20, at
  most 200 landmarks). Error and log loss are those of draws from the posterior (rank 100 if there are more
  than 200 examples). This is the only method with random numbers; the seed is the number of the partition.
- Mean field: probit labels with naive mean field, by its leave-one-out log probability.
- Laplace: logistic labels, by the Laplace evidence. EP, EP-GPC: probit labels, by the evidence of
  expectation propagation, which ends when its sites change by less than 1e-6.
- LS-SVM by PRESS, and with Bayesian regularization (BR): read from `results/cawley_talbot_table2.json`.

The search starts at the lengthscale `sqrt(d)`, amplitude 1, offset 0.1 and C = 1, or with ARD at the
spherical solution, and has the bounds of `cawley_talbot_table2.py`. All partitions of a set run before the
next set, so that each method compiles once for each set. Each record is saved in
`results/gp_classifiers.json` as it is computed; run the script again to resume. Seconds are processor time.
Needs the benchmark data (see `docs/files.md`) and scipy.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# several threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gp_ranks
import jax
import jax.numpy as jnp
import numpy as np
from cawley_talbot_table2 import PAPER as SQUARES_PAPER
from cawley_talbot_table2 import RESULTS as LEAST_SQUARES
from cawley_talbot_table2 import SMALL_FIRST
from store import Store

import jaxsvm as jsvm
from jaxsvm import calibration, criteria, gp, kernels, losses

RESULTS = Path(__file__).parent / "results" / "gp_classifiers.json"
# bounds by the end of a parameter's name
BOUNDS = {"lengthscale": (1e-2, 1e2), "variance": (1e-4, 1e4), "C": (1e-2, 1e2)}
OPTIMIZER = jsvm.optimizers.lbfgs(max_move=0.5)
# Cawley and Talbot, Table 2: means and standard errors in %, over 100 partitions (image and splice: 20)
PAPER = {
    "banana": ((10.41, 0.046), (10.46, 0.049)), "breast_cancer": ((26.52, 0.489), (27.97, 0.493)),
    "diabetis": ((23.28, 0.182), (23.86, 0.193)), "flare_solar": ((34.20, 0.175), (33.58, 0.182)),
    "german": ((23.36, 0.211), (23.77, 0.221)), "heart": ((16.65, 0.287), (19.68, 0.366)),
    "image": ((2.80, 0.123), (2.16, 0.068)), "ringnorm": ((4.41, 0.064), (8.58, 0.096)),
    "splice": ((11.61, 0.181), (7.07, 0.765)), "thyroid": ((4.36, 0.217), (4.24, 0.218)),
    "titanic": ((22.64, 0.134), (22.73, 0.134)), "twonorm": ((3.06, 0.034), (4.02, 0.068)),
    "waveform": ((10.10, 0.047), (11.34, 0.195)),
}  # fmt: skip


class Method(NamedTuple):
    """A classifier: its loss, its criterion, and its posterior if it has probabilities.

    Without a criterion the evidence is ascended and the posterior sampled.
    """

    loss: Callable[[float], losses.AbstractClassification]
    criterion: jsvm.criteria.AbstractCriterion | None
    posterior: Callable[..., Any] | None
    frozen: tuple[str, ...] = ()
    offset: bool = True
    start: str | None = None  # ARD: the method whose solution it starts from


def laplace_of_svm(model: jsvm.KernelMachine, x: jax.Array, y: jax.Array) -> jsvm.LaplacePosterior:
    return jsvm.laplace(jsvm.fit(model, x, y, tolerance=1e-6), criteria.LaplaceEvidence())


PROBIT, LOGISTIC = ("loss.noise_variance",), ("loss.C",)  # the amplitude has the same effect
# compared with 1e-10, the gradient changes by less than 1e-4, the value by less than 1e-12 (Twonorm, n = 200)
EP = gp.ExpectationPropagation(tolerance=1e-6)
SPHERICAL = {
    "SVM evidence": Method(losses.Hinge, criteria.LaplaceEvidence(smoothing=0.1), laplace_of_svm),
    "Evidence ascent": Method(losses.Hinge, None, None),
    "SVM span": Method(losses.SquaredHinge, criteria.Span(), None, LOGISTIC),
    "SVM GACV": Method(losses.Hinge, criteria.GACV(), None, LOGISTIC),
    "Mean field": Method(losses.Probit, gp.NaiveMeanField("log"), gp.mean_field, PROBIT),
    "Laplace": Method(losses.Logistic, gp.Laplace(), gp.laplace, LOGISTIC),
    "EP": Method(losses.Probit, EP, gp.expectation_propagation, PROBIT),
    "EP-GPC RBF": Method(losses.Probit, EP, gp.expectation_propagation, PROBIT, False),
}
# with one lengthscale for each input
METHODS = SPHERICAL | {
    f"{label.removesuffix(' RBF')} ARD": SPHERICAL[label]._replace(start=label)
    for label in ("Mean field", "Laplace", "EP-GPC RBF")
}
SQUARES = {"RBF": "LS-SVM", "RBF-BR": "LS-SVM BR", "ARD": "LS-SVM ARD", "ARD-BR": "LS-SVM ARD BR"}


def machine(method: Method, inputs: int, spherical: dict[str, Any] | None) -> jsvm.KernelMachine:
    """The start of the search; with ARD, `spherical` is the record of the spherical solution."""
    values: dict[str, Any] = {} if spherical is None else spherical["parameters"]
    part = "kernel.left" if method.offset else "kernel"
    lengthscale = values.get(f"{part}.lengthscale", inputs**0.5)
    if method.start:
        lengthscale = jnp.full(inputs, lengthscale)
    kernel: kernels.AbstractKernel = kernels.RBF(lengthscale, values.get(f"{part}.variance", 1.0))
    if method.offset:
        kernel = kernel + kernels.Constant(values.get("kernel.right.variance", 0.1))
    model = jsvm.KernelMachine(kernel, method.loss(1.0))
    return jsvm.freeze(model, *method.frozen) if method.frozen else model


def select(
    method: Method,
    criterion: criteria.AbstractCriterion,
    model: jsvm.KernelMachine,
    x: jax.Array,
    y: jax.Array,
    options: dict[str, Any],
) -> tuple[jsvm.KernelMachine, Any, dict[str, Any]]:
    """Select a model by a criterion; return it, its classifier and a record of the search."""
    stop = (jsvm.stopping.SmallGradient(1e-5), jsvm.stopping.SmallChange(patience=5))
    selection = jsvm.select(model, x, y, criterion, optimizer=OPTIMIZER, stop=stop, **options)
    if method.posterior is None:
        fitted = selection.fit(tolerance=1e-6)
    else:
        fitted = method.posterior(selection.model, x, y)
    facts = {
        "criterion": float(f"{float(selection.value):.6g}"),
        "steps": int(selection.history.steps[0]),
        "result": jsvm.RESULTS(int(selection.results[0])).name,
    }
    return selection.model, fitted, facts


def ascend(
    model: jsvm.KernelMachine, x: jax.Array, y: jax.Array, options: dict[str, Any], seed: int
) -> tuple[jsvm.KernelMachine, Any, dict[str, Any]]:
    """Select a model by ascending the evidence; its classifier consists of draws from the posterior."""
    ascent_key, sample_key = jax.random.split(jax.random.key(seed))
    landmarks = min(200, len(y))
    ascent = jsvm.evidence_ascent(
        model, x, y, key=ascent_key, approximation=jsvm.Nystrom(min(20, len(y)), landmarks),
        progress=False, **options,
    )  # fmt: skip
    finer = jsvm.Exact() if len(y) <= landmarks else jsvm.Nystrom(rank=100, landmarks=landmarks)
    fitted = jsvm.sample(ascent.model, x, y, key=sample_key, approximation=finer, progress=False)
    facts = {
        "steps": int(ascent.history.steps[0]),
        "result": jsvm.RESULTS(int(ascent.results[0])).name,
    }
    return ascent.model, fitted, facts


def run(
    data: Sequence[Any],
    method: Method,
    spherical: dict[str, Any] | None,
    max_steps: int,
    seed: int = 0,
) -> dict[str, Any]:
    """Test scores of one method on one split, with its parameters, steps and seconds."""
    x, y, x_test, y_test = data
    model = machine(method, x.shape[1], spherical)
    free = [n for n in jsvm.parameters(model) if n not in jsvm.frozen(model)]
    bounds = {n: BOUNDS[n.split(".")[-1]] for n in free}
    options: dict[str, Any] = {"bounds": bounds, "max_steps": max_steps}
    begin = time.process_time()
    if method.criterion is None:
        model, fitted, facts = ascend(model, x, y, options, seed)
    else:
        model, fitted, facts = select(method, method.criterion, model, x, y, options)
    wrong = np.asarray(fitted.predict(x_test) != y_test)
    probability = None
    if method.criterion is None or method.posterior is not None:
        probability = np.asarray(fitted.probability(x_test))
    values = {n: np.asarray(v) for n, v in jsvm.parameters(model).items() if n in free}
    record: dict[str, Any] = {
        "error": round(100 * float(wrong.mean()), 4),
        "parameters": {n: np.vectorize(lambda v: float(f"{v:.4g}"))(v).tolist() for n, v in values.items()},
        **facts,
        "seconds": round(time.process_time() - begin, 2),
    }  # fmt: skip
    if probability is not None:
        record["log_loss"] = round(float(calibration.log_loss(y_test, probability)), 5)
    return record


def few(data: Sequence[Any]) -> tuple[Any, ...]:
    """A small part of the data: 60 examples, two inputs."""
    return tuple(part[:60, :2] if part.ndim == 2 else part[:60] for part in data)


def run_all(
    store: Store,
    sets: Sequence[str],
    labels: Sequence[str],
    partitions: range,
    max_steps: int,
    quick: bool,
) -> None:
    """Compute the missing records, set by set, including the spherical solutions that ARD starts from."""
    starts = {METHODS[label].start for label in labels}
    ordered = [label for label in METHODS if label in labels or label in starts]
    for name in sets:
        for partition, label in itertools.product(partitions, ordered):
            key = f"{name}/{label}/{partition:02d}"
            if key in store.records:
                continue
            method = METHODS[label]
            start = f"{name}/{method.start}/{partition:02d}"
            spherical = store.records[start] if method.start else None
            whole = jsvm.datasets.load(name, split=partition)
            data = few(whole) if quick else whole
            record = store.compute(key, lambda: run(data, method, spherical, max_steps, partition))
            print(f"{key:32s} {record['error']:6.2f} %  {record['seconds']:7.2f} s", flush=True)
        # compiled programs serve one set only, and the memory maps of a process are limited
        jax.clear_caches()


def collect(store: Store) -> dict[str, dict[str, dict[int, dict[str, Any]]]]:
    """Records by set, method and partition, including those of least-squares machines."""
    records: dict[str, Any] = {}
    for key, record in store.records.items():
        name, label, partition = key.split("/")
        records.setdefault(name, {}).setdefault(label, {})[int(partition)] = record
    for key, record in Store(LEAST_SQUARES, "").records.items():
        name, partition = key.split("/")
        for theirs, label in SQUARES.items():
            records.setdefault(name, {}).setdefault(label, {})[int(partition)] = record[theirs]
    return records


def show_paper(records: dict[str, Any]) -> None:
    """Print EP-GPC beside the paper's results, and its difference from LS-SVM on the same partitions.

    With few partitions the difference depends less on how hard they are.
    """
    columns = {"EP-GPC RBF": ("LS-SVM", 0), "EP-GPC ARD": ("LS-SVM ARD", 2)}
    heads = [f"n | {m} | paper | minus {other} | paper" for m, (other, _) in columns.items()]
    print("Test errors in %, means and standard errors over n partitions.\n")
    print(f"| set | {' | '.join(heads)} | seconds |")
    print("|---|" + "---|---|---|---|---|" * len(columns) + "---|")
    for name, papers in PAPER.items():
        cells: list[str] = []
        seconds: list[str] = []
        for (label, (other, column)), (mean, spread) in zip(columns.items(), papers, strict=True):
            rows = records.get(name, {}).get(label, {})
            difference = mean - SQUARES_PAPER[name][column][0]
            ours = apart = "-"
            if rows:
                squares = records[name][other]
                ours = gp_ranks.cell([row["error"] for row in rows.values()], 2)
                pairs = [(rows[p], squares[p]) for p in rows if p in squares]
                apart = gp_ranks.cell([one["error"] - two["error"] for one, two in pairs], 2)
                seconds.append(f"{np.median([row['seconds'] for row in rows.values()]):.0f}")
            cells.append(
                f"{len(rows)} | {ours} | {mean:.2f} ± {spread:.2f} | {apart} | {difference:+.2f}"
            )
        print(f"| {name} | {' | '.join(cells)} | {', '.join(seconds)} |")


def complete(records: dict[str, Any], labels: Iterable[str]) -> list[str]:
    """Methods run on nearly all sets; a method just begun would shorten the tables."""
    counts = {m: sum(m in methods for methods in records.values()) for m in labels}
    left = {m: count for m, count in counts.items() if count < 0.75 * max(counts.values())}
    if left:
        few_sets = ", ".join(f"{m} ({count})" for m, count in left.items())
        print(f"\nNot in the tables below, because they have been run on few sets: {few_sets}.")
    return [m for m in counts if m not in left]


def show_all(records: dict[str, Any], methods: Sequence[str] | None, figure: Path | None) -> None:
    """Print the methods on the partitions that all of them have, and their comparison."""
    squares = list(SQUARES.values())
    labels = [*squares, *(complete(records, METHODS) if methods is None else methods)]
    common = {n: gp_ranks.shared(*(records.get(n, {}).get(m, {}) for m in labels)) for n in PAPER}
    sets = [name for name in PAPER if common[name]]
    if not sets:
        print("\nNo set has been computed by all methods.")
        return

    def of(score: str, partitions: dict[str, list[int]] | None) -> gp_ranks.Scores:
        """Scores by method, set and partition, of all or of the given partitions."""
        scores: dict[str, dict[str, dict[int, float]]] = {}
        for m in labels:
            rows = {n: records[n][m] for n in PAPER if m in records.get(n, {})}
            kept = {
                n: partitions[n] if partitions else rows[n]
                for n in rows
                if not partitions or n in sets
            }
            if all(score in row for part in rows.values() for row in part.values()):
                scores[m] = {n: {p: rows[n][p][score] for p in kept[n]} for n in kept}
        return scores

    errors = of("error", common)
    print("\nTest errors in % on the partitions that all methods have; rank 1 is the best.\n")
    print(gp_ranks.table(errors, sets, 2))
    print("\nLog loss of test data in nats, of methods with probabilities.\n")
    print(gp_ranks.table(of("log_loss", common), sets, 3))
    print(
        "\nRow against column, on all partitions that both have: the number of sets where the row's\n"
        "mean error is smaller / larger with z > 1.64, among sets with at least five partitions, and\n"
        "p of Wilcoxon's signed rank test over the means of all sets.\n"
    )
    print(gp_ranks.comparisons(of("error", None)))
    ranks = gp_ranks.mean_ranks(errors, sets)
    difference = gp_ranks.critical_difference(len(labels), len(sets))
    print(
        f"\nMean ranks differ significantly if they differ by more than {difference:.2f} (Nemenyi, 95 %)."
    )
    if figure:
        gp_ranks.draw(ranks, difference, figure)
        print(f"figure in {figure}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", nargs="+", default=SMALL_FIRST, choices=SMALL_FIRST)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), help="default: all")
    parser.add_argument("--partitions", type=int, default=5, help="how many partitions")
    parser.add_argument("--first", type=int, default=0, help="the first partition")
    parser.add_argument("--max-steps", type=int, default=60)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--figure", type=Path, help="draw the critical-difference plot")
    parser.add_argument("--quick", action="store_true", help="a part of one set")
    parser.add_argument(
        "--show", action="store_true", help="print saved results and compute nothing"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets, options.partitions, options.max_steps = ("thyroid",), 2, 3
        options.output = None if options.output == RESULTS else options.output
    about = "Classifiers on 13 sets: test errors in %, python examples/papers/gp_classifiers.py"
    store = Store(options.output, about)
    if not options.show:
        with jax.enable_x64(True):
            partitions = range(options.first, options.first + options.partitions)
            labels = options.methods or (["Laplace"] if options.quick else list(METHODS))
            run_all(store, options.sets, labels, partitions, options.max_steps, options.quick)
    records = collect(store)
    show_paper(records)
    show_all(records, options.methods, options.figure)


if __name__ == "__main__":
    main()

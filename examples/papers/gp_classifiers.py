"""All classifiers of the library on the 13 benchmark sets, with the EP-GPC columns of Cawley and Talbot.

    python examples/papers/gp_classifiers.py               # the 13 sets, five partitions of each
    python examples/papers/gp_classifiers.py --quick       # a part of one set, two partitions, one method
    python examples/papers/gp_classifiers.py --show        # the tables of what has been computed
    python examples/papers/gp_classifiers.py --show --figure ranks.png    # the critical-difference plot

Selection is run anew on every partition, with no look at test data. Kernels: a spherical RBF kernel with
an amplitude and a `Constant` kernel for the offset, except for the columns EP-GPC, which have the zero-mean
process of the software that Cawley and Talbot used; "ARD" is one lengthscale for each input.

- SVM evidence, GACV: the hinge by the Laplace evidence and by GACV; SVM span: the squared hinge by the
  smoothed span estimate.
- Mean field: probit labels, naive mean field, by its leave-one-out log probability.
- Laplace: logistic labels, by the Laplace evidence. EP, EP-GPC: probit labels, by the evidence of
  expectation propagation.
- LS-SVM by PRESS, and with Bayesian regularisation (BR): as committed in
  `results/cawley_talbot_table2.json`.

The search begins at the lengthscale `sqrt(d)`, amplitude 1, offset 0.1 and C = 1, with ARD at the spherical
solution, and is bounded like that of `cawley_talbot_table2.py`. Every method of every partition is saved as
it comes in `results/gp_classifiers.json`; a second call goes on. Needs the benchmark data (see the README
on `JAXSVM_DATA`) and scipy.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # threads that wait for each other cost more than they give

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
    """How a classifier is made: its loss, its criterion, and its posterior, if it has probabilities."""

    loss: Callable
    criterion: jsvm.criteria.AbstractCriterion
    posterior: Callable | None
    frozen: tuple[str, ...] = ()
    offset: bool = True
    start: str | None = None  # ARD: the method whose solution it starts from


def laplace_of_svm(model, x, y):
    return jsvm.laplace(jsvm.fit(model, x, y, tolerance=1e-6), criteria.LaplaceEvidence())


PROBIT, LOGISTIC = ("loss.noise_variance",), ("loss.C",)  # the amplitude does the same
EP = gp.ExpectationPropagation()
METHODS = {
    "SVM evidence": Method(losses.Hinge, criteria.LaplaceEvidence(smoothing=0.1), laplace_of_svm),
    "SVM span": Method(losses.SquaredHinge, criteria.Span(), None, LOGISTIC),
    "SVM GACV": Method(losses.Hinge, criteria.GACV(), None, LOGISTIC),
    "Mean field": Method(losses.Probit, gp.NaiveMeanField("log"), gp.mean_field, PROBIT),
    "Laplace": Method(losses.Logistic, gp.Laplace(), gp.laplace, LOGISTIC),
    "EP": Method(losses.Probit, EP, gp.expectation_propagation, PROBIT),
    "EP-GPC RBF": Method(losses.Probit, EP, gp.expectation_propagation, PROBIT, False),
    "EP-GPC ARD": Method(
        losses.Probit, EP, gp.expectation_propagation, PROBIT, False, "EP-GPC RBF"
    ),
}
SQUARES = {"RBF": "LS-SVM", "RBF-BR": "LS-SVM BR", "ARD": "LS-SVM ARD", "ARD-BR": "LS-SVM ARD BR"}


# with one lengthscale for each input
ARD = {
    "Mean field ARD": METHODS["Mean field"]._replace(start="Mean field"),
    "Laplace ARD": METHODS["Laplace"]._replace(start="Laplace"),
}


def machine(method: Method, inputs: int, found: dict | None):
    """Where the search begins; `found` is the record of the spherical solution that ARD starts from."""
    values = {} if found is None else found["parameters"]
    part = "kernel.left" if method.offset else "kernel"
    lengthscale = values.get(f"{part}.lengthscale", np.sqrt(inputs))
    if method.start:
        lengthscale = jnp.full(inputs, lengthscale)
    kernel = kernels.RBF(lengthscale, values.get(f"{part}.variance", 1.0))
    if method.offset:
        kernel = kernel + kernels.Constant(values.get("kernel.right.variance", 0.1))
    model = jsvm.KernelMachine(kernel, method.loss(1.0))
    return jsvm.freeze(model, *method.frozen) if method.frozen else model


def run(data, method: Method, found: dict | None, max_steps: int) -> dict:
    """Test scores of one method on one split of data, with its parameters, steps and seconds."""
    x, y, x_test, y_test = data
    model = machine(method, x.shape[1], found)
    free = [n for n in jsvm.parameters(model) if n not in jsvm.frozen(model)]
    bounds = {n: BOUNDS[n.split(".")[-1]] for n in free}
    begin = time.perf_counter()
    chosen = jsvm.select(
        model, x, y, method.criterion, optimizer=OPTIMIZER, bounds=bounds, max_steps=max_steps,
        gradient_tolerance=1e-5, patience=5,
    )  # fmt: skip
    if method.posterior is None:
        fitted, probability = chosen.fit(tolerance=1e-6), None
    else:
        fitted = method.posterior(chosen.model, x, y)
        probability = np.asarray(fitted.probability(x_test))
    wrong = np.asarray(fitted.predict(x_test) != y_test)
    values = {n: np.asarray(v) for n, v in jsvm.parameters(chosen.model).items() if n in free}
    record = {
        "error": round(100 * float(wrong.mean()), 4),
        "criterion": float(f"{float(chosen.value):.6g}"),
        "parameters": {n: np.vectorize(lambda v: float(f"{v:.4g}"))(v).tolist() for n, v in values.items()},
        "steps": int(chosen.history.steps[0]),
        "result": jsvm.RESULTS(int(chosen.results[0])).name,
        "seconds": round(time.perf_counter() - begin, 2),
    }  # fmt: skip
    if probability is not None:
        record["log_loss"] = round(float(calibration.log_loss(y_test, probability)), 5)
    return record


def few(data):
    """A part of the data that is soon done with: 60 examples, two inputs."""
    return tuple(part[:60, :2] if part.ndim == 2 else part[:60] for part in data)


def run_all(store: Store, sets, labels, partitions: range, max_steps: int, quick: bool) -> None:
    for partition, name, label in itertools.product(partitions, sets, labels):
        method = METHODS[label]
        found = store.records[f"{name}/{method.start}/{partition:02d}"] if method.start else None
        key = f"{name}/{label}/{partition:02d}"
        if key not in store.records:
            data = jsvm.datasets.load(name, split=partition)
            data = few(data) if quick else data
            record = store.compute(key, lambda: run(data, method, found, max_steps))
            print(f"{key:32s} {record['error']:6.2f} %  {record['seconds']:7.2f} s", flush=True)


def collect(store: Store) -> dict[str, dict[str, dict[int, dict]]]:
    """Records by set, method and partition, those of least-squares machines included."""
    found: dict = {}
    for key, record in store.records.items():
        name, label, partition = key.split("/")
        found.setdefault(name, {}).setdefault(label, {})[int(partition)] = record
    for key, record in Store(LEAST_SQUARES, "").records.items():
        name, partition = key.split("/")
        for theirs, label in SQUARES.items():
            found.setdefault(name, {}).setdefault(label, {})[int(partition)] = record[theirs]
    return found


def show_paper(found) -> None:
    """The EP-GPC columns beside the paper's, and minus the errors of LS-SVM on the same partitions.

    That difference does not depend on how hard the partitions are, which matters where they are few.
    """
    columns = {"EP-GPC RBF": ("LS-SVM", 0), "EP-GPC ARD": ("LS-SVM ARD", 2)}
    heads = [f"n | {m} | paper | minus {other} | paper" for m, (other, _) in columns.items()]
    print("Test errors in %, means and standard errors over n partitions.\n")
    print(f"| set | {' | '.join(heads)} | seconds |")
    print("|---|" + "---|---|---|---|---|" * len(columns) + "---|")
    for name, papers in PAPER.items():
        cells, seconds = [], []
        for (label, (other, place)), (mean, spread) in zip(columns.items(), papers, strict=True):
            rows = found.get(name, {}).get(label, {})
            difference = mean - SQUARES_PAPER[name][place][0]
            ours = apart = "-"
            if rows:
                squares = found[name][other]
                ours = cell([row["error"] for row in rows.values()])
                pairs = [(rows[p], squares[p]) for p in rows if p in squares]
                apart = cell([one["error"] - two["error"] for one, two in pairs])
                seconds.append(f"{np.median([row['seconds'] for row in rows.values()]):.0f}")
            cells.append(
                f"{len(rows)} | {ours} | {mean:.2f} ± {spread:.2f} | {apart} | {difference:+.2f}"
            )
        print(f"| {name} | {' | '.join(cells)} | {', '.join(seconds)} |")


def cell(values) -> str:
    """Mean and standard error, that only if there are two values at least."""
    mean, spread = gp_ranks.mean_and_error(values)
    return f"{mean:.2f}" if np.isnan(spread) else f"{mean:.2f} ± {spread:.2f}"


def show_all(found, figure: Path | None) -> None:
    """All methods on the partitions that all have, and how they compare."""
    labels = [*SQUARES.values(), *METHODS]
    sets = [name for name in PAPER if all(label in found.get(name, {}) for label in labels)]
    if not sets:
        print("\nNo set has been computed by all methods.")
        return
    common = {n: sorted(set.intersection(*(set(found[n][m]) for m in labels))) for n in sets}

    def of(score):
        return {
            m: {n: [found[n][m][p][score] for p in common[n]] for n in sets}
            for m in labels
            if score in found[sets[0]][m][common[sets[0]][0]]
        }

    errors, losses_ = of("error"), of("log_loss")
    counts = [len(common[n]) for n in sets]
    print("\nTest errors in % on the partitions that all methods have; rank 1 is the best.\n")
    print(gp_ranks.table(errors, sets, counts, 2))
    print("\nLog loss of test data in nats, of methods with probabilities.\n")
    print(gp_ranks.table(losses_, sets, counts, 3))
    print(
        "\nRow against column: sets where its mean error is smaller / larger by z > 1.64, and p of"
    )
    print("Wilcoxon's signed rank test over the means of the sets.\n")
    print(gp_ranks.comparisons(errors, sets))
    ranks = gp_ranks.mean_ranks(errors, sets)
    difference = gp_ranks.critical_difference(len(labels), len(sets))
    print(f"\nMean ranks differ if by more than {difference:.2f} (Nemenyi, 95 %).")
    if figure:
        gp_ranks.draw(ranks, difference, figure)
        print(f"figure in {figure}")


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=SMALL_FIRST, choices=SMALL_FIRST)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--partitions", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first partition")
    parser.add_argument("--max-steps", type=int, default=60)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--figure", type=Path, help="draw the critical-difference plot")
    parser.add_argument("--quick", action="store_true", help="a part of one set, one method")
    parser.add_argument("--show", action="store_true", help="compute nothing")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.sets, chosen.partitions, chosen.max_steps = ("thyroid",), 2, 3
        chosen.methods = ["Laplace"]
        chosen.output = None if chosen.output == RESULTS else chosen.output
    about = "Classifiers on 13 sets: test errors in %, python examples/papers/gp_classifiers.py"
    store = Store(chosen.output, about)
    if not chosen.show:
        with jax.enable_x64(True):
            partitions = range(chosen.first, chosen.partitions)
            steps = chosen.max_steps
            run_all(store, chosen.sets, chosen.methods, partitions, steps, chosen.quick)
    found = collect(store)
    show_paper(found)
    show_all(found, chosen.figure)


if __name__ == "__main__":
    main()

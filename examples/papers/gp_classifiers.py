"""All classifiers of the library on the 13 benchmark sets, with the EP-GPC columns of Cawley and Talbot.

    python examples/papers/gp_classifiers.py               # the 13 sets, five partitions of each
    python examples/papers/gp_classifiers.py --methods Laplace "Mean field" --partitions 20   # cheap ones
    python examples/papers/gp_classifiers.py --quick       # a part of one set, two partitions, one method
    python examples/papers/gp_classifiers.py --show        # the tables of what has been computed
    python examples/papers/gp_classifiers.py --show --figure ranks.png    # the critical-difference plot

Selection is run anew on every partition, with no look at test data. Kernels: a spherical RBF kernel with
an amplitude and a `Constant` kernel for the offset, except for the columns EP-GPC, which have the zero-mean
process of the software that Cawley and Talbot used; "ARD" is one lengthscale for each input.

- SVM evidence, GACV: the hinge by the Laplace evidence and by GACV; SVM span: the squared hinge by the
  smoothed span estimate.
- Evidence ascent: the hinge by ascending the exact evidence, sampled in a Nystrom subspace (rank 20, 200
  landmarks at most); error and log loss are those of draws from the posterior (rank 100 where there are
  more than 200 examples). The only method with random numbers; the seed is the number of the partition.
- Mean field: probit labels, naive mean field, by its leave-one-out log probability.
- Laplace: logistic labels, by the Laplace evidence. EP, EP-GPC: probit labels, by the evidence of
  expectation propagation, whose sites may change by 1e-6 when it ends.
- LS-SVM by PRESS, and with Bayesian regularisation (BR): as committed in
  `results/cawley_talbot_table2.json`.

The search begins at the lengthscale `sqrt(d)`, amplitude 1, offset 0.1 and C = 1, with ARD at the spherical
solution, and is bounded like that of `cawley_talbot_table2.py`. All partitions of a set are run before the
next set, so that each method compiles once for each set. Every method of every partition is saved as
it comes in `results/gp_classifiers.json`; a second call goes on. Seconds are processor time. Needs the
benchmark data (see the README on `JAXSVM_DATA`) and scipy.
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
    """How a classifier is made: its loss, its criterion, and its posterior, if it has probabilities.

    Without a criterion the evidence is ascended, and its posterior is sampled.
    """

    loss: Callable
    criterion: jsvm.criteria.AbstractCriterion | None
    posterior: Callable | None
    frozen: tuple[str, ...] = ()
    offset: bool = True
    start: str | None = None  # ARD: the method whose solution it starts from


def laplace_of_svm(model, x, y):
    return jsvm.laplace(jsvm.fit(model, x, y, tolerance=1e-6), criteria.LaplaceEvidence())


PROBIT, LOGISTIC = ("loss.noise_variance",), ("loss.C",)  # the amplitude does the same
# the gradient is within 1e-4 of that at 1e-10, the value within 1e-12: Twonorm, 200 examples
EP = gp.ExpectationPropagation(tolerance=1e-6)
METHODS = {
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
METHODS |= {
    "Mean field ARD": METHODS["Mean field"]._replace(start="Mean field"),
    "Laplace ARD": METHODS["Laplace"]._replace(start="Laplace"),
    "EP-GPC ARD": METHODS["EP-GPC RBF"]._replace(start="EP-GPC RBF"),
}
SQUARES = {"RBF": "LS-SVM", "RBF-BR": "LS-SVM BR", "ARD": "LS-SVM ARD", "ARD-BR": "LS-SVM ARD BR"}


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


def select(method: Method, model, x, y, options: dict):
    """The model that a criterion chooses, its classifier, and what is to be recorded of the search."""
    stop = (jsvm.stopping.SmallGradient(1e-5), jsvm.stopping.SmallChange(patience=5))
    chosen = jsvm.select(model, x, y, method.criterion, optimizer=OPTIMIZER, stop=stop, **options)
    of_fit = method.posterior is None
    fitted = chosen.fit(tolerance=1e-6) if of_fit else method.posterior(chosen.model, x, y)
    facts = {
        "criterion": float(f"{float(chosen.value):.6g}"),
        "steps": int(chosen.history.steps[0]),
        "result": jsvm.RESULTS(int(chosen.results[0])).name,
    }
    return chosen.model, fitted, facts


def ascend(model, x, y, options: dict, seed: int):
    """The same by ascending the evidence: the classifier is made of draws from the posterior."""
    ascent_key, sample_key = jax.random.split(jax.random.key(seed))
    landmarks = min(200, len(y))
    chosen = jsvm.evidence_ascent(
        model, x, y, key=ascent_key, approximation=jsvm.Nystrom(min(20, len(y)), landmarks),
        progress=False, **options,
    )  # fmt: skip
    finer = jsvm.Exact() if len(y) <= landmarks else jsvm.Nystrom(rank=100, landmarks=landmarks)
    fitted = jsvm.sample(chosen.model, x, y, key=sample_key, approximation=finer, progress=False)
    facts = {
        "steps": int(chosen.history.steps[0]),
        "result": jsvm.RESULTS(int(chosen.results[0])).name,
    }
    return chosen.model, fitted, facts


def run(data, method: Method, found: dict | None, max_steps: int, seed: int = 0) -> dict:
    """Test scores of one method on one split of data, with its parameters, steps and seconds."""
    x, y, x_test, y_test = data
    model = machine(method, x.shape[1], found)
    free = [n for n in jsvm.parameters(model) if n not in jsvm.frozen(model)]
    bounds = {n: BOUNDS[n.split(".")[-1]] for n in free}
    options = {"bounds": bounds, "max_steps": max_steps}
    begin = time.process_time()
    if method.criterion is None:
        model, fitted, facts = ascend(model, x, y, options, seed)
    else:
        model, fitted, facts = select(method, model, x, y, options)
    wrong = np.asarray(fitted.predict(x_test) != y_test)
    probability = None
    if method.criterion is None or method.posterior is not None:
        probability = np.asarray(fitted.probability(x_test))
    values = {n: np.asarray(v) for n, v in jsvm.parameters(model).items() if n in free}
    record = {
        "error": round(100 * float(wrong.mean()), 4),
        "parameters": {n: np.vectorize(lambda v: float(f"{v:.4g}"))(v).tolist() for n, v in values.items()},
        **facts,
        "seconds": round(time.process_time() - begin, 2),
    }  # fmt: skip
    if probability is not None:
        record["log_loss"] = round(float(calibration.log_loss(y_test, probability)), 5)
    return record


def few(data):
    """A part of the data that is soon done with: 60 examples, two inputs."""
    return tuple(part[:60, :2] if part.ndim == 2 else part[:60] for part in data)


def run_all(store: Store, sets, labels, partitions: range, max_steps: int, quick: bool) -> None:
    """Compute what is not there, one set after the other; what ARD starts from is computed too."""
    starts = {METHODS[label].start for label in labels}
    ordered = [label for label in METHODS if label in labels or label in starts]
    for name in sets:
        for partition, label in itertools.product(partitions, ordered):
            key = f"{name}/{label}/{partition:02d}"
            if key in store.records:
                continue
            method = METHODS[label]
            start = f"{name}/{method.start}/{partition:02d}"
            found = store.records[start] if method.start else None
            data = jsvm.datasets.load(name, split=partition)
            data = few(data) if quick else data
            record = store.compute(key, lambda: run(data, method, found, max_steps, partition))
            print(f"{key:32s} {record['error']:6.2f} %  {record['seconds']:7.2f} s", flush=True)
        # programs are compiled for the sizes of a set, and the memory maps of a process are limited
        jax.clear_caches()


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
                ours = gp_ranks.cell([row["error"] for row in rows.values()], 2)
                pairs = [(rows[p], squares[p]) for p in rows if p in squares]
                apart = gp_ranks.cell([one["error"] - two["error"] for one, two in pairs], 2)
                seconds.append(f"{np.median([row['seconds'] for row in rows.values()]):.0f}")
            cells.append(
                f"{len(rows)} | {ours} | {mean:.2f} ± {spread:.2f} | {apart} | {difference:+.2f}"
            )
        print(f"| {name} | {' | '.join(cells)} | {', '.join(seconds)} |")


def complete(found, labels) -> list[str]:
    """Those with nearly all sets that any has: a method just begun would shorten the tables."""
    counts = {m: sum(m in methods for methods in found.values()) for m in labels}
    left = {m: count for m, count in counts.items() if count < 0.75 * max(counts.values())}
    if left:
        few_sets = ", ".join(f"{m} ({count})" for m, count in left.items())
        print(f"\nNot in the tables below, for they have been run on few sets: {few_sets}.")
    return [m for m in labels if m not in left]


def show_all(found, methods, figure: Path | None) -> None:
    """Methods on the partitions that all of them have, and how they compare."""
    squares = list(SQUARES.values())
    labels = [*squares, *(complete(found, METHODS) if methods is None else methods)]
    common = {n: gp_ranks.shared(*(found.get(n, {}).get(m, {}) for m in labels)) for n in PAPER}
    sets = [name for name in PAPER if common[name]]
    if not sets:
        print("\nNo set has been computed by all methods.")
        return

    def of(score, partitions):
        """Scores by method, set and partition: of all partitions, or of some of them."""
        scores = {}
        for m in labels:
            rows = {n: found[n][m] for n in PAPER if m in found.get(n, {})}
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
        "\nRow against column, on all partitions that both have: sets where its mean error is smaller"
    )
    print(
        "/ larger by z > 1.64, of those with five partitions at least, and p of Wilcoxon's signed rank"
    )
    print("test over the means of all sets.\n")
    print(gp_ranks.comparisons(of("error", None)))
    ranks = gp_ranks.mean_ranks(errors, sets)
    difference = gp_ranks.critical_difference(len(labels), len(sets))
    print(f"\nMean ranks differ if by more than {difference:.2f} (Nemenyi, 95 %).")
    if figure:
        gp_ranks.draw(ranks, difference, figure)
        print(f"figure in {figure}")


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=SMALL_FIRST, choices=SMALL_FIRST)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), help="by default all")
    parser.add_argument("--partitions", type=int, default=5, help="how many, the first included")
    parser.add_argument("--first", type=int, default=0, help="of the partitions to run")
    parser.add_argument("--max-steps", type=int, default=60)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--figure", type=Path, help="draw the critical-difference plot")
    parser.add_argument("--quick", action="store_true", help="a part of one set")
    parser.add_argument("--show", action="store_true", help="compute nothing")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.sets, chosen.partitions, chosen.max_steps = ("thyroid",), 2, 3
        chosen.output = None if chosen.output == RESULTS else chosen.output
    about = "Classifiers on 13 sets: test errors in %, python examples/papers/gp_classifiers.py"
    store = Store(chosen.output, about)
    if not chosen.show:
        with jax.enable_x64(True):
            partitions = range(chosen.first, chosen.first + chosen.partitions)
            labels = chosen.methods or (["Laplace"] if chosen.quick else list(METHODS))
            run_all(store, chosen.sets, labels, partitions, chosen.max_steps, chosen.quick)
    found = collect(store)
    show_paper(found)
    show_all(found, chosen.methods, chosen.figure)


if __name__ == "__main__":
    main()

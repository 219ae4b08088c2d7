"""Opper and Winther, sec. 8.7: support vector machine and naive mean field on the Wisconsin set.

    python examples/papers/opper_winther_wisconsin.py              # a few minutes
    python examples/papers/opper_winther_wisconsin.py --quick      # 60 examples, three folds: a few seconds
    python examples/papers/opper_winther_wisconsin.py --show       # prints the saved tables
    python examples/papers/opper_winther_wisconsin.py --show --figure wisconsin.png    # Figs. 8.1 and 8.2

The set has 683 complete cases and nine inputs of mean zero and variance one. Both classifiers have the
covariance `exp(-|x - x'|^2 / (2 sigma^2))` plus the noise variance v = 1.3 on its diagonal, and no offset:
the machine with the quadratic slack penalty `1/(2v) sum xi^2`, and the mean field classifier without
flipped labels.

The paper gives `sigma^2 = 0.15/N` with N = 9 inputs. That must be 0.15 N. At 0.15/N distances are tens of
lengthscales and every example is a support vector (the paper: 272 of 614). At 0.15 N = 1.35 there are 276,
and the mean field iteration takes 28 rounds (the paper: 31). The part "sigma" prints these figures for
several readings.

The parts are `folds`, errors and leave-one-out estimates in ten-fold cross-validation; `exact`, the
estimates against retraining without each example, on the first training set and on all examples; `times`,
Table 8.2; `scan`, the estimates over hyperparameters, as in the paper's selection; and `sigma`.

Results are saved in `results/opper_winther_wisconsin.json` as they are computed; run the script again to
resume. Needs the benchmark data (see `docs/files.md`).
"""

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# several threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1]))  # for the Adatron and the benchmarks

import jax
import jax.numpy as jnp
import numpy as np
from adatron import adatron
from benchmarks.measure import best_time, timed
from store import Store

import jaxsvm as jsvm
from jaxsvm import criteria, gp, kernels, losses
from jaxsvm.gram import DenseGram

RESULTS = Path(__file__).parent / "results" / "opper_winther_wisconsin.json"
PARTS = ("folds", "exact", "times", "scan", "sigma")
SIGMA2, NOISE = 0.15 * 9, 1.3
PAPER_TOLERANCE = 1e-5**0.5  # of the change of alpha
REPEATS = 3  # of each timed call
METHODS = ("SVM", "mean field")
# errors and leave-one-out estimates over the folds; exact and estimated on one of them
PAPER = {
    "SVM": (0.0307, 0.0293, 0.0261, 0.0261),
    "mean field": (0.0293, 0.0270, 0.0293, 0.0293),
}


def load(examples: int | None) -> tuple[np.ndarray, np.ndarray]:
    """All examples, standardized, in a random order (seed 0); a fold is every tenth example."""
    x, y = (np.asarray(part) for part in jsvm.datasets.load("wbc_original"))
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    order = np.random.default_rng(0).permutation(len(y))[:examples]
    return x[order], y[order]


def machine(
    method: str, sigma2: float = SIGMA2, noise: float = NOISE, flips: float = 0.0
) -> jsvm.KernelMachine:
    kernel = kernels.RBF(sigma2**0.5)
    if method == "SVM":
        return jsvm.KernelMachine(kernel, losses.SquaredHinge(1 / noise))
    loss = losses.FlipNoise(flips, noise) if flips else losses.Probit(noise)
    return jsvm.KernelMachine(kernel, loss)


CRITERIA = {"SVM": criteria.LinearResponse(), "mean field": gp.NaiveMeanField()}


def estimate(method: str, x: np.ndarray, y: np.ndarray, **settings: float) -> int:
    """The number of leave-one-out errors, estimated by linear response."""
    return round(float(CRITERIA[method](machine(method, **settings), x, y)) * len(y))


def train(
    method: str,
    x: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None = None,
    init: gp.ClassifierPosterior | None = None,
) -> tuple[Any, jax.Array]:
    """A fit or a mean field posterior, and its leave-one-out prediction for each example."""
    if method == "SVM":
        fitted = jsvm.fit(machine(method), x, y, weights=weights)
        return fitted, criteria.linear_response(DenseGram(fitted.model.kernel.gram(x)), fitted)
    fitted = gp.mean_field(machine(method), x, y, weights=weights, init=init)
    return fitted, fitted.left_out.mean


def run_fold(x: np.ndarray, y: np.ndarray, fold: int, folds: int) -> dict[str, Any]:
    test = np.arange(len(y)) % folds == fold
    record: dict[str, Any] = {"test": int(test.sum())}
    for method in METHODS:
        fitted, left_out = train(method, x[~test], y[~test])
        wrong = np.asarray(fitted.predict(x[test])) != y[test]
        count = int(np.sum(y[~test] * np.asarray(left_out) < 0))
        record[method] = {"errors": int(wrong.sum()), "left out": count}
    return record


def run_exact(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Compare the estimates with retraining without each example."""
    record: dict[str, Any] = {"examples": len(y)}
    for method in METHODS:
        begin = time.perf_counter()
        whole, left_out = train(method, x, y)
        exact = np.zeros(len(y))
        for i in range(len(y)):
            # example i is predicted, but not used for training
            weights = np.where(np.arange(len(y)) == i, 0.0, 1.0)
            if method == "SVM":
                exact[i] = jsvm.fit(whole.model, x, y, weights=weights).latent[i]
            else:
                exact[i] = train(method, x, y, weights, whole)[1][i]
        record[method] = {
            "exact": int(np.sum(y * exact < 0)),
            "estimate": int(np.sum(y * np.asarray(left_out) < 0)),
            "largest difference": float(np.max(np.abs(exact - np.asarray(left_out)))),
            "seconds": time.perf_counter() - begin,
        }
    return record


def run_times(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Rounds and seconds of the paper's iterations, at its precision, and of the library's methods.

    "With leave-one-out" adds the linear response of the solution at that precision.
    """
    svm, field = machine("SVM"), machine("mean field")
    gram = DenseGram(svm.kernel.gram(x))
    noisy = np.asarray(gram.dense()) + NOISE * np.eye(len(y))
    trained, seconds = timed(lambda: adatron(noisy, y, parallel=True, tolerance=PAPER_TOLERANCE))
    fit = jsvm.fit(svm, x, y)
    rough = as_fit(fit, trained.alpha, gram.dense())
    response = jax.jit(criteria.linear_response)
    record: dict[str, Any] = {
        "Adatron": {
            "rounds": len(trained.residuals) - 1,
            "seconds": seconds,
            "with leave-one-out": seconds + best_time(lambda: response(gram, rough), REPEATS),
            "left out": int(np.sum(y * np.asarray(response(gram, rough)) < 0)),
        },
        "fit": {
            "rounds": int(fit.stats.iterations),
            "support": int(fit.support.sum()),
            "seconds": best_time(lambda: jsvm.fit(svm, x, y).dual, REPEATS),
            "with leave-one-out": best_time(lambda: CRITERIA["SVM"](svm, x, y), REPEATS),
            "left out": int(np.sum(y * np.asarray(response(gram, fit)) < 0)),
        },
    }
    whole = gp.mean_field(field, x, y)
    adaptive: dict[str, Any] = {
        "method": "adaptive",
        "tolerance": PAPER_TOLERANCE / float(np.max(whole.alpha)),
    }
    for name, options in (("adaptive", adaptive), ("newton", {})):
        posterior = gp.mean_field(field, x, y, **options)

        @jax.jit
        def solve(x: np.ndarray, y: np.ndarray, options: dict[str, Any] = options):
            # jit leaves out whatever is not returned
            return gp.mean_field(field, x, y, throw=False, **options).dual

        @jax.jit
        def leave_out(x: np.ndarray, y: np.ndarray, options: dict[str, Any] = options):
            return gp.mean_field(field, x, y, throw=False, **options).left_out.mean

        record[name] = {
            "rounds": int(posterior.iterations),
            "seconds": best_time(lambda f=solve: f(x, y), REPEATS),
            "with leave-one-out": best_time(lambda f=leave_out: f(x, y), REPEATS),
            "left out": int(np.sum(y * np.asarray(posterior.left_out.mean) < 0)),
        }
    return record


def as_fit(fit: jsvm.Fit, alpha: np.ndarray, gram: jax.Array) -> jsvm.Fit:
    """The fit with its solution replaced by that of the Adatron."""
    dual = alpha * np.asarray(fit.y)
    group = np.where(alpha > 0, 1, 0).astype(fit.group.dtype)
    return dataclasses.replace(fit, dual=dual, latent=np.asarray(gram) @ dual, group=group)


def run_scan(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Estimated leave-one-out errors over a grid, on the first training set."""
    grid: dict[str, Any] = {}
    for sigma2 in (0.05 * 9, 0.15 * 9, 0.5 * 9, 1.5 * 9):
        for noise in (0.4, 1.3, 4.0):
            counts = [estimate(m, x, y, sigma2=sigma2, noise=noise) for m in METHODS]
            flipped = estimate("mean field", x, y, sigma2=sigma2, noise=noise, flips=0.02)
            grid[f"{sigma2:g}, {noise:g}"] = [*counts, flipped]
    return grid


def run_sigma(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Support vectors and mean field rounds for several readings of `sigma^2`."""
    results: dict[str, Any] = {}
    readings = {"0.15 / N": 0.15 / 9, "0.15": 0.15, "0.15 N": SIGMA2, "N / 0.15": 9 / 0.15}
    for name, sigma2 in readings.items():
        support = jsvm.fit(machine("SVM", sigma2=sigma2), x, y).support
        field = machine("mean field", sigma2=sigma2)
        largest = float(np.max(gp.mean_field(field, x, y).alpha))
        options: dict[str, Any] = {"method": "adaptive", "tolerance": PAPER_TOLERANCE / largest}
        rounds = gp.mean_field(field, x, y, **options).iterations
        results[name] = {"support": int(support.sum()), "rounds": int(rounds)}
    return results


def compute(store: Store, parts: Sequence[str], examples: int | None, folds: int) -> None:
    x, y = load(examples)
    first = np.arange(len(y)) % folds != 0
    if "folds" in parts:
        for fold in range(folds):
            store.compute(f"folds/{fold:02d}", lambda: run_fold(x, y, fold, folds))
    if "exact" in parts:
        store.compute("exact/first", lambda: run_exact(x[first], y[first]))
        if examples is None:
            store.compute("exact/all", lambda: run_exact(x, y))
    for part, function in (("times", run_times), ("scan", run_scan), ("sigma", run_sigma)):
        if part in parts:
            store.compute(part, lambda: function(x[first], y[first]))


def show(store: Store) -> None:
    records = store.records
    folds = [v for k, v in records.items() if k.startswith("folds/")]
    if folds:
        total = sum(fold["test"] for fold in folds)
        print(
            f"{len(folds)}-fold cross-validation; leave-one-out: the estimate, averaged over training sets.\n"
        )
        print(
            "| method | error | wrong | paper | leave-one-out | paper |\n|---|---|---|---|---|---|"
        )
        for method in METHODS:
            wrong = sum(fold[method]["errors"] for fold in folds)
            left = np.mean([fold[method]["left out"] / (total - fold["test"]) for fold in folds])
            paper = PAPER[method]
            print(
                f"| {method} | {wrong / total:.4f} | {wrong} | {paper[0]:.4f} | {left:.4f} | {paper[1]:.4f} |"
            )
    if "exact/first" in records:
        print("\nLeave-one-out errors: retraining without each example, and the estimate.\n")
        print(
            "| method | examples | exact | estimate | paper: exact | estimate | seconds to retrain |"
        )
        print("|---|---|---|---|---|---|---|")
        for key in (key for key in ("exact/first", "exact/all") if key in records):
            record = records[key]
            for method in METHODS:
                n, values, paper = record["examples"], record[method], ("-", "-")
                if key == "exact/first":
                    paper = tuple(f"{p:.4f}" for p in PAPER[method][2:4])
                cells = [f"{values[k] / n:.4f} ({values[k]})" for k in ("exact", "estimate")]
                print(
                    f"| {method} | {n} | {' | '.join([*cells, *paper])} | {values['seconds']:.0f} |"
                )
    if "times" in records:
        print("\nTable 8.2: rounds, and seconds after compilation (the paper: Alpha 433au).\n")
        print("| algorithm | rounds | paper | seconds | paper | with leave-one-out | paper |")
        print("|---|---|---|---|---|---|---|")
        papers = {"Adatron": (195, 4, 5), "adaptive": (31, 1, 16)}
        names = {
            "Adatron": "SVM, Adatron, 3e-3",
            "fit": "SVM, `jaxsvm.fit`, 1e-10",
            "adaptive": "mean field, Table 8.1, 3e-3",
            "newton": "mean field, Newton, 1e-10",
        }
        for key, name in names.items():
            row = records["times"][key]
            paper = papers.get(key, ("-", "-", "-"))
            left = f"{row['with leave-one-out']:.3f}"
            cells = (row["rounds"], paper[0], f"{row['seconds']:.3f}", paper[1], left, paper[2])
            print(f"| {name} | {' | '.join(map(str, cells))} |")
        counts = ", ".join(f"{name} {records['times'][name]['left out']}" for name in names)
        print(f"\nLeave-one-out errors of these solutions: {counts}.")
        print(f"Support vectors: {records['times']['fit']['support']} (the paper: 272).")
    if "sigma" in records:
        print("\nReadings of sigma^2 (the paper: 272 support vectors, 31 rounds of mean field).\n")
        print("| sigma^2 | support vectors | rounds |\n|---|---|---|")
        for name, row in records["sigma"].items():
            print(f"| {name} | {row['support']} | {row['rounds']} |")
    if "scan" in records:
        print("\nEstimated leave-one-out errors over hyperparameters.\n")
        print("| sigma^2, v | SVM | mean field | mean field, flips 0.02 |\n|---|---|---|---|")
        for name, counts in records["scan"].items():
            print(f"| {name} | {' | '.join(map(str, counts))} |")


def draw(path: Path) -> None:
    """Fig. 8.1, and both panels of Fig. 8.2 on the first training set."""
    from matplotlib import pyplot

    x, y = load(None)
    first = np.arange(len(y)) % 10 != 0
    x, y = x[first], y[first]
    fit, field = jsvm.fit(machine("SVM"), x, y), gp.mean_field(machine("mean field"), x, y)
    figure, (embedding, strengths, margins) = pyplot.subplots(
        1, 3, figsize=(13, 4), layout="constrained"
    )
    z = jnp.linspace(-5, 3, 200)
    for flips in (0.0, 0.01, 0.1):
        loss = losses.FlipNoise(flips, 1.0) if flips else losses.Probit(1.0)
        embedding.plot(
            z, -np.asarray(loss.derivative(jnp.ones_like(z), z)), label=f"flips {flips:g}"
        )
    embedding.set(xlabel="z", ylabel="embedding strength", title="Fig. 8.1", ylim=(0, 5))
    embedding.legend()
    alpha, other = y * np.asarray(fit.dual), np.asarray(field.alpha)
    scale = np.linalg.norm(alpha) / np.linalg.norm(other)
    order = np.argsort(alpha)
    positions = np.arange(len(y))
    noisy = NOISE * np.asarray(fit.dual), NOISE * np.asarray(field.dual)
    latents = np.asarray(fit.latent) + noisy[0], np.asarray(field.mean) + noisy[1]
    wrong = (
        y * np.asarray(criteria.linear_response(DenseGram(fit.model.kernel.gram(x)), fit)) < 0,
        y * np.asarray(field.left_out.mean) < 0,
    )
    for values, factor, f, bad, marker, label, level in (
        (alpha, 1.0, latents[0], wrong[0], "^", "SVM", -0.06),
        (other, scale, latents[1], wrong[1], "o", "mean field", -0.12),
    ):
        style = {"marker": marker, "s": 9, "facecolors": "none", "linewidths": 0.6}
        color = "C0" if label == "SVM" else "C1"
        strengths.scatter(positions, factor * values[order], label=label, edgecolors=color, **style)
        hit = positions[bad[order]]
        strengths.scatter(hit, np.full(len(hit), level), edgecolors=color, **style)
        margins.scatter(positions, factor * (y * f)[order], label=label, edgecolors=color, **style)
    strengths.set(
        xlabel="example", ylabel="embedding strength", title="Fig. 8.2; below: leave-one-out errors"
    )
    margins.set(xlabel="example", ylabel="margin", title="Fig. 8.2")
    strengths.legend()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
    print(f"figure in {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--figure", type=Path, help="draw Figs. 8.1 and 8.2 into this file")
    parser.add_argument("--quick", action="store_true", help="60 examples, three folds")
    parser.add_argument(
        "--show", action="store_true", help="print saved results and compute nothing"
    )
    options = parser.parse_args(arguments)
    examples, folds = (60, 3) if options.quick else (None, 10)
    if options.quick:
        options.output = None if options.output == RESULTS else options.output
    about = "Opper and Winther, sec. 8.7, python examples/papers/opper_winther_wisconsin.py"
    store = Store(options.output, about)
    with jax.enable_x64(True):
        if not options.show:
            compute(store, options.parts, examples, folds)
        show(store)
        if options.figure:
            draw(options.figure)


if __name__ == "__main__":
    main()

"""The joint posterior of function and hyperparameters, beside machines tuned by a point estimate.

    python examples/benchmarks/joint.py            # 20 minutes on one core; resumes
    python examples/benchmarks/joint.py --show     # only prints the record
    python examples/benchmarks/joint.py --quick    # small generated data: only to see that it runs

- Labels: the first partition of some of the thirteen benchmark sets (see `docs/files.md`), standardized,
  with one lengthscale for each input and `Normalized(Hinge)`, whose evidence has an optimum. `BayesianSVC`
  tunes the same kernel with the hinge itself by the span bound.
- Targets: both coordinates of MacKay's robot arm, with the soft insensitive loss [CKO04, sec. VII-B]. The
  point estimate is the maximum of the Laplace evidence, with the Gaussian posterior around its fit.

R-hat is the worst over the total loss, `b'b / 2`, leading white coordinates and all hyperparameters, and so
are the effective draws. The seconds are those of the processor, compilation included. Log losses are in nats
per test example, errors in percent or mean squares.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

# several threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm.sampling import HMC

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
import sets
from store import Store

RESULTS = Path(__file__).parent / "results" / "joint.json"
SETS = ("heart", "breast_cancer", "thyroid", "titanic", "diabetis")
OUTPUTS = (1, 2)
RANK, ARM_RANK = 60, 80
PLAN = {"chains": 4, "warmup": 400, "draws": 500}
ARM_PLAN = {"chains": 4, "warmup": 500, "draws": 1500}
SHORT = {"chains": 2, "warmup": 100, "draws": 60}


def standardized(split: Any) -> tuple[np.ndarray, ...]:
    x, y, x_test, y_test = (np.asarray(part) for part in split)
    deviation = np.std(x, axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    return (x - x.mean(axis=0)) / deviation, y, (x_test - x.mean(axis=0)) / deviation, y_test


def worst(values: dict[str, Any], choose: Any) -> tuple[str, float]:
    """The entry of a hyperparameter with the worst diagnostic, and the diagnostic."""
    each = {name: float(choose(np.ravel(value))) for name, value in values.items()}
    extreme = choose(each.values())
    return next(name for name in each if each[name] == extreme), extreme


def described(posterior: jsvm.JointPosterior, seconds: float) -> dict[str, Any]:
    diagnostics = posterior.diagnostics
    function = diagnostics.function
    rhat_of, rhat = worst(diagnostics.rhat, max)
    ess_of, ess = worst(diagnostics.ess_bulk, min)
    medians = {
        name: np.median(np.asarray(values), axis=(0, 1)).round(4).tolist()
        for name, values in posterior.parameters.items()
    }
    return {
        "rhat": max(rhat, float(function.rhat)),
        "rhat_of": rhat_of if rhat > float(function.rhat) else "function",
        "effective": min(ess, float(function.ess_bulk)),
        "effective_of": ess_of if ess < float(function.ess_bulk) else "function",
        "divergences": int(np.sum(np.asarray(function.divergences))),
        "draws": int(posterior.log_posterior.size),
        "acceptance": float(jnp.mean(function.acceptance)),
        "step_size": float(function.step_size),
        "lost": float(function.whitening_error),
        "seconds": round(seconds, 1),
        "problems": diagnostics.problems,
        "medians": medians,
    }


def sampled(model: Any, x: Any, y: Any, plan: dict[str, Any], **options: Any) -> Any:
    """A joint posterior, and its record."""
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jsvm.sampling.SamplingWarning)
        found = jsvm.sample_jointly(
            model, x, y, key=jax.random.key(1), progress=False, **(plan | options)
        )
    return found, described(found, time.process_time() - begin)


def of_labels(y: np.ndarray, probability: Any) -> dict[str, Any]:
    p = np.asarray(probability)
    return {
        "error": float(100 * np.mean(np.where(p > 0.5, 1, -1) != y)),
        "log_loss": float(-np.mean(np.log(np.where(y > 0, p, 1 - p)))),
    }


def labels(split: Any, loss: Any, plan: dict[str, Any], rank: int | None = RANK) -> dict[str, Any]:
    x, y, x_test, y_test = standardized(split)
    inputs = x.shape[1]
    kernel = kernels.RBF(jnp.full(inputs, inputs**0.5), 4.0) + kernels.Constant(1.0)
    low = jsvm.Exact()
    if rank is not None:
        low = jsvm.Nystrom(rank, rank, choice="kmeans++")
    model = jsvm.KernelMachine(kernel, loss)
    found, record = sampled(model, x, y, plan, approximation=low)
    return record | {"test": of_labels(y_test, found.probability(x_test)), "rank": rank}


def tuned(split: Any) -> dict[str, Any]:
    from jaxsvm.sklearn import BayesianSVC

    x, y, x_test, y_test = standardized(split)
    begin = time.process_time()
    machine = BayesianSVC("span", random_state=0).fit(x, y)
    probability = machine.predict_proba(x_test)[:, 1]
    found = of_labels(y_test, probability)
    wrong = 100 * np.mean(machine.predict(x_test) != y_test)
    return {
        "test": found | {"error": float(wrong)},
        "seconds": round(time.process_time() - begin, 1),
    }


def of_targets(posterior: Any, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    return {
        "error": float(np.mean((np.asarray(posterior.decision(x)) - y) ** 2)),
        "log_loss": float(-np.mean(np.asarray(posterior.log_density(x, y)))),
    }


def targets(split: Any, rank: int) -> dict[str, Any]:
    x, y, x_test, y_test = standardized(split)
    model = jsvm.regression.machine(x, y, ard=True, beta=0.3)
    low = jsvm.Nystrom(rank, rank, choice="kmeans++")
    found, record = sampled(model, x, y, ARM_PLAN, approximation=low)
    return record | {"test": of_targets(found, x_test, y_test), "rank": rank}


def adapted(split: Any) -> dict[str, Any]:
    x, y, x_test, y_test = standardized(split)
    begin = time.process_time()
    selection = jsvm.regression.adapt(x, y, ard=True, beta=0.3)
    posterior = jsvm.laplace(selection.fit())
    found = of_targets(posterior, x_test, y_test)
    return {"test": found, "seconds": round(time.process_time() - begin, 1)}


def arm(output: int) -> tuple[Any, ...]:
    x, y, x_test, y_test = sets.robot_arm()
    return x, y[:, output - 1], x_test, y_test[:, output - 1]


def show(records: dict[str, Any]) -> None:
    print(
        "| problem | machine | R-hat | effective draws | of | per second | divergences | seconds "
        "| test error | log loss |\n" + "|---" * 10 + "|"
    )
    for key, record in records.items():
        problem, machine = key.split("/", 1)
        test = record["test"]
        cells = ["", "", "", "", "", f"{record['seconds']:.0f}"]
        if "rhat" in record:
            rate = record["effective"] / record["seconds"]
            cells = [
                f"{record['rhat']:.3f}", f"{record['effective']:.0f}", record["effective_of"],
                f"{rate:.2f}", f"{record['divergences']} of {record['draws']}",
                f"{record['seconds']:.0f}",
            ]  # fmt: skip
        error = f"{test['error']:.1f} %"
        if problem.startswith("arm"):
            error = f"{test['error']:.5f}"
        print(f"| {problem} | {machine} | {' | '.join(cells)} | {error} | {test['log_loss']:.4f} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="small generated data")
    parser.add_argument("--show", action="store_true", help="print the record, compute nothing")
    parser.add_argument("--only", default="", help="a part of the keys to compute")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    if options.quick:
        x, y = jsvm.datasets.noisy_xor(60, key=jax.random.key(0), inputs=2)
        split = (x[:30], y[:30], x[30:], y[30:])
        record = labels(split, losses.Normalized(losses.Hinge()), SHORT, 10)
        show({"noisy_xor/joint": record})
        return
    store = Store(options.output, "examples/benchmarks/joint.py")
    if not options.show:
        tasks: dict[str, Any] = {}
        normalized = losses.Normalized(losses.Hinge(1.0))
        for output in OUTPUTS:
            tasks[f"arm {output}/joint"] = partial(targets, arm(output), ARM_RANK)
        splits = {name: jsvm.datasets.load(name, 0) for name in SETS}
        for name, split in splits.items():
            tasks[f"{name}/joint"] = partial(labels, split, normalized, PLAN)
        for output in OUTPUTS:
            tasks[f"arm {output}/Laplace evidence"] = partial(adapted, arm(output))
        for name, split in splits.items():
            tasks[f"{name}/span"] = partial(tuned, split)
        hinge = losses.Hinge(1.0)
        plain = PLAN | {"method": HMC(10, rescale=False)}
        for name in ("thyroid", "heart"):
            tasks[f"{name}/joint, hinge"] = partial(labels, splits[name], hinge, PLAN)
            tasks[f"{name}/joint, h and b as they are"] = partial(
                labels, splits[name], normalized, plain
            )
        for key, task in tasks.items():
            if options.only in key:
                print(key, store.compute(key, task), flush=True)
    show(store.records)


if __name__ == "__main__":
    main()

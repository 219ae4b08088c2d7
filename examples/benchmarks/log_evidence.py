"""Estimates of the log evidence: whether they agree, and what they cost.

    python examples/benchmarks/log_evidence.py            # an hour; saves as it goes
    python examples/benchmarks/log_evidence.py --quick    # three small cases: only to see that it runs
    python examples/benchmarks/log_evidence.py --table    # only print what is saved

Bridge sampling against tempered sequential Monte Carlo, and against thermodynamic integration for up to 500
examples: ranks 20 to 200, 100 to 2000 examples, penalties of the hinge from 0.3 to 30, and every loss. `z` is
the difference of two estimates in units of its standard error. `cost` is the number of gradients (of one
chain or particle, over all examples) that a standard error of 0.1 nats takes, `seconds` likewise, without
compilation.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm as jsvm
from jaxsvm import evidence, kernels, losses
from jaxsvm.sampling import MCLMC, count_steps

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
from store import Store

RESULTS = Path(__file__).parent / "results" / "log_evidence.json"
ABOUT = "value, standard error, gradients, seconds and problems of estimates of the log evidence"
WANTED = 0.1  # nats
CLASSIFICATION: dict[str, Callable[[float], losses.AbstractLoss]] = {
    "Hinge": losses.Hinge,
    "Normalized": lambda C: losses.Normalized(losses.Hinge(C)),
    "SquaredHinge": losses.SquaredHinge,
    "Logistic": losses.Logistic,
    "Probit": lambda C: losses.Probit(1 / C),
    "FlipNoise": lambda C: losses.FlipNoise(0.05, 1 / C),
    "LeastSquares": losses.LeastSquares,
    "Trigonometric": lambda C: losses.Trigonometric(),
}
REGRESSION: dict[str, Callable[[float], losses.AbstractLoss]] = {
    "EpsilonInsensitive": lambda C: losses.EpsilonInsensitive(C, 0.1),
    "SoftInsensitive": lambda C: losses.SoftInsensitive(C, 0.2, 0.3),
    "Huber": lambda C: losses.Huber(C, 0.1),
    "Laplacian": losses.Laplacian,
    "Quadratic": lambda C: losses.Quadratic(1 / C),
}
LARGEST_FOR_INTEGRATION = 500


class Case(NamedTuple):
    """One problem; a rank of zero is the exact kernel matrix."""

    loss: str
    examples: int
    rank: int
    penalty: float

    def __str__(self) -> str:
        return f"{self.loss}, n={self.examples}, rank={self.rank}, C={self.penalty:g}"


def cases(quick: bool) -> list[Case]:
    if quick:
        return [Case(name, 40, 10, 1.0) for name in ("Hinge", "Trigonometric", "Huber")]
    grid = [
        Case("Hinge", examples, rank, penalty)
        for examples, ranks in ((100, (20, 100)), (500, (20, 200)), (2000, (20, 60, 200)))
        for rank in ranks
        for penalty in (0.3, 3.0, 30.0)
    ]
    others = [name for name in CLASSIFICATION | REGRESSION if name != "Hinge"]
    return [
        *grid,
        *(Case(name, 200, 40, penalty) for name in others for penalty in (1.0, 10.0)),
        *(Case("Normalized", 500, 200, penalty) for penalty in (0.3, 3.0, 30.0)),
    ]


def problem(case: Case) -> tuple[jsvm.KernelMachine, jax.Array, jax.Array]:
    """Twonorm with a machine of the case, or its first coordinate as a noisy target."""
    x, y = jsvm.datasets.twonorm(case.examples, key=jax.random.key(case.examples))
    kernel = kernels.RBF(jnp.asarray(x.shape[1] ** 0.5), 2.0) + kernels.Constant(0.1)
    if case.loss in CLASSIFICATION:
        return jsvm.KernelMachine(kernel, CLASSIFICATION[case.loss](case.penalty)), x, y
    noise = jax.random.normal(jax.random.key(1), y.shape)
    target = jnp.sin(jnp.sum(x, axis=1) / 2) + 0.3 * noise
    return jsvm.KernelMachine(kernel, REGRESSION[case.loss](case.penalty)), x, target


def methods(case: Case, quick: bool) -> dict[str, Any]:
    if quick:
        return {
            "bridge": evidence.Bridge(chains=4, warmup=40, draws=40),
            "smc": evidence.TemperedSMC(particles=32, runs=4, moves=1),
        }
    chosen: dict[str, Any] = {"bridge": evidence.Bridge(), "smc": evidence.TemperedSMC()}
    if case.examples <= LARGEST_FOR_INTEGRATION and case.loss != "Trigonometric":
        chosen["thermodynamic"] = evidence.Thermodynamic()
    return chosen


def gradients(method: Any, found: evidence.LogEvidence) -> int:
    """How often the method, with its default sampler, computed a gradient of the losses of all examples."""
    if isinstance(method, evidence.Bridge):
        steps = int(count_steps(MCLMC(), found.diagnostics.chains.step_size))
        points = method.chains * method.draws  # they cost a value each
        return method.chains * (method.warmup + method.draws) * steps + points
    if isinstance(method, evidence.TemperedSMC):
        temperatures = int(np.max(np.asarray(found.diagnostics.temperatures)))
        steps = method.sampler.integration_steps
        return method.runs * method.particles * method.moves * steps * temperatures
    steps = [int(count_steps(MCLMC(), size)) for size in found.diagnostics.step_size]
    return method.chains * (method.warmup + method.draws) * sum(steps)


def estimate(case: Case, method: Any) -> dict[str, Any]:
    model, x, y = problem(case)
    low = jsvm.Nystrom(case.rank, min(2 * case.rank, case.examples))

    def run(seed: int) -> evidence.LogEvidence:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # problems are recorded
            return jsvm.log_evidence(
                model, x, y, key=jax.random.key(seed), approximation=low, method=method
            )

    run(1)  # compiles
    begin = time.perf_counter()
    found = run(0)
    seconds = time.perf_counter() - begin
    # the share of the prior's variance that the rank loses is the same for all methods
    problems = [line for line in found.problems if "variance" not in line]
    return {
        "value": round(float(found.value), 5),
        "standard_error": round(float(found.standard_error), 6),
        "gradients": gradients(method, found),
        "seconds": round(seconds, 3),
        "problems": problems,
    }


def compare(store: Store, case: Case, options: dict[str, Any]) -> None:
    """Print the estimates of one case in a row each."""
    records = {
        name: store.compute(f"{case}/{name}", lambda method=method: estimate(case, method))
        for name, method in options.items()
    }
    first = records["bridge"]
    for name, record in records.items():
        error = record["standard_error"]
        share = (error / WANTED) ** 2
        both = (error**2 + first["standard_error"] ** 2) ** 0.5
        z = "" if name == "bridge" else f"{(record['value'] - first['value']) / both:.1f}"
        print(
            f"| {case if name == 'bridge' else ''} | {name} | {record['value']:.3f} +- {error:.3f} "
            f"| {z} | {record['gradients'] * share:.3g} | {record['seconds'] * share:.3g} "
            f"| {'; '.join(record['problems'])} |",
            flush=True,
        )


def summary(store: Store, done: list[Case]) -> None:
    """The spread of z, and the ratio of the costs, over all cases."""
    for other in ("smc", "thermodynamic"):
        z, ratios = [], []
        for case in done:
            keys = [f"{case}/{name}" for name in ("bridge", other)]
            pair = [store.records[key] for key in keys if key in store.records]
            if len(pair) < 2 or any(record["problems"] for record in pair):
                continue
            errors = [record["standard_error"] for record in pair]
            z.append(
                (pair[1]["value"] - pair[0]["value"]) / (errors[0] ** 2 + errors[1] ** 2) ** 0.5
            )
            costs = [
                record["gradients"] * error**2 for record, error in zip(pair, errors, strict=True)
            ]
            ratios.append(costs[0] / costs[1])
        if z:
            print(
                f"\nBridge and {other}: {len(z)} cases without problems, root mean square of z "
                f"{np.sqrt(np.mean(np.square(z))):.2f}, largest {np.max(np.abs(z)):.1f}; gradients for equal "
                f"errors, bridge over {other}: median {np.median(ratios):.3g}, largest {np.max(ratios):.3g}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three small cases, nothing is saved")
    parser.add_argument("--table", action="store_true", help="only print what is saved")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the file of results")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    store = Store(None if options.quick else options.output, ABOUT)
    every = cases(options.quick)
    if options.table:
        every = [case for case in every if f"{case}/smc" in store.records]
    print(
        "| case | method | log evidence | z | cost | seconds | problems |\n|---|---|---|---|---|---|---|"
    )
    for case in every:
        kept = methods(case, options.quick)
        if options.table:
            kept = {name: kept[name] for name in kept if f"{case}/{name}" in store.records}
        compare(store, case, kept)
    summary(store, every)


if __name__ == "__main__":
    main()

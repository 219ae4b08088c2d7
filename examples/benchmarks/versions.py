"""Two versions of jaxsvm, compared on one machine: the time of the second as a share of the first's.

    python examples/benchmarks/versions.py OLD NEW                  # two checkouts; half an hour, Linux
    python examples/benchmarks/versions.py OLD NEW --parts fit      # some of the parts
    python examples/benchmarks/versions.py OLD NEW --quick          # small sizes, only to see that it runs
    python examples/benchmarks/versions.py OLD NEW --output FILE    # also writes the output to a file

OLD and NEW are folders with a checkout each. Both run in this Python and take turns, so that both meet the
same noise. Each process has one core, runs every case several times after compilation and reports the
fastest, in processor time. Cases use only functions that both versions have; others are left out, and named.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measure import printed_to

Case = tuple[str, Callable[[], Any]]
LONG_ENOUGH = 1.5  # seconds after which a case is not repeated any more
REPEATS = 15


def data(jsvm: Any, n: int, inputs: int) -> tuple[jax.Array, jax.Array]:
    x, y = jsvm.datasets.twonorm(n, key=jax.random.key(0))
    return x[:, :inputs], y


def machine(jsvm: Any, loss: Any, inputs: int, constant: bool = True, offset: bool = False) -> Any:
    kernel = jsvm.kernels.RBF(jnp.full(inputs, 4.0), 2.0)
    kernel = kernel + jsvm.kernels.Constant(0.1) if constant else kernel
    return jsvm.KernelMachine(kernel, loss, offset=offset)


def fits(jsvm: Any, sizes: Sequence[int]) -> Iterator[Case]:
    """Cold fits, warm ones after a change of 5 %, and a vmapped batch of 25."""
    losses = {
        "hinge": jsvm.losses.Hinge(1.0),
        "hinge, C = 100": jsvm.losses.Hinge(100.0),
        "squared hinge": jsvm.losses.SquaredHinge(1.0),
        "logistic": jsvm.losses.Logistic(1.0),
    }
    for n in sizes:
        for inputs in (2, 20):
            x, y = data(jsvm, n, inputs)
            for name, loss in losses.items():
                model = machine(jsvm, loss, inputs)
                near = jax.tree.map(lambda leaf: leaf + 0.05, model)
                start = jsvm.fit(model, x, y)
                where = f"{name}, {n} x {inputs}"
                yield (
                    f"cold, {where}",
                    lambda m=model, x=x, y=y: jsvm.fit(m, x, y).dual,
                )
                yield (
                    f"warm, {where}",
                    lambda m=near, x=x, y=y, start=start: jsvm.fit(m, x, y, init=start).dual,
                )
    x, y = data(jsvm, min(sizes), 20)
    one = machine(jsvm, losses["hinge"], 20)
    many = jax.tree.map(lambda leaf: jnp.stack([leaf + s for s in np.linspace(-1, 1, 25)]), one)
    batch: Any = jax.jit(
        jax.vmap(lambda m, x, y: jsvm.fit(m, x, y, throw=False).dual, (0, None, None))
    )
    yield f"batch of 25, hinge, {min(sizes)} x 20", lambda: batch(many, x, y)


def criteria(jsvm: Any, sizes: Sequence[int]) -> Iterator[Case]:
    """Value and gradient of each criterion."""
    hinge, squared = jsvm.losses.Hinge(1.0), jsvm.losses.SquaredHinge(1.0)
    least = jsvm.losses.LeastSquares(1.0)
    cases = [
        ("LaplaceEvidence", hinge, False),
        ("LaplaceEvidence", squared, False),
        ("Span", squared, False),
        ("GACV", hinge, False),
        ("RadiusMargin", squared, False),
        ("LinearResponse", squared, False),
        ("PRESS", least, True),
    ]
    for n in sizes:
        x, y = data(jsvm, n, 20)
        for name, loss, offset in cases:
            criterion = getattr(jsvm.criteria, name)()
            model = machine(jsvm, loss, 20, constant=not offset, offset=offset)
            run: Any = jax.jit(
                jax.value_and_grad(lambda m, x, y, c=criterion: c(m, x, y, throw=False))
            )
            yield (
                f"{name}, {type(loss).__name__}, n = {n}",
                lambda run=run, m=model, x=x, y=y: run(m, x, y),
            )
        model = machine(jsvm, least, 20, constant=False, offset=True)
        yield (
            f"select by PRESS, 10 steps, n = {n}",
            lambda m=model, x=x, y=y: (
                jsvm.select(m, x, y, jsvm.criteria.PRESS(), max_steps=10, throw=False).value
            ),
        )


def evidence(jsvm: Any, sizes: Sequence[int]) -> Iterator[Case]:
    """Draws from the posterior and an ascent of the evidence, with the default options."""
    key = jax.random.key(1)
    for n in sizes:
        x, y = data(jsvm, n, 2)
        model = machine(jsvm, jsvm.losses.Hinge(0.6), 2)
        yield (
            f"evidence_ascent, 3 steps, n = {n}",
            lambda m=model, x=x, y=y: jsvm.evidence_ascent(m, x, y, key=key, max_steps=3).model,
        )
    x, y = data(jsvm, min(sizes), 2)
    small = machine(jsvm, jsvm.losses.Hinge(0.6), 2)
    yield (
        f"sample, n = {min(sizes)}",
        lambda: jsvm.sample(small, x, y, key=key, draws=100, warmup=50).mean,
    )
    yield (
        f"evidence_gradient, n = {min(sizes)}",
        lambda: jsvm.evidence_gradient(small, x, y, key=key, draws=100, warmup=50).gradient,
    )


def regression(jsvm: Any, sizes: Sequence[int]) -> Iterator[Case]:
    """Bayesian support vector regression."""
    for n in sizes:
        x, _ = data(jsvm, n, 2)
        targets = jnp.sin(x[:, 0]) + 0.1 * jax.random.normal(jax.random.key(2), (n,))
        yield (
            f"adapt, n = {n}",
            lambda x=x, y=targets: jsvm.regression.adapt(x, y, max_steps=10, throw=False).value,
        )


def gp(jsvm: Any, sizes: Sequence[int]) -> Iterator[Case]:
    """Gaussian process classification."""
    for n in sizes:
        x, y = data(jsvm, n, 20)
        model = machine(jsvm, jsvm.losses.Probit(), 20)
        for name in ("laplace", "mean_field", "expectation_propagation"):
            run = getattr(jsvm.gp, name)
            yield f"{name}, n = {n}", lambda run=run, m=model, x=x, y=y: run(m, x, y).mean


PARTS: dict[str, tuple[Callable[..., Iterator[Case]], list[int]]] = {
    "fit": (fits, [150, 400, 1000]),
    "criteria": (criteria, [150, 400]),
    "evidence": (evidence, [150, 400]),
    "regression": (regression, [150, 400]),
    "gp": (gp, [150, 400]),
}


def fastest(case: Callable[[], Any]) -> float:
    """The processor seconds of the fastest of several calls, after one that compiles."""
    jax.block_until_ready(case())
    times: list[float] = []
    while len(times) < 2 or (sum(times) < LONG_ENOUGH and len(times) < REPEATS):
        begin = time.process_time()
        jax.block_until_ready(case())
        times.append(time.process_time() - begin)
    return min(times)


def measure(parts: Sequence[str], quick: bool) -> None:
    """Run in one of the processes: print the time of each case as JSON."""
    import jaxsvm as jsvm

    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    for part in parts:
        cases, sizes = PARTS[part]
        for name, case in cases(jsvm, [40] if quick else sizes):
            try:
                print(json.dumps([part, name, fastest(case)]), flush=True)
            except (AttributeError, TypeError) as error:  # not in this version
                print(json.dumps([part, name, str(error)]), flush=True)


def turn(folder: Path, parts: Sequence[str], quick: bool) -> dict[tuple[str, str], Any]:
    """The times of one version, in a process with one core."""
    core = max(os.sched_getaffinity(0))
    given = [sys.executable, __file__, "--measure", "--parts", *parts]
    environment = os.environ | {"PYTHONPATH": str(folder.resolve()), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        given + ["--quick"] * quick,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    return {(part, name): value for part, name, value in lines}


def compare(old: Path, new: Path, parts: Sequence[str], turns: int, quick: bool) -> None:
    print(
        f"jax {jax.__version__}, float64, one core, {turns} turns; milliseconds of processor time"
    )
    print(f"{'':<42}{'old':>10}{'new':>10}{'new / old':>11}")
    every: list[float] = []
    for part in parts:
        best: list[dict[tuple[str, str], Any]] = [{}, {}]
        for number in range(2 * turns):
            side = (number + number // 2) % 2  # old, new, new, old, ...
            for name, value in turn((old, new)[side], [part], quick).items():
                known = best[side].get(name, value)
                best[side][name] = value if isinstance(value, str) else min(known, value)
        ratios: list[float] = []
        for name in best[1]:
            pair = [times.get(name, "absent") for times in best]
            if any(isinstance(value, str) for value in pair):
                print(f"{name[1]:<42}  not in both versions", flush=True)
                continue
            ratios.append(pair[1] / pair[0])
            print(
                f"{name[1]:<42}{1e3 * pair[0]:10.2f}{1e3 * pair[1]:10.2f}{ratios[-1]:11.2f}",
                flush=True,
            )
        every += ratios
        print(f"{part + ', geometric mean':<62}{_geometric_mean(ratios):11.2f}", flush=True)
    print(f"{'all, geometric mean':<62}{_geometric_mean(every):11.2f}")


def _geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if values else float("nan")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="old and new")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--turns", type=int, help="of each version (default: 3, or 1 if quick)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, help="also write the output to this file")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        measure(options.parts, options.quick)
        return
    if len(options.folders) != 2 or not all((f / "jaxsvm").is_dir() for f in options.folders):
        parser.error("give two folders, the old and the new checkout of jaxsvm")
    with printed_to(options.output):
        old, new = options.folders
        turns = options.turns or (1 if options.quick else 3)
        compare(old, new, options.parts, turns, options.quick)


if __name__ == "__main__":
    main()

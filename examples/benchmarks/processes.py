"""Strong scaling: two processes on one core each, compared with one process on one core.

    python examples/benchmarks/processes.py            # 200,000 examples, rank 200; a few minutes, Linux
    python examples/benchmarks/processes.py --quick    # 400 examples, rank 20, only to see that it runs
    python examples/benchmarks/processes.py --output FILE   # also writes the output to a file

The processes work together through `jax.distributed`, and each has half of the rows. Printed are the seconds
of a fit and of PRESS with its gradient, after compilation, and how many times faster two processes are. The
machine needs two free cores.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measure import best_time, printed_to

import jaxsvm as jsvm

INPUTS, REPEATS = 8, 3


def work(examples: int, rank: int, number: int, count: int, address: str) -> None:
    """Run one of the processes, and print its times as JSON."""
    # the rank of the quick run is too low
    warnings.simplefilter("ignore", jsvm.approximations.ApproximationWarning)
    if count > 1:
        jax.distributed.initialize(address, count, number)
    random = np.random.default_rng(number)
    x = random.normal(size=(examples // count, INPUTS))
    latent = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.7 * random.normal(size=len(x))
    data = jsvm.shard(x, np.where(latent > 0, 1.0, -1.0))
    low = jsvm.Nystrom(rank=rank, landmarks=list(range(rank)))
    kernel = jsvm.kernels.RBF(jnp.full(INPUTS, 5.0))
    hinge = jsvm.KernelMachine(kernel, jsvm.losses.SquaredHinge(1.0))
    least = jsvm.KernelMachine(kernel, jsvm.losses.LeastSquares(1.0))
    known = jsvm.approximations.represent(low, least, data[0])

    def fit() -> Any:
        return jsvm.fit(hinge, data[0], data[1], weights=data[2], approximation=known).dual

    @jax.jit
    def press(model: Any, x: jax.Array, y: jax.Array, weights: jax.Array) -> Any:
        criterion = jsvm.criteria.PRESS()
        return jax.value_and_grad(
            lambda model: criterion(model, x, y, weights=weights, approximation=known, throw=False)
        )(model)

    times = {"fit": best_time(fit, REPEATS)}
    times["PRESS, gradient"] = best_time(lambda: press(least, *data), REPEATS)
    print(json.dumps(times), flush=True)


def measured(examples: int, rank: int, count: int) -> dict[str, float]:
    """The times of so many processes, each on a core of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    cores = sorted(os.sched_getaffinity(0))
    processes: list[subprocess.Popen[str]] = []
    for number in range(count):
        core = cores[number % len(cores)]
        given = [str(value) for value in (examples, rank, number, count, address)]
        processes.append(
            subprocess.Popen(
                [sys.executable, __file__, "--process", *given],
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=lambda core=core: os.sched_setaffinity(0, {core}),
            )
        )
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError("a process has failed")
    every = [json.loads(output.splitlines()[-1]) for output in outputs]
    return {name: max(times[name] for times in every) for name in every[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, help="also write the output to this file")
    parser.add_argument("--process", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    if options.process:
        *numbers, address = options.process
        examples, rank, number, count = map(int, numbers)
        work(examples, rank, number, count, address)
        return
    examples, rank = (400, 20) if options.quick else (200_000, 200)
    with printed_to(options.output):
        print(f"jax {jax.__version__}, float64, n = {examples}, {INPUTS} inputs, rank {rank}")
        one, two = (measured(examples, rank, count) for count in (1, 2))
        print("                  one process   two processes   ratio (goal: 1.8)")
        for name in one:
            print(f"{name:<18}{one[name]:9.2f} s{two[name]:14.2f} s{one[name] / two[name]:9.2f}")


if __name__ == "__main__":
    main()

"""Effective draws per gradient and per second of the samplers.

    python examples/benchmarks/samplers.py            # ten minutes
    python examples/benchmarks/samplers.py --quick    # one small case: only to see that it runs
    python examples/benchmarks/samplers.py --output samplers.txt    # also writes the output to a file

The default, `MCLMC()`, against `HMC()` with its trajectories of eight steps: the hinge with C = 1 and 10 and
the normalized hinge on 400 examples of Twonorm, ranks 20 to 200, eight chains. The worst of total loss,
penalty and leading coordinates counts. Warm-up and compilation are not counted in seconds; on a busy machine
trust the ratios more.
"""

import argparse
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

# several threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from measure import printed_to, timed

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm.approximations import represent_in_white
from jaxsvm.sampling import (
    HMC,
    MCLMC,
    Chains,
    Method,
    Setup,
    Traces,
    draw,
    start_chains,
    warm_up,
)
from jaxsvm.sampling._diagnostics import ess_bulk

CHAINS, WARMUP, DRAWS = 8, 200, 500  # the defaults of `jaxsvm.sample`
LOSSES = {
    "hinge, C = 1": losses.Hinge(1.0),
    "hinge, C = 10": losses.Hinge(10.0),
    "normalized, C = 1.5": losses.Normalized(losses.Hinge(1.5)),
}


def speed(setup: Setup, method: Method, draws: int, rounds: int) -> tuple[float, float]:
    """Effective draws per thousand gradients, and per second."""

    @eqx.filter_jit
    def begin(setup: Setup, key: jax.Array) -> Chains:
        target = setup.whiten()[1]
        return warm_up(target, method, start_chains(target, method, CHAINS), key, WARMUP)

    @eqx.filter_jit
    def run(setup: Setup, chains: Chains, key: jax.Array) -> Traces:
        return draw(setup.whiten()[1], method, chains, key, draws)[2]

    chains = begin(setup, jax.random.key(0))
    jax.block_until_ready(run(setup, chains, jax.random.key(1)))
    effective, seconds, gradients = [], [], []
    for number in range(rounds):
        traces, elapsed = timed(
            lambda number=number: run(setup, chains, jax.random.key(2 + number))
        )
        columns = (traces.loss, traces.penalty, *jnp.moveaxis(traces.coordinates, 2, 0))
        effective.append(min(ess_bulk(np.asarray(column).T) for column in columns))
        seconds.append(elapsed)
        gradients.append(int(jnp.sum(traces.steps)))
    draws_found = float(np.mean(effective))
    return 1000 * draws_found / float(np.mean(gradients)), draws_found / min(seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one small case")
    parser.add_argument("--output", type=Path, help="a file for the output")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    ranks, draws, rounds = ((5,), 20, 1) if options.quick else ((20, 40, 100, 200), DRAWS, 3)
    x, y = jsvm.datasets.twonorm(40 if options.quick else 400, key=jax.random.key(0))
    kernel = kernels.RBF(jnp.full(x.shape[1], x.shape[1] ** 0.5), 4.0) + kernels.Constant(0.1)
    ratios: list[tuple[float, float]] = []
    with printed_to(options.output), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(f"{time.strftime('%Y-%m-%d')}, jax {jax.__version__}, {len(y)} examples of Twonorm")
        print("| loss | rank | HMC: per 1000 gradients | per second | MCLMC | per second |")
        print("|---|---|---|---|---|---|")
        for name, loss in list(LOSSES.items())[: 1 if options.quick else None]:
            model = jsvm.KernelMachine(kernel, loss)
            for rank in ranks:
                low = jsvm.Nystrom(rank, min(2 * rank, len(y)))
                kept = represent_in_white(low, model, x, jax.random.key(1))
                setup = Setup(model, x, y, jnp.ones(len(y)), kept)
                old, new = (speed(setup, method, draws, rounds) for method in (HMC(), MCLMC()))
                cells = " | ".join(f"{value:.1f}" for value in (*old, *new))
                print(f"| {name} | {rank} | {cells} |", flush=True)
                ratios.append((new[0] / old[0], new[1] / old[1]))
        means = np.exp(np.mean(np.log(ratios), axis=0))
        print(
            f"\nMCLMC over HMC, geometric means: {means[0]:.2f} per gradient (smallest "
            f"{min(first for first, _ in ratios):.2f}), {means[1]:.2f} per second"
        )


if __name__ == "__main__":
    main()

"""The evidence of many examples by batches: its cost, and the bias of chains without accept/reject.

    python examples/benchmarks/evidence_at_scale.py                # up to a million examples, rank 100
    python examples/benchmarks/evidence_at_scale.py --quick        # small sizes, only to see that it runs
    python examples/benchmarks/evidence_at_scale.py --parts cost   # some of cost, ascent, bias
    python examples/benchmarks/evidence_at_scale.py --output FILE  # also writes the output to a file

- cost: seconds and peak memory of one gradient of the evidence by `SGLD`, after compilation, and the exponent
  p of the time, which grows like `n^p`. Each size runs in a process of its own, so that its peak is its own.
- ascent: some steps of an ascent of the evidence by batches.
- bias: gradients by `SGLD` minus those of full-batch HMC chains, for several batches and step sizes, averaged
  over random keys. `nats` is the largest difference of any hyperparameter, with its standard error; `z` is
  the root mean square of the differences in units of their standard errors, about one without bias.
  `spread` is the standard deviation of `SGLD` gradients over keys divided by the standard errors that their
  chains report, about one if these are honest.
"""

import argparse
import itertools
import resource
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from measure import growth, printed_to, timed
from scale import data, kernel

import jaxsvm as jsvm
from jaxsvm.sampling import SGLD

PARTS = ("cost", "ascent", "bias")
Batches = tuple[int, float | None]  # the number of examples, and the step size
BATCHES: list[Batches] = [(50, None), (400, None), (400, 0.1), (400, 1.0)]


def machine(loss: jsvm.losses.AbstractClassification) -> jsvm.KernelMachine:
    return jsvm.KernelMachine(kernel(), loss)


def numbers(model: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])


def one_cost(n: int, rank: int, batch: int) -> None:
    """Print the seconds of one gradient, the peak memory, and how good the chains are."""
    x, y = data(n)
    low = jsvm.Nystrom(rank=rank, landmarks=rank)

    def run() -> jsvm.evidence.EvidenceGradient:
        return jsvm.evidence_gradient(
            machine(jsvm.losses.Hinge(1.0)), x, y, key=jax.random.key(1), approximation=low,
            route="fisher", method=SGLD(batch), warmup=20, draws=50,
        )  # fmt: skip

    run()
    found, seconds = timed(run)
    share = np.abs(numbers(found.standard_error) / numbers(found.gradient))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    quality = found.diagnostics
    print(
        f"{n:8d}{seconds:9.1f}{peak:10.0f}{float(quality.step_size):10.3f}"
        f"{100 * float(quality.batch_noise or 0):10.1f} %{float(quality.ess_bulk):12.0f}"
        f"{100 * np.median(share):14.2f} %",
        flush=True,
    )


def costs(sizes: list[int], rank: int, batch: int) -> None:
    print(
        f"\none gradient, hinge, rank {rank}, 8 chains, 20 + 50 draws of 10 steps, batches of {batch}"
    )
    print("       n  seconds   peak MB      step  batch noise   ess (of 400)   relative error")
    times = []
    for n in sizes:
        command = [sys.executable, __file__, "--one", str(n), str(rank), str(batch)]
        line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        print(line, end="", flush=True)
        times.append(float(line.split()[1]))
    print(f"exponent {growth(sizes, times):.2f}")


def ascent(n: int, rank: int, batch: int, steps: int) -> None:
    x, y = data(n)
    objective = jsvm.evidence.Sampled(
        jsvm.Nystrom(rank=rank, landmarks=rank), method=SGLD(batch), warmup=10, draws=20
    )

    def run(steps: int) -> jsvm.Selection:
        return jsvm.select(
            machine(jsvm.losses.Hinge(1.0)), x, y, objective, key=jax.random.key(2),
            max_steps=steps, throw=False, progress=False,
        )  # fmt: skip

    run(1)
    best, seconds = timed(lambda: run(steps))
    kernel: Any = best.model.kernel
    scales = np.asarray(kernel.lengthscale)
    taken = int(best.history.steps[0])
    print(f"\nascent, n = {n}, rank {rank}: {taken} steps, {seconds / taken:.1f} s per step")
    print("lengthscales after them: " + ", ".join(f"{scale:.2f}" for scale in scales))


def gradients(
    n: int, loss: Any, method: Any, draws: int, keys: list[int]
) -> list[jsvm.evidence.EvidenceGradient]:
    x, y = data(n)
    low = jsvm.Nystrom(rank=20, landmarks=list(range(20)))
    return [
        jsvm.evidence_gradient(
            machine(loss), x, y, key=jax.random.key(key), approximation=low,
            route="fisher", method=method, chains=16, warmup=100, draws=draws,
        )
        for key in keys
    ]  # fmt: skip


def biases(
    sizes: list[int], draws: int, keys: int, names: Sequence[str], batches: Sequence[Batches]
) -> None:
    losses = {"hinge": jsvm.losses.Hinge(1.0), "logistic": jsvm.losses.Logistic(2.0)}
    print(f"\nbias, rank 20, 16 chains of {draws} draws, {keys} keys; all gradients in nats")
    print("loss            n  batch   step   noise     nats  its error      z   spread")
    for n, name in itertools.product(sizes, names):
        loss, numbered = losses[name], list(range(keys))
        whole = gradients(n, loss, jsvm.sampling.HMC(), draws, numbered)
        for batch, step in batches:  # None adapts the step size
            found = gradients(n, loss, SGLD(batch, step_size=step), draws, numbered)
            print(f"{name:<9}{n:8d}{batch:7d}{compared(found, whole)}", flush=True)


def compared(found: list[Any], whole: list[Any]) -> str:
    """The differences of mean gradients, and how honest the standard errors are."""
    values, exact = (np.stack([numbers(one.gradient) for one in some]) for some in (found, whole))
    reported = np.stack([numbers(one.standard_error) for one in found])
    off = values.mean(axis=0) - exact.mean(axis=0)
    variances = values.var(axis=0, ddof=1), exact.var(axis=0, ddof=1)
    error = np.sqrt(sum(variances) / len(found))
    worst = int(np.argmax(np.abs(off)))
    spread = np.sqrt(np.mean(variances[0]) / np.mean(reported**2))
    quality = found[0].diagnostics
    return (
        f"{float(quality.step_size):7.2f}{100 * float(quality.batch_noise):6.1f} %{off[worst]:9.3f}"
        f"{error[worst]:11.3f}{np.sqrt(np.mean((off / error) ** 2)):7.2f}{spread:9.2f}"
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--sizes", nargs="+", type=int, help="numbers of examples of the part `bias`"
    )
    parser.add_argument("--one", nargs=3, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help="also write the output to this file")
    options = parser.parse_args(arguments)
    options.sizes = options.sizes or ([600] if options.quick else [2000, 20_000])
    with jax.enable_x64(True), printed_to(options.output), warnings.catch_warnings():
        # the rank is fixed, whatever it loses
        warnings.simplefilter("ignore", jsvm.sampling.SamplingWarning)
        if options.one:
            one_cost(*options.one)
            return
        print(f"jax {jax.__version__}, {jax.device_count()} device, float64")
        if "bias" in options.parts:
            few = (10, 2, ["hinge"], BATCHES[:1])
            many = (200, 8, ["hinge", "logistic"], BATCHES)
            biases(options.sizes, *(few if options.quick else many))
        if "cost" in options.parts:
            sizes = [1000, 3000] if options.quick else [100_000, 1_000_000]
            costs(sizes, *((10, 100) if options.quick else (100, 1000)))
        if "ascent" in options.parts:
            ascent(*((1000, 10, 100, 1) if options.quick else (1_000_000, 100, 1000, 5)))


if __name__ == "__main__":
    main()

"""The cost of posterior draws, of gradients of the evidence, and of whole ascents.

    python examples/benchmarks/evidence.py            # a few minutes; or --parts draws peak growth ascent
    python examples/benchmarks/evidence.py --quick    # small sizes, draws and peak: only to see that it runs
    python examples/benchmarks/evidence.py --output evidence.txt    # also writes the output to a file

- `draws`: effective draws per second of our chains, against the loop of [GS05], written in plain NumPy
  below: one chain, ten leapfrog steps of 0.05, the first half dropped. Both have the same model, white
  coordinates and estimator. The worst of total loss, penalty and leading coordinates counts.
- `peak`: the speed of the leapfrog steps as a share of that of a large matrix product.
- `growth`: time and memory of one gradient of the evidence for growing numbers of examples.
- `ascent`: whole ascents with the defaults, on the first partition of each of the thirteen benchmark sets
  (see `docs/files.md`).

Times are without compilation, and short ones are the best of several. On a busy machine trust the ratios more
than the seconds.
"""

import argparse
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# several threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from measure import growth, printed_to, timed

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm.approximations import represent_in_white

# the program behind `evidence_gradient`, to read its memory
from jaxsvm.evidence._gradient import _sampled_gradient  # pyright: ignore[reportPrivateUsage]
from jaxsvm.sampling import (
    MCLMC,
    Chains,
    Setup,
    Target,
    Traces,
    draw,
    slopes,
    start_chains,
    warm_up,
)
from jaxsvm.sampling._diagnostics import ess_bulk

PARTS = ("draws", "peak", "growth", "ascent")
CHAINS, WARMUP, DRAWS = 8, 200, 500  # the defaults of `jaxsvm.sample`
METHOD = MCLMC()
LANDMARKS = 200
STEP, STEPS = 0.05, 10  # of the paper
SETS = (
    "thyroid", "titanic", "heart", "breast_cancer", "banana", "twonorm", "ringnorm", "waveform",
    "diabetis", "flare_solar", "german", "splice", "image",
)  # fmt: skip


def best_of(function: Callable[[], Any], repeats: int) -> float:
    times: list[float] = []
    while len(times) < repeats and sum(times) < 20:  # long runs are not repeated
        times.append(timed(function)[1])
    return min(times)


def machine(inputs: int, variance: float = 1.0, C: float = 0.6) -> jsvm.KernelMachine:
    kernel = kernels.RBF(jnp.full(inputs, inputs**0.5), variance) + kernels.Constant(0.1)
    return jsvm.KernelMachine(kernel, losses.Hinge(C))


def setup_of(name: str, examples: int, rank: int) -> Setup:
    x, y = getattr(jsvm.datasets, name)(examples, key=jax.random.key(0))
    # settings for which the paper's step size suits the paper's loop
    model = machine(x.shape[1], variance=4.0, C=1.0)
    low = jsvm.Nystrom(rank, min(LANDMARKS, examples))
    return Setup(
        model, x, y, jnp.ones(examples), represent_in_white(low, model, x, jax.random.key(1))
    )


class Speed(NamedTuple):
    """The speed of a sampler: seconds of warm-up and drawing, gradients, effective draws, acceptance."""

    warmup: float
    drawing: float
    gradients: int
    effective: float
    acceptance: float

    @property
    def rate(self) -> float:
        """Effective draws per second, warm-up included."""
        return self.effective / (self.warmup + self.drawing)

    @property
    def warm_rate(self) -> float:
        """Effective draws per second after warm-up."""
        return self.effective / self.drawing


Speeds = dict[tuple[str, int, int], Speed]  # by data set, examples and rank


def effective(quantities: Iterable[np.ndarray]) -> float:
    """The lowest number of effective draws among quantities of shape (chains, draws)."""
    return min(map(ess_bulk, quantities))


@eqx.filter_jit
def our_warmup(target: Target, key: jax.Array) -> Chains:
    return warm_up(target, METHOD, start_chains(target, METHOD, CHAINS), key, WARMUP)


@eqx.filter_jit
def our_draws(target: Target, state: Chains, key: jax.Array) -> tuple[Chains, jax.Array, Traces]:
    """The chains after the draws, `<u b'>` of each chain, and the traces."""
    state, _, traces, kept = draw(target, METHOD, state, key, DRAWS, keep=DRAWS)

    def of_chain(b: jax.Array) -> jax.Array:
        slope = jax.vmap(slopes, (None, 0))(target, b @ target.factor.T)
        return slope.T @ b / DRAWS

    return state, jax.lax.map(of_chain, jnp.swapaxes(kept, 0, 1)), traces


class OurChains:
    """Warm-up and draws of our chains, with the averages `<u b'>`."""

    def __init__(self, target: Target):
        self.target = target
        self.warm: list[float] = []
        self.drawing: list[float] = []
        self.effective: list[float] = []
        self.accepted: list[float] = []
        self.gradients: list[int] = []
        self.round(0)  # compile first
        self.warm.clear()
        self.drawing.clear()

    def round(self, number: int) -> None:
        """Time one whole run."""
        warm_key, draw_key = jax.random.split(jax.random.key(number))
        state, seconds = timed(lambda: our_warmup(self.target, warm_key))
        self.warm.append(seconds)
        (_, _, traces), seconds = timed(lambda: our_draws(self.target, state, draw_key))
        self.drawing.append(seconds)
        columns = (traces.loss, traces.penalty, *jnp.moveaxis(traces.coordinates, 2, 0))
        self.effective.append(effective(np.asarray(column).T for column in columns))
        self.accepted.append(float(jnp.mean(traces.acceptance)))
        self.gradients.append(int(jnp.sum(traces.steps)))

    def speed(self) -> Speed:
        """The speed of the least disturbed round, with the mean number of effective draws."""
        gradients = int(np.mean(self.gradients))
        draws, accepted = float(np.mean(self.effective)), float(np.mean(self.accepted))
        return Speed(min(self.warm), min(self.drawing), gradients, draws, accepted)


class PaperLoop:
    """The paper's loop, eqs. 19-21, as one would write it in NumPy; calling `run` again continues it."""

    def __init__(self, factor: np.ndarray, y: np.ndarray, C: float, b: np.ndarray, seed: int = 0):
        self.signed = y[:, None] * factor  # Y V
        self.C, self.step = C, STEP / max(C, 1.0)
        self.b: np.ndarray = b
        self.rng = np.random.default_rng(seed)
        self.margins: np.ndarray = self.signed @ b
        self.force = self._force(b, self.margins)
        self.potential = self._loss(self.margins) + float(b @ b) / 2
        self.slope_b = np.zeros_like(factor)  # the sum of u b' without the factor -C y
        self.accepted = 0

    def _loss(self, margins: np.ndarray) -> float:
        return self.C * float(np.sum(np.maximum(1 - margins, 0)))

    def _force(self, b: np.ndarray, margins: np.ndarray) -> np.ndarray:
        return self.C * ((margins < 1).astype(float) @ self.signed) - b

    def run(self, draws: int) -> np.ndarray:
        """Loss, penalty and four coordinates of each draw."""
        traces = np.empty((draws, 6))
        for number in range(draws):
            momentum = self.rng.standard_normal(self.b.shape[0])
            energy = self.potential + float(momentum @ momentum) / 2
            b, margins, force = self.b, self.margins, self.force
            momentum = momentum + self.step / 2 * force
            for left in range(STEPS, 0, -1):
                b = b + self.step * momentum
                margins = self.signed @ b
                force = self._force(b, margins)
                momentum = momentum + (self.step if left > 1 else self.step / 2) * force
            potential = self._loss(margins) + float(b @ b) / 2
            change = potential + float(momentum @ momentum) / 2 - energy
            if change <= 0 or self.rng.random() < np.exp(-change):
                self.b, self.margins, self.force, self.potential = b, margins, force, potential
                self.accepted += 1
            penalty = float(self.b @ self.b) / 2
            self.slope_b += (self.margins < 1)[:, None] * self.b
            traces[number] = (self.potential - penalty, penalty, *self.b[:4])
        return traces


@functools.cache
def target_for(name: str, examples: int, rank: int) -> Target:
    setup = setup_of(name, examples, rank)
    return setup.whiten()[1]


def our_speed(name: str, examples: int, rank: int, rounds: int) -> Speed:
    ours = OurChains(target_for(name, examples, rank))
    for number in range(rounds):
        ours.round(number + 1)
    return ours.speed()


def both_speeds(name: str, examples: int, rank: int, rounds: int, paper_draws: int):
    """Our speed and the loop's, measured in turn so that other programs disturb both alike."""
    target = target_for(name, examples, rank)
    ours = OurChains(target)
    start = np.asarray(start_chains(target, METHOD, 1).b[0])
    penalty = float(jsvm.parameters(target.loss)["C"])
    loop = PaperLoop(np.asarray(target.factor), np.asarray(target.y), penalty, start)
    length = paper_draws // 2 // rounds
    loop.run(length * rounds)  # the half that is dropped
    loop.accepted = 0
    traces: list[np.ndarray] = []
    times: list[float] = []
    for number in range(rounds):
        part, seconds = timed(lambda: loop.run(length))
        traces.append(part)
        times.append(seconds)
        ours.round(number + 1)
    seconds = min(times) * rounds
    draws = effective(column[None] for column in np.concatenate(traces).T)
    accepted = loop.accepted / (length * rounds)
    return ours.speed(), Speed(seconds, seconds, STEPS * length * rounds, draws, accepted)


def draws_part(
    names: Sequence[str], sizes: Sequence[int], ranks: Sequence[int], rounds: int, paper_draws: int
) -> Speeds:
    print(f"\nEffective draws per second: {CHAINS} chains against the paper's loop in NumPy, C = 1")
    print("(one chain); with warm-up, then without; gradients in thousands per second (goal: 20)")
    print(
        f"{'':9s} {'n':>5s} rank |  ours: gradients accepted effective   warm "
        "| loop: gradients accepted effective   warm | ratio   warm"
    )
    ratios: list[tuple[float, float]] = []
    speeds: Speeds = {}
    for name in names:
        for examples in sizes:
            for rank in ranks:
                ours, loop = both_speeds(name, examples, rank, rounds, paper_draws)
                speeds[name, examples, rank] = ours
                ratios.append((ours.rate / loop.rate, ours.warm_rate / loop.warm_rate))
                cells = "| ".join(
                    f"{s.gradients / s.drawing / 1e3:15.1f} {s.acceptance:8.2f} {s.rate:9.0f} "
                    f"{s.warm_rate:6.0f} "
                    for s in (ours, loop)
                )
                ratio, warm = ratios[-1]
                print(
                    f"{name:9s} {examples:5d} {rank:4d} | {cells}| {ratio:5.1f} {warm:6.1f}",
                    flush=True,
                )
    ratio, warm = np.exp(np.mean(np.log(ratios), axis=0)).tolist()
    print(f"geometric mean of the ratios: {ratio:.1f} (goal: 20), without warm-up {warm:.1f}")
    return speeds


def product_speed(size: int, repeats: int = 5) -> float:
    """Floating-point operations per second of a large matrix product in float64."""
    matrix = jax.random.normal(jax.random.key(0), (size, size))
    product: Callable[[jax.Array, jax.Array], jax.Array] = jax.jit(jnp.matmul)
    jax.block_until_ready(product(matrix, matrix))
    return 2 * size**3 / best_of(lambda: product(matrix, matrix), repeats)


def peak_part(
    sizes: Sequence[int], ranks: Sequence[int], rounds: int, product: int, measured: Speeds
) -> None:
    peak = product_speed(product)
    print(f"\nThe two matrix products of a leapfrog step against one of {product} x {product}")
    for examples in sizes:
        for rank in ranks:
            speed = measured.get(("twonorm", examples, rank))
            speed = speed or our_speed("twonorm", examples, rank, rounds)
            # n x p by p x chains, and back
            done = 4 * examples * rank * speed.gradients / speed.drawing
            peak = max(peak, product_speed(product, 2))
            print(
                f"  n = {examples:5d}, rank {rank:3d}, {CHAINS} chains   {done / 1e9:6.2f} of "
                f"{peak / 1e9:5.1f} GFLOP/s   share {done / peak:5.1%}",
                flush=True,
            )


def gradient_cost(examples: int, route: str, draws: int, repeats: int) -> tuple[float, float]:
    """Seconds of one gradient, and the peak memory of its compiled program in bytes."""
    setup = setup_of("twonorm", examples, 20)
    arguments = (setup, METHOD, CHAINS, 30, draws, route, jax.random.key(2))
    program: Any = eqx.filter_jit(_sampled_gradient)
    compiled = program.lower(*arguments).compile()
    memory = compiled.compiled.memory_analysis()
    seconds = best_of(lambda: compiled(*arguments), repeats)
    return seconds, memory.temp_size_in_bytes + memory.output_size_in_bytes


def growth_part(sizes: dict[str, list[int]], draws: int, repeats: int) -> None:
    print(f"\nOne gradient of the evidence, rank 20, {LANDMARKS} landmarks, 22 hyperparameters,")
    print(f"30 + {draws} draws of {CHAINS} chains")
    for route, counts in sizes.items():
        costs: list[tuple[float, float]] = []
        for examples in counts:
            costs.append(gradient_cost(examples, route, draws, repeats))
            seconds, memory = costs[-1]
            print(
                f"  route {route}   n = {examples:6d}   {seconds:8.3f} s   {memory / 1e6:8.1f} MB",
                flush=True,
            )
        time_power, memory_power = (growth(counts, column) for column in zip(*costs, strict=True))
        goal = " (goal: 1.1 and 1)" if route == "fisher" else ""
        print(
            f"  route {route}   grows as n to the power {time_power:.2f}, its memory "
            f"{memory_power:.2f}{goal}"
        )


def one_ascent(name: str, data: Sequence[jax.Array], **options: Any) -> float:
    x, y, x_test, y_test = data
    model, key = machine(x.shape[1]), jax.random.key(2005)
    # as by default: from 1,000 examples on, time and memory must not grow quadratically
    route = "kernel" if len(y) < 1000 else "fisher"
    options = {"throw": False, "progress": False, "route": route, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jsvm.sampling.SamplingWarning)
        first = options | {"max_steps": 1}
        jsvm.evidence_ascent(model, x, y, key=key, **first)  # compile first
        begin = time.perf_counter()
        path = jsvm.evidence_ascent(model, x, y, key=key, **options)
        seconds = time.perf_counter() - begin
    steps = int(path.history.steps[0])
    error = float(jnp.mean(jsvm.fit(path.model, x, y).predict(x_test) != y_test))
    result = jsvm.RESULTS(int(path.result)).name
    print(
        f"  {name:14s} n = {len(y):5d}   {route}   {seconds:7.2f} s   {steps:3d} steps ({result}), "
        f"{1e3 * seconds / steps:6.0f} ms per step   test error {error:.2%}",
        flush=True,
    )
    return seconds


def ascent_part(quick: bool) -> None:
    print("\nAscents of the evidence, from beginning to end (goal: 10 s each)")
    if quick:
        x, y = jsvm.datasets.twonorm(400, key=jax.random.key(0))
        low_rank = jsvm.Nystrom(rank=5, landmarks=20)
        options = {"max_steps": 3, "approximation": low_rank, "draws": 20, "first_warmup": 20}
        one_ascent("twonorm, short", (x[:60], y[:60], x[60:], y[60:]), **options)
        return
    times = [one_ascent(name, jsvm.datasets.load(name, split=0)) for name in SETS]
    within = sum(seconds <= 10 for seconds in times)
    print(f"  {within} of {len(times)} within 10 s; the longest took {max(times):.1f} s")


def run(parts: Sequence[str] | None, quick: bool) -> None:
    """Run the requested parts."""
    parts = parts or (PARTS[:2] if quick else PARTS)  # the other parts take long to compile
    print("load average: " + ", ".join(f"{load:.1f}" for load in os.getloadavg()))
    sizes, ranks, rounds = ((60,), (8,), 2) if quick else ((200, 400, 700, 1300), (20, 40), 8)
    measured: Speeds = {}
    if "draws" in parts:
        names = ("twonorm",) if quick else ("twonorm", "ringnorm")
        measured = draws_part(names, sizes, ranks, rounds, 1000 if quick else 16_000)
    if "peak" in parts:
        peak_part(sizes, ranks, rounds, 300 if quick else 2000, measured)
    if "growth" in parts:
        powers = range(2) if quick else range(7)
        counts = {"fisher": [(250 if quick else 1000) * 2**power for power in powers]}
        if not quick:
            counts["kernel"] = counts["fisher"][:4]
        growth_part(counts, 10 if quick else 150, 2 if quick else 4)
    if "ascent" in parts:
        ascent_part(quick)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, help="default: all; with --quick, draws and peak"
    )
    parser.add_argument("--output", type=Path, help="also write the output to this file")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    with printed_to(options.output):
        run(options.parts, options.quick)


if __name__ == "__main__":
    main()

"""The cost of low-rank machines: a model of operations and memory, checked against compiled programs.

    python examples/benchmarks/cost.py                 # compiles programs and runs none: two minutes
    python examples/benchmarks/cost.py --quick         # one of the programs
    python examples/benchmarks/cost.py --output FILE   # also writes the output to a file

For n examples with d inputs and rank p (and as many landmarks), the model is

    operations = n (a p^2 + b p d + c p),    memory = e n p numbers beside the data.

The coefficients fit what XLA counts in the compiled programs, all of their branches included. `error` is how
far the model is off for another shape, which had no part in the fit. The memory is that of a program for so
many examples that V is computed in blocks of rows. The last table is arithmetic, not a
measurement: it extends the model to other sizes, for devices with the assumed speed and memory that it names.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from measure import printed_to

import jaxsvm as jsvm

Shape = tuple[int, int, int]  # examples, rank, inputs
# so few examples that V'V is not computed in blocks: XLA counts a loop once
SHAPES: list[Shape] = [(1600, 50, 8), (1600, 100, 8), (1600, 50, 16)]
CHECK: Shape = (2000, 80, 12)
MANY: Shape = (40_960, 100, 8)  # for the memory
SPEED, MEMORY = 1e13, 80e9  # of one device, assumed: operations a second, bytes


class Counts(NamedTuple):
    """The operations of a compiled program, and the bytes it needs beside its arguments."""

    operations: float
    memory: float


def machine(inputs: int) -> jsvm.KernelMachine[Any, Any]:
    kernel = jsvm.kernels.RBF(jnp.full(inputs, 2.0))
    return jsvm.KernelMachine(kernel, jsvm.losses.LeastSquares(1.0))


def features(model: Any, x: jax.Array, y: jax.Array, low: Any) -> jax.Array:
    return low.subspace(model, x).whiten(model.kernel, x, shards=1).factor


def of_criterion(criterion: Any, gradient: bool) -> Callable[..., Any]:
    def value(model: Any, x: jax.Array, y: jax.Array, low: Any) -> jax.Array:
        return criterion(model, x, y, approximation=low)

    return jax.value_and_grad(value) if gradient else value


PROGRAMS: dict[str, Callable[..., Any]] = {
    "features V": features,
    "PRESS": of_criterion(jsvm.criteria.PRESS(), gradient=False),
    "PRESS, gradient": of_criterion(jsvm.criteria.PRESS(), gradient=True),
    "Laplace evidence, gradient": of_criterion(jsvm.criteria.LaplaceEvidence(), gradient=True),
}


def counted(program: Callable[..., Any], shape: Shape) -> Counts:
    n, rank, inputs = shape
    low = jsvm.Nystrom(rank=rank, landmarks=list(range(rank)))
    x = jax.ShapeDtypeStruct((n, inputs), jnp.float64)
    y = jax.ShapeDtypeStruct((n,), jnp.float64)

    def run(model: Any, x: jax.Array, y: jax.Array) -> Any:
        return program(model, x, y, low)

    compiled: Any = jax.jit(run).lower(machine(inputs), x, y).compile()
    costs = compiled.cost_analysis()
    costs = costs[0] if isinstance(costs, list) else costs
    return Counts(float(costs["flops"]), float(compiled.memory_analysis().temp_size_in_bytes))


def terms(shape: Shape) -> list[float]:
    n, rank, inputs = shape
    return [n * rank**2, n * rank * inputs, n * rank]


def check(name: str, program: Callable[..., Any]) -> tuple[np.ndarray, float]:
    """Print the model of a program; return its coefficients and its memory in units of n p numbers."""
    counts = [counted(program, shape) for shape in SHAPES]
    coefficients = np.linalg.solve([terms(s) for s in SHAPES], [c.operations for c in counts])
    other = counted(program, CHECK)
    error = abs(float(np.dot(terms(CHECK), coefficients)) / other.operations - 1)
    units = counted(program, MANY).memory / (8 * MANY[0] * MANY[1])
    a, b, c = coefficients
    print(f"{name:<28}{a:7.1f}{b:7.1f}{c:7.0f}{100 * error:10.1f} %{units:9.1f}", flush=True)
    return coefficients, units


def projection(coefficients: np.ndarray, units: float) -> None:
    print(f"\nPRESS with its gradient, 20 inputs, if a device has {SPEED:.0e} operations a second,")
    print(
        f"{MEMORY / 1e9:.0f} GB, and memory for V and its copies is the only one that counts (float64)"
    )
    print("         n   rank  devices   seconds   GB a device   all-reduce MB")
    for n, rank, devices in [
        (10**6, 300, 1), (10**7, 300, 1), (10**8, 300, 8), (10**9, 100, 64), (10**9, 300, 64),
        (10**9, 1000, 64),
    ]:  # fmt: skip
        operations = float(np.dot(terms((n, rank, 20)), coefficients)) / devices
        size = 8 * n * (units * rank + 20) / devices
        verdict = "" if size < MEMORY else "   does not fit"
        print(
            f"{n:10d}{rank:7d}{devices:9d}{operations / SPEED:10.2f}{size / 1e9:14.1f}"
            f"{8e-6 * rank**2:16.2f}{verdict}"
        )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, help="also write the output to this file")
    options = parser.parse_args(arguments)
    names = ["PRESS, gradient"] if options.quick else list(PROGRAMS)
    with jax.enable_x64(True), printed_to(options.output):
        print(
            f"jax {jax.__version__}, operations = n (a p^2 + b p d + c p), memory = e n p numbers"
        )
        print(f"{'program':<28}{'a':>7}{'b':>7}{'c':>7}{'error':>12}{'e':>9}")
        models = {name: check(name, PROGRAMS[name]) for name in names}
        projection(*models["PRESS, gradient"])


if __name__ == "__main__":
    main()

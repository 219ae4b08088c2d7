"""Maps and memory of a long process on Linux: all estimators, `select` and `sample` on many shapes.

    python examples/benchmarks/soak.py            # 500 shapes: hours
    python examples/benchmarks/soak.py --quick    # one shape, only to see that it runs
    python examples/benchmarks/soak.py --output soak.txt   # also writes the output to a file

The shapes are those of five learning curves: one to five columns, with 100 different numbers of rows each.
`select` and `sample` compile for every shape. The estimators pad the rows and compile once per 32 rows and
number of columns. Every fifty shapes the script prints the number of memory maps of the process, its memory
and the seconds so far. Maps and memory grow until the library begins to drop programs. Then they must stay
level: at the end they may exceed the largest value of the first hundred shapes by at most a tenth.

Compilation takes nearly all of the time. `XLA_FLAGS="--xla_backend_optimization_level=0
--xla_llvm_disable_expensive_passes=true"` shortens that; the flags are printed.
"""

import argparse
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from measure import printed_to

import jaxsvm as jsvm
from jaxsvm import criteria, kernels, losses
from jaxsvm.runtime import count_maps
from jaxsvm.sklearn import LSSVC, BayesianSVC, BayesianSVR, MeanFieldGPC

ROWS, COLUMNS = range(12, 112), range(1, 6)
WARM = 100  # shapes before maps and memory must be level
STATUS, LIMIT = Path("/proc/self/status"), Path("/proc/sys/vm/max_map_count")


def resident_megabytes() -> float:
    lines = STATUS.read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def data(rows: int, columns: int):
    random = np.random.default_rng(rows * 100 + columns)
    x = random.normal(size=(rows, columns))
    latent = np.sin(2 * x[:, 0]) + 0.3 * random.normal(size=rows)
    y = np.where(latent > np.median(latent), 1.0, -1.0)
    return x, y, latent


def work(rows: int, columns: int) -> list[np.ndarray]:
    """Run all estimators, `select` and `sample` on data of one shape; return their results."""
    x, y, targets = data(rows, columns)
    points = x[:5]
    results: list[Any] = []
    for classifier in (BayesianSVC(max_iter=5), LSSVC(max_iter=5), MeanFieldGPC(max_iter=5)):
        results.append(classifier.fit(x, y).predict_proba(points))
    results.extend(BayesianSVR(max_iter=5).fit(x, targets).predict(points, return_std=True))
    machine = jsvm.KernelMachine(kernels.RBF(1.0), losses.LeastSquares(1.0), offset=True)
    best = jsvm.select(machine, x, y, criteria.PRESS(), max_steps=5, progress=False)
    results.append(best.value)
    model = jsvm.KernelMachine(kernels.RBF(1.0) + 0.1, losses.Hinge(1.0))
    posterior = jsvm.sample(model, x, y, key=jax.random.key(0), warmup=40, draws=40, progress=False)
    results.append(posterior.probability(points))
    return [np.asarray(part) for part in results]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, help="also write the output to this file")
    options = parser.parse_args(arguments)
    shapes = [(rows, columns) for columns in COLUMNS for rows in ROWS]
    shapes, every = (shapes[:1], 1) if options.quick else (shapes, 50)
    with jax.enable_x64(True), printed_to(options.output), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few steps and draws: searches do not converge
        flags = os.environ.get("XLA_FLAGS", "none")
        print(
            f"jax {jax.__version__}, limit of maps {LIMIT.read_text().strip()}, XLA flags: {flags}"
        )
        print("shapes     maps      MB   seconds")
        most_maps = most_memory = 0.0
        begin = time.perf_counter()
        for number, shape in enumerate(shapes, 1):
            if not all(np.isfinite(part).all() for part in work(*shape)):
                raise AssertionError(f"a result with shape {shape} is not finite")
            if number <= WARM:
                most_maps = max(most_maps, count_maps())
                most_memory = max(most_memory, resident_megabytes())
            if number % every == 0:
                seconds = time.perf_counter() - begin
                print(f"{number:6d} {count_maps():8d} {resident_megabytes():7.0f} {seconds:9.0f}")
        print(
            f"most in the first {min(WARM, len(shapes))}: {most_maps:.0f} maps, {most_memory:.0f} MB"
        )
        if count_maps() > 1.1 * most_maps or resident_megabytes() > 1.1 * most_memory:
            raise AssertionError("maps or memory have grown by more than a tenth")


if __name__ == "__main__":
    main()

"""The cost of adapting all hyperparameters of a regression, against scikit-learn's Gaussian process.

    python examples/benchmarks/regression.py                  # a few minutes; or --parts adaptation coverage
    python examples/benchmarks/regression.py --quick          # small sizes, only to see that it runs
    python examples/benchmarks/regression.py --output FILE    # also writes the output to a file

- `adaptation`: Bayesian support vector regression (`jaxsvm.regression.adapt`, ARD) against
  `GaussianProcessRegressor` with the same covariance (both have five hyperparameters: two lengthscales,
  offset, and C and epsilon, or amplitude and noise), from one start each, on two inputs of which one
  matters. It measures the time, the test error against the clean function, and the growth of the time.
  Goals: as fast at n = 1000, three times as fast at n = 4000, and a growth exponent below 2.36, that of the
  paper. beta is 0.3 at all sizes, so that the exponent compares like with like; the default is smaller from
  2000 examples on.
- `coverage`: the coverage of 95 % intervals at n = 1000, on 20 data sets, beta = 0.3. Goal: 93 to 97 %.

Our times are without compilation. Both methods may use all cores.
"""

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from measure import growth, printed_to, timed
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as peer_kernels

import jaxsvm as jsvm
from jaxsvm import kernels, losses

PARTS = ("adaptation", "coverage")
NOISE = losses.SoftInsensitive(10.0, 0.1, 0.3)  # of the paper's sinc data
BETA = 0.3
TESTED = 3000


def data(examples: int, seed: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The noisy sinc with a second, irrelevant input; standardized inputs, targets and clean values."""
    keys = jax.random.split(jax.random.key(seed))
    x, y = jsvm.datasets.sinc(examples, noise=NOISE, key=keys[0])
    clean = jnp.sinc(x[:, 0] / jnp.pi)
    x = jnp.concatenate([x / (10 / 3**0.5), jax.random.normal(keys[1], (examples, 1))], axis=1)
    return x, y, clean


def ours(x: jax.Array, y: jax.Array) -> jsvm.Selection[jsvm.KernelMachine[kernels.Sum, Any]]:
    return jsvm.regression.adapt(x, y, ard=True, beta=BETA, restarts=1, progress=False, throw=False)


def peer(x: np.ndarray, y: np.ndarray) -> GaussianProcessRegressor:
    variance = float(np.var(y))
    kernel = (
        peer_kernels.ConstantKernel(variance) * peer_kernels.RBF(cast(Any, [2**0.5, 2**0.5]))
        + peer_kernels.ConstantKernel(100 * variance, (1e-8, 1e8))
        + peer_kernels.WhiteKernel(0.1 * variance)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bounds that an irrelevant input runs into
        return GaussianProcessRegressor(kernel, n_restarts_optimizer=0).fit(x, y)


def adaptation(sizes: Sequence[int]) -> None:
    print(
        f"\nAdapting five hyperparameters, one start, beta = {BETA}; ASE against the clean function"
    )
    print(
        f"{'n':>6} {'beta':>5} | {'ours':>8} {'steps':>5} {'ASE':>9} | {'peer':>8} {'ASE':>9} | ratio"
    )
    x_new, _, clean = data(TESTED, 1)
    times: list[tuple[float, float]] = []
    for examples in sizes:
        x, y, _ = data(examples, 0)
        ours(x, y)  # compile first
        selection, mine = timed(lambda x=x, y=y: ours(x, y))
        error = float(jnp.mean((selection.fit().predict(x_new) - clean) ** 2))
        other, theirs = timed(lambda x=x, y=y: peer(np.asarray(x), np.asarray(y)))
        peer_error = float(np.mean((other.predict(np.asarray(x_new)) - np.asarray(clean)) ** 2))
        times.append((mine, theirs))
        beta, steps = float(selection.model.loss.beta), int(selection.history.steps[0])
        print(
            f"{examples:6d} {beta:5.2f} | {mine:7.2f}s {steps:5d} {error:9.6f} | {theirs:7.2f}s "
            f"{peer_error:9.6f} | {theirs / mine:5.1f}"
        )
    powers = [growth(sizes, column) for column in zip(*times, strict=True)]
    print(f"grows as n to the power {powers[0]:.2f} (goal: 2.36), the peer {powers[1]:.2f}")


def coverage(examples: int, repetitions: int) -> None:
    print(
        f"\nCoverage of 95 % intervals, n = {examples}, beta = {BETA}, {TESTED} new targets each\n"
        f"{'data set':>8} {'coverage':>9} {'ASE':>9}"
    )
    shares: list[float] = []
    errors: list[float] = []
    for seed in range(repetitions):
        x, y, _ = data(examples, 100 + seed)
        x_new, y_new, clean = data(TESTED, 1000 + seed)
        posterior = jsvm.laplace(ours(x, y).fit())
        shares.append(float(jsvm.calibration.coverage(posterior, x_new, y_new, 0.95).shares[0]))
        errors.append(float(jnp.mean((posterior.latent(x_new)[0] - clean) ** 2)))
        print(f"{seed:8d} {shares[-1]:9.1%} {errors[-1]:9.6f}")
    print(
        f"mean {np.mean(shares):.1%}, standard deviation {np.std(shares, ddof=1):.1%}, lowest "
        f"{min(shares):.1%}, highest {max(shares):.1%} over {repetitions} data sets (goal: 93 to 97 %); "
        f"mean ASE {np.mean(errors):.6f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Adapting all hyperparameters of a regression.")
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--output", type=Path, help="also write the output to this file")
    options = parser.parse_args(arguments)
    with jax.enable_x64(True), printed_to(options.output):
        if "adaptation" in options.parts:
            adaptation((50, 60) if options.quick else (500, 1000, 2000, 4000))
        if "coverage" in options.parts:
            coverage(50 if options.quick else 1000, 2 if options.quick else 20)


if __name__ == "__main__":
    main()

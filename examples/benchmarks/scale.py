"""Fits and criteria at a low rank, compared with scikit-learn and NumPy in the same run.

    python examples/benchmarks/scale.py                    # 100,000 examples, rank 300; a quarter of an hour
    python examples/benchmarks/scale.py --quick            # 3,000 examples, rank 40, only to see that it runs
    python examples/benchmarks/scale.py --parts fit        # some of fit, criteria, growth
    python examples/benchmarks/scale.py --output FILE      # also writes the output to a file

- fit: our time after compilation, for the features and the solution, divided by that of `Nystroem` and
  `LinearSVC` with as many landmarks and the same penalty. Ours is solved to a verified KKT residual, the peer
  stops at its tolerance of 1e-4. Below one we are faster. Both errors on test data are printed.
- criteria: value and gradient with respect to all lengthscales, divided by one evaluation of the features
  and their Gram matrix `V'V` by NumPy.
- growth: the exponent p of the time of a fit, which grows like `n^p`, and the memory of the process. Goals:
  1.05, and 8 GB for a million examples with 20 inputs.

`estimators_at_scale.py` compares whole estimators.
"""

import argparse
import resource
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from measure import best_time, growth, printed_to, timed
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.svm import LinearSVC

import jaxsvm as jsvm

INPUTS, LENGTHSCALE = 8, 2.5
MANY_INPUTS = 20  # of the growth, whose goal is 8 GB for a million examples
PEER_LIMIT = 100_000  # iterations: its default of 1000 ends before its tolerance is met
PARTS = ("fit", "criteria", "growth")


def data(n: int, seed: int = 0, inputs: int = INPUTS) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, inputs))
    latent = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.7 * random.normal(size=n)
    return x, np.where(latent > 0, 1.0, -1.0)


def kernel(inputs: int = INPUTS) -> jsvm.kernels.RBF:
    return jsvm.kernels.RBF(jnp.full(inputs, LENGTHSCALE))


def fits(n: int, rank: int, repeats: int) -> None:
    (x, y), (points, labels) = data(n), data(10_000, seed=1)
    low = jsvm.Nystrom(rank=rank, landmarks=rank)
    machines = {"squared_hinge": jsvm.losses.SquaredHinge(2.0), "hinge": jsvm.losses.Hinge(1.0)}
    print(f"\nfit, n = {n}, {INPUTS} inputs, rank {rank}")
    print("loss             ours s   peer s    ratio   KKT residual   our error   peer's error")
    for name, loss in machines.items():
        model = jsvm.KernelMachine(kernel(), loss)
        ours = best_time(lambda model=model: jsvm.fit(model, x, y, approximation=low), repeats)
        fitted = jsvm.fit(model, x, y, approximation=low)
        error = float(np.mean(np.asarray(fitted.predict(points)) != labels))

        def peer(name: str = name) -> tuple[Any, Any]:
            features = Nystroem(gamma=0.5 / LENGTHSCALE**2, n_components=rank, random_state=0)
            linear = LinearSVC(
                C=1.0,
                loss=name,
                dual="auto",
                fit_intercept=False,
                random_state=0,
                max_iter=PEER_LIMIT,
            )
            return features, linear.fit(features.fit_transform(x), y)

        (features, linear), theirs = timed(peer)
        peer_error = float(np.mean(linear.predict(features.transform(points)) != labels))
        print(
            f"{name:<14}{ours:9.2f}{theirs:9.2f}{ours / theirs:9.2f}"
            f"{float(fitted.stats.kkt_residual):15.1e}{error:12.4f}{peer_error:15.4f}"
        )


def features_and_gram(x: np.ndarray, landmarks: np.ndarray) -> np.ndarray:
    """The features of the kernel and `V'V`, in NumPy."""
    scaled, centers = x / LENGTHSCALE, landmarks / LENGTHSCALE
    squared = (scaled**2).sum(1)[:, None] + (centers**2).sum(1)[None, :] - 2 * scaled @ centers.T
    values, vectors = np.linalg.eigh(np.exp(-np.maximum(_pairs(centers), 0) / 2))
    factor = np.exp(-np.maximum(squared, 0) / 2) @ (vectors / np.sqrt(np.maximum(values, 1e-12)))
    return factor.T @ factor


def _pairs(centers: np.ndarray) -> np.ndarray:
    norms = (centers**2).sum(1)
    return norms[:, None] + norms[None, :] - 2 * centers @ centers.T


def criteria(n: int, rank: int, repeats: int) -> None:
    x, y = data(n)
    unit = best_time(lambda: features_and_gram(x, x[:rank]), repeats)
    print(f"\nvalue and gradient, n = {n}, rank {rank}; features and V'V in NumPy: {unit:.2f} s")
    cases: dict[str, tuple[Any, Any]] = {
        "PRESS": (jsvm.losses.LeastSquares(1.0), jsvm.criteria.PRESS()),
        "LaplaceEvidence": (jsvm.losses.SquaredHinge(1.0), jsvm.criteria.LaplaceEvidence()),
    }
    for name, (loss, criterion) in cases.items():
        model = jsvm.KernelMachine(kernel(), loss)
        low = jsvm.Nystrom(rank=rank, landmarks=list(range(rank)))
        known = (jnp.asarray(x), jnp.asarray(y))

        def value(model: Any, x: jax.Array, y: jax.Array, criterion: Any = criterion) -> Any:
            return criterion(model, x, y, approximation=low)

        run: Callable[..., Any] = jax.jit(jax.value_and_grad(value))
        seconds = best_time(lambda run=run, model=model, known=known: run(model, *known), repeats)
        print(f"{name:<18}{seconds:9.2f} s   ratio {seconds / unit:6.2f}")


def growths(sizes: list[int], rank: int) -> None:
    print(f"\ngrowth, squared hinge, {MANY_INPUTS} inputs, rank {rank}")
    print("       n  seconds   peak MB of the process")
    low = jsvm.Nystrom(rank=rank, landmarks=rank)
    model = jsvm.KernelMachine(kernel(MANY_INPUTS), jsvm.losses.SquaredHinge(1.0))
    times: list[float] = []
    for n in sizes:
        x, y = data(n, inputs=MANY_INPUTS)
        times.append(best_time(lambda x=x, y=y: jsvm.fit(model, x, y, approximation=low), 1))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{n:8d}{times[-1]:9.2f}{peak:12.0f}")
    print(f"exponent {growth(sizes, times):.2f}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--output", type=Path, help="also write the output to this file")
    options = parser.parse_args(arguments)
    n, rank, repeats = (3000, 40, 1) if options.quick else (100_000, 300, 2)
    with jax.enable_x64(True), printed_to(options.output), warnings.catch_warnings():
        # the rank is fixed, whatever it loses, and the peer may reach its limit of iterations
        warnings.simplefilter("ignore", jsvm.approximations.ApproximationWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        print(f"jax {jax.__version__}, {jax.device_count()} device, float64")
        if "fit" in options.parts:
            fits(n, rank, repeats)
        if "criteria" in options.parts:
            criteria(n, rank, repeats)
        if "growth" in options.parts:
            growths([1000, 3000] if options.quick else [10_000, 100_000, 1_000_000], rank // 3)


if __name__ == "__main__":
    main()

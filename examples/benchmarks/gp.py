"""The cost of Gaussian process classification, as ratios measured in the same run.

    python examples/benchmarks/gp.py            # a minute
    python examples/benchmarks/gp.py --quick    # small sizes, only to see that it runs
    python examples/benchmarks/gp.py --output gp.txt       # also writes the output to a file

- The Laplace approximation with one lengthscale for each input, selected by its evidence on Twonorm,
  against scikit-learn's `GaussianProcessClassifier` from the same start: time and evidence. Both libraries
  must agree on the evidence of either solution; otherwise the times would not be comparable.
- Naive mean field against the fit of a support vector machine with the same kernel.
- Expectation propagation against the Laplace approximation: a posterior, and the evidence with gradient.

Compilation is not counted: a first call precedes every measurement. Linear algebra runs on one thread.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from measure import best_time, printed_to
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF as SklearnRBF
from sklearn.gaussian_process.kernels import ConstantKernel
from threadpoolctl import threadpool_limits

import jaxsvm as jsvm
from jaxsvm import gp, kernels, losses


def machine(loss: losses.AbstractLoss, inputs: int) -> jsvm.KernelMachine[kernels.RBF, Any]:
    return jsvm.KernelMachine(kernels.RBF(jnp.full(inputs, 4.0), 2.0), loss)


def selection(x: jax.Array, y: jax.Array, max_steps: int, repeats: int) -> None:
    print(f"\nSelection by the Laplace evidence, ARD, Twonorm, n = {len(y)}")
    inputs = x.shape[1]
    model = jsvm.freeze(machine(losses.Logistic(), inputs), "loss.C")
    bounds = {"kernel.lengthscale": (1e-5, 1e5), "kernel.variance": (1e-5, 1e5)}

    def select():
        return jsvm.select(
            model, x, y, gp.Laplace(), bounds=bounds, max_steps=max_steps, progress=False
        )

    best = select()
    ours = best_time(lambda: select().value, repeats)
    kernel = ConstantKernel(2.0) * SklearnRBF(cast(Any, np.full(inputs, 4.0)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about lengthscales at their bound
        begin = time.perf_counter()
        theirs: Any = GaussianProcessClassifier(kernel).fit(np.asarray(x), np.asarray(y))
        reference = time.perf_counter() - begin
    peer_evidence = theirs.log_marginal_likelihood_value_
    print(f"  jaxsvm        {ours:7.2f} s   log evidence {-float(best.value):9.3f}   "
          f"{int(best.history.steps[0])} steps")  # fmt: skip
    print(f"  scikit-learn  {reference:7.2f} s   log evidence {peer_evidence:9.3f}")
    print(f"  ratio {reference / ours:.1f} (goal: 5 at the same evidence)")
    kernel = best.model.kernel
    selected = np.log(np.hstack([kernel.variance, kernel.lengthscale]))  # in the order of theirs
    for label, logs in (("jaxsvm's", selected), ("scikit-learn's", theirs.kernel_.theta)):
        values = {"variance": np.exp(logs[0]), "lengthscale": np.exp(logs[1:])}
        machine_there = jsvm.replace(
            model, {f"kernel.{name}": value for name, value in values.items()}
        )
        one, other = -float(gp.Laplace()(machine_there, x, y)), theirs.log_marginal_likelihood(logs)
        print(f"  evidence of {label:14s} solution by both: {one:.6f} and {other:.6f}")
        if abs(one - other) > 1e-6 * abs(other):
            raise AssertionError(f"the evidences of {label} solution differ: {one} and {other}")


def mean_field(x: jax.Array, y: jax.Array, repeats: int) -> None:
    inputs = x.shape[1]
    print(f"\nNaive mean field against the fit of a support vector machine, n = {len(y)}")
    svm, process = machine(losses.Hinge(1.0), inputs), machine(losses.Probit(1.0), inputs)
    reference = best_time(lambda: jsvm.fit(svm, x, y).dual, repeats)
    print(f"  jaxsvm.fit, hinge                  {1e3 * reference:8.1f} ms")
    for method in ("newton", "adaptive"):
        posterior = gp.mean_field(process, x, y, method=method)
        ours = best_time(lambda m=method: gp.mean_field(process, x, y, method=m).dual, repeats)
        label = f"gp.mean_field, {method}"
        print(f"  {label:34s} {1e3 * ours:8.1f} ms   ratio {ours / reference:6.1f}   "
              f"{int(posterior.iterations)} iterations")  # fmt: skip


def propagation(x: jax.Array, y: jax.Array, repeats: int) -> None:
    print(f"\nExpectation propagation against Laplace's approximation, probit labels, n = {len(y)}")
    model = machine(losses.Probit(1.0), x.shape[1])
    posteriors = (
        lambda: gp.laplace(model, x, y).mean,
        lambda: gp.expectation_propagation(model, x, y).mean,
    )
    gradients: list[Callable[[], Any]] = []
    for criterion in (gp.Laplace(), gp.ExpectationPropagation()):
        both = jax.jit(jax.value_and_grad(lambda m, x, y, c=criterion: c(m, x, y, throw=False)))
        gradients.append(lambda both=both: both(model, x, y))
    for label, pair in (("posterior", posteriors), ("evidence and gradient", gradients)):
        one, other = (best_time(function, repeats) for function in pair)
        print(f"  {label:22s} Laplace {1e3 * one:8.1f} ms   EP {1e3 * other:8.1f} ms   "
              f"ratio {other / one:5.1f}")  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, help="also write the output to this file")
    options = parser.parse_args(arguments)
    examples, inputs, repeats = (40, 2, 1) if options.quick else (400, 20, 3)
    with jax.enable_x64(True), threadpool_limits(1), printed_to(options.output):
        x, y = jsvm.datasets.twonorm(examples, key=jax.random.key(0))
        x = x[:, :inputs]
        selection(x, y, 5 if options.quick else 100, repeats)
        mean_field(x, y, repeats)
        propagation(x, y, repeats)


if __name__ == "__main__":
    main()

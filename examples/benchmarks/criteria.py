"""The cost of criteria and of selection, as ratios to peers measured in the same run.

    python examples/benchmarks/criteria.py                             # a few minutes
    python examples/benchmarks/criteria.py --quick                     # small sizes, only to see that it runs
    python examples/benchmarks/criteria.py --parts press restarts      # only these parts
    python examples/benchmarks/criteria.py --output criteria.txt       # also writes the output to a file

Times are the best of several runs after compilation. Each ratio is printed with its goal.
"""

import argparse
import contextlib
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from measure import best_time, printed_to
from scipy.linalg import lapack
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF as SklearnRBF
from sklearn.gaussian_process.kernels import ConstantKernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

import jaxsvm as jsvm
from jaxsvm import criteria, kernels, losses

LAPACK: Any = lapack  # compiled, without types


def twonorm(examples: int, seed: int = 0) -> jsvm.datasets.Dataset:
    return jsvm.datasets.twonorm(examples, key=jax.random.key(seed))


def machine(inputs: int, loss: losses.AbstractLoss, offset: bool = False) -> jsvm.KernelMachine:
    kernel = kernels.RBF(jnp.full(inputs, 4.0), 2.0)
    whole = kernel if offset else kernel + kernels.Constant(0.1)
    return jsvm.KernelMachine(whole, loss, offset=offset)


def compiled(criterion: criteria.AbstractCriterion) -> Callable[..., Any]:
    """Value and gradient as one jitted function, with the data as arguments."""
    return jax.jit(jax.value_and_grad(lambda m, x, y: criterion(m, x, y, throw=False)))


def press(sizes: Sequence[int], repeats: int) -> None:
    print(
        "\nPRESS, value and gradient for 21 hyperparameters, against LAPACK potrf + potri (goal: 4)"
    )
    for examples in sizes:
        x, y = twonorm(examples)
        model = machine(20, losses.LeastSquares(1.0), offset=True)
        matrix = np.asfortranarray(model.kernel.gram(x) + jnp.eye(examples))

        def inverse(matrix: np.ndarray = matrix) -> Any:
            factor, _ = LAPACK.dpotrf(matrix, lower=1)
            return LAPACK.dpotri(factor, lower=1)

        function = compiled(criteria.PRESS())
        reference = best_time(inverse, repeats)
        ours = best_time(lambda f=function, m=model, x=x, y=y: f(m, x, y), repeats)
        print(f"  n = {examples:5d}   {1e3 * ours:8.1f} ms   ratio {ours / reference:5.2f}")


def others(examples: int, repeats: int) -> None:
    print(f"\nValue and gradient, n = {examples}, against the fit of the same machine")
    x, y = twonorm(examples)
    hinge, squared = losses.Hinge(1.0), losses.SquaredHinge(1.0)
    cases = {
        "LaplaceEvidence hinge": (criteria.LaplaceEvidence(), hinge),
        "LaplaceEvidence squared": (criteria.LaplaceEvidence(), squared),
        "Span": (criteria.Span(), squared),
        "GACV": (criteria.GACV(), hinge),
        "JaakkolaHaussler": (criteria.JaakkolaHaussler("smooth"), hinge),
        "SupportVectorCount": (criteria.SupportVectorCount(), hinge),
        "RadiusMargin": (criteria.RadiusMargin(), squared),
        "LinearResponse": (criteria.LinearResponse("smooth"), hinge),
        "CrossValidation, 5 folds": (criteria.CrossValidation(5, "smooth"), hinge),
        "LeaveOneOut": (criteria.LeaveOneOut("smooth"), hinge),
    }
    for name, (criterion, loss) in cases.items():
        model = machine(20, loss)
        fit = jax.jit(lambda m, x, y: jsvm.fit(m, x, y, throw=False).dual)
        function = compiled(criterion)
        few = 1 if name == "LeaveOneOut" else repeats
        fit_time = best_time(lambda f=fit, m=model: f(m, x, y), repeats)
        ours = best_time(lambda f=function, m=model: f(m, x, y), few)
        print(f"  {name:26s} {1e3 * ours:9.1f} ms   ratio {ours / fit_time:7.1f}")


def relevance_parameters(examples: int, repeats: int) -> None:
    print(
        f"\nLaplace evidence, value and gradient, n = {examples}, against 2 ARD parameters (goal: 1.5)"
    )
    plane = np.random.default_rng(0).normal(size=(examples, 2))
    y = np.where(plane[:, 0] + 0.5 * plane[:, 1] ** 2 > 0.4, 1.0, -1.0)
    calls: dict[int, Callable[[], Any]] = {}
    for inputs in (2, 20, 60):
        # zeros keep the distances the same in any number of dimensions, so the fits are identical
        x = np.zeros((examples, inputs))
        x[:, :2] = plane
        model = machine(inputs, losses.Hinge(1.0))
        function = compiled(criteria.LaplaceEvidence())
        data = jnp.asarray(x), jnp.asarray(y)
        calls[inputs] = lambda f=function, m=model, d=data: f(m, *d)
    # in turn, so that other programs disturb all of them alike
    rounds = [
        {inputs: best_time(call, 5) for inputs, call in calls.items()} for _ in range(repeats)
    ]
    times = {inputs: min(each[inputs] for each in rounds) for inputs in calls}
    for inputs, seconds in times.items():
        ratio = seconds / times[2]
        print(f"  {inputs:3d} parameters   {1e3 * seconds:7.2f} ms   ratio {ratio:5.2f}")


def restarts(sizes: Sequence[int], steps: int, count: int) -> None:
    cores = os.cpu_count()
    how = (
        f"in threads, up to {cores} at a time, not vmapped" if is_cpu() else "in one vmapped batch"
    )
    print(f"\nSelection by the Laplace evidence, {steps} steps: {count} restarts against one")
    print(f"(they run {how}; goals with 25: 12 at n = 150, 25 at n = 400)")
    for examples in sizes:
        x, y = twonorm(examples)
        model = machine(20, losses.Hinge(1.0))

        def run(count: int, x: jax.Array = x, y: jax.Array = y, model: jsvm.KernelMachine = model):
            return jsvm.select(
                model, x, y, criteria.LaplaceEvidence(), restarts=count, key=jax.random.key(0),
                starts=0.1, max_steps=steps, stop=(), progress=False,
            ).values  # fmt: skip

        one = best_time(lambda run=run: run(1), 3)
        many = best_time(lambda run=run: run(count), 2)
        print(
            f"  n = {examples:4d}   one {one:6.2f} s   {count} {many:6.2f} s   "
            f"ratio {many / one:5.1f}"
        )
        function = compiled(criteria.LaplaceEvidence())
        batch = jax.tree.map(lambda leaf: jnp.stack([leaf + 0.02 * i for i in range(count)]), model)
        together = jax.jit(jax.vmap(function, in_axes=(0, None, None)))
        vmapped = best_time(lambda f=together, b=batch, x=x, y=y: f(b, x, y), 3)
        apart = best_time(
            lambda f=function, b=batch, x=x, y=y: [
                f(jax.tree.map(lambda leaf, i=i: leaf[i], b), x, y) for i in range(count)
            ],
            3,
        )
        print(
            f"             value and gradient of {count} models, vmapped {1e3 * vmapped:.0f} ms, one call "
            f"each {1e3 * apart:.0f} ms   ratio {vmapped / apart:5.2f}"
        )


def whole_selection(examples: int, steps: int, grid: tuple[int, int]) -> None:
    print(f"\nA whole ARD selection on Twonorm, n = {examples}, 7000 test examples")
    x, y = twonorm(examples)
    x_test, y_test = twonorm(7000, seed=1)
    model = machine(20, losses.Hinge(1.0))
    bounds = {"loss.C": (0.01, 100.0)}

    def select():
        return jsvm.select(
            model, x, y, criteria.LaplaceEvidence(), bounds=bounds, max_steps=steps, progress=False
        )

    begin = time.perf_counter()
    select()
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    selection = select()
    ours = time.perf_counter() - begin
    error = float(jnp.mean(selection.fit().predict(x_test) != y_test))
    print(f"  LaplaceEvidence, L-BFGS            {ours:7.2f} s   test error {error:.2%}   "
          f"(first call {first:.1f} s with compilation)")  # fmt: skip

    x, y, x_test, y_test = (np.asarray(a) for a in (x, y, x_test, y_test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.perf_counter()
        kernel = ConstantKernel(2.0) * SklearnRBF(cast(Any, np.full(20, 4.0)))
        gpc = GaussianProcessClassifier(kernel).fit(x, y)
        reference = time.perf_counter() - begin
    error = np.mean(gpc.predict(x_test) != y_test)
    print(f"  GaussianProcessClassifier, ARD     {reference:7.2f} s   test error {error:.2%}   "
          f"ratio {reference / ours:5.1f} (goal: 5)")  # fmt: skip
    begin = time.perf_counter()
    search = GridSearchCV(SVC(), {"C": np.logspace(-1, 3, grid[0]),
                                  "gamma": np.logspace(-4, 0, grid[1])}, cv=5).fit(x, y)  # fmt: skip
    reference = time.perf_counter() - begin
    error = np.mean(search.predict(x_test) != y_test)
    label = f"GridSearchCV of SVC, {grid[0]} x {grid[1]}, 5 folds"
    print(
        f"  {label:34s} {reference:7.2f} s   test error {error:.2%}   ratio {reference / ours:5.1f}"
    )


def is_cpu() -> bool:
    return jax.default_backend() == "cpu"


# each part: its function, the arguments of the quick run, and those of the full run
PARTS: dict[str, tuple[Callable[..., None], tuple[Any, ...], tuple[Any, ...]]] = {
    "press": (press, ((60,), 1), ((400, 1300, 2000), 5)),
    "others": (others, (60, 1), (400, 5)),
    "relevance": (relevance_parameters, (60, 1), (400, 9)),
    "restarts": (restarts, ((60,), 2, 3), ((150, 400), 20, 25)),
    "selection": (whole_selection, (60, 5, (2, 2)), (400, 100, (5, 9))),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--output", type=Path, help="also write the output to this file")
    options = parser.parse_args(arguments)
    with jax.enable_x64(True), printed_to(options.output):
        for name in options.parts:
            part, quick, whole = PARTS[name]
            # the matrices are small: threads of the linear algebra would only wait for each other
            one_thread = name != "press" and not options.quick
            with threadpool_limits(1) if one_thread else contextlib.nullcontext():
                part(*(quick if options.quick else whole))


if __name__ == "__main__":
    main()

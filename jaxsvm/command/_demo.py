"""`jaxsvm demo`: tune a machine on generated data and print the result."""

import argparse
import textwrap
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import (
    RESULTS,
    Fit,
    KernelMachine,
    Nystrom,
    calibration,
    datasets,
    evidence_ascent,
    fit,
    free_parameters,
    freeze,
    kernels,
    log_evidence,
    parameters,
    relevance,
    sample,
    select,
    stopping,
)
from ..sampling import SamplingWarning
from ..selection import METHODS, Method
from ._arguments import at_least, seed
from ._model import aligned, relevance_lines
from ._table import DataError

_EVIDENCE = "evidence"
_DATA = ("noisy_xor", "twonorm", "ringnorm", "waveform", "wdbc")
_BOUNDS = {"lengthscale": (0.05, 100.0), "variance": (1e-3, 100.0), "C": (1e-3, 1e4)}


def add_to(commands) -> None:
    """Add the subcommand to the parser."""
    rows = [f"  {_EVIDENCE:12s} the exact evidence, by sampling (hinge); the default"]
    rows += [f"  {name:12s} {method.description}" for name, method in METHODS.items()]
    parser = commands.add_parser(
        "demo",
        help="tune a machine on generated data",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=textwrap.dedent("""\
            Tune a support vector machine on generated data: a lengthscale for each input (automatic
            relevance determination), amplitude, offset and C. Ascend the exact evidence, or minimize a
            criterion from one or several starts. Print the test error before and after, the number of
            support vectors, the most relevant inputs and the time; with the evidence also its value, the
            calibration of the class probabilities, and diagnostics of the Markov chains."""),
        epilog="criteria:\n" + "\n".join(rows),
    )
    parser.add_argument(
        "--data", default="noisy_xor", choices=_DATA,
        help="the data set (default: noisy_xor; wdbc needs scikit-learn)",
    )  # fmt: skip
    parser.add_argument(
        "--criterion", default=_EVIDENCE, choices=(_EVIDENCE, *METHODS), metavar="CRITERION",
        help="how to choose the hyperparameters, see below (default: evidence)",
    )  # fmt: skip
    counts = {
        "--examples": (10, 300, "number of training examples"),
        "--restarts": (1, 1, "number of starts"),
        "--rank": (1, 40, "rank of the kernel matrix in the Markov chains"),
        "--steps": (1, 40, "maximum number of steps from each start"),
    }
    for name, (minimum, default, text) in counts.items():
        parser.add_argument(
            name, type=at_least(minimum, int), default=default, metavar="N",
            help=f"{text} (default: {default})",
        )  # fmt: skip
    parser.add_argument(
        "--seed", type=seed, default=0, metavar="N",
        help="random seed for the data and the starts (default: 0)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(options) -> None:
    """Generate data, tune, print."""
    with jax.enable_x64(True):
        data = _load(options)
        report = _evidence_report if options.criterion == _EVIDENCE else _criterion_report
        print(report(options, *data))


def _load(options):
    """Training and test data, standardized with the moments of the training data."""
    key = jax.random.key(options.seed)
    if options.data == "wdbc":
        x, y = (np.asarray(array) for array in datasets.wdbc())
        if options.examples > len(y) - 100:
            raise DataError(
                f"argument --examples: wdbc has {len(y)} examples, of which at least 100 are for testing"
            )
    else:
        generate = getattr(datasets, options.data)
        x, y = (np.asarray(array) for array in generate(options.examples + 5000, key=key))
    order = np.random.default_rng(options.seed).permutation(len(y))
    train, test = order[: options.examples], order[options.examples :]
    if len(set(y[train])) < 2:
        raise DataError("argument --examples: all of them are in one class; use more")
    center, scale = x[train].mean(axis=0), x[train].std(axis=0)
    x = (x - center) / np.where(scale > 0, scale, 1.0)
    return x[train], y[train], x[test], y[test]


def _machine(method: Method, inputs: int) -> KernelMachine:
    lengthscale: Any = jnp.full(inputs, np.sqrt(inputs))
    model = method.machine(kernels.RBF(lengthscale))
    return freeze(model, "kernel.variance") if method.offset else model  # C has the same effect


def _bounds(model: KernelMachine) -> dict[str, tuple[float, float]]:
    """Wide bounds; amplitudes need them, since the Laplace evidence of a huge amplitude is wrong."""
    return {name: _BOUNDS[name.rsplit(".")[-1]] for name in free_parameters(model)}


def _criterion_report(options, x, y, x_test, y_test) -> str:
    method = METHODS[options.criterion]
    model = _machine(method, x.shape[1])
    criterion = method.criterion(next(n for n in parameters(model) if n.endswith("lengthscale")))

    begin = time.perf_counter()
    search = select(
        model, x, y, criterion, restarts=options.restarts, key=jax.random.key(options.seed),
        starts=0.5, bounds=_bounds(model), max_steps=options.steps,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    before, after = fit(model, x, y, tolerance=1e-7), search.fit(tolerance=1e-7)
    codes = [RESULTS(int(code)) for code in search.results]
    ends = ", ".join(f"{codes.count(c)} {c.name}" for c in RESULTS if c in codes)
    rows = {
        "test error": _errors(before, after, x_test, y_test),
        "criterion": f"{float(search.value):.4f}  (before tuning {float(criterion(model, x, y)):.4f})",
        "support vectors": _support(after),
        "parameters": _scalars(search.model),
        "starts": f"{ends}; the best is number {search.best}",
        "time": f"{seconds:.1f} s for {int(search.history.steps.sum())} steps, including compilation",
    }
    title = f"{options.data}, {len(y)} examples, {x.shape[1]} inputs: {method.description}"
    return "\n".join([title, "-" * len(title), *aligned(rows), *_relevance_lines(search.model)])


def _evidence_report(options, x, y, x_test, y_test) -> str:
    # the machine whose evidence Laplace's method approximates
    model = _machine(METHODS["laplace"], x.shape[1])
    key = jax.random.key(options.seed)
    approximation = Nystrom(min(options.rank, len(y)), min(200, len(y)))

    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # problems are printed below
        search = evidence_ascent(
            model, x, y, key=key, restarts=options.restarts, starts=0.5, max_steps=options.steps,
            approximation=approximation, stop=(stopping.GradientFallen(0.05), stopping.Settled()),
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        posterior = sample(search.model, x, y, key=key)
        values = [log_evidence(m, x, y, key=key) for m in (model, search.model)]
    before, after = (fit(m, x, y, tolerance=1e-7) for m in (model, search.model))
    p = np.asarray(posterior.probability(x_test))
    reliable = calibration.reliability(y_test, p, bins=5)
    old, new = (f"{float(v.value):.2f} ± {float(v.standard_error):.2f}" for v in values)
    magnitude = np.asarray(search.history.magnitude)[search.best]
    magnitude = magnitude[np.isfinite(magnitude)]
    rows = {
        "test error": _errors(before, after, x_test, y_test),
        "log evidence": f"{new} nats  (before tuning {old})",
        "ascent": f"{RESULTS(int(search.result)).name} after {int(search.history.steps[search.best])} steps; "
        f"mean gradient {magnitude[-1]:.2g}, at its peak {magnitude.max():.2g}",
        "support vectors": _support(after),
        "parameters": _scalars(search.model),
        "probabilities": f"log loss {calibration.log_loss(y_test, p):.3f} nats, calibration error "
        f"{calibration.expected_calibration_error(y_test, p):.3f}, test error "
        f"{_percent_wrong(np.where(p > 0.5, 1, -1), y_test):.2f} %",
        "  predicted": "  ".join(f"{v:6.1%}" for v in reliable.prediction),
        "  observed": "  ".join(f"{v:6.1%}" for v in reliable.frequency),
        "time": f"{seconds:.1f} s for the ascent, including compilation",
        "chains": str(posterior.diagnostics).replace("\n", "\n" + 17 * " "),
    }
    title = (
        f"{options.data}, {len(y)} examples, {x.shape[1]} inputs, hinge loss: the exact evidence, "
        f"chains of rank {approximation.rank}"
    )
    problems = [f"ascent: {text}" for text in search.problems]
    problems += [f"log evidence: {text}" for text in values[1].problems]
    lines = [title, "-" * len(title), *aligned(rows)]
    lines += [line for text in problems for line in aligned({"PROBLEM": text})]
    return "\n".join([*lines, *_relevance_lines(search.model)])


def _errors(before: Fit, after: Fit, x_test, y_test) -> str:
    old, new = (_percent_wrong(np.asarray(f.predict(x_test)), y_test) for f in (before, after))
    return f"{new:.2f} %  (before tuning {old:.2f} %; {len(y_test)} examples)"


def _percent_wrong(labels, y) -> float:
    return 100 * float(np.mean(labels != y))


def _support(fitted: Fit) -> str:
    free, bound = int(fitted.free.sum()), int(fitted.bound.sum())
    return f"{int(fitted.support.sum())} of {len(fitted.y)}  ({free} free, {bound} at the bound)"


def _scalars(model: KernelMachine) -> str:
    return ", ".join(f"{n} {float(v):.3g}" for n, v in parameters(model).items() if v.ndim == 0)


def _relevance_lines(model: KernelMachine) -> list[str]:
    relevances = relevance(model)
    order = np.argsort(-relevances)
    return relevance_lines([(f"input {i}", float(relevances[i])) for i in order], count=8)

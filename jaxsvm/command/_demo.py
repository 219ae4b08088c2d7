"""`jaxsvm demo`: tune a machine with relevance determination on known data, and say what was found."""

import argparse
import textwrap
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import (
    Nystrom,
    calibration,
    datasets,
    evidence_ascent,
    fit,
    freeze,
    frozen,
    kernels,
    log_evidence,
    parameters,
    sample,
    select,
    stopping,
)
from .._machine import KernelMachine
from .._results import RESULTS
from ..sampling import SamplingWarning
from ..selection import METHODS, Method
from ._arguments import at_least, seed
from ._cells import DataError

_EVIDENCE = "evidence"
_DATA = ("noisy_xor", "twonorm", "ringnorm", "waveform", "wdbc")


def add_to(commands) -> None:
    """Add the subcommand to the parser."""
    rows = [f"  {_EVIDENCE:12s} the exact evidence, by sampling (hinge); the default"]
    rows += [f"  {name:12s} {method.description}" for name, method in METHODS.items()]
    parser = commands.add_parser(
        "demo",
        help="tune a machine on generated data",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=textwrap.dedent("""\
            Tune a support vector machine with one lengthscale for each input (automatic relevance
            determination), amplitude, offset and C, by ascending the exact evidence or by minimizing a
            criterion from several starts, and print what was found: errors before and after, support
            vectors, relevances, times; with the evidence also its value, how well class probabilities
            are calibrated, and how far the chains behind it all can be trusted."""),
        epilog="criteria:\n" + "\n".join(rows),
    )
    parser.add_argument(
        "--data", default="noisy_xor", choices=_DATA, help="what to learn (wdbc needs scikit-learn)"
    )
    parser.add_argument(
        "--criterion", default=_EVIDENCE, choices=(_EVIDENCE, *METHODS), help="what to tune by"
    )
    parser.add_argument(
        "--examples", type=at_least(10, int), default=300, metavar="N", help="to train on"
    )
    parser.add_argument("--restarts", type=at_least(1, int), default=1, metavar="R", help="starts")
    parser.add_argument(
        "--rank", type=at_least(1, int), default=40, metavar="P", help="of the chains' kernel"
    )
    parser.add_argument(
        "--steps", type=at_least(1, int), default=40, metavar="S", help="of each start, at most"
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the data and the starts")
    parser.set_defaults(run=run)


def run(chosen) -> None:
    """Load, tune, report."""
    with jax.enable_x64(True):
        data = _load(chosen)
        report = _evidence_report if chosen.criterion == _EVIDENCE else _report
        print(report(chosen, *data))


def _load(chosen):
    """Training and test data, standardized by the training part."""
    key = jax.random.key(chosen.seed)
    if chosen.data == "wdbc":
        x, y = (np.asarray(array) for array in datasets.wdbc())
        if chosen.examples > len(y) - 100:
            raise DataError(f"argument --examples: wdbc has {len(y)} examples, 100 of them to test")
    else:
        x, y = (
            np.asarray(array)
            for array in getattr(datasets, chosen.data)(chosen.examples + 5000, key=key)
        )
    order = np.random.default_rng(chosen.seed).permutation(len(y))
    train, test = order[: chosen.examples], order[chosen.examples :]
    if len(set(y[train])) < 2:
        raise DataError("argument --examples: all of them are of one class, take more")
    center, scale = x[train].mean(axis=0), x[train].std(axis=0)
    x = (x - center) / np.where(scale > 0, scale, 1.0)
    return x[train], y[train], x[test], y[test]


def _machine(method: Method, inputs: int) -> KernelMachine:
    lengthscale: Any = jnp.full(inputs, np.sqrt(inputs))
    model = method.machine(kernels.RBF(lengthscale))
    return freeze(model, "kernel.variance") if method.offset else model  # C does the same


def _bounds(model: KernelMachine) -> dict[str, tuple[float, float]]:
    """Wide ones; amplitudes have one since the Laplace evidence of a huge one is wrong, and the best."""
    ranges = {"lengthscale": (0.05, 100.0), "variance": (1e-3, 100.0), "C": (1e-3, 1e4)}
    free = [name for name in parameters(model) if name not in frozen(model)]
    return {name: ranges[name.rsplit(".")[-1]] for name in free}


def _report(chosen, x, y, x_test, y_test) -> str:
    method = METHODS[chosen.criterion]
    model = _machine(method, x.shape[1])
    name = next(n for n in parameters(model) if n.endswith("lengthscale"))
    criterion = method.criterion(name)

    begin = time.perf_counter()
    found = select(
        model, x, y, criterion, restarts=chosen.restarts, key=jax.random.key(chosen.seed),
        starts=0.5, bounds=_bounds(model), max_steps=chosen.steps,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    before, after = fit(model, x, y, tolerance=1e-7), found.fit(tolerance=1e-7)
    old, new = (
        f"{100 * float(np.mean(np.asarray(f.predict(x_test)) != y_test)):.2f} %"
        for f in (before, after)
    )
    codes = [RESULTS(int(code)) for code in found.results]
    ends = ", ".join(f"{codes.count(c)} {c.name}" for c in RESULTS if c in codes)
    scalars = [f"{n} {float(v):.3g}" for n, v in parameters(found.model).items() if v.ndim == 0]
    rows = [
        ("test error", f"{new}  (before tuning {old}; {len(y_test)} examples)"),
        ("criterion", f"{float(found.value):.4f}  (before tuning {float(criterion(model, x, y)):.4f})"),
        ("support vectors", f"{int(after.support.sum())} of {len(y)}  ({int(after.free.sum())} free, "
         f"{int(after.bound.sum())} at the bound)"),
        ("parameters", ", ".join(scalars)),
        ("starts", f"{ends}; best no. {found.best}"),
        ("time", f"{seconds:.1f} s with compilation for {int(found.history.steps.sum())} steps"),
    ]  # fmt: skip
    title = f"{chosen.data}, {len(y)} examples, {x.shape[1]} inputs: {method.description}"
    lines = [title, "-" * len(title), *(f"{label:16s} {text}" for label, text in rows)]
    return "\n".join([*lines, *_relevances(np.asarray(parameters(found.model)[name]))])


def _evidence_report(chosen, x, y, x_test, y_test) -> str:
    model = _machine(
        METHODS["laplace"], x.shape[1]
    )  # the machine whose evidence Laplace approximates
    key = jax.random.key(chosen.seed)
    approximation = Nystrom(min(chosen.rank, len(y)), min(200, len(y)))

    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # what they say is printed below
        path = evidence_ascent(
            model,
            x,
            y,
            key=key,
            restarts=chosen.restarts,
            starts=0.5,
            max_steps=chosen.steps,
            approximation=approximation,
            stop=(stopping.GradientFallen(0.05), stopping.Settled()),
        )
        seconds = time.perf_counter() - begin
        posterior = sample(path.model, x, y, key=key)
        values = [log_evidence(m, x, y, key=key) for m in (model, path.model)]
    fits = [fit(m, x, y, tolerance=1e-7) for m in (model, path.model)]
    errors = [100 * float(np.mean(np.asarray(f.predict(x_test)) != y_test)) for f in fits]
    p = np.asarray(posterior.probability(x_test))
    reliable = calibration.reliability(y_test, p, bins=5)
    old, new = (f"{float(v.value):.2f} ± {float(v.standard_error):.2f}" for v in values)
    scalars = [f"{n} {float(v):.3g}" for n, v in parameters(path.model).items() if v.ndim == 0]
    magnitude = np.asarray(path.history.magnitude)[path.best]
    magnitude = magnitude[np.isfinite(magnitude)]
    rows = [
        ("test error", f"{errors[1]:.2f} %  (before tuning {errors[0]:.2f} %; {len(y_test)} examples)"),
        ("log evidence", f"{new} nats  (before tuning {old})"),
        ("ascent", f"{RESULTS(int(path.result)).name} after {int(path.history.steps[path.best])} steps; "
         f"mean gradient {magnitude[-1]:.2g}, at its peak {magnitude.max():.2g}"),
        ("support vectors", f"{int(fits[1].support.sum())} of {len(y)}  ({int(fits[1].free.sum())} free, "
         f"{int(fits[1].bound.sum())} at the bound)"),
        ("parameters", ", ".join(scalars)),
        ("probabilities", f"log loss {calibration.log_loss(y_test, p):.3f} nats, calibration error "
         f"{calibration.expected_calibration_error(y_test, p):.3f}, error {_error(p, y_test):.2f} %"),
        ("  predicted", "  ".join(f"{v:6.1%}" for v in reliable.prediction)),
        ("  observed", "  ".join(f"{v:6.1%}" for v in reliable.frequency)),
        ("time", f"{seconds:.1f} s for the ascent, with compilation"),
    ]  # fmt: skip
    title = (
        f"{chosen.data}, {len(y)} examples, {x.shape[1]} inputs, hinge loss: the exact evidence, "
        f"chains of rank {approximation.rank}"
    )
    rows += [("PROBLEM", f"ascent: {text}") for text in path.problems]
    rows += [("PROBLEM", f"log evidence: {text}") for text in values[1].problems]
    lines = [title, "-" * len(title), *(f"{label:16s} {text}" for label, text in rows)]
    lines += [f"{'chains':16s} " + str(posterior.diagnostics).replace("\n", "\n" + 17 * " ")]
    lengthscale = parameters(path.model)["kernel.left.lengthscale"]
    return "\n".join([*lines, *_relevances(np.asarray(lengthscale))])


def _error(p, y) -> float:
    return 100 * float(np.mean(np.where(p > 0.5, 1, -1) != y))


def _relevances(lengthscales) -> list[str]:
    relevance = 1 / lengthscales**2
    relevance = relevance / relevance.max()
    order = np.argsort(-relevance)[:8]
    lines = [f"most relevant of {len(relevance)} inputs (1 / lengthscale^2, largest = 1):"]
    for place in order:
        bar = "#" * max(round(30 * float(relevance[place])), 1)
        lines.append(f"  input {place:3d}  {relevance[place]:8.2g}  {bar}")
    return lines

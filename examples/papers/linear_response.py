"""Linear response compared with retraining: leave-one-out errors.

    python examples/papers/linear_response.py            # a few minutes
    python examples/papers/linear_response.py --quick    # 30 examples, hinge with offset, six problems
    python examples/papers/linear_response.py --show     # prints the saved table

The estimate of [OW00, eqs. 8.26-8.32] assumes that leaving out one example does not move any other between
free, bound and non-support. Here its count of errors is compared with that of retraining without each
example, for hinge and squared hinge, with and without a free offset, over generated sets, lengthscales and
small to large values of C.

Results are saved in `results/linear_response.json` as they are computed; run the script again to resume.
"""

import argparse
import itertools
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# several threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpy as np
from store import Store

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm.criteria import LeaveOneOut, LinearResponse

RESULTS = Path(__file__).parent / "results" / "linear_response.json"
LOSSES = {"hinge": losses.Hinge, "squared hinge": losses.SquaredHinge}
OFFSETS = {"free offset": True, "no offset": False}
SETS = ("twonorm", "ringnorm", "waveform", "noisy_xor")
# all sets are padded to this number of inputs with zeros, which change no distance, to compile only once
INPUTS = 21
PENALTIES = (0.1, 1.0, 10.0, 100.0)
LENGTHSCALES = (0.5, 1.0, 2.0)  # in units of the square root of the number of inputs


def load(name: str, examples: int, draw: int) -> tuple[np.ndarray, np.ndarray, int]:
    """A standardized sample of a set: inputs, labels, and the number of inputs before padding."""
    key = jax.random.fold_in(jax.random.key(1999), draw)
    if name == "noisy_xor":
        x, y = jsvm.datasets.noisy_xor(examples, key=key, inputs=2)
    else:
        x, y = getattr(jsvm.datasets, name)(examples, key=key)
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    return np.pad(standard, ((0, 0), (0, INPUTS - x.shape[1]))), y, x.shape[1]


def compare(
    loss: str, offset: str, name: str, examples: int, draws: int, penalties: Sequence[float]
) -> dict[str, Any]:
    """The errors that each method counts, one entry for each problem."""
    counts: dict[str, list[float]] = {"C": [], "exact": [], "response": []}
    criteria = {"exact": LeaveOneOut(), "response": LinearResponse()}
    begin = time.perf_counter()
    for draw, scale, penalty in itertools.product(range(draws), LENGTHSCALES, penalties):
        x, y, inputs = load(name, examples, draw)
        kernel = kernels.RBF(scale * math.sqrt(inputs))
        kernel = kernel if OFFSETS[offset] else kernel + kernels.Constant(0.1)
        model = jsvm.KernelMachine(kernel, LOSSES[loss](penalty), offset=OFFSETS[offset])
        counts["C"].append(penalty)
        for column, criterion in criteria.items():
            counts[column].append(round(examples * float(criterion(model, x, y))))
    return counts | {"seconds": round(time.perf_counter() - begin, 1)}


def line(
    title: str, records: list[dict[str, Any]], examples: int, penalty: float | None = None
) -> str:
    exact, response, penalties = (
        np.concatenate([record[column] for record in records])
        for column in ("exact", "response", "C")
    )
    rows = np.full(len(exact), True) if penalty is None else penalties == penalty
    exact, gap = exact[rows], (response - exact)[rows]
    return (
        f"| {title} | {'all' if penalty is None else f'{penalty:g}'} | {len(gap)} | "
        f"{exact.mean():.1f} of {examples} | {gap.mean():+.2f} | {np.abs(gap).mean():.2f} | "
        f"{gap[np.argmax(np.abs(gap))]:+d} | {100 * np.mean(gap == 0):.0f} % | "
        f"{100 * np.mean(np.abs(gap) <= 1):.0f} % |"
    )


def table(store: Store, examples: int) -> str:
    lines = [
        "Errors counted by linear response minus errors counted by retraining.",
        "",
        "| loss | C | problems | errors, retraining | mean | mean size | worst | equal | within one |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for loss, offset in itertools.product(LOSSES, OFFSETS):
        prefix = f"{examples}/{loss}/{offset}/"
        records = [v for k, v in store.records.items() if k.startswith(prefix)]
        if records:
            title = f"{loss}, {offset}"
            lines.append(line(title, records, examples))
            present = sorted({penalty for record in records for penalty in record["C"]})
            lines += [line(title, records, examples, penalty) for penalty in present]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--examples", type=int, default=80)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="30 examples, one loss, six problems")
    parser.add_argument(
        "--show", action="store_true", help="print saved results and compute nothing"
    )
    options = parser.parse_args(arguments)
    cases = list(itertools.product(LOSSES, OFFSETS, SETS))
    penalties = PENALTIES
    if options.quick:
        options.examples, options.draws, penalties, cases = 30, 1, PENALTIES[1:3], cases[:1]
        options.output = None if options.output == RESULTS else options.output
    about = "Leave-one-out errors, python examples/papers/linear_response.py"
    store = Store(options.output, about)
    if not options.show:
        with jax.enable_x64(True):
            for loss, offset, name in cases:
                key = f"{options.examples}/{loss}/{offset}/{name}"
                what = (loss, offset, name, options.examples, options.draws, penalties)
                record = store.compute(key, lambda what=what: compare(*what))
                print(f"{key}: {record['seconds']} s", flush=True)
    print(table(store, options.examples))


if __name__ == "__main__":
    main()

"""How well linear response counts leave-one-out errors.

    python examples/papers/linear_response.py            # some minutes
    python examples/papers/linear_response.py --quick    # 30 examples, hinge with offset, six problems
    python examples/papers/linear_response.py --show     # the table of what is there

The estimate of [OW00, eqs. 8.26-8.32] takes all examples but the one that is left out to stay in their
groups. Here its count of errors is compared with that of retraining without each example, for hinge and
squared hinge, with a free offset and without one, over generated sets, lengthscales and penalties from
small to large.

Results are saved as they come in `results/linear_response.json`; a second call goes on.
"""

import argparse
import itertools
import math
import os
import time
from pathlib import Path

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # threads that wait for each other cost more than they give

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
INPUTS = (
    21  # of all sets, by columns of zeros, which change no distance: one program for all of them
)
PENALTIES = (0.1, 1.0, 10.0, 100.0)
LENGTHSCALES = (0.5, 1.0, 2.0)  # in units of the root of the number of inputs


def load(name: str, examples: int, draw: int):
    """A sample of a set, standardized; its inputs, labels and number of inputs that vary."""
    key = jax.random.fold_in(jax.random.key(1999), draw)
    if name == "noisy_xor":
        x, y = jsvm.datasets.noisy_xor(examples, key=key, inputs=2)
    else:
        x, y = getattr(jsvm.datasets, name)(examples, key=key)
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    return np.pad(standard, ((0, 0), (0, INPUTS - x.shape[1]))), y, x.shape[1]


def compare(loss: str, offset: str, name: str, examples: int, draws: int, penalties) -> dict:
    """The errors that both count, one entry for each problem."""
    counts = {"C": [], "exact": [], "response": []}
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


def line(title: str, records: list[dict], examples: int, penalty: float | None = None) -> str:
    exact, response, penalties = (
        np.concatenate([record[column] for record in records])
        for column in ("exact", "response", "C")
    )
    taken = np.full(len(exact), True) if penalty is None else penalties == penalty
    exact, gap = exact[taken], (response - exact)[taken]
    return (
        f"| {title} | {'all' if penalty is None else f'{penalty:g}'} | {len(gap)} | "
        f"{exact.mean():.1f} of {examples} | {gap.mean():+.2f} | {np.abs(gap).mean():.2f} | "
        f"{gap[np.argmax(np.abs(gap))]:+d} | {100 * np.mean(gap == 0):.0f} % | "
        f"{100 * np.mean(np.abs(gap) <= 1):.0f} % |"
    )


def table(store: Store, examples: int) -> str:
    lines = [
        "Errors that linear response counts, minus those of retraining.",
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


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=80)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="30 examples, one loss, six problems")
    parser.add_argument("--show", action="store_true", help="compute nothing")
    chosen = parser.parse_args(arguments)
    cases = list(itertools.product(LOSSES, OFFSETS, SETS))
    penalties = PENALTIES
    if chosen.quick:
        chosen.examples, chosen.draws, penalties, cases = 30, 1, PENALTIES[1:3], cases[:1]
        chosen.output = None if chosen.output == RESULTS else chosen.output
    about = "Leave-one-out errors, python examples/papers/linear_response.py"
    store = Store(chosen.output, about)
    if not chosen.show:
        with jax.enable_x64(True):
            for loss, offset, name in cases:
                key = f"{chosen.examples}/{loss}/{offset}/{name}"
                what = (loss, offset, name, chosen.examples, chosen.draws, penalties)
                record = store.compute(key, lambda what=what: compare(*what))
                print(f"{key}: {record['seconds']} s", flush=True)
    print(table(store, chosen.examples))


if __name__ == "__main__":
    main()

"""Gold and Sollich, Table 5: Gaussian process classifiers with the Laplace approximation and mean field.

    python examples/papers/gp_table5.py               # five sets, a few minutes
    python examples/papers/gp_table5.py --quick       # a part of one generated set, a few steps
    python examples/papers/gp_table5.py --show        # prints the saved table

The columns "GP Lap" and "GP MF" of that table come from earlier papers, which chose hyperparameters in
different ways. Here logistic labels are selected by the Laplace evidence, and probit labels with naive mean
field by its leave-one-out log probability. Expectation propagation is added; the paper has no column for it.
Each has one lengthscale and then, starting from there, one for each input (ARD). Data as in
`gold_sollich_tables.py`, start and bounds as in `gp_classifiers.py`.

Results are saved in `results/gp_table5.json` as they are computed; run the script again to resume. Crabs and
Pima need the benchmark data (see `docs/files.md`).
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

# several threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gp_classifiers
import jax
from gold_sollich_tables import SETS, load
from store import Store

RESULTS = Path(__file__).parent / "results" / "gp_table5.json"
METHODS = {
    label: gp_classifiers.METHODS[label]
    for label in ("Laplace", "Laplace ARD", "Mean field", "Mean field ARD", "EP")
}
# test errors in % of GP Lap and GP MF
PAPER = {
    "crabs": ("3.3", "1.7"), "pima": ("20.2", "19.0"), "wdbc": ("3.3", "2.6"), "twonorm": ("4.0", "-"),
    "ringnorm": ("3.0", "-"),
}  # fmt: skip


def show(store: Store) -> None:
    print("Test errors in %; in brackets the log loss of test data in nats.\n")
    print("| set | paper: GP Lap | GP MF | " + " | ".join(METHODS) + " |")
    print("|---|---|---|" + "---|" * len(METHODS))
    for name in SETS:
        records = [store.records.get(f"{name}/{label}") for label in METHODS]
        if any(records):
            cells = [f"{r['error']:.1f} ({r['log_loss']:.3f})" if r else "-" for r in records]
            print(f"| {name} | {' | '.join([*PAPER[name], *cells])} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--max-steps", type=int, default=100)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument(
        "--quick", action="store_true", help="a part of one generated set, a few steps"
    )
    parser.add_argument(
        "--show", action="store_true", help="print saved results and compute nothing"
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets, options.methods, options.max_steps = ("twonorm",), ["Laplace"], 3
        options.output = None if options.output == RESULTS else options.output
    about = "Gold and Sollich, Table 5: test errors in %, python examples/papers/gp_table5.py"
    store = Store(options.output, about)
    if not options.show:
        with jax.enable_x64(True):
            for name in options.sets:
                data = gp_classifiers.few(load(name)) if options.quick else load(name)
                for label in options.methods:
                    method = METHODS[label]
                    start = store.records[f"{name}/{method.start}"] if method.start else None
                    store.compute(
                        f"{name}/{label}",
                        lambda: gp_classifiers.run(data, method, start, options.max_steps),
                    )
                    print(f"{name} {label}: done", flush=True)
    show(store)


if __name__ == "__main__":
    main()

"""Chu, Keerthi and Ong on the sinc data: Table I, Fig. 3 and Fig. 4.

    python examples/papers/chu_sinc.py                          # all; or --parts table1 draws figure3 figure4
    python examples/papers/chu_sinc.py --sizes 50 100 300       # some sizes of Table I, its draws, Fig. 4
    python examples/papers/chu_sinc.py --quick                  # a small run, half a minute
    python examples/papers/chu_sinc.py --show                   # prints the saved tables
    python examples/papers/chu_sinc.py --show --figure sinc.png # draws Figs. 3 and 4 from them

- `table1`: hyperparameters selected by the evidence, and test errors, for 50 to 4000 examples. The noise
  has the distribution of the soft insensitive loss (C = 10, epsilon = 0.1, beta = 0.3); the machine's beta
  is fixed at two values.
- `draws`: rows of Table I up to 1000 examples on ten draws of the data (five of 1000 examples), beta = 0.3.
  They show how much of a difference from the paper's single draw is chance.
- `figure3`: the 4000 examples of Table I for several beta, from the paper's default start only.
- `figure4`: Bayesian support vector regression (BSVR) and Gaussian process regression (GPR), both by the
  evidence, and support vector regression (SVR) by cross-validation, with Gaussian noise of variance 0.04;
  errors on 3000 clean test points, and seconds.

The paper's draws are not available, so each row has its own data (seed 2004). Inputs are standardized with
the training inputs. Results are saved in `results/chu_sinc.json` as they are computed; run the script again
to resume. Seconds are those of training, without compilation.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chu_methods as methods  # first: it limits the threads of linear algebra
import jax
import numpy as np
from store import Store

import jaxsvm as jsvm
from jaxsvm import losses

RESULTS = Path(__file__).parent / "results" / "chu_sinc.json"
TESTS = 3000
BETAS = (0.3, 0.1)
DRAWS = {50: 10, 100: 10, 300: 10, 500: 10, 1000: 5}  # of the data, by their size
FIGURE3_BETAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.9)
FIGURE4_SIZES = (10, 20, 50, 100, 200, 500, 1000)
METHODS = ("SVR", "BSVR", "GPR")
FEW = 500  # from this number of examples on, SVR has fewer repetitions

# Table I: noise variance in the sample, C, epsilon, noise variance found, kappa, minus log evidence,
# off-bound and on-bound support vectors, seconds, AAE, ASE
PAPER = {
    0.3: {
        50: (.03012, 15.95, .181, .02416, 5.19, -1.3, 23, 4, 0.15, .13754, .031194),
        100: (.03553, 10.00, .136, .03152, 5.85, -11.1, 33, 25, 0.40, .13027, .028481),
        300: (.02269, 11.16, .118, .02478, 5.57, -113.7, 90, 87, 5.95, .12642, .027189),
        500: (.02669, 9.36, .080, .02752, 5.89, -174.8, 135, 218, 12.9, .12544, .026765),
        1000: (.02578, 9.90, .094, .02655, 5.62, -389.9, 270, 388, 63.0, .12537, .026834),
        2000: (.02639, 10.01, .096, .02630, 5.01, -808.8, 539, 768, 436.2, .12509, .026661),
        3000: (.02777, 9.96, .106, .02770, 5.20, -1146.7, 833, 1052, 1551.4, .12511, .026671),
        4000: (.02663, 10.51, .111, .02609, 5.76, -1642.2, 1226, 1280, 3291.9, .12501, .026615),
    },
    0.1: {
        50: (.03012, 6.70, .086, .05018, 9.42, 5.51, 10, 20, 0.11, .13411, .030065),
        100: (.03553, 12.07, .163, .02855, 5.54, -10.1, 19, 25, 0.53, .13366, .029728),
        300: (.02269, 12.05, .124, .02300, 5.92, -113.8, 39, 100, 5.13, .12651, .027212),
        500: (.02669, 9.42, .080, .02715, 5.78, -174.4, 57, 250, 9.43, .12543, .026764),
        1000: (.02578, 9.96, .095, .02631, 6.09, -389.7, 102, 459, 47.9, .12540, .026848),
        2000: (.02639, 10.06, .096, .02600, 5.06, -808.5, 190, 920, 264.7, .12512, .026662),
        3000: (.02777, 9.96, .108, .02774, 5.34, -1142.6, 287, 1303, 1070.4, .12509, .026673),
        4000: (.02663, 10.41, .109, .02623, 5.74, -1643.3, 446, 1650, 2852.3, .12502, .026619),
    },
}  # fmt: skip
SIZES = tuple(PAPER[0.3])
TEST_NOISE = "test noise"  # the key of its errors
PAPER_TEST_NOISE = {"AAE": 0.12492, "ASE": 0.026612}
PAPER_EXPONENTS = {"BSVR": 2.36, "GPR": 3.05}
COLUMNS = {
    "sample_noise": ".5f", "C": ".2f", "epsilon": ".3f", "noise_variance": ".5f", "kappa": ".2f",
    "minus_log_evidence": ".1f", "free": "d", "bound": "d", "seconds": ".2f", "AAE": ".5f",
    "ASE": ".6f",
}  # fmt: skip
HEADS = "true noise | C | ε | noise | κ | -ln P | SV_M | SV_C | seconds | AAE | ASE"


def noisy(size: int, *numbers: int) -> jsvm.datasets.Dataset:
    """Examples with noise drawn from the loss; the same numbers give the same examples."""
    noise = losses.SoftInsensitive(10.0, 0.1, 0.3)
    return jsvm.datasets.sinc(size, noise=noise, key=methods.key_of(1, *numbers))


def residuals(x: jax.Array, y: jax.Array) -> np.ndarray:
    """The noise that was added to the sinc function."""
    return np.asarray(y) - np.sinc(np.asarray(x)[:, 0] / np.pi)


def infer(size: int, beta: float, draw: int | None = None, **options: Any) -> dict[str, Any]:
    """One row of Table I, or with `restarts=1` one point of Fig. 3; `draw` selects another sample."""
    x, y = noisy(size, size) if draw is None else noisy(size, size, draw)
    x_test, y_test = noisy(TESTS, 0)
    scaled, scaled_test = methods.standardize(x, x_test)
    selection, fitted, seconds = methods.by_evidence(scaled, y, beta=beta, **options)
    record = methods.described(selection, fitted, seconds)
    record |= methods.errors(fitted.predict(scaled_test), y_test)
    return record | {"sample_noise": float(np.var(residuals(x, y)))}


def compare(method: str, size: int, repetition: int) -> dict[str, Any]:
    """One method of Fig. 4 on one training set."""
    noise = losses.Quadratic(0.04)
    x, y = jsvm.datasets.sinc(size, noise=noise, key=methods.key_of(4, size, repetition))
    x_test, y_test = jsvm.datasets.sinc(TESTS, noise=None, key=methods.key_of(4, 0))
    scaled, scaled_test = methods.standardize(x, x_test)
    if method == "SVR":
        machine, record = methods.by_cross_validation(scaled, np.asarray(y), epsilon=0.1)
    else:
        loss = methods.gaussian_noise(y) if method == "GPR" else None
        selection, machine, seconds = methods.by_evidence(scaled, y, loss=loss)
        record = methods.described(selection, machine, seconds)
    return record | methods.errors(machine.predict(scaled_test), y_test)


def run_table1(store: Store, sizes: Sequence[int]) -> None:
    for size in sizes:
        for beta in BETAS:
            key = f"table1/{beta}/{size:04d}"
            record = store.compute(key, lambda: infer(size, beta))
            print(f"{key}  ASE {record['ASE']:.6f}  {record['seconds']:.1f} s", flush=True)


def run_draws(store: Store, counts: dict[int, int]) -> None:
    for size, count in counts.items():
        for draw in range(count):
            key = f"draws/{size:04d}/{draw:02d}"
            record = store.compute(key, lambda: infer(size, BETAS[0], draw))
            print(f"{key}  ASE {record['ASE']:.6f}  {record['seconds']:.1f} s", flush=True)


def run_figure3(store: Store, betas: Sequence[float], size: int) -> None:
    for beta in betas:
        key = f"figure3/{beta}"
        record = store.compute(key, lambda: infer(size, beta, restarts=1))
        print(f"{key}  ASE {record['ASE']:.6f}  {record['seconds']:.1f} s", flush=True)


def run_figure4(store: Store, sizes: Sequence[int], repetitions: int, svr_repetitions: int) -> None:
    for size in sizes:
        for method in METHODS:
            few = method == "SVR" and size >= FEW
            for repetition in range(min(repetitions, svr_repetitions) if few else repetitions):
                key = f"figure4/{method}/{size:04d}/{repetition:02d}"
                record = store.compute(key, lambda: compare(method, size, repetition))
                print(f"{key}  ASE {record['ASE']:.6f}  {record['seconds']:.2f} s", flush=True)


def show_table1(records: dict[str, Any]) -> None:
    print("Table I: training results on the sinc data\n")
    print(f"| β | size | | {HEADS} |\n" + "|---" * 14 + "|")
    for beta, rows in PAPER.items():
        for size, paper in rows.items():
            record = records.get(f"table1/{beta}/{size:04d}")
            if record is None:
                continue
            ours = [record[name] for name in COLUMNS]
            for who, values in ((f"| {beta} | {size} | ours", ours), ("| | | paper", paper)):
                cells = [format(v, form) for v, form in zip(values, COLUMNS.values(), strict=True)]
                print(f"{who} | {' | '.join(cells)} |")
    if TEST_NOISE in records:
        ours, paper = records[TEST_NOISE], PAPER_TEST_NOISE
        print(
            f"\nNoise of the test set: AAE {ours['AAE']:.5f}, ASE {ours['ASE']:.6f} (paper: "
            f"{paper['AAE']:.5f}, {paper['ASE']:.6f})."
        )


def show_draws(records: dict[str, Any]) -> None:
    print(
        "\nTable I over several draws, β = 0.3; mean ± standard deviation, the paper's single draw\n"
    )
    print("| size | draws | | C | ε | noise | AAE | ASE minus noise |\n" + "|---" * 8 + "|")
    names = ("C", "epsilon", "noise_variance", "AAE", "ASE")
    forms = dict(zip(names, (".2f", ".3f", ".4f", ".4f", ".5f"), strict=True))
    for size in DRAWS:
        rows = [row for key, row in records.items() if key.startswith(f"draws/{size:04d}/")]
        if not rows:
            continue
        paper = dict(zip(COLUMNS, PAPER[BETAS[0]][size], strict=True))
        ours: list[str] = []
        theirs: list[str] = []
        for name in names:
            quiet, paper_quiet = (
                (records[TEST_NOISE][name], PAPER_TEST_NOISE[name]) if name == "ASE" else (0.0, 0.0)
            )
            values = np.array([row[name] for row in rows]) - quiet
            spread = format(values.std(ddof=1) if len(values) > 1 else np.nan, forms[name])
            ours.append(f"{values.mean():{forms[name]}} ± {spread}")
            theirs.append(format(paper[name] - paper_quiet, forms[name]))
        print(f"| {size} | {len(rows)} | ours | {' | '.join(ours)} |")
        print(f"| | 1 | paper | {' | '.join(theirs)} |")


def figure3_cells(record: dict[str, Any], noise: dict[str, Any]) -> list[str]:
    """Support vectors, free ones, minus log evidence, ASE minus that of the noise, seconds."""
    return [
        f"{record['free'] + record['bound']}",
        f"{record['free']}",
        f"{record['minus_log_evidence']:.1f}",
        f"{record['ASE'] - noise['ASE']:.6f}",
        f"{record['seconds']:.1f}",
    ]


def show_figure3(records: dict[str, Any]) -> None:
    print("\nFig. 3: the 4000 examples against β (paper: Table I, in brackets)\n")
    print(
        "| β | SVs | off-bound SVs | -ln P | ASE minus noise | seconds |\n|---|---|---|---|---|---|"
    )
    for beta, record in figure3(records):
        cells = figure3_cells(record, records[TEST_NOISE])
        if beta in PAPER:
            paper = dict(zip(COLUMNS, PAPER[beta][4000], strict=True))
            shown = figure3_cells(paper, PAPER_TEST_NOISE)
            cells = [f"{a} ({b})" for a, b in zip(cells, shown, strict=True)]
        print(f"| {beta} | {' | '.join(cells)} |")


def figure3(records: dict[str, Any]) -> list[tuple[float, dict[str, Any]]]:
    """The saved records of Fig. 3, each with its beta."""
    by_key = {beta: records.get(f"figure3/{beta}") for beta in FIGURE3_BETAS}
    return [(beta, record) for beta, record in by_key.items() if record is not None]


def figure4(records: dict[str, Any], method: str) -> dict[int, dict[str, np.ndarray]]:
    """The errors and seconds of all repetitions, by size."""
    by_key: dict[int, dict[str, np.ndarray]] = {}
    for size in FIGURE4_SIZES:
        start = f"figure4/{method}/{size:04d}/"
        rows = [record for key, record in records.items() if key.startswith(start)]
        if rows:
            columns = ("AAE", "ASE", "seconds")
            by_key[size] = {name: np.array([row[name] for row in rows]) for name in columns}
    return by_key


def exponent(rows: dict[int, dict[str, np.ndarray]], smallest: int) -> float:
    """The least-squares estimate of p in `seconds ~ size^p`, from a smallest size on."""
    sizes = [size for size in rows if size >= smallest]
    if len(sizes) < 2:
        return float("nan")
    seconds = [rows[size]["seconds"].mean() for size in sizes]
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def show_figure4(records: dict[str, Any]) -> None:
    print("\nFig. 4: Gaussian noise, clean test points; mean ± standard deviation\n")
    print("| method | size | repetitions | AAE | ASE | seconds each |\n|---|---|---|---|---|---|")
    for method in METHODS:
        for size, row in figure4(records, method).items():
            cells = [f"{row[name].mean():.4f} ± {row[name].std():.4f}" for name in ("AAE", "ASE")]
            seconds = f"{row['seconds'].mean():.3g}"
            print(f"| {method} | {size} | {len(row['ASE'])} | {' | '.join(cells)} | {seconds} |")
    print("\nSeconds grow as size^p.\n\n| method | p, all sizes | p, from 200 on | paper |")
    print("|---|---|---|---|")
    for method in METHODS:
        rows = figure4(records, method)
        shown = f"{exponent(rows, 0):.2f} | {exponent(rows, 200):.2f}"
        print(f"| {method} | {shown} | {PAPER_EXPONENTS.get(method, '')} |")


def draw(records: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, 4, figsize=(13, 5.6), layout="constrained")
    points = figure3(records)
    betas = [beta for beta, _ in points]
    quiet = records[TEST_NOISE]["ASE"]
    panels = {
        "support vectors": [record["free"] + record["bound"] for _, record in points],
        "seconds": [record["seconds"] for _, record in points],
        "-ln P(D | θ)": [record["minus_log_evidence"] for _, record in points],
        "ASE minus that of the noise": [record["ASE"] - quiet for _, record in points],
    }
    for ax, (title, values) in zip(grid[0], panels.items(), strict=True):
        ax.plot(betas, values, "C0.-", label="all")
        ax.set(xscale="log", xlabel="β", title=title)
    grid[0, 0].plot(betas, [record["free"] for _, record in points], "C1.:", label="off-bound")
    grid[0, 0].legend()
    for number, method in enumerate(METHODS):
        rows = figure4(records, method)
        sizes = np.array(list(rows)) * 1.06 ** (number - 1)  # beside each other
        for ax, name in zip(grid[1], ("AAE", "ASE", "seconds"), strict=False):
            means = [row[name].mean() for row in rows.values()]
            spread = None if name == "seconds" else [row[name].std() for row in rows.values()]
            ax.errorbar(sizes, means, spread, fmt=".-", capsize=2, label=method)
            ax.set(xscale="log", yscale="log", xlabel="training examples", title=name)
    grid[1, 0].legend()
    grid[1, 3].axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    print(f"figure in {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parts = ("table1", "draws", "figure3", "figure4")
    parser.add_argument("--parts", nargs="+", default=parts, choices=parts)
    parser.add_argument(
        "--sizes", nargs="+", type=int, help="sizes of all parts except Fig. 3; default: all"
    )
    parser.add_argument("--repetitions", type=int, default=20, help="repetitions of Fig. 4")
    parser.add_argument(
        "--svr-repetitions", type=int, default=5, help=f"repetitions of SVR from {FEW} examples on"
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="smallest sizes; saves nothing")
    parser.add_argument(
        "--show", action="store_true", help="print saved results and compute nothing"
    )
    parser.add_argument("--figure", type=Path, help="draw Figs. 3 and 4 into this file")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    betas, size, sizes, draws = FIGURE3_BETAS, 4000, options.sizes, DRAWS
    if options.quick:
        betas, size, sizes, options.repetitions = (0.1, 0.9), 50, [50], 1
        draws = {50: 2}
        options.output = None if options.output == RESULTS else options.output
    store = Store(options.output, "examples/papers/chu_sinc.py")
    if not options.show:
        store.compute(TEST_NOISE, lambda: methods.errors(0.0, residuals(*noisy(TESTS, 0))))
        if "table1" in options.parts:
            run_table1(store, [n for n in SIZES if sizes is None or n in sizes])
        if "draws" in options.parts:
            run_draws(store, {n: k for n, k in draws.items() if sizes is None or n in sizes})
        if "figure3" in options.parts:
            run_figure3(store, betas, size)
        if "figure4" in options.parts:
            selected = [n for n in FIGURE4_SIZES if sizes is None or n in sizes]
            run_figure4(store, selected, options.repetitions, options.svr_repetitions)
    show_table1(store.records)
    show_draws(store.records)
    show_figure3(store.records)
    show_figure4(store.records)
    if options.figure:
        draw(store.records, options.figure)


if __name__ == "__main__":
    main()

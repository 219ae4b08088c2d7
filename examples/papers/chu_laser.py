"""Chu, Keerthi and Ong on the laser series: Fig. 5, predictions with error bars.

    python examples/papers/chu_laser.py                             # a minute
    python examples/papers/chu_laser.py --quick                     # a generated series, half a minute
    python examples/papers/chu_laser.py --show                      # prints the saved results
    python examples/papers/chu_laser.py --show --figure laser.png   # draws both panels of Fig. 5

The first 1000 values of the series of the Santa Fe competition are for training, the next 100 for testing,
one step ahead from the eight values before. Inputs and targets are standardized with the training part, and
errors are in these units. The kernel is Gaussian, beta = 0.3, with all of the paper's starts. The series
collapses at the values 1051 to 1080. Predictions are worse there, and the paper shows that the error bars,
`2 sqrt(sigma_t^2 + sigma_n^2)`, are wider. The result is saved in `results/chu_laser.json` and not computed
again. Needs the benchmark data (see `docs/files.md`).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chu_methods as methods  # first: it limits the threads of linear algebra
import jax
import numpy as np
import sets
from sets import Array
from store import Store

import jaxsvm as jsvm

RESULTS = Path(__file__).parent / "results" / "chu_laser.json"
KEY = "laser"
LAGS, TRAINING, TESTS = 8, 1000, 100
HARD = (1051, 1080)  # the values of the series that the paper predicts badly


def laser() -> tuple[Array, ...]:
    """Inputs and targets of the series, for training and for testing."""
    x, y, x_test, y_test = sets.laser(LAGS)
    return x, y, x_test[:TESTS], y_test[:TESTS]


def generated(training: int) -> tuple[Array, ...]:
    """Inputs and targets of a noisy oscillation that grows and collapses."""
    times = np.arange(training + TESTS + LAGS)
    clean = np.sin(0.9 * times) * (1 + times % 70) / 70
    series = clean + 0.02 * np.asarray(jax.random.normal(methods.key_of(5), times.shape))
    windows = np.lib.stride_tricks.sliding_window_view(series, LAGS + 1)
    x, y = windows[:, :-1], windows[:, -1]
    return x[:training], y[:training], x[training:], y[training:]


def run(x: Array, y: Array, x_test: Array, y_test: Array) -> dict[str, Any]:
    """Predictions, standard deviations and 95 % intervals of the test values."""
    inputs, test_inputs = methods.standardize(x, x_test)
    targets, test_targets = methods.standardize(y, y_test)
    selection, fitted, seconds = methods.by_evidence(inputs, targets, beta=0.3)
    posterior = jsvm.laplace(fitted)
    mean, deviation = posterior.target(test_inputs)
    low, high = posterior.interval(test_inputs, 0.95)
    density = posterior.log_density(test_inputs, test_targets)
    series = {
        "target": test_targets,
        "mean": mean,
        "deviation": deviation,
        "low": low,
        "high": high,
    }
    lists = {name: np.round(values, 6).tolist() for name, values in series.items()}
    record = methods.described(selection, fitted, seconds) | methods.errors(mean, test_targets)
    record["log_density"] = float(np.mean(density))
    return record | {"unit": float(np.std(y)), "series": lists}


def table(record: dict[str, Any]) -> str:
    """Errors and error bars, inside and outside the part that is hard to predict."""
    values = {name: np.array(series) for name, series in record["series"].items()}
    errors = np.abs(values["mean"] - values["target"])
    bars = 2 * values["deviation"]
    inside = (values["low"] <= values["target"]) & (values["target"] <= values["high"])
    numbers = TRAINING + 1 + np.arange(len(errors))
    hard = (HARD[0] <= numbers) & (numbers <= HARD[1])
    lines = [
        "| values | mean error bar | largest error | ASE | within ±2 s.d. | within the 95 % interval |",
        "|---|---|---|---|---|---|",
    ]
    parts = {
        "all": np.ones_like(hard),
        f"{HARD[0]}-{HARD[1]}": hard,
        "the others": ~hard,
    }
    for name, part in parts.items():
        cells = [
            f"{np.mean(bars[part]):.3f}",
            f"{np.max(errors[part]):.3f}",
            f"{np.mean(errors[part] ** 2):.5f}",
            f"{100 * np.mean((errors <= bars)[part]):.0f} %",
            f"{100 * np.mean(inside[part]):.0f} %",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    raw = record["ASE"] * record["unit"] ** 2
    lines += [
        "",
        f"The unit is the standard deviation of the series, {record['unit']:.2f}; in the series' own units "
        f"the ASE is {raw:.2f}.",
        f"Mean log density of the test values: {record['log_density']:.2f}. Selected: C = {record['C']:.2f}, "
        f"ε = {record['epsilon']:.4f},",
        f"noise variance {record['noise_variance']:.2e}, κ = {record['kappa']:.4f}, "
        f"κ_b = {record['kappa_b']:.2f}, -ln P = {record['minus_log_evidence']:.1f};",
        f"{record['free']} free support vectors, {record['bound']} at the bound; "
        f"{record['seconds']:.1f} seconds.",
    ]
    return "\n".join(lines)


def draw(record: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    values = {name: np.array(series) for name, series in record["series"].items()}
    numbers = TRAINING + 1 + np.arange(len(values["mean"]))
    figure, (upper, lower) = pyplot.subplots(2, figsize=(8, 6), layout="constrained", sharex=True)
    upper.plot(numbers, values["target"], "C0-", label="series")
    upper.plot(numbers, values["mean"], "k.", label="prediction")
    upper.legend()
    lower.plot(numbers, values["mean"] - values["target"], "k.", label="prediction minus series")
    for sign in (-1, 1):
        lower.plot(numbers, 2 * sign * values["deviation"], "C1-")
    lower.set(xlabel="number of the value", ylabel="error, and two standard deviations")
    for ax in (upper, lower):
        ax.axvspan(*HARD, color="0.92")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    print(f"figure in {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="a short generated series")
    parser.add_argument(
        "--show", action="store_true", help="print saved results and compute nothing"
    )
    parser.add_argument("--figure", type=Path, help="draw Fig. 5 into this file")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    if options.quick:
        options.output = None if options.output == RESULTS else options.output
    store = Store(options.output, "examples/papers/chu_laser.py")
    if not options.show:
        store.compute(KEY, lambda: run(*(generated(50) if options.quick else laser())))
    if KEY not in store.records:
        print("Fig. 5 has not been computed yet.")
        return
    print("Fig. 5: the laser series, one step ahead\n")
    print(table(store.records[KEY]))
    if options.figure:
        draw(store.records[KEY], options.figure)


if __name__ == "__main__":
    main()

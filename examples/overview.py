"""The figure of the README: a classifier and a regression that choose their own hyperparameters.

python examples/overview.py             # prints errors and evidence
python examples/overview.py --figure f.png   # also draws the figure (needs matplotlib)
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import jax
import numpy as np
from sklearn import datasets

import jaxsvm as jsvm
from jaxsvm.sklearn import BayesianSVC, BayesianSVR


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args(arguments)
    x, y = cast(
        "tuple[np.ndarray, np.ndarray]", datasets.make_moons(160, noise=0.3, random_state=0)
    )
    classifier = BayesianSVC().fit(x[:100], y[:100])
    error = 1 - classifier.score(x[100:], y[100:])
    print(
        f"classification: {error:.1%} wrong of 60 new examples, evidence {classifier.evidence_:.1f} nats"
    )
    noise = jsvm.losses.SoftInsensitive(C=10.0, epsilon=0.1, beta=0.3)
    t, s = (
        np.asarray(a, float) for a in jsvm.datasets.sinc(100, noise=noise, key=jax.random.key(1))
    )
    regressor = BayesianSVR().fit(t, s)
    print(
        f"regression: noise {regressor.noise_std_:.3f} (true {float(noise.noise_variance) ** 0.5:.3f}), "
        f"evidence {regressor.evidence_:.1f} nats"
    )
    if options.figure is not None:
        draw(options.figure, classifier, x, y, regressor, t, s)


def draw(
    path: Path,
    classifier: BayesianSVC,
    x: np.ndarray,
    y: np.ndarray,
    regressor: BayesianSVR,
    t: np.ndarray,
    s: np.ndarray,
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    sides = [np.linspace(float(v.min()) - 0.4, float(v.max()) + 0.4, 120) for v in x.T]
    grid = np.stack(np.meshgrid(*sides), axis=-1)
    p = classifier.predict_proba(grid.reshape(-1, 2))[:, 1].reshape(grid.shape[:2])
    shades = left.contourf(*sides, p, np.linspace(0, 1, 21), cmap="RdBu", alpha=0.8)
    left.contour(*sides, p, [0.5], colors="k", linewidths=1)
    left.scatter(*x.T, c=np.where(y == 1, "navy", "darkred"), s=14, edgecolors="w", linewidths=0.4)
    figure.colorbar(shades, ax=left, label="probability", ticks=np.linspace(0, 1, 6))
    left.set_title("BayesianSVC().fit(x, y)", family="monospace")
    line = np.linspace(float(t.min()) - 2, float(t.max()) + 2, 300)[:, None]
    mean = regressor.predict(line)
    right.fill_between(
        line[:, 0], *regressor.predict_interval(line), alpha=0.15, label="95 %, new targets"
    )
    _, deviation = regressor.predict_function(line)
    right.fill_between(
        line[:, 0], mean - 2 * deviation, mean + 2 * deviation, alpha=0.4, color="C0",
        label="function, ± 2 standard deviations",
    )  # fmt: skip
    right.plot(line, mean, color="C0")
    right.scatter(t, s, s=8, color="k")
    right.legend(loc="upper right", fontsize="small")
    right.set_title("BayesianSVR().fit(x, y)", family="monospace")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()

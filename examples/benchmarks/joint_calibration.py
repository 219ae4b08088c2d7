"""Simulation-based calibration of the joint posterior: ranks of the true hyperparameters among draws.

    python examples/benchmarks/joint_calibration.py              # ten minutes; resumes
    python examples/benchmarks/joint_calibration.py --show       # only prints the record
    python examples/benchmarks/joint_calibration.py --quick      # two simulations: only to see that it runs

Each simulation draws hyperparameters from the prior, a function from the kernel, and targets from the noise
model. If the sampler is right, the rank of each true value among thinned draws of the posterior is uniform
(Talts and others, "Validating Bayesian inference algorithms with simulation-based calibration", 2018). The
same holds for the latent value at the first example. The p-value is that of the chi-squared statistic of ten
bins.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

# several threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

import jaxsvm as jsvm
from jaxsvm import kernels, losses, priors

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
from store import Store

RESULTS = Path(__file__).parent / "results" / "joint_calibration.json"
EXAMPLES, RANKS, SIMULATIONS = 15, 99, 150
PLAN: dict[str, Any] = {"chains": 3, "warmup": 120, "draws": 330}
PRIOR = {
    "kernel.lengthscale": priors.LogNormal(1.0, 0.7),
    "kernel.variance": priors.LogNormal(2.0, 0.8),
}
KINDS = {
    "soft insensitive": (
        losses.SoftInsensitive(3.0, 0.2, 0.3),
        {
            "loss.C": priors.LogNormal(3.0, 0.7),
            "loss.epsilon": priors.LogNormal(0.2, 0.7),
            "loss.beta": priors.LogitNormal(0.3, 1.0),
        },
    ),
    "normalized hinge": (
        losses.Normalized(losses.Hinge(1.0)), {"loss.base.C": priors.LogNormal(1.0, 0.7)}
    ),
}  # fmt: skip


def simulate(kind: str, number: int) -> dict[str, Any]:
    """The ranks of one simulation, from 0 to `RANKS`."""
    loss, prior = KINDS[kind]
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), number), 4)
    model = jsvm.KernelMachine(kernels.RBF(1.0, 2.0), loss)
    x = jax.random.normal(keys[0], (EXAMPLES, 1))
    y, weights = jnp.ones(EXAMPLES), jnp.ones(EXAMPLES)
    both = priors.Independent(PRIOR | prior).prepare(model, x, y, weights)
    truth = both.draw(model, keys[1])
    gram = truth.kernel.matrix(x, x, same=True) + 1e-9 * jnp.eye(EXAMPLES)
    latent = jnp.linalg.cholesky(gram) @ jax.random.normal(keys[2], (EXAMPLES,))
    noise_key, chain_key = jax.random.split(keys[3])
    if isinstance(truth.loss, losses.AbstractClassification):
        # two more examples of weight zero, since a classifier refuses labels of one class only
        y = truth.loss.sample_labels(latent, key=noise_key)
        x = jnp.concatenate([x, jnp.zeros((2, 1))])
        y = jnp.concatenate([y, jnp.array([-1.0, 1.0])])
        weights = jnp.concatenate([weights, jnp.zeros(2)])
    else:
        assert isinstance(truth.loss, losses.AbstractRegression)
        y = latent + truth.loss.sample_noise((EXAMPLES,), key=noise_key)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jsvm.sampling.SamplingWarning)
        found = jsvm.sample_jointly(
            model, x, y, key=chain_key, prior=PRIOR | prior, weights=weights, keep_draws=True,
            progress=False, **PLAN,
        )  # fmt: skip
    thinned = slice(None, None, PLAN["draws"] // (RANKS // PLAN["chains"]))
    true = jsvm.parameters(truth)
    values = {name: (draws, true[name]) for name, draws in found.parameters.items()}
    at_first = found.components(x[:1]).means.reshape(PLAN["chains"], -1)
    values["function"] = (at_first, latent[0])
    ranks = {
        name: int(np.sum(np.asarray(draws)[:, thinned] < float(value)))
        for name, (draws, value) in values.items()
    }
    rhat = max(float(value) for value in found.diagnostics.rhat.values())
    return {"ranks": ranks, "rhat": rhat}


def show(records: dict[str, Any]) -> None:
    print("| noise model | quantity | simulations | mean rank / 99 | p-value | worst R-hat |")
    print("|---" * 6 + "|")
    for kind in KINDS:
        rows = [record for key, record in records.items() if key.startswith(kind)]
        if not rows:
            continue
        worst = max(row["rhat"] for row in rows)
        for name in rows[0]["ranks"]:
            shares = (np.array([row["ranks"][name] for row in rows]) + 0.5) / (RANKS + 1)
            counts = np.histogram(shares, 10, (0, 1))[0]
            p = scipy.stats.chisquare(counts).pvalue
            print(
                f"| {kind} | {name} | {len(rows)} | {shares.mean():.3f} | {p:.3f} | {worst:.2f} |"
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="two simulations of each kind")
    parser.add_argument("--show", action="store_true", help="print the record, compute nothing")
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    if options.quick:
        options.simulations = 2
        options.output = None if options.output == RESULTS else options.output
    store = Store(options.output, "examples/benchmarks/joint_calibration.py")
    if not options.show:
        for number in range(options.simulations):
            for kind in KINDS:
                store.compute(f"{kind}/{number:03d}", partial(simulate, kind, number))
    show(store.records)


if __name__ == "__main__":
    main()

"""The Adatron, a support vector machine in ten lines, compared with `jaxsvm.fit`.

    python examples/adatron.py

With the quadratic slack penalty `1/(2v) sum xi^2` and no offset the dual problem is to maximize `W(alpha) =
sum_i alpha_i - 1/2 sum_ij y_i y_j alpha_i alpha_j (k_ij + v delta_ij)` over `alpha >= 0`. The Adatron of
Anlauf and Biehl ascends it: every alpha moves by its rate times `1 - y_i f_i`, but not below zero. In the
parallel version all move at once, with one rate that must be below twice the inverse of the largest
eigenvalue. In the sequential version each moves to its maximum, at the rate `1 / k_ii`. [OW00, sec. 8.7]
train their machines in this way. Both reduce the error by a constant factor per round. The active-set
Newton method of `jaxsvm.fit` needs a few factorizations and reaches rounding error.
"""

from typing import NamedTuple

import jax
import numpy as np

import jaxsvm as jsvm


class Trained(NamedTuple):
    """A trained machine: `alpha`, and the KKT residual and dual objective after each round."""

    alpha: np.ndarray
    residuals: list[float]
    objectives: list[float]


def adatron(
    gram: np.ndarray, y: np.ndarray, *, parallel: bool, tolerance: float, max_rounds: int = 100_000
) -> Trained:
    """Train a support vector machine with the Adatron.

    **Arguments:** `gram`, the Gram matrix with v added to its diagonal; `y`, labels; `parallel`, whether
    all examples move at once; `tolerance`, of the KKT residual, the largest `|1 - y_i f_i|`
    among support vectors and violated margins; `max_rounds`.

    **Returns:** a `Trained`.
    """
    matrix = gram * np.outer(y, y)
    alpha = np.zeros(len(y))
    # the largest eigenvalue is at most the largest row sum
    rate = 1.9 / np.max(np.sum(np.abs(matrix), axis=1))
    residuals: list[float] = []
    objectives: list[float] = []
    for _ in range(max_rounds):
        slope = 1 - matrix @ alpha
        objectives.append(float(alpha @ (1 + slope) / 2))
        wanted = np.where(alpha > 0, slope, np.maximum(slope, 0))
        residuals.append(float(np.max(np.abs(wanted))))
        if residuals[-1] <= tolerance:
            break
        if parallel:
            alpha = np.maximum(alpha + rate * slope, 0)
        else:
            for i in range(len(y)):
                alpha[i] = max(alpha[i] + (1 - matrix[i] @ alpha) / matrix[i, i], 0)
    return Trained(alpha, residuals, objectives)


def main() -> None:
    variance = 1.0  # of the slack penalty: C = 1 / v
    with jax.enable_x64(True):
        x, y = jsvm.datasets.twonorm(200, key=jax.random.key(0))
        kernel = jsvm.kernels.RBF(lengthscale=5.0)
        model = jsvm.KernelMachine(kernel, jsvm.losses.SquaredHinge(C=1 / variance))
        fit = jsvm.fit(model, x, y)
        labels = np.asarray(y)
        noisy = np.asarray(model.kernel.gram(x)) + variance * np.eye(len(labels))
        best = np.asarray(fit.dual) * labels
        optimum = float(fit.stats.objective)

        runs = {
            name: adatron(noisy, labels, parallel=parallel, tolerance=1e-6)
            for name, parallel in (("in parallel", True), ("one by one", False))
        }
        print("Adatron: KKT residual, and how far the dual objective is below its maximum")
        print("  round   " + "".join(f"{name:>24s}" for name in runs))
        longest = max(len(run.residuals) for run in runs.values())
        rounds = [
            0,
            *(2**k for k in range(longest.bit_length()) if 2**k < longest - 1),
            longest - 1,
        ]
        for i in rounds:
            cells = [
                f"{run.residuals[i]:12.1e}{optimum - run.objectives[i]:12.1e}"
                if i < len(run.residuals)
                else 24 * " "
                for run in runs.values()
            ]
            print(f"  {i:5d}   {''.join(cells)}")
        for name, run in runs.items():
            apart = np.max(np.abs(run.alpha - best))
            print(
                f"{name}: {len(run.residuals) - 1} rounds to 1e-6, alpha within {apart:.0e} of the fit"
            )
        print(
            f"jaxsvm.fit: {int(fit.stats.iterations)} Newton steps to a KKT residual of "
            f"{float(fit.stats.kkt_residual):.0e}"
        )


if __name__ == "__main__":
    main()

"""The regressions that Chu, Keerthi and Ong compare, and how each selects its hyperparameters.

The scripts `chu_*.py` share this module. The paper: "Bayesian support vector regression using a unified loss
function", IEEE Transactions on Neural Networks 15, 2004, section VII.
"""

import os
import time
from typing import Any

# several threads would only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from sets import Array

import jaxsvm as jsvm
from jaxsvm import kernels, losses

Regression = jsvm.Selection[jsvm.KernelMachine[kernels.Sum, Any]]
SEED = 2004
COARSE = (np.linspace(-0.5, 2.5, 7), np.linspace(-2.5, 0.5, 7))  # log10 of C and of kappa
FINE = np.linspace(-0.4, 0.4, 9)  # added to the best point of the coarse grid
LARGE = 2000  # from this number of examples on, two starts instead of four


def key_of(*numbers: int) -> jax.Array:
    """A key for each tuple of numbers."""
    key = jax.random.key(SEED)
    for number in numbers:
        key = jax.random.fold_in(key, number)
    return key


def standardize(x: Array, *others: Array) -> list[np.ndarray]:
    """Shift and scale all arrays with the column means and standard deviations of the first."""
    arrays = [np.asarray(array) for array in (x, *others)]
    mean, deviation = np.mean(arrays[0], axis=0), np.std(arrays[0], axis=0)
    return [(array - mean) / deviation for array in arrays]


def gaussian_noise(y: Array) -> losses.Quadratic:
    """The loss of Gaussian process regression (GPR), starting with a tenth of the variance of the targets."""
    return losses.Quadratic(0.1 * float(np.var(y)))


def by_evidence(x: Array, y: Array, **options: Any) -> tuple[Regression, jsvm.Fit, float]:
    """Train Bayesian support vector regression (BSVR) or, with `loss=`, GPR: selection, fit, seconds.

    The seconds are processor time, which does not depend on other programs. One step is run beforehand, so
    that compilation is not counted. Options are those of `jaxsvm.regression.adapt`.
    """
    if len(y) >= LARGE:
        options = {"restarts": 2, **options}
    short: dict[str, Any] = {**options, "restarts": 1, "max_steps": 1, "throw": False}
    jsvm.regression.adapt(x, y, **short).fit(throw=False)
    begin = time.process_time()
    selection = jsvm.regression.adapt(x, y, **options)
    fitted = selection.fit()
    jax.block_until_ready(fitted)
    return selection, fitted, time.process_time() - begin


def by_cross_validation(x: Array, y: Array, epsilon: float) -> tuple[Any, dict[str, Any]]:
    """Train scikit-learn's support vector regression (SVR); return it and a record of its hyperparameters.

    The search uses the paper's grids of `(log10 C, log10 kappa)`, 7 x 7 and then 9 x 9 around the best point,
    and fivefold cross-validation of the squared error: 650 evaluations. All C and folds share Gram matrices.
    """
    from scipy.spatial.distance import cdist
    from sklearn.model_selection import KFold
    from sklearn.svm import SVR

    begin = time.process_time()
    squares = cdist(x, x, "sqeuclidean")
    folds = list(KFold(5, shuffle=True, random_state=SEED).split(x))

    def total_error(gram: np.ndarray, cost: float) -> float:
        total = 0.0
        for train, test in folds:
            machine = SVR(kernel="precomputed", C=cost, epsilon=epsilon, cache_size=1000)
            machine.fit(gram[np.ix_(train, train)], y[train])
            total += np.sum((machine.predict(gram[np.ix_(test, train)]) - y[test]) ** 2)
        return float(total)

    log_costs, log_kappas = COARSE
    best = (0.0, 0.0)
    for _ in range(2):
        scores: dict[tuple[float, float], float] = {}
        for log_kappa in log_kappas:
            gram = np.exp(-(10**log_kappa) / 2 * squares)
            for log_cost in log_costs:
                scores[log_cost, log_kappa] = total_error(gram, 10**log_cost)
        best = min(scores, key=scores.__getitem__)
        log_costs, log_kappas = best[0] + FINE, best[1] + FINE
    cost, kappa = 10 ** best[0], 10 ** best[1]
    machine = SVR(C=cost, epsilon=epsilon, cache_size=1000).set_params(gamma=kappa / 2).fit(x, y)
    return machine, {
        "C": float(cost),
        "epsilon": epsilon,
        "kappa": float(kappa),
        "support": len(machine.support_),
        "seconds": round(time.process_time() - begin, 3),
    }


def errors(predicted: ArrayLike, targets: ArrayLike) -> dict[str, Any]:
    """Average absolute error (AAE) and average squared error (ASE)."""
    difference = np.asarray(predicted) - np.asarray(targets)
    return {"AAE": float(np.mean(np.abs(difference))), "ASE": float(np.mean(difference**2))}


def described(selection: Regression, fitted: jsvm.Fit, seconds: float) -> dict[str, Any]:
    """Record the hyperparameters, evidence, support vectors and seconds of a regression."""
    model = selection.model
    natural = jsvm.parameters(model)
    values = {name: float(natural[f"loss.{name}"]) for name in ("C", "epsilon", "beta")
              if f"loss.{name}" in natural}  # fmt: skip
    return values | {
        "noise_variance": float(model.loss.noise_variance),
        "kappa": (1 / np.asarray(natural["kernel.left.lengthscale"]) ** 2).tolist(),
        "kappa_b": float(natural["kernel.right.variance"]),
        "minus_log_evidence": float(selection.value),
        "free": int(jnp.sum(fitted.free)),
        "bound": int(jnp.sum(fitted.bound)),
        "steps": selection.history.steps.tolist(),
        "results": [jsvm.RESULTS(int(code)).name for code in selection.results],
        "seconds": round(seconds, 3),
    }

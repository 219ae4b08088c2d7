# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""A user's script: pyright checks it in strict mode, as users do who have their own code checked."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm as jsvm
from jaxsvm.kernels import RBF, AbstractKernel, Constant
from jaxsvm.sklearn import LSSVC, BayesianSVC, BayesianSVR

jax.config.update("jax_enable_x64", True)  # pyright: ignore[reportUnknownMemberType], as below, in JAX
rng = np.random.default_rng(0)
x = rng.normal(size=(40, 3))
y = np.where(x[:, 0] * x[:, 1] > 0, 1.0, -1.0)
ones = jnp.ones(3)  # pyright: ignore[reportUnknownMemberType]

# hyperparameters: Python numbers, lists, NumPy and JAX arrays
kernels: list[AbstractKernel] = [
    RBF(lengthscale=ones),
    RBF(np.ones(3), variance=2),
    RBF([1.0, 2.0, 3.0], np.float64(2.0)),
    jsvm.kernels.ARD(jsvm.kernels.Matern32(), np.full(3, 0.5)),
    2 * RBF() + Constant(0.1),
    sum([RBF(), Constant(ones[0])], start=jsvm.kernels.Linear() * 0.5),
]
gram: jax.Array = kernels[-1].gram(x)

# a machine knows its loss, and its loss knows its hyperparameters
model = jsvm.KernelMachine(2 * RBF(ones) + Constant(0.1), jsvm.losses.Hinge(C=ones.sum()))
penalty: jax.Array = model.loss.C
single = jsvm.losses.Hinge(C=jnp.asarray(1.0))  # pyright: ignore[reportUnknownMemberType]
wider = jsvm.replace(jsvm.freeze(model, "loss.C"), {"kernel.right.variance": 0.2})
names: list[str] = list(jsvm.parameters(wider))
lengthscale: jax.Array = RBF().lengthscale + jsvm.parameters(wider)[names[0]]

# a fit and its posterior
fitted = jsvm.fit(wider, x, y, weights=np.ones(40), class_weight="balanced")
slope: jax.Array = fitted.model.loss.C * fitted.stats.duality_gap
labels: np.ndarray[Any, np.dtype[Any]] = np.asarray(fitted.predict(x))
curve = jsvm.laplace(fitted)
mean, deviation = curve.latent(x)
probability: jax.Array = curve.probability(x, rule="average") + mean / deviation

# derivatives of a criterion
criterion = jsvm.criteria.LaplaceEvidence()
value_and_grad = jax.value_and_grad(criterion)  # pyright: ignore[reportUnknownMemberType]
value, gradient = value_and_grad(model, x, y)
step: jax.Array = value + gradient.loss.log_C

# a search, its best model, its history
best = jsvm.select(
    model, x, y, criterion, restarts=2, key=jax.random.key(0), max_steps=5,
    bounds={"loss.C": (0.01, 100.0)}, stop=jsvm.stopping.SmallGradient(1e-3),
)  # fmt: skip
chosen: jax.Array = best.model.loss.C + best.history.value[0, 0]
ensemble: jax.Array = best.ensemble("criterion").predict(x)
relevance: float = float(jsvm.relevance(best, parameter="kernel.left.right.lengthscale")[0])

# chains
posterior = jsvm.sample(best.model, x, y, key=jax.random.key(1), chains=2, warmup=50, draws=50)
average, spread = posterior.latent(x)
low, high = jsvm.laplace(jsvm.fit(jsvm.KernelMachine(RBF(), jsvm.losses.Huber()), x, y)).interval(x)

# scikit-learn's interface
classes = BayesianSVC(method="span", restarts=1, ard=False).fit(x, y).predict(x)
shares = LSSVC(kernel="matern52").fit(x, y, sample_weight=np.ones(40)).predict_proba(x).sum(axis=1)
regressor = BayesianSVR(loss="quadratic").fit(x, x[:, 0])
targets = regressor.predict(x) - classes
targets, errors = regressor.predict(x, return_std=True)
print(f"{targets[0]:.2f} +- {errors[0]:.2f}, C = {float(chosen):.3g}, {labels.shape}, {shares[0]}")

# wrong options are errors: pyright reports a comment that has nothing to ignore
if TYPE_CHECKING:
    RBF(lengthscale="long")  # pyright: ignore[reportArgumentType]
    print(model.loss.D)  # pyright: ignore
    jsvm.fit(model, x, y, class_weight="even")  # pyright: ignore[reportArgumentType]
    curve.probability(x, rule="mean")  # pyright: ignore[reportArgumentType]
    BayesianSVC(method="spam")  # pyright: ignore[reportArgumentType]
    BayesianSVR(loss="hinge")  # pyright: ignore[reportArgumentType]
    jsvm.Nystrom(20, choice="best")  # pyright: ignore[reportArgumentType]

"""The default prior: weakly informative, in units of the data."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._machine import KernelMachine
from ..hyperparameters import domain, free_parameters, owners
from ..kernels import (
    ARD,
    AbstractStationary,
    Constant,
    Custom,
    Linear,
    Product,
    Subspace,
    Transform,
    White,
)
from ._distributions import AbstractDistribution, HalfCauchy, LogitNormal, LogNormal, Normal
from ._prior import AbstractPrior, Independent

_UNKNOWN_DEVIATION = 2.0  # of leaves about which nothing is known


class Default(AbstractPrior):
    """A proper, weakly informative prior for the hyperparameters of any model, in units of the data.

    - The variance of a kernel or of an offset, in units of the targets' variance (one for labels). That of
      the weights of a `Linear` kernel, in this unit over the squared distance between points. In a product
      of kernels only the first one's variance has this unit.
    - A lengthscale, in units of the distance between points. With d inputs of standard deviations `s_a`,
      that is `sqrt(sum_a s_a^2)` for a common lengthscale, and `s_a sqrt(d)` for that of input a.
    - `C` of a loss for labels as it is, and in units of one over the targets' deviation otherwise. `epsilon`
      is in units of the targets' deviation, the variance of the noise in units of their variance.
    - Any other hyperparameter, such as those of a neural network or of a kernel on its features, has a
      Gaussian around its starting value in the unconstrained coordinate, with standard deviation 2.

    **Arguments:**

    - `variance`: the distribution of the variance of a kernel.
    - `offset`: that of the variance of a `Constant` kernel.
    - `lengthscale`: that of one lengthscale for all inputs.
    - `relevance`: that of one lengthscale for each input; by default a wide one, so that inputs without
      influence may have very long lengthscales.
    - `penalty`: that of `C` of a loss for labels.
    - `slope`: that of `C` of a loss for targets.
    - `zone`: that of `epsilon`.
    - `noise`: that of the variance of the noise, of the loss or of a `White` kernel.

    **Example:**

    >>> best = jsvm.select(
    ...     model, x, y, jsvm.criteria.LaplaceEvidence(), prior=jsvm.priors.Default(), max_steps=3
    ... )
    """

    variance: AbstractDistribution = LogNormal(4.0, 2.0)
    offset: AbstractDistribution = LogNormal(1.0, 2.0)
    lengthscale: AbstractDistribution = LogNormal(1.0, 1.0)
    relevance: AbstractDistribution = HalfCauchy(1.0)
    penalty: AbstractDistribution = LogNormal(1.0, 1.0)
    slope: AbstractDistribution = LogNormal(10.0, 2.0)
    zone: AbstractDistribution = LogNormal(0.1, 1.0)
    noise: AbstractDistribution = LogNormal(0.1, 2.0)

    def prepare(self, model: KernelMachine, x: Array, y: Array, weights: Any) -> Independent:
        spreads = _spread(x, weights)
        unit = 1.0 if model.loss.is_classifier else float(_spread(y, weights))
        distributions = {
            name: self._of_kernel(model, name, value, spreads, unit)
            if name.startswith("kernel.")
            else self._of_loss(model, name, value, unit)
            for name, value in free_parameters(model).items()
        }
        return Independent(distributions).prepare(model, x, y, weights)

    def log_density(self, model: KernelMachine) -> Array:
        raise RuntimeError("the default prior depends on the data: use what `prepare` returns")

    def _of_kernel(self, model, name: str, value, spreads: np.ndarray, unit: float):
        nodes = owners(model, name)[1:]  # without the model itself
        parts = name.split(".")[1:]
        for node, below in zip(nodes, parts, strict=True):
            if isinstance(node, Transform | Custom):
                return _around(model, name, value)  # the units of features are not known
            if isinstance(node, Subspace):
                spreads = spreads[list(node.inputs)]
            if isinstance(node, ARD) and below == "kernel":
                spreads = np.full(
                    len(spreads), len(spreads) ** -0.5
                )  # its inputs are in their units
            if isinstance(node, Product) and below == "right":
                unit = 1.0
        # the distance between points, and for each input its part in it
        distance, parts_of_it = np.sqrt(np.sum(spreads**2)), spreads * np.sqrt(len(spreads))
        size = distance if np.ndim(value) == 0 else parts_of_it
        match nodes[-1], parts[-1]:
            case AbstractStationary(), "lengthscale":
                return (self.lengthscale if np.ndim(value) == 0 else self.relevance).scaled(size)
            case ARD(), "lengthscale":
                return self.relevance.scaled(size)
            case Constant(), "variance":
                return self.offset.scaled(unit**2)
            case White(), "variance":
                return self.noise.scaled(unit**2)
            case Linear(), "variance":
                return self.variance.scaled((unit / size) ** 2)
            case AbstractStationary(), "variance":
                return self.variance.scaled(unit**2)
        return _around(model, name, value)

    def _of_loss(self, model, name: str, value, unit: float) -> AbstractDistribution:
        field = name.rsplit(".", 1)[-1]
        if field == "C":
            return self.penalty if model.loss.is_classifier else self.slope.scaled(1 / unit)
        if field == "epsilon":
            return self.zone.scaled(unit)
        if field == "noise_variance":
            return self.noise.scaled(unit**2)
        return _around(model, name, value)


def _around(model: KernelMachine, name: str, value: Array) -> AbstractDistribution:
    """A Gaussian in the unconstrained coordinate, around the present value."""
    lower, upper = domain(model, name)
    if lower < 0:
        return Normal(value, _UNKNOWN_DEVIATION)
    if np.isfinite(upper):
        return LogitNormal(value, _UNKNOWN_DEVIATION, upper)
    return LogNormal(value, _UNKNOWN_DEVIATION)


def _spread(values: Array, weights: Array) -> np.ndarray:
    """The weighted standard deviation of each column; one for a column that is constant but for rounding."""
    shape = (-1,) + (1,) * (values.ndim - 1)
    shares = (weights / jnp.sum(weights)).reshape(shape)
    mean = jnp.sum(shares * values, axis=0, keepdims=True)
    centered = jnp.where(shares > 0, values - mean, 0.0)
    spread = np.asarray(jnp.sqrt(jnp.sum(shares * centered**2, axis=0)))
    rounding = len(values) * jnp.finfo(values.dtype).eps * np.abs(np.asarray(mean[0]))
    return np.where(spread > rounding, spread, 1.0)

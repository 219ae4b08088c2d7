"""Probability densities of hyperparameters in natural units."""

import abc
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..runtime import is_traced

# NumPy's until a computation needs them, so that defaults do not depend on the precision when they were made
Numbers = Float[Array | np.ndarray, "..."] | float


class AbstractDistribution(eqx.Module):
    """The density of a hyperparameter in natural units; entries of a vector are independent."""

    @property
    @abc.abstractmethod
    def support(self) -> tuple[float, Numbers]:
        """The ends of the open interval of possible values."""

    @abc.abstractmethod
    def log_density(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        """The normalized log density of each value.

        **Arguments:** `values`, in natural units.

        **Returns:** one number for each value.
        """

    @abc.abstractmethod
    def quantile(self, share: Float[Array, "..."]) -> Float[Array, "..."]:
        """The value below which lies a given share of the probability.

        **Arguments:** `share`, between zero and one.

        **Returns:** one value for each share.
        """

    @abc.abstractmethod
    def scaled(self, unit: Numbers) -> Self:
        """The distribution of `unit` times the hyperparameter.

        **Arguments:** `unit`, positive: one number, or one for each entry.

        **Returns:** a distribution of the same kind.
        """


class LogNormal(AbstractDistribution):
    """`ln v ~ N(ln median, deviation^2)`.

    **Arguments:** `median`, positive, one number or one for each entry; `deviation`, that of the
    logarithm, positive.
    """

    median: Numbers
    deviation: Numbers

    def __init__(self, median: ArrayLike = 1.0, deviation: ArrayLike = 1.0):
        self.median = _positive("median", median)
        self.deviation = _positive("deviation", deviation)

    @property
    def support(self) -> tuple[float, Numbers]:
        return 0.0, np.inf

    def log_density(self, values: Array) -> Array:
        logs = jnp.log(values)
        normal = jax.scipy.stats.norm.logpdf(logs, jnp.log(self.median), self.deviation)
        return normal - logs

    def quantile(self, share: Array) -> Array:
        return jnp.asarray(self.median) * jnp.exp(self.deviation * jax.scipy.special.ndtri(share))

    def scaled(self, unit: Numbers) -> Self:
        return type(self)(self.median * unit, self.deviation)


class HalfCauchy(AbstractDistribution):
    """`p(v) = 2 / (pi scale (1 + (v / scale)^2))` for positive v.

    The reciprocal of a half-Cauchy variable is half-Cauchy. So as a prior of lengthscales this is the
    half-Cauchy shrinkage of relevances `1 / lengthscale` that the horseshoe begins with: most inputs matter
    little, and a few may matter much (Carvalho, Polson and Scott, "The horseshoe estimator for sparse
    signals", 2010).

    **Arguments:** `scale`, the median, positive, one number or one for each entry.
    """

    scale: Numbers

    def __init__(self, scale: ArrayLike = 1.0):
        self.scale = _positive("scale", scale)

    @property
    def support(self) -> tuple[float, Numbers]:
        return 0.0, np.inf

    def log_density(self, values: Array) -> Array:
        # squares of very large values would overflow
        logs = jnp.log(values) - jnp.log(self.scale)
        return jnp.log(2 / jnp.pi) - jnp.log(self.scale) - jnp.logaddexp(0.0, 2 * logs)

    def quantile(self, share: Array) -> Array:
        return jnp.asarray(self.scale) * jnp.tan(jnp.pi * share / 2)

    def scaled(self, unit: Numbers) -> Self:
        return type(self)(self.scale * unit)


class LogitNormal(AbstractDistribution):
    """`logit(v / end) ~ N(logit(median / end), deviation^2)`, for hyperparameters between zero and `end`.

    **Arguments:** `median`, between zero and `end`, one number or one for each entry; `deviation`, that of
    the logit, positive; `end`, positive.
    """

    median: Numbers
    deviation: Numbers
    end: Numbers

    def __init__(self, median: ArrayLike = 0.5, deviation: ArrayLike = 1.0, end: ArrayLike = 1.0):
        self.median = _positive("median", median)
        self.deviation = _positive("deviation", deviation)
        self.end = _positive("end", end)
        known = not (is_traced(self.median) or is_traced(self.end))
        if known and not np.all(self.median < self.end):
            raise ValueError(f"`median` must be below `end` = {self.end}, but is {self.median}")

    @property
    def support(self) -> tuple[float, Numbers]:
        return 0.0, self.end

    def log_density(self, values: Array) -> Array:
        share = values / self.end
        normal = jax.scipy.stats.norm.logpdf(_logit(share), self._center, self.deviation)
        return normal - jnp.log(share) - jnp.log1p(-share) - jnp.log(self.end)

    def quantile(self, share: Array) -> Array:
        logit = self._center + self.deviation * jax.scipy.special.ndtri(share)
        return jnp.asarray(self.end) * jax.nn.sigmoid(logit)

    def scaled(self, unit: Numbers) -> Self:
        return type(self)(self.median * unit, self.deviation, self.end * unit)

    @property
    def _center(self) -> Array:
        return _logit(jnp.asarray(self.median / self.end))


def _logit(share: Array) -> Array:
    return jnp.log(share) - jnp.log1p(-share)


class Normal(AbstractDistribution):
    """`v ~ N(mean, deviation^2)`, for hyperparameters of any sign.

    **Arguments:** `mean`, one number or one for each entry; `deviation`, positive.
    """

    mean: Numbers
    deviation: Numbers

    def __init__(self, mean: ArrayLike = 0.0, deviation: ArrayLike = 1.0):
        self.mean = _finite("mean", mean)
        self.deviation = _positive("deviation", deviation)

    @property
    def support(self) -> tuple[float, Numbers]:
        return -np.inf, np.inf

    def log_density(self, values: Array) -> Array:
        return jax.scipy.stats.norm.logpdf(values, self.mean, self.deviation)

    def quantile(self, share: Array) -> Array:
        return jnp.asarray(self.mean) + jnp.asarray(self.deviation) * jax.scipy.special.ndtri(share)

    def scaled(self, unit: Numbers) -> Self:
        return type(self)(self.mean * unit, self.deviation * unit)


def _finite(name: str, value: Any) -> Any:
    if is_traced(value):
        return value
    array = np.asarray(value, float)
    if not np.isfinite(array).all():
        raise ValueError(f"`{name}` must be finite, but is {array}")
    return array


def _positive(name: str, value: Any) -> Any:
    array = _finite(name, value)
    if not is_traced(array) and not (array > 0).all():
        raise ValueError(f"`{name}` must be positive, but is {array}")
    return array

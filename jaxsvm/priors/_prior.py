"""Priors of all hyperparameters of a model, as densities of its unconstrained leaves."""

import abc
from collections.abc import Callable, Mapping
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._machine import KernelMachine
from ..hyperparameters import (
    domain,
    free_parameters,
    frozen,
    leaves,
    log_slopes,
    matching,
    parameters,
    replace,
)
from ..runtime import is_traced
from ..validation import check_number
from ._distributions import AbstractDistribution


class AbstractPrior(eqx.Module):
    """A prior of the hyperparameters that are not frozen.

    Its density is that of the unconstrained leaves. The leaf of a positive hyperparameter is its logarithm,
    so a mode of the posterior does not depend on the units, and neither does a sampler.
    """

    @abc.abstractmethod
    def prepare(
        self, model: KernelMachine, x: Float[Array, "n d"], y: Float[Array, " n"], weights: Any
    ) -> "AbstractPrior":
        """The prior with everything that depends on the data, and on which hyperparameters are frozen.

        **Arguments:** `model`, where a search begins; `x`, `y`, `weights`, the data.

        **Returns:** a prior.
        """

    @abc.abstractmethod
    def log_density(self, model: KernelMachine) -> Float[Array, ""]:
        """The log density of the leaves of a model.

        **Arguments:** `model`.

        **Returns:** a number.
        """


class Independent(AbstractPrior):
    """Independent distributions of hyperparameters in natural units.

    Hyperparameters that are not named have no prior: the density of their leaves is one.

    **Arguments:** `distributions`, a mapping such as `{"loss.C": priors.LogNormal(1.0, 0.7)}`. A name
    stands for a hyperparameter, or for all below it.

    **Example:**

    >>> prior = jsvm.priors.Independent({"loss.C": jsvm.priors.LogNormal(1.0, 0.7)})
    >>> best = jsvm.select(
    ...     model, x, y, jsvm.criteria.LaplaceEvidence(), prior=prior, max_steps=3
    ... )
    """

    distributions: dict[str, AbstractDistribution]

    def __init__(self, distributions: Mapping[str, AbstractDistribution]):
        for name, distribution in distributions.items():
            if not isinstance(distribution, AbstractDistribution):
                raise TypeError(
                    f"the prior of `{name}` must be a distribution such as `priors.LogNormal(1.0, 0.7)`, "
                    f"not {distribution!r}"
                )
        self.distributions = dict(distributions)

    def prepare(self, model: KernelMachine, x: Array, y: Array, weights: Any) -> "Independent":
        fixed, values = frozen(model), parameters(model)
        chosen: dict[str, AbstractDistribution] = {}
        for name, distribution in self.distributions.items():
            for full in matching(model, [name]):
                if full in chosen:
                    raise ValueError(f"`{full}` has two priors: name it, or what is above it, once")
                _check_domain(full, domain(model, full), distribution)
                _check_shape(full, values[full], distribution)
                if full not in fixed:
                    chosen[full] = distribution
        return Independent(chosen)

    def log_density(self, model: KernelMachine) -> Array:
        values, slopes = parameters(model), log_slopes(model)
        parts = [
            jnp.sum(distribution.log_density(values[name]) + slopes[name])
            for name, distribution in self.distributions.items()
        ]
        return sum(parts, start=jnp.zeros(()))

    def draw(self, model: KernelMachine, key: PRNGKeyArray) -> KernelMachine:
        """A model whose hyperparameters are drawn from the prior; those without a prior keep their values.

        **Arguments:** `model`; `key`, a random key.

        **Returns:** a model.
        """
        values = parameters(model)
        drawn = {
            name: distribution.quantile(
                jax.random.uniform(jax.random.fold_in(key, number), values[name].shape)
            )
            for number, (name, distribution) in enumerate(self.distributions.items())
        }
        return replace(model, drawn)


def _check_domain(name: str, ends: tuple[float, float], distribution: AbstractDistribution) -> None:
    lower, upper = ends
    lowest, highest = distribution.support
    kind = type(distribution).__name__
    if lowest < lower:
        raise ValueError(
            f"`{name}` is positive, so its prior cannot be a {kind}: use `priors.LogNormal`, "
            "`priors.HalfCauchy` or `priors.LogitNormal`"
        )
    if lowest > lower:
        raise ValueError(
            f"`{name}` may be negative, but the values of its prior, a {kind}, are positive: use "
            "`priors.Normal`"
        )
    if not is_traced(highest) and np.any(np.asarray(highest) < upper):
        raise ValueError(
            f"`{name}` may be as large as {upper:g}, but its prior, a {kind}, ends at "
            f"{np.max(highest):g}: use `priors.LogNormal`, or a larger `end`"
        )


def _check_shape(name: str, value: Array, distribution: AbstractDistribution) -> None:
    shape = jax.eval_shape(distribution.log_density, value).shape
    if shape != value.shape:
        raise ValueError(
            f"`{name}` has shape {value.shape}, but its prior has numbers for shape {shape}"
        )


class Around(AbstractPrior):
    """Independent Gaussians around the leaves of the model where a search begins.

    For a positive hyperparameter, `deviation` is that of its logarithm.

    **Arguments:** `deviation`, positive; `center`, a model, by default the one where the search begins.
    """

    deviation: float = eqx.field(static=True)
    center: KernelMachine | None

    def __init__(self, deviation: float = 2.0, center: KernelMachine | None = None):
        check_number("deviation", deviation, above=0)
        self.deviation = float(deviation)
        self.center = center

    def prepare(self, model: KernelMachine, x: Array, y: Array, weights: Any) -> "_AroundLeaves":
        return self._at(model)

    def _at(self, model: KernelMachine) -> "_AroundLeaves":
        center = leaves(model if self.center is None else self.center)
        missing = [name for name in free_parameters(model) if name not in center]
        if missing:
            raise ValueError(f"`center` has no {', '.join(f'`{name}`' for name in missing)}")
        means = {name: center[name] for name in free_parameters(model)}
        return _AroundLeaves(self.deviation, means)

    def log_density(self, model: KernelMachine) -> Array:
        if self.center is None:
            raise RuntimeError(
                "this prior depends on where a search begins: use what `prepare` returns"
            )
        return self._at(model).log_density(model)


class _AroundLeaves(AbstractPrior):
    """Gaussians around the leaves of the hyperparameters that are free."""

    deviation: float = eqx.field(static=True)
    means: dict[str, Float[Array, "..."]]

    def prepare(self, model: KernelMachine, x: Array, y: Array, weights: Any) -> Self:
        return self

    def log_density(self, model: KernelMachine) -> Array:
        values = leaves(model)
        parts = [
            jnp.sum(jax.scipy.stats.norm.logpdf(values[name], mean, self.deviation))
            for name, mean in self.means.items()
        ]
        return sum(parts, start=jnp.zeros(()))


class Custom(AbstractPrior):
    """A prior given by a function of the model.

    **Arguments:** `function`, which returns the log density of the unconstrained leaves of a model. The
    leaf of a positive hyperparameter is its logarithm, so a density in natural units needs the Jacobian.
    """

    function: Callable[[Any], Any] = eqx.field(static=True)

    def prepare(self, model: KernelMachine, x: Array, y: Array, weights: Any) -> Self:
        return self

    def log_density(self, model: KernelMachine) -> Array:
        return self.function(model)


def as_prior(prior: Any) -> AbstractPrior:
    """A prior, a mapping for `Independent`, or a function for `Custom`, as a prior.

    **Arguments:** `prior`.

    **Returns:** an `AbstractPrior`.
    """
    if isinstance(prior, AbstractPrior):
        return prior
    if isinstance(prior, Mapping):
        return Independent(prior)
    if callable(prior):
        return Custom(prior)
    raise TypeError(
        "`prior` must be one of `jaxsvm.priors`, a mapping from names to distributions, or a function "
        f"that takes a model and returns a log density, not a {type(prior).__name__}"
    )


def unnamed(prior: AbstractPrior, model: KernelMachine) -> tuple[str, ...]:
    """The free hyperparameters without a prior.

    **Arguments:** `prior`, prepared; `model`.

    **Returns:** their names; none for a prior that is not `Independent`.
    """
    if not isinstance(prior, Independent):
        return ()
    return tuple(name for name in free_parameters(model) if name not in prior.distributions)

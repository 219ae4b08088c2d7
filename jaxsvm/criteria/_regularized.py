"""A prior over hyperparameters, added to a criterion."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._machine import KernelMachine
from .._parameters import matching, parameters, replace
from .._results import RESULTS
from ..runtime import filter_jit
from ..validation import as_weights, check_number
from ._base import AbstractCriterion, evaluation, is_usable
from ._laplace import LaplaceEvidence
from ._objective import AbstractObjective, Traits
from .priors import AbstractPrior, Laplace, is_active, relevance

FAR = 1e15  # the lengthscale of an input without influence: finite in any precision, and so its gradient


def _natural(values):
    return values


class Regularized(AbstractCriterion):
    """A criterion Q with a prior over some hyperparameters: `zeta Q + xi Omega`.

    Q may be any objective of a search. One whose values are not known, such as the sampled evidence
    (`jaxsvm.evidence.Sampled`), needs `zeta`: its gradient and the prior's are added.

    A weight that is not given is integrated out with Jeffreys' prior: `zeta Q` becomes `n/2 ln Q`, and
    `xi Omega` becomes `power ln Omega`, with power `d/2` for the `Gaussian` prior of d values. With
    neither given this is [CT07, eq. 15]; with both, eq. 14. Differentiable where the criterion is.

    Only the weight of a positive criterion can be integrated out. For one that is a negative log
    likelihood by itself, such as `LaplaceEvidence`, give `zeta=1`. A prior that is a plain function (minus
    a log density, such as `priors.log_normal`) has weights one unless others are given.

    **Arguments:**

    - `criterion`: what is regularized, such as `PRESS()` or `jaxsvm.evidence.Sampled()`.
    - `prior`: `priors.Gaussian()`, `priors.Laplace()`, or a function of the vector of values.
    - `on`: the name of the hyperparameters that have the prior, or several names.
    - `transform`: what is applied to them, in natural units, before; the paper's prior is on the
      relevances of the inputs, `on="kernel.lengthscale", transform=priors.relevance`.
    - `zeta`, `xi`: weights, positive, or None.
    """

    criterion: AbstractObjective
    prior: AbstractPrior | Callable = eqx.field(static=True)
    on: tuple[str, ...] = eqx.field(static=True)
    transform: Callable = eqx.field(static=True)
    zeta: float | None = eqx.field(static=True)
    xi: float | None = eqx.field(static=True)

    def __init__(
        self,
        criterion: AbstractObjective,
        prior: AbstractPrior | Callable[[Float[Array, " k"]], Float[Array, ""]],
        on: str | Sequence[str] = "kernel.lengthscale",
        transform: Callable = _natural,
        zeta: float | None = None,
        xi: float | None = None,
    ):
        if not isinstance(criterion, AbstractObjective):
            raise TypeError(f"`criterion` must be a criterion, not {type(criterion).__name__}")
        if not callable(prior) and not isinstance(prior, AbstractPrior):
            raise TypeError("`prior` must be one of `criteria.priors`, or a function of the values")
        for name, weight in (("zeta", zeta), ("xi", xi)):
            if weight is not None:
                check_number(name, weight, above=0)
        plain = not isinstance(prior, AbstractPrior)
        self.criterion = criterion
        self.prior = prior
        self.on = (on,) if isinstance(on, str) else tuple(on)
        self.transform = transform
        self.zeta = 1.0 if plain and zeta is None else zeta
        self.xi = 1.0 if plain and xi is None else xi

    def check(self, model, x, y):
        """The parameters that have the prior must be there, and the criterion must be positive."""
        matching(model, self.on)
        if self.zeta is None and isinstance(self.criterion, LaplaceEvidence):
            raise ValueError(
                "`LaplaceEvidence` is a negative log likelihood, which can be negative: its weight cannot "
                "be integrated out. Give `zeta=1`"
            )
        if self.zeta is None and not self.criterion.traits.has_value:
            raise ValueError(
                "the sampled evidence has a gradient but no value, so its weight cannot be integrated out. "
                "Give `zeta=1`"
            )
        self.criterion.check(model, x, y)

    def values(self, model: KernelMachine) -> Float[Array, " k"]:
        """The values that have the prior, as one vector.

        **Arguments:** `model`, the kernel machine.

        **Returns:** a vector.
        """
        named = parameters(model)
        chosen = [jnp.ravel(self.transform(named[name])) for name in matching(model, self.on)]
        return jnp.concatenate(chosen)

    @property
    def traits(self) -> Traits:
        """Those of what is regularized."""
        return self.criterion.traits

    def prepare(self, model, data, key):
        """The same prior on the prepared objective."""
        return eqx.tree_at(
            lambda own: own.criterion, self, self.criterion.prepare(model, data, key)
        )

    def init(self, model, data, key):
        """The memory of what is regularized."""
        return self.criterion.init(model, data, key)

    def observe(self, model, data, memory, key):
        """What is regularized, weighted, plus the penalty: values, gradients and standard errors."""
        seen = self.criterion.observe(model, data, memory, key)
        value, result = self._data_part(seen.value, seen.result, data.weights)
        slope = self.zeta
        if slope is None:
            slope = jnp.sum(data.weights) / (2 * seen.value)
        penalty, pull = jax.value_and_grad(
            lambda model: self._penalty(self.values(data.complete(model)))
        )(model)
        errors = seen.standard_error
        if errors is not None:
            errors = jax.tree.map(lambda error: slope * error, errors)
        gradient = jax.tree.map(lambda g, p: slope * g + p, seen.gradient, pull)
        return seen._replace(
            value=value + penalty, gradient=gradient, standard_error=errors, result=result
        )

    def compare(self, model, data, key):
        """The value for what is regularized, weighted, plus the penalty."""
        value = jnp.asarray(self.criterion.compare(model, data, key))
        value, _ = self._data_part(value, jnp.zeros((), jnp.int32), data.weights)
        return float(value + self._penalty(self.values(data.complete(model))))

    def problems(self, model, info, end):
        """Those of what is regularized."""
        return self.criterion.problems(model, info, end)

    def evaluate(self, model, x, y, weights, memory=None):
        """The criterion of the model plus the penalty of the values."""
        if not isinstance(self.criterion, AbstractCriterion):
            raise TypeError(
                f"{type(self.criterion).__name__} has a gradient but no value: pass it to `jaxsvm.select`, "
                "or estimate the value by `jaxsvm.log_evidence`"
            )
        seen = self.criterion.evaluate(model, x, y, weights, memory)
        value, result = self._data_part(seen.value, seen.result, weights)
        return evaluation(value + self._penalty(self.values(model)), result, seen.memory)

    def _data_part(self, value, result, weights):
        """The weighted criterion, and what became of it."""
        if self.zeta is not None:
            return self.zeta * value, result
        not_positive = is_usable(result) & (value <= 0)
        result = jnp.where(not_positive, RESULTS.not_positive, result)
        return jnp.sum(weights) / 2 * jnp.log(value), result

    def _penalty(self, values):
        if not isinstance(self.prior, AbstractPrior):
            return self.xi * self.prior(values)
        omega = self.prior.penalty(values)
        if self.xi is not None:
            return self.xi * omega
        return self.prior.power(values) * jnp.log(omega)


def prune(
    criterion: Regularized, model: KernelMachine, x: Any, y: Any, *, weights: Any = None
) -> tuple[KernelMachine, np.ndarray]:
    """Switch off the inputs that a Laplace prior over relevances makes exactly zero.

    An input is pruned if, with its relevance at zero, the criterion Q is less sensitive to it than the
    prior, `-dQ/deta_i < xi / zeta` with the effective weights `xi = N / Omega`, `zeta = n / 2Q` (n is the
    sum of the weights), and if the regularized criterion (at an unchanged N) gets no worse. Inputs are
    tried one after the other, the least relevant first [CT07, sec. 4.2]. Select again afterwards, which
    leaves pruned inputs as they are whatever its bounds, and prune again, until nothing changes.

    **Arguments:** `criterion`, `Regularized` with `priors.Laplace()` on the relevances of one
    parameter with one lengthscale for each input; `model`; `x`, `y`, `weights`, the data.

    **Returns:** the model, with pruned lengthscales at 1e15, and which inputs are pruned.
    """
    is_laplace = isinstance(criterion, Regularized) and isinstance(criterion.prior, Laplace)
    if not is_laplace or criterion.transform is not relevance or len(criterion.on) != 1:
        raise ValueError(
            "pruning needs Regularized(..., priors.Laplace(), on=<one name>, transform=priors.relevance)"
        )
    names = matching(model, criterion.on)
    if len(names) != 1:
        raise ValueError(
            f"pruning needs a prior on one parameter, but `{criterion.on[0]}` stands for several: "
            f"{', '.join(names)}"
        )
    name = names[0]
    if parameters(model)[name].ndim != 1:
        raise ValueError(f"pruning needs one `{name}` for each input")
    relevances = np.array(criterion.values(model))
    examples = float(np.sum(np.asarray(as_weights(weights, len(y), float))))

    def slopes_at(values):
        inner = criterion.criterion
        q, slopes = _value_and_slopes(jnp.asarray(values), inner, model, name, x, y, weights)
        return float(q), np.asarray(slopes)

    # at a fixed count: densities over spaces that differ do not compare
    def total(q, values, count):
        data_part = examples / 2 * np.log(q) if criterion.zeta is None else criterion.zeta * q
        omega = values.sum()
        return data_part + (count * np.log(omega) if criterion.xi is None else criterion.xi * omega)

    q, _ = slopes_at(relevances)
    for index in np.argsort(relevances):
        count = int(np.sum(is_active(relevances)))
        if not is_active(relevances)[index] or count == 1:
            continue
        trial = relevances.copy()
        trial[index] = 0.0
        trial_q, slopes = slopes_at(trial)
        zeta = examples / (2 * trial_q) if criterion.zeta is None else criterion.zeta
        xi = (count - 1) / trial.sum() if criterion.xi is None else criterion.xi
        insensitive = -slopes[index] < xi / zeta
        if insensitive and total(trial_q, trial, count) <= total(q, relevances, count):
            q, relevances = trial_q, trial
    pruned = ~is_active(relevances)
    lengthscales = np.where(pruned, FAR, np.asarray(parameters(model)[name]))
    return replace(model, {name: lengthscales}), pruned


@filter_jit
def _value_and_slopes(relevances, criterion, model, name, x, y, weights):
    """Q, and its derivatives with respect to the relevances, those at zero included."""

    def value(relevances):
        safe = relevances + 1e-24  # no relevance at all, but unlike zero it has a lengthscale
        return criterion(replace(model, {name: 1 / jnp.sqrt(2 * safe)}), x, y, weights=weights)

    return jax.value_and_grad(value)(relevances)

"""A prior over hyperparameters, added to a criterion."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._machine import KernelMachine
from ..hyperparameters import matching, parameters, replace
from ..priors import (
    AbstractPenalty,
    AbstractPrior,
    FunctionPenalty,
    LaplacePenalty,
    is_active,
    relevance,
)
from ..results import RESULTS
from ..runtime import filter_jit
from ..validation import as_weights, check_number
from ._criterion import (
    AbstractCriterion,
    AbstractObjective,
    Data,
    Evaluation,
    Observation,
    Traits,
    evaluation,
    is_usable,
)

PRUNED_LENGTHSCALE = (
    1e15  # of an input without influence; it and its gradient are finite in any precision
)


def _natural(values):
    return values


class Regularized(AbstractCriterion):
    """A criterion Q with a prior of some hyperparameters: `zeta Q + xi Omega`.

    Q may be any objective of a search. If it has a gradient but no value, as the sampled evidence
    (`jaxsvm.evidence.Sampled`), the gradients are added.

    There are two kinds of priors. One of all hyperparameters, such as `jaxsvm.priors.Default()`, has
    `Omega = -ln p(leaves)`; then `select(..., prior=)` is shorter. By default its weight is one, and that of
    Q makes it a log likelihood: one for the evidence, n for a mean over n examples, and `n/2 ln Q` for PRESS,
    a mean of squares whose scale is integrated out.

    A penalty on some `values` (`priors.GaussianPenalty()`, `priors.LaplacePenalty()`) has a scale of its
    own. A weight that is None is integrated out with Jeffreys' prior: `zeta Q` becomes `n/2 ln Q`, and
    `xi Omega` becomes `power ln Omega`, with power `d/2` for the `GaussianPenalty` of d values. With both
    None this is [CT07, eq. 15]; with neither, eq. 14. It is differentiable wherever the criterion is. Only
    the weight of a positive criterion can be integrated out: for a negative log likelihood, such as
    `LaplaceEvidence`, set `zeta=1`. With a plain function of the values both weights are one by default.

    **Arguments:**

    - `criterion`: the criterion to regularize, such as `PRESS()` or `jaxsvm.evidence.Sampled()`.
    - `prior`: a prior or a penalty of `jaxsvm.priors`, or a function of the vector of values.
    - `on`: for a penalty or a function, the name of its hyperparameters, or several names.
    - `transform`: a function that is applied to them first, in natural units; the paper's penalty is on the
      relevances of the inputs, `on="kernel.lengthscale", transform=priors.relevance`.
    - `zeta`, `xi`: positive weights, or None.
    """

    criterion: AbstractObjective
    prior: AbstractPenalty | AbstractPrior
    on: tuple[str, ...] = eqx.field(static=True)
    transform: Callable = eqx.field(static=True)
    zeta: float | None = eqx.field(static=True)
    xi: float | None = eqx.field(static=True)

    def __init__(
        self,
        criterion: AbstractObjective,
        prior: AbstractPenalty | AbstractPrior | Callable[[Float[Array, " k"]], Float[Array, ""]],
        on: str | Sequence[str] = "kernel.lengthscale",
        transform: Callable[..., Any] = _natural,
        zeta: float | None = None,
        xi: float | None = None,
    ):
        if not isinstance(criterion, AbstractObjective):
            raise TypeError(f"`criterion` must be a criterion, not {type(criterion).__name__}")
        for name, weight in (("zeta", zeta), ("xi", xi)):
            if weight is not None:
                check_number(name, weight, above=0)
        if not isinstance(prior, AbstractPenalty | AbstractPrior):
            if not callable(prior):
                raise TypeError(
                    "`prior` must be one of `jaxsvm.priors`, or a function of the values"
                )
            prior = FunctionPenalty(prior)
        if isinstance(prior, FunctionPenalty):
            zeta, xi = (1.0 if weight is None else weight for weight in (zeta, xi))
        self.criterion = criterion
        self.prior = prior
        self.on = (on,) if isinstance(on, str) else tuple(on)
        self.transform = transform
        self.zeta = zeta
        self.xi = xi

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        if isinstance(self.prior, AbstractPenalty):
            matching(model, self.on)
            if self.zeta is None:
                self._require_positive_value()
        self.criterion.check(model, x, y)

    def _require_positive_value(self) -> None:
        if not self.criterion.traits.has_value:
            raise ValueError(
                "the sampled evidence has a gradient but no value, so its weight cannot be integrated out. "
                "Set `zeta=1`"
            )
        if self.criterion.traits.scale == "total":
            raise ValueError(
                f"`{type(self.criterion).__name__}` is a negative log likelihood, which can be negative: "
                "its weight cannot be integrated out. Set `zeta=1`"
            )

    def values(self, model: KernelMachine) -> Float[Array, " k"]:
        """The values that have the penalty, as one vector.

        **Arguments:** `model`, the kernel machine.

        **Returns:** a vector.
        """
        named = parameters(model)
        vectors = [jnp.ravel(self.transform(named[name])) for name in matching(model, self.on)]
        return jnp.concatenate(vectors)

    @property
    def traits(self) -> Traits:
        return self.criterion.traits._replace(scale="total")

    def prepare(self, model: KernelMachine, data: Data, key: Any) -> Self:
        prior = self.prior
        if isinstance(prior, AbstractPrior):
            prior = prior.prepare(model, data.x, data.y, data.weights)
        criterion = self.criterion.prepare(model, data, key)
        return type(self)(criterion, prior, self.on, self.transform, self.zeta, self.xi)

    def init(self, model: KernelMachine, data: Data, key: Any) -> Any:
        return self.criterion.init(model, data, key)

    def observe(self, model: KernelMachine, data: Data, memory: Any, key: Any) -> Observation:
        observed = self.criterion.observe(model, data, memory, key)
        (value, result), slope = jax.value_and_grad(self._data_part, has_aux=True)(
            observed.value, observed.result, data.weights
        )
        penalty, pull = jax.value_and_grad(lambda model: self._penalty(data.complete(model)))(model)
        errors = observed.standard_error
        if errors is not None:
            errors = jax.tree.map(lambda error: slope * error, errors)

        def with_prior(gradient):
            return jax.tree.map(lambda g, p: slope * g + p, gradient, pull)

        chains = observed.by_chain
        return observed._replace(
            value=value + penalty,
            gradient=with_prior(observed.gradient),
            standard_error=errors,
            result=result,
            by_chain=None if chains is None else jax.vmap(with_prior)(chains),
        )

    def compare(self, model: KernelMachine, data: Data, key: Any) -> float:
        value = jnp.asarray(self.criterion.compare(model, data, key))
        value, _ = self._data_part(value, jnp.zeros((), jnp.int32), data.weights)
        return float(value + self._penalty(data.complete(model)))

    def problems(
        self, model: KernelMachine, info: Mapping[str, np.ndarray], end: int
    ) -> tuple[str, ...]:
        return self.criterion.problems(model, info, end)

    def evaluate(self, model: KernelMachine, data: Data, memory: Any = None) -> Evaluation:
        if not isinstance(self.criterion, AbstractCriterion):
            raise TypeError(
                f"{type(self.criterion).__name__} has a gradient but no value: pass it to `jaxsvm.select`, "
                "or estimate the value with `jaxsvm.log_evidence`"
            )
        inner = self.criterion.evaluate(model, data, memory)
        value, result = self._data_part(inner.value, inner.result, data.weights)
        return evaluation(value + self._penalty(model), result, inner.memory)

    def _data_part(self, value, result, weights):
        """The weighted criterion and its result code."""
        if self.zeta is not None:
            return self.zeta * value, result
        scale = self.criterion.traits.scale
        if isinstance(self.prior, AbstractPenalty) or scale == "squares":
            not_positive = is_usable(result) & (value <= 0)
            result = jnp.where(not_positive, RESULTS.not_positive, result)
            return jnp.sum(weights) / 2 * jnp.log(value), result
        return (value if scale == "total" else jnp.sum(weights) * value), result

    def _penalty(self, model):
        if isinstance(self.prior, AbstractPrior):
            density = self.prior.log_density(model)
            return -density if self.xi is None else -self.xi * density
        values = self.values(model)
        omega = self.prior.penalty(values)
        if self.xi is not None:
            return self.xi * omega
        return self.prior.power(values) * jnp.log(omega)


def prune(
    criterion: Regularized, model: KernelMachine, x: Any, y: Any, *, weights: Any = None
) -> tuple[KernelMachine, np.ndarray]:
    """Remove the inputs whose relevance a Laplace prior makes exactly zero.

    An input is pruned if two conditions hold with its relevance at zero. First, the criterion Q is less
    sensitive to it than the prior: `-dQ/deta_i < xi / zeta` with the effective weights `xi = N / Omega`,
    `zeta = n / 2Q` (n is the sum of the weights). Second, the regularized criterion, at an unchanged N,
    does not increase. Inputs are tried one after the other, the least relevant first [CT07, sec. 4.2].
    Then select again, which leaves pruned inputs unchanged despite any bounds, and prune again, until
    nothing changes.

    **Arguments:** `criterion`, `Regularized` with `priors.LaplacePenalty()` on the relevances of one
    parameter with one lengthscale for each input; `model`; `x`, `y`, `weights`, the data.

    **Returns:** the model, with pruned lengthscales at 1e15, and which inputs are pruned.
    """
    is_laplace = isinstance(criterion, Regularized) and isinstance(criterion.prior, LaplacePenalty)
    if not is_laplace or criterion.transform is not relevance or len(criterion.on) != 1:
        raise ValueError(
            "pruning needs Regularized(..., priors.LaplacePenalty(), on=<one name>, "
            "transform=priors.relevance)"
        )
    names = matching(model, criterion.on)
    if len(names) != 1:
        raise ValueError(
            f"pruning needs a prior on one parameter, but `{criterion.on[0]}` matches several: "
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

    # at a fixed count, since densities over different spaces are not comparable
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
    lengthscales = np.where(pruned, PRUNED_LENGTHSCALE, np.asarray(parameters(model)[name]))
    return replace(model, {name: lengthscales}), pruned


@filter_jit
def _value_and_slopes(relevances, criterion, model, name, x, y, weights):
    """Q and its derivatives with respect to the relevances, including those that are zero."""

    def value(relevances):
        safe = relevances + 1e-24  # negligible, but unlike zero it has a finite lengthscale
        return criterion(replace(model, {name: 1 / jnp.sqrt(2 * safe)}), x, y, weights=weights)

    return jax.value_and_grad(value)(relevances)

"""Expectation propagation for Gaussian process classification."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fit import as_data
from .._machine import KernelMachine
from ..approximations import AbstractApproximation, Exact, Expansion, represent
from ..criteria import AbstractCriterion, Data, Evaluation, Traits, evaluation
from ..gram import AbstractGram
from ..hyperparameters import unfreeze
from ..posteriors import LeaveOneOutPredictions
from ..runtime import jit
from ._classifier import ClassifierPosterior, check_classifier, conclude
from ._fixed_point import Limits, Outcome, check_tolerance
from ._sites import Marginals, Matching, Sites, attach_derivatives, default_tolerance, find_sites

_MAX_ITERATIONS = 1000


class ExpectationPropagation(AbstractCriterion):
    """Minus the logarithm of the evidence by expectation propagation, `-ln Z_EP`.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning", eq. 3.65. At the fixed point it is
    stationary in all sites and cavities, so its gradient is the one with sites and cavities held constant
    (sec. 5.5.2), and needs no linear system: `-1/2 tr((b b' - (K + S^-1)^-1) dK)` with `b = K^-1 mean` and
    S the sites' precisions. The model is a kernel machine with the loss `Probit` or `Logistic`.

    The unit is nats for the whole data set, so values are comparable with `gp.Laplace`.

    **Arguments:** `tolerance`, the change of the sites to accept, as for `gp.expectation_propagation`; by
    default 1e-9 in float64, 1e-4 in float32. A stationary value hardly depends on it: in float64, 1e-6
    saves at least a quarter of the iterations and causes errors of at most 1e-12 in the value and 1e-4 in
    the gradient.
    """

    tolerance: float | None = eqx.field(static=True)

    def __init__(self, tolerance: float | None = None):
        check_tolerance(tolerance)
        self.tolerance = None if tolerance is None else float(tolerance)

    @property
    def traits(self) -> Traits:
        return Traits(scale="total")

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        check_sites(model)

    def evaluate(self, model: KernelMachine, data: Data, memory: Any = None) -> Evaluation:
        gram, y, weights = data.gram(model.kernel), data.y, data.weights
        limits = _limits(self.tolerance, _MAX_ITERATIONS, y.dtype)
        matching, sites, outcome = solve_sites(model, gram, y, weights, memory, limits)
        value = -_log_evidence(matching, sites)
        return evaluation(value, outcome.result, jax.lax.stop_gradient(sites))


def expectation_propagation(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    weights: Any = None,
    approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
    init: ClassifierPosterior | None = None,
    tolerance: float | None = None,
    max_iterations: int = _MAX_ITERATIONS,
    throw: bool = True,
) -> ClassifierPosterior:
    """Approximate the posterior of a Gaussian process classifier by expectation propagation.

    A Gaussian replaces each likelihood. With all other Gaussians unchanged, it gives the latent value at its
    example the same mean and variance as the likelihood: Rasmussen and Williams, "Gaussian Processes for
    Machine Learning", sec. 3.6. All sites are updated at once, with shorter steps when the residual does
    not fall. For a single example it is exact. Rounding errors dominate when the kernel's variance is about
    1e7 times that of the noise in float64, 1e2 times in float32; the result code reports it.

    **Arguments:**

    - `model`: a kernel machine with the loss `Probit` or `Logistic`.
    - `x`, `y`: inputs, one row for each example, and labels -1/+1.
    - `weights`: one for each example, default one. A weight of two is exactly a repeated row.
    - `approximation`: how to represent the kernel matrix, as for `jaxsvm.fit`.
    - `init`: an earlier posterior of this function on the same examples, to start from.
    - `tolerance`: the change of the sites to accept, in units of their marginals; by default 1e-9 in
      float64, 1e-4 in float32.
    - `max_iterations`: updates of all sites; each factorizes an n x n matrix, or p x p at a rank of p.
    - `throw`: whether to raise if the iteration fails; with `throw=False`, look at `result`.

    **Returns:** a `ClassifierPosterior` with `sites` and `log_evidence`, differentiable under jit, grad and
    vmap.

    **Example:**

    >>> classifier = jsvm.KernelMachine(kernel, jsvm.losses.Probit(noise_variance=0.1))
    >>> process = jsvm.gp.expectation_propagation(classifier, x, y)
    >>> bool(process.log_evidence < 0)
    True
    """
    x, y, weights = as_data(model, x, y, weights)
    check_sites(model)
    check_tolerance(tolerance)
    start, representation = _start(init, y), represent(approximation, model, x)
    limits = _limits(tolerance, max_iterations, y.dtype)
    free = unfreeze(model)
    posterior = _expectation_propagation(free, x, y, weights, representation, start, limits)
    return conclude(posterior, model, representation, throw)


def check_sites(model: KernelMachine) -> None:
    """Raise unless expectation propagation can treat the model, whose likelihood must be log-concave."""
    check_classifier(model, "expectation propagation", flips=False)


def solve_sites(
    model: KernelMachine,
    gram: AbstractGram,
    y: Float[Array, " n"],
    weights: Float[Array, " n"],
    start: Sites | None = None,
    limits: Limits | None = None,
) -> tuple[Matching, Sites, Outcome]:
    """Find the sites of arrays that have been checked.

    **Returns:** the conditions, the differentiable sites that satisfy them, and an `Outcome`.
    """
    matching = Matching(gram, y, weights, model.loss)
    if limits is None:
        limits = _limits(None, _MAX_ITERATIONS, y.dtype)
    if start is None:
        start = _no_sites(y)
    usable = jnp.isfinite(start.shift) & (start.precision >= 0) & jnp.isfinite(start.precision)
    start = Sites(*(jnp.where(usable, part, 0.0).astype(y.dtype) for part in start))
    sites, outcome = find_sites(matching, start, limits)
    return matching, attach_derivatives(matching, sites), outcome


def _start(init, y) -> Sites:
    if init is None:
        return _no_sites(y)
    if not isinstance(init, ClassifierPosterior) or init.sites is None:
        raise TypeError(
            "`init` must be an earlier posterior of `gp.expectation_propagation`, not a "
            f"{type(init).__name__}"
            + (" without sites" if isinstance(init, ClassifierPosterior) else "")
        )
    if init.sites.shift.shape != y.shape:
        raise ValueError(
            f"`init` has {init.sites.shift.shape[0]} sites, but there are {y.shape[0]} examples: start from "
            "a posterior on the same examples"
        )
    return init.sites


def _no_sites(y) -> Sites:
    return Sites(jnp.zeros_like(y), jnp.zeros_like(y))


def _limits(tolerance, max_iterations, dtype) -> Limits:
    return Limits(default_tolerance(dtype) if tolerance is None else tolerance, max_iterations)


def leave_out_of_sites(
    matching: Matching, sites: Sites, marginals: Marginals
) -> LeaveOneOutPredictions:
    """Predict each example from its cavity: its marginal without any copy of its own site.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning", eqs. 3.56 and 3.58.

    **Arguments:** `matching`; `sites`, which satisfy it; `marginals`, with these sites.

    **Returns:** `LeaveOneOutPredictions`, differentiable.
    """
    alone = matching.cavities(sites, marginals, matching.weights)
    return LeaveOneOutPredictions(alone.mean, alone.variance, matching.average(alone).log_value)


@jax.custom_jvp
def _log_evidence(matching: Matching, sites: Sites) -> Float[Array, ""]:
    """`ln Z_EP`, given the sites at its stationary point."""
    return _energy(matching, *_stationary_in(matching, sites))


@_log_evidence.defjvp
def _log_evidence_jvp(primals, tangents):
    matching, sites = primals
    constant = _stationary_in(matching, sites)
    _, change = jax.jvp(lambda m: _energy(m, *constant), primals[:1], tangents[:1])
    return _log_evidence(matching, sites), change


def _stationary_in(matching: Matching, sites: Sites):
    """Everything in which the evidence is stationary: sites, cavities, and `b = K^-1 mean`."""
    marginals = matching.marginals(sites)
    dual = matching.weights * (sites.shift - sites.precision * marginals.mean)
    return sites, matching.cavities(sites, marginals), dual


def _energy(matching: Matching, sites: Sites, cavities, dual):
    """`ln int N(f; 0, K) prod site_i + sum_i (ln <likelihood_i> - ln <site_i>)`, averages over cavities."""
    gram, weights = matching.gram, matching.weights
    precision, shift = weights * sites.precision, weights * sites.shift
    mean = gram @ dual
    # shift' S shift for the covariance S, in a form that is stationary in b
    quadratic = 2 * shift @ mean - dual @ mean - precision @ mean**2
    whole = quadratic / 2 - gram.log_determinant(precision) / 2
    widening = 1 + cavities.variance * sites.precision
    exponent = 2 * cavities.mean * sites.shift + cavities.variance * sites.shift**2
    exponent = (exponent - cavities.mean**2 * sites.precision) / widening
    of_sites = exponent / 2 - jnp.log(widening) / 2
    return whole + weights @ (matching.average(cavities).log_value - of_sites)


@jit
def _expectation_propagation(
    model, x, y, weights, representation, start, limits
) -> ClassifierPosterior:
    gram, basis, error = representation.matrix(model.kernel, x)
    matching, sites, outcome = solve_sites(model, gram, y, weights, start, limits)
    marginals = matching.marginals(sites)
    dual = weights * (sites.shift - sites.precision * marginals.mean)
    return ClassifierPosterior(
        model=model,
        x=x,
        y=y,
        weights=weights,
        dual=dual,
        response=gram.response(weights * sites.precision),
        left_out=leave_out_of_sites(matching, sites, marginals),
        sites=sites,
        log_evidence=_log_evidence(matching, sites),
        expansion=None if basis is None else Expansion(basis, gram.coefficients(dual)),
        lost_variance=error,
        **marginals._asdict(),
        **outcome._asdict(),
    )

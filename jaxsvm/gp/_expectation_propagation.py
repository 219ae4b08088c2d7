"""Expectation propagation in Gaussian process classification."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._fit import as_data
from .._machine import KernelMachine
from .._parameters import unfreeze
from .._results import RESULTS
from ..criteria import AbstractCriterion, evaluation
from ..linalg import laplace_log_determinant, response
from ..posteriors import LeftOut
from ..runtime import jit
from ._checks import check_likelihood, check_offset, check_tolerance
from ._posterior import AbstractResponsePosterior, raise_if_failed
from ._sites import Marginals, Matching, Sites, attach_derivatives, default_tolerance, find_sites

_MAX_ITERATIONS = 1000


class ExpectationPropagationFit(AbstractResponsePosterior):
    """The posterior of expectation propagation, made by `jaxsvm.gp.expectation_propagation`.

    `sites` are the Gaussians that stand for the likelihoods, `log_evidence` is `ln Z_EP`, both
    differentiable functions of model and data, as are the other fields but `result` and how it was
    reached. `left_out` are the cavities.
    """

    model: KernelMachine
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    dual: Float[Array, " n"]
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    response: Float[Array, "n n"]
    left_out: LeftOut
    result: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    sites: Sites
    log_evidence: Float[Array, ""]


class ExpectationPropagation(AbstractCriterion):
    """Minus the logarithm of the evidence by expectation propagation, `-ln Z_EP`.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning", eq. 3.65. At the fixed point it is
    stationary in all sites and cavities, so its gradient is that with these held (sec. 5.5.2), and
    costs no system of equations: `-1/2 tr((b b' - (K + S^-1)^-1) dK)` with `b = K^-1 mean` and S the sites'
    precisions. The model is a kernel machine with the loss `Probit` or `Logistic`.

    In units of nats for the whole data set, so it compares with `gp.Laplace`.

    **Arguments:** `tolerance`, by how much sites may still change, as for `gp.expectation_propagation`; by
    default 1e-9 in float64, 1e-4 in float32. What is stationary hardly depends on it: in float64 1e-6 saves a
    quarter of the iterations or more, for errors of 1e-12 in the value and 1e-4 in the gradient at most.
    """

    tolerance: float | None = eqx.field(static=True)

    def __init__(self, tolerance: float | None = None):
        check_tolerance(tolerance)
        self.tolerance = None if tolerance is None else float(tolerance)

    def check(self, model, x, y):
        """A likelihood that is log-concave, and a proper prior."""
        check_sites(model)

    def evaluate(self, model, x, y, weights, memory=None):
        """Find the sites, then the evidence."""
        gram = model.kernel.matrix(x, x, same=True)
        limits = _limits(self.tolerance, _MAX_ITERATIONS, y.dtype)
        matching, sites, found = solve_sites(model, gram, y, weights, memory, limits)
        value = -_log_evidence(matching, sites)
        return evaluation(value, found.result, jax.lax.stop_gradient(sites))


def expectation_propagation(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    weights: Any = None,
    init: ExpectationPropagationFit | None = None,
    tolerance: float | None = None,
    max_iterations: int = _MAX_ITERATIONS,
    throw: bool = True,
) -> ExpectationPropagationFit:
    """Approximate the posterior of a Gaussian process classifier by expectation propagation.

    Each likelihood is replaced by a Gaussian that gives the same mean and variance of the latent value at
    its example, all others as they are: Rasmussen and Williams, "Gaussian Processes for Machine
    Learning", sec. 3.6. All sites are updated at once, a part of the way where they would get
    no nearer. For a single example it is exact. In float64 rounding errors set a limit where the
    kernel's variance is about 1e7 times that of the noise, in float32 from 1e2 on; then the code says so.

    **Arguments:**

    - `model`: a kernel machine with the loss `Probit` or `Logistic`.
    - `x`, `y`: inputs, one row for each example, and labels -1/+1.
    - `weights`: one for each example, default one. A weight of two is exactly a repeated row.
    - `init`: an earlier one on the same examples, to start from.
    - `tolerance`: by how much sites may still change, in units of their marginals; by default 1e-9 in
      float64, 1e-4 in float32.
    - `max_iterations`: updates of all sites, each a factorization of an n x n matrix.
    - `throw`: whether to raise where the iteration fails; with `throw=False` look at `result`.

    **Returns:** an `ExpectationPropagationFit`, differentiable under jit, grad and vmap.

    **Example:**

    >>> classifier = jsvm.KernelMachine(kernel, jsvm.losses.Probit(noise_variance=0.1))
    >>> process = jsvm.gp.expectation_propagation(classifier, x, y)
    >>> bool(process.log_evidence < 0)
    True
    """
    x, y, weights = as_data(model, x, y, weights)
    check_sites(model)
    check_tolerance(tolerance)
    if not isinstance(init, ExpectationPropagationFit | None):
        raise TypeError(
            "`init` must be an earlier `ExpectationPropagationFit`, whose sites to start from, not a "
            f"{type(init).__name__}"
        )
    start = Sites(jnp.zeros_like(y), jnp.zeros_like(y)) if init is None else init.sites
    if start.shift.shape != y.shape:
        raise ValueError(
            f"`init` has {start.shift.shape[0]} sites, but there are {y.shape[0]} examples: start from a "
            "posterior on the same examples"
        )
    limits = _limits(tolerance, max_iterations, y.dtype)
    found = _expectation_propagation(unfreeze(model), x, y, weights, start, limits)
    return raise_if_failed(dataclasses.replace(found, model=model), throw)


def check_sites(model: KernelMachine) -> None:
    """Raise unless the likelihood is log-concave, and the prior proper."""
    check_likelihood(model.loss, "expectation propagation", flips=False)
    check_offset(model)


def solve_sites(model, gram, y, weights, start=None, limits=None):
    """The conditions, the differentiable sites, and how they were found, of checked arrays."""
    matching = Matching(gram, y, weights, model.loss)
    limits = _limits(None, _MAX_ITERATIONS, y.dtype) if limits is None else limits
    if start is None:
        start = Sites(jnp.zeros_like(y), jnp.zeros_like(y))
    sound = jnp.isfinite(start.shift) & (start.precision >= 0) & jnp.isfinite(start.precision)
    start = Sites(*(jnp.where(sound, part, 0.0).astype(y.dtype) for part in start))
    found = find_sites(matching, start, *limits)
    finite = jnp.all(jnp.isfinite(gram))
    found = found._replace(result=jnp.where(finite, found.result, RESULTS.nonfinite))
    return matching, attach_derivatives(matching, found.sites), found


def _limits(tolerance, max_iterations, dtype):
    return (default_tolerance(dtype) if tolerance is None else tolerance, max_iterations)


def left_out_of_sites(matching: Matching, sites: Sites, marginals: Marginals) -> LeftOut:
    """What the cavities predict of each example: the marginals, all copies of its own site taken away.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning", eqs. 3.56 and 3.58.

    **Arguments:** `matching`; `sites`, which satisfy it; `marginals`, with these sites.

    **Returns:** a `LeftOut`, differentiable.
    """
    alone = matching.cavities(sites, marginals, matching.weights)
    return LeftOut(alone.mean, alone.variance, matching.average(alone).log_value)


@jax.custom_jvp
def _log_evidence(matching: Matching, sites: Sites) -> Float[Array, ""]:
    """`ln Z_EP`, given the sites at its stationary point."""
    return _energy(matching, *_held(matching, sites))


@_log_evidence.defjvp
def _log_evidence_jvp(primals, tangents):
    matching, sites = primals
    held = _held(matching, sites)
    _, change = jax.jvp(lambda m: _energy(m, *held), primals[:1], tangents[:1])
    return _log_evidence(matching, sites), change


def _held(matching: Matching, sites: Sites):
    """All in which the evidence is stationary: sites, cavities, and `b = K^-1 mean`."""
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
    whole = quadratic / 2 - laplace_log_determinant(gram, precision) / 2
    widening = 1 + cavities.variance * sites.precision
    exponent = 2 * cavities.mean * sites.shift + cavities.variance * sites.shift**2
    exponent = (exponent - cavities.mean**2 * sites.precision) / widening
    of_sites = exponent / 2 - jnp.log(widening) / 2
    return whole + weights @ (matching.average(cavities).log_value - of_sites)


@jit
def _expectation_propagation(model, x, y, weights, start, limits) -> ExpectationPropagationFit:
    gram = model.kernel.matrix(x, x, same=True)
    matching, sites, found = solve_sites(model, gram, y, weights, start, limits)
    marginals = matching.marginals(sites)
    return ExpectationPropagationFit(
        model=model,
        x=x,
        y=y,
        weights=weights,
        dual=weights * (sites.shift - sites.precision * marginals.mean),
        mean=marginals.mean,
        variance=marginals.variance,
        response=response(gram, weights * sites.precision, definite=True),
        left_out=left_out_of_sites(matching, sites, marginals),
        result=found.result,
        iterations=found.iterations,
        residual=found.residual,
        sites=sites,
        log_evidence=_log_evidence(matching, sites),
    )

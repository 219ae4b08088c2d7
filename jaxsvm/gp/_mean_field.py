"""Naive mean field inference for Gaussian process classification."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._fit import as_data
from .._machine import KernelMachine
from ..approximations import AbstractApproximation, Exact, Expansion, represent
from ..gram import AbstractGram
from ..hyperparameters import unfreeze
from ..posteriors import LeaveOneOutPredictions
from ..runtime import jit
from ._classifier import ClassifierPosterior, check_classifier, conclude, leave_out_by_response
from ._fixed_point import Limits, Outcome, check_tolerance
from ._mean_field_equations import (
    Equations,
    attach_derivatives,
    default_tolerance,
    solve_equations,
)

_MAX_ITERATIONS = {"newton": 200, "adaptive": 50_000}


def mean_field(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    weights: Any = None,
    approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
    method: str = "newton",
    init: ClassifierPosterior | Any = None,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    throw: bool = True,
) -> ClassifierPosterior:
    """Find the posterior mean of a Gaussian process classifier by naive mean field theory.

    It solves `alpha_i = (1 - 2 kappa) D(z_i) / (sqrt(s_i) (kappa + (1 - 2 kappa) Phi(z_i)))` with
    `z_i = y_i sum_(j != i) k_ij y_j alpha_j / sqrt(s_i)` and `s_i = k_ii + v`: [OW00, eq. 8.40], with D
    and Phi the density and the distribution of a standard Gaussian. The kernel of the model is the
    covariance, its loss the noise: `losses.Probit(v)` is input noise of variance v, eq. 8.15, and the
    same as a `White` kernel, eq. 8.16; `losses.FlipNoise(kappa, v)` adds flips of the labels, eq. 8.17.
    For `losses.Logistic` the likelihood is averaged by quadrature. For a single example the mean is exact.

    Without flips the equations have exactly one solution: they are the stationarity conditions of a strictly
    convex function of `y alpha` (its Hessian `K + Omega` is positive definite since `Omega_i > 0`).
    With flips there may be several, hence the code `local_optimum`. Rounding errors dominate when the
    kernel's variance is about 1e8 times that of the noise in float64, 1e3 times in float32; the result
    code reports it.

    **Arguments:**

    - `model`: a kernel machine with the loss `Probit`, `FlipNoise` or `Logistic`.
    - `x`, `y`: inputs, one row for each example, and labels -1/+1.
    - `weights`: one for each example, default one. A weight of two is exactly a repeated row.
    - `approximation`: how to represent the kernel matrix, as for `jaxsvm.fit`.
    - `method`: `"newton"`, about ten factorizations of n x n matrices, or p x p at a rank of p, for any
      hyperparameters; or `"adaptive"`, the paper's Table 8.1, which needs only products with K but may need
      many thousands of them. Both continue until the equations hold, and report it if they fail.
    - `init`: an earlier mean field posterior on the same examples, or `y alpha`, to start from; by default
      zero.
    - `tolerance`: the largest violation of the equations to accept, relative to the largest alpha; by
      default 1e-10 in float64, 1e-5 in float32. (The paper stops at `max |change of alpha|^2 = 1e-5`.)
    - `max_iterations`: by default 200 for `"newton"`, 50,000 for `"adaptive"`.
    - `throw`: whether to raise if the iteration fails; with `throw=False`, look at `result`.

    **Returns:** a `ClassifierPosterior`, differentiable by the implicit function theorem, under jit, grad
    and vmap.

    **Example:**

    >>> classifier = jsvm.KernelMachine(kernel, jsvm.losses.Probit(noise_variance=0.1))
    >>> process = jsvm.gp.mean_field(classifier, x, y)
    >>> process.probability(x).shape, bool(jnp.all(process.alpha > 0))
    ((30,), True)
    """
    x, y, weights = as_data(model, x, y, weights)
    check_mean_field(model)
    if method not in _MAX_ITERATIONS:
        raise ValueError(f'`method` must be "newton" or "adaptive", not {method!r}')
    check_tolerance(tolerance)
    limits = Limits(
        default_tolerance(y.dtype) if tolerance is None else tolerance,
        _MAX_ITERATIONS[method] if max_iterations is None else max_iterations,
    )
    start, representation = _start(init, weights), represent(approximation, model, x)
    free = unfreeze(model)
    posterior = _mean_field(method, free, x, y, weights, representation, start, limits)
    return conclude(posterior, model, representation, throw)


def check_mean_field(model: KernelMachine) -> None:
    """Raise unless mean field theory can treat the model."""
    check_classifier(model, "mean field theory", flips=True)


def solve_mean_field(
    model: KernelMachine,
    gram: AbstractGram,
    y: Float[Array, " n"],
    weights: Float[Array, " n"],
    start: Float[Array, " n"] | None = None,
    limits: Limits | None = None,
    method: str = "newton",
) -> tuple[Equations, Float[Array, " n"], Outcome]:
    """Solve the mean field equations of arrays that have been checked.

    **Returns:** the equations, their differentiable solution `y alpha`, and an `Outcome`.
    """
    equations = Equations(gram, y, weights, model.loss)
    if limits is None:
        limits = Limits(default_tolerance(y.dtype), _MAX_ITERATIONS[method])
    start = jnp.zeros_like(y) if start is None else jnp.where(jnp.isfinite(start), start, 0.0)
    step, outcome = solve_equations(equations, start, method, limits)
    return equations, attach_derivatives(equations, step), outcome


def leave_out_of_mean_field(
    equations: Equations, step: Float[Array, " n"], marginal: Float[Array, " n"] | None = None
) -> LeaveOneOutPredictions:
    """Predict each example from the others, by the linear response of the mean field equations.

    `f_i^(-i) = f_i - dual_i (1 / [(K + Omega)^-1]_ii - Omega_i)`: [OW00, eq. 8.41]. There `Omega_i = 1 /
    curvature_i - k_ii` with the curvature of the averaged likelihood, which for probit labels, flipped or
    not, is eq. 8.42.

    **Arguments:** `equations`; `step`, their solution; `marginal`, the variances of the latent values, if
    known; without them the predictions of examples with almost no influence are inexact.

    **Returns:** `LeaveOneOutPredictions`.
    """
    gram, loss, y = equations.gram, equations.loss, equations.y
    precision = equations.precision(equations.average(step))
    dual = equations.weights * step
    return leave_out_by_response(gram, loss, y, gram @ dual, dual, precision, marginal)


@partial(jit, static_argnums=0)
def _mean_field(method, model, x, y, weights, representation, start, limits) -> ClassifierPosterior:
    gram, basis, error = representation.matrix(model.kernel, x)
    equations, step, outcome = solve_mean_field(model, gram, y, weights, start, limits, method)
    dual = weights * step
    precision = equations.precision(equations.average(step))
    definite = model.loss.is_convex
    _, variance = gram.posterior_marginals(jnp.zeros_like(y), precision, definite)
    variance = jnp.maximum(variance, 0)
    return ClassifierPosterior(
        model=model,
        x=x,
        y=y,
        weights=weights,
        dual=dual,
        mean=gram @ dual,
        variance=variance,
        response=gram.response(precision, definite),
        left_out=leave_out_of_mean_field(equations, step, variance),
        expansion=None if basis is None else Expansion(basis, gram.coefficients(dual)),
        lost_variance=error,
        **outcome._asdict(),
    )


def _start(init, weights) -> Float[Array, " n"]:
    if init is None:
        return jnp.zeros_like(weights)
    if isinstance(init, ClassifierPosterior) and init.sites is None:
        step = init.y * init.alpha
    elif isinstance(init, jax.Array | np.ndarray | list | tuple):
        step = jnp.asarray(init)
    else:
        raise TypeError(
            "`init` must be an earlier posterior of `gp.mean_field`, or an array with `y alpha` of each "
            f"example, not {_name_of(init)}"
        )
    if step.shape != weights.shape:
        raise ValueError(
            f"`init` has shape {step.shape}, but there are {weights.shape[0]} examples: start from a "
            "solution on the same examples"
        )
    return step.astype(weights.dtype)


def _name_of(init) -> str:
    if isinstance(init, ClassifierPosterior):
        return "a posterior of `gp.expectation_propagation`"
    return f"a {type(init).__name__}"

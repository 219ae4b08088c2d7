"""Naive mean field inference in Gaussian process classification."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._fit import as_data
from .._machine import KernelMachine
from .._parameters import unfreeze
from .._results import RESULTS
from ..linalg import cavity_variances, response
from ..posteriors import LeftOut, averaged
from ..runtime import jit
from ._checks import check_likelihood, check_offset, check_tolerance
from ._equations import Equations, attach_derivatives, default_tolerance, solve_equations
from ._posterior import AbstractResponsePosterior, raise_if_failed, variances

_MAX_ITERATIONS = {"newton": 200, "adaptive": 50_000}


class MeanFieldFit(AbstractResponsePosterior):
    """The naive mean field posterior of a Gaussian process classifier, made by `jaxsvm.gp.mean_field`.

    `dual = weights y alpha`; all fields but `result` and how it was reached are differentiable
    functions of model and data. The means are those of the mean field theory; variances and what is left out
    are its linear response, `Cov(f) = K - K (K + Omega)^-1 K`, from which eq. 8.41 follows. With the
    input noise in the likelihood, `mean` is that of f alone; the paper's `<f_i>`, of the noisy process,
    is `mean + noise_variance dual`.
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

    @property
    def alpha(self) -> Float[Array, " n"]:
        """The embedding strengths of the examples, eq. 8.40; positive."""
        return self.y * self.dual / jnp.where(self.weights > 0, self.weights, 1.0)


def mean_field(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    weights: Any = None,
    method: str = "newton",
    init: MeanFieldFit | Any = None,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    throw: bool = True,
) -> MeanFieldFit:
    """Find the posterior mean of a Gaussian process classifier by naive mean field theory.

    Solves `alpha_i = (1 - 2 kappa) D(z_i) / (sqrt(s_i) (kappa + (1 - 2 kappa) Phi(z_i)))` with
    `z_i = y_i sum_(j != i) k_ij y_j alpha_j / sqrt(s_i)` and `s_i = k_ii + v`: [OW00, eq. 8.40], with D
    and Phi the density and the distribution of a standard Gaussian. The kernel of the model is the
    covariance, its loss the noise: `losses.Probit(v)` is input noise of variance v, eq. 8.15, and the
    same as a `White` kernel, eq. 8.16; `losses.FlipNoise(kappa, v)` adds flips of the labels, eq. 8.17.
    For `losses.Logistic` the same argument holds with the likelihood averaged by quadrature. For a single
    example the mean is exact.

    Without flips the equations have exactly one solution: they are the stationarity of a strictly
    convex function of `y alpha` (its Hessian `K + Omega` is positive definite since `Omega_i > 0`).
    With flips there may be several, hence the code `local_optimum`. In float64 rounding errors set a limit
    where the kernel's variance is about 1e8 times that of the noise, in float32 from 1e3 on; then the
    code says so.

    **Arguments:**

    - `model`: a kernel machine with the loss `Probit`, `FlipNoise` or `Logistic`.
    - `x`, `y`: inputs, one row for each example, and labels -1/+1.
    - `weights`: one for each example, default one. A weight of two is exactly a repeated row.
    - `method`: `"newton"`, about ten factorizations of n x n matrices whatever the hyperparameters; or
      `"adaptive"`, the paper's Table 8.1, whose iterations are products with K but may be many
      thousands. Each goes on until the equations hold, or says that it did not get there.
    - `init`: an earlier `MeanFieldFit` on the same examples, or `y alpha`, to start from; by default zero.
    - `tolerance`: by how much the equations may be violated, relative to the largest alpha; by default
      1e-10 in float64, 1e-5 in float32. (The paper stops at `max |change of alpha|^2 = 1e-5`.)
    - `max_iterations`: by default 200 for `"newton"`, 50,000 for `"adaptive"`.
    - `throw`: whether to raise where the iteration fails; with `throw=False` look at `result`.

    **Returns:** a `MeanFieldFit`, differentiable by the implicit function theorem, under jit, grad and vmap.

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
    if max_iterations is None:
        max_iterations = _MAX_ITERATIONS[method]
    limits = (default_tolerance(y.dtype) if tolerance is None else tolerance, max_iterations)
    found = _mean_field(method, unfreeze(model), x, y, weights, _start(init, weights), limits)
    return raise_if_failed(dataclasses.replace(found, model=model), throw)


def check_mean_field(model: KernelMachine) -> None:
    """Raise unless the model is one of Gaussian process classification."""
    check_likelihood(model.loss, "mean field theory", flips=True)
    check_offset(model)


def solve_mean_field(model, gram, y, weights, start=None, limits=None, method="newton"):
    """The equations, their differentiable solution `y alpha`, and how it was reached, of checked arrays."""
    equations = Equations(gram, y, weights, model.loss)
    limits = (default_tolerance(y.dtype), _MAX_ITERATIONS[method]) if limits is None else limits
    begin = jnp.zeros_like(y) if start is None else jnp.where(jnp.isfinite(start), start, 0.0)
    solved = solve_equations(equations, begin, method, *limits)
    finite = jnp.all(jnp.isfinite(gram))
    solved = solved._replace(result=jnp.where(finite, solved.result, RESULTS.nonfinite))
    return equations, attach_derivatives(equations, solved.step), solved


def left_out_of(
    equations: Equations, step: Float[Array, " n"], marginal: Float[Array, " n"] | None = None
) -> LeftOut:
    """What the linear response of the mean field equations predicts of each example left out.

    `f_i^(-i) = f_i - dual_i (1 / [(K + Omega)^-1]_ii - Omega_i)`: [OW00, eq. 8.41]. There `Omega_i = 1 /
    curvature_i - k_ii` with the curvature of the averaged likelihood, which for probit labels, flipped or
    not, is eq. 8.42.

    **Arguments:** `equations`; `step`, their solution; `marginal`, the variances of the latent values if
    they are known, without which those of examples that hardly count are not exact.

    **Returns:** a `LeftOut`.
    """
    gram, loss = equations.gram, equations.loss
    precision = equations.precision(equations.average(step))
    variance = cavity_variances(gram, precision, loss.is_convex, marginal)
    dual = equations.weights * step
    mean = gram @ dual - variance * dual
    # without convexity the linear response of an example that looks like a flip may have no variance
    spread = averaged(loss, equations.y, mean, jnp.maximum(variance, 0))
    return LeftOut(mean, variance, spread.log_value)


@partial(jit, static_argnums=0)
def _mean_field(method, model, x, y, weights, start, limits) -> MeanFieldFit:
    gram = model.kernel.matrix(x, x, same=True)
    equations, step, solved = solve_mean_field(model, gram, y, weights, start, limits, method)
    precision = equations.precision(equations.average(step))
    matrix = response(gram, precision, model.loss.is_convex)
    variance = variances(gram, matrix)
    return MeanFieldFit(
        model=model,
        x=x,
        y=y,
        weights=weights,
        dual=weights * step,
        mean=gram @ (weights * step),
        variance=variance,
        response=matrix,
        left_out=left_out_of(equations, step, variance),
        result=solved.result,
        iterations=solved.iterations,
        residual=solved.residual,
    )


def _start(init, weights) -> Float[Array, " n"]:
    if init is None:
        return jnp.zeros_like(weights)
    if not isinstance(init, MeanFieldFit | jax.Array | np.ndarray | list | tuple):
        raise TypeError(
            "`init` must be an earlier `MeanFieldFit`, or an array with `y alpha` of each example, not a "
            f"{type(init).__name__}"
        )
    step = init.y * init.alpha if isinstance(init, MeanFieldFit) else jnp.asarray(init)
    if step.shape != weights.shape:
        raise ValueError(
            f"`init` has shape {step.shape}, but there are {weights.shape[0]} examples: start from a "
            "solution on the same examples"
        )
    return step.astype(weights.dtype)

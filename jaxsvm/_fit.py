"""Fits of kernel machines."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, Generic, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from ._machine import KernelMachine, Machine, Machine_co
from ._predictor import AbstractPointEstimate, AbstractSolution
from .approximations import (
    EXACT,
    AbstractApproximation,
    ApproximationWarning,
    Exact,
    Expansion,
    Representation,
    check_lost_variance,
    represent,
)
from .gram import AbstractGram
from .hyperparameters import unfreeze
from .kernels import AbstractKernel, covariance_defect, is_user_defined
from .persistence import check_fields
from .results import RESULTS, raise_on_failure
from .runtime import is_traced, jit, require_agreement, require_own_process, warn_user
from .solvers import Options, Problem, Start, attach_derivatives, primal_objective, solve
from .validation import as_inputs, as_points, as_targets, as_weights, check_count, check_number

NON_SUPPORT, FREE, BOUND = 0, 1, 2


class Stats(eqx.Module):
    """How a fit went.

    `iterations` are Newton steps. `kkt_residual` is the largest violation of the optimality conditions, in
    units of the latent function. `duality_gap` is the primal minus the dual objective, relative to the
    primal; NaN for a loss that is not convex. `objective` is the primal objective, at its minimum.
    `lost_variance` is the share of the prior's variance that a low rank loses, zero for an exact fit, and
    negative if a user-defined kernel is not positive semi-definite.
    """

    iterations: Int[Array, ""]
    kkt_residual: Float[Array, ""]
    duality_gap: Float[Array, ""]
    objective: Float[Array, ""]
    lost_variance: Float[Array, ""]


class Fit(AbstractPointEstimate, AbstractSolution, Generic[Machine_co]):
    """The MAP solution of a kernel machine: `f(x) = sum_i dual_i k(x, x_i) + offset`.

    `dual` and `latent` (the values `f(x_i)`) are differentiable functions of model and data. `result`
    is a code of `jaxsvm.RESULTS`, `stats` describes how the fit went, `group` says which examples are
    non-support (0), free (1: marginal, their dual coefficient inside its bounds) or bound (2). In a
    regression with the soft insensitive loss these are the off-bound and on-bound support vectors.
    `model`, `x`, `y` and `weights` are what was fitted; `offset` is zero for a model without one.
    `representation` is that of the kernel matrix. At a low rank, `expansion` holds the features of the
    function and their coefficients, `f(x) = phi(x) coefficients + offset`; otherwise it is None.

    A fit is a point estimate. `jaxsvm.laplace(fit)` has error bars, probabilities and intervals.
    """

    model: Machine_co  # pyright: ignore[reportIncompatibleVariableOverride], it is immutable
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    dual: Float[Array, " n"]
    offset: Float[Array, ""]
    latent: Float[Array, " n"]
    group: Int[Array, " n"]
    result: Int[Array, ""]
    stats: Stats
    representation: Representation = EXACT
    expansion: Expansion | None = None

    def decision(self, x: Any) -> Float[Array, " m"]:
        """The latent function `f(x)` at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one value for each point.
        """
        points, kernel = as_points(x, self.x), unfreeze(self.model.kernel)
        if self.expansion is not None:
            return decide_by(self.expansion, kernel, self.offset, points)
        return decide(kernel, self.x, self.dual, self.offset, points)

    def gram(self) -> AbstractGram:
        """The kernel matrix of the examples, in the representation of the fit.

        **Returns:** the matrix, through the operations of `jaxsvm.gram.AbstractGram`.
        """
        return self.representation.matrix(unfreeze(self.model.kernel), self.x).gram

    @property
    def support(self) -> Bool[Array, "... n"]:
        """Which examples are support vectors."""
        return ~self._is_in(NON_SUPPORT)

    @property
    def free(self) -> Bool[Array, "... n"]:
        """Which examples are free: marginal support vectors, or on a curved piece of the loss."""
        return self._is_in(FREE)

    @property
    def bound(self) -> Bool[Array, "... n"]:
        """Which examples have their dual coefficient at its bound."""
        return self._is_in(BOUND)

    def _is_in(self, group: int) -> Bool[Array, "... n"]:
        require_own_process()
        return self.group == group


@jit
def decide(
    kernel: AbstractKernel,
    known: Float[Array, "n d"],
    dual: Float[Array, " n"],
    offset: Float[Array, ""],
    points: Float[Array, "m d"],
) -> Float[Array, " m"]:
    """The latent function of a fit at points that have been checked, as one program."""
    return kernel.matrix(points, known, same=False) @ dual + offset


@jit
def decide_by(
    expansion: Expansion,
    kernel: AbstractKernel,
    offset: Float[Array, ""],
    points: Float[Array, "m d"],
) -> Float[Array, " m"]:
    """The latent function of a fit of low rank at points that have been checked, as one program."""
    return expansion.at(kernel, points) + offset


def fit(
    model: Machine,
    x: Any,
    y: Any,
    *,
    weights: Any = None,
    class_weight: Mapping[int, ArrayLike] | Literal["balanced"] | None = None,
    init: Fit | Any = None,
    approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
    tolerance: float | None = None,
    max_iterations: int = 400,
    throw: bool = True,
) -> Fit[Machine]:
    """Find the MAP solution: minimize `sum_i w_i L(y_i, f_i) + 1/2 f' K^-1 f`.

    Hinge, squared hinge, epsilon-insensitive, soft insensitive, Huber and Laplacian losses are solved as
    box-constrained quadratic programs to machine precision, quadratic ones by one Cholesky
    factorization, smooth ones by Newton's method. Numerically singular kernel matrices are fine. The result
    is differentiable with respect to model, `x`, `y` (of a regression) and `weights`, under jit, vmap and
    grad, to any order. Success is judged on what is returned: its KKT residual and its duality gap. If
    no example is free, every offset in an interval is optimal; its midpoint is returned.

    With an `approximation` of rank p, time and memory grow in proportion to the number of examples, as
    `n p^2` and `n p`. The solution is that of the kernel matrix `V V'`, to the same precision.

    **Arguments:**

    - `model`: the kernel machine.
    - `x`, `y`: inputs, one row for each example, and labels -1/+1 or targets. Integers and lists are
      converted to floating-point arrays.
    - `weights`: one for each example, default one. A weight of two is exactly a repeated row, a weight of
      zero an absent one.
    - `class_weight`: `{-1: a, +1: b}`, or `"balanced"` for weights inverse to the class frequencies;
      multiplies `weights`.
    - `init`: an earlier `Fit` on the same examples, or dual coefficients, to start from.
    - `approximation`: how to represent the kernel matrix: `jaxsvm.Exact()`, `jaxsvm.Nystrom(rank=...)`,
      `jaxsvm.RandomFourier(features=...)`, or one of these low ranks in `jaxsvm.Corrected`. If it loses more
      than 1 % of the prior's variance, or than the tolerance of `jaxsvm.Nystrom("auto")` if that is larger, a
      warning says so; `stats.lost_variance` has the share.
    - `tolerance`: the required KKT residual, relative to the margin of one or to the largest target; by
      default 1e-10 in float64, 2e-6 in float32. Rounding errors of `K dual` are allowed for, as long as
      the duality gap is at most 1e-6 of the objective (1e-3 in float32) at this tolerance, and in
      proportion at another.
    - `max_iterations`: the largest number of Newton steps.
    - `throw`: whether to raise an error if the solver fails. With `throw=False`, check `result`; do so in
      batches, where the failure of one member should leave the others untouched.

    **Returns:** a `Fit`.

    **Example:**

    >>> fitted = jsvm.fit(model, x, y)
    >>> fitted.decision(x).shape, bool(fitted.stats.kkt_residual < 1e-9)
    ((30,), True)
    """
    x, y, weights = as_data(model, x, y, weights)
    if class_weight is not None:
        weights = weights * _class_weights(class_weight, model, y, weights)
    start = None if init is None else _start(init, y)
    if tolerance is not None:
        check_number("tolerance", tolerance, above=0)
    check_count("max_iterations", max_iterations)
    options = Options(tolerance, max_iterations)
    # frozen values become arguments, so that fits at many frozen values share one compilation
    free, warm = unfreeze(model), init is not None
    representation = represent(approximation, model, x)
    fitted = _fit(free, x, y, weights, start, representation, options, warm)
    fitted = dataclasses.replace(fitted, model=model)
    # an exact fit loses nothing, and reading a number would wait for it
    if fitted.expansion is not None:
        warn_of_lost_variance(representation, fitted.stats.lost_variance)
    return require_success(fitted) if throw else fitted


def as_data(model: KernelMachine, x: Any, y: Any, weights: Any) -> tuple[Array, Array, Array]:
    """Inputs, targets and weights as arrays of the model's precision, after all checks."""
    if not isinstance(model, KernelMachine):
        raise TypeError(f"`model` must be a KernelMachine, not {type(model).__name__}")
    x = as_inputs(x)
    y = as_targets(y, x.shape[0], labels=model.loss.is_classifier)
    free = unfreeze(model)
    require_agreement(free, "model", x)
    dtype = jnp.result_type(x, *jax.tree.leaves(free))
    x, y = x.astype(dtype), y.astype(dtype)
    # ones and zeros are made like y, so that they are on the same devices
    return x, y, jnp.ones_like(y) if weights is None else as_weights(weights, x.shape[0], dtype)


@partial(jit, static_argnums=(6, 7))
def _fit(model: Machine, x, y, weights, start, representation, options, warm) -> Fit[Machine]:
    gram, basis, error = representation.matrix(model.kernel, x)
    fitted = fit_gram(model, gram, x, y, weights, start, options, warm)
    if basis is None:
        return fitted
    return dataclasses.replace(
        fitted,
        stats=dataclasses.replace(fitted.stats, lost_variance=error),
        representation=representation,
        expansion=Expansion(basis, gram.coefficients(fitted.dual)),
    )


def fit_gram(
    model: Machine,
    gram: AbstractGram,
    x: Float[Array, "n d"],
    y: Float[Array, " n"],
    weights: Float[Array, " n"],
    start: Start | None = None,
    options: Options = Options(),  # noqa: B008, it is immutable
    warm: bool = True,
) -> Fit[Machine]:
    """Fit a machine whose Gram matrix is given, to arrays that have been checked."""
    if start is None:
        start, warm = _start(None, y), False
    problem = Problem(gram, y, weights, model.loss, model.offset)
    solution = solve(problem, start, options, warm)
    dual, offset = attach_derivatives(problem, solution.dual, solution.offset, solution.free)
    latent = gram @ dual + offset
    group = jnp.where(solution.free, FREE, jnp.where(dual == 0, NON_SUPPORT, BOUND))
    result = solution.result
    if is_user_defined(model.kernel):
        result = jnp.where(gram.is_covariance(), result, RESULTS.factorization_failed)
    valid = (jnp.min(weights) >= 0) & (jnp.max(weights) > 0)
    if model.loss.is_classifier:
        valid &= jnp.all(jnp.abs(y) == 1)
    result = jnp.where(valid, result, RESULTS.invalid_data)
    finite = [jnp.all(jnp.isfinite(array)) for array in (x, y, weights, *_scalars(model))]
    finite = jnp.all(jnp.stack([gram.is_finite(), *finite]))
    result = jnp.where(finite, result, RESULTS.nonfinite)
    objective = _objective(problem, dual, offset, latent)
    exact = jnp.zeros((), gram.dtype)
    stats = Stats(solution.iterations, solution.residual, solution.gap, objective, exact)
    return Fit(model, x, y, weights, dual, offset, latent, group, result, stats)


@jax.custom_jvp
def _objective(problem, dual, offset, latent) -> Float[Array, ""]:
    """The minimum of `sum_i w_i L(y_i, f_i) + 1/2 f' K^-1 f`, given the solution.

    At the solution the objective is stationary, so the solution can be held fixed when differentiating (the
    envelope theorem), and no system of equations has to be solved.
    """
    return primal_objective(problem, dual, offset, latent)


@_objective.defjvp
def _objective_jvp(primals, tangents):
    _, dual, offset, _ = primals

    def at_solution(problem):
        loss, y, weights = problem.loss, problem.y, problem.weights
        return loss.stationary_objective(y, weights, dual, offset, problem.gram.product)

    _, change = jax.jvp(at_solution, primals[:1], tangents[:1])
    return _objective(*primals), change


def _scalars(model):
    return [jnp.sum(leaf) for leaf in jax.tree.leaves(model)] or [jnp.zeros(())]


def _class_weights(class_weight, model, y, weights) -> Float[Array, " n"]:
    if not model.loss.is_classifier:
        raise ValueError("`class_weight` needs a classification loss")
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(
                f'`class_weight` must be "balanced" or a mapping like {{-1: 1.0, +1: 2.0}}, '
                f"not {class_weight!r}"
            )
        total = jnp.sum(weights)
        positive, negative = (total / (2 * jnp.sum(weights * (y == s))) for s in (1, -1))
    else:
        if set(class_weight) != {-1, 1}:
            raise ValueError(
                f"`class_weight` must have the keys -1 and +1, not {set(class_weight)}"
            )
        positive, negative = class_weight[1], class_weight[-1]
        if not is_traced(positive, negative) and not all(
            0 < weight < np.inf for weight in (positive, negative)
        ):
            raise ValueError(
                f"`class_weight` must be positive and finite, but is {dict(class_weight)}"
            )
    both = jnp.where(y > 0, positive, negative).astype(weights.dtype)
    # a traced weight of zero cannot be refused here: as a negative one it makes the data invalid
    return jnp.where(both == 0, -1.0, both)


def _start(init, y: Float[Array, " n"]) -> Start:
    examples, dtype = y.shape[0], y.dtype
    zero = jnp.zeros((), dtype)
    if init is None:
        return Start(jnp.zeros_like(y), zero)
    dual, offset = (init.dual, init.offset) if isinstance(init, Fit) else (jnp.asarray(init), zero)
    if dual.shape != (examples,):
        raise ValueError(
            f"`init` has {dual.shape} dual coefficients, but there are {examples} examples: start from a "
            "fit on the same examples"
        )
    sound = jnp.isfinite(dual)  # do not warm-start from non-finite values
    return Start(jnp.where(sound, dual, 0.0).astype(dtype), jnp.nan_to_num(offset).astype(dtype))


def warn_of_lost_variance(representation: Representation, error: Float[Array, ""] | float) -> None:
    """Warn if a low rank loses more of the prior's variance than it may; in traced code do nothing."""
    if not is_traced(error):
        for problem in check_lost_variance(float(error), representation.tolerance):
            warn_user(problem, ApproximationWarning)


def require_success(fitted: Fit[Machine]) -> Fit[Machine]:
    """Return the fit; raise `FitError` if its solver failed."""

    def details():
        # a low-rank matrix is positive semi-definite by construction, and may be too large to form
        if int(fitted.result) == RESULTS.factorization_failed and fitted.expansion is None:
            return f" Here {covariance_defect(fitted.gram().dense())}."
        return (
            f" (KKT residual {float(fitted.stats.kkt_residual):.1e}, duality gap "
            f"{float(fitted.stats.duality_gap):.1e} after {int(fitted.stats.iterations)} iterations; "
            "`throw=False` returns the fit anyway)"
        )

    dual = raise_on_failure(fitted.dual, fitted.result, details)
    return fitted if dual is fitted.dual else dataclasses.replace(fitted, dual=dual)


def _problem_of(fit: Fit) -> str | None:
    """What is wrong with the shapes of a fit of n examples, or of a batch of fits."""
    examples = fit.y.shape
    if not examples:
        return "`y` must be a vector, but is one number"
    if fit.x.ndim != fit.y.ndim + 1 or fit.x.shape[:-1] != examples:
        return f"`x` has shape {fit.x.shape}, but `y` has {examples}"
    for name in ("weights", "dual", "latent", "group"):
        shape = getattr(fit, name).shape
        if shape != examples:
            return f"`{name}` has shape {shape}, but `y` has {examples}"
    scalars = {"offset": fit.offset, "result": fit.result}
    scalars |= {field.name: getattr(fit.stats, field.name) for field in dataclasses.fields(Stats)}
    for name, value in scalars.items():
        if value.shape != examples[:-1]:
            return f"`{name}` has shape {value.shape}, but must have {examples[:-1]}"
    dtypes = {str(jnp.result_type(a)) for a in (fit.x, fit.y, fit.weights, fit.dual, fit.latent)}
    if len(dtypes) > 1:
        return f"its arrays differ in precision: {', '.join(sorted(dtypes))}"
    return None


check_fields(Fit, _problem_of)

"""Result codes: one enumeration for the whole library, with messages and a stated severity."""

import enum
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .runtime import is_traced

_Value = TypeVar("_Value")


class RESULTS(enum.IntEnum):
    """Result codes; each has a `message` that says what happened and what to do about it.

    Computations return the code as an integer array, one for each member of a batch. Compare it with these
    names inside or outside of traced code: `fit.result == RESULTS.successful`. The numbers only identify
    the codes; `severity` orders them.
    """

    successful = 0
    local_optimum = 1
    iteration_limit = 2
    precision_limit = 3
    factorization_failed = 4
    nonfinite = 5
    small_change = 6
    stopped_early = 7
    small_gradient = 8
    settled = 9
    sampling_failed = 10
    not_positive = 11
    no_gradient = 12
    invalid_data = 13
    time_limit = 14
    small_gain = 15

    @property
    def message(self) -> str:
        """What the code means and what to do about it."""
        return _MESSAGES[self]

    @property
    def is_success(self) -> bool:
        """Whether the computation ended as intended, so that its answer can be used as it is."""
        return self in _SUCCESSES

    @property
    def severity(self) -> int:
        """How bad the outcome is, from zero for the best; every failure is worse than every success."""
        return _BY_SEVERITY.index(self)


_SUCCESSES = (
    RESULTS.successful,
    RESULTS.local_optimum,
    RESULTS.small_gradient,
    RESULTS.small_change,
    RESULTS.small_gain,
    RESULTS.settled,
    RESULTS.stopped_early,
)

_BY_SEVERITY = (
    *_SUCCESSES,
    # a limit was reached: the answer is not good enough yet
    RESULTS.time_limit,
    RESULTS.iteration_limit,
    RESULTS.precision_limit,
    # the search or the sampler cannot work with this criterion or posterior
    RESULTS.no_gradient,
    RESULTS.not_positive,
    RESULTS.sampling_failed,
    # there is no answer
    RESULTS.factorization_failed,
    RESULTS.nonfinite,
    RESULTS.invalid_data,
)


def worst(codes: Int[Array, "..."] | np.ndarray) -> Int[Array, ""]:
    """The most severe of several result codes, inside or outside of traced code.

    **Arguments:** `codes`, an array of result codes.

    **Returns:** one of them.
    """
    severities = jnp.asarray([code.severity for code in RESULTS])  # their numbers are 0, 1, 2, ...
    return jnp.asarray(_BY_SEVERITY, jnp.int32)[jnp.max(severities[jnp.asarray(codes)])]


_MESSAGES = {
    RESULTS.successful: "The optimality conditions hold.",
    RESULTS.local_optimum: (
        "The optimality conditions hold, but the loss is not convex: this is a stationary point and "
        "need not be the global optimum. Compare fits from several `init=`."
    ),
    RESULTS.iteration_limit: (
        "The iteration limit was reached before the optimality conditions held. Raise `max_iterations` "
        "(for a selection, `max_steps`), loosen the tolerance, or start closer to the solution."
    ),
    RESULTS.precision_limit: (
        "The solver stopped making progress before the optimality conditions held: rounding errors "
        "dominate. Work in float64 (`jax.config.update('jax_enable_x64', True)`), scale inputs and "
        "targets to unit size, or lower C times the kernel's amplitude (for a Gaussian process "
        "classifier, the ratio of the kernel's variance to the noise variance)."
    ),
    RESULTS.factorization_failed: (
        "A Cholesky factorization failed although a multiple of the identity was added: the kernel "
        "matrix is not positive semi-definite. Check a custom kernel for symmetry and "
        "positive-definiteness, or add a `White` kernel."
    ),
    RESULTS.nonfinite: (
        "The data, the kernel matrix or a hyperparameter is not finite. Look for NaN or infinity in "
        "inputs, targets and weights, and for hyperparameters that have overflowed."
    ),
    RESULTS.invalid_data: (
        "The data are invalid: a weight is negative, all weights are zero, or a label is neither -1 "
        "nor +1."
    ),
    RESULTS.time_limit: (
        "The time limit was reached before the search ended. Raise `seconds`, or continue from a "
        "`checkpoint`."
    ),
    RESULTS.small_change: (
        "The criterion stopped improving although its gradient was not small: there is a kink, a "
        "bound, or a plateau. Lower the tolerance of `stopping.SmallChange` to continue."
    ),
    RESULTS.small_gain: (
        "The last steps gained little, or no more than the noise of their gradients. To continue, lower "
        "`gain` of `stopping.SmallGain`, and raise `draws` or `chains` if noise hides the gain."
    ),
    RESULTS.stopped_early: (
        "The validation score stopped improving; the model is the one with the best score."
    ),
    RESULTS.small_gradient: (
        "The mean magnitude of the gradient fell to the requested share of its peak. Lower the share "
        "of `stopping.GradientFallen` to continue."
    ),
    RESULTS.settled: (
        "No hyperparameter moved by more than the requested share for several steps. Lower the share of "
        "`stopping.Settled` to continue."
    ),
    RESULTS.sampling_failed: (
        "The chains did not move, or a gradient was not finite: almost no trajectory was accepted. "
        "Lengthen the warm-up, lower the step size, or bound the hyperparameters (when C times the "
        "kernel's amplitude is large, the posterior has hard walls)."
    ),
    RESULTS.not_positive: (
        "The criterion inside `Regularized` is zero or negative, so its weight cannot be integrated "
        "out, which takes its logarithm. Set `zeta=` (to one for a negative log likelihood)."
    ),
    RESULTS.no_gradient: (
        "The gradient is exactly zero at each start: the criterion is piecewise constant there, like a "
        'count of errors. Choose a smooth score (`"smooth"`, or for `jaxsvm.gp` `"log"`), or '
        "`optimizer=optimizers.GreedyWalk()`, which needs no gradient."
    ),
}


class FitError(RuntimeError):
    """Raised by `throw=True` when a computation fails; the message says what to do."""


def raise_on_failure(value: _Value, result: Any, details: Callable[[], str] = lambda: "") -> _Value:
    """Return the value if the result code is a success, else raise; in traced code, at run time.

    **Arguments:** `value`, a pytree; `result`, its code; `details`, a function whose text is added to the
    message outside of traced code.

    **Returns:** the value.
    """
    if is_traced(result):
        codes = [code for code in RESULTS if not code.is_success]
        hits = jnp.stack([result == code for code in codes])
        messages = [code.message for code in codes]
        return eqx.branched_error_if(value, jnp.any(hits), jnp.argmax(hits), messages)
    code = RESULTS(int(result))
    if not code.is_success:
        raise FitError(code.message + details())
    return value

"""What became of a computation: one enumeration for the whole library."""

import enum
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp

from .runtime import is_traced


class RESULTS(enum.IntEnum):
    """Result codes; each has a `message` that says what happened and what to do about it.

    Computations return the code as an integer array (one for each member of a batch), so it can be
    compared with these names inside and outside of traced code: `fit.result == RESULTS.successful`.
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

    @property
    def message(self) -> str:
        """The meaning of the code in words."""
        return _MESSAGES[self]

    @property
    def is_success(self) -> bool:
        """Whether the computation ended as it should, and its answer can be used as it is."""
        return self in _SUCCESSES


_SUCCESSES = (
    RESULTS.successful,
    RESULTS.local_optimum,
    RESULTS.small_change,
    RESULTS.stopped_early,
    RESULTS.small_gradient,
    RESULTS.settled,
)


_MESSAGES = {
    RESULTS.successful: "The optimality conditions hold.",
    RESULTS.local_optimum: (
        "The optimality conditions hold, but the loss is not convex: this is a stationary point and "
        "need not be the global optimum. Compare fits from several `init=`."
    ),
    RESULTS.iteration_limit: (
        "The iteration limit was reached before the optimality conditions held. Raise "
        "`max_iterations` (of a fit; of a selection `max_steps`), loosen the tolerance, or start from a "
        "near solution."
    ),
    RESULTS.precision_limit: (
        "The solver stopped making progress before the optimality conditions held: rounding errors "
        "dominate. Work in float64 (`jax.config.update('jax_enable_x64', True)`), scale inputs and "
        "targets to unit size, or lower C times the kernel's amplitude (of a Gaussian process "
        "classifier: the kernel's variance over that of the noise)."
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
        "The data are not valid: a weight is negative, all weights are zero, or a label is neither -1 "
        "nor +1."
    ),
    RESULTS.time_limit: (
        "The time limit was reached before the search had ended. Raise `seconds`, or continue from a "
        "`checkpoint`."
    ),
    RESULTS.small_change: (
        "The criterion had stopped improving although its gradient was not small: a kink of the "
        "criterion, a bound, or a plateau. Lower the tolerance of `stopping.SmallChange` to continue."
    ),
    RESULTS.stopped_early: (
        "The validation score had stopped improving; the model is the one with the best score."
    ),
    RESULTS.small_gradient: (
        "The mean magnitude of the gradient had fallen to the asked share of its peak. Lower the share "
        "of `stopping.GradientFallen` to continue."
    ),
    RESULTS.settled: (
        "No hyperparameter had moved by more than the asked share for several steps. Lower the share of "
        "`stopping.Settled` to continue."
    ),
    RESULTS.sampling_failed: (
        "The chains did not move, or a gradient was not finite: hardly any trajectory was accepted. "
        "Lengthen the warm-up, lower the step size, or bound the hyperparameters (a large C times "
        "the kernel's amplitude makes a posterior with hard walls)."
    ),
    RESULTS.not_positive: (
        "The criterion inside of `Regularized` is zero or negative, so its weight cannot be integrated "
        "out: that takes its logarithm. Give `zeta=` (one for a negative log likelihood)."
    ),
    RESULTS.no_gradient: (
        "The gradient is exactly zero at each start: the criterion is piecewise constant there, as a "
        'count of errors is. Choose a smooth score (`"smooth"`, or for `jaxsvm.gp` `"log"`), or '
        "`optimizer=optimizers.GreedyWalk()`, which needs no gradient."
    ),
}


class FitError(RuntimeError):
    """A computation that did not reach its answer, raised by `throw=True`."""


def raise_on_failure(value, result, details: Callable[[], str] = lambda: ""):
    """The value, if the result code is a success; raises otherwise, inside traced code at run time."""
    if is_traced(result):
        codes = [code for code in RESULTS if not code.is_success]
        hits = jnp.stack([result == code for code in codes])
        messages = [code.message for code in codes]
        return eqx.branched_error_if(value, jnp.any(hits), jnp.argmax(hits), messages)
    code = RESULTS(int(result))
    if not code.is_success:
        raise FitError(code.message + details())
    return value

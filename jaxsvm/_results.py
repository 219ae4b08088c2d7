"""What became of a computation: one enumeration for the whole library."""

import enum


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

    @property
    def message(self) -> str:
        """The meaning of the code in words."""
        return _MESSAGES[self]

    @property
    def is_success(self) -> bool:
        """Whether the answer that comes with this code satisfies the optimality conditions."""
        return self in (RESULTS.successful, RESULTS.local_optimum)


_MESSAGES = {
    RESULTS.successful: "The optimality conditions hold.",
    RESULTS.local_optimum: (
        "The optimality conditions hold, but the loss is not convex: this is a stationary point and "
        "need not be the global optimum. Compare fits from several `init=`."
    ),
    RESULTS.iteration_limit: (
        "The solver reached its iteration limit before the optimality conditions held. Raise "
        "`max_iterations`, loosen `tolerance`, or start from a near solution with `init=`."
    ),
    RESULTS.precision_limit: (
        "The solver stopped making progress before the optimality conditions held: rounding errors "
        "dominate. Work in float64 (`jax.config.update('jax_enable_x64', True)`), scale inputs and "
        "targets to unit size, or lower C times the kernel's amplitude."
    ),
    RESULTS.factorization_failed: (
        "A Cholesky factorization failed although a multiple of the identity was added: the kernel "
        "matrix is not positive semi-definite. Check a custom kernel for symmetry and "
        "positive-definiteness, or add a `White` kernel."
    ),
    RESULTS.nonfinite: (
        "The kernel matrix or a hyperparameter is not finite. Look for NaN or infinity in the "
        "data and for hyperparameters that have overflowed."
    ),
}

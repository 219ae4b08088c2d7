"""A user's own kernel, and checks that its matrix is a covariance matrix."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..hyperparameters import unfreeze
from ..linalg import cholesky
from ..persistence import store_in_parts
from ..runtime import require_own_process
from ._algebra import AbstractKernel


class UserFunction(eqx.Module):
    """A function with parameters, or a module, whose leaves are its inexact arrays and nothing else.

    Everything else in a module (activation functions, sizes) is static, so that bare `jax.grad` and optax
    work on a model that contains it.

    **Arguments:** `function`, any callable; `parameters`, its first argument, a pytree of numbers and arrays,
    or None if `function` holds its own parameters.
    """

    parameters: Any
    rest: Any = eqx.field(static=True)
    is_function: bool = eqx.field(static=True)

    def __init__(self, function: Any, parameters: Any = None):
        if not callable(function):
            raise TypeError(f"a function or an `eqx.Module` is needed, not {function!r}")
        self.is_function = parameters is not None
        tree = parameters if self.is_function else function
        if self.is_function:
            tree = jax.tree.map(_as_inexact, tree)
        dynamic, static = eqx.partition(tree, eqx.is_inexact_array)
        for leaf in jax.tree.leaves(static):
            if isinstance(leaf, jax.Array | np.ndarray):
                raise TypeError(
                    f"the module holds an array of {leaf.dtype}, which can be neither differentiated "
                    "nor hashed: make it floating-point, or a static tuple"
                )
        self.parameters = dynamic
        self.rest = (function if self.is_function else None, HashableTree(static))

    def __call__(self, *points: Any) -> Any:
        """The value at the points."""
        function, static = self.rest
        tree = eqx.combine(unfreeze(self.parameters), static.tree)
        return function(tree, *points) if self.is_function else tree(*points)


class HashableTree:
    """A pytree of hashable leaves that compares by value.

    **Arguments:** `tree`, the pytree.
    """

    def __init__(self, tree: Any):
        self.tree = tree
        leaves, structure = jax.tree.flatten(tree)
        self._key = (tuple(leaves), structure)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashableTree) and self._key == other._key

    def __repr__(self) -> str:
        return repr(self.tree)


def _take_apart(wrapped: UserFunction) -> tuple:
    function, static = wrapped.rest
    return function, wrapped.parameters, static.tree


def _rebuild(function: Any, parameters: Any, static: Any) -> UserFunction:
    """Rebuild without the constructor, which would split the leaves of a network again."""
    if not callable(static if function is None else function):
        raise ValueError("it has no function")
    wrapped = object.__new__(UserFunction)
    object.__setattr__(wrapped, "parameters", parameters)
    object.__setattr__(wrapped, "rest", (function, HashableTree(static)))
    object.__setattr__(wrapped, "is_function", function is not None)
    return wrapped


store_in_parts(UserFunction, ("function", "parameters", "static"), _take_apart, _rebuild)


def _as_inexact(leaf):
    if isinstance(leaf, bool | int | float | np.ndarray | np.generic | jax.Array):
        array = jnp.asarray(leaf)
        floating = eqx.is_inexact_array(array)
        return array.astype(array.dtype if floating else jnp.result_type(float))  # not weakly typed
    return leaf


class Custom(AbstractKernel):
    """Any covariance function of two points, with any parameters.

    The function must be symmetric and positive semi-definite; `jaxsvm.fit` reports where it is not. All
    n x m values are computed by `vmap`; for a kernel on features of single points use `Transform`.

    **Arguments:** `function`, either a function `(x1, x2)`, a function `(parameters, x1, x2)` with
    `parameters`, any pytree of numbers and arrays, or any `eqx.Module` that is called with two points.
    """

    function: UserFunction

    def __init__(self, function: Any, parameters: Any = None):
        self.function = UserFunction(function, parameters)

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        values = jax.vmap(lambda a: jax.vmap(lambda b: self._value(a, b))(x2))(x1)
        if same:
            # symmetrize rounding errors; leave an asymmetric function unchanged, so that `fit` can report it
            upper = jnp.triu(jnp.ones(values.shape, bool))
            slack = 64 * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values))
            nearly = jnp.max(jnp.abs(values - values.T)) <= slack
            values = jnp.where(nearly & ~upper, values.T, values)
        return values

    def diagonal(self, x: Array) -> Array:
        return jax.vmap(lambda a: self._value(a, a))(x)

    def _value(self, a, b):
        value = self.function(a, b)
        if not eqx.is_array_like(value):
            raise TypeError(
                f"a custom kernel must give one number for two points, but gives {value!r}"
            )
        if jnp.ndim(value) != 0:
            raise ValueError(
                "a custom kernel must give one number for two points, but gives shape "
                f"{jnp.shape(value)}"
            )
        return jnp.asarray(value, jnp.result_type(value, a))  # also for integers


def is_user_defined(kernel: AbstractKernel) -> bool:
    """Whether a kernel is, or contains, a `Custom` kernel or a class from outside this library.

    **Arguments:** `kernel`.

    **Returns:** whether its matrix should be checked.
    """
    if isinstance(kernel, Custom) or type(kernel).__module__.split(".")[0] != "jaxsvm":
        return True
    parts = [part for part in vars(kernel).values() if isinstance(part, AbstractKernel)]
    return any(is_user_defined(part) for part in parts)


def is_covariance(gram: Float[Array, "n n"]) -> Bool[Array, ""]:
    """Whether a matrix is symmetric and positive semi-definite up to rounding, by one factorization.

    **Arguments:** `gram`, a square matrix.

    **Returns:** a truth value, with no derivative.
    """
    require_own_process()
    gram = jax.lax.stop_gradient(gram)
    epsilon = jnp.finfo(gram.dtype).eps
    largest = jnp.max(jnp.abs(gram))
    symmetric = jnp.max(jnp.abs(gram - gram.T)) <= jnp.sqrt(epsilon) * largest
    lift = 64 * gram.shape[0] * epsilon * largest
    factor = cholesky(gram + lift * jnp.eye(gram.shape[0], dtype=gram.dtype))
    return symmetric & jnp.all(jnp.isfinite(factor))


def covariance_defect(gram: Any) -> str:
    """By how much a matrix fails to be a covariance matrix, for an error message.

    **Arguments:** `gram`, a square matrix of numbers.

    **Returns:** a sentence.
    """
    matrix = np.asarray(gram, float)
    if not np.all(np.isfinite(matrix)):
        return "the kernel matrix holds NaN or infinite values"
    asymmetry = np.max(np.abs(matrix - matrix.T))
    values = np.linalg.eigvalsh((matrix + matrix.T) / 2)
    return (
        f"the eigenvalues of the kernel matrix go from {values[0]:.3g} to {values[-1]:.3g}, and "
        f"k(a, b) and k(b, a) differ by up to {asymmetry:.3g}"
    )

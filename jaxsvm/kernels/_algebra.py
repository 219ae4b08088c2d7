"""The interface of kernels, and their algebra."""

import abc
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..fields import Frozen
from ..persistence import check_fields
from ..validation import as_inputs
from ._spectrum import Waves

_Combined = TypeVar("_Combined", "Sum", "Product")


class AbstractKernel(eqx.Module):
    """A covariance function `k(x, x')`, with its hyperparameters as unconstrained leaves.

    Kernels are added and multiplied with `+` and `*`; a number stands for a `Constant` kernel, whose
    variance is a hyperparameter like any other (freeze it to keep it).
    """

    # NumPy leaves `array * kernel` to the kernel, instead of making an array of kernels
    __array_ufunc__: ClassVar[None] = None

    @abc.abstractmethod
    def matrix(
        self, x1: Float[Array, "n d"], x2: Float[Array, "m d"], same: bool
    ) -> Float[Array, "n m"]:
        """Covariances between two lists of points.

        **Arguments:** `x1`, `x2`, matrices with one row for each point; `same`, whether they are one and the
        same list.

        **Returns:** the matrix `k(x1_i, x2_j)`.
        """

    @abc.abstractmethod
    def diagonal(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Variances `k(x_i, x_i)` of a list of points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** a vector.
        """

    def gram(self, x: Any) -> Float[Array, "n n"]:
        """The symmetric matrix `K_ij = k(x_i, x_j)`.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** the Gram matrix.
        """
        points = as_inputs(x)
        return self.matrix(points, points, same=True)

    def cross(self, x1: Any, x2: Any) -> Float[Array, "n m"]:
        """The matrix `K_ij = k(x1_i, x2_j)` between two different lists of points.

        **Arguments:** `x1`, `x2`, matrices with one row for each point.

        **Returns:** the cross-covariances.
        """
        first, second = as_inputs(x1, "x1"), as_inputs(x2, "x2")
        if first.shape[1] != second.shape[1]:
            raise ValueError(
                f"`x1` has {first.shape[1]} inputs, but `x2` has {second.shape[1]}: they must agree"
            )
        return self.matrix(first, second, same=False)

    def __call__(self, x1: Float[Array, " d"], x2: Float[Array, " d"]) -> Float[Array, ""]:
        """The covariance `k(x1, x2)` of two single points."""
        first, second = jnp.atleast_1d(x1), jnp.atleast_1d(x2)
        if first.ndim != 1 or first.shape != second.shape:
            raise ValueError(
                f"the two points must be vectors of the same length, but have shapes {first.shape} and "
                f"{second.shape}; for matrices of points use `gram` or `cross`"
            )
        return self.cross(first[None], second[None])[0, 0]

    def __add__(self, other: "AbstractKernel | ArrayLike") -> "Sum":
        return _combine(Sum, self, other)

    def __radd__(self, other: "AbstractKernel | ArrayLike") -> "AbstractKernel":
        if isinstance(other, int) and other == 0:  # for Python's `sum`
            return self
        return _combine(Sum, other, self)

    def __mul__(self, other: "AbstractKernel | ArrayLike") -> "Product":
        return _combine(Product, self, other)

    def __rmul__(self, other: "AbstractKernel | ArrayLike") -> "Product":
        return _combine(Product, other, self)


check_fields(AbstractKernel, stand_ins=(Frozen,))


class AbstractSpectral(AbstractKernel):
    """A kernel that averages random waves, `k(x, x') = sum_t variance_t E[cos(phase_t(x) - phase_t(x'))]`.

    Compositions of other kernels have waves if their parts do.
    """

    @abc.abstractmethod
    def waves(self) -> tuple[Waves, ...]:
        """The terms of this sum.

        White noise has none: it is not a function of the inputs.

        **Returns:** a tuple of `Waves`.
        """


def waves_of(kernel: AbstractKernel) -> tuple[Waves, ...]:
    """The random waves of a kernel, or an error that names the kernel without waves.

    **Arguments:** `kernel`.

    **Returns:** a tuple of `Waves`, one for each term.
    """
    if not isinstance(kernel, AbstractSpectral):
        raise ValueError(
            f"random Fourier features are not available for the kernel `{type(kernel).__name__}`: use "
            "`jaxsvm.Nystrom(rank=...)`, which takes any kernel"
        )
    return kernel.waves()


class Sum(AbstractSpectral):
    """The sum `k(x, x') = left(x, x') + right(x, x')`.

    **Arguments:** `left` and `right`, two kernels.
    """

    left: AbstractKernel
    right: AbstractKernel

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        return self.left.matrix(x1, x2, same) + self.right.matrix(x1, x2, same)

    def diagonal(self, x: Array) -> Array:
        return self.left.diagonal(x) + self.right.diagonal(x)

    def waves(self) -> tuple[Waves, ...]:
        return waves_of(self.left) + waves_of(self.right)


class Product(AbstractSpectral):
    """The product `k(x, x') = left(x, x') right(x, x')`.

    **Arguments:** `left` and `right`, two kernels.
    """

    left: AbstractKernel
    right: AbstractKernel

    def matrix(self, x1: Array, x2: Array, same: bool) -> Array:
        return self.left.matrix(x1, x2, same) * self.right.matrix(x1, x2, same)

    def diagonal(self, x: Array) -> Array:
        return self.left.diagonal(x) * self.right.diagonal(x)

    def waves(self) -> tuple[Waves, ...]:
        left, right = waves_of(self.left), waves_of(self.right)
        return tuple(one.times(other) for one in left for other in right)


def require_kernel(value: Any) -> AbstractKernel:
    """The value itself if it is a kernel, else an error."""
    if not isinstance(value, AbstractKernel):
        raise TypeError(f"a kernel is needed, not {value!r}")
    return value


def _combine(operation: type[_Combined], left: Any, right: Any) -> _Combined:
    from ._constant import Constant  # a number is a constant kernel, which is a kernel

    operands = []
    for operand in (left, right):
        if not isinstance(operand, AbstractKernel):
            if not eqx.is_array_like(operand) or jnp.ndim(operand) != 0:
                return NotImplemented
            operand = Constant(operand)
        operands.append(operand)
    return operation(*operands)

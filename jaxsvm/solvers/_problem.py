"""The problem that solvers solve, the points on the way, and the solution they return."""

from typing import Any, Generic, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from typing_extensions import TypeVar

from ..gram import AbstractGram
from ..losses import AbstractLoss

Loss = TypeVar("Loss", bound=AbstractLoss, covariant=True, default=AbstractLoss)


class Problem(eqx.Module, Generic[Loss]):
    """Minimize `sum_i weights_i L(y_i, f_i) + 1/2 f' K^-1 f`, with `f = K dual + offset`.

    `gram` stands for K, `y` and `weights` are of the examples, `loss` is L, `has_offset` says whether the
    offset is free or zero. In a part of a larger problem, `shift` is what the other examples, whose
    coefficients are fixed, add to the latent values; None for nothing.
    """

    gram: AbstractGram
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    loss: Loss
    has_offset: bool = eqx.field(static=True)
    shift: Float[Array, " n"] | None = None

    def latent(
        self, product: Float[Array, " n"], offset: Float[Array, ""] | float
    ) -> Float[Array, " n"]:
        """The latent values.

        **Arguments:** `product`, `K dual`; `offset`.

        **Returns:** one number for each example.
        """
        moved = product + offset
        return moved if self.shift is None else moved + self.shift


class Start(NamedTuple):
    """Where a solver begins: `dual` coefficients and `offset`."""

    dual: Float[Array, " n"]
    offset: Float[Array, ""]


class Point(NamedTuple):
    """Coefficients, offset, and the latent values `K beta + offset` that belong to them."""

    beta: Float[Array, " n"]
    offset: Float[Array, ""]
    latent: Float[Array, " n"]


class Solution(NamedTuple):
    """Where a solver ended, as plain numbers: `attach_derivatives` makes them differentiable.

    `dual` coefficients and `offset`; which examples are `free`; `result`, a code of `jaxsvm.RESULTS`;
    `iterations` it took; the KKT `residual`, and the duality `gap` relative to the primal objective.
    """

    dual: Float[Array, " n"]
    offset: Float[Array, ""]
    free: Bool[Array, " n"]
    result: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    gap: Float[Array, ""]


class Options(NamedTuple):
    """How exactly (`tolerance`) and how long (`max_iterations`) to solve.

    With a plain number as tolerance it is hashable, hence static.
    """

    tolerance: float | Array | None = None
    max_iterations: int = 400

    def tolerance_in(self, dtype: Any) -> Any:
        """The required KKT residual: by default 1e-10 in float64, 2e-6 in float32.

        **Arguments:** `dtype`, of the numbers.

        **Returns:** a number.
        """
        return _default_tolerance(dtype) if self.tolerance is None else self.tolerance

    def gap_tolerance_in(self, dtype: Any) -> Any:
        """The required duality gap, relative to the primal objective.

        By default 1e-6 in float64 and 1e-3 in float32; it changes in proportion to the tolerance.

        **Arguments:** `dtype`, of the numbers.

        **Returns:** a number.
        """
        usual = 1e-6 if dtype == jnp.float64 else 1e-3
        return usual * self.tolerance_in(dtype) / _default_tolerance(dtype)

    def visible_in(self, dtype: Any) -> float:
        """The KKT residual, relative to the size of latent values, that rounding errors do not excuse.

        **Arguments:** `dtype`, of the numbers.

        **Returns:** a number.
        """
        return 1e-4 if dtype == jnp.float64 else 1e-2


def _default_tolerance(dtype) -> float:
    return 1e-10 if dtype == jnp.float64 else 2e-6

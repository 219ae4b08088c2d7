"""What a solver is given and what it gives back."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..losses import AbstractLoss


class Problem(eqx.Module):
    """Minimize `sum_i weights_i L(y_i, f_i) + 1/2 f' K^-1 f`, with `f = K dual + offset`.

    `gram` is K, `y` and `weights` are of the examples, `loss` is L, `has_offset` tells whether the offset is
    free or zero.
    """

    gram: Float[Array, "n n"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    loss: AbstractLoss
    has_offset: bool = eqx.field(static=True)


class Start(NamedTuple):
    """Where a solver begins: `dual` coefficients and `offset`."""

    dual: Float[Array, " n"]
    offset: Float[Array, ""]


class Solution(NamedTuple):
    """Where a solver ended: no derivatives are known of it.

    `dual` coefficients and `offset`; which examples are `free`; `result`, a code of `jaxsvm.RESULTS`;
    `iterations` it took, and the KKT `residual`.
    """

    dual: Float[Array, " n"]
    offset: Float[Array, ""]
    free: Bool[Array, " n"]
    result: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]


class Options(NamedTuple):
    """How exactly (`tolerance`) and how long (`max_iterations`) to solve; hashable, hence static."""

    tolerance: float | None = None
    max_iterations: int = 400

    def tolerance_in(self, dtype) -> float:
        """The KKT residual that is asked for: by default 1e-10 in float64, 2e-6 in float32.

        **Arguments:** `dtype`, of the numbers.

        **Returns:** a number.
        """
        if self.tolerance is not None:
            return self.tolerance
        return 1e-10 if dtype == jnp.float64 else 2e-6

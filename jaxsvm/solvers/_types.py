"""What a solver is given and what it gives back."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..losses import AbstractLoss


class Problem(eqx.Module):
    """Minimize `sum_i weights_i L(y_i, f_i) + 1/2 f' K^-1 f`, with `f = K dual + offset`."""

    gram: Float[Array, "n n"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    loss: AbstractLoss
    has_offset: bool = eqx.field(static=True)


class Start(NamedTuple):
    """Where a solver begins."""

    dual: Float[Array, " n"]
    offset: Float[Array, ""]


class Solution(NamedTuple):
    """Where a solver ended: no derivatives are known of it."""

    dual: Float[Array, " n"]
    offset: Float[Array, ""]
    free: Bool[Array, " n"]
    result: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]


class Options(NamedTuple):
    """How long and how exactly to solve; hashable, hence static."""

    tolerance: float | None = None
    max_iterations: int = 400

    def tolerance_in(self, dtype) -> float:
        """The KKT residual that is asked for: by default 1e-10 in float64, 2e-6 in float32."""
        if self.tolerance is not None:
            return self.tolerance
        return 1e-10 if dtype == jnp.float64 else 2e-6

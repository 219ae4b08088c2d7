"""The logarithm of the normal distribution and its derivatives, to full precision in both tails."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_SCALE = 3.0
# The power series of P in `h(-t) - t = P((t - 3) / (t + 3)) / (t + 3)`: the polynomial that equals the left
# side at 64 Chebyshev nodes, cut off where its Chebyshev series falls below rounding errors.
# tests/losses/test_normal.py computes it with 70 digits.
_SERIES = (
    *(1.698591929582619, -0.8415387946870331, 0.01716314677430632, 0.1856995799179089),
    *(-0.0254347506413659, -0.05463860594415015, 0.007699762312366097, 0.018431224993635923),
    *(-0.0009428858500932676, -0.006371543717931367, -0.000634001799395571),
    *(0.0020435258589729167, 0.0006121212185474808, -0.0005421538747459417),
    *(-0.00032286023209979984, 9.18643406318147e-05, 0.00012219278905425328),
    *(5.401814491745516e-06, -3.274403624188381e-05, -1.04926414044396e-05),
    *(4.900627113728245e-06, 3.689108994881683e-06, 3.291346578160098e-07),
    *(-4.7306922966560415e-07, -3.7762732304500885e-07, -1.1270446901272018e-07),
    *(8.647340243223866e-08, 5.697135195810704e-08, -7.521249659117823e-09),
    *(-7.571322470577712e-09,),
)
_LOG_ROOT = float(np.log(2 * np.pi) / 2)


class Normal(NamedTuple):
    """`log_cumulative` is `ln Phi(z)`, `hazard` its derivative `h = phi / Phi`, `excess` is `h + z`.

    The second derivative is `-h (h + z)`. Far to the left `h` is nearly `-z`: a sum would lose its digits.
    """

    log_cumulative: Float[Array, "..."]
    hazard: Float[Array, "..."]
    excess: Float[Array, "..."]


def normal(z: Float[Array, "..."]) -> Normal:
    """The logarithm of the standard normal distribution with its derivatives, elementwise.

    With `t = |z|`, a polynomial gives `h(-t) - t` for all t. The rest follows without cancellation:
    `ln Phi(-t) = -t^2 / 2 - ln sqrt(2 pi) - ln h(-t)`, `Phi(t) = 1 - q` and `h(t) = phi(t) / (1 - q)` with
    `q = Phi(-t) = phi(t) / h(-t)`.

    **Arguments:** `z`, an array.

    **Returns:** a `Normal`, differentiable.
    """
    left = z <= 0
    t = jnp.where(left, -z, z)
    share = 1 / (t + _SCALE)
    place = 1 - 2 * _SCALE * share
    series = jnp.full_like(z, _SERIES[-1])
    for coefficient in _SERIES[-2::-1]:
        series = series * place + coefficient
    excess = share * series
    hazard = t + excess
    log_density = -(t**2) / 2 - _LOG_ROOT
    density = jnp.exp(log_density)
    beyond = density / hazard
    right_hazard = density / (1 - beyond)
    # the logarithm is exact near one half, `log1p` near one
    logarithm = jnp.log(jnp.where(left, hazard, 1 - beyond))
    near_one = jnp.log1p(-jnp.minimum(beyond, 0.25))
    log_right = jnp.where(beyond < 0.25, near_one, logarithm)
    return Normal(
        jnp.where(left, log_density - logarithm, log_right),
        jnp.where(left, hazard, right_hazard),
        jnp.where(left, excess, right_hazard + z),
    )

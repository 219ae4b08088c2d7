"""The normal distribution against arithmetic with 60 digits, and the series of its hazard."""

from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsvm.losses._normal import _SCALE, _SERIES, normal

PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803"
)
POINTS = np.concatenate([np.linspace(-40, 8, 97), -(2.0 ** np.arange(6, 17))])


@pytest.fixture(autouse=True)
def digits():
    with localcontext() as context:
        context.prec = 70
        yield


def density(t):
    return (-t * t / 2).exp() / (2 * PI).sqrt()


def hazard_of_tail(t):
    """`phi(t) / Phi(-t)` for positive t: a power series, or far away a continued fraction."""
    if t > 7:
        fraction = t
        for k in range(900, 0, -1):
            fraction = t + Decimal(k) / fraction
        return fraction
    total, term, k = t, t, 1
    while abs(term) > Decimal("1e-75"):
        term *= t * t / (2 * k + 1)
        total, k = total + term, k + 1
    return density(t) / (Decimal("0.5") - density(t) * total)


def cosine(angle):
    total, term, k = Decimal(1), Decimal(1), 1
    while abs(term) > Decimal("1e-72"):
        term *= -angle * angle / ((2 * k - 1) * (2 * k))
        total, k = total + term, k + 1
    return total


def exact(z):
    """`ln Phi`, the hazard, the hazard plus z, and `-h (h + z)`."""
    z = Decimal(float(z))
    hazard = hazard_of_tail(abs(z))
    if z <= 0:
        log = density(Decimal(0)).ln() - z * z / 2 - hazard.ln()
    else:
        beyond = density(z) / hazard
        log, hazard = (1 - beyond).ln(), density(z) / (1 - beyond)
    return [float(v) for v in (log, hazard, hazard + z, -hazard * (hazard + z))]


def test_values_and_derivatives_in_both_tails(dtype):
    z = POINTS.astype(dtype)
    log, hazard, excess, second = np.array([exact(value) for value in z]).T
    with np.errstate(under="ignore"):
        found = jax.jit(normal)(jnp.asarray(z))
    first = jax.grad(lambda v: normal(v).log_cumulative)
    slopes = jax.jit(jax.vmap(first))(jnp.asarray(z))
    bends = jax.jit(jax.vmap(jax.grad(first)))(jnp.asarray(z))
    # exp(-t^2/2) has t^2/2 rounding errors
    rtol = 20 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(found.log_cumulative, log, rtol=rtol)
    np.testing.assert_allclose(found.hazard, hazard, rtol=rtol)
    np.testing.assert_allclose(found.excess, excess, rtol=rtol)
    np.testing.assert_allclose(slopes, hazard, rtol=rtol)
    np.testing.assert_allclose(bends, second, rtol=1e-11 if dtype == "float64" else 4e-6)


def test_ends_of_the_line(dtype):
    found = normal(jnp.asarray([-jnp.inf, jnp.inf, jnp.nan], dtype))
    np.testing.assert_array_equal(found.log_cumulative, [-np.inf, 0, np.nan])
    np.testing.assert_array_equal(found.hazard, [np.inf, 0, np.nan])
    np.testing.assert_array_equal(found.excess, [0, np.inf, np.nan])


def test_series_is_the_interpolant_at_chebyshev_nodes():
    nodes, scale = 64, Decimal(_SCALE)
    angles = [PI * (2 * j + 1) / (2 * nodes) for j in range(nodes)]
    places = [cosine(angle) for angle in angles]
    ends = [scale * (1 + u) / (1 - u) for u in places]
    values = [(hazard_of_tail(t) - t) * (t + scale) for t in ends]
    # sum_k c_k T_k(u), collected in powers of u
    series = [Decimal(0)] * len(_SERIES)
    before, now = [Decimal(0)] * len(_SERIES), [Decimal(1)] + [Decimal(0)] * (len(_SERIES) - 1)
    for k in range(len(_SERIES)):
        share = sum(v * cosine(k * a % (2 * PI)) for v, a in zip(values, angles, strict=True))
        share *= Decimal(2 if k else 1) / nodes
        series = [s + share * c for s, c in zip(series, now, strict=True)]
        raised = [Decimal(0), *now[:-1]]
        before, now = now, [(2 if k else 1) * r - b for r, b in zip(raised, before, strict=True)]
    np.testing.assert_allclose(_SERIES, [float(s) for s in series], rtol=1e-15)

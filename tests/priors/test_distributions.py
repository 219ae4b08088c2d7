"""Distributions in natural units against SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from jaxsvm import priors


class ScipyLogitNormal:
    """`v = end / (1 + exp(-z))` with a Gaussian z, through SciPy's distribution of z."""

    def __init__(self, median, deviation, end):
        self.normal = scipy.stats.norm(scipy.special.logit(median / end), deviation)
        self.end = end

    def ppf(self, share):
        return self.end * scipy.special.expit(self.normal.ppf(share))

    def logpdf(self, v):
        slope = self.end / (v * (self.end - v))
        return self.normal.logpdf(scipy.special.logit(v / self.end)) + np.log(slope)


PAIRS = {
    "logit-normal": (priors.LogitNormal(0.1, 0.8, 0.5), ScipyLogitNormal(0.1, 0.8, 0.5)),
    "log-normal": (priors.LogNormal(2.0, 0.5), scipy.stats.lognorm(0.5, scale=2.0)),
    "half-Cauchy": (priors.HalfCauchy(3.0), scipy.stats.halfcauchy(scale=3.0)),
    "normal": (priors.Normal(-1.0, 0.3), scipy.stats.norm(-1.0, 0.3)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_densities_and_quantiles(name, dtype):
    ours, theirs = PAIRS[name]
    shares = np.array([0.001, 0.1, 0.5, 0.9, 0.999])
    tolerance = 1e-10 if dtype == "float64" else 2e-4
    quantiles = ours.quantile(jnp.asarray(shares))
    assert quantiles.dtype == jnp.dtype(dtype)
    np.testing.assert_allclose(quantiles, theirs.ppf(shares), rtol=tolerance)
    values = theirs.ppf(shares)
    np.testing.assert_allclose(
        ours.log_density(jnp.asarray(values)), theirs.logpdf(values), rtol=tolerance
    )


@pytest.mark.parametrize("name", PAIRS)
def test_scaled(name):
    distribution, _ = PAIRS[name]
    shares = jnp.asarray([0.2, 0.5, 0.7])
    units = np.array([0.1, 3.0, 20.0])
    scaled = distribution.scaled(units)
    np.testing.assert_allclose(
        scaled.quantile(shares), units * distribution.quantile(shares), rtol=1e-12
    )
    assert type(scaled) is type(distribution)


def test_extreme_values():
    """Very short and very long lengthscales have finite densities with finite slopes."""
    cauchy = priors.HalfCauchy(1.0)
    values = jnp.asarray([1e-200, 1e200])
    densities, slopes = jax.vmap(jax.value_and_grad(cauchy.log_density))(values)
    expected = np.log(2 / np.pi) - np.array([0.0, 2 * 200 * np.log(10)])
    np.testing.assert_allclose(densities, expected, rtol=1e-12)
    assert np.isfinite(slopes).all()


def test_bad_input():
    with pytest.raises(ValueError, match="`deviation` must be positive"):
        priors.LogNormal(1.0, 0.0)
    with pytest.raises(ValueError, match="`median` must be positive"):
        priors.LogNormal([1.0, -1.0])
    with pytest.raises(ValueError, match="`scale` must be finite"):
        priors.HalfCauchy(np.inf)
    with pytest.raises(ValueError, match=r"`median` must be below `end` = 0.5"):
        priors.LogitNormal(0.5, end=0.5)
    with pytest.raises(ValueError, match="`mean` must be finite"):
        priors.Normal(np.nan)

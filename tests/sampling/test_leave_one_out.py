"""Leave-one-out predictions from draws, against draws from the posterior without each example."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm.sampling import leave_one_out

X = jnp.array([[0.0], [0.7], [1.1], [1.5]])
Y = jnp.array([1.0, -1.0, 1.0, 1.0])
MODEL = jsvm.KernelMachine(
    kernels.RBF(0.8, 2.0) + kernels.Constant(0.3), losses.Normalized(losses.Hinge(0.9))
)
OPTIONS = {"draws": 2000, "keep_draws": True}


def test_against_sampling_again():
    """Within 4 standard errors, by the chains of both."""
    whole = jsvm.sample(MODEL, X, Y, key=jax.random.key(0), **OPTIONS)
    found = leave_one_out(whole)
    assert np.all(np.asarray(found.effective_draws) > 1000)
    for index in range(len(Y)):
        weights = jnp.ones(len(Y)).at[index].set(0.0)
        rest = jsvm.sample(MODEL, X, Y, key=jax.random.key(1), weights=weights, **OPTIONS)
        latent = np.asarray(rest.b @ rest.whitening.factor[index])
        by_chain = np.asarray(MODEL.loss.probability(jnp.asarray(latent))).mean(axis=1)
        p, error = by_chain.mean(), by_chain.std(ddof=1) / len(by_chain) ** 0.5
        left_out = 1 / (1 + np.exp(-float(found.log_odds[index])))
        assert abs(left_out - p) < 4 * 2**0.5 * max(error, 2e-3)


def test_an_absent_example_is_predicted_as_it_is():
    """Its weight is zero, so nothing has to be left out."""
    weights = jnp.array([1.0, 0.0, 1.0, 1.0])
    posterior = jsvm.sample(MODEL, X, Y, key=jax.random.key(2), weights=weights, **OPTIONS)
    found = leave_one_out(posterior)
    p = float(posterior.probability(X[1:2])[0])
    np.testing.assert_allclose(found.log_odds[1], np.log(p / (1 - p)), atol=0.02)
    np.testing.assert_allclose(
        found.effective_draws[1], posterior.b.shape[0] * posterior.b.shape[1]
    )


def test_only_labels():
    targets = jsvm.KernelMachine(kernels.RBF(), losses.Quadratic(0.1))
    posterior = jsvm.sample(targets, X, Y, key=jax.random.key(0), draws=300)
    with pytest.raises(ValueError, match="is for labels, but Quadratic"):
        leave_one_out(posterior)

"""Products of a tall factor with itself, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsvm import linalg


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("shape", [(4, 4), (2046, 5), (2048, 1), (5002, 7)])
def test_weighted_gram(shape, shards, dtype):
    random = np.random.default_rng(0)
    rows, weights = random.normal(size=shape), random.normal(size=shape[0])
    expected = (rows * weights[:, None]).T @ rows
    given = jnp.asarray(rows, dtype), jnp.asarray(weights, dtype)
    found = linalg.weighted_gram(*given, shards)
    size = (np.abs(rows) * np.abs(weights)[:, None]).T @ np.abs(rows)
    assert np.all(np.abs(found - expected) <= 16 * np.finfo(dtype).eps * size)


def test_derivatives_and_batches_of_a_weighted_gram():
    random = np.random.default_rng(1)
    rows, weights = random.normal(size=(2500, 3)), random.normal(size=(2, 2500))
    cotangent = random.normal(size=(3, 3))

    def value(rows, weights):
        return jnp.sum(cotangent * linalg.weighted_gram(rows, weights))

    by_rows, by_weights = jax.jit(jax.vmap(jax.grad(value, (0, 1)), (None, 0)))(rows, weights)
    both = cotangent + cotangent.T
    for k in range(2):
        np.testing.assert_allclose(by_rows[k], weights[k][:, None] * rows @ both, rtol=1e-12)
        forms = np.einsum("ip,pq,iq->i", rows, cotangent, rows)
        np.testing.assert_allclose(by_weights[k], forms, rtol=1e-11, atol=1e-13)

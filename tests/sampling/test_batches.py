"""Chains that see batches: their forces against all examples, their draws against a Gaussian posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm.sampling import (
    HMC,
    MCLMC,
    NUTS,
    SGLD,
    Target,
    begin_chains,
    run_chains,
    slopes,
    total_loss,
)
from jaxsvm.sampling._batches import (
    _force,
    _linearize,
    draw_by_batches,
    find_center,
    linearize_by_draws,
)

RANDOM = np.random.default_rng(0)
FACTOR = jnp.asarray(RANDOM.normal(size=(60, 3)) * [1.0, 0.7, 0.4])
Y = jnp.asarray(
    np.where(FACTOR @ jnp.array([1.0, -1.0, 0.5]) + RANDOM.normal(size=60) > 0, 1.0, -1.0)
)
WEIGHTS = jnp.asarray(RANDOM.integers(0, 3, size=60).astype(float))  # some examples are absent


def target(loss):
    return Target(loss, FACTOR, Y, WEIGHTS)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("regressed", [False, True])
def test_forces_are_unbiased_with_the_variance_they_report(regressed, shards):
    posterior = target(jsvm.losses.Hinge(1.5))
    center = jnp.array([0.4, -0.3, 0.2])
    if regressed:
        linear = linearize_by_draws(
            posterior, center[None, None] + 0.3 * jax.random.normal(jax.random.key(0), (9, 4, 3))
        )
    else:
        curvature = jnp.asarray(RANDOM.uniform(size=60))  # any serves a control variate
        linear = _linearize(posterior, center, slopes(posterior, FACTOR @ center), curvature)
    c = jnp.array([1.0, -0.5, 0.8])
    keys = jax.random.split(jax.random.key(1), 20_000)
    draw = jax.jit(jax.vmap(lambda key: _force(posterior, SGLD(7), shards, linear, c, key)))
    forces, variances = draw(keys)

    def log_density(c):
        b = linear.center + linear.scaling.root @ c
        losses = 1.5 * jnp.maximum(1 - Y * (FACTOR @ b), 0)
        return -jnp.sum(WEIGHTS * losses) - b @ b / 2

    error = jnp.std(forces, axis=0) / len(keys) ** 0.5
    assert jnp.all(error > 0)
    assert jnp.all(jnp.abs(jnp.mean(forces, axis=0) - jax.grad(log_density)(c)) < 4 * error)
    np.testing.assert_allclose(jnp.mean(variances, axis=0), jnp.var(forces, axis=0), rtol=0.1)


@pytest.mark.parametrize("step_size", [None, 1.2])
def test_a_gaussian_posterior_is_sampled_without_bias(step_size):
    """The rest of a quadratic loss is zero, and the temperature makes up for any step size."""
    posterior = target(jsvm.losses.LeastSquares(1.5))
    method = SGLD(8, steps=8, step_size=step_size)
    start = find_center(posterior, jax.random.key(0))
    drawn = jax.jit(
        lambda: draw_by_batches(posterior, method, start, jax.random.key(1), 20, 10, 1000)
    )()
    slope = np.asarray(posterior.loss.curvature(Y, jnp.zeros(60))) * np.asarray(WEIGHTS)
    factor = np.asarray(FACTOR)
    covariance = np.linalg.inv(factor.T @ (slope[:, None] * factor) + np.eye(3))
    mean = covariance @ factor.T @ (slope * np.asarray(Y))
    b = np.asarray(drawn.b)
    error = b.mean(axis=0).std(axis=0, ddof=1) / 20**0.5
    assert np.all(np.abs(b.mean(axis=(0, 1)) - mean) < 4 * error)
    squares = np.einsum("dci,dcj->cij", b - mean, b - mean) / len(b)
    error = squares.std(axis=0, ddof=1) / 20**0.5
    assert np.all(np.abs(squares.mean(axis=0) - covariance) < 4 * error)
    assert float(drawn.batch_noise) < 1e-12 and not bool(jnp.any(drawn.traces.divergent))


@pytest.mark.parametrize(
    "method", [HMC(), NUTS(), MCLMC(), SGLD(8)], ids=lambda m: type(m).__name__
)
def test_one_run_of_chains_for_all_methods(method):
    """Draws, their losses, and energies that add fresh momenta."""
    posterior = target(jsvm.losses.LeastSquares(1.5))
    start_key, *keys = jax.random.split(jax.random.key(4), 3)

    @jax.jit
    def run():
        start = begin_chains(posterior, method, 20, start_key)
        drawn = run_chains(posterior, method, start, keys, 40, 500)
        losses = jax.vmap(jax.vmap(lambda b: total_loss(posterior, FACTOR @ b)))(drawn.b)
        return drawn, drawn.complete_traces(losses), losses

    drawn, traces, losses = run()
    np.testing.assert_allclose(traces.loss, losses, rtol=1e-12)
    np.testing.assert_allclose(traces.penalty, jnp.sum(drawn.b**2, axis=2) / 2, rtol=1e-12)
    np.testing.assert_array_equal(drawn.chains.b, drawn.b[-1])
    density = np.asarray(losses + traces.penalty)
    # the energy of a trajectory is that of its beginning, which is the draw before
    before = density if drawn.batch_noise is not None else density[:-1]
    kinetic = np.asarray(traces.energy)[-len(before) :] - before
    if isinstance(method, MCLMC):  # velocities have unit length
        np.testing.assert_allclose(kinetic, 0.5, rtol=1e-9)
        return
    assert kinetic.min() >= -1e-9
    error = kinetic.mean(axis=0).std(ddof=1) / 20**0.5
    assert abs(kinetic.mean() - 3 / 2) < 4 * error
    assert len(np.unique(kinetic)) == kinetic.size


def test_sample_takes_no_batches():
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), jsvm.losses.Hinge(1.0))
    with pytest.raises(TypeError, match="`method` must be"):
        jsvm.sample(model, FACTOR, Y, key=jax.random.key(0), method=SGLD(10))  # pyright: ignore

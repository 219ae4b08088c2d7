"""The conditions that a solution satisfies, loss by loss, and what else solvers and criteria ask a loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference_losses import CASES

from jaxsvm import losses
from jaxsvm.losses import AbstractPiecewise, weighted_bound, weighted_compliance

N = 40
RNG = np.random.default_rng(3)
LATENT = RNG.uniform(-0.9, 2.5, size=N)  # margins on this side of all walls
WEIGHTS = RNG.uniform(0.5, 2.0, size=N)
WEIGHTS[5] = 0.0
every_loss = pytest.mark.parametrize("name", CASES)


def solved(name):
    """A loss, and latent values with coefficients and groups that belong to them."""
    loss = CASES[name](1.0)[0]
    if loss.is_classifier:
        y = jnp.asarray(np.where(RNG.uniform(size=N) < 0.5, -1.0, 1.0))
        f = y * LATENT
    else:
        y, f = jnp.asarray(RNG.normal(size=N)), jnp.asarray(LATENT)
    weights = jnp.asarray(WEIGHTS)
    if not isinstance(loss, AbstractPiecewise):
        dual = jnp.where(weights > 0, -weights * loss.derivative(y, f), 0.0)
        return loss, y, f, dual, weights, jnp.ones(N, bool)
    compliance = weighted_compliance(loss, weights, f.dtype)
    bound = weighted_bound(loss, weights, f.dtype)
    dual, free = loss.respond(y, f, compliance + 1.0, bound)
    f = jnp.where(free, loss.target(y, dual) - compliance * dual, f)
    return loss, y, f, dual, weights, free


@every_loss
def test_conditions_hold_and_have_their_slopes(name):
    loss, y, f, dual, weights, free = solved(name)
    assert free.any()
    np.testing.assert_allclose(loss.optimality(y, f, dual, weights, free), 0, atol=1e-13)

    def at_dual(dual):
        return loss.optimality(y, f, dual, weights, free)

    def at_latent(f):
        return loss.optimality(y, f, dual, weights, free)

    in_dual, in_latent = loss.optimality_slopes(y, f, weights, free)
    ones = jnp.ones(N)
    np.testing.assert_allclose(in_dual, jax.jvp(at_dual, (dual,), (ones,))[1], rtol=1e-12)
    np.testing.assert_allclose(
        in_latent, jax.jvp(at_latent, (f,), (ones,))[1], rtol=1e-10, atol=1e-12
    )


@every_loss
def test_softened_slopes_have_their_curvatures_and_tend_to_the_loss(name):
    loss, y, f, _, weights, _ = solved(name)
    f = f + 0.0123  # away from the kinks
    slope, curvature = loss.softened(y, f, weights, 1e-3)
    change = jax.jvp(lambda f: loss.softened(y, f, weights, 1e-3)[0], (f,), (jnp.ones(N),))[1]
    wanted = change if loss.is_convex else jnp.maximum(change, 0)
    np.testing.assert_allclose(curvature, wanted, rtol=1e-10, atol=1e-12)
    exact = jnp.where(weights > 0, weights * loss.derivative(y, f), 0.0)
    near, _ = loss.softened(y, f, weights, 1e-9)
    np.testing.assert_allclose(near, exact, rtol=1e-6, atol=1e-6)
    if not isinstance(loss, AbstractPiecewise):
        np.testing.assert_array_equal(slope, exact)


@every_loss
def test_primal_and_dual_forms_of_the_objective_agree_at_a_solution(name):
    """For a kernel matrix that makes these latent values the solution: K = diag(f / dual), say."""
    loss, y, f, dual, weights, _ = solved(name)
    used = dual != 0
    ratios = jnp.where(used, f / jnp.where(used, dual, 1.0), 0.0)
    # an example without a coefficient is at zero then; it must not have a loss there
    latent = ratios * dual
    counts = used | (loss.value(y, jnp.zeros(N)) == 0)
    weights = jnp.where(counts, weights, 0.0)
    value = loss.stationary_objective(
        y, weights, dual, jnp.zeros(()), lambda vector: ratios * vector
    )
    total = jnp.sum(jnp.where(weights > 0, weights * loss.value(y, latent), 0.0))
    np.testing.assert_allclose(value, total + latent @ dual / 2, rtol=1e-10, atol=1e-12)


def test_a_kink_counts_as_much_as_its_gaussian():
    """[GS03, eq. 15]: `2 pi [a (C - a) / C]^2` for marginal support vectors of the hinge."""
    dual, free = jnp.array([0.5, 2.0, 0.0]), jnp.array([True, False, False])
    y = f = weights = jnp.ones(3)
    found = losses.Hinge(2.0).laplace_curvature(y, f, dual, weights, free)
    expected = 2 * np.pi * (0.5 * 1.5 / 2) ** 2
    np.testing.assert_allclose(found, [expected, 0.0, 0.0], rtol=1e-14)

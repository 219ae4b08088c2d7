"""Normalized losses: closed forms of the log odds, and evidences against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import jaxsvm as jsvm
from jaxsvm import kernels, losses

F = jnp.linspace(-4, 4, 33)
ONE = jnp.ones_like(F)


def odds(loss):
    """`ln P(+1 | f) / P(-1 | f)`."""
    p = np.asarray(loss.probability(F))
    return np.log(p / (1 - p))


def test_log_odds():
    C = 0.7
    hinge = np.where(abs(F) < 1, 2 * C * F, C * (F + np.sign(F)))
    np.testing.assert_allclose(odds(losses.Normalized(losses.Hinge(C))), hinge, atol=1e-12)
    linear = losses.Normalized(losses.LeastSquares(C))
    np.testing.assert_allclose(odds(linear), 2 * C * F, atol=1e-12)
    np.testing.assert_allclose(
        linear.value(ONE, F), losses.Logistic(1.0).value(ONE, 2 * C * F), rtol=1e-12
    )


def test_a_normalized_loss_stays_as_it_is():
    for loss in (losses.Probit(0.5), losses.Normalized(losses.Hinge(2.0))):
        np.testing.assert_allclose(
            losses.Normalized(loss).value(-ONE, F), loss.value(-ONE, F), atol=1e-12
        )


def test_both_labels_have_all_of_the_probability():
    """That of the hinge itself is less everywhere but at a margin."""
    total = [
        sum(np.exp(loss.log_likelihood(y * ONE, F)) for y in (1.0, -1.0))
        for loss in (losses.Normalized(losses.Hinge(1.5)), losses.Hinge(1.5))
    ]
    np.testing.assert_allclose(total[0], 1.0, rtol=1e-12)
    assert np.mean(total[1]) < 0.9


def evidence_of_contradiction(loss, amplitude):
    """`Q(+1, -1)` of two labels at the same point, by quadrature over its latent value."""

    def density(f):
        latent = jnp.asarray([f, f])
        return float(
            jnp.exp(jnp.sum(loss.log_likelihood(jnp.array([1.0, -1.0]), latent)))
        ) * stats.norm(0, amplitude).pdf(f)

    return integrate.quad(density, -8 * amplitude, 8 * amplitude, points=[-1, 0, 1], limit=200)[0]


def test_evidence_against_quadrature():
    loss = losses.Normalized(losses.Hinge(0.8))
    model = jsvm.KernelMachine(kernels.RBF(1.0, 4.0), loss)
    x, y = np.zeros((2, 1)), np.array([1.0, -1.0])
    estimate = jsvm.log_evidence(model, x, y, key=jax.random.key(0), approximation=jsvm.Nystrom(1))
    expected = np.log(evidence_of_contradiction(loss, 2.0))
    assert abs(float(estimate.value) - expected) < 4 * float(estimate.standard_error) + 1e-6


def test_the_evidence_of_single_labels_does_not_depend_on_the_amplitude():
    """By symmetry it is one half; that of the hinge itself grows with amplitude and C, although nothing is
    known about a single label."""
    y = np.array([1.0])

    def value(loss, variance):
        def density(f):
            at = jnp.asarray([f])
            return float(jnp.exp(loss.log_likelihood(jnp.asarray(y), at)[0])) * stats.norm(
                0, variance**0.5
            ).pdf(f)

        reach = 9 * variance**0.5
        return integrate.quad(density, -reach, reach, points=[-1, 0, 1], limit=400)[0]

    for variance in (0.1, 4.0, 400.0):
        proper = value(losses.Normalized(losses.Hinge(3.0)), variance)
        np.testing.assert_allclose(proper, 0.5, rtol=1e-8)
    hinge = [value(losses.Hinge(3.0), variance) for variance in (0.1, 4.0, 400.0)]
    assert hinge[0] < 0.2 < hinge[1] < 0.42 < hinge[2] < 0.5


def test_names_and_bad_input():
    model = jsvm.KernelMachine(kernels.RBF(), losses.Normalized(losses.Hinge(0.5)))
    np.testing.assert_allclose(jsvm.parameters(model)["loss.base.C"], 0.5)
    moved = jsvm.replace(model, {"loss.base.C": 2.0})
    np.testing.assert_allclose(moved.loss.base.C, 2.0)
    with pytest.raises(TypeError, match="`base` must be a loss of labels"):
        losses.Normalized(losses.Quadratic())
    with pytest.raises(ValueError, match="Trigonometric is infinite beyond"):
        losses.Normalized(losses.Trigonometric())

"""Solutions and derivatives of each solver in both precisions, against literal references.

`.ci/run` runs this file once more with the compiler flags of users.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference

import jaxsvm as jsvm
from jaxsvm import kernels, losses

RNG = np.random.default_rng(3)
X = RNG.normal(size=(20, 2))
LABELS = np.where(X[:, 0] + 0.7 * RNG.normal(size=20) > 0, 1.0, -1.0)
TARGETS = np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=20)
PROBE = RNG.normal(size=20)
POINT = np.log([1.3, 1.7, 0.9])  # lengthscale, variance, and the strength of the loss
ALLOWED = {"float64": (1e-8, 1e-6), "float32": (2e-4, 5e-3)}  # in latent values, in derivatives


def hinge(gram, strength):
    sign = np.diag(LABELS)
    tiny = 1e-13 * np.eye(20)  # for a factorization
    return LABELS * reference.box_qp(sign @ gram @ sign + tiny, np.ones(20), 0.0, strength)


def soft_insensitive(gram, strength):
    return reference.soft_insensitive_dual(gram, TARGETS, strength, 0.2, 0.3)


def quadratic(gram, strength):
    return np.linalg.solve(gram + np.eye(20) / strength, TARGETS)


def logistic(gram, strength):
    """Newton's method from zero."""
    latent = np.zeros(20)
    for _ in range(50):
        share = 1 / (1 + np.exp(LABELS * latent))
        curvature = strength * share * (1 - share)
        slope = strength * LABELS * share
        dual = np.linalg.solve(np.eye(20) + curvature[:, None] * gram, curvature * latent + slope)
        latent = gram @ dual
    return dual


# a loss of one strength, its targets, its dual coefficients; one for each solver, two for the piecewise one
SOLVERS = {
    "proximal": (losses.Hinge, LABELS, hinge),
    "proximal, two-sided": (
        lambda s: losses.SoftInsensitive(s, 0.2, 0.3),
        TARGETS,
        soft_insensitive,
    ),
    "direct": (lambda s: losses.Quadratic(1 / s), TARGETS, quadratic),
    "Newton": (losses.Logistic, LABELS, logistic),
}


def expected_latent(solver, point):
    lengthscale, variance, strength = np.exp(point)
    gram = reference.rbf(X, lengthscale, variance, 0.5)
    return gram @ SOLVERS[solver][2](gram, strength)


@pytest.mark.parametrize("solver", SOLVERS)
def test_solutions_and_derivatives(solver, dtype):
    make, y, _ = SOLVERS[solver]
    x, y, probe = (jnp.asarray(v, dtype) for v in (X, y, PROBE))

    @jax.jit
    def run(point, x, y):
        def objective(point):
            lengthscale, variance, strength = jnp.exp(point)
            kernel = kernels.RBF(lengthscale, variance) + kernels.Constant(0.5)
            fitted = jsvm.fit(jsvm.KernelMachine(kernel, make(strength)), x, y, throw=False)
            return jnp.sum(jnp.sin(fitted.latent + probe)), fitted

        return jax.value_and_grad(objective, has_aux=True)(point)

    (_, fitted), gradient = run(jnp.asarray(POINT, dtype), x, y)
    assert fitted.result == jsvm.RESULTS.successful
    assert fitted.latent.dtype == gradient.dtype == dtype
    near, nearly = ALLOWED[dtype]
    np.testing.assert_allclose(fitted.latent, expected_latent(solver, POINT), atol=near)
    expected = reference.central_difference(
        lambda point: np.sum(np.sin(expected_latent(solver, point) + PROBE)), POINT
    )
    assert np.abs(expected).min() > 1e-2  # a derivative of zero proves nothing
    np.testing.assert_allclose(gradient, expected, atol=nearly * np.abs(expected).max())

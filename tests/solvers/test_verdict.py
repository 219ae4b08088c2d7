"""The verdict on a point: what rounding hides does not count as solved."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm.gram import DenseGram
from jaxsvm.solvers import Options, Problem, _optimality


def judged(problem, beta, latent, offset=0.0):
    beta, latent, offset = map(jnp.asarray, (beta, latent, offset))
    return _optimality.judge_smooth(problem, Options(), beta, offset, latent)


def smooth_problem(matrix, y, loss, has_offset=False):
    y = jnp.asarray(y)
    return Problem(DenseGram(jnp.asarray(matrix)), y, jnp.ones_like(y), loss, has_offset)


def test_a_coefficient_that_no_slope_near_the_latent_value_has_counts():
    """The trigonometric loss never rises: at the margin, a coefficient of the wrong sign is an error.

    The loss is steep just below the margin, so a tiny step would change the slope by as much, but only in
    the other direction.
    """
    problem = smooth_problem([[1e12]], [1.0], jsvm.losses.Trigonometric())
    coefficient = 1e-10
    below = 1 - coefficient / (np.pi**2 / 8)  # the slope there
    assert bool(judged(problem, [coefficient], [below]).is_acceptable)
    wrong = judged(problem, [-coefficient], [1.0])
    assert float(wrong.residual) == pytest.approx(1e12 * coefficient)
    assert not bool(wrong.is_acceptable)


def test_large_coefficients_that_cancel_are_not_a_solution():
    """Two labels at one place: `(m, -m)` gives the same function for every m, but for rounding errors."""
    problem = smooth_problem(np.full((2, 2), 0.5), [1.0, -1.0], jsvm.losses.Logistic())
    best = np.array([0.5, -0.5])
    assert bool(judged(problem, best, np.zeros(2)).is_acceptable)
    huge = judged(problem, best + 1e9 * np.array([1.0, -1.0]), np.zeros(2))
    assert float(huge.residual) == 0.0  # the product alone shows nothing
    assert float(huge.largest_gap) > 1.0
    assert not bool(huge.is_acceptable)


def test_an_imbalance_costs_as_much_as_the_offset_is_far():
    """`sum(dual) = 0` is violated by as little as before, but a distant offset makes it expensive."""
    problem = smooth_problem(1e3 * np.eye(2), [1.0, -1.0], jsvm.losses.Logistic(), True)
    near, far = (judged(problem, [0.5, -0.5 + 1e-9], np.zeros(2), at) for at in (0.0, 1e6))
    assert float(near.largest_gap) == pytest.approx(1e-9, rel=0.01)
    assert float(far.largest_gap) == pytest.approx(1e-3, rel=0.01)
    assert not bool(far.is_acceptable)

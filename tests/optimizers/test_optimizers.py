"""The optimizers of hyperparameters by themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm.criteria import AbstractCriterion, evaluation
from jaxsvm.optimizers import GreedyWalk, lbfgs


def minimize(function, point, steps, optimizer):
    """Values at all points that were tried, and the best point."""
    value_and_grad = jax.value_and_grad(function)

    def step(carry, _):
        point, state, best = carry
        value, gradient = value_and_grad(point)
        updates, state = optimizer.update(gradient, state, point, value=value)
        best = jax.tree.map(lambda a, b: jnp.where(value < best[1], a, b), (point, value), best)
        return (optax.apply_updates(point, updates), state, best), value

    start = (point, optimizer.init(point), (point, jnp.inf))
    (_, _, best), values = jax.jit(lambda c: jax.lax.scan(step, c, None, length=steps))(start)
    return best, values


def rosenbrock(tree):
    a, b = tree["a"], tree["b"]
    return jnp.sum(100 * (b - a**2) ** 2 + (1 - a) ** 2)


def test_lbfgs_finds_the_end_of_a_curved_valley():
    start = {"a": jnp.array([-1.2, 0.5]), "b": jnp.array([1.0, -0.3])}
    (point, value), _ = minimize(rosenbrock, start, 120, lbfgs())
    assert float(value) < 1e-16
    np.testing.assert_allclose(point["a"], 1.0, atol=1e-7)


def test_lbfgs_is_exact_on_a_quadratic_and_never_exceeds_its_largest_move():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(6, 6))
    matrix, target = jnp.asarray(factor @ factor.T + np.eye(6)), jnp.asarray(5 * rng.normal(size=6))
    (point, _), _ = minimize(
        lambda v: (v - target) @ matrix @ (v - target), jnp.zeros(6), 60, lbfgs()
    )
    np.testing.assert_allclose(point, target, atol=1e-7)

    optimizer = lbfgs(max_move=0.25)
    point, state = jnp.zeros(6), optimizer.init(jnp.zeros(6))
    for _ in range(12):
        value, gradient = jax.value_and_grad(lambda v: jnp.sum((v - target) ** 2))(point)
        updates, state = optimizer.update(gradient, state, point, value=value)
        assert float(jnp.max(jnp.abs(updates))) <= 0.25 + 1e-12
        point = point + updates


@pytest.mark.parametrize("first, expected", [(None, 1e-3), (0.3, 0.3)])
def test_the_first_step_of_lbfgs_has_the_length_asked_for(first, expected):
    def mean(v):
        return 5e-4 * jnp.sum((v - jnp.array([1.0, 0.5])) ** 2)

    point, optimizer = jnp.zeros(2), lbfgs(first_move=first)
    value, gradient = jax.value_and_grad(mean)(point)
    move, _ = optimizer.update(gradient, optimizer.init(point), point, value=value)
    np.testing.assert_allclose(move, [expected, expected / 2], rtol=1e-12)
    best, _ = minimize(mean, point, 10, optimizer)
    np.testing.assert_allclose(best[0], [1.0, 0.5], atol=1e-6)


def test_lbfgs_turns_back_from_where_the_function_is_not_finite():
    def wall(v):  # minus infinity's neighbour: NaN beyond one
        return jnp.sum(jnp.where(v < 1, -jnp.log1p(-jnp.where(v < 1, v, 0.0)) - 3 * v, jnp.nan))

    (point, value), values = minimize(wall, jnp.array([0.0, 0.2]), 60, lbfgs(max_move=2.0))
    assert bool(jnp.any(jnp.isnan(values)))  # it has been there
    np.testing.assert_allclose(point, 2 / 3, atol=1e-6)
    assert np.isfinite(float(value))


def test_a_window_leads_over_small_jumps():
    def stairs(v):  # a slow way down with steps up on it, which its gradient does not see
        jumps = jnp.floor(3 * v) % 2
        return jnp.sum(jnp.cosh((v - 4) / 2) + 0.3 * jumps)

    start = jnp.array([0.4, 1.2])
    (_, stuck), _ = minimize(stairs, start, 40, lbfgs(max_move=0.3))
    (point, value), values = minimize(stairs, start, 40, lbfgs(max_move=0.3, window=5))
    assert float(value) < float(stuck) - 0.5
    np.testing.assert_allclose(point, 4.0, atol=0.4)
    assert bool(jnp.any(jnp.diff(values) > 0.1))  # over a jump
    with pytest.raises(ValueError, match="`window` must be a positive integer"):
        lbfgs(window=0)


class Valley(AbstractCriterion):
    """A steep valley that falls gently along its floor, on which all lengthscales are equal."""

    def check(self, model, x, y):
        pass

    def evaluate(self, model, data, memory=None):
        point = model.kernel.log_lengthscale
        value = jnp.mean(point) + 1e4 * jnp.sum((point - jnp.mean(point)) ** 2)
        return evaluation(value, jnp.zeros((), jnp.int32), None)


def test_the_walk_keeps_about_half_of_its_steps():
    """Whatever the first step size, which here is ten thousand times the width of the valley."""
    machine = jsvm.KernelMachine(kernels.RBF(jnp.ones(3)), losses.LeastSquares(1.0), offset=True)
    model = jsvm.freeze(machine, "kernel.variance", "loss")
    found = jsvm.select(
        model, np.eye(4, 3), [1.0, -1.0, 1.0, -1.0], Valley(),
        optimizer=GreedyWalk(step=1.0, step_tolerance=1e-300), restarts=4, starts=0.0,
        key=jax.random.key(4), max_steps=250, stop=(),
    )  # fmt: skip
    lengthscales = np.asarray(found.history.parameters["kernel.lengthscale"])
    kept = np.diff(lengthscales, axis=1) != 0
    assert kept[:, :10].mean() < 0.2
    assert 0.45 < kept[:, 100:].mean() < 0.55


def test_lbfgs_shortens_its_steps_however_steep_the_function():
    """Lengths of a step are relative to the first one on its line, not to one."""
    target = jnp.array([0.003, -0.001])
    (point, _), _ = minimize(lambda v: 1e14 * jnp.sum((v - target) ** 2), jnp.zeros(2), 30, lbfgs())
    np.testing.assert_allclose(point, target, rtol=1e-6)


def test_bad_walks():
    with pytest.raises(ValueError, match="`factor` must be a finite number above 1"):
        GreedyWalk(factor=0.9)
    with pytest.raises(ValueError, match="`step` must be positive"):
        GreedyWalk(step=0.0)
    with pytest.raises(TypeError, match="tuple"):
        GreedyWalk(linear="loss.C")
    assert jsvm.optimizers.GreedyWalk is GreedyWalk

"""The radius-margin bound."""

from functools import partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._fit import fit_gram
from .._machine import KernelMachine
from ..gram import AbstractGram
from ..linalg import one_by_one
from ..losses import Hinge, SquaredHinge
from ..results import RESULTS
from ._criterion import (
    AbstractCriterion,
    Data,
    Evaluation,
    evaluation,
    is_usable,
    memory_of,
    require_loss,
)

_BALLS = ("exact", "bound")


class RadiusMargin(AbstractCriterion):
    """The radius-margin bound `R^2 / n sum_i alpha_i` on the leave-one-out error.

    R is the radius of the smallest ball in feature space that holds all examples, and `alpha = |dual|`
    [GS03, eq. 9]. For the squared hinge the feature space is that of the kernel `K + 1/C`, in which the
    machine has a hard margin. With `ball="exact"` R is differentiable except for kinks where another example
    reaches the surface of the ball.

    **Arguments:** `ball`: "exact" for the smallest ball, `R^2 = max_b sum_i b_i K_ii - b' K b` over `b >= 0`
    with sum one; or "bound" for `max_i K_ii`, a ball around the origin, which for a stationary kernel is a
    constant, increased by any `Constant` kernel. `max_iterations`, the limit of the search for the smallest
    ball.
    """

    ball: str = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)

    def __init__(self, ball: Literal["exact", "bound"] = "exact", max_iterations: int = 100):
        if ball not in _BALLS:
            raise ValueError(f'`ball` must be "exact" or "bound", not {ball!r}')
        self.ball = ball
        self.max_iterations = int(max_iterations)

    def check(self, model: KernelMachine, x: Array, y: Array) -> None:
        hint = "use `LinearResponse` or `CrossValidation` for other losses"
        require_loss(self, model, (Hinge, SquaredHinge), hint)

    def evaluate(self, model: KernelMachine, data: Data, memory: Any = None) -> Evaluation:
        gram, weights = data.gram(model.kernel), data.weights
        fitted = fit_gram(model, gram, data.x, data.y, weights, memory)
        loss, counts = model.loss, weights > 0
        compliance = 1 / loss.C if isinstance(loss, SquaredHinge) else 0.0
        heights = gram.diagonal() + compliance
        if self.ball == "bound":
            radius = jnp.max(jnp.where(counts, heights, -jnp.inf))
            result = fitted.result
        else:
            own = jnp.full_like(weights, compliance)
            ball = enclosing_ball(gram, own, weights, self.max_iterations)
            share = jax.lax.stop_gradient(ball.share)
            # the envelope theorem: at the maximum the derivative is that of the objective alone
            radius = share @ heights - share @ (gram @ share) - share**2 @ _per_row(own, weights)
            result = jnp.where(is_usable(fitted.result), ball.result, fitted.result)
        value = radius * jnp.sum(jnp.abs(fitted.dual)) / jnp.sum(weights)
        return evaluation(value, result, memory_of(fitted))


class Ball(NamedTuple):
    """The smallest ball: its center is the mean of the examples, weighted by `share`.

    `gap` bounds the distance of `R^2` from its maximum, relative to the largest squared distance of an
    example from the mean of all, which is at most four times `R^2`.
    """

    share: Float[Array, " n"]
    gap: Float[Array, ""]
    iterations: Int[Array, ""]
    result: Int[Array, ""]


class _State(NamedTuple):
    share: Float[Array, " n"]
    slack: Float[Array, " n"]  # level - gradient, positive
    level: Float[Array, ""]
    iterations: Int[Array, ""]
    sound: Bool[Array, ""]


def enclosing_ball(
    gram: AbstractGram,
    own: Float[Array, " n"],
    weights: Float[Array, " n"],
    max_iterations: int = 100,
) -> Ball:
    """Maximize `sum_i b_i M_ii - b' M b` over `b >= 0` with sum one, by an interior-point method.

    M is the matrix K of the examples plus `own` on its diagonal. An example of weight w is w rows, each with
    an own variance, so `b_i^2 own_i / w_i` is its part of `b' M b` beyond `b' K b`.

    It takes about 5 to 15 factorizations for any matrix, singular or not: n x n, or p x p at a rank of p. No
    derivatives pass through.

    **Arguments:** `gram`, K; `own`, not negative; `weights` of the examples, zero for those that the ball
    need not contain; `max_iterations`.

    **Returns:** a `Ball`. Its gap is verified: at most 1e-12 in float64, a few units of rounding in float32
    and for examples that are close to each other but far from the origin; otherwise the result is
    `RESULTS.iteration_limit`.
    """
    run = partial(_enclosing_ball, max_iterations=max_iterations)
    return one_by_one(run)(*jax.lax.stop_gradient((gram, own, weights)))


def _per_row(own, weights) -> Float[Array, " n"]:
    """`own / weights`, zero for a weight of zero."""
    counts = weights > 0
    return jnp.where(counts, own / jnp.where(counts, weights, 1.0), 0.0)


class _Centered(NamedTuple):
    """The problem with the examples' mean as origin and the largest squared distance from it as unit."""

    gram: AbstractGram
    own: Float[Array, " n"]  # on the diagonal, in addition to that of the Gram matrix
    heights: Float[Array, " n"]  # in the unit
    counts: Bool[Array, " n"]
    unit: Float[Array, ""]
    rounding: Float[Array, ""]  # of the entries of the matrix, in the unit

    def product(self, share):
        """The matrix times the shares; its rows and columns are zero for examples that do not count."""
        present = jnp.where(self.counts, share, 0.0)
        product = self.gram @ present + self.own * present
        return jnp.where(self.counts, product / self.unit, 0.0)

    def gradient(self, share):
        """The derivative of the objective with respect to each share."""
        return self.heights - 2 * self.product(share)

    def solver(self, root):
        """Solve `(I + 2 diag(root) (matrix + jitter I) diag(root)) t = right`, for any right side."""
        jitter = 4 * root.shape[0] * self.rounding
        scale = jnp.where(self.counts, jnp.sqrt(2 / self.unit) * root, 0.0)
        return self.gram.solver(scale, 1 + 2 * jitter * root**2 + self.own * scale**2)


def _enclosing_ball(gram, own, weights, *, max_iterations: int) -> Ball:
    examples, dtype = weights.shape[0], weights.dtype
    problem = _centered(gram, own, weights)
    tolerance = jnp.maximum(2.5e-13, 8 * problem.rounding)

    def unfinished(state):
        gap = state.share @ state.slack
        return state.sound & (gap > tolerance) & (state.iterations < max_iterations)

    share = jnp.full(examples, 1 / examples, dtype)
    level = jnp.max(problem.gradient(share)) + 1
    start = _State(share, level - problem.gradient(share), level, jnp.array(0), jnp.array(True))
    last = jax.lax.while_loop(unfinished, partial(_predict_and_correct, problem), start)
    share = jnp.where(problem.counts, last.share, 0.0)
    share = share / jnp.sum(share)
    slope = problem.gradient(share)
    gap = jnp.max(slope) - share @ slope
    result = jnp.where(gap <= 4 * tolerance, RESULTS.successful, RESULTS.iteration_limit)
    return Ball(share, gap, last.iterations, result)


def _predict_and_correct(problem: _Centered, state: _State) -> _State:
    """One step of Mehrotra's predictor-corrector method."""
    share, slack = state.share, state.slack
    direction = _newton(problem, share, slack)
    now = share * slack
    mean = jnp.mean(now)
    share_change, slack_change, _ = direction(-now)
    reach = jnp.minimum(_reach(share, share_change), _reach(slack, slack_change))
    ahead = jnp.mean((share + reach * share_change) * (slack + reach * slack_change))
    target = (ahead / mean) ** 3 * mean
    # the corrector adds the product of both changes, which the first order ignores
    share_change, slack_change, level = direction(target - now - share_change * slack_change)
    reach = jnp.minimum(_reach(share, share_change), _reach(slack, slack_change))
    reach = jnp.minimum(1.0, (1 - 0.1 * jnp.minimum(0.1, mean) ** 0.5) * reach)
    moved = _State(
        share=share + reach * share_change,
        slack=slack + reach * slack_change,
        level=state.level + reach * level,
        iterations=state.iterations + 1,
        sound=jnp.array(True),
    )
    sound = jnp.all(jnp.isfinite(moved.share) & (moved.share > 0) & (moved.slack > 0))
    kept = state._replace(sound=jnp.array(False))
    return jax.tree.map(lambda a, b: jnp.where(sound, a, b), moved, kept)


def _newton(problem: _Centered, share, slack):
    """A function from a wanted change of `share * slack` to the changes that cause it, to first order.

    These are the changes of the shares, the slacks and the level. One factorization serves all calls.
    """
    root = jnp.sqrt(share / slack)
    solve_scaled = problem.solver(root)

    def solve(right):
        return root * solve_scaled(root * right)

    per_level = solve(jnp.ones_like(share))

    def direction(wanted):
        change = solve(wanted / share)
        level = jnp.sum(change) / jnp.sum(per_level)
        change = change - level * per_level
        return change, 2 * problem.product(change) + level, level

    return direction


def _centered(gram: AbstractGram, own, weights) -> _Centered:
    counts = weights > 0
    part = (counts / jnp.sum(counts)).astype(weights.dtype)
    # the objective of shares with sum one does not depend on the origin
    moved = gram.recentered(part)
    heights = moved.diagonal() + own
    unit = jnp.max(jnp.where(counts, heights, 0.0))
    unit = jnp.where(unit > 0, unit, 1.0)
    # an example that does not count is put far inside the ball, so that its share tends to zero
    heights = jnp.where(counts, heights / unit, -1.0)
    per_row = _per_row(own, weights)
    epsilon = float(jnp.finfo(weights.dtype).eps)
    largest = jnp.max(jnp.abs(gram.diagonal()) + per_row)
    rounding = epsilon * jnp.maximum(1.0, largest / unit)
    return _Centered(moved, per_row, heights, counts, unit, rounding)


def _reach(values, changes) -> Float[Array, ""]:
    """The longest step, up to one, that keeps all values from becoming negative."""
    falling = changes < 0
    ratios = jnp.where(falling, -values / jnp.where(falling, changes, -1.0), 1.0)
    return jnp.minimum(1.0, jnp.min(ratios))

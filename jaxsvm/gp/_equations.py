"""The naive mean field equations, how they are solved, and the derivatives of their solution."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._results import RESULTS
from ..linalg import one_by_one, solve_response
from ..losses import AbstractLoss
from ..posteriors import Average, averaged

_FIRST_RATE = 0.05  # of Table 8.1
_SHORTEST = 1e-4  # a Newton step that must be cut down to less is no good


class Equations(eqx.Module):
    """`step_i = d ln <Q(y_i | f)> / d h_i`, averaged over a Gaussian around `h_i` of variance `k_ii`.

    `step` is `y alpha` of each example, and `h = K (weights step) - k_ii step` the latent value that all
    others together give to it: [OW00, eq. 8.40]. An example of weight two is a repeated row: its twin is
    one of the others.
    """

    gram: Float[Array, "n n"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    loss: AbstractLoss

    def cavity(self, step: Float[Array, " n"]) -> Float[Array, " n"]:
        """The latent values `h`, each without its own example's part."""
        return self.gram @ (self.weights * step) - jnp.diag(self.gram) * step

    def average(self, step: Float[Array, " n"]) -> Average:
        """The averages whose slopes are the right-hand side of the equations."""
        return averaged(self.loss, self.y, self.cavity(step), jnp.diag(self.gram))

    def precision(self, average: Average) -> Float[Array, " n"]:
        """`1 / Omega` of eq. 8.42: the Gaussian that stands for an example, its weight included."""
        return self.weights * average.curvature / self._stiffness(average)

    def change(self, average: Average, right: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solve `change + curvature (K weights - k_ii) change = right`, the linearized equations."""
        stiffness = self._stiffness(average)
        moved = self.gram @ (self.weights * right / stiffness)
        latent = solve_response(self.gram, self.precision(average), moved, self.loss.is_convex)
        return (right - average.curvature * latent) / stiffness

    def _stiffness(self, average):
        """The variance of `Q(y_i | f) N(f; h_i, k_ii)` as a share of `k_ii`: positive for any likelihood."""
        return 1 - average.curvature * jnp.diag(self.gram)


class Solved(NamedTuple):
    """Where the iteration ended: no derivatives are known of it."""

    step: Float[Array, " n"]
    result: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]


class _State(NamedTuple):
    step: Float[Array, " n"]
    average: Any
    rate: Float[Array, ""]
    error: Float[Array, ""]  # the sum of squares of the changes that the equations ask for
    residual: Float[Array, ""]
    least: Float[Array, ""]  # the smallest residual so far
    stalls: Int[Array, ""]  # iterations since then
    iterations: Int[Array, ""]


def default_tolerance(dtype) -> float:
    """By how much the equations may be violated: 1e-10 in float64, 1e-5 in float32."""
    return 1e-10 if dtype == jnp.float64 else 1e-5


def solve_equations(
    equations: Equations, start: Float[Array, " n"], method: str, tolerance, max_iterations
) -> Solved:
    """Iterate until `max_i |change of step_i| <= tolerance max_i |step_i|`; no derivatives pass through.

    **Arguments:** `equations`; `start`, `y alpha` to begin with; `method`, "newton" or "adaptive";
    `tolerance`; `max_iterations`.

    **Returns:** a `Solved`.
    """
    run = one_by_one(partial(_iterate, method))
    limits = (jnp.asarray(tolerance, equations.gram.dtype), jnp.asarray(max_iterations))
    return run(*jax.lax.stop_gradient((equations, start)), *limits)


def _iterate(method, equations, start, tolerance, max_iterations) -> Solved:
    dtype = equations.gram.dtype
    # the other method is slow, not stuck
    patience = 20 if method == "newton" else max_iterations + 1

    def misfit(step, average):
        return jnp.sum((average.slope - step) ** 2)

    def move(state: _State, step, average) -> _State:
        residual = jnp.max(jnp.abs(average.slope - step)) / jnp.max(jnp.abs(average.slope))
        error = misfit(step, average)
        return _State(
            step=step,
            average=average,
            rate=jnp.where(error < state.error, 1.1 * state.rate, state.rate / 2),
            error=error,
            residual=residual,
            least=jnp.minimum(state.least, residual),
            stalls=jnp.where(residual < 0.99 * state.least, 0, state.stalls + 1),
            iterations=state.iterations + 1,
        )

    def adaptive(state: _State) -> _State:
        """Table 8.1: the rate grows by a tenth while the error falls, and is halved when it does not."""
        step = state.step + state.rate * (state.average.slope - state.step)
        return move(state, step, equations.average(step))

    def newton(state: _State) -> _State:
        """Newton's step, halved until the error falls."""
        change = equations.change(state.average, state.average.slope - state.step)

        def too_far(trial):
            distance, step, average = trial
            fallen = misfit(step, average) <= (1 - 1e-4 * distance) * state.error
            return ~fallen & (distance > _SHORTEST)

        def nearer(trial):
            distance = trial[0] / 2
            step = state.step + distance * change
            return distance, step, equations.average(step)

        # the first trial, of two steps at once, is refused unseen: its misfit is that of the start
        first = (jnp.asarray(2.0, dtype), state.step, state.average)
        _, step, average = jax.lax.while_loop(too_far, nearer, first)
        return move(state, step, average)

    def unfinished(state: _State) -> Bool[Array, ""]:
        return (
            (state.residual > tolerance)
            & (state.stalls < patience)
            & (state.iterations < max_iterations)
        )

    rate, infinity = (jnp.asarray(value, dtype) for value in (_FIRST_RATE / 1.1, jnp.inf))
    none = jnp.zeros((), int)
    before = _State(start, None, rate, infinity, infinity, infinity, none, none - 1)
    body = newton if method == "newton" else adaptive
    last = jax.lax.while_loop(unfinished, body, move(before, start, equations.average(start)))
    success = RESULTS.successful if equations.loss.is_convex else RESULTS.local_optimum
    result = jnp.select(
        [last.residual <= tolerance, ~jnp.isfinite(last.residual), last.stalls >= patience],
        [success, RESULTS.nonfinite, RESULTS.precision_limit],
        RESULTS.iteration_limit,
    )
    return Solved(last.step, result.astype(jnp.int32), last.iterations, last.residual)


@jax.custom_jvp
def attach_derivatives(equations: Equations, step: Float[Array, " n"]) -> Float[Array, " n"]:
    """The solution as a differentiable function of the equations, forward, in reverse and again."""
    return step


@attach_derivatives.defjvp
def _attach_derivatives_jvp(primals, tangents):
    equations, step = primals
    # the solution itself depends on the equations: so that this rule can be differentiated again
    step = attach_derivatives(equations, step)
    _, explicit = jax.jvp(lambda e: e.average(step).slope, (equations,), (tangents[0],))
    return step, equations.change(equations.average(step), explicit)

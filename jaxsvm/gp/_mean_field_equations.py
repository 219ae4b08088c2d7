"""The naive mean field equations, how they are solved, and the derivatives of their solution."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..gram import AbstractGram
from ..linalg import one_by_one
from ..losses import AbstractLoss
from ..posteriors import Average, averaged
from ..results import RESULTS
from ._fixed_point import Limits, Outcome, iterate

_FIRST_RATE = 0.05  # [OW00, Table 8.1]
_SHORTEST = 1e-4  # do not cut a Newton step to less than this share


class Equations(eqx.Module):
    """`step_i = d ln <Q(y_i | f)> / d h_i`, averaged over a Gaussian around `h_i` of variance `k_ii`.

    `step` is `y alpha` of each example, and `h = K (weights step) - k_ii step` the latent value that all
    other examples together give it: [OW00, eqs. 8.33-8.40]. An example of weight two is a repeated row, whose
    twin is one of the other examples.
    """

    gram: AbstractGram
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    loss: AbstractLoss

    def cavity(self, step: Float[Array, " n"]) -> Float[Array, " n"]:
        """The latent values `h`, each without the contribution of its own example."""
        return self.gram @ (self.weights * step) - self.gram.diagonal() * step

    def average(self, step: Float[Array, " n"]) -> Average:
        """The averages whose slopes are the right-hand side of the equations."""
        return averaged(self.loss, self.y, self.cavity(step), self.gram.diagonal())

    def precision(self, average: Average) -> Float[Array, " n"]:
        """The precision `1 / Omega` of the Gaussian that replaces an example, eq. 8.42, times its weight."""
        return self.weights * average.curvature / self._stiffness(average)

    def change(self, average: Average, right: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solve `change + curvature (K weights - k_ii) change = right`, the linearized equations."""
        stiffness = self._stiffness(average)
        shift = self.weights * right / stiffness
        precision = self.precision(average)
        latent, _ = self.gram.posterior_marginals(shift, precision, self.loss.is_convex)
        return (right - average.curvature * latent) / stiffness

    def _stiffness(self, average):
        """The variance of `Q(y_i | f) N(f; h_i, k_ii)` as a share of `k_ii`: positive for any likelihood."""
        return 1 - average.curvature * self.gram.diagonal()


class _State(NamedTuple):
    step: Float[Array, " n"]
    average: Average
    rate: Float[Array, ""]
    error: Float[Array, ""]  # the sum of squares of the changes that the equations ask for


def default_tolerance(dtype) -> float:
    """The relative violation of the equations to accept: 1e-10 in float64, 1e-5 in float32."""
    return 1e-10 if dtype == jnp.float64 else 1e-5


def solve_equations(
    equations: Equations, start: Float[Array, " n"], method: str, limits: Limits
) -> tuple[Float[Array, " n"], Outcome]:
    """Iterate until `max_i |change of step_i| <= tolerance max_i |step_i|`, without derivatives.

    **Arguments:** `equations`; `start`, the first `y alpha`; `method`, "newton" or "adaptive"; `limits`.

    **Returns:** the solution `y alpha` and an `Outcome`.
    """
    run = one_by_one(partial(_iterate, method))
    limits = Limits(jnp.asarray(limits.tolerance, start.dtype), jnp.asarray(limits.max_iterations))
    return run(*jax.lax.stop_gradient((equations, start)), limits)


def _iterate(method, equations, start, limits):
    # the adaptive method is slow, not stuck
    patience = 20 if method == "newton" else limits.max_iterations + 1

    def misfit(step, average):
        return jnp.sum((average.slope - step) ** 2)

    def residual(step, average):
        return jnp.max(jnp.abs(average.slope - step)) / jnp.max(jnp.abs(average.slope))

    def move(state: _State, step, average):
        error = misfit(step, average)
        rate = jnp.where(error < state.error, 1.1 * state.rate, state.rate / 2)
        return _State(step, average, rate, error), residual(step, average)

    def adaptive(state: _State):
        """Table 8.1: the rate grows by a tenth while the error falls, and is halved when it does not."""
        step = state.step + state.rate * (state.average.slope - state.step)
        return move(state, step, equations.average(step))

    def newton(state: _State):
        """Newton's step, halved until the error falls."""
        change = equations.change(state.average, state.average.slope - state.step)

        def too_far(trial):
            distance, step, average = trial
            falls = misfit(step, average) <= (1 - 1e-4 * distance) * state.error
            return ~falls & (distance > _SHORTEST)

        def halve(trial):
            distance = trial[0] / 2
            step = state.step + distance * change
            return distance, step, equations.average(step)

        # the loop begins with a double step that it always rejects, so the first trial is the full step
        first = (jnp.asarray(2.0, start.dtype), state.step, state.average)
        _, step, average = jax.lax.while_loop(too_far, halve, first)
        return move(state, step, average)

    average = equations.average(start)
    rate = jnp.asarray(_FIRST_RATE, start.dtype)
    last, outcome = iterate(
        newton if method == "newton" else adaptive,
        _State(start, average, rate, misfit(start, average)),
        residual(start, average),
        limits,
        patience=patience,
        success=RESULTS.successful if equations.loss.is_convex else RESULTS.local_optimum,
        is_finite=equations.gram.is_finite(),
    )
    return last.step, outcome


@jax.custom_jvp
def attach_derivatives(equations: Equations, step: Float[Array, " n"]) -> Float[Array, " n"]:
    """The solution as a differentiable function of the equations, in both modes and to any order."""
    return step


@attach_derivatives.defjvp
def _attach_derivatives_jvp(primals, tangents):
    equations, step = primals
    # the solution depends on the equations here too, so that this rule can itself be differentiated
    step = attach_derivatives(equations, step)
    _, explicit = jax.jvp(lambda e: e.average(step).slope, (equations,), (tangents[0],))
    return step, equations.change(equations.average(step), explicit)

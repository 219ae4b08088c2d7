"""Greedy coordinate descent in the dual: a cheap start for the Newton method."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..losses import AbstractPiecewise, weighted_bound, weighted_compliance
from ._types import Problem


def coordinate_descent(
    problem: Problem[AbstractPiecewise],
    dual: Float[Array, " n"],
    latent: Float[Array, " n"],
    offset_variance: Float[Array, ""],
    steps: int,
    tolerance: Float[Array, ""],
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Minimize the dual along one coordinate at a time, always the one that moves the latent value most.

    The exact minimum along coordinate `i` is the resolvent of the loss with step `K_ii`. An offset
    counts as a constant kernel of variance `offset_variance` here.

    **Returns:** the dual coefficients and latent values after `steps` steps, or once no single step
    would move a latent value by more than `tolerance`.
    """
    loss, y, gram = problem.loss, problem.y, problem.gram
    dtype = gram.dtype
    variances = gram.diagonal() + offset_variance
    variances = jnp.maximum(variances, jnp.finfo(dtype).eps * jnp.max(variances))
    compliance = weighted_compliance(loss, problem.weights, dtype) + variances
    bound = weighted_bound(loss, problem.weights, dtype)

    def moves(dual, latent):
        target, _ = loss.respond(y, latent - variances * dual, compliance, bound)
        move = target - dual
        place = jnp.argmax(jnp.abs(move) * variances)
        return place, move[place]

    def body(state):
        step, dual, latent, place, move = state
        dual = dual.at[place].add(move)
        latent = latent + move * (gram.row(place) + offset_variance)
        return step + 1, dual, latent, *moves(dual, latent)

    def unfinished(state):
        step, _, _, place, move = state
        return (step < steps) & (jnp.abs(move) * variances[place] > tolerance)

    start = (0, dual, latent, *moves(dual, latent))
    _, dual, latent, _, _ = jax.lax.while_loop(unfinished, body, start)
    return dual, latent

"""Steps along noisy gradients, with a rate for each parameter that adapts to how its gradient changes."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from ..validation import check_number


class AdaptiveState(NamedTuple):
    """Of each parameter: its rate, the point that was accepted last, and the gradient there.

    A rate of zero stands for a parameter that has not moved yet. `retaken` tells whether the last step was
    a discarded one, taken again.
    """

    rates: Any
    gradients: Any
    points: Any
    retaken: Any


class _Leaf(NamedTuple):
    """What becomes of one parameter."""

    update: Float[Array, "..."]
    rate: Float[Array, ""]
    gradient: Float[Array, "..."]
    point: Float[Array, "..."]
    retaken: Bool[Array, ""]


def adaptive_rates(
    first_move: float = 0.3,
    max_move: float = 1.0,
    grow: float = 1.5,
    shrink: float = 0.5,
    decline: float = 0.9,
    rise: float = 2.5,
    turn: float = 0.0,
) -> optax.GradientTransformation:
    """The papers' ascent: rates that adapt to the change of the gradient alone, one for each parameter.

    Where the gradient of a parameter has not declined, its rate grows. Where it has risen sharply, or
    has turned round without becoming small, the last step of that parameter is discarded and taken
    again, shorter. A vector, such as one lengthscale for each input, has one rate and turns when the
    direction of its gradient does. It needs no value of the function, and stands noise in the gradients.
    [GS03, sec. 4.3], which gives the rules but not the numbers.

    **Arguments:**

    - `first_move`: the largest component of the first step, in unconstrained coordinates (logarithms).
    - `max_move`: of any step.
    - `grow`, `shrink`: factors of the rate.
    - `decline`: a gradient whose norm is not below this share of the last one has not declined.
    - `rise`: one whose norm is above this multiple of it has risen sharply.
    - `turn`: the cosine of the angle between two gradients below which the direction has turned.

    **Returns:** a gradient transformation, to be fed with gradients of what is minimized and with the
    parameters: `update(gradients, state, parameters)`. A discarded step goes back to where it began,
    wherever it has led: bounds may have cut it short.
    """
    for name, value in (("first_move", first_move), ("max_move", max_move), ("decline", decline)):
        check_number(name, value, above=0)
    check_number("grow", grow, least=1)
    check_number("shrink", shrink, above=0, below=1)
    check_number("rise", rise, above=1)
    check_number("turn", turn, least=-1, most=1)

    def init(params: Any) -> AdaptiveState:
        zero = jax.tree.map(jnp.zeros_like, params)
        rates = jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), params)
        retaken = jax.tree.map(lambda leaf: jnp.asarray(False), params)
        return AdaptiveState(rates, zero, params, retaken)

    def step_of_leaf(gradient, point, rate, last_gradient, last_point, retaken) -> _Leaf:
        size, last_size = _norm(gradient), _norm(last_gradient)
        begun = rate > 0
        product = jnp.sum(gradient * last_gradient)
        turned = begun & (product < turn * size * last_size)
        # without a gradient, as at a bound, there was no step either whose effect could be judged
        judged = begun & (last_size > 0)
        # a second time in a row it is not this parameter's own step that has changed its gradient
        discard = ~retaken & judged
        discard &= (size > rise * last_size) | (turned & (size > shrink * last_size))
        growing = judged & ~turned & (size > decline * last_size)
        factor = jnp.where(discard | turned, shrink, jnp.where(growing, grow, 1.0))
        most = jnp.max(jnp.abs(gradient), initial=0.0)
        first = first_move / jnp.where(most > 0, most, 1.0)
        rate = jnp.where(begun, rate * factor, jnp.where(most > 0, first, 0.0))
        accepted = jnp.where(discard, last_gradient, gradient)
        move = -rate * accepted
        longest = jnp.max(jnp.abs(move), initial=0.0)
        too_long = longest > max_move
        shortening = jnp.where(too_long, max_move / jnp.where(too_long, longest, 1.0), 1.0)
        move, rate = move * shortening, rate * shortening
        begin = jnp.where(discard, last_point, point)
        return _Leaf(move + (begin - point), rate, accepted, begin, discard)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if params is None:
            raise ValueError(
                "`adaptive_rates` needs the parameters: `update(gradients, state, parameters)`"
            )
        leaves = jax.tree.map(step_of_leaf, updates, params, *state)
        parts = [
            jax.tree.map(lambda leaf, place=place: leaf[place], leaves, is_leaf=_is_leaf)
            for place in range(len(_Leaf._fields))
        ]
        return parts[0], AdaptiveState(*parts[1:])

    return optax.GradientTransformation(init, update)


def _is_leaf(node) -> bool:
    return isinstance(node, _Leaf)


def _norm(vector):
    return jnp.sqrt(jnp.sum(vector**2))

"""Steps along noisy gradients, with a rate for each parameter that adapts to changes of its gradient."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from ..validation import check_number


class AdaptiveState(NamedTuple):
    """For each parameter: its rate, the last accepted point, and the gradient there.

    The rate is zero before the parameter has moved. `retaken` says whether the last step repeated a
    discarded one.
    """

    rates: Any
    gradients: Any
    points: Any
    retaken: Any


class _Leaf(NamedTuple):
    """The update and the next state of one parameter."""

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
    """The ascent of the papers: a rate for each parameter that adapts to changes of its gradient alone.

    If the gradient of a parameter has not declined, its rate grows. If it has risen sharply, or has turned
    round without becoming small, the last step of that parameter is discarded and repeated with a smaller
    rate. A vector, such as one lengthscale for each input, has one rate, and turns if the direction of its
    gradient does. The method needs no values and tolerates noisy gradients. [GS03, sec. 4.3] gives the rules
    but not the numbers.

    **Arguments:**

    - `first_move`: the largest component of the first step, in unconstrained coordinates (logarithms).
    - `max_move`: the largest component of any step.
    - `grow`, `shrink`: factors of the rate.
    - `decline`: a gradient has declined if its norm is below this share of the last one.
    - `rise`: a gradient has risen sharply if its norm is above this multiple of the last one.
    - `turn`: a gradient has turned if the cosine of its angle to the last one is below this number.

    **Returns:** a gradient transformation for minimization, `update(gradients, state, parameters)`. A
    discarded step returns to the point where it began, even if bounds have cut it short.
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
        # without a gradient, as at a bound, there was no step whose effect could be judged
        judged = begun & (last_size > 0)
        # after a repeated step, something other than this parameter's step has changed its gradient
        discard = ~retaken & judged
        discard &= (size > rise * last_size) | (turned & (size > shrink * last_size))
        growing = judged & ~turned & (size > decline * last_size)
        factor = jnp.where(discard | turned, shrink, jnp.where(growing, grow, 1.0))
        largest = jnp.max(jnp.abs(gradient), initial=0.0)
        first = first_move / jnp.where(largest > 0, largest, 1.0)
        rate = jnp.where(begun, rate * factor, jnp.where(largest > 0, first, 0.0))
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
            jax.tree.map(lambda leaf, field=field: leaf[field], leaves, is_leaf=_is_leaf)
            for field in range(len(_Leaf._fields))
        ]
        return parts[0], AdaptiveState(*parts[1:])

    return optax.GradientTransformation(init, update)


def _is_leaf(node) -> bool:
    return isinstance(node, _Leaf)


def _norm(vector):
    return jnp.sqrt(jnp.sum(vector**2))

"""Leave-one-out predictions from draws of the posterior, without sampling again."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..hyperparameters import unfreeze
from ..losses import AbstractClassification
from ..runtime import jit
from ._sample import Posterior


class LeftOut(NamedTuple):
    """What the posterior without an example predicts for it, for each example.

    `log_odds` are `ln P(+1) / P(-1)`; `effective_draws` is the effective number of draws behind them, which
    is small for examples that the posterior depends on much.
    """

    log_odds: Float[Array, " n"]
    effective_draws: Float[Array, " n"]


def leave_one_out(posterior: Posterior) -> LeftOut:
    """Leave-one-out predictions of labels, by importance sampling.

    Without example i the density of a draw f is larger by `r_i(f) = exp(w_i L(y_i, f_i))`. So
    `P(y | rest) = <r_i P(y | f_i)> / <r_i>` over the draws. The largest ratios are cut off at their mean
    times the root of the number of draws, which keeps the variance finite (E. L. Ionides, "Truncated
    importance sampling", 2008).

    **Arguments:** `posterior`, of a loss of labels, from `jaxsvm.sample`. Keep many draws
    (`keep_draws=True`): those of an example near the wrong side have few that count.

    **Returns:** a `LeftOut`.

    **Example:**

    >>> posterior = jsvm.sample(model, x, y, key=jax.random.key(1), keep_draws=True)
    >>> left_out = jsvm.sampling.leave_one_out(posterior)
    >>> bool(jnp.mean(left_out.log_odds * y > 0) > 0.7)
    True
    """
    loss = unfreeze(posterior.model).loss
    if not isinstance(loss, AbstractClassification):
        raise ValueError(
            f"`leave_one_out` is for labels, but {type(loss).__name__} is a loss of targets"
        )
    draws = posterior.b.reshape(-1, posterior.b.shape[2])
    return _leave_one_out(loss, draws, posterior.whitening.factor, posterior.y, posterior.weights)


@jit
def _leave_one_out(loss, draws, factor, y, weights) -> LeftOut:
    latent = draws @ factor.T
    here = jnp.broadcast_to(y, latent.shape)
    counted = jnp.where(weights[None] > 0, latent, here)
    logs = weights[None] * loss.value(here, counted)
    largest = jax.scipy.special.logsumexp(logs, axis=0) - jnp.log(len(draws)) / 2
    logs = jnp.minimum(logs, largest[None])
    shares = jax.nn.softmax(logs, axis=0)
    one = jnp.ones_like(latent)
    odds = loss.value(-one, latent) - loss.value(one, latent)
    log_odds = [
        jax.scipy.special.logsumexp(jnp.log(shares) + jax.nn.log_sigmoid(sign * odds), axis=0)
        for sign in (1.0, -1.0)
    ]
    return LeftOut(log_odds[0] - log_odds[1], 1 / jnp.sum(shares**2, axis=0))

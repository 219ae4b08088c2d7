"""Chains of any method: where they begin, and their draws."""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ._batches import draw_by_batches, find_center
from ._chains import Chains, Draws, all_at, draw, start_chains, warm_up
from ._samplers import SGLD, Method
from ._target import Target


def begin_chains(
    target: Target,
    method: Method | SGLD,
    chains: int,
    key: PRNGKeyArray,
    warmup: int = 0,
    shards: int = 1,
) -> Chains:
    """Chains at the mode, after a warm-up. Chains that see batches warm up in each run.

    **Arguments:** `target`, the posterior; `method`; `chains`, the number of chains; `key`, a random key;
    `warmup`, the number of draws of each chain; `shards`, the number of devices among which the rows are
    divided.

    **Returns:** the `Chains`.
    """
    if isinstance(method, SGLD):
        center = find_center(target, key, shards)
        flat, step = jnp.zeros_like(target.y), jnp.zeros((), center.dtype)
        return Chains(all_at(center, chains), flat, step)
    return warm_up(target, method, start_chains(target, method, chains), key, warmup)


def run_chains(
    target: Target,
    method: Method | SGLD,
    start: Chains,
    keys: Sequence[PRNGKeyArray],
    warmup: int,
    draws: int,
    age: float = 0.0,
    shards: int = 1,
) -> Draws:
    """Warm up and draw.

    **Arguments:** `target`, the posterior; `method`; `start`, from `begin_chains` or an earlier run; `keys`,
    one for the warm-up and one for the draws; `warmup` and `draws`, the numbers of draws of each chain;
    `age`, the number of draws that have already adapted the step size; `shards`, as for `begin_chains`.

    **Returns:** the `Draws`.
    """
    warm_key, draw_key = keys
    if isinstance(method, SGLD):
        chains, center = start.b.shape[0], start.b[0]
        return draw_by_batches(target, method, center, draw_key, chains, warmup, draws, shards)
    start = warm_up(target, method, start, warm_key, warmup, age)
    chains, _, traces, b = draw(target, method, start, draw_key, draws, keep=draws)
    return Draws(b, chains, traces)

"""Tall matrices that are computed some rows at a time."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_BLOCK = 2048  # rows


def in_blocks(
    function: Callable[[Float[Array, "k d"]], Float[Array, "k p"]],
    x: Float[Array, "n d"],
    shards: int | None,
) -> Float[Array, "n p"]:
    """`function(x)`, where each row depends on the same row of x only.

    If there are many rows, the function is called for a block of them at a time, and again in a reverse pass.
    So a gradient stores no other array as tall as the result: the covariances with landmarks and the
    distances behind them need no memory. This takes less time as well, since blocks stay in a CPU's cache.

    **Arguments:** `function`; `x`, the inputs; `shards`, the number of devices among which the rows of x are
    divided, or None if it is not known: then all rows are computed at once.

    **Returns:** a matrix with one row for each row of x.
    """
    if shards is None or x.shape[0] < 2 * _BLOCK * shards:
        return function(x)
    again = jax.checkpoint(function)
    # each block has rows of every device, which stay where they are
    parts = x.reshape(shards, -1, x.shape[1])
    count = parts.shape[1] // _BLOCK
    whole, rest = parts[:, : count * _BLOCK], parts[:, count * _BLOCK :]
    blocks = jnp.swapaxes(whole.reshape(shards, count, _BLOCK, -1), 0, 1)
    blocks = blocks.reshape(count, shards * _BLOCK, -1)
    _, rows = jax.lax.scan(lambda carry, block: (carry, again(block)), None, blocks)
    width = rows.shape[2]
    rows = jnp.swapaxes(rows.reshape(count, shards, _BLOCK, width), 0, 1)
    rows = rows.reshape(shards, count * _BLOCK, width)
    if rest.shape[1]:
        more = again(rest.reshape(-1, x.shape[1])).reshape(shards, -1, width)
        rows = jnp.concatenate([rows, more], axis=1)
    return rows.reshape(-1, width)

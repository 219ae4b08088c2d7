"""The gradient of the evidence from draws, some rows of the data at a time."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._machine import KernelMachine
from ..kernels import AbstractKernel
from ..linalg import eigh
from ..sampling import Setup, Target, slopes, total_loss

Route = Literal["kernel", "fisher"]
_MAX_ENTRIES = 200_000  # of the kernel matrix that are in memory at a time
# latent values, and covariances with landmarks, that are in memory at a time
_MAX_LATENT = 1_000_000


class _Rows(NamedTuple):
    """Some examples, and their places among all of them."""

    x: Float[Array, "*k d"]
    y: Float[Array, "*k"]
    weights: Float[Array, "*k"]
    numbers: Int[Array, "*k"]


class ByChain(NamedTuple):
    """What draws of each chain give.

    `gradient` is the gradient of the log evidence, with a leading axis for the chains, and `loss` the total
    loss of each draw.
    """

    gradient: KernelMachine
    loss: Float[Array, "draws chains"]


def gradients_of_chains(
    setup: Setup,
    factor: Float[Array, "n p"],
    draws: Float[Array, "draws chains p"],
    route: Route,
) -> ByChain:
    """The gradient of the log evidence from the draws of each chain.

    For some rows at a time, the latent values of all draws are computed again, so that no array has one
    number for each chain, example and white coordinate.

    **Arguments:** `setup`, model and data; `factor`, V; `draws`, in white coordinates; `route`, as for
    `evidence_gradient`.

    **Returns:** a `ByChain`.
    """
    by_chain = jnp.swapaxes(draws, 0, 1)
    if route == "kernel":
        kernel, by_loss, losses = _by_kernel(setup, factor, by_chain)
    else:
        kernel, by_loss, losses = _by_fisher(setup, by_chain)
    normalizer = jax.grad(lambda loss: jnp.sum(setup.weights) * loss.log_normalizer())(
        setup.model.loss
    )
    loss = jax.tree.map(lambda whole, mean: whole[None] - mean, normalizer, by_loss)
    return ByChain(KernelMachine(kernel, loss), losses.T)


def _by_kernel(setup: Setup, factor, draws):
    """`-1/2 sum_ij dK_ij G_ij` with `G = <u b'> (V'V)^-1 V'`.

    At a low rank `V (V'V)^-1 b` replaces `K^-1 theta`. Rows of V are zero for examples that are absent.
    """
    x, examples = setup.x, setup.x.shape[0]
    present = jnp.where(setup.weights[:, None] > 0, factor, 0.0)
    dual = present @ _pseudo_inverse(present.T @ present)
    count = min(max(_MAX_ENTRIES // examples, 1), examples)

    def open_rows(rows: _Rows):
        inside = jnp.minimum(rows.numbers, examples - 1)

        def entries(kernel):
            return kernel.matrix(rows.x, x, same=False), kernel.diagonal(rows.x)

        _, pull_back = jax.vjp(entries, setup.model.kernel)

        def pull(slope_b):
            weight = slope_b @ dual.T
            # an example with itself: only there is white noise
            diagonal = jnp.sum(slope_b * dual[inside], axis=1)
            weight = weight.at[jnp.arange(count), inside].set(0.0)
            return pull_back((-weight / 2, -diagonal / 2))[0]

        return present[inside], pull

    return _add_over_rows(setup, draws, _in_blocks(setup, count, 1), open_rows)


def _pseudo_inverse(matrix):
    values, vectors = eigh(matrix)
    null = values <= values[-1] * matrix.shape[0] * jnp.finfo(matrix.dtype).eps
    return (vectors * jnp.where(null, 0.0, 1 / jnp.where(null, 1.0, values))[None, :]) @ vectors.T


def _by_fisher(setup: Setup, draws):
    """`-sum_ik dV_ik <u_i b_k>`."""
    subspace, kernel, shards = setup.subspace, setup.model.kernel, setup.representation.shards
    shared, pull_shared = jax.vjp(lambda kernel: subspace.shared(kernel, setup.x), kernel)
    own = -(-setup.x.shape[0] // shards)
    count = min(max(_MAX_LATENT // max(draws.shape[1:]), 1), own)

    def open_rows(rows: _Rows):
        def factor(kernel: AbstractKernel, shared: Any):
            return subspace.rows(kernel, shared, rows.x, rows.numbers)

        some, pull_back = jax.vjp(factor, kernel, shared)
        return some, lambda slope_b: pull_back(-slope_b)

    blocks = _in_blocks(setup, count, shards)
    (direct, by_shared), by_loss, losses = _add_over_rows(setup, draws, blocks, open_rows)
    if jax.tree.leaves(by_shared):
        indirect = jax.lax.map(lambda part: pull_shared(part)[0], by_shared)
        direct = jax.tree.map(jnp.add, direct, indirect)
    return direct, by_loss, losses


def _in_blocks(setup: Setup, count: int, shards: int) -> _Rows:
    """All rows in blocks, along a leading axis; each has `count` rows of every device.

    The last block is padded with rows of weight zero.
    """
    examples = setup.x.shape[0]
    own = examples // shards
    blocks = -(-own // count)

    def divide(array, mode):
        parts = array.reshape(shards, own, *array.shape[1:])
        widths = [(0, 0), (0, blocks * count - own)] + [(0, 0)] * (array.ndim - 1)
        padded = jnp.pad(parts, widths, mode=mode)
        some = jnp.swapaxes(padded.reshape(shards, blocks, count, *array.shape[1:]), 0, 1)
        return some.reshape(blocks, shards * count, *array.shape[1:])

    # rows of the padding have the number of the last example, and are copies of it
    columns = divide(setup.x, "edge"), divide(setup.y, "edge"), divide(setup.weights, "constant")
    return _Rows(*columns, divide(jnp.arange(examples), "edge"))


def _add_over_rows(
    setup: Setup, draws: Float[Array, "chains draws p"], blocks: _Rows, open_rows: Callable
):
    """The sum over all rows of what `<u b'>` gives, the mean derivatives of the loss, and the total losses.

    `open_rows` returns these rows of V, and a function of the same rows of `<u b'>`. Each result has a
    leading axis for the chains.
    """

    def of_rows(rows: _Rows):
        factor, pull = open_rows(rows)

        def of_chain(b: Float[Array, "draws p"]):
            latent = b @ factor.T
            part = Target(setup.model.loss, factor, rows.y, rows.weights)
            slope = jax.vmap(slopes, (None, 0))(part, latent)

            def losses(loss):
                return jax.vmap(total_loss, (None, 0))(part._replace(loss=loss), latent)

            by_loss = jax.grad(lambda loss: jnp.mean(losses(loss)))(part.loss)
            return pull(slope.T @ b / b.shape[0]), by_loss, losses(part.loss)

        # one chain after the other: the matrices of all would not fit into the caches
        return jax.lax.map(of_chain, draws)

    shapes = jax.eval_shape(of_rows, jax.tree.map(lambda leaf: leaf[0], blocks))
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def add(total, rows):
        return jax.tree.map(jnp.add, total, of_rows(rows)), None

    return jax.lax.scan(add, zero, blocks)[0]

"""A run of chains: its model and data, where the chains begin, and their draws."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._fit import as_data
from .._machine import KernelMachine
from ..approximations import (
    AbstractApproximation,
    AbstractSubspace,
    Representation,
    Whitening,
    represent_in_white,
)
from ..hyperparameters import unfreeze
from ..validation import check_count
from ._batches import check_batches, draw_by_batches, find_center
from ._chains import Chains, Draws, all_at, draw, start_chains, warm_up
from ._samplers import SGLD, Method, require_method
from ._target import Target


class Setup(NamedTuple):
    """Model and data of a run.

    `model` has all hyperparameters free; `x`, `y` and `weights` are the data; `representation` is that of the
    kernel matrix, from `represent_in_white`.
    """

    model: KernelMachine
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    representation: Representation

    @property
    def subspace(self) -> AbstractSubspace:
        """The part of the kernel matrix that is kept."""
        assert self.representation.kept is not None
        return self.representation.kept

    def whiten(self) -> tuple[Whitening, Target]:
        """White coordinates of the latent function, and the posterior in them.

        **Returns:** a `Whitening` and a `Target`.
        """
        kernel, shards = self.model.kernel, self.representation.shards
        whitening = self.subspace.whiten(kernel, self.x, shards)
        return whitening, Target(self.model.loss, whitening.factor, self.y, self.weights)


def set_up(
    model: KernelMachine,
    x: Any,
    y: Any,
    weights: Any,
    *,
    approximation: AbstractApproximation,
    method: Method | SGLD,
    key: Any,
    keys: int,
    by_batches: bool = False,
    **counts: int,
) -> tuple[Setup, list[PRNGKeyArray]]:
    """Check the arguments of a run, split its random key, and choose its landmarks.

    **Arguments:** `model`, `x`, `y`, `weights`, `approximation`, `method`, `key`: as for `sample`; `keys`,
    the number of keys that the run needs; `by_batches`, whether the method may be `SGLD`; `counts`, such as
    `chains`, `warmup` and `draws`, by name.

    **Returns:** a `Setup`, and the keys.
    """
    x, y, weights = as_data(model, x, y, weights)  # first: it refuses to hang in a forked process
    check_sampler(model, method, by_batches, **counts)
    if isinstance(method, SGLD):
        check_batches(model, x, method)
    landmark_key, *run_keys = jax.random.split(key, 1 + keys)
    representation = represent_in_white(approximation, model, x, landmark_key)
    return Setup(unfreeze(model), x, y, weights, representation), run_keys


def check_sampler(
    model: KernelMachine, method: Method | SGLD, by_batches: bool = False, **counts: int
) -> None:
    """Raise unless the model has a posterior, and the options of the sampler are valid.

    **Arguments:** `model`, the kernel machine; `method`, a sampler; `by_batches`, whether it may be
    `SGLD`; `counts`, by name.
    """
    if model.offset:
        raise ValueError(
            "the posterior is not defined for a free, unpenalized offset: use `offset=False` and add a "
            "`Constant` kernel, whose variance is that of the offset"
        )
    require_method("method", method, by_batches)
    for name, count in counts.items():
        check_count(name, count, 0 if name == "warmup" else 1)


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

"""How far the objective has changed along the path of a search, although its values may be unknown."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from .._machine import KernelMachine
from ..criteria import Observation


class Path(NamedTuple):
    """The path of a start so far, in unconstrained leaves.

    `change` is the change of the objective since the first observation that could be used, as each chain
    estimates it: the integral of its gradient along the path, by the trapezoidal rule. So the chains differ
    by the errors of all their gradients, whether they are correlated or not. Moves follow the noise of the
    gradients, so they seem to gain a little more than they do: at most `rate |e|^2` for the move
    `-rate (g + e)` with the noise e. Where values are known there is one entry, their difference.
    """

    change: Float[Array, " chains"]
    point: Float[Array, " p"]
    gradients: Float[Array, "chains p"]
    value: Float[Array, ""]
    has_begun: Bool[Array, ""]

    def mean_and_error(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The change, and its standard error; NaN before the path has begun."""
        mean, error = mean_over_chains(self.change)
        return jnp.where(self.has_begun, mean, jnp.nan), jnp.where(self.has_begun, error, jnp.nan)


def empty_path(model: KernelMachine, chains: int, dtype) -> Path:
    """A path that has not begun."""
    leaves = ravel_pytree(model)[0].shape[0]
    none = jnp.zeros((), dtype)
    return Path(
        jnp.zeros(chains, dtype),
        jnp.zeros(leaves, dtype),
        jnp.zeros((chains, leaves), dtype),
        none,
        jnp.asarray(False),
    )


def extended(
    path: Path, model: KernelMachine, observation: Observation, is_sound: Bool[Array, ""]
) -> Path:
    """The path with one more observation, unless that cannot be used."""
    point = ravel_pytree(model)[0].astype(path.point.dtype)
    if observation.by_chain is None:
        gradients = ravel_pytree(observation.gradient)[0][None]
        change = jnp.where(path.has_begun, path.change + (observation.value - path.value), 0.0)
    else:
        gradients = jax.vmap(lambda tree: ravel_pytree(tree)[0])(observation.by_chain)
        move = point - path.point
        step = (gradients + path.gradients) @ move / 2
        change = jnp.where(path.has_begun, path.change + step, 0.0)
    value = observation.value.astype(path.value.dtype)
    new = Path(change, point, gradients.astype(point.dtype), value, jnp.asarray(True))
    return jax.tree.map(lambda now, before: jnp.where(is_sound, now, before), new, path)


def mean_over_chains(values: Float[Array, " chains"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The mean, and its standard error, zero for one chain."""
    chains = values.shape[0]
    if chains == 1:
        return values[0], jnp.zeros((), values.dtype)
    return jnp.mean(values), jnp.std(values, ddof=1) / chains**0.5


def mean_near_lowest(models: KernelMachine, change: np.ndarray, tolerance: float):
    """The mean of the models on a path whose objective is within `tolerance` of the lowest.

    Gradients with noise move the models about the minimum, and their mean is nearer to it.

    **Arguments:** `models`, of all steps, stacked; `change`, the change of the objective, NaN where it is not
    known; `tolerance`.

    **Returns:** the mean of the unconstrained leaves, and the number of the last of these steps.
    """
    near = np.isfinite(change)
    near &= change <= np.min(change[near], initial=np.inf) + tolerance
    steps = np.flatnonzero(near)
    mean = jax.tree.map(lambda leaf: jnp.mean(jnp.asarray(leaf)[steps], axis=0), models)
    return mean, int(steps[-1])

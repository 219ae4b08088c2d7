"""Ascending the evidence along its exact gradients: `evidence_ascent`, and medians over partitions."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp

from .._machine import KernelMachine, Machine
from ..selection import Selection, select
from ._sampled import Sampled


def evidence_ascent(
    model: Machine, x: Any, y: Any, *, key: Any, **options: Any
) -> Selection[Machine]:
    """Tune all hyperparameters that are not frozen by ascending the exact evidence.

    A short name for `jaxsvm.select` with `jaxsvm.evidence.Sampled`: at each step chains estimate the gradient
    of the log evidence, and the optimizer takes a step [GS05; GS03, sec. 4.3].

    **Arguments:**

    - `model`, `x`, `y`, `key`: as for `jaxsvm.select`.
    - `options`: those of `jaxsvm.evidence.Sampled` (`approximation`, `route`, `method`, `chains`, `warmup`,
      `draws`, `first_warmup`) and all others of `jaxsvm.select`, such as `max_steps`, `restarts`, `bounds`,
      `stop`, `test`, `validation` and `checkpoint`. By default the optimizer is that of the papers,
      `optimizers.adaptive_rates()`, and the search ends as in the paper, with
      `stopping.GradientFallen(0.15)` or `stopping.Settled(0.01, steps=5)`.

    **Returns:** a `Selection`, whose objective is minus the log evidence. The best of several starts has the
    smallest validation error or, without validation data, the largest log evidence by
    `jaxsvm.log_evidence`. If anything is wrong, a `SamplingWarning` and `problems` say so: chains that went
    badly or hardly moved, fewer than 8 draws, a low rank that loses more than 1 % of the prior's variance
    at the end, or than the tolerance of `jaxsvm.Nystrom`, or a loss with a wall, such as
    `losses.Trigonometric`, for which standard errors are unreliable.

    **Example:**

    >>> climb = jsvm.evidence_ascent(
    ...     model, x, y, key=jax.random.key(1), approximation=jsvm.Exact(), max_steps=3
    ... )
    >>> climb.history.magnitude.shape
    (1, 3)
    """
    names = set(inspect.signature(Sampled).parameters) & set(options)
    objective = Sampled(**{name: options.pop(name) for name in names})
    return select(model, x, y, objective, key=key, **options)


def median_of_partitions(
    model: KernelMachine, partitions: Any, *, key: Any, **options: Any
) -> tuple[KernelMachine, list[Selection]]:
    """Tune on each of several partitions of the data, and take the median of each hyperparameter.

    [GS05, sec. IV.B], where the first five partitions are used.

    **Arguments:** `model`, where to begin; `partitions`, pairs `(x, y)` of training data; `key`, a random
    key; `options` of `evidence_ascent`.

    **Returns:** the model with the medians, and the ascents.
    """
    pairs = list(partitions)
    if not pairs:
        raise ValueError("`partitions` is empty: pass at least one pair (x, y)")
    ascents = [
        evidence_ascent(model, x, y, key=jax.random.fold_in(key, number), **options)
        for number, (x, y) in enumerate(pairs)
    ]
    return median_model([ascent.model for ascent in ascents]), ascents


def median_model(models: list[KernelMachine]) -> KernelMachine:
    """The model with the median of each hyperparameter.

    [GS05, sec. IV.B]: hyperparameters are tuned on several partitions of the data, and the median of each
    is used for all of them.

    **Arguments:** `models`, all of the same structure.

    **Returns:** a model.
    """
    if not models:
        raise ValueError("`models` is empty: pass at least one model")
    return jax.tree.map(lambda *leaves: jnp.median(jnp.stack(leaves), axis=0), *models)

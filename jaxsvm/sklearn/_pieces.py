"""Searches in pieces: what is found so far can be kept, and the time be bounded."""

import abc
import dataclasses
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from .._machine import KernelMachine
from .._results import RESULTS
from ..selection import History, Selection

STEPS = 20  # of a piece; the optimizer begins anew with each, so they should not be few
_LEAST_GAIN = (
    1e-6  # of a piece, relative to max(1, |criterion|), for another one to be worth its time
)


class AbstractKeeper(abc.ABC):
    """Remembers searches that are under way by their names, and knows when time is up."""

    @abc.abstractmethod
    def found(self, name: str) -> Selection | None:
        """What was kept of a search, if anything was."""

    @abc.abstractmethod
    def keep(self, name: str, search: Selection) -> None:
        """Remember what a search has found so far."""

    @abc.abstractmethod
    def checkpoint(self, name: str) -> Path:
        """The file in which an ascent of the evidence keeps its state."""

    @abc.abstractmethod
    def is_over(self) -> bool:
        """Whether searches should end as soon as they have something."""


def in_pieces(
    search: Callable[[KernelMachine, int], Selection],
    model: KernelMachine,
    max_steps: int,
    keeper: AbstractKeeper | None,
    name: str,
) -> Selection:
    """A search in pieces that each begin where the one before has ended, and are kept.

    **Arguments:** `search`, from one start, given that and the most steps; `model`, the first start;
    `max_steps`, of all pieces; `keeper`, without which it is one piece; `name`, of the search.

    **Returns:** the outcome as if it had been one search.
    """
    if keeper is None:
        return search(model, max_steps)
    found = keeper.found(name)
    while found is None or not (_has_ended(found, max_steps) or keeper.is_over()):
        if found is None:
            found = search(model, min(STEPS, max_steps))
        else:
            steps = min(STEPS, max_steps - int(found.history.steps[0]))
            found = _joined(found, search(found.model, steps))
        keeper.keep(name, found)
    return found


def _has_ended(found: Selection, max_steps: int) -> bool:
    at_limit = int(found.results[0]) == RESULTS.iteration_limit
    return not at_limit or int(found.history.steps[0]) >= max_steps


def _joined(first: Selection, second: Selection) -> Selection:
    """Two pieces of one start as one selection."""
    gain = float(first.value) - float(second.value)
    after = second if gain >= 0 else first
    end = second.history.end + first.history.steps if gain >= 0 else first.history.end
    code = second.results
    if gain <= _LEAST_GAIN * max(1.0, abs(float(first.value))):
        code = jnp.full_like(code, int(RESULTS.small_change))
    history = _joined_histories(first.history, second.history, end)
    return dataclasses.replace(after, results=code, history=history)


def _joined_histories(first: History, second: History, end) -> History:
    def join(one, two):
        return jnp.asarray(np.concatenate([np.asarray(one), np.asarray(two)], axis=1))

    parameters = {
        name: join(first.parameters[name], second.parameters[name]) for name in first.parameters
    }
    return History(
        parameters,
        join(first.value, second.value),
        join(first.gradient_norm, second.gradient_norm),
        None,
        None,
        first.steps + second.steps,
        end,
    )

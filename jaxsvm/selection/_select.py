"""Choosing hyperparameters by minimizing an objective, from many starts."""

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .._machine import KernelMachine
from .._parameters import take_out
from ..criteria import AbstractObjective, Data, Traits, prepare
from ..optimizers import GreedyWalk, adaptive_rates, lbfgs
from ..validation import as_inputs, as_targets, check_count, check_number
from ._conclusion import conclude
from ._coordinates import Ranges, check_inside, draw_starts, hold_pruned, limits
from ._engine import Task
from ._run import Run, open_checkpoint, run_all
from ._steppers import Limits, as_stepper
from ._types import Selection
from .stopping import (
    AbstractRule,
    GradientFallen,
    Settled,
    SmallChange,
    SmallGradient,
    ValidationStalled,
)

# one object each, so that all searches share their compilations
_LBFGS, _ADAPTIVE = lbfgs(), adaptive_rates()


def select(
    model: KernelMachine,
    x: Any,
    y: Any,
    criterion: AbstractObjective,
    *,
    optimizer: optax.GradientTransformation | GreedyWalk | None = None,
    stop: Sequence[AbstractRule] | AbstractRule | None = None,
    restarts: int = 1,
    key: Any = None,
    starts: Ranges | KernelMachine | float = 1.0,
    bounds: Ranges | None = None,
    weights: Any = None,
    max_steps: int | None = None,
    seconds: float | None = None,
    test: tuple[Any, Any] | None = None,
    validation: tuple[Any, Any] | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    throw: bool = True,
) -> Selection:
    """Choose all hyperparameters that are not frozen by minimizing an objective from several starts.

    On a CPU the starts run one by one, as many at a time as there are cores, each for as long as it
    needs; elsewhere all in one batch. Each fit begins from the one of the step before. The same `key`
    gives the same result.

    **Arguments:**

    - `model`: the kernel machine to begin with; `jaxsvm.freeze` what should stay.
    - `x`, `y`, `weights`: the data, as for `jaxsvm.fit`.
    - `criterion`: a member of `jaxsvm.criteria`, or another objective such as `jaxsvm.evidence.Sampled()`.
    - `optimizer`: any of optax (make it once and pass the same object, since each new one is compiled
      again), or `jaxsvm.optimizers.GreedyWalk` for criteria that jump. By default
      `jaxsvm.optimizers.lbfgs()`, or `adaptive_rates()` for an objective without values.
    - `stop`: one or more rules of `jaxsvm.stopping`; the search ends when the first of them is met. By
      default `SmallGradient()` and `SmallChange()`, or `GradientFallen()` and `Settled()` for an objective
      without values, and `ValidationStalled()`. An empty tuple: only the limits stop it.
    - `restarts`: how many starts; needs a `key` if more than one.
    - `starts`: where they are drawn. A number: the first is the model itself, in the others each
      unconstrained leaf (the logarithm of a positive parameter) has a Gaussian of that standard
      deviation added. A mapping such as `{"loss.C": (0.1, 10)}`: uniform between the leaves of the two
      ends, so log-uniform for a positive parameter; what is not named stays. A model with a leading
      axis of `restarts` on each leaf: these.
    - `bounds`: a mapping such as `{"kernel.lengthscale": (0.01, 100)}` in natural units; `(0, 10)` and
      `(0.1, inf)` bound one side. Lengthscales that `criteria.prune` has put at 1e15 stay there.
    - `max_steps`: of each start; the first one looks at the start itself. By default 200, or 60 for the
      sampled evidence.
    - `seconds`: after which no step begins; every start takes its first steps all the same.
    - `test`: data `(x, y)` whose error, that of the fit, goes into the history, with no influence.
    - `validation`: data `(x, y)` by whose error to choose among all steps and starts, and among equal
      errors by the criterion.
    - `checkpoint`: a file to save progress in. If it exists, the search continues from it and ends exactly
      as it would have without the interruption. All arguments must then be the same, the optimizer's
      numbers included, except `max_steps`, `seconds`, `progress` and `throw`; the file of another run is
      refused.
    - `progress`: whether to draw a progress bar; by default if standard error is a terminal.
    - `throw`: whether to raise if all starts fail. They do where a criterion without a gradient, such as
      a count of errors, meets an optimizer that needs one.

    **Returns:** a `Selection`: the best model, all end points, one result code and one history each.

    **Example:**

    >>> machine = jsvm.KernelMachine(kernel, jsvm.losses.LeastSquares(C=1.0), offset=True)
    >>> best = jsvm.select(machine, x, y, jsvm.criteria.PRESS(), max_steps=5)
    >>> bool(best.value < best.history.value[0, 0])
    True
    """
    deadline = _deadline(seconds)
    x, y, weights = prepare(criterion, model, x, y, weights)
    traits = criterion.traits
    max_steps = traits.default_steps if max_steps is None else max_steps
    rules = _as_rules(stop, traits, validation is not None)
    stepper = as_stepper(_default_optimizer(traits) if optimizer is None else optimizer)
    is_random = traits.is_random or isinstance(optimizer, GreedyWalk)
    _check_starts(model, restarts, key, starts, max_steps, is_random)
    check_inside(model, bounds)
    stepper.check(criterion, model)

    keys = jax.random.split(jax.random.key(0) if key is None else key, 3)
    emptied, fixed = take_out(model)
    data = Data(x, y, weights, fixed)
    task = Task(
        objective=criterion.prepare(model, data, keys[2]),
        stepper=stepper,
        rules=rules,
        data=data,
        limits=Limits(*hold_pruned(emptied, *limits(emptied, bounds))),
        most=jnp.asarray(max_steps, jnp.int32),
        test=_as_pair(test, model, x),
        validation=_as_pair(validation, model, x),
    )
    models = take_out(
        draw_starts(model, starts, bounds, restarts, None if key is None else keys[0])
    )[0]
    start_keys = jax.random.split(keys[1], restarts)
    file = open_checkpoint(checkpoint, task, models, start_keys)
    run = Run(task, models, start_keys, max_steps, deadline, file, threading.Event())
    states, rows = run_all(run, progress)
    return conclude(task, model, states, rows, key, throw)


def _deadline(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    check_number("seconds", seconds, least=0)
    return time.monotonic() + seconds


def _default_optimizer(traits: Traits) -> optax.GradientTransformation:
    return _LBFGS if traits.has_value else _ADAPTIVE


def _as_rules(stop: Any, traits: Traits, has_validation: bool) -> tuple[AbstractRule, ...]:
    """The user's rules, or those that suit the objective, the most telling first."""
    if stop is None:
        early = (ValidationStalled(),) if has_validation else ()
        if traits.has_value:
            return (SmallGradient(), *early, SmallChange())
        return (GradientFallen(), Settled(), *early)
    rules = (stop,) if isinstance(stop, AbstractRule) else tuple(stop)
    for rule in rules:
        if not isinstance(rule, AbstractRule):
            raise TypeError(
                "`stop` must be rules of `jaxsvm.stopping`, such as `SmallGradient(1e-5)`, not "
                f"{type(rule).__name__}"
            )
    return rules


def _check_starts(model, restarts, key, starts, max_steps, is_random: bool) -> None:
    """Raise a clear error where starts cannot be made, or counts make no sense."""
    if not jax.tree.leaves(model):
        raise ValueError("all hyperparameters are frozen: there is nothing to select")
    for name, count in (("restarts", restarts), ("max_steps", max_steps)):
        check_count(name, count)
    if not isinstance(starts, Mapping | KernelMachine):
        check_number("starts", starts, least=0)
    drawn = isinstance(starts, Mapping) or (restarts > 1 and not isinstance(starts, KernelMachine))
    if key is None and (drawn or is_random):
        raise ValueError("starts, random walks and chains are drawn at random: give a `key`")


def _as_pair(pair, model, x):
    """Other data `(x, y)`, checked and in the precision of the training data; None stays None."""
    if pair is None:
        return None
    inputs = as_inputs(pair[0])
    if inputs.shape[1] != x.shape[1]:
        raise ValueError(
            f"`test` and `validation` data must have {x.shape[1]} inputs, but have {inputs.shape[1]}"
        )
    # errors can be counted on examples of one class only
    targets = as_targets(pair[1], inputs.shape[0], labels=model.loss.is_classifier, both=False)
    return inputs.astype(x.dtype), targets.astype(x.dtype)

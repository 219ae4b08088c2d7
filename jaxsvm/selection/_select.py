"""`select`: choose hyperparameters by minimizing an objective from several starts."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .._machine import KernelMachine, Machine
from ..approximations import AbstractApproximation, Exact, represent
from ..criteria import AbstractObjective, Data, Regularized, Traits, prepare
from ..hyperparameters import split_frozen
from ..optimizers import GreedyWalk, adaptive_rates, lbfgs
from ..priors import AbstractDistribution, AbstractPrior, as_prior
from ..runtime import is_divided
from ..validation import as_inputs, as_targets, check_count, check_number
from ._checkpoint import Checkpoint
from ._coordinates import Ranges, check_inside, draw_starts, hold_pruned, limits
from ._engine import Task
from ._run import Run, conclude, run_all
from ._selection import Selection
from ._steppers import Problem, as_stepper
from .stopping import (
    AbstractRule,
    Settled,
    SmallChange,
    SmallGain,
    SmallGradient,
    ValidationStalled,
)

# one object each, so that all searches share their compilations
_LBFGS, _ADAPTIVE = lbfgs(), adaptive_rates()


def select(
    model: Machine,
    x: Any,
    y: Any,
    criterion: AbstractObjective,
    *,
    prior: AbstractPrior | Mapping[str, AbstractDistribution] | Callable[..., Any] | None = None,
    optimizer: optax.GradientTransformation | GreedyWalk | None = None,
    stop: Sequence[AbstractRule] | AbstractRule | None = None,
    restarts: int = 1,
    key: Any = None,
    starts: Ranges | KernelMachine | float = 1.0,
    bounds: Ranges | None = None,
    weights: Any = None,
    approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
    max_steps: int | None = None,
    seconds: float | None = None,
    test: tuple[Any, Any] | None = None,
    validation: tuple[Any, Any] | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    throw: bool = True,
) -> Selection[Machine]:
    """Choose all hyperparameters that are not frozen by minimizing an objective from several starts.

    On a CPU each start runs for as long as it needs, with as many at a time as there are cores; elsewhere
    all run in one batch. Each fit starts warm, from the fit of the previous step. The same `key` gives the
    same result.

    **Arguments:**

    - `model`: the kernel machine to begin with; `jaxsvm.freeze` the hyperparameters that should not change.
    - `x`, `y`, `weights`: the data, as for `jaxsvm.fit`.
    - `criterion`: a member of `jaxsvm.criteria`, or another objective such as `jaxsvm.evidence.Sampled()`.
    - `prior`: a prior of the hyperparameters, added to the criterion by `criteria.Regularized`: one of
      `jaxsvm.priors`, such as `jaxsvm.priors.Default()`; a mapping from names to distributions, such as
      `{"loss.C": priors.LogNormal(1.0, 0.7)}`; or a function of a model that returns the log density of its
      unconstrained leaves. The value of the search is then minus the log posterior density.
    - `optimizer`: an optax optimizer (create it once and reuse it: each new object is compiled again), or
      `jaxsvm.optimizers.GreedyWalk` for criteria that jump. By default `jaxsvm.optimizers.lbfgs()`, or
      `adaptive_rates()` for an objective without values.
    - `stop`: one or more rules of `jaxsvm.stopping`; the search ends when the first of them is met. By
      default `SmallGradient()` and `SmallChange()`, or `SmallGain()` and `Settled()` for an objective
      without values; with validation data also `ValidationStalled()`. With an empty tuple only the limits
      end it.
    - `restarts`: the number of starts; more than one needs a `key`.
    - `starts`: where the starts are drawn. With a number, the first start is the model itself, and the others
      add a Gaussian of that standard deviation to each unconstrained leaf (the logarithm of a positive
      parameter). With a mapping such as `{"loss.C": (0.1, 10)}`, each start is uniform between the leaves of
      the two ends, so log-uniform for a positive parameter; parameters that are not named keep their value.
      A model whose leaves have a leading axis of length `restarts` gives the starts themselves.
    - `bounds`: a mapping such as `{"kernel.lengthscale": (0.01, 100)}` in natural units; `(0, 10)` and
      `(0.1, inf)` bound one side. Lengthscales that `criteria.prune` has set to 1e15 stay there.
    - `approximation`: how criteria and the fits for `test` and `validation` represent the kernel matrix, as
      for `jaxsvm.fit`. Landmarks are chosen once, at `model`, and stay fixed during the search. The sampled
      evidence has its own.
    - `max_steps`: the limit of steps of each start, of which the first evaluates the start itself. By default
      200, or 60 for the sampled evidence.
    - `seconds`: the time after which no step begins; every start still takes its first steps.
    - `test`: data `(x, y)`; the fit's error on them is recorded in the history, without any influence.
    - `validation`: data `(x, y)`; the error on them chooses among all steps and starts, and the criterion
      breaks ties.
    - `checkpoint`: a file to save progress in. If it exists, the search continues from it and ends exactly
      as it would have without the interruption. All arguments must then be the same, including the settings
      of the optimizer, except `max_steps`, `seconds`, `progress` and `throw`; the file of another run is
      refused. If several processes share the rows, their number must be the same, too, and all of them
      must see the file.
    - `progress`: whether to draw a progress bar; by default if standard error is a terminal.
    - `throw`: whether to raise if all starts fail, for example because the criterion has no gradient (a
      count of errors) but the optimizer needs one.

    **Returns:** a `Selection`: the best model, all end points, one result code and one history each.

    **Example:**

    >>> machine = jsvm.KernelMachine(kernel, jsvm.losses.LeastSquares(C=1.0), offset=True)
    >>> best = jsvm.select(machine, x, y, jsvm.criteria.PRESS(), max_steps=5)
    >>> bool(best.value < best.history.value[0, 0])
    True
    """
    deadline = _deadline(seconds)
    criterion = criterion if prior is None else Regularized(criterion, as_prior(prior))
    x, y, weights = prepare(criterion, model, x, y, weights)
    traits = criterion.traits
    max_steps = traits.default_steps if max_steps is None else max_steps
    rules = _as_rules(stop, traits, validation is not None)
    if optimizer is None:
        optimizer = _LBFGS if traits.has_value else _ADAPTIVE
    stepper = as_stepper(optimizer)
    is_random = traits.is_random or isinstance(optimizer, GreedyWalk)
    _check_starts(model, restarts, key, starts, max_steps, is_random)
    check_inside(model, bounds)
    stepper.check(criterion, model)

    keys = jax.random.split(jax.random.key(0) if key is None else key, 3)
    emptied, fixed = split_frozen(model)
    data = Data(x, y, weights, fixed, represent(approximation, model, x))
    task = Task(
        problem=Problem(
            criterion.prepare(model, data, keys[2]),
            data,
            *hold_pruned(emptied, *limits(emptied, bounds)),
        ),
        stepper=stepper,
        rules=rules,
        max_steps=jnp.asarray(max_steps, jnp.int32),
        test=_as_pair(test, model, x),
        validation=_as_pair(validation, model, x),
    )
    models = split_frozen(
        draw_starts(model, starts, bounds, restarts, None if key is None else keys[0])
    )[0]
    start_keys = jax.random.split(keys[1], restarts)
    # the limit of steps does not identify a run: a finished one can be continued
    identity = task._replace(max_steps=None), models, start_keys
    file = Checkpoint(checkpoint, identity, is_divided(x))
    run = Run(task, models, start_keys, max_steps, deadline, file, threading.Event())
    states, rows = run_all(run, progress)
    return conclude(task, model, states, rows, key, throw)


def _deadline(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    check_number("seconds", seconds, least=0)
    return time.monotonic() + seconds


def _as_rules(stop: Any, traits: Traits, has_validation: bool) -> tuple[AbstractRule, ...]:
    """The user's rules, or the defaults for the objective; the first one met gives the result code."""
    if stop is None:
        early = (ValidationStalled(),) if has_validation else ()
        if traits.has_value:
            return (SmallGradient(), *early, SmallChange())
        return (SmallGain(), Settled(), *early)
    rules = (stop,) if isinstance(stop, AbstractRule) else tuple(stop)
    for rule in rules:
        if not isinstance(rule, AbstractRule):
            raise TypeError(
                "`stop` must hold rules of `jaxsvm.stopping`, such as `SmallGradient(1e-5)`, not "
                f"{type(rule).__name__}"
            )
    return rules


def _check_starts(model, restarts, key, starts, max_steps, is_random: bool) -> None:
    """Raise unless the starts can be drawn and the counts are valid."""
    if not jax.tree.leaves(model):
        raise ValueError("all hyperparameters are frozen: there is nothing to select")
    for name, count in (("restarts", restarts), ("max_steps", max_steps)):
        check_count(name, count)
    if not isinstance(starts, Mapping | KernelMachine):
        check_number("starts", starts, least=0)
    drawn = isinstance(starts, Mapping) or (restarts > 1 and not isinstance(starts, KernelMachine))
    if key is None and (drawn or is_random):
        raise ValueError("drawing starts, random walks and chains needs a random key: pass `key`")


def _as_pair(pair, model, x):
    """Test or validation data, checked and in the precision of the training data; None stays None."""
    if pair is None:
        return None
    inputs = as_inputs(pair[0])
    if inputs.shape[1] != x.shape[1]:
        raise ValueError(
            f"`test` and `validation` data must have {x.shape[1]} inputs, but have {inputs.shape[1]}"
        )
    # these data may have examples of only one class
    targets = as_targets(pair[1], inputs.shape[0], labels=model.loss.is_classifier, both=False)
    return inputs.astype(x.dtype), targets.astype(x.dtype)

"""Choosing hyperparameters by a criterion, from many starts."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._errors import as_inputs, as_targets
from .._machine import KernelMachine
from .._options import check_count, check_number
from .._parameters import free_parameters, is_positive, put_back, take_out
from .._progress import Progress
from .._results import RESULTS, FitError
from .._threads import map_in_threads
from ..criteria import AbstractCriterion, prepare
from ..optimizers import GreedyWalk, lbfgs
from ._coordinates import Ranges, check_inside, draw_starts, hold_pruned, limits
from ._steps import RUNNING, Rules, Task, advance, advance_all, begin, is_constant
from ._types import History, Selection, member, stack, usable_starts

_LBFGS = lbfgs()  # one object, so that all selections share their compilations
_CHUNK = 10  # steps between two looks of the host


def select(
    model: KernelMachine,
    x: Any,
    y: Any,
    criterion: AbstractCriterion,
    *,
    optimizer: optax.GradientTransformation | GreedyWalk | None = None,
    restarts: int = 1,
    key: Any = None,
    starts: Ranges | KernelMachine | float = 1.0,
    bounds: Ranges | None = None,
    weights: Any = None,
    max_steps: int = 200,
    gradient_tolerance: float = 1e-4,
    change_tolerance: float = 1e-7,
    patience: int = 10,
    test: tuple[Any, Any] | None = None,
    validation: tuple[Any, Any] | None = None,
    progress: bool | None = None,
    throw: bool = True,
) -> Selection:
    """Choose all hyperparameters that are not frozen by minimizing a criterion from several starts.

    On a CPU the starts run one by one, as many at a time as there are cores, each for as long as it
    needs; elsewhere all in one batch. Each fit begins from the one of the step before. The same `key`
    gives the same result.

    **Arguments:**

    - `model`: the kernel machine to begin with; `jaxsvm.freeze` what should stay.
    - `x`, `y`, `weights`: the data, as for `jaxsvm.fit`.
    - `criterion`: a member of `jaxsvm.criteria`.
    - `optimizer`: any of optax (make it once and pass the same object, since each new one is compiled
      anew), or `jaxsvm.optimizers.GreedyWalk` for criteria that jump; default
      `jaxsvm.optimizers.lbfgs()`.
    - `restarts`: how many starts; needs a `key` if more than one.
    - `starts`: where they are drawn. A number: the first is the model itself, in the others each
      unconstrained leaf (the logarithm of a positive parameter) has a Gaussian of that standard
      deviation added. A mapping such as `{"loss.C": (0.1, 10)}`: uniform between the leaves of the two
      ends, so log-uniform for a positive parameter; what is not named stays. A model with a leading
      axis of `restarts` on each leaf: these.
    - `bounds`: a mapping such as `{"kernel.lengthscale": (0.01, 100)}` in natural units; `(0, 10)` and
      `(0.1, inf)` bound one side. Lengthscales that `criteria.prune` has put at 1e15 stay there.
    - `max_steps`: of each start; the first one looks at the start itself.
    - `gradient_tolerance`: stop when no component of the gradient is larger, relative to
      `max(1, |criterion|)`.
    - `change_tolerance`, `patience`: stop when the criterion has not decreased by more than this, relative
      to `max(1, |criterion|)`, for so many steps; or, with `validation`, when the validation error has
      not.
    - `test`: data `(x, y)` whose error, that of the fit, goes into the history, with no influence.
    - `validation`: data `(x, y)` by whose error to stop and to choose among all steps and starts, and
      among equal errors by the criterion.
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
    x, y, weights = prepare(criterion, model, x, y, weights)
    walks = isinstance(optimizer, GreedyWalk)
    check_starts(model, restarts, key, starts, max_steps, patience, walks)
    check_number("gradient_tolerance", gradient_tolerance, least=0)
    check_number("change_tolerance", change_tolerance, least=0)
    check_inside(model, bounds)
    optimizer = _LBFGS if optimizer is None else optimizer
    if not isinstance(optimizer, GreedyWalk | optax.GradientTransformation):
        raise TypeError(
            f"`optimizer` must be one of optax or a `GreedyWalk`, not {type(optimizer).__name__}"
        )
    emptied, fixed = take_out(model)
    low, high = hold_pruned(emptied, *limits(emptied, bounds))
    pairs = (as_pair(pair, model, x) for pair in (test, validation))
    linear, most = _linear(emptied, optimizer), jnp.asarray(max_steps, jnp.int32)
    task = Task(criterion, x, y, weights, low, high, linear, most, fixed, *pairs)
    rules = Rules(gradient_tolerance, change_tolerance, patience)
    draw_key, walk_key = (None, None) if key is None else jax.random.split(key)
    models = take_out(draw_starts(model, starts, bounds, restarts, draw_key))[0]
    walk_keys = jax.random.split(jax.random.key(0) if walk_key is None else walk_key, restarts)

    states, rows = _run(task, optimizer, rules, models, walk_keys, restarts, max_steps, progress)
    return _conclude(task, model, states, rows, throw)


def check_starts(model, restarts, key, starts, max_steps, patience, walks: bool = False) -> None:
    """Raise a clear error where starts cannot be made, or counts make no sense."""
    if not jax.tree.leaves(model):
        raise ValueError("all hyperparameters are frozen: there is nothing to select")
    for name, count in (("restarts", restarts), ("max_steps", max_steps), ("patience", patience)):
        check_count(name, count)
    if not isinstance(starts, Mapping | KernelMachine):
        check_number("starts", starts, least=0)
    random = isinstance(starts, Mapping) or (restarts > 1 and not isinstance(starts, KernelMachine))
    if key is None and (random or walks):
        raise ValueError("starts and random walks are drawn at random: give a `key`")


def as_pair(pair, model, x):
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


def _linear(model, optimizer):
    """One for each coordinate that steps in natural units, else zero."""
    marks = jax.tree.map(jnp.zeros_like, model)
    if isinstance(optimizer, GreedyWalk) and optimizer.linear:
        names = list(free_parameters(model))
        for name in optimizer.linear:
            if name not in names:
                raise ValueError(
                    f"`linear` names `{name}`, but the free parameters are: {', '.join(names)}"
                )
            if not is_positive(model, name):
                raise ValueError(
                    f"`{name}` is not a positive parameter, which steps could be linear in"
                )
        flat, structure = jax.tree.flatten(marks)
        chosen = [
            jnp.ones_like(leaf) if name in optimizer.linear else leaf
            for name, leaf in zip(names, flat, strict=True)
        ]
        marks = structure.unflatten(chosen)
    return marks


def _run(task, optimizer, rules, models, keys, restarts, max_steps, progress):
    """All starts to their end; rows of the history have shape (restarts, steps, ...)."""
    bar = Progress(restarts * max_steps, "selecting", progress)
    done = np.zeros(restarts, int)
    lowest = np.full(restarts, np.inf)

    def note(start, state):
        lowest[start] = float(state.best.value)
        done[start] = max_steps if int(state.code) != RUNNING else int(state.steps)
        bar.update(done.sum(), f"criterion {lowest.min():.6g}")

    begun = [begin(task, optimizer, member(models, i), keys[i]) for i in range(restarts)]
    chunks = -(-max_steps // _CHUNK)
    if not _in_lockstep():

        def run_one(start):
            state, rows = begun[start], []
            for _ in range(chunks):
                state, row = jax.block_until_ready(advance(task, optimizer, rules, _CHUNK, state))
                rows.append(row)
                note(start, state)
                if int(state.code) != RUNNING:
                    break
            return state, _stack_rows(rows, chunks * _CHUNK)

        ended = begun[0]._replace(code=jnp.zeros_like(begun[0].code))  # goes on to nowhere
        outcomes = map_in_threads(
            run_one,
            restarts,
            task.x.shape[0],
            lambda: advance(task, optimizer, rules, _CHUNK, ended),
        )
        states, rows = (stack([outcome[i] for outcome in outcomes]) for i in (0, 1))
    else:
        states, pieces = stack(begun), []
        for _ in range(chunks):
            states, row = advance_all(task, optimizer, rules, _CHUNK, states)
            pieces.append(row)
            for start in range(restarts):
                note(start, member(states, start))
            if np.all(np.asarray(states.code) != RUNNING):
                break
        members = [
            _stack_rows([member(piece, i) for piece in pieces], chunks * _CHUNK)
            for i in range(restarts)
        ]
        rows = stack(members)
    bar.close()
    return states, rows


def _in_lockstep() -> bool:
    """On a CPU a batch would wait for its slowest member at each step, and use one core."""
    return jax.default_backend() != "cpu"


def _stack_rows(rows, length):
    """Rows of chunks as one array each, NaN where there are no more."""

    def join(*pieces):
        joined = np.concatenate([np.asarray(piece) for piece in pieces])
        missing = np.full((length - joined.shape[0], *joined.shape[1:]), np.nan)
        return np.concatenate([joined, missing])

    return jax.tree.map(join, *rows)


def _conclude(task, model, states, rows, throw) -> Selection:
    codes = np.asarray(states.code)
    codes = np.where(codes == RUNNING, int(RESULTS.iteration_limit), codes)
    values = np.asarray(states.best.value)
    scores = np.asarray(states.best.validation) if task.validation is not None else values
    choosable = usable_starts(codes, values)
    first = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), rows.model)
    if np.asarray(states.flat).all() and is_constant(task, first):
        codes = np.full_like(codes, int(RESULTS.no_gradient))
        choosable = usable_starts(codes, values)
    if throw and not choosable.any():
        raise FitError(
            f"all {len(codes)} starts failed. The first one: {RESULTS(int(codes[0])).message}"
        )
    order = np.lexsort((values, np.where(choosable, scores, np.inf)))
    best = int(order[0])
    ends = put_back(states.best.model, model)
    chosen = member(ends, best)
    history = _history(task, rows, states.best.step)
    return Selection(
        chosen,
        jnp.asarray(values[best]),
        best,
        ends,
        jnp.asarray(values),
        jnp.asarray(codes),
        history,
        task.x,
        task.y,
        task.weights,
    )


def _history(task, rows, end) -> History:
    value = np.asarray(rows.value)
    steps = np.array([_last_finite(row) for row in value])
    length = max(int(steps.max()), 1)
    present = np.arange(value.shape[1])[None, :] < steps[:, None]

    def cut(array):
        mask = present.reshape(present.shape + (1,) * (array.ndim - 2))
        return jnp.asarray(np.where(mask, array, np.nan)[:, :length])

    natural = free_parameters(jax.tree.map(cut, rows.model))
    test = cut(rows.test) if task.test is not None else None
    validation = cut(rows.validation) if task.validation is not None else None
    return History(
        natural, cut(value), cut(rows.gradient_norm), test, validation, jnp.asarray(steps), end
    )


def _last_finite(row) -> int:
    places = np.flatnonzero(np.isfinite(row))
    return int(places[-1]) + 1 if places.size else 0

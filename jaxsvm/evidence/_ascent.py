"""Ascending the evidence along its exact gradients."""

from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import optax

from .._fit import as_data
from .._machine import KernelMachine
from .._options import check_number
from .._parameters import unfreeze
from .._progress import Progress
from .._results import RESULTS
from .._threads import map_in_threads
from ..optimizers import adaptive_rates
from ..sampling import HMC, Method, check_sampler, choose_subspace
from ..selection import Ranges, as_pair, check_inside, check_starts, draw_starts, limits, member
from ._ascent_step import RUNNING, Rules, Task, advance, begin, first_state
from ._ascent_types import Ascent, median_model
from ._checkpoint import Checkpoint
from ._conclusion import conclude
from ._gradient import Plan, check_route

_ADAPTIVE = adaptive_rates()  # one object, so that all ascents share their compilations
_MANY_EXAMPLES = 1000
_RANK = 20  # unless another is asked for
_MOST_TRIES = 3  # to get chains moving that stand still


def evidence_ascent(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    key: Any,
    rank: int | Literal["auto"] | None = "auto",
    landmarks: int | Any | None = None,
    choice: str = "random",
    route: str | None = None,
    optimizer: optax.GradientTransformation | None = None,
    method: Method = HMC(),  # noqa: B008, it is immutable
    chains: int = 8,
    warmup: int = 20,
    draws: int = 80,
    first_warmup: int = 200,
    restarts: int = 1,
    starts: Ranges | KernelMachine | float = 1.0,
    bounds: Ranges | None = None,
    weights: Any = None,
    max_steps: int = 60,
    gradient_share: float | None = 0.15,
    change_share: float | None = 0.01,
    change_steps: int = 5,
    test: tuple[Any, Any] | None = None,
    validation: tuple[Any, Any] | None = None,
    patience: int = 10,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    throw: bool = True,
) -> Ascent:
    """Tune all hyperparameters that are not frozen by ascending the exact evidence.

    At each step chains sample the posterior in white coordinates and give the gradient of the log
    evidence with its standard error (`jaxsvm.evidence_gradient`); the optimizer takes a step; the chains,
    their step size and their scaling are carried over to the next kernel. [GS05], and "Model selection
    for support vector machine classification", sec. 4.3.

    **Arguments:**

    - `model`: where to begin; `jaxsvm.freeze` what should stay.
    - `x`, `y`, `weights`, `key`, `landmarks`, `choice`, `method`, `chains`: as for `jaxsvm.sample`.
    - `rank`: of Nystrom's method; None for the exact kernel, or for as many as there are `landmarks` if
      these are given. By default, `"auto"`, 20 as in the paper, or the number of landmarks or examples where
      that is less.
    - `route`: of the gradient, as for `jaxsvm.evidence_gradient`; by default `"kernel"` with less than 1,000
      examples, and `"fisher"`, whose time does not grow like their square, with more.
    - `optimizer`: any of optax (make it once and pass the same object); by default
      `jaxsvm.optimizers.adaptive_rates()`, the papers'.
    - `warmup`, `draws`: of each chain at each step; `first_warmup` before the first.
    - `restarts`, `starts`, `bounds`: as for `jaxsvm.select`.
    - `max_steps`: of each start.
    - `gradient_share`: stop when the mean magnitude of the gradient has fallen to this share of its peak;
      None for never.
    - `change_share`, `change_steps`: stop when no hyperparameter has moved by more than this share for
      so many steps in a row.
    - `test`: data `(x, y)` whose error goes into the history, with no influence.
    - `validation`, `patience`: data `(x, y)` by whose error to choose among all steps, and to stop when it
      has not become less for so many steps.
    - `checkpoint`: a file to save the state in after each step. If it is there, the ascent goes on from it
      and ends exactly as it would have without the interruption; so all arguments must be the same as
      then, the optimizer's numbers included, but for `max_steps` and `throw`. Another run is refused.
    - `progress`: whether to draw a progress bar; by default if standard error is a terminal.
    - `throw`: whether to raise if all starts fail.

    **Returns:** an `Ascent`. Of several starts the best has the least validation error or, without
    validation data, the largest log evidence by `jaxsvm.log_evidence`. A `SamplingWarning` says what is
    wrong with it, if anything is, as do its `problems`: chains that went badly or hardly moved, fewer than
    8 draws, a low rank that at the end loses more than 1 % of the prior's variance, or a loss with a wall,
    such as `losses.Trigonometric`, for which standard errors are unreliable.

    **Example:**

    >>> climb = jsvm.evidence_ascent(model, x, y, key=jax.random.key(1), rank=None, max_steps=3)
    >>> climb.history.magnitude.shape
    (1, 3)
    """
    x, y, weights = as_data(model, x, y, weights)
    check_sampler(
        model, method, chains=chains, draws=draws, warmup=warmup, first_warmup=first_warmup,
        change_steps=change_steps,
    )  # fmt: skip
    route = _default_route(x.shape[0]) if route is None else route
    check_route(route)
    unfreeze(model).loss.require_normalizer()
    if chains < 2:
        raise ValueError("a standard error needs at least two chains: raise `chains`")
    for name, share in (("gradient_share", gradient_share), ("change_share", change_share)):
        if share is not None:
            check_number(name, share, above=0, below=1)
    check_starts(model, restarts, key, starts, max_steps, patience)
    check_inside(model, bounds)
    optimizer = _ADAPTIVE if optimizer is None else optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        raise TypeError(f"`optimizer` must be one of optax, not {type(optimizer).__name__}")
    if rank == "auto":
        rank = _default_rank(x.shape[0], landmarks)
    mark_key, start_key, run_key = jax.random.split(key, 3)
    subspace = choose_subspace(model, x, rank, landmarks, choice, mark_key)
    pairs = (as_pair(pair, model, x) for pair in (test, validation))
    task = Task(x, y, weights, subspace.landmarks, *limits(model, bounds), *pairs)
    plan = Plan(subspace.rank, method, chains, warmup, draws, route)
    rules = Rules(gradient_share, change_share, change_steps, patience)
    models = draw_starts(model, starts, bounds, restarts, start_key)
    file = Checkpoint(
        checkpoint,
        (task, plan, rules, optimizer, first_warmup, models, jax.random.key_data(key)),
    )
    bar = Progress(restarts * max_steps, "ascending", progress)
    done = np.zeros(restarts, int)

    def run_one(start):
        first = member(models, start)
        keys = jax.random.split(jax.random.fold_in(run_key, start))

        def watch(steps, row, ended):
            done[start] = max_steps if ended else steps
            bar.update(done.sum(), f"gradient {float(row.magnitude):.3g}")

        return _climb(
            task, plan, optimizer, rules, first, first_warmup, max_steps, keys, (file, start), watch
        )

    outcomes = map_in_threads(run_one, restarts, task.x.shape[0])
    bar.close()
    return conclude(model, task, plan, outcomes, key, throw)


def _default_rank(examples: int, landmarks: Any) -> int:
    """20, or what there is; landmarks that make no sense are left to the checks of all samplers."""
    if landmarks is None:
        return min(_RANK, examples)
    count = len(landmarks) if np.ndim(landmarks) == 1 else landmarks
    whole = isinstance(count, int | np.integer) and count >= 1
    return min(_RANK, int(count)) if whole else _RANK


def _default_route(examples: int) -> str:
    return "kernel" if examples < _MANY_EXAMPLES else "fisher"


def _climb(task, plan, optimizer, rules, model, first_warmup, max_steps, keys, place, watch):
    """One start to its end: the last state, and the rows of all steps."""
    file, start = place
    begin_key, step_key = keys
    walker = begin(task, plan, first_warmup, model, begin_key)
    state = first_state(task, model, walker, optimizer)
    empty = jax.eval_shape(
        lambda s, k: advance(task, plan, optimizer, rules, s, k)[1], state, step_key
    )
    rows = jax.tree.map(lambda leaf: np.full((0, *leaf.shape), np.nan), empty)
    saved = file.load(start, (state, rows))
    if saved is not None:
        state, rows = saved[0]
        rows = jax.tree.map(np.asarray, rows)
    tries = 0
    while int(state.steps) < max_steps and int(state.code) == RUNNING:
        steps = int(state.steps)
        before = state
        state, row = advance(
            task, plan, optimizer, rules, state, jax.random.fold_in(step_key, steps + 1000 * tries)
        )
        if int(state.code) == RESULTS.sampling_failed and tries < _MOST_TRIES:
            tries += 1  # begin the chains anew where they are, with more time to find their step
            again = jax.random.fold_in(begin_key, steps + 1000 * tries)
            state = before._replace(walker=begin(task, plan, first_warmup, before.model, again))
            continue
        tries = 0
        rows = jax.tree.map(
            lambda old, new: np.concatenate([old, np.asarray(new)[None]]), rows, row
        )
        watch(steps + 1, row, int(state.code) != RUNNING)
        file.save(start, (state, rows), steps + 1)
    return state, rows


def median_of_partitions(
    model: KernelMachine, partitions: Any, *, key: Any, **options: Any
) -> tuple[KernelMachine, list[Ascent]]:
    """Tune on each of several partitions of the data, and take the median of each hyperparameter.

    [GS05, sec. IV.B], where the first five partitions are used.

    **Arguments:** `model`, where to begin; `partitions`, pairs `(x, y)` of training data; `key`;
    `options` of `evidence_ascent`.

    **Returns:** the model with the medians, and the ascents.
    """
    pairs = list(partitions)
    if not pairs:
        raise ValueError("`partitions` is empty: give at least one pair (x, y)")
    ascents = [
        evidence_ascent(model, x, y, key=jax.random.fold_in(key, number), **options)
        for number, (x, y) in enumerate(pairs)
    ]
    return median_model([ascent.model for ascent in ascents]), ascents

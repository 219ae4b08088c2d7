"""From the ends of all starts to the outcome of an ascent: which is the best, and what to warn of."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np

from .._machine import KernelMachine
from .._parameters import free_parameters, unfreeze
from .._results import RESULTS, FitError
from ..sampling import SamplingWarning, Setup, Thresholds, check_wall, check_whitening
from ..selection import stack
from ._ascent_step import RUNNING, Row, State, Task
from ._ascent_types import Ascent, AscentHistory, leaves_by_name
from ._gradient import Plan
from ._log_evidence import estimate_evidence
from ._tempered import TemperedSMC
from ._thermodynamic import InfiniteLossError, Thermodynamic

_FEW_STEPS = 0.1  # share of bad ones that noisy gradients can do with


def conclude(
    model: KernelMachine,
    task: Task,
    plan: Plan,
    outcomes: list[tuple[State, Row]],
    key,
    throw: bool,
) -> Ascent:
    """The outcome of an ascent, by the last state and the rows of each start."""
    states = [state for state, _ in outcomes]
    codes = np.array([int(state.code) for state in states])
    codes = np.where(codes == RUNNING, int(RESULTS.iteration_limit), codes)
    usable = codes != int(RESULTS.sampling_failed)
    if throw and not usable.any():
        raise FitError(f"all {len(codes)} starts failed. {RESULTS.sampling_failed.message}")
    # the last step's gradient was taken at `best`, from which one more move has been made
    models = [state.best for state in states]
    scores = _scores(task, plan, states, usable, key)
    candidates = np.flatnonzero(usable) if usable.any() else np.arange(len(models))
    best = int(candidates[np.argmin(scores[candidates])])
    end = jnp.stack([state.end for state in states])
    history = _history(model, task, [rows for _, rows in outcomes], end)
    problems = []
    if usable[best]:
        problems = _problems(outcomes[best][1], int(end[best]), plan, model.loss.has_wall)
    if problems:
        warnings.warn(
            "the end of the ascent should not be trusted as it is: " + ". ".join(problems),
            SamplingWarning,
            stacklevel=3,
        )
    return Ascent(
        models[best], best, stack(models), jnp.asarray(codes), jnp.asarray(scores), history,
        task.x, task.y, task.weights, tuple(problems),
    )  # fmt: skip


def _scores(task: Task, plan: Plan, states: list[State], usable: np.ndarray, key) -> np.ndarray:
    """What the starts are compared by, to be small; infinite where there is nothing to compare."""
    if task.validation is not None:
        scores = np.array([float(state.best_score) for state in states])
    elif len(states) == 1:
        return np.zeros(1)
    else:
        scores = np.array(
            [
                minus_evidence(state.best, task, plan, key) if fine else np.inf
                for state, fine in zip(states, usable, strict=True)
            ]
        )
    return np.where(usable & np.isfinite(scores), scores, np.inf)


def minus_evidence(model: KernelMachine, task: Task, plan: Plan, key) -> float:
    """Minus the log evidence of the same low-rank machine that has been climbed; NaN if it was not found."""
    setup = Setup(unfreeze(model), task.x, task.y, task.weights, task.landmarks)

    def by(options):
        run_key = jax.random.split(jax.random.fold_in(key, 1))[1]
        return estimate_evidence(setup, plan.rank, options, run_key, False)

    try:
        found = by(Thermodynamic())
    except InfiniteLossError:  # the loss has a wall
        found = by(TemperedSMC())
    return -float(found.value)


def _history(model, task: Task, rows: list[Row], end) -> AscentHistory:
    steps = np.array([len(row.magnitude) for row in rows])
    length = max(int(steps.max()), 1)

    def pad_and_stack(*leaves):
        padded = [
            np.concatenate([leaf, np.full((length - len(leaf), *leaf.shape[1:]), np.nan)])
            for leaf in leaves
        ]
        return jnp.asarray(np.stack(padded))

    joined = jax.tree.map(pad_and_stack, *rows)
    return AscentHistory(
        free_parameters(joined.model),
        leaves_by_name(model, joined.gradient),
        leaves_by_name(model, joined.standard_error),
        joined.magnitude,
        joined.acceptance,
        joined.least_acceptance,
        joined.rhat,
        joined.divergences,
        joined.step_size,
        joined.whitening_error,
        joined.test if task.test is not None else None,
        joined.validation if task.validation is not None else None,
        jnp.asarray(steps),
        end,
    )


def _problems(rows: Row, end: int, plan: Plan, wall: bool) -> list[str]:
    """What is wrong with a start, in words."""
    limits = Thresholds()
    problems = _problems_of_chains(rows, end, plan, limits)
    if plan.draws < limits.fewest_draws:
        problems.append(
            f"{plan.draws} draws of each chain in a step are too few to judge it by: raise `draws` to at "
            f"least {limits.fewest_draws}"
        )
    problems += check_whitening(float(np.asarray(rows.whitening_error)[end]))
    return problems + check_wall(wall)


def _problems_of_chains(rows: Row, end: int, plan: Plan, limits: Thresholds) -> list[str]:
    """Whether chains went badly at the end of a start, or more than seldom on its way."""
    acceptance, least = np.asarray(rows.acceptance), np.asarray(rows.least_acceptance)
    low = acceptance < limits.least_acceptance
    stuck = least < limits.stuck
    wild = np.asarray(rows.divergences) > limits.divergences * plan.chains * plan.draws
    enough = plan.draws >= limits.fewest_draws
    apart = ~(np.asarray(rows.rhat) <= limits.step_rhat) & enough
    bad = low | stuck | wild | apart
    if not bad.any() or not (bad[end] or bad.mean() > _FEW_STEPS):
        return []
    words = [
        f"in {bad.sum()} of {len(bad)} steps{', the last among them,' if bad[end] else ''} the chains "
        "went badly"
    ]
    if low.any():
        words.append(
            f"in {low.sum()} less than {limits.least_acceptance:.0%} of the trajectories were accepted, "
            f"{acceptance.min():.0%} at worst (of one chain {least.min():.0%})"
        )
    if stuck.any():
        words.append(f"in {stuck.sum()} a chain stood still")
    if wild.any():
        words.append(
            f"in {wild.sum()} more than {limits.divergences:.0%} of the trajectories diverged"
        )
    if apart.any():
        words.append(
            f"in {apart.sum()} the chains hardly moved or did not agree (R-hat above {limits.step_rhat})"
        )
    if (acceptance[bad] > limits.timid).all():
        advice = "Raise the method's `step_size`, or let it adapt (`step_size=None`)"
    else:
        advice = (
            "Lengthen `warmup`, raise the method's `target_acceptance` or lower its `step_size`, or bound "
            "the hyperparameters (a large C times the kernel's amplitude makes a posterior with hard walls)"
        )
    return ["; ".join(words) + ". " + advice]

"""What is wrong with a search along sampled gradients, in words."""

from collections.abc import Mapping

import numpy as np

from ..losses import AbstractLoss
from ..sampling import Thresholds, check_wall, check_whitening

_FEW_STEPS = 0.1  # share of bad ones that noisy gradients can do with


def problems_of_search(
    loss: AbstractLoss, info: Mapping[str, np.ndarray], end: int, chains: int, draws: int
) -> tuple[str, ...]:
    """Sentences about bad chains, too few draws, a rank that is too low, and a loss with a wall.

    **Arguments:** `loss`, of the model; `info`, the numbers of all steps, by name; `end`, the step of the end
    point; `chains` and `draws`, their numbers.

    **Returns:** one sentence for each problem; none if there is none.
    """
    limits = Thresholds()
    present = np.isfinite(info["acceptance"])
    steps = {name: np.asarray(column)[present] for name, column in info.items()}
    problems = _problems_of_chains(steps, end, chains, draws, limits)
    if draws < limits.fewest_draws:
        problems.append(
            f"{draws} draws of each chain in a step are too few to judge it by: raise `draws` to at "
            f"least {limits.fewest_draws}"
        )
    problems += check_whitening(float(steps["whitening_error"][end]))
    return tuple(problems + check_wall(loss.has_wall))


def _problems_of_chains(
    steps: Mapping[str, np.ndarray], end: int, chains: int, draws: int, limits: Thresholds
) -> list[str]:
    """Whether chains went badly at the end of a start, or more than seldom on its way."""
    acceptance, least = steps["acceptance"], steps["least_acceptance"]
    low = acceptance < limits.least_acceptance
    stuck = least < limits.stuck
    wild = steps["divergences"] > limits.divergences * chains * draws
    enough = draws >= limits.fewest_draws
    apart = ~(steps["rhat"] <= limits.step_rhat) & enough
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

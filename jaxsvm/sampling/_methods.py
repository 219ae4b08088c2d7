"""How to move through the posterior: Hamiltonian Monte Carlo of fixed length, or the no-U-turn sampler."""

import dataclasses
from typing import Any

from ..validation import check_count, check_number


@dataclasses.dataclass(frozen=True)
class HMC:
    """Hamiltonian Monte Carlo with trajectories of a fixed number of leapfrog steps.

    **Arguments:**

    - `integration_steps`: leapfrog steps of a trajectory.
    - `step_size`: of a leapfrog step, or None to adapt it during warm-up.
    - `target_acceptance`: what it is adapted to.
    - `rescale`: whether the posterior's own widths are adapted to as well (a dense mass matrix
      `I + V' D V`, where D holds mean curvatures of the losses).
    - `jitter`: each trajectory's step size is drawn uniformly within this share of it, so that no
      direction comes back to where it was time and again.
    - `shorten_by_penalty`: whether to divide the step size by C where C is larger than one, as in
    [GS03, sec. 5.3.1].
    """

    integration_steps: int = 8
    step_size: float | None = None
    target_acceptance: float = 0.8
    rescale: bool = True
    jitter: float = 0.2
    shorten_by_penalty: bool = False

    def __post_init__(self):
        check_count("integration_steps", self.integration_steps)
        _check_common(self)


@dataclasses.dataclass(frozen=True)
class NUTS:
    """The no-U-turn sampler, whose trajectories end where they turn back.

    **Arguments:** `max_doublings`, of a trajectory, so at most `2^max_doublings` leapfrog steps;
    `step_size`, `target_acceptance`, `rescale`, `jitter` and `shorten_by_penalty` as for `HMC`. Chains in
    a batch wait for the longest trajectory among them.
    """

    max_doublings: int = 6
    step_size: float | None = None
    target_acceptance: float = 0.8
    rescale: bool = True
    jitter: float = 0.0
    shorten_by_penalty: bool = False

    def __post_init__(self):
        check_count("max_doublings", self.max_doublings)
        _check_common(self)


Method = HMC | NUTS


def paper_setting() -> dict[str, Any]:
    """The setting of the papers, as arguments of `sample`: `sample(model, x, y, key=key, **paper_setting())`.

    One chain of 40,000 draws, the first half dropped, with ten leapfrog steps of 0.05 (divided by C where C
    is larger than one) and unit masses [GS05, sec. II].
    """
    method = HMC(10, step_size=0.05, rescale=False, jitter=0.0, shorten_by_penalty=True)
    return {"method": method, "chains": 1, "warmup": 20_000, "draws": 20_000}


def _check_common(method) -> None:
    if method.step_size is not None:
        check_number("step_size", method.step_size, above=0)
    check_number("target_acceptance", method.target_acceptance, above=0, below=1)
    check_number("jitter", method.jitter, least=0, below=1)
    for name in ("rescale", "shorten_by_penalty"):
        value = getattr(method, name)
        if not isinstance(value, bool):
            raise TypeError(f"`{name}` must be True or False, not {value!r}")

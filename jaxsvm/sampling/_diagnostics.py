"""How far chains can be trusted, in numbers and in words."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..runtime import warn_user
from ._chains import Traces
from ._effective import ess_bulk, ess_tail, rhat


class SamplingWarning(UserWarning):
    """Chains whose averages should not be trusted as they are."""


class Thresholds(NamedTuple):
    """Values beyond which a diagnostic is bad.

    `rhat`, `ess_of_chain` (effective draws of each chain), `divergences` (their share) and `ebfmi` are as
    in `Diagnostics`. `least_acceptance` is the lowest mean acceptance, `stuck` that of a chain that hardly
    moves, `timid` that of steps so short that nothing can go wrong. `fewest_draws` of a chain can be
    judged; `lost_variance` is the share of the prior's variance that a low rank may lose; `step_rhat` is the
    limit for the few draws of one step of a search.
    """

    rhat: float = 1.05
    ess_of_chain: float = 10.0
    divergences: float = 0.01
    least_acceptance: float = 0.4
    stuck: float = 0.01
    timid: float = 0.995
    ebfmi: float = 0.2
    fewest_draws: int = 8
    # At about this share the error of the evidence and of its gradient, compared with those of the exact
    # kernel, reaches the standard errors of usual runs.
    lost_variance: float = 0.01
    step_rhat: float = 1.5


class Diagnostics(eqx.Module):
    """What the chains themselves tell of their quality.

    `acceptance` is the mean probability of acceptance of each chain, `divergences` their numbers of
    trajectories whose energy exploded. `rhat` (rank-normalized, split), `ess_bulk` and `ess_tail` (effective
    numbers of draws, of all chains together; Vehtari and others, 2021) are the worst over the total
    loss, the penalty `b'b / 2` and the leading white coordinates; NaN where there are too few draws.
    `ebfmi` is the smallest over the chains of `E[(E_t - E_(t-1))^2] / Var(E)` of the energies. `step_size`
    is that of the leapfrog steps, `steps` the mean number of them in a trajectory, `whitening_error`
    the share of the prior's variance that the low rank loses, `draws` the number of draws of each chain.
    `wall` tells whether slopes of a loss with a wall were averaged, which have no fourth moment.
    """

    acceptance: Float[Array, " chains"]
    divergences: Array
    rhat: Float[Array, ""]
    ess_bulk: Float[Array, ""]
    ess_tail: Float[Array, ""]
    ebfmi: Float[Array, ""]
    step_size: Float[Array, ""]
    steps: Float[Array, ""]
    whitening_error: Float[Array, ""]
    draws: int = eqx.field(static=True)
    wall: bool = eqx.field(static=True, default=False)

    @property
    def problems(self) -> list[str]:
        """What is wrong, and what to do about it; empty if nothing is.

        Among others: fewer than 8 draws of each chain, and a low rank that loses more than 1 % of the
        prior's variance.
        """
        return _problems(self, Thresholds())

    def __str__(self) -> str:
        rows = [
            f"chains {len(self.acceptance)} of {self.draws} draws, step size {float(self.step_size):.3g}, "
            f"{float(self.steps):.1f} leapfrog steps",
            f"acceptance {float(jnp.mean(self.acceptance)):.2f} (least "
            f"{float(jnp.min(self.acceptance)):.2f}), {int(jnp.sum(self.divergences))} divergences",
            f"R-hat {float(self.rhat):.3f}, effective draws {float(self.ess_bulk):.0f} (tail "
            f"{float(self.ess_tail):.0f}), E-BFMI {float(self.ebfmi):.2f}",
            f"prior variance lost by the whitening {float(self.whitening_error):.2%}",
        ]
        return "\n".join(rows + [f"PROBLEM: {text}" for text in self.problems])


def diagnose(traces: Traces, step_size, whitening_error, wall: bool = False) -> Diagnostics:
    """The diagnostics of traces of shape (draws, chains).

    **Arguments:** `traces`; `step_size`; `whitening_error`; `wall`, whether slopes of a loss with a wall were
    averaged.

    **Returns:** the `Diagnostics`.
    """
    host: Any = jax.tree.map(np.asarray, traces)
    draws, chains = host.loss.shape
    quantities = np.concatenate(
        [host.loss[..., None], host.penalty[..., None], host.coordinates], axis=2
    )
    enough = draws >= Thresholds().fewest_draws
    each = [quantities[..., place].T for place in range(quantities.shape[2])]

    def of_each(function, possible):
        return np.array(
            [function(q) if possible and np.isfinite(q).all() else np.nan for q in each]
        )

    scale = of_each(rhat, enough)  # of half chains, so one chain is enough
    bulk, tail = of_each(ess_bulk, enough), of_each(ess_tail, enough)
    with np.errstate(all="ignore"):
        energy = host.energy
        moves = (
            np.mean(np.diff(energy, axis=0) ** 2, axis=0) if draws > 1 else np.full(chains, np.nan)
        )
        bfmi = moves / np.var(energy, axis=0)
    return Diagnostics(
        jnp.asarray(host.acceptance.mean(axis=0)),
        jnp.asarray(host.divergent.sum(axis=0)),
        _worst(scale, np.max),
        _worst(bulk, np.min),
        _worst(tail, np.min),
        _worst(bfmi, np.min),
        jnp.asarray(step_size),
        jnp.asarray(host.steps.mean()),
        jnp.asarray(whitening_error),
        draws,
        wall,
    )


def split_rhat(traces: Traces) -> Float[Array, ""]:
    """The largest of the plain R-hats of half chains, on the device; NaN for less than four draws.

    Gelman and Rubin's `sqrt(1 - 1/m + B / W)` with half chains of m draws. It needs no sorting, so it can be
    found at each step of a search.

    **Arguments:** `traces`, of shape (draws, chains).

    **Returns:** a number.
    """
    parts = (traces.loss[..., None], traces.penalty[..., None], traces.coordinates)
    quantities = jnp.concatenate(parts, axis=2)
    half = quantities.shape[0] // 2
    if half < 2:
        return jnp.full((), jnp.nan, quantities.dtype)
    halves = jnp.concatenate([quantities[:half], quantities[-half:]], axis=1)
    within = jnp.mean(jnp.var(halves, axis=0, ddof=1), axis=0)
    between = jnp.var(jnp.mean(halves, axis=0), axis=0, ddof=1)
    return jnp.max(jnp.sqrt(1 - 1 / half + between / within))


def _worst(values: np.ndarray, choose):
    """The worst value; one that is not finite, as that of a chain that never moved, is the worst of all."""
    return jnp.asarray(choose(values) if np.isfinite(values).all() else np.nan)


def _problems(d: Diagnostics, limits: Thresholds) -> list[str]:
    problems = []
    acceptance = np.asarray(d.acceptance)
    chains = len(acceptance)
    stuck = np.flatnonzero(acceptance < limits.stuck)
    if len(stuck) == chains:
        problems.append(
            "no chain moves: hardly any trajectory was accepted. Lower the step size, or let it adapt "
            "(`step_size=None`) over a longer warm-up"
        )
    elif len(stuck):
        problems.append(
            f"chains {stuck.tolist()} do not move, {chains - len(stuck)} do: averages are biased "
            "towards where they stand. Lengthen the warm-up or lower the step size"
        )
    elif acceptance.mean() < limits.least_acceptance:
        problems.append(
            f"only {acceptance.mean():.0%} of the trajectories were accepted: lower the step size, or "
            "lengthen the warm-up"
        )
    divergent = int(np.sum(np.asarray(d.divergences)))
    if divergent > limits.divergences * chains * d.draws:
        problems.append(
            f"{divergent} of {chains * d.draws} trajectories diverged: lower the step size (raise "
            "`target_acceptance`)"
        )
    if d.draws < limits.fewest_draws:
        problems.append(
            f"{d.draws} draws of each chain are too few to judge it by: draw at least {limits.fewest_draws}"
        )
    else:
        problems += _problems_of_mixing(d, limits)
    return problems + check_whitening(float(d.whitening_error)) + check_wall(d.wall)


def _problems_of_mixing(d: Diagnostics, limits: Thresholds) -> list[str]:
    problems = []
    scale, effective, energies = float(d.rhat), float(d.ess_bulk), float(d.ebfmi)
    chains = len(d.acceptance)
    short = np.mean(np.asarray(d.acceptance)) > limits.timid
    agree = scale <= limits.rhat  # not so if it is not a number, as for chains that never moved
    if not agree and short:
        problems.append(
            f"the chains hardly move (R-hat {scale:.2f}), though nearly all trajectories were accepted: "
            f"raise the step size of {float(d.step_size):.2g}, or let it adapt (`step_size=None`) in a "
            "warm-up"
        )
    elif not agree:
        problems.append(
            f"the chains do not agree with each other (R-hat {scale:.2f}): draw more, or lengthen the warm-up"
        )
    if not effective >= limits.ess_of_chain * chains:
        problems.append(
            f"there are only {effective:.0f} effective draws: draw more, or take more leapfrog steps"
            if np.isfinite(effective)
            else "the number of effective draws cannot be computed: a chain never moved, or overflowed"
        )
    if not energies >= limits.ebfmi:
        problems.append(
            f"the energies mix slowly (E-BFMI {energies:.2f}): tails may be missed; draw more"
        )
    return problems


def check_whitening(error: float) -> list[str]:
    """Say so if a low rank makes this the answer for another machine.

    **Arguments:** `error`, the share of the prior's variance that is lost.

    **Returns:** a list with one sentence, or none.
    """
    limit = Thresholds().lost_variance
    if error <= limit:
        return []
    return [
        f"the low rank loses {error:.1%} of the prior's variance, more than {limit:.0%}: this is the answer "
        "for the machine of low rank, not for the model. Raise the rank and the number of landmarks of "
        "`jaxsvm.Nystrom`, or take `jaxsvm.Exact()`"
    ]


def check_wall(wall: bool) -> list[str]:
    """Say so if standard errors of averaged slopes are unreliable.

    **Arguments:** `wall`, whether the loss has a wall.

    **Returns:** a list with one sentence, or none.
    """
    if not wall:
        return []
    return [
        "the loss has a wall, where its slope has no fourth moment: standard errors of the gradient are "
        "unreliable, mostly too small. Compare several keys"
    ]


def warn_of_problems(diagnostics: Diagnostics, what: str) -> None:
    """A `SamplingWarning` that says what is wrong with the chains, if anything is.

    **Arguments:** `diagnostics`, of the chains; `what`, the beginning of the message.
    """
    if diagnostics.problems:
        warn_user(f"{what}: " + ". ".join(diagnostics.problems), SamplingWarning)

"""How far chains can be trusted, in numbers and in words."""

import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._chains import Traces
from ._effective import ess_bulk, ess_tail, rhat


class SamplingWarning(UserWarning):
    """Chains whose averages should not be trusted as they are."""


class Thresholds(NamedTuple):
    """Beyond which a diagnostic is bad."""

    rhat: float = 1.05
    ess_of_chain: float = 10.0
    divergences: float = 0.01
    least_acceptance: float = 0.4
    stuck: float = 0.01  # acceptance of a chain that as good as stands still
    ebfmi: float = 0.2


class Diagnostics(eqx.Module):
    """What the chains themselves tell of their quality.

    `acceptance` is the mean probability of acceptance of each chain, `divergences` their numbers of
    trajectories whose energy exploded. `rhat` (rank-normalized, split), `ess_bulk` and `ess_tail` (effective
    numbers of draws, of all chains together; Vehtari and others, 2021) are the worst over the total
    loss, the penalty `b'b / 2` and the leading white coordinates; NaN where there are too few draws.
    `ebfmi` is the smallest over the chains of `E[(E_t - E_(t-1))^2] / Var(E)` of the energies. `step_size`
    is that of the leapfrog steps, `steps` the mean number of them in a trajectory, `whitening_error`
    the share of the prior's variance that the low rank loses, `draws` the number of draws of each chain.
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

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words; empty if nothing is."""
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


def diagnose(traces: Traces, step_size, whitening_error) -> Diagnostics:
    """The diagnostics of traces of shape (draws, chains)."""
    host: Any = jax.tree.map(np.asarray, traces)
    draws, chains = host.loss.shape
    quantities = np.concatenate(
        [host.loss[..., None], host.penalty[..., None], host.coordinates], axis=2
    )
    enough = draws >= 8
    each = [quantities[..., place].T for place in range(quantities.shape[2])]

    def of_each(function, possible):
        return np.array(
            [function(q) if possible and np.isfinite(q).all() else np.nan for q in each]
        )

    scale = of_each(rhat, enough and chains > 1)
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
    )


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
    enough = d.draws >= 8
    if enough and chains > 1 and not float(d.rhat) <= limits.rhat:
        problems.append(
            f"the chains do not agree with each other (R-hat {float(d.rhat):.2f}): draw more, or lengthen "
            "the warm-up"
        )
    if enough and not float(d.ess_bulk) >= limits.ess_of_chain * chains:
        problems.append(
            f"there are only {float(d.ess_bulk):.0f} effective draws: draw more, or take more leapfrog steps"
        )
    if enough and float(d.ebfmi) < limits.ebfmi:
        problems.append(
            f"the energies mix slowly (E-BFMI {float(d.ebfmi):.2f}): tails may be missed; draw more"
        )
    return problems


def warn_of_problems(diagnostics: Diagnostics, what: str) -> None:
    """A Python warning that says in words what is wrong with the chains, if anything is."""
    if diagnostics.problems:
        warnings.warn(f"{what}: " + ". ".join(diagnostics.problems), SamplingWarning, stacklevel=3)

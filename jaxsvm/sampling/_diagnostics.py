"""Diagnostics of chains: numbers, and messages that say what is wrong and what to do."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..approximations import LOST_VARIANCE, check_lost_variance
from ..runtime import warn_user
from ._chains import Traces


class SamplingWarning(UserWarning):
    """The averages over chains should not be trusted as they are."""


class Thresholds(NamedTuple):
    """Values beyond which a diagnostic is bad.

    `rhat`, `ess_of_chain` (effective draws of each chain), `divergences` (their share) and `ebfmi` are as
    in `Diagnostics`. A mean acceptance below `least_acceptance` is low; below `stuck` a chain hardly moves;
    above `timid` the steps are too short. A chain needs `fewest_draws` to be judged; `step_rhat` is the
    limit for the few draws of one step of a search; `batch_noise` is as in `Diagnostics`.
    """

    rhat: float = 1.05
    ess_of_chain: float = 10.0
    divergences: float = 0.01
    least_acceptance: float = 0.4
    stuck: float = 0.01
    timid: float = 0.995
    ebfmi: float = 0.2
    fewest_draws: int = 8
    # At about this share the error of the evidence and of its gradient, relative to the exact kernel,
    # reaches the standard errors of typical runs.
    step_rhat: float = 1.5
    batch_noise: float = 0.4


class Diagnostics(eqx.Module):
    """The quality of chains.

    `acceptance` is the mean probability of acceptance of each chain, `divergences` the number of its
    trajectories whose energy exploded. `rhat` (rank-normalized, split), `ess_bulk` and `ess_tail` (effective
    numbers of draws, of all chains together; Vehtari and others, 2021) are the worst over the total
    loss, the penalty `b'b / 2` and the leading white coordinates; NaN for too few draws. `ebfmi` is the
    smallest over the chains of `E[(E_t - E_(t-1))^2] / Var(E)` of the energies. `step_size` is the size of a
    leapfrog step, `steps` the mean number of them in a trajectory, `whitening_error` the share of the
    prior's variance that the low rank loses, `tolerance` the largest share that is not reported, `draws` the
    number of draws of each chain. `wall` says whether slopes of a loss with a wall were averaged; these have
    no fourth moment. `batch_noise` is the largest share, among all directions, of the random moves that the
    batches of `SGLD` supply, None for other methods.
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
    batch_noise: Float[Array, ""] | None = None
    tolerance: float = eqx.field(static=True, default=LOST_VARIANCE)

    @property
    def problems(self) -> list[str]:
        """What is wrong and what to do about it; empty if nothing is wrong.

        Among others: fewer than 8 draws of each chain, and a low rank that loses more than the tolerated
        share of the prior's variance.
        """
        return _problems(self, Thresholds())

    def __str__(self) -> str:
        acceptance, divergences = np.asarray(self.acceptance), np.asarray(self.divergences)
        rows = [
            f"chains {len(acceptance)} of {self.draws} draws, step size {float(self.step_size):.3g}, "
            f"{float(self.steps):.1f} leapfrog steps",
            f"acceptance {acceptance.mean():.2f} (least {acceptance.min():.2f}), "
            f"{divergences.sum()} divergences",
            f"R-hat {float(self.rhat):.3f}, effective draws {float(self.ess_bulk):.0f} (tail "
            f"{float(self.ess_tail):.0f}), E-BFMI {float(self.ebfmi):.2f}",
            f"prior variance lost by the whitening {float(self.whitening_error):.2%}",
        ]
        return "\n".join(rows + [f"PROBLEM: {text}" for text in self.problems])


def diagnose(
    traces: Traces,
    step_size: Array,
    whitening_error: Array,
    tolerance: float = LOST_VARIANCE,
    wall: bool = False,
    batch_noise: Array | None = None,
) -> Diagnostics:
    """The diagnostics of traces of shape (draws, chains).

    **Arguments:** `traces`; `step_size`; `whitening_error`; `tolerance`, of it; `wall`, whether slopes of a
    loss with a wall were averaged; `batch_noise`, as in `Diagnostics`.

    **Returns:** the `Diagnostics`.
    """
    host: Any = jax.tree.map(np.asarray, traces)
    draws, chains = host.loss.shape
    quantities = _quantities(host, np)
    enough = draws >= Thresholds().fewest_draws
    each = [quantities[..., index].T for index in range(quantities.shape[2])]

    def of_each(function):
        return np.array([function(q) if enough and np.isfinite(q).all() else np.nan for q in each])

    with np.errstate(all="ignore"):
        energy = host.energy
        moves = (
            np.mean(np.diff(energy, axis=0) ** 2, axis=0) if draws > 1 else np.full(chains, np.nan)
        )
        bfmi = moves / np.var(energy, axis=0)
    return Diagnostics(
        acceptance=jnp.asarray(host.acceptance.mean(axis=0)),
        divergences=jnp.asarray(host.divergent.sum(axis=0)),
        rhat=_worst(of_each(rhat), np.max),  # of half chains, so one chain is enough
        ess_bulk=_worst(of_each(ess_bulk), np.min),
        ess_tail=_worst(of_each(ess_tail), np.min),
        ebfmi=_worst(bfmi, np.min),
        step_size=jnp.asarray(step_size),
        steps=jnp.asarray(host.steps.mean()),
        whitening_error=jnp.asarray(whitening_error),
        draws=draws,
        wall=wall,
        batch_noise=batch_noise,
        tolerance=tolerance,
    )


def _worst(values: np.ndarray, choose):
    """The worst value; NaN if one is not finite, as for a chain that never moved."""
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
            "towards the positions of the stuck chains. Lengthen the warm-up or lower the step size"
        )
    elif acceptance.mean() < limits.least_acceptance:
        problems.append(
            f"only {acceptance.mean():.0%} of the trajectories were accepted: lower the step size, or "
            "lengthen the warm-up"
        )
    divergent = int(np.sum(np.asarray(d.divergences)))
    if d.batch_noise is not None:
        problems += check_batch_noise(float(d.batch_noise), divergent)
    elif divergent > limits.divergences * chains * d.draws:
        problems.append(
            f"{divergent} of {chains * d.draws} trajectories diverged: lower the step size (raise "
            "`target_acceptance`)"
        )
    if d.draws < limits.fewest_draws:
        problems.append(
            f"{d.draws} draws of each chain are too few to judge it: draw at least {limits.fewest_draws}"
        )
    else:
        problems += _problems_of_mixing(d, limits)
    lost = check_lost_variance(float(d.whitening_error), d.tolerance)
    return problems + lost + check_wall(d.wall)


def _problems_of_mixing(d: Diagnostics, limits: Thresholds) -> list[str]:
    problems = []
    scale, effective, energies = float(d.rhat), float(d.ess_bulk), float(d.ebfmi)
    chains = len(d.acceptance)
    short = np.mean(np.asarray(d.acceptance)) > limits.timid
    agree = scale <= limits.rhat  # False for NaN, as for chains that never moved
    if not agree and d.batch_noise is not None:
        problems.append(
            f"the chains do not agree with each other (R-hat {scale:.2f}) at a step size of "
            f"{float(d.step_size):.2g}: raise `steps` or `batch` of `SGLD`, or draw more"
        )
    elif not agree and short:
        problems.append(
            f"the chains hardly move (R-hat {scale:.2f}), although nearly all trajectories were accepted: "
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


def check_batch_noise(batch_noise: float, divergent: int) -> list[str]:
    """Report batches that are too small, and draws far from the mode.

    **Arguments:** `batch_noise`, as in `Diagnostics`; `divergent`, the number of draws that are far away.

    **Returns:** a list of messages, empty if nothing is wrong.
    """
    problems = []
    if not batch_noise <= Thresholds().batch_noise:
        problems.append(
            f"batches supply {batch_noise:.0%} of the random moves in some direction, so the draws are "
            "biased: raise `batch` or lower `step_size` of `SGLD`"
        )
    if divergent:
        problems.append(
            f"{divergent} draws are far from all others: lower `step_size` of `SGLD`, or use "
            "`sampling.MCLMC()`"
        )
    return problems


def check_wall(wall: bool) -> list[str]:
    """Report unreliable standard errors of averaged slopes.

    **Arguments:** `wall`, whether the loss has a wall.

    **Returns:** an empty list, or a list with one message.
    """
    if not wall:
        return []
    return [
        "the loss has a wall, where its slope has no fourth moment: standard errors of the gradient are "
        "unreliable, mostly too small. Compare several keys"
    ]


def warn_of_problems(diagnostics: Any, what: str) -> None:
    """Issue a `SamplingWarning` if anything is wrong with the chains.

    **Arguments:** `diagnostics`, those of the chains, which have `problems`; `what`, the beginning of the
    message.
    """
    if diagnostics.problems:
        warn_user(f"{what}: " + ". ".join(diagnostics.problems), SamplingWarning)


# ---------------------------------------------------------------------------- R-hat and effective draws
#
# By ranks: Vehtari, Gelman, Simpson, Carpenter and Buerkner, "Rank-normalization, folding, and
# localization: an improved R-hat for assessing convergence of MCMC", 2021.
#
# `blackjax.diagnostics` 1.7.1 has the same diagnostics, with three differences. Its effective numbers differ
# by up to 10 % from those of ArviZ; ours agree with ArviZ. It compiles them for every number of chains and
# draws, which takes seconds. For chains that stand still at different positions its R-hat is finite.


def split_rhat(draws: Any) -> Any:
    """Gelman and Rubin's R-hat of half chains, `sqrt(1 - 1/m + B / W)` with m draws in each half.

    It does not sort, so that each step of a search can compute it; traced arrays are allowed.

    **Arguments:** `draws`, an array whose leading axes are chains and draws.

    **Returns:** a number for each further entry; NaN for fewer than four draws.
    """
    return _rhat_of_halves(_split(draws))


def _rhat_of_halves(halves):
    xp = jnp if isinstance(halves, jax.Array) else np
    count = halves.shape[1]
    if count < 2:
        return xp.full(halves.shape[2:], xp.nan, halves.dtype)
    within = xp.mean(xp.var(halves, axis=1, ddof=1), axis=0)
    between = xp.var(xp.mean(halves, axis=1), axis=0, ddof=1)
    with np.errstate(all="ignore"):
        return xp.sqrt(1 - 1 / count + between / within)


def largest_rhat(traces: Traces) -> Float[Array, ""]:
    """The largest `split_rhat` of the traced quantities, on the device.

    **Arguments:** `traces`, of shape (draws, chains).

    **Returns:** a number; NaN for fewer than four draws.
    """
    return jnp.max(split_rhat(jnp.swapaxes(_quantities(traces, jnp), 0, 1)))


def _quantities(traces: Traces, xp: Any) -> Any:
    """The total loss, the penalty and the leading coordinates, of shape (draws, chains, quantities)."""
    return xp.concatenate(
        [traces.loss[..., None], traces.penalty[..., None], traces.coordinates], axis=2
    )


def rhat(draws: np.ndarray) -> float:
    """The larger of the R-hats of ranks and of folded ranks, for draws of shape (chains, draws)."""
    split = _split(draws)
    folded = np.abs(split - np.median(split))
    return max(float(_rhat_of_halves(_normalize(part))) for part in (split, folded))


def ess_bulk(draws: np.ndarray) -> float:
    """The effective number of draws for the middle of the distribution."""
    return _ess(_normalize(_split(draws)))


def ess_tail(draws: np.ndarray) -> float:
    """The effective number of draws for its 5 % and 95 % quantiles, the smaller of the two."""
    split = _split(draws)
    return min(_ess((split <= np.quantile(split, q)).astype(float)) for q in (0.05, 0.95))


def _split(draws):
    """Both halves of each chain; the middle draw of an odd number is dropped."""
    xp = jnp if isinstance(draws, jax.Array) else np
    half = draws.shape[1] // 2
    return xp.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _normalize(draws):
    """Normal scores of the ranks."""
    from scipy.special import ndtri  # here: it takes a third of a second to import

    _, groups, counts = np.unique(draws, return_inverse=True, return_counts=True)
    means = np.cumsum(counts) - (counts - 1) / 2  # equal draws share the mean of their ranks
    ranks = means[groups].reshape(draws.shape)
    return ndtri((ranks - 0.375) / (draws.size + 0.25))


def _ess(draws):
    """The effective number by Geyer's initial monotone sequence of the pooled autocorrelations."""
    chains, count = draws.shape
    covariances = _autocovariances(draws)
    within = np.mean(covariances[:, 0]) * count / (count - 1)
    total = within * (count - 1) / count + np.var(np.mean(draws, axis=1), ddof=1)
    if not total > 0:
        return float("nan")
    correlations = 1 - (within - np.mean(covariances, axis=0)) / total
    correlations[0] = 1.0
    pairs = correlations[: count // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    end = negative[0] if negative.size else len(pairs)
    pairs = np.minimum.accumulate(pairs[:end])
    time = -1 + 2 * np.sum(pairs)
    # the first term that was cut off still counts if it is positive
    if 2 * end < count and end > 0:
        time += max(correlations[2 * end], 0.0)
    size = chains * count
    return float(size / max(time, 1 / np.log10(size)))


def _autocovariances(draws):
    count = draws.shape[1]
    centered = draws - np.mean(draws, axis=1, keepdims=True)
    length = 2 ** int(np.ceil(np.log2(2 * count)))
    spectrum = np.fft.rfft(centered, length, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, length, axis=1)[:, :count] / count

"""The log evidence by thermodynamic integration over the strength of the losses, beginning at the prior."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..approximations import check_lost_variance
from ..runtime import Progress, filter_jit
from ..sampling import (
    MCLMC,
    Chains,
    Method,
    Setup,
    Target,
    draw,
    first_log_step,
    mean_curvature,
    moments,
    require_method,
    split_rhat,
    total_loss,
    warm_up,
)
from ..validation import check_number
from ._estimate import LogEvidence, Path, as_log_evidence, check_counts

_PIECES = 8  # parts of the ladder; the progress bar advances after each
# Halving all steps divides the error of the rule by 16 or more if the integrand is smooth on their scale; we
# assume a factor of only 4.
_GAIN_OF_HALVING = 4
_WORST_RHAT = 1.1  # about ten effective draws of a chain
_DRIFT = 4.0  # standard errors
_DIVERGENCES = 0.01
_LEAST_ACCEPTANCE = 0.4


class InfiniteLossError(ValueError):
    """Draws from the prior have an infinite loss, so the integral has no finite beginning."""


@dataclasses.dataclass(frozen=True)
class Thermodynamic:
    """Thermodynamic integration: `ln Z(1) = -int_0^1 dt <sum_i w_i L_i>_t`.

    All losses are multiplied by t. For a loss that is linear in C this integrates over C from zero, where
    the posterior is the prior [GS03, eq. 18]. Chains begin with exact draws from the prior and are carried
    from temperature to temperature, so that each chain gives an independent estimate.

    With `t = u^power` the integrand `g = -<L>_t dt/du` vanishes at the prior. The rule for each step h of u
    is the trapezoid rule with its end correction, `h/2 (g0 + g1) + h^2/12 (g0' - g1')`, where `g'` follows
    from the variance of the loss, `d<L>/dt = -Var L`.

    **Arguments:**

    - `temperatures`: the number of temperatures above zero, even.
    - `power`: how much they crowd near the prior, where the mean loss falls fastest; at least 2.
    - `chains`: the number of chains, which give the standard error.
    - `warmup`, `draws`: the numbers of draws of each chain at each temperature, before and after it has
      adapted.
    - `sampler`: `jaxsvm.sampling.MCLMC(...)`, `HMC(...)` or `NUTS(...)`.
    """

    temperatures: int = 16
    power: float = 5.0
    chains: int = 16
    warmup: int = 60
    draws: int = 100
    sampler: Method = MCLMC()  # noqa: RUF009, it is immutable

    def __post_init__(self) -> None:
        check_counts(self, temperatures=4, chains=2, warmup=0, draws=4)
        if self.temperatures % 2:
            raise ValueError(
                f"`temperatures` must be even, but is {self.temperatures}: the rule is compared "
                "with itself at every second temperature, to estimate its error"
            )
        check_number("power", self.power, least=2)
        require_method("sampler", self.sampler)

    @property
    def ladder(self) -> np.ndarray:
        """All temperatures, zero included."""
        return (np.arange(self.temperatures + 1) / self.temperatures) ** self.power


class ThermodynamicDiagnostics(eqx.Module):
    """The quality of the chains at each temperature above zero, and of the integration rule.

    `acceptance` is the mean over the chains, `divergences` their total, `step_size` the step size of all, and
    `rhat` the R-hat of the loss. `discretization_error` estimates the error of the rule from every second
    temperature. `drift` is the result of the second halves of all draws minus that of the first halves, and
    `drift_error` its standard error. `whitening_error` is the share of the prior's variance that a low rank
    loses.
    """

    acceptance: Float[Array, " temperatures"]
    divergences: Array
    step_size: Float[Array, " temperatures"]
    rhat: Float[Array, " temperatures"]
    discretization_error: Float[Array, ""]
    drift: Float[Array, ""]
    drift_error: Float[Array, ""]
    whitening_error: Float[Array, ""]


class _Records(NamedTuple):
    """The record of each temperature."""

    loss: Float[Array, "temperatures draws chains"]
    acceptance: Float[Array, " temperatures"]
    divergences: Array
    step_size: Float[Array, " temperatures"]


def integrate(setup: Setup, method: Thermodynamic, key, progress: bool | None) -> LogEvidence:
    """The log evidence by thermodynamic integration; problems are recorded without a warning."""
    prior_key, ladder_key = jax.random.split(key)
    target, chains, prior_loss, whitening_error = _at_prior(setup, method, prior_key)
    if not np.isfinite(np.asarray(prior_loss)).all():
        raise InfiniteLossError(
            "the mean loss of draws from the prior is not finite, so it cannot be integrated: "
            'the loss has a wall, or its values overflow. Use `method="smc"`'
        )
    temperatures = jnp.asarray(method.ladder[1:], setup.y.dtype)
    length = _length_of_piece(method.temperatures)
    before, pieces = temperatures[0], []
    with Progress(method.temperatures, "log evidence", progress) as bar:
        for first in range(0, method.temperatures, length):
            piece = temperatures[first : first + length]
            keys = jax.random.split(jax.random.fold_in(ladder_key, first), length)
            chains, records = _climb(target, method, chains, before, piece, keys)
            before = piece[-1]
            pieces.append(jax.tree.map(np.asarray, records))
            bar.update(first + length, f"acceptance {pieces[-1].acceptance[-1]:.2f}")
    records = jax.tree.map(lambda *leaves: np.concatenate(leaves), *pieces)
    # sums of many numbers need double precision, even if the chains have single precision
    loss = np.concatenate([prior_loss[None], records.loss]).astype(np.float64)
    return _summarize(setup, method, loss, records, float(whitening_error))


def _length_of_piece(temperatures: int) -> int:
    """The number of temperatures in a piece; one program serves all pieces, since they are equally long."""
    shortest = -(-temperatures // _PIECES)
    return next(
        length for length in range(shortest, temperatures + 1) if temperatures % length == 0
    )


@filter_jit
def _at_prior(setup: Setup, method: Thermodynamic, key):
    """The posterior, chains at draws from the prior, the losses of such draws, and the variance lost."""
    whitening, target = setup.whiten()
    dtype = target.y.dtype
    shape = (method.chains, target.factor.shape[1])

    def one(carry, key):
        _, means = carry
        b = jax.random.normal(key, shape, dtype)
        latent = b @ target.factor.T
        loss = jax.vmap(total_loss, (None, 0))(target, latent)
        return (b, means + moments(target, latent) / method.draws), loss

    begin = (jnp.zeros(shape, dtype), jnp.zeros((4, *target.y.shape), dtype))
    (b, means), losses = jax.lax.scan(one, begin, jax.random.split(key, method.draws))
    curvature = mean_curvature(*means) * jnp.asarray(method.ladder[1], dtype)
    chains = Chains(b, curvature, first_log_step(method.sampler, dtype))
    return target, chains, losses, whitening.error


@filter_jit
def _climb(
    full: Target, method: Thermodynamic, chains: Chains, before, temperatures, keys
) -> tuple[Chains, _Records]:
    """Sample at several temperatures, one after the other."""

    def one(carry, inputs):
        chains, before = carry
        temperature, key = inputs
        target = full._replace(weights=temperature * full.weights)
        warm_key, draw_key = jax.random.split(key)
        # a first guess: the curvatures of the tempered losses grow with the temperature
        chains = chains._replace(curvature=chains.curvature * (temperature / before))
        chains = warm_up(target, method.sampler, chains, warm_key, method.warmup)
        chains, _, traces, _ = draw(target, method.sampler, chains, draw_key, method.draws)
        records = _Records(
            loss=traces.loss / temperature,
            acceptance=jnp.mean(traces.acceptance),
            divergences=jnp.sum(traces.divergent),
            step_size=jnp.exp(chains.log_step),
        )
        return (chains, temperature), records

    (chains, _), records = jax.lax.scan(one, (chains, before), (temperatures, keys))
    return chains, records


def _integrals(power: float, loss: np.ndarray) -> np.ndarray:
    """`ln Z(t)` at all temperatures from each chain, for losses of shape (temperatures, draws, chains)."""
    mean = loss.mean(axis=1)
    # about the mean of all chains: about its own mean the variance of a short chain would be too small
    variance = np.mean((loss - loss.mean(axis=(1, 2), keepdims=True)) ** 2, axis=1)
    u, step = np.linspace(0, 1, len(loss), retstep=True)
    rate, bend = power * u ** (power - 1), power * (power - 1) * u ** (power - 2)
    integrand = -mean * rate[:, None]
    slope = variance * rate[:, None] ** 2 - mean * bend[:, None]
    parts = step / 2 * (integrand[1:] + integrand[:-1]) + step**2 / 12 * (slope[:-1] - slope[1:])
    return np.concatenate([np.zeros_like(mean[:1]), np.cumsum(parts, axis=0)])


def _standard_error(values: np.ndarray) -> float:
    """The standard error of the mean of independent values."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def _summarize(
    setup: Setup, method: Thermodynamic, loss, records: _Records, whitening_error
) -> LogEvidence:
    power, half = method.power, method.draws // 2
    integrals = _integrals(power, loss)
    values = integrals[-1]
    coarse = _integrals(power, loss[::2])[-1]
    drifts = _integrals(power, loss[:, -half:])[-1] - _integrals(power, loss[:, :half])[-1]
    columns = (np.broadcast_to(method.ladder, integrals.T.shape), loss.mean(axis=1).T, integrals.T)
    path = Path(*(jnp.asarray(column, setup.y.dtype) for column in columns))
    diagnostics = ThermodynamicDiagnostics(
        acceptance=jnp.asarray(records.acceptance),
        divergences=jnp.asarray(records.divergences),
        step_size=jnp.asarray(records.step_size),
        rhat=jnp.asarray(split_rhat(loss[1:].T)),
        discretization_error=jnp.asarray(abs(np.mean(coarse - values)) / _GAIN_OF_HALVING),
        drift=jnp.asarray(np.mean(drifts)),
        drift_error=jnp.asarray(_standard_error(drifts)),
        whitening_error=jnp.asarray(whitening_error),
    )
    error = _standard_error(values)
    return as_log_evidence(
        setup,
        log_partition=float(np.mean(values)),
        standard_error=error,
        estimates=values,
        path=path,
        diagnostics=diagnostics,
        problems=_problems(method, diagnostics, error, setup.representation.tolerance),
    )


def _problems(
    method: Thermodynamic, d: ThermodynamicDiagnostics, error: float, tolerance: float
) -> list[str]:
    problems = []
    ladder = method.ladder[1:]
    divergent, trajectories = int(d.divergences.sum()), method.draws * method.chains
    worst = int(np.argmax(np.asarray(d.divergences)))
    if int(d.divergences[worst]) > _DIVERGENCES * trajectories:
        problems.append(
            f"{divergent} trajectories diverged, {int(d.divergences[worst])} of {trajectories} at "
            f"temperature {ladder[worst]:.2g}: lengthen `warmup` or raise the sampler's `target_acceptance`"
        )
    acceptance = np.asarray(d.acceptance)
    if not acceptance.min() >= _LEAST_ACCEPTANCE:
        problems.append(
            f"only {acceptance.min():.0%} of the trajectories were accepted at temperature "
            f"{ladder[acceptance.argmin()]:.2g}: lengthen `warmup`, or lower the sampler's step size"
        )
    scales = np.asarray(d.rhat)
    if not scales.max() <= _WORST_RHAT:
        problems.append(
            f"the chains do not agree with each other (R-hat of the loss {scales.max():.2f} at temperature "
            f"{ladder[scales.argmax()]:.2g}): raise `draws` or the sampler's `integration_steps`"
        )
    if abs(float(d.drift)) > _DRIFT * float(d.drift_error):
        problems.append(
            f"the chains have not settled (first and second halves differ by {float(d.drift):+.2g} "
            f"± {float(d.drift_error):.1g} nats): lengthen `warmup`"
        )
    if float(d.discretization_error) > error:
        problems.append(
            f"the error of the integration rule, about {float(d.discretization_error):.2g} nats, is larger "
            f"than the standard error of {error:.2g}: raise `temperatures`"
        )
    return problems + check_lost_variance(float(d.whitening_error), tolerance)

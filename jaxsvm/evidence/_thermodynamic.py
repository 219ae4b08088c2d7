"""The log evidence by thermodynamic integration: along the strength of the losses, from the prior up."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..approximations import Whitening, whiten
from ..runtime import Progress, filter_jit
from ..sampling import (
    HMC,
    NUTS,
    Chains,
    Method,
    Setup,
    check_whitening,
    draw,
    mean_curvature,
    slopes,
    target_of,
    total_loss,
    warm_up,
)
from ..validation import check_number
from ._estimate import Estimate, Path, check_counts, standard_error

_FIRST_STEP = 0.3
_LOOKS = 8  # of the host at the ladder, at most
# Halving all steps divides the error of the rule by 16 or more where the integrand is smooth on their
# scale; only a factor of 4 is counted on.
_GAIN_OF_HALVING = 4
_WORST_RHAT = 1.1  # about ten effective draws of a chain
_DRIFT = 4.0  # standard errors
_DIVERGENCES = 0.01
_LEAST_ACCEPTANCE = 0.4


class InfiniteLossError(ValueError):
    """Draws from the prior with an infinite loss: there is nothing to integrate from."""


@dataclasses.dataclass(frozen=True)
class Thermodynamic:
    """Thermodynamic integration: `ln Z(1) = -int_0^1 dt <sum_i w_i L_i>_t`.

    All losses are multiplied by t. For a loss that is linear in C this is integrating over C from zero,
    where the posterior is the prior: [GS03, eq. 18]. Chains begin with exact draws from the prior and are
    carried from temperature to temperature, so that each gives an estimate of its own.

    With `t = u^power` the integrand `g = -<L>_t dt/du` vanishes at the prior, and the trapezoid rule over
    equal steps h of u errs only by what it misses at the other end: `h/2 (g0 + g1) + h^2/12 (g0' - g1')` in
    each step, where `g'` is known from the variance of the loss, `d<L>/dt = -Var L`.

    **Arguments:**

    - `temperatures`: their number K, even.
    - `power`: how much they crowd near the prior, where the mean loss falls fastest; at least 2.
    - `chains`: over which the standard error is taken.
    - `warmup`, `draws`: of each chain at each temperature.
    - `sampler`: `jaxsvm.sampling.HMC(...)` or `NUTS(...)`.
    """

    temperatures: int = 16
    power: float = 5.0
    chains: int = 16
    warmup: int = 60
    draws: int = 100
    sampler: Method = HMC()  # noqa: RUF009, it is immutable

    def __post_init__(self):
        check_counts(self, temperatures=4, chains=2, warmup=0, draws=4)
        if self.temperatures % 2:
            raise ValueError(
                f"`temperatures` must be even, but is {self.temperatures}: the estimate with every second "
                "of them tells the error of the rule"
            )
        check_number("power", self.power, least=2)
        if not isinstance(self.sampler, HMC | NUTS):
            raise TypeError(
                f"`sampler` must be `sampling.HMC(...)` or `sampling.NUTS(...)`, not {self.sampler!r}"
            )

    @property
    def ladder(self) -> np.ndarray:
        """All temperatures, zero included."""
        return (np.arange(self.temperatures + 1) / self.temperatures) ** self.power


class ThermodynamicDiagnostics(eqx.Module):
    """How the chains went at each temperature above zero, and how far the sum is from the integral.

    `acceptance` is the mean over the chains, `divergences` their total, `step_size` theirs, `rhat` that of
    the loss.
    `discretization_error` is an estimate of the error of the rule, from every second temperature; `drift` is
    the result of the second halves of all draws minus that of the first halves, and `drift_error` its
    standard error. `whitening_error` is the share of the prior's variance that a low rank loses.
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
    """What is kept of each temperature."""

    loss: Float[Array, "temperatures draws chains"]
    acceptance: Float[Array, " temperatures"]
    divergences: Array
    step_size: Float[Array, " temperatures"]


def integrate(setup: Setup, method: Thermodynamic, key, progress: bool | None) -> Estimate:
    """`ln Z(1)` by thermodynamic integration."""
    prior_key, ladder_key = jax.random.split(key)
    whitening, chains, prior_loss = _at_prior(setup, method, prior_key)
    if not np.isfinite(np.asarray(prior_loss)).all():
        raise InfiniteLossError(
            "the mean loss of draws from the prior is not finite, so that there is nothing to integrate: "
            'the loss has a wall, or its values overflow. Use `method="smc"`'
        )
    temperatures = jnp.asarray(method.ladder[1:], setup.y.dtype)
    length = _length_of_piece(method.temperatures)
    before, pieces = temperatures[0], []
    with Progress(method.temperatures, "log evidence", progress) as bar:
        for first in range(0, method.temperatures, length):
            piece = temperatures[first : first + length]
            keys = jax.random.split(jax.random.fold_in(ladder_key, first), length)
            chains, records = _climb(setup, whitening, method, chains, before, piece, keys)
            before = piece[-1]
            pieces.append(jax.tree.map(np.asarray, records))
            bar.update(first + length, f"acceptance {pieces[-1].acceptance[-1]:.2f}")
    records = jax.tree.map(lambda *leaves: np.concatenate(leaves), *pieces)
    # sums of many numbers are done in double precision, whatever that of the chains
    loss = np.concatenate([prior_loss[None], records.loss]).astype(np.float64)
    return _summarize(method, loss, records, float(whitening.error), setup.y.dtype)


def _length_of_piece(temperatures: int) -> int:
    """Between two looks of the host; pieces of one length are compiled once."""
    shortest = -(-temperatures // _LOOKS)
    return next(
        length for length in range(shortest, temperatures + 1) if temperatures % length == 0
    )


@filter_jit
def _at_prior(setup: Setup, method: Thermodynamic, key):
    """The whitening, chains that are draws from the prior, and the losses of exact draws."""
    whitening = whiten(setup.model.kernel, setup.x, setup.subspace)
    target = target_of(setup, whitening)
    dtype = target.y.dtype
    shape = (method.chains, target.factor.shape[1])

    def one(carry, key):
        _, moments = carry
        b = jax.random.normal(key, shape, dtype)
        latent = b @ target.factor.T
        slope = jax.vmap(slopes, (None, 0))(target, latent)
        seen = jnp.mean(jnp.stack([slope, latent, slope * latent, latent**2]), axis=1)
        loss = jax.vmap(total_loss, (None, 0))(target, latent)
        return (b, moments + seen / method.draws), loss

    begin = (jnp.zeros(shape, dtype), jnp.zeros((4, *target.y.shape), dtype))
    (b, moments), losses = jax.lax.scan(one, begin, jax.random.split(key, method.draws))
    curvature = mean_curvature(*moments) * jnp.asarray(method.ladder[1], dtype)
    size = _FIRST_STEP if method.sampler.step_size is None else method.sampler.step_size
    return whitening, Chains(b, curvature, jnp.log(jnp.asarray(size, dtype))), losses


@filter_jit
def _climb(
    setup: Setup,
    whitening: Whitening,
    method: Thermodynamic,
    chains: Chains,
    before,
    temperatures,
    keys,
) -> tuple[Chains, _Records]:
    """Some temperatures, one after the other."""
    full = target_of(setup, whitening)

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
            traces.loss / temperature,
            jnp.mean(traces.acceptance),
            jnp.sum(traces.divergent),
            jnp.exp(chains.log_step),
        )
        return (chains, temperature), records

    (chains, _), records = jax.lax.scan(one, (chains, before), (temperatures, keys))
    return chains, records


def _integrals(power: float, loss: np.ndarray) -> np.ndarray:
    """`ln Z(t)` at all temperatures by each chain, from losses of shape (temperatures, draws, chains)."""
    mean = loss.mean(axis=1)
    # about the mean of all chains: about its own mean that of a short chain would be too small
    variance = np.mean((loss - loss.mean(axis=(1, 2), keepdims=True)) ** 2, axis=1)
    u, step = np.linspace(0, 1, len(loss), retstep=True)
    rate, bend = power * u ** (power - 1), power * (power - 1) * u ** (power - 2)
    integrand = -mean * rate[:, None]
    slope = variance * rate[:, None] ** 2 - mean * bend[:, None]
    parts = step / 2 * (integrand[1:] + integrand[:-1]) + step**2 / 12 * (slope[:-1] - slope[1:])
    return np.concatenate([np.zeros_like(mean[:1]), np.cumsum(parts, axis=0)])


def _split_rhat(loss: np.ndarray) -> np.ndarray:
    """Gelman and Rubin's, `sqrt(1 - 1/m + B / W)`, of half chains of m draws: not one if they disagree."""
    half = loss.shape[1] // 2
    halves = np.concatenate([loss[:, :half], loss[:, -half:]], axis=2)
    within = np.mean(np.var(halves, axis=1, ddof=1), axis=1)
    between = np.var(np.mean(halves, axis=1), axis=1, ddof=1)
    with np.errstate(all="ignore"):
        return np.sqrt(1 - 1 / half + between / within)


def _summarize(method: Thermodynamic, loss, records: _Records, whitening_error, dtype) -> Estimate:
    power, half = method.power, method.draws // 2
    integrals = _integrals(power, loss)
    values = integrals[-1]
    coarse = _integrals(power, loss[::2])[-1]
    drifts = _integrals(power, loss[:, -half:])[-1] - _integrals(power, loss[:, :half])[-1]
    columns = (np.broadcast_to(method.ladder, integrals.T.shape), loss.mean(axis=1).T, integrals.T)
    path = Path(*(jnp.asarray(column, dtype) for column in columns))
    diagnostics = ThermodynamicDiagnostics(
        jnp.asarray(records.acceptance),
        jnp.asarray(records.divergences),
        jnp.asarray(records.step_size),
        jnp.asarray(_split_rhat(loss[1:])),
        jnp.asarray(abs(np.mean(coarse - values)) / _GAIN_OF_HALVING),
        jnp.asarray(np.mean(drifts)),
        jnp.asarray(standard_error(drifts)),
        jnp.asarray(whitening_error),
    )
    error = standard_error(values)
    problems = _problems(method, diagnostics, error)
    return Estimate(float(np.mean(values)), error, values, path, diagnostics, problems)


def _problems(method: Thermodynamic, d: ThermodynamicDiagnostics, error: float) -> list[str]:
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
            f"the chains were still on their way (first and second halves differ by {float(d.drift):+.2g} "
            f"± {float(d.drift_error):.1g} nats): lengthen `warmup`"
        )
    if float(d.discretization_error) > error:
        problems.append(
            f"the error of the integration rule, about {float(d.discretization_error):.2g} nats, is larger "
            f"than the standard error of {error:.2g}: raise `temperatures`"
        )
    return problems + check_whitening(float(d.whitening_error))

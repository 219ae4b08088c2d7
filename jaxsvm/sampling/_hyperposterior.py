"""Draws of hyperparameters: predictions averaged over them, and diagnostics of their chains."""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._fit import fit_gram
from .._machine import KernelMachine
from ..criteria import LaplaceEvidence, is_usable
from ..gram import exact_gram
from ..hyperparameters import free_parameters, unfreeze
from ..losses import AbstractLoss
from ..posteriors import AbstractMixture, Components, Examples, Joint, around, mixture
from ..runtime import filter_jit
from ..validation import as_points
from ._diagnostics import ess_bulk, rhat

_Part = Literal["mean", "deviation", "covariance"]


class HyperDiagnostics(eqx.Module):
    """The quality of chains over hyperparameters.

    For each chain: `acceptance`, the mean probability of acceptance; `divergences`, the number of transitions
    with a huge energy error; `failures`, the number of transitions rejected because a fit failed; `outside`,
    the number rejected because they left the bounds; `step_size`. For each entry of each parameter, by name:
    `rhat`, of ranks and half chains (one if they agree), and `ess_bulk`, the effective number of draws of all
    chains together. `draws` is the number of draws of each chain.
    """

    acceptance: Float[Array, " chains"]
    divergences: Int[Array, " chains"]
    failures: Int[Array, " chains"]
    outside: Int[Array, " chains"]
    step_size: Float[Array, " chains"]
    rhat: dict[str, Float[Array, "..."]]
    ess_bulk: dict[str, Float[Array, "..."]]
    draws: int = eqx.field(static=True)

    @property
    def problems(self) -> list[str]:
        """What is wrong with the draws and what to do about it; empty if nothing is wrong."""
        problems = []
        total = self.draws * len(self.acceptance)

        def share(counts):
            return float(np.sum(np.asarray(counts))) / total

        worst = max(self.rhat, key=lambda name: largest(self.rhat[name]))
        if not largest(self.rhat[worst]) <= 1.05:
            problems.append(
                f"chains do not agree about `{worst}` (R-hat {largest(self.rhat[worst]):.2f}): raise "
                "`warmup` and `draws`, or give a narrower `prior`"
            )
        fewest = min(self.ess_bulk, key=lambda name: least(self.ess_bulk[name]))
        if not least(self.ess_bulk[fewest]) >= 50:
            problems.append(
                f"only {least(self.ess_bulk[fewest]):.0f} effective draws of `{fewest}`: raise "
                "`draws` or `integration_steps`"
            )
        lowest = float(np.min(np.asarray(self.acceptance)))
        if lowest < 0.5:
            problems.append(
                f"a chain accepted only {lowest:.0%} of its transitions: raise `warmup`"
            )
        if share(self.divergences) > 0.02:
            problems.append(
                f"{share(self.divergences):.0%} of the transitions diverged: raise `warmup`, or narrow "
                "the `prior`"
            )
        if share(self.failures) > 0.02:
            problems.append(
                f"{share(self.failures):.0%} of the transitions were rejected because a fit failed: set "
                "`bounds`, or narrow the `prior`"
            )
        if share(self.outside) > 0.25:
            problems.append(
                f"{share(self.outside):.0%} of the transitions left the bounds: widen them"
            )
        return problems


class HyperPosterior(AbstractMixture):
    """Draws of hyperparameters, made by `jaxsvm.sample_hyperparameters`.

    `models` are the draws as stacked models, whose leaves have leading axes (chains, draws);
    `log_posterior` is the log density of each up to a constant, `diagnostics` has the quality of the chains.
    Predictions average over draws, each with the Gaussian posterior around its fit, as in a
    `LaplaceMixture`. `evidence` is the approximation that was sampled, `x`, `y` and `weights` are the data.
    Each draw costs a fit, so predictions use at most `predictive_draws` of them, evenly spread over all;
    `using` changes this number.
    """

    models: KernelMachine
    log_posterior: Float[Array, "chains draws"]
    diagnostics: HyperDiagnostics
    evidence: LaplaceEvidence
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    predictive_draws: int = eqx.field(static=True, default=20)

    @property
    def parameters(self) -> dict[str, Float[Array, "chains draws ..."]]:
        """The draws of the parameters that are not frozen, by name and in natural units."""
        return free_parameters(self.models)

    @property
    def loss(self) -> AbstractLoss:
        """The loss of the machines, with parameters stacked like the draws."""
        return self.models.loss

    @property
    def examples(self) -> Examples:
        return Examples(self.x, self.y, self.weights)

    def using(self, draws: int) -> "HyperPosterior":
        """The same posterior with another number of draws for predictions.

        **Arguments:** `draws`, their number; they are evenly spread over all draws.

        **Returns:** a `HyperPosterior`.
        """
        total = self.log_posterior.size
        if not (isinstance(draws, int) and 1 <= draws <= total):
            raise ValueError(f"`draws` must be an integer from 1 to {total}, but is {draws!r}")
        return dataclasses.replace(self, predictive_draws=draws)

    def decision(self, x: Any) -> Float[Array, " m"]:
        _, means, _, shares = self._predicted(x, "mean")
        return shares @ means

    def components(self, x: Any) -> Components:
        losses, means, deviations, shares = self._predicted(x, "deviation")
        return mixture(losses, means[:, None], deviations[:, None], shares)

    def joint(self, x: Any) -> Joint:
        _, means, covariances, shares = self._predicted(x, "covariance")
        return Joint(means[:, None], covariances, shares)

    def _thinned(self) -> KernelMachine:
        """The models that predictions use, along one axis."""
        total = self.log_posterior.size
        draws = min(self.predictive_draws, total)
        numbers = np.round((np.arange(draws) + 0.5) * total / draws - 0.5).astype(int)
        return jax.tree.map(lambda leaf: leaf.reshape(total, *leaf.shape[2:])[numbers], self.models)

    def _predicted(self, x, what: _Part):
        points = as_points(x, self.x).astype(self.x.dtype)
        return _predicted(
            self._thinned(), self.evidence, self.x, self.y, self.weights, points, what
        )


@filter_jit
def _predicted(models, evidence, x, y, weights, points, what: _Part):
    """Losses, means, deviations or covariances of all draws, and their shares."""

    def one(model):
        model = unfreeze(model)
        fitted = fit_gram(model, exact_gram(model.kernel, x), x, y, weights)
        mean = fitted.decision(points)
        spread = jnp.zeros_like(mean)
        if what != "mean":
            posterior = around(fitted, evidence)
            both = {"deviation": posterior.deviation, "covariance": posterior.covariance}
            spread = both[what](points)
        return model.loss, mean, spread, is_usable(fitted.result)

    losses, means, spreads, usable = jax.lax.map(one, models)
    # each draw was fitted before, so a failure is rare; it gets no share
    shares = (usable / jnp.sum(usable)).astype(means.dtype)
    means = jnp.where(usable[:, None], means, 0.0)
    mask = usable.reshape(-1, *(1 for _ in spreads.shape[1:]))
    return losses, means, jnp.where(mask, spreads, 0.0), shares


def diagnose(models, acceptance, divergent, failed, outside, step_size) -> HyperDiagnostics:
    """The diagnostics of stacked models and of the records of all transitions."""
    leaves = dict(zip(free_parameters(models), jax.tree.leaves(models), strict=True))
    return HyperDiagnostics(
        acceptance=jnp.asarray(acceptance.mean(axis=1)),
        divergences=jnp.asarray(divergent.sum(axis=1)),
        failures=jnp.asarray(failed.sum(axis=1)),
        outside=jnp.asarray(outside.sum(axis=1)),
        step_size=jnp.asarray(step_size),
        rhat={name: of_entries(rhat, leaf) for name, leaf in leaves.items()},
        ess_bulk={name: of_entries(ess_bulk, leaf) for name, leaf in leaves.items()},
        draws=acceptance.shape[1],
    )


def of_entries(function, draws):
    """A diagnostic of each entry of a parameter, whose draws have leading axes (chains, draws)."""
    flat = np.asarray(draws).reshape(*draws.shape[:2], -1)
    values = [function(flat[:, :, entry]) for entry in range(flat.shape[2])]
    return jnp.asarray(values).reshape(draws.shape[2:])


def largest(values) -> float:
    """The largest value; NaN, as for a chain that never moved, counts as infinite."""
    return float(np.max(np.nan_to_num(np.asarray(values), nan=np.inf)))


def least(values) -> float:
    """The smallest value; NaN counts as zero."""
    return float(np.min(np.nan_to_num(np.asarray(values), nan=0.0)))

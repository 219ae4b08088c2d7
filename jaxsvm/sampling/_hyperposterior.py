"""Draws of hyperparameters: predictions that are averaged over them, and how the chains went."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._errors import as_points
from .._fit import as_predictions, fit_gram
from .._machine import KernelMachine
from .._parameters import free_parameters, unfreeze
from .._programs import filter_jit
from ..criteria import LaplaceEvidence, is_usable
from ..gram import exact_gram
from ..posteriors import around, check_rule, probability
from ._effective import ess_bulk, rhat


class HyperDiagnostics(eqx.Module):
    """How chains over hyperparameters went.

    For each chain: `acceptance`, the mean probability of acceptance; `divergences`, transitions whose energy
    error was huge; `failures`, those refused since the fit failed; `outside`, those refused since they
    led out of the bounds; `step_size`. For each entry of each parameter, by name: `rhat`, of halves of chains
    by ranks (one where they agree), and `ess_bulk`, the effective number of draws of all chains together.
    `draws` is their number in each chain.
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
        """What is wrong with the draws, and what to do about it, in words; empty if nothing is."""
        found = []
        total = self.draws * len(self.acceptance)

        def share(counts):
            return float(np.sum(np.asarray(counts))) / total

        worst = max(self.rhat, key=lambda name: _largest(self.rhat[name]))
        if not _largest(self.rhat[worst]) <= 1.05:
            found.append(
                f"chains do not agree about `{worst}` (R-hat {_largest(self.rhat[worst]):.2f}): raise "
                "`warmup` and `draws`, or give a narrower `prior`"
            )
        fewest = min(self.ess_bulk, key=lambda name: _least(self.ess_bulk[name]))
        if not _least(self.ess_bulk[fewest]) >= 50:
            found.append(
                f"only {_least(self.ess_bulk[fewest]):.0f} effective draws of `{fewest}`: raise "
                "`draws` or `integration_steps`"
            )
        lowest = float(np.min(np.asarray(self.acceptance)))
        if lowest < 0.5:
            found.append(f"a chain accepted only {lowest:.0%} of its transitions: raise `warmup`")
        if share(self.divergences) > 0.02:
            found.append(
                f"{share(self.divergences):.0%} of the transitions diverged: raise `warmup`, or narrow "
                "the `prior`"
            )
        if share(self.failures) > 0.02:
            found.append(
                f"{share(self.failures):.0%} of the transitions were refused since a fit failed: set "
                "`bounds`, or narrow the `prior`"
            )
        if share(self.outside) > 0.25:
            found.append(
                f"{share(self.outside):.0%} of the transitions led out of the bounds: widen them"
            )
        return found


class HyperPosterior(eqx.Module):
    """Draws of hyperparameters, made by `jaxsvm.sample_hyperparameters`.

    `models` are the draws as stacked models, whose leaves have leading axes (chains, draws); `log_density` is
    that of each up to a constant, `diagnostics` tell how the chains went. Predictions are averages over
    draws, each with the Gaussian posterior around its own fit. `evidence` is the approximation that was
    sampled, `x`, `y` and `weights` are the data.
    """

    models: KernelMachine
    log_density: Float[Array, "chains draws"]
    diagnostics: HyperDiagnostics
    evidence: LaplaceEvidence
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]

    @property
    def parameters(self) -> dict[str, Float[Array, "chains draws ..."]]:
        """The draws of the parameters that are not frozen, by name and in natural units."""
        return free_parameters(self.models)

    def decision(self, x: Any, draws: int = 20) -> Float[Array, " m"]:
        """The latent function at new points, averaged over draws.

        **Arguments:** `x`, a matrix with one row for each point; `draws`, how many to use, evenly spread
        over all: each is a fit.

        **Returns:** one value for each point.
        """
        return self._average(x, draws, None)

    def probability(self, x: Any, rule: str = "normalized", draws: int = 20) -> Float[Array, " m"]:
        """`P(y = +1)` of new points, averaged over draws.

        **Arguments:** `x`, a matrix with one row for each point; `rule`, `"normalized"` or `"average"`, as in
        `LaplacePosterior.probability`; `draws`, how many to use, evenly spread over all.

        **Returns:** one probability for each point.
        """
        check_rule(self.models.loss, rule)
        return self._average(x, draws, rule)

    def predict(self, x: Any, draws: int = 20) -> Float[Array, " m"]:
        """The more probable labels -1 and +1 of new points, or for a regression loss their targets.

        **Arguments:** `x`, a matrix with one row for each point; `draws`, how many to use, evenly spread
        over all.

        **Returns:** one label or target for each point.
        """
        loss = self.models.loss
        if not loss.is_classifier:
            return self.decision(x, draws)
        return as_predictions(loss, self.probability(x, draws=draws) - 0.5)

    def _average(self, x, draws, rule):
        points = as_points(x, self.x).astype(self.x.dtype)
        total = self.log_density.size
        if not (isinstance(draws, int) and 1 <= draws <= total):
            raise ValueError(f"`draws` must be an integer from 1 to {total}, but is {draws!r}")
        chosen = np.round((np.arange(draws) + 0.5) * total / draws - 0.5).astype(int)
        models = jax.tree.map(
            lambda leaf: leaf.reshape(total, *leaf.shape[2:])[chosen], self.models
        )
        data = (self.x, self.y, self.weights)
        return _mean_prediction(models, self.evidence, *data, points, rule)


@filter_jit
def _mean_prediction(models, evidence, x, y, weights, points, rule: str | None):
    def one(model):
        model = unfreeze(model)
        fitted = fit_gram(model, exact_gram(model.kernel, x), x, y, weights)
        if rule is None:
            values = fitted.decision(points)
        else:
            mean, deviation = around(fitted, evidence).latent(points)
            values = probability(model.loss, mean[None, :], deviation**2, rule)
        return values, is_usable(fitted.result)

    values, usable = jax.lax.map(one, models)
    # each draw was fitted before, so a failure is rare: it is left out
    shares = usable / jnp.sum(usable)
    return shares.astype(values.dtype) @ jnp.where(usable[:, None], values, 0.0)


def diagnose(models, acceptance, divergent, failed, outside, step_size) -> HyperDiagnostics:
    """Diagnostics of stacked models and of what is known of each transition."""
    leaves = dict(zip(free_parameters(models), jax.tree.leaves(models), strict=True))
    return HyperDiagnostics(
        acceptance=jnp.asarray(acceptance.mean(axis=1)),
        divergences=jnp.asarray(divergent.sum(axis=1)),
        failures=jnp.asarray(failed.sum(axis=1)),
        outside=jnp.asarray(outside.sum(axis=1)),
        step_size=jnp.asarray(step_size),
        rhat={name: _of_entries(rhat, leaf) for name, leaf in leaves.items()},
        ess_bulk={name: _of_entries(ess_bulk, leaf) for name, leaf in leaves.items()},
        draws=acceptance.shape[1],
    )


def _of_entries(function, draws):
    """A diagnostic of each entry of a parameter, whose draws have leading axes (chains, draws)."""
    flat = np.asarray(draws).reshape(*draws.shape[:2], -1)
    found = [function(flat[:, :, entry]) for entry in range(flat.shape[2])]
    return jnp.asarray(found).reshape(draws.shape[2:])


def _largest(values) -> float:
    """The largest value; one that is not a number, as that of a chain that never moved, is above all."""
    return float(np.max(np.nan_to_num(np.asarray(values), nan=np.inf)))


def _least(values) -> float:
    """The least value; one that is not a number counts as none."""
    return float(np.min(np.nan_to_num(np.asarray(values), nan=0.0)))

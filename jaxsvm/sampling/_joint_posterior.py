"""Joint draws of latent function and hyperparameters: predictions and diagnostics."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._machine import KernelMachine
from ..approximations import AbstractSubspace
from ..hyperparameters import free_parameters, unfreeze
from ..losses import AbstractLoss
from ..posteriors import AbstractMixture, Components, Examples, Joint, mixture
from ..runtime import filter_jit
from ..validation import as_points
from ._chains import Traces
from ._diagnostics import Diagnostics, Thresholds, ess_bulk, ess_tail, rhat
from ._hyperposterior import largest, least, of_entries
from ._sample import as_arviz, spread

_JOINT_NUMBERS = 2**26  # in the covariances of `joint`, so that memory stays bounded


class JointDiagnostics(eqx.Module):
    """The quality of chains over latent function and hyperparameters.

    `function` are the diagnostics of the latent function and of the sampler. For each entry of each
    hyperparameter, by name: `rhat`, `ess_bulk` and `ess_tail`, as in `Diagnostics`.
    """

    function: Diagnostics
    rhat: dict[str, Float[Array, "..."]]
    ess_bulk: dict[str, Float[Array, "..."]]
    ess_tail: dict[str, Float[Array, "..."]]

    @property
    def problems(self) -> list[str]:
        """What is wrong with the draws and what to do about it; empty if nothing is wrong."""
        problems, limits = self.function.problems, Thresholds()
        if self.function.draws < limits.fewest_draws:
            return problems
        worst = max(self.rhat, key=lambda name: largest(self.rhat[name]))
        if not largest(self.rhat[worst]) <= limits.rhat:
            problems.append(
                f"the chains do not agree about `{worst}` (R-hat {largest(self.rhat[worst]):.2f}): raise "
                "`warmup` and `draws`, or give a narrower `prior`"
            )
        fewest = min(self.ess_bulk, key=lambda name: least(self.ess_bulk[name]))
        chains = len(self.function.acceptance)
        if not least(self.ess_bulk[fewest]) >= limits.ess_of_chain * chains:
            problems.append(
                f"there are only {least(self.ess_bulk[fewest]):.0f} effective draws of `{fewest}`: raise "
                "`draws`, or take more leapfrog steps"
            )
        return problems

    def __str__(self) -> str:
        worst = max(self.rhat, key=lambda name: largest(self.rhat[name]))
        fewest = min(self.ess_bulk, key=lambda name: least(self.ess_bulk[name]))
        rows = str(self.function).split("\nPROBLEM")[0].split("\n")
        rows.append(
            f"hyperparameters: R-hat {largest(self.rhat[worst]):.3f} (`{worst}`), effective draws "
            f"{least(self.ess_bulk[fewest]):.0f} (`{fewest}`)"
        )
        return "\n".join(rows + [f"PROBLEM: {text}" for text in self.problems])


class JointPosterior(AbstractMixture):
    """Draws of latent function and hyperparameters together, by `jaxsvm.sample_jointly`.

    `models` are all draws of the hyperparameters, as stacked models whose leaves have leading axes
    (chains, draws). `b` are the kept draws in white coordinates, of shape (chains, kept, rank), and
    `draw_numbers` says which draws of each chain these are. `subspace` has V, so that the latent values at
    the examples are `subspace.whiten(kernel, x).factor @ b`, with the kernel of the same draw.
    `log_posterior` is the log density of each draw up to a constant, in the coordinates of the sampler.
    `diagnostics` says how far to trust the draws, and `traces` has the numbers behind it. `x`, `y` and
    `weights` are the data.

    Predictions average over the kept draws, each of which is one function of one machine. So both rules of
    `probability` agree. A prediction needs the kernel matrix of each kept draw.
    """

    models: KernelMachine
    b: Float[Array, "chains kept p"]
    draw_numbers: Int[Array, " kept"]
    log_posterior: Float[Array, "chains draws"]
    traces: Traces
    diagnostics: JointDiagnostics
    subspace: AbstractSubspace
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]

    @property
    def parameters(self) -> dict[str, Float[Array, "chains draws ..."]]:
        """The draws of the hyperparameters that are not frozen, by name and in natural units."""
        return free_parameters(self.models)

    @property
    def loss(self) -> AbstractLoss:
        """The loss of the machines, with hyperparameters stacked like the draws."""
        return self.models.loss

    @property
    def examples(self) -> Examples:
        return Examples(self.x, self.y, self.weights)

    def decision(self, x: Any) -> Float[Array, " m"]:
        return jnp.mean(self._predicted(x)[1], axis=0)

    def components(self, x: Any) -> Components:
        """The latent function at each new point: the kept draws, all equally likely.

        The prior variance outside the span of the white coordinates is added to the draws.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** `Components`.
        """
        losses, means, residual = self._predicted(x)
        count = len(means)
        noise = spread(count).astype(means.dtype)
        values = means + noise[:, None] * jnp.sqrt(residual)
        shares = jnp.full(count, 1 / count, means.dtype)
        parts = mixture(losses, values[:, None], None, shares)
        mean = jnp.mean(means, axis=0)
        deviation = jnp.sqrt(jnp.var(means, axis=0) + jnp.mean(residual, axis=0))
        return parts._replace(mean=mean, deviation=deviation)

    def joint(self, x: Any) -> Joint:
        """The latent function at all new points: the kept draws, all equally likely.

        Each draw has a Gaussian added: the part of the prior outside the span of the white coordinates. If
        the covariances of all draws had more than 67 million entries, evenly spread draws are used.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** a `Joint`.
        """
        points = self._points(x)
        models, b = self._kept_models(), self._kept_b()
        count = min(len(b), max(1, _JOINT_NUMBERS // len(points) ** 2))
        numbers = np.round((np.arange(count) + 0.5) * len(b) / count - 0.5).astype(int)
        models = jax.tree.map(lambda leaf: leaf[numbers], models)
        means, covariances = _joint(self.subspace, models, b[numbers], self.x, points)
        return Joint(means[:, None], covariances, jnp.full(count, 1 / count, means.dtype))

    def to_arviz(self) -> Any:
        """The kept draws as ArviZ data: hyperparameters, `b`, latent values, statistics of the sampler.

        **Returns:** an `InferenceData` or `DataTree`, depending on the version of ArviZ.
        """
        numbers = np.asarray(self.draw_numbers)
        latent = _latent(self.subspace, self._kept_models(), self._kept_b(), self.x)
        draws = {name: np.asarray(values)[:, numbers] for name, values in self.parameters.items()}
        draws |= {
            "b": np.asarray(self.b),
            "latent": np.asarray(latent).reshape(*self.b.shape[:2], -1),
        }
        return as_arviz(draws, self.traces, np.asarray(self.log_posterior)[:, numbers], numbers)

    def _kept_models(self) -> KernelMachine:
        """The models of the kept draws, along one axis."""
        numbers = self.draw_numbers
        return jax.tree.map(lambda leaf: leaf[:, numbers].reshape(-1, *leaf.shape[2:]), self.models)

    def _kept_b(self) -> Float[Array, "k p"]:
        return self.b.reshape(-1, self.b.shape[2])

    def _points(self, x) -> Float[Array, "m d"]:
        return as_points(x, self.x).astype(self.x.dtype)

    def _predicted(self, x) -> Any:
        models, b = self._kept_models(), self._kept_b()
        return _predicted(self.subspace, models, b, self.x, self._points(x))


@filter_jit
def _predicted(subspace, models, b, x, points):
    """The loss and the function of each kept draw, and the prior variance outside its span."""

    def one(draw):
        model, b = unfreeze(draw[0]), draw[1]
        rows, residual = subspace.whiten(model.kernel, x).basis.features(model.kernel, points)
        return model.loss, rows @ b, residual

    return jax.lax.map(one, (models, b))


@filter_jit
def _joint(subspace, models, b, x, points):
    """Each kept draw at new points, and the covariance of the prior outside its span."""

    def one(draw):
        model, b = unfreeze(draw[0]), draw[1]
        basis = subspace.whiten(model.kernel, x).basis
        rows, covariance = basis.joint_features(model.kernel, points)
        return rows @ b, covariance

    return jax.lax.map(one, (models, b))


@filter_jit
def _latent(subspace, models, b, x):
    """The latent values of each kept draw at the examples."""

    def one(draw):
        model, b = unfreeze(draw[0]), draw[1]
        return subspace.whiten(model.kernel, x).factor @ b

    return jax.lax.map(one, (models, b))


def diagnose_jointly(models: KernelMachine, function: Diagnostics) -> JointDiagnostics:
    """The diagnostics of stacked models, besides those of the function."""
    leaves = dict(zip(free_parameters(models), jax.tree.leaves(models), strict=True))
    kinds = (rhat, ess_bulk, ess_tail)
    found = ({name: of_entries(kind, leaf) for name, leaf in leaves.items()} for kind in kinds)
    return JointDiagnostics(function, *found)

"""What an ascent of the evidence gives back."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._fit import Fit, fit
from .._machine import KernelMachine
from .._parameters import free_parameters, listed_parameters
from .._results import RESULTS


class AscentHistory(eqx.Module):
    """What happened at each step of each start; NaN after a start has ended.

    All of shape (starts, steps, ...): `parameters` by name in natural units, `gradient` of the log
    evidence and its `standard_error` by name in the unconstrained coordinates (logarithms of positive
    parameters), `magnitude`, the mean magnitude of the gradient's components less what is noise,
    `acceptance` (the mean over the chains, and `least_acceptance` among them), `rhat`, `divergences` and
    `step_size` of the chains, `whitening_error`, the share of the prior's variance that the low rank
    loses; `test_error` and `validation_error` where such data were given, else None. `steps` of each
    start, and `end`, the number of the step whose model became its end point.
    """

    parameters: dict[str, Float[Array, "starts steps ..."]]
    gradient: dict[str, Float[Array, "starts steps ..."]]
    standard_error: dict[str, Float[Array, "starts steps ..."]]
    magnitude: Float[Array, "starts steps"]
    acceptance: Float[Array, "starts steps"]
    least_acceptance: Float[Array, "starts steps"]
    rhat: Float[Array, "starts steps"]
    divergences: Float[Array, "starts steps"]
    step_size: Float[Array, "starts steps"]
    whitening_error: Float[Array, "starts steps"]
    test_error: Float[Array, "starts steps"] | None
    validation_error: Float[Array, "starts steps"] | None
    steps: Int[Array, " starts"]
    end: Int[Array, " starts"]


class Ascent(eqx.Module):
    """The outcome of `jaxsvm.evidence_ascent`.

    `model` is the end point of the best start, number `best`; `models` holds those of all starts
    (stacked: the leading axis of each leaf counts them), `results` their codes of `jaxsvm.RESULTS`,
    `history` what happened on the way. With several starts `scores` are what they were compared by:
    the validation error or, without validation data, minus the log evidence; infinite for a start that
    failed. `x`, `y` and `weights` are the data. `problems` say what is wrong with the chains of the best
    start, and what to do about it; empty if nothing is.
    """

    model: KernelMachine
    best: int = eqx.field(static=True)
    models: KernelMachine
    results: Int[Array, " starts"]
    scores: Float[Array, " starts"]
    history: AscentHistory
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    problems: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def result(self) -> Int[Array, ""]:
        """The result code of the best start."""
        return self.results[self.best]

    def fit(self, **options: Any) -> Fit:
        """Fit the model to the data of the ascent.

        **Arguments:** `options`, as for `jaxsvm.fit`.

        **Returns:** a `Fit`.
        """
        return fit(self.model, self.x, self.y, weights=self.weights, **options)

    def __str__(self) -> str:
        steps = int(self.history.steps[self.best])
        code = RESULTS(int(self.result))
        magnitudes = np.asarray(self.history.magnitude)[self.best]
        magnitudes = magnitudes[np.isfinite(magnitudes)]
        lines = [f"{code.name} after {steps} steps (start {self.best} of {len(self.results)})"]
        if magnitudes.size:
            lines.append(
                f"mean magnitude of the gradient {magnitudes[-1]:.3g}, at its peak {magnitudes.max():.3g}"
            )
        lines += listed_parameters(self.model)
        return "\n".join(lines + [f"PROBLEM: {text}" for text in self.problems])


def leaves_by_name(model: KernelMachine, tree: Any) -> dict[str, Any]:
    """The leaves of a tree of the model's structure, by the names of the parameters they belong to."""
    return dict(zip(free_parameters(model), jax.tree.leaves(tree), strict=True))


def median_model(models: list[KernelMachine]) -> KernelMachine:
    """The model with the median of each hyperparameter.

    [GS05, sec. IV.B]: hyperparameters are tuned on several partitions of the data, and the median of each
    is used for all of them.

    **Arguments:** `models`, of the same structure.

    **Returns:** a model.
    """
    if not models:
        raise ValueError("there is no median of no models")
    return jax.tree.map(lambda *leaves: jnp.median(jnp.stack(leaves), axis=0), *models)

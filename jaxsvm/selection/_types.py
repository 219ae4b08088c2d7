"""What a selection gives back."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._fit import Fit, fit
from .._machine import KernelMachine
from .._parameters import listed_parameters, replace
from .._results import RESULTS, FitError
from ..criteria import AbstractCriterion
from ..posteriors import Ensemble


class History(eqx.Module):
    """What happened at each step of each start, the start itself first; NaN after it has ended.

    All of shape (restarts, steps, ...):

    - `parameters`: by name, in natural units.
    - `value`: of the objective; NaN where it is not known.
    - `gradient`, `standard_error`: of the objective, by name, with respect to the unconstrained leaves
      (logarithms of positive parameters); the second is None for a gradient without noise. All NaN for a
      method without gradients.
    - `gradient_norm`: the largest component that does not lead out of the bounds.
    - `magnitude`: the mean magnitude of the components, with what noise adds taken off.
    - `test_error`, `validation_error`: shares of wrong labels, or mean squared errors of a regression; None
      where no such data were given.
    - `info`: more numbers of the objective, by name, such as the acceptance of its chains.

    `steps` counts those of each start; `end` is the number of the step whose model became its end point.
    """

    parameters: dict[str, Float[Array, "restarts steps ..."]]
    value: Float[Array, "restarts steps"]
    gradient: dict[str, Float[Array, "restarts steps ..."]]
    standard_error: dict[str, Float[Array, "restarts steps ..."]] | None
    gradient_norm: Float[Array, "restarts steps"]
    magnitude: Float[Array, "restarts steps"]
    test_error: Float[Array, "restarts steps"] | None
    validation_error: Float[Array, "restarts steps"] | None
    info: dict[str, Float[Array, "restarts steps"]]
    steps: Int[Array, " restarts"]
    end: Int[Array, " restarts"]


class Selection(eqx.Module):
    """The outcome of `jaxsvm.select`.

    `model` is the best one and `value` its objective; `best` the number of its start. `models` holds the
    end points of all starts (stacked: the leading axis of each leaf counts them), `values` their
    objectives, `results` their codes of `jaxsvm.RESULTS`, `history` what happened on the way. A value is NaN
    where the objective has none: that of the sampled evidence is estimated only to compare several starts.
    `scores` are what the starts were compared by, validation errors or values, infinite for a start that
    failed. `x`, `y` and `weights` are the data. `problems` say what is wrong with the best start, and what to
    do about it.
    """

    model: KernelMachine
    value: Float[Array, ""]
    best: int = eqx.field(static=True)
    models: KernelMachine
    values: Float[Array, " restarts"]
    scores: Float[Array, " restarts"]
    results: Int[Array, " restarts"]
    history: History
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    problems: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def result(self) -> Int[Array, ""]:
        """The result code of the best start."""
        return self.results[self.best]

    @property
    def usable(self) -> np.ndarray:
        """Which starts ended with fits or chains that hold, and a finite value where it is known."""
        return usable_starts(self.results, self.values)

    def fit(self, **options: Any) -> Fit:
        """Fit the best model to the data of the selection: its MAP solution, whatever the criterion.

        After a criterion of `jaxsvm.gp` the posterior is made by the function of its method, such as
        `gp.mean_field(found.model, x, y)`.

        **Arguments:** `options`, as for `jaxsvm.fit`.

        **Returns:** a `Fit`.
        """
        return fit(self.model, self.x, self.y, weights=self.weights, **options)

    def along(self, criterion: AbstractCriterion, start: int | None = None) -> np.ndarray:
        """Another criterion at each step of a start, such as `GACV` where the evidence was minimized.

        **Arguments:** `criterion`, one that is defined for the model; `start`, the number of the start, by
        default the best one.

        **Returns:** one value for each step, NaN where it cannot be evaluated.

        **Example:**

        >>> machine = jsvm.KernelMachine(kernel, jsvm.losses.LeastSquares(C=1.0), offset=True)
        >>> found = jsvm.select(machine, x, y, jsvm.criteria.PRESS(), max_steps=5)
        >>> found.along(jsvm.criteria.LeaveOneOut("squared")).shape
        (5,)
        """
        start = self.best if start is None else start
        record, values = self.history, []
        for step in range(int(record.steps[start])):
            value = np.nan
            if np.isfinite(record.magnitude[start, step]) or np.isfinite(record.value[start, step]):
                there = {name: row[start, step] for name, row in record.parameters.items()}
                model = replace(self.model, there)
                value = criterion(model, self.x, self.y, weights=self.weights, throw=False)
            values.append(float(value))
        return np.array(values)

    def ensemble(self, weighting: str = "equal") -> Ensemble:
        """The fits of all end points that can be used, as one predictor.

        **Arguments:** `weighting`, `"equal"`, or `"criterion"` for weights proportional to
        `exp(-criterion)`, which for `LaplaceEvidence` are posterior probabilities of the end points.

        **Returns:** an `Ensemble`, which predicts like a `Fit`.
        """
        if weighting not in ("equal", "criterion"):
            raise ValueError(f'`weighting` must be "equal" or "criterion", not {weighting!r}')
        if weighting == "criterion" and np.isnan(self.values).any():
            raise ValueError(
                "the values of the end points are not known, so they cannot weigh them: take "
                '`weighting="equal"`, or search from several starts'
            )
        members, values = [], []
        for start in np.flatnonzero(self.usable).tolist():
            model = member(self.models, start)
            fitted = fit(model, self.x, self.y, weights=self.weights, throw=False)
            if RESULTS(int(fitted.result)).is_success:
                members.append(fitted)
                values.append(float(self.values[start]))
        if not members:
            raise FitError(
                "no start ended with a fit that can be used: there is nothing to combine"
            )
        shares = (
            np.exp(min(values) - np.array(values))
            if weighting == "criterion"
            else np.ones(len(values))
        )
        return Ensemble(tuple(members), jnp.asarray(shares / shares.sum()))

    def __str__(self) -> str:
        codes = [RESULTS(int(code)) for code in np.asarray(self.results)]
        counts = ", ".join(f"{codes.count(code)} {code.name}" for code in RESULTS if code in codes)
        what = f"criterion {float(self.value):.6g}"
        if np.isnan(self.value):
            steps = int(self.history.steps[self.best])
            magnitudes = np.asarray(self.history.magnitude)[self.best, :steps]
            what = (
                f"{codes[self.best].name} after {steps} steps, mean magnitude of the gradient "
                f"{magnitudes[-1]:.3g}, at its peak {np.nanmax(magnitudes):.3g}"
            )
        lines = [f"{what} (start {self.best} of {len(codes)}: {counts})"]
        lines += listed_parameters(self.model)
        return "\n".join(lines + [f"PROBLEM: {text}" for text in self.problems])


def usable_starts(codes: Any, values: Any) -> np.ndarray:
    """Which end points can be used: a limit of steps or time is no failure, a value may be unknown."""
    results = [RESULTS(int(code)) for code in np.asarray(codes)]
    limits = (RESULTS.iteration_limit, RESULTS.time_limit)
    sound = [code.is_success or code in limits for code in results]
    values = np.asarray(values)
    return np.array(sound) & (np.isfinite(values) | np.isnan(values))


def stack(trees: Any) -> Any:
    """Several pytrees as one, along a new leading axis of their leaves.

    **Arguments:** `trees`, of the same structure.

    **Returns:** a pytree.
    """
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def member(batch: Any, index: int) -> Any:
    """One of several pytrees that are stacked along the leading axis of their leaves.

    **Arguments:** `batch`, the stacked pytree; `index`, which one.

    **Returns:** a pytree.
    """
    return jax.tree.map(lambda leaf: leaf[index], batch)

"""The outcome of a search: `Selection` and its `History`."""

from typing import Any, Generic, Literal, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._fit import Fit, fit
from .._machine import Machine_co
from ..approximations import EXACT, Representation
from ..criteria import AbstractCriterion
from ..hyperparameters import format_parameters, replace
from ..numerics import member
from ..posteriors import Ensemble
from ..results import RESULTS, FitError

Weighting = Literal["equal", "criterion"]


class History(eqx.Module):
    """Every step of every start, beginning with the start itself; NaN after a start has ended.

    All have the shape (restarts, steps, ...):

    - `parameters`: by name, in natural units.
    - `value`: the value of the objective; NaN if it is not known.
    - `gradient`, `standard_error`: those of the objective, by name, with respect to the unconstrained leaves
      (logarithms of positive parameters). The second is None for a gradient without noise. All NaN for a
      method without gradients.
    - `gradient_norm`: the largest component that does not lead out of the bounds.
    - `magnitude`: the mean magnitude of the components, less the part that is due to noise.
    - `change`, `change_error`: the change of the objective since the first step, with its standard error. If
      values are unknown, it is the integral of the gradient along the path.
    - `test_error`, `validation_error`: shares of wrong labels, or mean squared errors of a regression; None
      without such data.
    - `info`: further numbers of the objective, by name, such as the acceptance of its chains.

    `steps` is the number of steps of each start, `end` the number of the step that found its end point.
    """

    parameters: dict[str, Float[Array, "restarts steps ..."]]
    value: Float[Array, "restarts steps"]
    gradient: dict[str, Float[Array, "restarts steps ..."]]
    standard_error: dict[str, Float[Array, "restarts steps ..."]] | None
    gradient_norm: Float[Array, "restarts steps"]
    magnitude: Float[Array, "restarts steps"]
    change: Float[Array, "restarts steps"]
    change_error: Float[Array, "restarts steps"]
    test_error: Float[Array, "restarts steps"] | None
    validation_error: Float[Array, "restarts steps"] | None
    info: dict[str, Float[Array, "restarts steps"]]
    steps: Int[Array, " restarts"]
    end: Int[Array, " restarts"]


class Selection(eqx.Module, Generic[Machine_co]):
    """The outcome of `jaxsvm.select`.

    `model` is the best model, `value` its objective, `best` the number of its start. `models` holds the end
    points of all starts, stacked along the leading axis of each leaf; `values` are their objectives,
    `results` their codes of `jaxsvm.RESULTS`, `history` all their steps. A value is NaN if the objective has
    none: the sampled evidence is estimated only to compare several starts. `scores` are the numbers that
    ranked the starts, validation errors or values; infinite for a start that failed. `x`, `y` and `weights`
    are the data, `representation` that of their kernel matrix. `problems` say what is wrong with the best
    start and what to do about it.
    """

    model: Machine_co
    value: Float[Array, ""]
    best: int = eqx.field(static=True)
    models: Machine_co
    values: Float[Array, " restarts"]
    scores: Float[Array, " restarts"]
    results: Int[Array, " restarts"]
    history: History
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    representation: Representation = EXACT
    problems: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def result(self) -> Int[Array, ""]:
        """The result code of the best start."""
        return self.results[self.best]

    @property
    def _options(self) -> dict[str, Any]:
        """How the search fitted machines."""
        return {"weights": self.weights, "approximation": self.representation}

    @property
    def usable(self) -> np.ndarray:
        """Which starts ended without a failure, and with a value that is finite or unknown."""
        return usable_starts(self.results, self.values)

    def fit(self, **options: Any) -> Fit[Machine_co]:
        """Fit the best model to the data of the selection: its MAP solution, whatever the criterion.

        After a criterion of `jaxsvm.gp`, use the function of its method for the posterior, such as
        `gp.mean_field(best.model, x, y)`.

        **Arguments:** `options`, as for `jaxsvm.fit`; `approximation` is that of the search by default.

        **Returns:** a `Fit`.
        """
        return fit(self.model, self.x, self.y, **{**self._options, **options})

    def along(self, criterion: AbstractCriterion, start: int | None = None) -> np.ndarray:
        """Another criterion at each step of a start, such as `GACV` after the evidence was minimized.

        **Arguments:** `criterion`, defined for the model; `start`, the number of the start, by default the
        best one.

        **Returns:** one value for each step, NaN if it cannot be evaluated.

        **Example:**

        >>> machine = jsvm.KernelMachine(kernel, jsvm.losses.LeastSquares(C=1.0), offset=True)
        >>> best = jsvm.select(machine, x, y, jsvm.criteria.PRESS(), max_steps=5)
        >>> best.along(jsvm.criteria.LeaveOneOut("squared")).shape
        (5,)
        """
        start = self.best if start is None else start
        record, values = self.history, []
        for step in range(int(record.steps[start])):
            value = np.nan
            if np.isfinite(record.magnitude[start, step]) or np.isfinite(record.value[start, step]):
                there = {name: row[start, step] for name, row in record.parameters.items()}
                model = replace(self.model, there)
                value = criterion(model, self.x, self.y, **self._options, throw=False)
            values.append(float(value))
        return np.array(values)

    def ensemble(self, weighting: Weighting = "equal") -> Ensemble:
        """The fits of all usable end points, combined into one predictor.

        **Arguments:** `weighting`, `"equal"`, or `"criterion"` for weights proportional to
        `exp(-criterion)`, which for `LaplaceEvidence` are posterior probabilities of the end points.

        **Returns:** an `Ensemble`, which predicts like a `Fit`.
        """
        if weighting not in get_args(Weighting):
            raise ValueError(f"`weighting` must be one of {get_args(Weighting)}, not {weighting!r}")
        if weighting == "criterion" and np.isnan(self.values).any():
            raise ValueError(
                "the end points cannot be weighted, because their values are not known: use "
                '`weighting="equal"`, or search from several starts'
            )
        members, values = [], []
        for start in np.flatnonzero(self.usable).tolist():
            model = member(self.models, start)
            fitted = fit(model, self.x, self.y, **self._options, throw=False)
            if RESULTS(int(fitted.result)).is_success:
                members.append(fitted)
                values.append(float(self.values[start]))
        if not members:
            raise FitError("no start ended with a usable fit: there is nothing to combine")
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
        lines += format_parameters(self.model)
        return "\n".join(lines + [f"PROBLEM: {text}" for text in self.problems])


def usable_starts(codes: Any, values: Any) -> np.ndarray:
    """Which end points can be used: reaching a limit is not a failure, and a value may be unknown."""
    results = [RESULTS(int(code)) for code in np.asarray(codes)]
    limits = (RESULTS.iteration_limit, RESULTS.time_limit)
    sound = [code.is_success or code in limits for code in results]
    values = np.asarray(values)
    return np.array(sound) & (np.isfinite(values) | np.isnan(values))

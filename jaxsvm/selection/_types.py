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

    `parameters` by name and in natural units, of shape (restarts, steps, ...); `value` of the criterion and
    `gradient_norm` (its largest component; NaN for a method without gradients), of shape (restarts,
    steps); `test_error` and `validation_error` of the same shape where such data were given, else
    None: shares of wrong labels, or mean squared errors of a regression; `steps` of each start, and `end`,
    the number of the step whose model became the end point of the start.
    """

    parameters: dict[str, Float[Array, "restarts steps ..."]]
    value: Float[Array, "restarts steps"]
    gradient_norm: Float[Array, "restarts steps"]
    test_error: Float[Array, "restarts steps"] | None
    validation_error: Float[Array, "restarts steps"] | None
    steps: Int[Array, " restarts"]
    end: Int[Array, " restarts"]


class Selection(eqx.Module):
    """The outcome of `jaxsvm.select`.

    `model` is the best one and `value` its criterion; `best` the number of its start. `models` holds the
    end points of all starts (stacked: the leading axis of each leaf counts them), `values` their
    criteria, `results` their codes of `jaxsvm.RESULTS`, `history` what happened on the way. `x`, `y` and
    `weights` are the data.
    """

    model: KernelMachine
    value: Float[Array, ""]
    best: int = eqx.field(static=True)
    models: KernelMachine
    values: Float[Array, " restarts"]
    results: Int[Array, " restarts"]
    history: History
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]

    @property
    def usable(self) -> np.ndarray:
        """Which starts ended with a finite criterion and fits that hold."""
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
            if np.isfinite(record.value[start, step]):
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
        lines = [f"criterion {float(self.value):.6g} (start {self.best} of {len(codes)}: {counts})"]
        return "\n".join([*lines, *listed_parameters(self.model)])


def usable_starts(codes: Any, values: Any) -> np.ndarray:
    """Whose end points can be used: a limit of steps is no failure."""
    results = [RESULTS(int(code)) for code in np.asarray(codes)]
    sound = [code.is_success or code == RESULTS.iteration_limit for code in results]
    return np.array(sound) & np.isfinite(np.asarray(values))


def stack(trees: Any) -> Any:
    """Several pytrees as one, along a new leading axis of their leaves."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def member(batch: Any, index: int) -> Any:
    """One of several pytrees that are stacked along the leading axis of their leaves."""
    return jax.tree.map(lambda leaf: leaf[index], batch)

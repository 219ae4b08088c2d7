"""Compare machines by their evidence: `compare`."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._machine import KernelMachine
from ..approximations import AbstractApproximation, Exact
from ..hyperparameters import free_parameters, unfreeze
from ..losses import AbstractClassification
from ..selection import Selection
from ._estimate import LogEvidence
from ._log_evidence import EvidenceMethod, log_evidence


class Comparison(eqx.Module):
    """Machines in the order of their scores, the best one first; `print` shows a table.

    - `names`: as given to `compare`.
    - `log_evidence`, `standard_error`: in nats.
    - `fitted`: how many hyperparameters were fitted to the data. Each raises the evidence by about one nat by
      chance alone (H. Akaike, "Information theory and an extension of the maximum likelihood principle",
      1973), so the `score` is `log_evidence - fitted`.
    - `behind`, `behind_error`: how far each score is below the best one, and the standard error.
    - `probability`: of each machine, if one of them is right and all are equally probable beforehand.
    - `estimates`: the `LogEvidence` of each machine, with its diagnostics.
    - `problems`: what is wrong, and with which machine; empty if nothing is wrong.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    log_evidence: Float[Array, " machines"]
    standard_error: Float[Array, " machines"]
    fitted: tuple[int, ...] = eqx.field(static=True)
    score: Float[Array, " machines"]
    behind: Float[Array, " machines"]
    behind_error: Float[Array, " machines"]
    probability: Float[Array, " machines"]
    estimates: tuple[LogEvidence, ...]
    problems: tuple[str, ...] = eqx.field(static=True)

    @property
    def best(self) -> str:
        """The name of the machine with the highest score."""
        return self.names[0]

    def __str__(self) -> str:
        head = ("machine", "log evidence", "fitted", "behind the best", "probability")
        rows = [
            (
                name,
                f"{self.log_evidence[number]:.2f} +- {self.standard_error[number]:.2f}",
                str(self.fitted[number]),
                f"{self.behind[number]:.2f} +- {self.behind_error[number]:.2f}" if number else "",
                f"{self.probability[number]:.3f}",
            )
            for number, name in enumerate(self.names)
        ]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in (head, *rows)
        ]
        return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in self.problems)])


def compare(
    machines: Mapping[str, KernelMachine | Selection],
    x: Any,
    y: Any,
    *,
    key: Any,
    approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
    method: EvidenceMethod = "bridge",
    weights: Any = None,
    progress: bool | None = None,
) -> Comparison:
    """Compare kernels, losses or ways of selecting them by the exact evidence of the same data.

    The evidence `Q(Y|X)` is a density of the data, so machines may differ in everything: families of kernels,
    one lengthscale or one for each input, losses. For labels, `losses.Hinge` leaves a share of the
    probability to neither label; compare `losses.Normalized(losses.Hinge())` instead.

    **Arguments:**

    - `machines`: by name. The free hyperparameters of a `Selection` count as fitted to these data, those of a
      `KernelMachine` as known beforehand.
    - `x`, `y`, `weights`, `key`, `approximation`, `method`, `progress`: as for `jaxsvm.log_evidence`.

    **Returns:** a `Comparison`. Problems of an estimate are warnings as well.

    **Example:**

    >>> smooth = eqx.tree_at(lambda machine: machine.kernel, model, jsvm.kernels.Matern52(1.0))
    >>> both = jsvm.compare({"rbf": model, "matern": smooth}, x, y, key=jax.random.key(0))
    >>> sorted(both.names), bool(jnp.isclose(jnp.sum(both.probability), 1))
    (['matern', 'rbf'], True)
    """
    models = _models(machines)
    keys = jax.random.split(key, len(models))
    estimates = [
        log_evidence(
            model,
            x,
            y,
            key=one,
            approximation=approximation,
            method=method,
            weights=weights,
            progress=progress,
        )
        for model, one in zip(models.values(), keys, strict=True)
    ]
    fitted = [_count_fitted(machine) for machine in machines.values()]
    return _ranked(list(models), estimates, fitted)


def _ranked(names: list[str], estimates: list[LogEvidence], fitted: list[int]) -> Comparison:
    value = np.array([estimate.value for estimate in estimates], float)
    error = np.array([estimate.standard_error for estimate in estimates], float)
    score = value - fitted
    order = np.argsort(np.where(np.isnan(score), np.inf, -score), kind="stable")
    value, error, score = value[order], error[order], score[order]
    difference = np.sqrt(error**2 + error[0] ** 2)
    difference[0] = 0.0
    problems = [
        f"{names[number]}: {problem}" for number in order for problem in estimates[number].problems
    ]
    dtype = estimates[0].value.dtype
    return Comparison(
        names=tuple(names[number] for number in order),
        log_evidence=jnp.asarray(value, dtype),
        standard_error=jnp.asarray(error, dtype),
        fitted=tuple(fitted[number] for number in order),
        score=jnp.asarray(score, dtype),
        behind=jnp.asarray(score[0] - score, dtype),
        behind_error=jnp.asarray(difference, dtype),
        probability=jax.nn.softmax(jnp.asarray(np.nan_to_num(score, nan=-np.inf), dtype)),
        estimates=tuple(estimates[number] for number in order),
        problems=tuple(problems),
    )


def _models(machines: Any) -> dict[str, KernelMachine]:
    """The machines by name, checked."""
    if not isinstance(machines, Mapping) or not machines:
        raise TypeError(
            '`machines` must be a dictionary of machines by name, such as {"rbf": first, "matern": second}'
        )
    models = {}
    for name, machine in machines.items():
        model = machine.model if isinstance(machine, Selection) else machine
        if not isinstance(name, str) or not isinstance(model, KernelMachine):
            raise TypeError(
                "`machines` must map names to KernelMachines or Selections, not "
                f"{name!r} to {type(machine).__name__}"
            )
        models[name] = model
    kinds = {isinstance(unfreeze(model).loss, AbstractClassification) for model in models.values()}
    if len(kinds) > 1:
        raise ValueError(
            "`machines` mixes losses of labels with losses of targets, whose evidences cannot be compared"
        )
    return models


def _count_fitted(machine: KernelMachine | Selection) -> int:
    if not isinstance(machine, Selection):
        return 0
    return sum(np.size(value) for value in free_parameters(machine.model).values())

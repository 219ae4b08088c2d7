"""A criterion along the line between two models."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from .. import KernelMachine, Selection, unfreeze
from ..criteria import AbstractCriterion, Data, is_usable, prepare
from ..runtime import jit
from ..validation import check_count
from ._figure import as_index, one_axes

_BEYOND = 0.2  # how far the line extends beyond its ends


class Line(NamedTuple):
    """A criterion along a line.

    `ax` holds the Axes, `positions` the positions on the line (0 and 1 are its ends), `values` the criterion
    there.
    """

    ax: Axes
    positions: np.ndarray
    values: np.ndarray


def criterion_along(
    models: Selection | Sequence[KernelMachine],
    criterion: AbstractCriterion,
    x: Any = None,
    y: Any = None,
    first: int = 0,
    second: int = 1,
    *,
    weights: Any = None,
    points: int = 41,
    ax: Any = None,
) -> Line:
    """Draw a criterion along the straight line through two models, in unconstrained coordinates.

    A barrier between the end points of two starts shows that they are different local optima, not one that
    was reached incompletely: [GS03, sec. 5.2].

    **Arguments:**

    - `models`: a `Selection`, for the end points of its starts, or a list of models of the same structure.
    - `criterion`: one of `jaxsvm.criteria`.
    - `x`, `y`, `weights`: the data; by default those of the selection.
    - `first`, `second`: the numbers of two starts, or indices of the list of models.
    - `points`: the number of points, evenly spaced from 20 % before the first model to 20 % beyond the
      second; the two models themselves are added.
    - `ax`: the Axes to draw in; by default, those of a new figure.

    **Returns:** a tuple `Line(ax, positions, values)`. If a fit fails, its value is NaN, and the curve has a
    gap.
    """
    check_count("points", points, least=2)
    kind = "start" if isinstance(models, Selection) else "model"
    ends = _ends(models, first, second, kind)
    if x is None and y is None and isinstance(models, Selection):
        x, y, weights = models.x, models.y, models.weights if weights is None else weights
    elif x is None or y is None:
        raise ValueError("pass the data, `x` and `y`: only a selection holds them")
    x, y, weights = prepare(criterion, ends[0], x, y, weights)

    even = np.linspace(-_BEYOND, 1 + _BEYOND, points)
    positions = np.unique(np.round(np.append(even, [0.0, 1.0]), 12))
    points_on_line = jnp.asarray(positions, x.dtype)
    values = np.asarray(_values(criterion, *ends, Data(x, y, weights), points_on_line))

    ax = one_axes(ax)
    ax.plot(positions, values, color="C0")
    for position, number, marker in ((0.0, first, "o"), (1.0, second, "s")):
        value = values[positions == position]
        ax.plot([position], value, marker, color="C3", label=f"{kind} {number}")
    ax.set_xlabel(f"position between {kind} {first} (0) and {kind} {second} (1)")
    ax.set_ylabel(type(criterion).__name__)
    ax.legend()
    return Line(ax, positions, values)


def _ends(models, first, second, kind) -> tuple[KernelMachine, KernelMachine]:
    if isinstance(models, Selection):
        count = len(models.results)
    elif isinstance(models, Sequence) and all(isinstance(m, KernelMachine) for m in models):
        count = len(models)
    else:
        raise TypeError("`models` must be a `Selection` or a list of kernel machines")
    if count < 2:
        raise ValueError(f"a line needs two end points, but there is only {count} {kind}")
    indices = [
        as_index(v, count, n, f"a {kind}") for v, n in ((first, "first"), (second, "second"))
    ]
    if indices[0] == indices[1]:
        raise ValueError(f"`first` and `second` are the same {kind}: {first}")
    if isinstance(models, Selection):
        ends = [jax.tree.map(itemgetter(i), models.models) for i in indices]
    else:
        ends = [models[i] for i in indices]
    # as leaves, since frozen values may differ between the two models
    start, end = (unfreeze(model) for model in ends)
    shapes = [[leaf.shape for leaf in jax.tree.leaves(model)] for model in (start, end)]
    if jax.tree.structure(start) != jax.tree.structure(end) or shapes[0] != shapes[1]:
        raise ValueError("the two models must have the same structure: kernel, loss and shapes")
    return start, end


@jit
def _values(criterion, start, end, data, positions):
    def value_at(position):
        # this form is exact at both ends
        model = jax.tree.map(lambda a, b: (1 - position) * a + position * b, start, end)
        evaluated = criterion.evaluate(model, data)
        return jnp.where(is_usable(evaluated.result), evaluated.value, jnp.nan)

    return jax.lax.map(value_at, positions)

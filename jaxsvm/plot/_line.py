"""A criterion along the line between two models."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from .._machine import KernelMachine
from .._parameters import unfreeze
from .._trees import member
from ..criteria import AbstractCriterion, is_usable, prepare
from ..runtime import jit
from ..selection import Selection
from ..validation import check_count
from ._figure import as_place, one_axes

_BEYOND = 0.2  # how far the line goes on behind each of its ends


class Line(NamedTuple):
    """A criterion along a line.

    `ax` are the Axes, `positions` those on the line (0 and 1 are its ends), `values` the criterion there.
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

    A barrier between the end points of two starts shows that they are different local optima, and not one
    reached incompletely: [GS03, sec. 5.2].

    **Arguments:**

    - `models`: a `Selection`, for the end points of its starts, or several models of the same form.
    - `criterion`: a member of `jaxsvm.criteria`.
    - `x`, `y`, `weights`: the data; by default those of the selection.
    - `first`, `second`: the numbers of two starts, or places in the list of models.
    - `points`: how many, evenly from 20 % before the first model to 20 % behind the second; the two
      models themselves are added.
    - `ax`: Axes to draw in; by default those of a new figure.

    **Returns:** a tuple `Line(ax, positions, values)`; where a fit fails the value is NaN, and the curve has
    a gap.
    """
    check_count("points", points, least=2)
    kind = "start" if isinstance(models, Selection) else "model"
    ends = _ends(models, first, second, kind)
    if x is None and y is None and isinstance(models, Selection):
        x, y, weights = models.x, models.y, models.weights if weights is None else weights
    elif x is None or y is None:
        raise ValueError("give the data, `x` and `y`: only a selection knows its own")
    x, y, weights = prepare(criterion, ends[0], x, y, weights)

    even = np.linspace(-_BEYOND, 1 + _BEYOND, points)
    positions = np.unique(np.round(np.append(even, [0.0, 1.0]), 12))
    places = jnp.asarray(positions, x.dtype)
    values = np.asarray(_values(criterion, *ends, x, y, weights, places))

    ax = one_axes(ax)
    ax.plot(positions, values, color="C0")
    for place, number, marker in ((0.0, first, "o"), (1.0, second, "s")):
        value = values[positions == place]
        ax.plot([place], value, marker, color="C3", label=f"{kind} {number}")
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
    places = [as_place(v, count, n, f"a {kind}") for v, n in ((first, "first"), (second, "second"))]
    if places[0] == places[1]:
        raise ValueError(f"`first` and `second` are the same {kind}: {first}")
    if isinstance(models, Selection):
        ends = [member(models.models, i) for i in places]
    else:
        ends = [models[i] for i in places]
    # frozen values become leaves: they may differ between two models
    start, end = (unfreeze(model) for model in ends)
    shapes = [[leaf.shape for leaf in jax.tree.leaves(model)] for model in (start, end)]
    if jax.tree.structure(start) != jax.tree.structure(end) or shapes[0] != shapes[1]:
        raise ValueError("the two models must have the same form: kernel, loss and shapes")
    return start, end


@jit
def _values(criterion, start, end, x, y, weights, positions):
    def value_at(position):
        # in this form exact at both ends
        model = jax.tree.map(lambda a, b: (1 - position) * a + position * b, start, end)
        seen = criterion.evaluate(model, x, y, weights)
        return jnp.where(is_usable(seen.result), seen.value, jnp.nan)

    return jax.lax.map(value_at, positions)

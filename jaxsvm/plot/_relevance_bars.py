"""The relevance of the inputs, as bars."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .. import Fit, KernelMachine, Selection
from .. import relevance as relevance_of
from ._figure import one_axes


def relevance(
    model: KernelMachine | Fit | Selection,
    names: Sequence[str] | None = None,
    *,
    parameter: str | None = None,
    sort: bool = True,
    ax: Any = None,
) -> Axes:
    """Draw the relevance `1 / lengthscale^2` of each input, normalized so that the largest is 1.

    Lengthscales have the units of their inputs, so standardize the inputs before comparing.

    **Arguments:**

    - `model`: a kernel machine with one lengthscale for each input, a `Fit`, or a `Selection` (its best
      model).
    - `names`: the names of the inputs; by default their numbers.
    - `parameter`: the lengthscales to use, dotted as in `jaxsvm.parameters`, if the model has several
      vectors of them.
    - `sort`: whether to draw the most relevant input first; otherwise inputs keep their order.
    - `ax`: the Axes to draw in; by default, those of a new figure.

    **Returns:** the Axes.
    """
    return relevance_bars(relevance_of(model, parameter=parameter), names, sort=sort, ax=ax)


def relevance_bars(
    shares: Any, names: Sequence[str] | None = None, *, sort: bool = True, ax: Any = None
) -> Axes:
    """Draw given relevances, such as `relevance_` of an estimator.

    **Arguments:**

    - `shares`: one number from 0 to 1 for each input.
    - `names`: the names of the inputs; by default their numbers.
    - `sort`: whether to draw the most relevant input first; otherwise inputs keep their order.
    - `ax`: the Axes to draw in; by default, those of a new figure.

    **Returns:** the Axes.
    """
    shares = np.asarray(shares, float).ravel()
    labels = [f"input {i}" for i in range(len(shares))] if names is None else list(names)
    if isinstance(names, str) or len(labels) != len(shares):
        raise ValueError(f"`names` must hold {len(shares)} names, one for each input")
    order = np.argsort(-shares, kind="stable") if sort else np.arange(len(shares))

    ax = one_axes(ax, (5.0, min(1.1 + 0.24 * len(shares), 14.0)))
    positions = np.arange(len(shares))
    ax.barh(positions, shares[order], height=0.7, color="C0")
    ax.set_yticks(positions, [str(labels[int(i)]) for i in order])
    ax.set_ylim(len(shares) - 0.4, -0.6)  # from top to bottom
    ax.set(xlim=(0, 1.02), xlabel="relative relevance $1/\\mathrm{lengthscale}^2$")
    return ax

"""Bayesian support vector regression: the paper's model, its starts, and its adaptation to data.

[CKO04], IEEE Transactions on Neural Networks 15, 2004. This module only adds the paper's choices to
`KernelMachine` and `select`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from .._machine import KernelMachine, Machine
from ..criteria import LaplaceEvidence
from ..hyperparameters import freeze, parameters, replace
from ..kernels import RBF, Constant, Sum
from ..losses import AbstractRegression, SoftInsensitive
from ..numerics import is_rounding, mean_and_deviation, stack
from ..optimizers import lbfgs
from ..selection import Selection, select
from ..selection.stopping import SmallChange, SmallGradient
from ..validation import as_inputs, as_targets, as_weights, plain

_EVIDENCE = LaplaceEvidence()
_STOP = (SmallGradient(), SmallChange(1e-6, patience=20))
# it tolerates the jumps of eq. 37 where the set of off-bound support vectors changes
_OPTIMIZER = lbfgs(window=5)
# The covariance of targets far from zero is dominated by their squared mean. Its rounding error acts like
# noise, whose standard deviation should be well below that of the targets: at most this share of it.
_LARGEST_NOISE, _LARGEST_NOISE_IN_SINGLE = 1e-3, 1e-2


def default_beta(examples: int) -> float:
    """The paper's choice of beta: the more examples, the fewer of them are on curved pieces of the loss.

    It is 0.3 below 2000 examples, 0.1 below 4000, and 0.05 from 4000 on (section V-C); below 100 examples it
    is 0.8, since few would be on curved pieces otherwise (footnote 9).

    **Arguments:** `examples`, their number.

    **Returns:** a number between zero and one.
    """
    if examples < 100:
        return 0.8
    return 0.3 if examples < 2000 else 0.1 if examples < 4000 else 0.05


def machine(
    x: Any,
    y: Any,
    *,
    ard: bool = False,
    beta: float | None = None,
    loss: AbstractRegression | None = None,
    weights: Any = None,
) -> KernelMachine[Sum, Any]:
    """The model of Bayesian support vector regression, with the paper's initial hyperparameters.

    The covariance is `kappa_0 exp(-1/2 sum_l kappa_l (x_l - x'_l)^2) + kappa_b` (eqs. 3 and 41) with
    `kappa = 1 / lengthscale^2`, the loss `SoftInsensitive`. In units of the standard deviation of the
    targets: `C = 1`, `epsilon = 0.05`, `kappa_b = 100`, and `kappa = 0.5` (footnote 12). The
    amplitude `kappa_0` is frozen at the variance of the targets, since it and C together are redundant
    (footnote 5). Beta is frozen at `default_beta`. `kappa_b` is at least the squared mean of the targets,
    so they need not be centered, unless they are so far from zero that rounding hides their differences,
    which is an error. Standardize the inputs, as the paper does.

    **Arguments:**

    - `x`, `y`: inputs, one row for each example, and targets.
    - `ard`: whether each input has its own lengthscale.
    - `beta`: the beta of the loss, strictly between zero and one.
    - `loss`: another regression loss, with its initial parameters; `Quadratic` gives Gaussian process
      regression, whose amplitude is free. A beta is frozen as well: if free, it may tend to one while C and
      epsilon grow without bound, with Gaussian noise as the limit.
    - `weights`: one for each example, as for `jaxsvm.fit`.

    **Returns:** a `KernelMachine`.
    """
    points = as_inputs(x)
    targets = as_targets(y, points.shape[0], labels=False)
    counts = np.asarray(as_weights(weights, points.shape[0], targets.dtype), float)
    center, scale = center_and_scale(targets, counts)
    require_resolution(center, scale, targets.dtype)
    lengthscale: Any = jnp.full(points.shape[1] if ard else (), np.sqrt(2.0))
    # The prior must make an offset as large as the mean likely, or the search explains targets far from zero
    # as noise. If the mean is beyond ten standard deviations, the paper's start is too small for that.
    kernel = RBF(lengthscale, scale**2) + Constant(max(100 * scale**2, center**2))
    if loss is not None:
        if not isinstance(loss, AbstractRegression):
            raise TypeError(f"`loss` must be a regression loss, not {type(loss).__name__}")
        if beta is not None:
            raise ValueError("`beta` belongs to the default loss: set it in `loss` instead")
        model = KernelMachine(kernel, loss)
    else:
        beta = default_beta(round(counts.sum())) if beta is None else beta
        model = KernelMachine(kernel, SoftInsensitive(1 / scale, 0.05 * scale, beta))
    names = parameters(model)
    fixed = ["kernel.left.variance"] if "loss.C" in names else []
    return freeze(model, *fixed, *(["loss.beta"] if "loss.beta" in names else []))


def starts(model: Machine, inputs: int) -> list[Machine]:
    """The starting points that the paper suggests: the model, and variants with `10 C` or `kappa = 1/d`.

    **Arguments:** `model`, made by `machine`; `inputs`, the number d of inputs.

    **Returns:** four models; only two if the loss has no C, or if the kappa of the model is already `1/d`.
    """
    values = parameters(model)
    models = [model]
    length = values["kernel.left.lengthscale"]
    wide = jnp.full(length.shape, np.sqrt(float(inputs)), length.dtype)
    if not np.allclose(wide, length):
        models.append(replace(model, {"kernel.left.lengthscale": wide}))
    if "loss.C" in values:
        models += [replace(start, {"loss.C": 10 * values["loss.C"]}) for start in models]
    return models


def adapt(
    x: Any,
    y: Any,
    *,
    ard: bool = False,
    beta: float | None = None,
    loss: AbstractRegression | None = None,
    weights: Any = None,
    restarts: int | None = None,
    **options: Any,
) -> Selection[KernelMachine[Sum, Any]]:
    """Infer all hyperparameters of a regression by maximizing the evidence (eq. 37), from the paper's starts.

    L-BFGS searches over `ln C, ln epsilon, ln kappa_b, ln kappa`; the end point with the highest evidence is
    the `model` of the selection. `selection.fit()` is the regression, `jaxsvm.laplace(selection.fit())` has
    its error bars, and `jaxsvm.laplace(selection.ensemble("criterion"))` those of a committee of all starts.

    **Arguments:**

    - `x`, `y`: inputs, one row for each example, and targets; standardize the inputs.
    - `ard`, `beta`, `loss`, `weights`: as in `machine`.
    - `restarts`: the number of `starts` to use; by default all.
    - `options`: as for `jaxsvm.select`; by default `optimizer=optimizers.lbfgs(window=5)`, which tolerates
      small jumps, and `stop=(stopping.SmallGradient(), stopping.SmallChange(1e-6, patience=20))`.

    **Returns:** a `Selection`, whose criterion is minus the logarithm of the evidence.

    **Example:**

    >>> inputs = jnp.linspace(-1, 1, 25)[:, None]
    >>> adapted = jsvm.regression.adapt(inputs, jnp.sin(3 * inputs[:, 0]), max_steps=20, restarts=1)
    >>> bool(adapted.model.loss.noise_variance < 0.1)
    True
    """
    model = machine(x, y, ard=ard, beta=beta, loss=loss, weights=weights)
    begin = starts(model, as_inputs(x).shape[1])
    restarts = len(begin) if restarts is None else restarts
    if not (isinstance(restarts, int) and 1 <= restarts <= len(begin)):
        raise ValueError(f"`restarts` must be from 1 to {len(begin)}, but is {plain(restarts)!r}")
    options = {"optimizer": _OPTIMIZER, "stop": _STOP, **options}
    options = {"starts": stack(begin[:restarts]), "restarts": restarts, **options}
    return select(model, x, y, _EVIDENCE, weights=weights, **options)


def center_and_scale(targets: Any, weights: Any) -> tuple[float, float]:
    """Mean and standard deviation of targets; raise if all targets are the same.

    **Arguments:** `targets`, one for each example; `weights`, how often each counts.

    **Returns:** two numbers, computed in double precision.
    """
    values, counts = np.asarray(targets, np.float64), np.asarray(weights, np.float64)
    center, scale = map(float, mean_and_deviation(values, counts))
    if not np.isfinite(scale * scale):
        raise ValueError("the targets are too large: their variance is not a finite number")
    if scale == 0:
        raise ValueError(
            "all targets are the same, so there is no function to learn: at least two must differ"
        )
    if is_rounding(np.array(center), np.array(scale)):
        raise ValueError(
            f"the targets differ only by rounding errors, with a standard deviation of {scale:.3g} around "
            f"{center:.6g}: subtract a constant before they are rounded"
        )
    return center, scale


def require_resolution(center: float, scale: float, dtype: Any) -> None:
    """Raise if targets are so far from zero, compared with their spread, that rounding errors hide the fit.

    Raise also if the type cannot represent the variance of the targets.

    **Arguments:** `center`, `scale`, their mean and standard deviation; `dtype`, their type.
    """
    variance, limits = scale * scale, np.finfo(dtype)
    if not limits.tiny <= variance <= limits.max:
        size = "small" if variance < 1 else "large"
        raise ValueError(
            f"the targets are too {size} for {np.dtype(dtype).name}, with a standard deviation of "
            f"{scale:.3g}: change their unit so that it is about one"
        )
    noise = float(limits.eps) ** 0.5 * abs(center) / scale
    if noise > (_LARGEST_NOISE if limits.eps < 1e-10 else _LARGEST_NOISE_IN_SINGLE):
        raise ValueError(
            f"the mean of the targets, {center:.4g}, is {abs(center) / scale:.3g} times their standard "
            f"deviation, {scale:.4g}: rounding in {np.dtype(dtype).name} acts like noise of "
            f"{100 * noise:.2g}% of it; center them (`y - y.mean()`) and add the mean to the predictions"
        )

"""What all estimators share: parameters and their documentation, validation, kernels, time limits."""

import dataclasses
import inspect
import re
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from .. import RESULTS, KernelMachine, kernels, parameters, unfreeze
from ..approximations import AbstractApproximation
from ..runtime import require_own_process
from ..selection.stopping import SmallChange, SmallGradient
from ..validation import check_count, check_number, require_unmasked
from ._data import Scaling, scaling
from ._kernel_matrix import (
    ApproximationName,
    check_approximation,
    require_memory_for,
    warn_of_lost_variance,
)

Estimator = TypeVar("Estimator")
# ends a search that continues on more examples
REFINED = (SmallGradient(2e-4), SmallChange(1e-4, patience=3))

KernelName = Literal["rbf", "matern12", "matern32", "matern52", "rational_quadratic"]
KERNELS = {
    "rbf": kernels.RBF,
    "matern12": kernels.Matern12,
    "matern32": kernels.Matern32,
    "matern52": kernels.Matern52,
    "rational_quadratic": kernels.RationalQuadratic,
}
_DOCUMENTATION = {  # of the parameters that several estimators have: type and description
    "kernel": (
        "str or AbstractKernel",
        '"rbf", "matern12", "matern32", "matern52", "rational_quadratic", or a kernel from `jaxsvm.kernels`. '
        "The free hyperparameters of such a kernel are tuned from their present values, and `ard` has no "
        "effect on it. An offset is added in any case.",
    ),
    "restarts": (
        "int",
        "Number of searches; all but the first begin at random points around the first.",
    ),
    "ard": (
        'bool or "auto"',
        "Whether each input has its own lengthscale (automatic relevance determination). "
        '"auto" compares both and keeps separate lengthscales if they improve leave-one-out predictions '
        "by more than one nat per additional lengthscale (Akaike's criterion).",
    ),
    "class_weight": (
        'dict, "balanced" or None',
        "A weight for each class; classes that are not in the dictionary have weight one.",
    ),
    "standardize": ("bool", "Whether to scale inputs to mean zero and variance one."),
    "max_iter": ("int", "Maximum number of steps of each search."),
    "tol": ("float", "A search stops when its gradient is smaller than this."),
    "max_examples": (
        "int",
        "With more examples than this, the search uses a random subset of this size. The machine is always "
        'fitted to all examples. With more than 5000 examples and `approximation="auto"`, a second search '
        "continues from the result on five times as many.",
    ),
    "approximation": (
        'AbstractApproximation, "auto" or "exact"',
        'How to represent the kernel matrix. "auto" is exact for up to 5000 examples. For more it has a low '
        "rank: landmarks are added until no more than 0.1 % of the prior's variance is lost, up to a largest "
        "rank, which is 2000 for 12,500 examples and falls with the square root of their number. An object "
        "such as `jaxsvm.Nystrom(rank=300)` is used for any number of examples. Landmarks for the search are "
        "chosen where it begins, those of the fit at the best hyperparameters.",
    ),
    "random_state": ("int, RandomState or None", "Seed for subsets, random starts and sampling."),
    "seconds": (
        "float or None",
        "Time limit, after which searches stop and the best hyperparameters so far are used. Every search "
        "takes its first steps.",
    ),
    "checkpoint": (
        "path or None",
        "A folder in which searches save their progress. To resume an interrupted fit, repeat it with the "
        "same data and parameters (`seconds` and `verbose` may differ); the result is the same as without "
        "the interruption. Needs an integer `random_state`.",
    ),
    "verbose": ("bool", "Whether to show progress."),
}


def documented(cls: type[Estimator]) -> type[Estimator]:
    """Complete the docstring of an estimator: `{parameters}` becomes the parameters it does not describe."""
    text = inspect.cleandoc(cls.__doc__ or "")
    if "{parameters}" not in text:  # `python -OO` removes docstrings
        return cls
    entries = []
    for field in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        if not re.search(rf"^{field.name} : ", text, re.MULTILINE):
            kind, description = _DOCUMENTATION[field.name]
            lines = textwrap.wrap(description, 100, initial_indent="    ", subsequent_indent="    ")
            entries += [f"{field.name} : {kind}, default={field.default!r}", *lines]
    cls.__doc__ = text.replace("{parameters}", "\n".join(entries))
    return cls


class Searches(NamedTuple):
    """What all searches of one fit share.

    `folder` holds a checkpoint file for each search, or is None; searches stop when `time.monotonic()`
    reaches `deadline`, if it is not None; `verbose` is whether to show progress.
    """

    folder: Path | None
    deadline: float | None
    verbose: bool

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def options(self, name: str) -> dict[str, Any]:
        """The options of `jaxsvm.select` for the search with this name."""
        file = None
        if self.folder is not None:
            file = self.folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.jaxsvm"
        left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        return {"checkpoint": file, "seconds": left, "progress": self.verbose}


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class AbstractEstimator(BaseEstimator):
    """Parameters and validation shared by all estimators.

    The fields are the parameters of the constructor, which scikit-learn reads from its signature.
    """

    kernel: Any = "rbf"
    ard: bool | Literal["auto"] = "auto"
    restarts: int = 1
    standardize: bool = True
    max_iter: int = 60
    tol: float = 1e-3
    max_examples: int = 2000
    approximation: AbstractApproximation | ApproximationName = "auto"
    random_state: int | np.random.RandomState | None = None
    seconds: float | None = None
    checkpoint: str | Path | None = None
    verbose: bool = False

    def _check_shared_parameters(self) -> None:
        if not (isinstance(self.ard, bool) or (isinstance(self.ard, str) and self.ard == "auto")):
            raise ValueError(f'`ard` must be True, False or "auto", not {self.ard!r}')
        for name in ("restarts", "max_iter", "max_examples"):
            check_count(name, getattr(self, name))
        check_number("tol", self.tol, above=0)
        check_approximation(self.approximation)
        if self.max_examples < 10:
            raise ValueError(f"`max_examples` must be at least 10, but is {self.max_examples}")

    def _start_searches(self) -> Searches:
        """The folder and the deadline of the searches; the time starts now."""
        folder = None
        if self.checkpoint is not None:
            if not isinstance(self.checkpoint, str | Path) or str(self.checkpoint) == "":
                raise TypeError(
                    f"`checkpoint` must be the path of a folder, not {self.checkpoint!r}"
                )
            folder = Path(self.checkpoint)
            if folder.exists() and not folder.is_dir():
                raise ValueError(f"`checkpoint` must be a folder, but {folder} is a file")
            folder.mkdir(parents=True, exist_ok=True)
        if self.seconds is None:
            return Searches(folder, None, bool(self.verbose))
        check_number("seconds", self.seconds, least=0)
        return Searches(folder, time.monotonic() + self.seconds, bool(self.verbose))

    def _validate_examples(self, X, y, **options) -> tuple[np.ndarray, np.ndarray]:
        require_unmasked(X, "`X`")
        require_unmasked(y, "`y`")
        require_own_process()
        x, y = map(np.asarray, validate_data(self, X, y, dtype=np.float64, **options))
        if len(y) < 2:
            raise ValueError(f"{type(self).__name__} needs more than one sample, but n_samples = 1")
        return x, y

    def _validate_points(self, X) -> np.ndarray:
        require_unmasked(X, "`X`")
        require_own_process()
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _with_positive_weight(self, x, y, sample_weight) -> tuple[np.ndarray, ...]:
        """The examples with a positive weight, and these weights."""
        require_unmasked(sample_weight, "`sample_weight`")
        weights = _check_sample_weight(
            sample_weight, x, dtype=np.float64, ensure_non_negative=True, copy=True
        )
        positive = weights > 0
        if positive.sum() < 2:
            raise ValueError("at least two examples must have a positive `sample_weight`")
        x = x[positive]
        require_memory_for(self.approximation, *x.shape)
        return x, y[positive], weights[positive]

    def _fit_scaling(self, x, weights) -> Scaling:
        result = scaling(x, weights, self.standardize)
        if not np.all(np.isfinite(result.center)) or not np.all(np.isfinite(result.scale)):
            raise ValueError("the inputs are too large: their variance is not finite")
        return result

    def _random(self) -> np.random.RandomState:
        if self.checkpoint is not None and not isinstance(self.random_state, int | np.integer):
            raise ValueError(
                "`checkpoint` needs an integer `random_state`: without one, repeating the fit would draw "
                "other random numbers and could not resume"
            )
        return check_random_state(self.random_state)

    def _conclude(self, machines: list) -> None:
        """Set `n_iter_`; warn if a search stopped before it converged, or a low rank loses too much."""
        searches = [machine.search for machine in machines]
        warn_of_lost_variance(self.approximation, machines)
        self.n_iter_: int = max(1, *(int(np.max(np.asarray(s.history.steps))) for s in searches))
        codes = [RESULTS(int(np.asarray(s.results)[s.best])) for s in searches]
        out_of_time = codes.count(RESULTS.time_limit)
        unfinished = codes.count(RESULTS.iteration_limit) + out_of_time
        if unfinished:
            which = "" if len(codes) == 1 else f" for {unfinished} of {len(codes)} classes"
            limit, remedy = f"`max_iter={self.max_iter}`", "a larger `max_iter`"
            if out_of_time:
                limit, remedy = f"`seconds={self.seconds:g}`", "more time"
            warnings.warn(
                f"the hyperparameter search{which} stopped at {limit} before it converged. The best "
                f"hyperparameters so far are used; {remedy} may find better ones",
                ConvergenceWarning,
                stacklevel=3,
            )


def one_lengthscale_each(model: KernelMachine, inputs: int) -> KernelMachine:
    """The same machine, all parameters free, with a common lengthscale repeated for each input.

    So the program that fits machines with separate lengthscales also fits those with a common one.
    """

    def repeated(path, leaf):
        is_common = getattr(path[-1], "name", "") == "log_lengthscale" and np.ndim(leaf) == 0
        return jnp.asarray(np.full(inputs, leaf)) if is_common else leaf

    return jax.tree_util.tree_map_with_path(repeated, unfreeze(model))


def relevances(model: KernelMachine, inputs: int) -> np.ndarray | None:
    """`1 / lengthscale^2` of each input, normalized so that the largest is 1.

    None unless the kernel has exactly one lengthscale, or one vector with an entry for each input.
    """
    values = parameters(model).items()
    scales = [np.asarray(v) for name, v in values if name.split(".")[-1] == "lengthscale"]
    if len(scales) != 1 or scales[0].shape not in ((), (inputs,)):
        return None
    scale = np.broadcast_to(scales[0], inputs)
    return (scale.min() / scale) ** 2  # in this form it cannot overflow


def require_relevance(relevance: np.ndarray | None) -> np.ndarray:
    """The relevances, or an `AttributeError` if there are none."""
    if relevance is None:
        raise AttributeError(
            "relevances need a kernel with one lengthscale, or with one for each input"
        )
    return relevance

"""A binary machine that chooses its own hyperparameters: the part that all classifiers share."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logit

from .. import (
    Exact,
    Fit,
    KernelMachine,
    Nystrom,
    Selection,
    fit,
    free_parameters,
    freeze,
    gp,
    log_evidence,
    parameters,
    replace,
    sample,
    select,
    unfreeze,
)
from ..approximations import AbstractApproximation
from ..criteria import AbstractCriterion, AbstractObjective, LaplaceEvidence, linear_response
from ..evidence import Sampled
from ..kernels import AbstractKernel
from ..losses import Hinge, Normalized, Probit
from ..optimizers import lbfgs
from ..posteriors import AbstractPointEstimate, AbstractPosterior
from ..priors import Default
from ..runtime import jit
from ..sampling import leave_one_out
from ..selection import METHODS
from ..selection.stopping import SmallChange, SmallGradient
from ._data import predict_in_parts
from ._estimator import (
    KERNELS,
    REFINED,
    Searches,
    one_lengthscale_each,
    relevances,
)
from ._kernel_matrix import ApproximationName, matrix_of, represented, represented_for_search
from ._sigmoid import Sigmoid, fit_sigmoid, recalibrated

EVIDENCE, MEAN_FIELD = "evidence", "mean field"
# inputs are standardized, and the latent function has margins of one
_BOUNDS = {"lengthscale": (0.02, 100.0), "variance": (1e-3, 100.0), "C": (1e-3, 1e4)}
_OPTIMIZER = lbfgs(max_move=0.5)
_REFINING = lbfgs(max_move=0.5, first_move=0.3)  # the span estimate is a mean, with small gradients
_LAPLACE = LaplaceEvidence()
_LEAVE_ONE_OUT = gp.NaiveMeanField("log")
_TOLERANCE = 1e-6  # of fits: at a large C, rounding errors of `K dual` exceed the default
_SMALLEST_PROBABILITY = 1e-15
_RANK, _MAX_RANK, _LOST = (
    200,
    800,
    0.05,
)  # of sampled kernel matrices: ranks, and the lost share of variance
_EXACT_POSTERIOR = 1500  # examples up to which the posterior that predicts has the exact kernel
_OFFSET = 0.5  # the variance of the offset where a search by sampling begins
_DRAWS = 200  # of each chain


class Settings(NamedTuple):
    """The search that the user asked for; `ard` is True, False or "auto", `name` names checkpoints."""

    method: str
    kernel: str | AbstractKernel
    ard: Any
    restarts: int
    max_iter: int
    tol: float
    approximation: AbstractApproximation | ApproximationName
    searches: Searches
    name: str = ""


class Examples(NamedTuple):
    """Inputs in the units of the machine, labels -1/+1, weights."""

    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """The inputs without padding, which has weight zero and comes last."""
        return self.x[: np.count_nonzero(self.weights)]


class Binary(NamedTuple):
    """A tuned machine, with the search that tuned it.

    `sigmoid` maps the `decision` of a point estimate to log odds. For a posterior, which has a `probability`,
    it is None, or recalibrates the log odds. `score` compares machines for the same examples, in nats: the
    log loss of leave-one-out predictions, or minus the log evidence. `evidence` is the log evidence (sampled,
    or Laplace's approximation) and `relevance` has an entry for each input; either is None where it is not
    defined. They are stored as numbers, so that displaying an estimator computes nothing. `rank` is that of
    the kernel matrix, None if it is exact, and `lost_variance` the share of the prior's variance that it
    lacks.
    """

    predictive: AbstractPointEstimate | AbstractPosterior
    sigmoid: Sigmoid | None
    search: Selection
    criterion: float
    evidence: float | None
    score: float
    relevance: np.ndarray | None
    rank: int | None = None
    lost_variance: float = 0.0

    def log_odds(self, x: np.ndarray) -> np.ndarray:
        """`ln P(+1) / P(-1)` at points in the units of the machine."""
        if isinstance(self.predictive, AbstractPointEstimate):
            assert self.sigmoid is not None
            return self.sigmoid(predict_in_parts(self.predictive.decision, x))
        p = predict_in_parts(self.predictive.probability, x)
        odds = logit(np.clip(p, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY))
        return odds if self.sigmoid is None else self.sigmoid(odds)


def tune(
    settings: Settings,
    key: Any,
    subset: Examples,
    full: Examples,
    more: Examples | None = None,
) -> Binary:
    """Choose the hyperparameters on a subset of the examples, and fit the machine to all of them.

    If there are `more` examples, the search continues on them before the fit. Machines are then compared on
    the subset, which is cheap.
    """
    if more is None:
        return _compare(settings, subset, full, key)
    return _refine(settings, _compare(settings, subset, subset, key), more, full, key)


def _compare(settings: Settings, subset: Examples, full: Examples, key: Any) -> Binary:
    """The better of a machine with a common lengthscale and one with separate ones, if `ard` is "auto"."""
    inputs = full.x.shape[1]
    by_method = {EVIDENCE: _by_sampling, MEAN_FIELD: _by_mean_field}.get(settings.method, _by_fits)
    kernel = _initial_kernel(settings, inputs)
    common = by_method(settings, kernel, subset, full, key)
    if settings.ard != "auto" or not isinstance(settings.kernel, str) or inputs == 1:
        return common
    if settings.searches.is_over:
        return common
    # continue with separate lengthscales from the common one
    tuned = common.search.model.kernel
    kernel = _with_separate_lengthscales(getattr(tuned, "left", tuned), inputs)
    settings = settings._replace(name=f"{settings.name}, relevance")
    separate = by_method(settings, kernel, subset, full, key)
    # each fitted parameter improves the score by about one nat by chance alone (Akaike)
    return separate if separate.score + inputs - 1 < common.score else common


def _initial_kernel(settings: Settings, inputs: int) -> AbstractKernel:
    """The user's kernel, or one from `KERNELS` with a lengthscale of typical distances."""
    if isinstance(settings.kernel, AbstractKernel):
        # it may have been made in single precision
        return jax.tree.map(lambda leaf: leaf.astype(float), settings.kernel)
    shape = inputs if settings.ard is True else ()
    return KERNELS[settings.kernel](jnp.full(shape, np.sqrt(inputs)))


def _with_separate_lengthscales(kernel: Any, inputs: int) -> AbstractKernel:
    """The same kernel with its common lengthscale repeated for each input, all parameters free."""
    separate = type(kernel)(jnp.full(inputs, kernel.lengthscale))
    values = parameters(kernel)
    names = [name for name in parameters(separate) if name != "lengthscale"]
    return replace(separate, {name: values[name] for name in names})


def _by_fits(settings: Settings, kernel, subset: Examples, full: Examples, key) -> Binary:
    """Minimize a criterion of fits; a sigmoid of leave-one-out values gives the log odds."""
    method = METHODS[settings.method]
    model = method.machine(kernel)
    if method.offset and isinstance(settings.kernel, str):
        model = freeze(model, "kernel.variance")  # C has the same effect
    search = _minimize(settings, model, subset, _criterion(settings), key)
    return _fit_tuned(settings, search, full)


def _criterion(settings: Settings) -> AbstractCriterion:
    method = METHODS[settings.method]
    return method.criterion("kernel.lengthscale" if method.offset else "kernel.left.lengthscale")


def _refine(settings: Settings, tuned: Binary, more: Examples, full: Examples, key: Any) -> Binary:
    """Continue a search by fits on more examples at a low rank, and fit the machine to all of them.

    Many examples resolve details that few do not, with shorter lengthscales.
    """
    search = tuned.search
    if not settings.searches.is_over:
        settings = settings._replace(name=f"{settings.name}, more examples", restarts=1)
        search = _search(
            settings,
            search.model,
            more,
            _criterion(settings),
            key,
            optimizer=_REFINING,
            stop=REFINED,
            approximation=represented_for_search(search.model, more.rows),
        )
    return _fit_tuned(settings, search, full)


def _fit_tuned(settings: Settings, search: Selection, full: Examples) -> Binary:
    """Fit the machine of a search, and its sigmoid."""
    machine = _free_machine(settings, search.model, full)
    kept = represented(settings.approximation, machine, full.rows)
    options: dict[str, Any] = {"tolerance": _TOLERANCE, "approximation": kept}
    fitted = fit(machine, full.x, full.y, weights=full.weights, **options)
    left_out, evidence = _leave_one_out(fitted)
    fitted = dataclasses.replace(fitted, model=search.model)
    left_out = np.asarray(left_out)
    sigmoid = fit_sigmoid(left_out, full.y, full.weights)
    score = float(full.weights @ np.logaddexp(0, -full.y * sigmoid(left_out)))
    evidence = None if evidence is None else float(evidence)
    relevance = relevances(search.model, full.x.shape[1])
    matrix = matrix_of(fitted.expansion, fitted.stats.lost_variance)
    value = float(search.value)
    return Binary(fitted, sigmoid, search, value, evidence, score, relevance, *matrix)


def _by_mean_field(settings: Settings, kernel, subset: Examples, full: Examples, key) -> Binary:
    """Minimize the leave-one-out log loss of naive mean field theory, whose posterior predicts."""
    model = freeze(KernelMachine(kernel + 0.1, Probit()), "loss")
    search = _minimize(settings, model, subset, _LEAVE_ONE_OUT, key)
    machine = _free_machine(settings, search.model, full)
    kept = represented(settings.approximation, machine, full.rows)
    posterior = gp.mean_field(machine, full.x, full.y, weights=full.weights, approximation=kept)
    posterior = dataclasses.replace(posterior, model=search.model)
    value = float(search.value)
    score, relevance = value * full.weights.sum(), relevances(search.model, full.x.shape[1])
    matrix = matrix_of(posterior.expansion, posterior.lost_variance)
    return Binary(posterior, None, search, value, None, score, relevance, *matrix)


def _by_sampling(settings: Settings, kernel, subset: Examples, full: Examples, key) -> Binary:
    """Ascend the exact evidence of a normalized hinge with a prior, then sample the posterior that predicts.

    A sigmoid of leave-one-out predictions replaces its probabilities if that predicts the left-out labels
    better by more than its two parameters do by chance.
    """
    search_key, sample_key, value_key = jax.random.split(key, 3)
    search, low = _ascend(settings, kernel, subset, search_key)
    options: dict[str, Any] = {"progress": settings.searches.verbose}
    posterior = sample(
        search.model,
        full.x,
        full.y,
        weights=full.weights,
        key=sample_key,
        approximation=_of_samples(settings.approximation, len(full.y)),
        draws=_DRAWS,
        **options,
    )
    sigmoid = recalibrated(np.asarray(leave_one_out(posterior).log_odds), full.y, full.weights)
    evidence = log_evidence(
        search.model,
        subset.x,
        subset.y,
        weights=subset.weights,
        key=value_key,
        approximation=low,
        method="bridge",
        **options,
    )
    value = float(evidence.value)
    relevance = relevances(search.model, full.x.shape[1])
    lost, rank = float(posterior.whitening.error), posterior.whitening.factor.shape[1]
    matrix = (rank, lost) if rank < len(full.y) else (None, 0.0)
    return Binary(posterior, sigmoid, search, -value, value, -value, relevance, *matrix)


def _ascend(
    settings: Settings, kernel, subset: Examples, key: Any
) -> tuple[Selection, AbstractApproximation]:
    """The search, and its kernel matrix, whose rank is doubled while it loses much where the search ends."""
    model = KernelMachine(kernel + _OFFSET, Normalized(Hinge()))
    size, rank = len(subset.y), _RANK
    while True:
        is_exact = rank >= size
        low = (
            Exact() if is_exact else Nystrom(rank, min(2 * rank, size), "kmeans++", tolerance=0.99)
        )
        named = settings._replace(name=f"{settings.name}, rank {rank}")
        search = _search(named, model, subset, Sampled(low, route="fisher"), key, prior=Default())
        lost = np.asarray(search.history.info["whitening_error"])
        end = (search.best, int(search.history.end[search.best]))
        if is_exact or lost[end] <= _LOST or rank >= _MAX_RANK or settings.searches.is_over:
            return search, low
        model, rank = search.model, 2 * rank


def _of_samples(
    approximation: AbstractApproximation | ApproximationName, rows: int
) -> AbstractApproximation:
    """The kernel matrix of a sampled posterior: for "auto", exact unless there are many rows."""
    if not isinstance(approximation, str):
        return approximation
    if approximation == "exact" or rows <= _EXACT_POSTERIOR:
        return Exact()
    return Nystrom("auto", tolerance=_LOST, max_rank=_MAX_RANK)


def _minimize(settings: Settings, model, subset: Examples, criterion, key) -> Selection:
    options: dict[str, Any] = {
        "optimizer": _OPTIMIZER,
        "stop": (SmallGradient(settings.tol), SmallChange()),
        "approximation": represented(settings.approximation, model, subset.rows, for_search=True),
    }
    return _search(settings, model, subset, criterion, key, **options)


def _search(
    settings: Settings, model, subset: Examples, objective: AbstractObjective, key, **options
) -> Selection:
    return select(
        model,
        subset.x,
        subset.y,
        objective,
        weights=subset.weights,
        restarts=settings.restarts,
        starts=0.5,
        key=key,
        bounds=_bounds(model),
        max_steps=settings.max_iter,
        **options,
        **settings.searches.options(settings.name),
    )


def _bounds(model: KernelMachine) -> dict[str, tuple[float, float]]:
    """Wide bounds for the parameters that have one of the usual names and start inside.

    Amplitudes need them: at a huge amplitude the Laplace evidence is largest, and wrong.
    """
    bounds = {}
    for name, value in free_parameters(model).items():
        low, high = _BOUNDS.get(name.rsplit(".")[-1], (np.inf, -np.inf))
        if np.all((np.asarray(value) >= low) & (np.asarray(value) <= high)):
            bounds[name] = (low, high)
    return bounds


def _free_machine(settings: Settings, model: KernelMachine, full: Examples) -> KernelMachine:
    """The machine in the form in which it is fitted, so that fits share one program."""
    if isinstance(settings.kernel, str):
        return one_lengthscale_each(model, full.x.shape[1])
    return unfreeze(model)  # a user's kernel may have lengthscales for other than the inputs


@jit
def _leave_one_out(fitted: Fit):
    """Leave-one-out values, and Laplace's approximation of the log evidence if it is defined."""
    gram = fitted.gram()
    evidence = None if fitted.model.offset else -_LAPLACE.of_fit(gram, fitted)
    return linear_response(gram, fitted), evidence

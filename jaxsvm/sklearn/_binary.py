"""One machine for two classes that chooses its hyperparameters by itself: what the classifiers share."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logit

from .. import gp, kernels
from .._fit import fit_gram, require_success
from .._machine import KernelMachine
from .._parameters import free_parameters, freeze, parameters, replace, unfreeze
from ..approximations import AbstractApproximation, Exact, Nystrom
from ..criteria import LaplaceEvidence, linear_response
from ..evidence import Sampled, log_evidence
from ..gram import exact_gram
from ..kernels import AbstractKernel
from ..losses import Probit
from ..optimizers import lbfgs
from ..posteriors import AbstractPointEstimate, AbstractPosterior
from ..runtime import jit
from ..sampling import sample
from ..selection import METHODS, Selection, select
from ..selection.stopping import SmallChange, SmallGradient
from ..solvers import Options
from ._base import relevances
from ._data import padded_points
from ._searches import Searches
from ._sigmoid import Sigmoid, fit_sigmoid, log_loss

KERNELS = {
    "rbf": kernels.RBF,
    "matern12": kernels.Matern12,
    "matern32": kernels.Matern32,
    "matern52": kernels.Matern52,
    "rational_quadratic": kernels.RationalQuadratic,
}
EVIDENCE, MEAN_FIELD = "evidence", "mean field"
# inputs are standardized, and the latent function has margins of one
_BOUNDS = {"lengthscale": (0.02, 100.0), "variance": (1e-3, 100.0), "C": (1e-3, 1e4)}
_OPTIMIZER = lbfgs(max_move=0.5)
_LAPLACE = LaplaceEvidence()
_LEFT_OUT = gp.NaiveMeanField("log")
# at a large C rounding errors of `K dual` exceed the library's own tolerance
_OPTIONS = Options(tolerance=1e-6)
_CERTAIN = 1e-15  # a probability that is not told from zero
_RANK, _LANDMARKS = 40, 200  # of the kernel of the chains


class Settings(NamedTuple):
    """What the user said of the search; `ard` is True, False or "auto"."""

    method: str
    kernel: str | AbstractKernel
    ard: Any
    restarts: int
    max_iter: int
    tol: float
    searches: Searches
    name: str = ""  # of the search

    @property
    def is_random(self) -> bool:
        """Whether the method draws random numbers."""
        return self.method == EVIDENCE


class Examples(NamedTuple):
    """Inputs in the units of the machine, labels -1/+1, weights."""

    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray


class Binary(NamedTuple):
    """A tuned machine: what predicts, how its values become log odds, and where they come from.

    `sigmoid` maps the `decision` of a point estimate to log odds; a posterior has none, for it has a
    `probability` itself. `score` compares machines for the same examples, in nats: the log loss of what
    they predict of examples left out.
    `evidence` is the log evidence, by sampling or by Laplace's approximation for the fit, and `relevance`
    that of each input; None for a machine that has none. They are stored as numbers, so that displaying an
    estimator computes nothing.
    """

    predictive: AbstractPointEstimate | AbstractPosterior
    sigmoid: Sigmoid | None
    search: Selection
    criterion: float
    evidence: float | None
    score: float
    relevance: np.ndarray | None

    def log_odds(self, x: np.ndarray) -> np.ndarray:
        """The logarithm of `P(+1) / P(-1)` at points in the units of the machine."""
        points = padded_points(x)
        if self.sigmoid is not None:
            odds = self.sigmoid(np.asarray(self.predictive.decision(points)))
        else:
            p = np.asarray(self.predictive.probability(points))
            odds = logit(np.clip(p, _CERTAIN, 1 - _CERTAIN))
        return odds[: len(x)]


def tune(settings: Settings, chosen: Examples, every: Examples, key: Any) -> Binary:
    """Choose the hyperparameters on some of the examples, and fit the machine to all of them."""
    inputs = chosen.x.shape[1]
    by_method = {EVIDENCE: _by_sampling, MEAN_FIELD: _by_mean_field}.get(settings.method, _by_fits)
    kernel = initial_kernel(settings, inputs)
    first = by_method(settings, kernel, chosen, every, key)
    if settings.ard != "auto" or not isinstance(settings.kernel, str) or inputs == 1:
        return first
    if settings.searches.is_over:
        return first
    # one lengthscale each, from where the common one ended
    found = first.search.model.kernel
    widened = with_lengthscales(kernel, getattr(found, "left", found), inputs)
    settings = settings._replace(name=f"{settings.name}, relevance")
    second = by_method(settings, widened, chosen, every, key)
    # each parameter that is fitted makes a score look better than it is, by about a nat (Akaike)
    return second if second.score + inputs - 1 < first.score else first


def initial_kernel(settings: Settings, inputs: int) -> AbstractKernel:
    """The user's own kernel, or one of a known family whose correlations reach to typical neighbors."""
    if isinstance(settings.kernel, AbstractKernel):
        # made where double precision may have been off
        return jax.tree.map(lambda leaf: leaf.astype(float), settings.kernel)
    shape = inputs if settings.ard is True else ()
    return KERNELS[settings.kernel](jnp.full(shape, np.sqrt(inputs)))


def with_lengthscales(kernel: AbstractKernel, found: Any, inputs: int) -> AbstractKernel:
    """The kernel that was found, with one lengthscale for each input, all as the one it had."""
    length = jnp.full(inputs, found.lengthscale)
    family: Any = type(kernel)
    wide = family(length)
    names = [name for name in parameters(wide) if name != "lengthscale"]
    values = parameters(found)
    return replace(wide, {name: values[name] for name in names})


def one_lengthscale_each(model: KernelMachine, inputs: int) -> KernelMachine:
    """The same machine, all parameters free, with a common lengthscale repeated for each input.

    So machines with a common lengthscale are fitted by the program of those with one for each input.
    """

    def repeated(path, leaf):
        common = getattr(path[-1], "name", "") == "log_lengthscale" and np.ndim(leaf) == 0
        return jnp.asarray(np.full(inputs, leaf)) if common else leaf

    return jax.tree_util.tree_map_with_path(repeated, unfreeze(model))


@jit
def _fit_and_leave_out(model: KernelMachine, x, y, weights):
    gram = exact_gram(model.kernel, x)
    fitted = fit_gram(model, gram, x, y, weights, options=_OPTIONS)
    evidence = None if model.offset else -_LAPLACE.score(gram, fitted)
    return fitted, linear_response(gram, fitted), evidence


def _for_fits(settings: Settings, model: KernelMachine, every: Examples) -> KernelMachine:
    if isinstance(settings.kernel, str):
        return one_lengthscale_each(model, every.x.shape[1])
    return unfreeze(model)  # the inputs of a user's kernel are not always those of the examples


def _by_fits(settings: Settings, kernel, chosen: Examples, every: Examples, key) -> Binary:
    """Minimize a criterion of fits; a sigmoid of leave-one-out values gives the log odds."""
    method = METHODS[settings.method]
    model = method.machine(kernel)
    if method.offset and isinstance(settings.kernel, str):
        model = freeze(model, "kernel.variance")  # C does the same
    lengthscale = "kernel.lengthscale" if method.offset else "kernel.left.lengthscale"
    search = _select(settings, model, chosen, method.criterion(lengthscale), key)
    machine = _for_fits(settings, search.model, every)
    fitted, left_out, evidence = _fit_and_leave_out(machine, *map(jnp.asarray, every))
    fitted = require_success(dataclasses.replace(fitted, model=search.model))
    left_out = np.asarray(left_out)
    sigmoid = fit_sigmoid(left_out, every.y, every.weights)
    score = log_loss(sigmoid(left_out), every.y, every.weights)
    evidence = None if evidence is None else float(evidence)
    relevance = relevances(search.model, every.x.shape[1])
    return Binary(fitted, sigmoid, search, float(search.value), evidence, score, relevance)


def _by_mean_field(settings: Settings, kernel, chosen: Examples, every: Examples, key) -> Binary:
    """Minimize the log loss of naive mean field theory's leave-one-out; its posterior predicts."""
    model = freeze(KernelMachine(kernel + 0.1, Probit()), "loss")
    search = _select(settings, model, chosen, _LEFT_OUT, key)
    machine = _for_fits(settings, search.model, every)
    posterior = gp.mean_field(machine, *every[:2], weights=every.weights)
    posterior = dataclasses.replace(posterior, model=search.model)
    value = float(search.value)
    score, relevance = value * every.weights.sum(), relevances(search.model, every.x.shape[1])
    return Binary(posterior, None, search, value, None, score, relevance)


def _by_sampling(settings: Settings, kernel, chosen: Examples, every: Examples, key) -> Binary:
    """Ascend the exact evidence, then draw from the posterior, whose probabilities are the answer."""
    climb_key, sample_key, value_key = jax.random.split(key, 3)
    model = METHODS["laplace"].machine(kernel)
    climb = _ascend(settings, model, chosen, climb_key)
    approximation: AbstractApproximation = Exact()
    if len(every.y) > _LANDMARKS:
        approximation = Nystrom(_LANDMARKS // 2, _LANDMARKS)
    common: dict[str, Any] = {
        "approximation": approximation,
        "progress": settings.searches.verbose,
    }
    posterior = sample(climb.model, *every[:2], weights=every.weights, key=sample_key, **common)
    evidence = log_evidence(
        climb.model, *chosen[:2], weights=chosen.weights, key=value_key, **common
    )
    value = float(evidence.value)
    relevance = relevances(climb.model, every.x.shape[1])
    return Binary(posterior, None, climb, -value, value, -value, relevance)


def _ascend(settings: Settings, model, chosen: Examples, key) -> Selection:
    count = len(chosen.y)
    approximation = Nystrom(min(_RANK, count), min(_LANDMARKS, count))
    return select(
        model,
        *chosen[:2],
        Sampled(approximation),
        weights=chosen.weights,
        restarts=settings.restarts,
        starts=0.5,
        key=key,
        bounds=bounds(model),
        max_steps=settings.max_iter,
        **settings.searches.options(settings.name),
    )


def _select(settings: Settings, model, chosen: Examples, criterion, key) -> Selection:
    return select(
        model,
        *chosen[:2],
        criterion,
        weights=chosen.weights,
        optimizer=_OPTIMIZER,
        stop=(SmallGradient(settings.tol), SmallChange()),
        restarts=settings.restarts,
        starts=0.5,
        key=key,
        bounds=bounds(model),
        max_steps=settings.max_iter,
        **settings.searches.options(settings.name),
    )


def bounds(model: KernelMachine) -> dict[str, tuple[float, float]]:
    """Wide ones, of those parameters that go by the usual names and begin inside.

    Amplitudes need one: the Laplace evidence of a huge one is wrong, and the best.
    """
    found = {}
    for name, value in free_parameters(model).items():
        low, high = _BOUNDS.get(name.rsplit(".")[-1], (np.inf, -np.inf))
        if np.all((np.asarray(value) >= low) & (np.asarray(value) <= high)):
            found[name] = (low, high)
    return found

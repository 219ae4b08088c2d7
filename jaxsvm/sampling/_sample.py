"""`sample`: draws from the posterior of the latent function, and the `Posterior` that predicts with them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._machine import KernelMachine
from ..approximations import AbstractApproximation, Exact, Whitening
from ..hyperparameters import unfreeze
from ..posteriors import AbstractMachinePredictor, AbstractMixture, Components, Joint, same_for_all
from ..runtime import Progress, filter_jit, jit
from ..validation import as_points
from ._chains import Chains, Traces, draw, kept_numbers, start_chains, warm_up
from ._diagnostics import Diagnostics, diagnose, warn_of_problems
from ._samplers import MCLMC, Method
from ._setup import Setup, set_up
from ._target import Target

_PIECES, _SHORTEST_PIECE = 20, 50  # of a long run; the progress bar advances after each piece
KEPT = 100  # about how many draws of each chain to keep for predictions, unless all are kept


class Posterior(AbstractMixture, AbstractMachinePredictor):
    """Draws from the posterior of a kernel machine's latent function, by `jaxsvm.sample`.

    `b` are the kept draws in white coordinates, of shape (chains, kept, rank): the latent values at the
    examples are `whitening.factor @ b`, with the map `whitening` from white coordinates to latent values.
    `means` averages all draws of each chain, kept or not. `diagnostics` says how far to trust them, and
    `traces` has the numbers behind it. `chains` are the chains after the last draw, and `draw_numbers` says
    which draws of each chain are kept. `model`, `x`, `y` and `weights` are the model and its data.
    """

    model: KernelMachine
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    whitening: Whitening
    b: Float[Array, "chains kept p"]
    means: Float[Array, "chains p"]
    traces: Traces
    diagnostics: Diagnostics
    chains: Chains
    draw_numbers: Int[Array, " kept"]

    def decision(self, x: Any) -> Float[Array, " m"]:
        return self._features(x)[0] @ jnp.mean(self.means, axis=0)

    def components(self, x: Any) -> Components:
        """The latent function at each new point: the kept draws, all equally likely.

        The mean is over all draws, the variance over the kept ones. The prior variance outside the span of
        the white coordinates is added to the variance and to the draws.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** `Components`.
        """
        features, residual = self._features(x)
        mean = features @ jnp.mean(self.means, axis=0)
        draws = self._draws()
        values = draws @ features.T
        deviation = jnp.sqrt(jnp.var(values, axis=0) + residual)
        noise = spread(len(draws)).astype(draws.dtype)
        values = values + noise[:, None] * jnp.sqrt(residual)[None, :]
        loss = same_for_all(unfreeze(self.model).loss, 1)
        one = jnp.ones(1, values.dtype)
        return Components(loss, values[None], None, one, mean, deviation)

    def joint(self, x: Any) -> Joint:
        """The latent function at all new points: the kept draws, all equally likely.

        Each draw has a Gaussian added: the part of the prior outside the span of the white coordinates.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** a `Joint`.
        """
        points = as_points(x, self.x).astype(self.x.dtype)
        basis, kernel = self.whitening.basis, unfreeze(self.model).kernel
        features, covariance = _joint_features(basis, kernel, points)
        values = self._draws() @ features.T
        return Joint(values[None], covariance[None], jnp.ones(1, values.dtype))

    def to_arviz(self) -> Any:
        """The draws as ArviZ data: coordinates `b`, latent values, and statistics of the sampler.

        **Returns:** an `InferenceData` or `DataTree`, depending on the version of ArviZ.
        """
        b, numbers = np.asarray(self.b), np.asarray(self.draw_numbers)
        draws = {"b": b, "latent": b @ np.asarray(self.whitening.factor).T}
        log_density = -np.asarray(self.traces.loss + self.traces.penalty)[numbers].T
        return as_arviz(draws, self.traces, log_density, numbers)

    def _draws(self) -> Float[Array, "k p"]:
        return self.b.reshape(-1, self.b.shape[2])

    def _features(self, x):
        points = as_points(x, self.x).astype(self.x.dtype)
        return _features(self.whitening.basis, unfreeze(self.model).kernel, points)


def spread(count: int) -> np.ndarray:
    """Quantiles of the standard normal distribution, one for each draw, in random order.

    They represent the part of the prior outside the span of the white coordinates, which is independent of
    the draws.
    """
    from scipy.special import ndtri  # here: it takes a third of a second to import

    order = np.random.default_rng(0).permutation(count)
    return ndtri((order + 0.5) / count)


def as_arviz(draws: dict[str, Any], traces: Traces, log_density: Any, numbers: Any) -> Any:
    """Draws and statistics of the sampler as ArviZ data.

    **Arguments:** `draws`, arrays of shape (chains, kept, ...) by name; `traces`, those of all draws;
    `log_density`, of the kept draws; `numbers`, those of the kept draws.

    **Returns:** an `InferenceData` or `DataTree`, depending on the version of ArviZ.
    """
    try:
        import arviz  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            '`to_arviz` needs ArviZ, which is not installed: pip install "jaxsvm[arviz]"'
        ) from error
    names = {"energy": "energy", "acceptance": "acceptance_rate", "divergent": "diverging"}
    stats = {name: np.asarray(getattr(traces, field))[numbers].T for field, name in names.items()}
    stats["lp"] = log_density
    convert: Any = arviz.from_dict
    if int(arviz.__version__.split(".")[0]) < 1:
        return convert(posterior=draws, sample_stats=stats)
    return convert({"posterior": draws, "sample_stats": stats})


@jit
def _features(basis, kernel, points):
    return basis.features(kernel, points)


@jit
def _joint_features(basis, kernel, points):
    return basis.joint_features(kernel, points)


def sample(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    key: Any,
    approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
    method: Method = MCLMC(),  # noqa: B008, it is immutable
    chains: int = 8,
    warmup: int = 200,
    draws: int = 500,
    keep_draws: bool = False,
    weights: Any = None,
    progress: bool | None = None,
) -> Posterior:
    """Draw from the posterior of the latent function.

    Its density is proportional to `exp(-sum_i L(y_i, theta_i)) N(theta; 0, K)`. BlackJAX moves all chains at
    once, in coordinates in which the prior is white: `theta = V b`, exactly or with a low rank
    [GS03, sec. 4.2; GS05]. The chains begin at the mode, which is the fit with all kinks rounded off.

    **Arguments:**

    - `model`, `x`, `y`, `weights`: as for `jaxsvm.fit`. The model must not have a free offset, because its
      prior would be improper.
    - `key`: a random key; the same key gives the same draws.
    - `approximation`: how to represent the kernel matrix. `jaxsvm.Exact()`, the default, has one white
      coordinate per example; `jaxsvm.Nystrom(rank=...)` and `jaxsvm.RandomFourier(features=...)` have fewer.
    - `method`: `jaxsvm.sampling.MCLMC(...)`, `HMC(...)` or `NUTS(...)`.
    - `chains`: the number of chains.
    - `warmup`: the number of draws of each chain that adapt the step size and the scaling.
    - `draws`: the number of draws of each chain after that.
    - `keep_draws`: whether to keep all draws; otherwise about 100 of each chain are kept, and memory does not
      grow with `draws` (except for about ten numbers per draw, for the diagnostics).
    - `progress`: whether to draw a progress bar; by default if standard error is a terminal.

    **Returns:** a `Posterior`. If anything is wrong with the chains, a `SamplingWarning` and
    `diagnostics.problems` say so: for example fewer than 8 draws of each chain, which cannot be judged, or a
    low rank that loses more than 1 % of the prior's variance, or than the tolerance of `jaxsvm.Nystrom`.

    **Example:**

    >>> posterior = jsvm.sample(model, x, y, key=jax.random.key(1))
    >>> mean, deviation = posterior.latent(x)
    >>> posterior.probability(x).shape, posterior.diagnostics.problems
    ((30,), [])
    """
    setup, (warm_key, draw_key) = set_up(
        model, x, y, weights, approximation=approximation, method=method, key=key, keys=2,
        chains=chains, draws=draws, warmup=warmup,
    )  # fmt: skip
    count = _pieces(draws)
    length = draws // count
    keep = length if keep_draws else min(length, -(-KEPT // count))
    pieces = []
    with Progress(warmup + draws, "sampling", progress) as bar:
        whitening, target, state = _begin(setup, method, chains)
        state = _warm_up(target, method, state, warm_key, warmup)
        bar.update(warmup, f"step size {float(jnp.exp(state.log_step)):.2g}")
        for number in range(count):
            piece_key = jax.random.fold_in(draw_key, number)
            state, means, traces, kept = _draw(target, method, state, piece_key, length, keep)
            pieces.append((means, traces, kept))
            acceptance = float(jnp.mean(traces.acceptance))
            bar.update(warmup + (number + 1) * length, f"acceptance {acceptance:.2f}")
    means, traces, kept = _join(pieces)
    diagnostics = diagnose(
        traces, jnp.exp(state.log_step), whitening.error, setup.representation.tolerance
    )
    warn_of_problems(diagnostics, "the draws from the posterior should not be trusted as they are")
    numbers = np.arange(count)[:, None] * length + kept_numbers(length, keep)[None, :]
    return Posterior(
        model=model,
        x=setup.x,
        y=setup.y,
        weights=setup.weights,
        whitening=whitening,
        b=jnp.swapaxes(kept, 0, 1),
        means=means,
        traces=traces,
        diagnostics=diagnostics,
        chains=state,
        draw_numbers=jnp.asarray(numbers.ravel()),
    )


@filter_jit
def _begin(setup: Setup, method: Method, chains: int) -> tuple[Whitening, Target, Chains]:
    """The whitening, the posterior, and all chains at the mode."""
    whitening, target = setup.whiten()
    return whitening, target, start_chains(target, method, chains)


_warm_up = filter_jit(warm_up)
_draw = filter_jit(draw)


def _pieces(draws: int) -> int:
    """The number of equal pieces to draw in, so that one program serves all and the bar can advance."""
    largest = max(min(_PIECES, draws // _SHORTEST_PIECE), 1)
    return next(count for count in range(largest, 0, -1) if draws % count == 0)


def _join(pieces) -> tuple[Array, Traces, Any]:
    means, traces, kept = zip(*pieces, strict=True)
    return (
        jnp.mean(jnp.stack(means), axis=0),
        jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *traces),
        jnp.concatenate(kept),
    )

"""What is known about the latent function after the data: draws, and what follows from them."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._machine import KernelMachine
from .._parameters import unfreeze
from ..approximations import Whitening
from ..losses import AbstractLoss
from ..posteriors import AbstractMixture, Components, Examples, Joint, same_for_all
from ..runtime import jit
from ..validation import as_points
from ._chains import Averages, Chains, Traces
from ._diagnostics import Diagnostics


class Posterior(AbstractMixture):
    """Draws from the posterior of a kernel machine's latent function, by `jaxsvm.sample`.

    `b` are the draws that were kept, of shape (chains, kept, rank), in white coordinates: the latent values
    at the examples are `whitening.factor @ b`, with `whitening` the map from one to the other. `means` holds
    averages over all draws, kept or not; `diagnostics` tells how far to trust them, `traces` are the
    numbers behind it, `chains` tells where the chains ended, and `places` the numbers of the kept draws among
    all of a chain. `model`, `x`, `y` and `weights` are whose posterior it is.
    """

    model: KernelMachine
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    whitening: Whitening
    b: Float[Array, "chains kept p"]
    means: Averages
    traces: Traces
    diagnostics: Diagnostics
    chains: Chains
    places: Int[Array, " kept"]

    @property
    def loss(self) -> AbstractLoss:
        """The loss of the machine."""
        return self.model.loss

    @property
    def examples(self) -> Examples:
        """The data whose posterior it is."""
        return Examples(self.x, self.y, self.weights)

    def decision(self, x: Any) -> Float[Array, " m"]:
        """The posterior mean of the latent function at new points, over all draws.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one value for each point.
        """
        return self._features(x)[0] @ jnp.mean(self.means.b, axis=0)

    def components(self, x: Any) -> Components:
        """The latent function at each new point: the kept draws, all equally likely.

        The mean is that over all draws, the variance that over the kept ones; to it comes the variance
        of the prior that the white coordinates do not reach, which the draws have as well.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** `Components`.
        """
        features, residual = self._features(x)
        mean = features @ jnp.mean(self.means.b, axis=0)
        draws = self._draws()
        values = draws @ features.T
        deviation = jnp.sqrt(jnp.var(values, axis=0) + residual)
        spread = _spread(len(draws)).astype(draws.dtype)
        values = values + spread[:, None] * jnp.sqrt(residual)[None, :]
        loss = same_for_all(unfreeze(self.model).loss, 1)
        one = jnp.ones(1, values.dtype)
        return Components(loss, values[None], None, one, mean, deviation)

    def joint(self, x: Any) -> Joint:
        """The latent function at all new points: the kept draws, all equally likely.

        To each comes a Gaussian with the covariance of the prior that the white coordinates do not reach.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** a `Joint`.
        """
        points = as_points(x, self.x).astype(self.x.dtype)
        features, covariance = _residual(self.whitening, unfreeze(self.model).kernel, points)
        values = self._draws() @ features.T
        return Joint(values[None], covariance[None], jnp.ones(1, values.dtype))

    def to_arviz(self) -> Any:
        """The draws as ArviZ data: coordinates `b`, latent values, and statistics of the sampler.

        **Returns:** an `InferenceData` or `DataTree`, as the installed ArviZ has it.
        """
        try:
            import arviz  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError(
                '`to_arviz` needs ArviZ, which is not installed: pip install "jaxsvm[arviz]"'
            ) from error
        b = np.asarray(self.b)
        draws = {"b": b, "latent": b @ np.asarray(self.whitening.factor).T}
        places = np.asarray(self.places)
        names = {"energy": "energy", "acceptance": "acceptance_rate", "divergent": "diverging"}
        stats = {
            name: np.asarray(getattr(self.traces, field))[places].T for field, name in names.items()
        }
        stats["lp"] = -np.asarray(self.traces.loss + self.traces.penalty)[places].T
        convert: Any = arviz.from_dict
        if int(arviz.__version__.split(".")[0]) < 1:
            return convert(posterior=draws, sample_stats=stats)
        return convert({"posterior": draws, "sample_stats": stats})

    def _draws(self) -> Float[Array, "k p"]:
        return self.b.reshape(-1, self.b.shape[2])

    def _features(self, x):
        points = as_points(x, self.x).astype(self.x.dtype)
        return _features(self.whitening, unfreeze(self.model).kernel, points)


def _spread(count: int) -> np.ndarray:
    """As many standard normal numbers as there are draws, evenly over the distribution but in no order.

    They stand for what the white coordinates do not reach, which is independent of the draws.
    """
    from scipy.special import ndtri  # here: it takes a third of a second to import

    order = np.random.default_rng(0).permutation(count)
    return ndtri((order + 0.5) / count)


@jit
def _features(whitening, kernel, points):
    return whitening.features(kernel, points)


@jit
def _residual(whitening, kernel, points):
    """Features of new points, and the covariance of what they do not reach."""
    features, _ = whitening.features(kernel, points)
    return features, kernel.matrix(points, points, same=True) - features @ features.T

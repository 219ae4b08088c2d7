"""What is known about the latent function after the data: draws, and what follows from them."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._errors import as_points
from .._fit import as_predictions
from .._machine import KernelMachine
from .._parameters import unfreeze
from .._programs import jit
from ..approximations import Whitening
from ..posteriors import AbstractPredictive, Components, probability, same_for_all
from ._chains import Averages, Chains, Traces
from ._diagnostics import Diagnostics


class Posterior(AbstractPredictive):
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

    def latent(self, x: Any) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Mean and standard deviation of the latent function at new points.

        The mean is that over all draws, the variance that over the kept ones; to it comes the variance
        of the prior that the white coordinates do not reach.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** two vectors.
        """
        features, residual = self._features(x)
        mean = features @ jnp.mean(self.means.b, axis=0)
        values = features @ self._draws().T
        return mean, jnp.sqrt(jnp.var(values, axis=1) + residual)

    def probability(self, x: Any, rule: str = "normalized") -> Float[Array, " m"]:
        """The probability of the label +1 at new points.

        **Arguments:**

        - `x`: a matrix with one row for each point.
        - `rule`: `"normalized"` for the normalized model, `<Q(+1|f)> / (<Q(+1|f)> + <Q(-1|f)>)`, or
          `"average"` for the plain average `<Q(+1|f) / (Q(+1|f) + Q(-1|f))>`, where brackets are
          posterior averages and `Q(y|f) = exp(-L(y, f))`.

        **Returns:** a vector of probabilities.
        """
        return probability(unfreeze(self.model).loss, self._latent_draws(x), None, rule)

    def components(self, x: Any) -> Components:
        """The latent function at new points: the kept draws, all equally likely.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** `Components`.
        """
        values = self._latent_draws(x)
        count = values.shape[0]
        loss = same_for_all(unfreeze(self.model).loss, count)
        return Components(loss, values, None, jnp.full(count, 1 / count, values.dtype))

    def predict(self, x: Any) -> Float[Array, " m"]:
        """Labels -1 and +1 of new points by the more probable class, or for a regression the mean.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one label or target for each point.
        """
        if self.model.loss.is_classifier:
            return as_predictions(self.model.loss, self.probability(x) - 0.5)
        return self.latent(x)[0]

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

    def _latent_draws(self, x) -> Float[Array, "k m"]:
        features, residual = self._features(x)
        draws = self._draws()
        spread = _spread(len(draws)).astype(draws.dtype)
        return draws @ features.T + spread[:, None] * jnp.sqrt(residual)[None, :]

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

"""A Gaussian posterior of the latent function: what mean field and expectation propagation give back."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._errors import as_points, is_traced
from .._fit import as_predictions
from .._machine import KernelMachine
from .._parameters import unfreeze
from .._programs import jit
from .._results import RESULTS, raise_on_failure
from .._roots import safe_root
from ._averages import averaged


class LeftOut(NamedTuple):
    """What is predicted of each example from all the others.

    `mean` and `variance` of its latent value, and `log_probability`, the logarithm of the probability of
    its label.
    """

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    log_probability: Float[Array, " n"]


class AbstractGaussianPosterior(eqx.Module):
    """The latent function as a Gaussian process, of which each example has been a noisy measurement.

    Its mean is `sum_i dual_i k(x, x_i)`, its variance `k(x, x) - k' response k` with k the covariances of x
    and the examples: `dual` and `response` are all that predictions need. `mean` and `variance` are those
    at the examples; `left_out` is what is predicted of each of them from the others. `result` is a code of
    `jaxsvm.RESULTS`, `iterations` and `residual` tell how the fixed point was reached. `model`, `x`, `y`
    and `weights` are whose posterior it is.
    """

    model: KernelMachine
    x: Float[Array, "n d"]
    y: Float[Array, " n"]
    weights: Float[Array, " n"]
    dual: Float[Array, " n"]
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    response: Float[Array, "n n"]
    left_out: LeftOut
    result: Int[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]

    def decision(self, x: Any) -> Float[Array, " m"]:
        """The posterior mean of the latent function at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one value for each point.
        """
        return self.latent(x)[0]

    def latent(self, x: Any) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Mean and standard deviation of the latent function at new points.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** two vectors, one entry for each point.
        """
        points = as_points(x, self.x).astype(self.x.dtype)
        return _latent(unfreeze(self.model.kernel), self.x, points, self.dual, self.response)

    def predict(self, x: Any) -> Float[Array, " m"]:
        """Labels -1 and +1 of new points: the signs of the posterior mean.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one label for each point.
        """
        return as_predictions(self.model.loss, self.decision(x))

    def probability(self, x: Any) -> Float[Array, " m"]:
        """`P(y = +1)` of new points: the likelihood averaged over the posterior of the latent function.

        Above one half where the posterior mean is positive. Of a likelihood that is not normalized by
        itself (logistic with `C` other than one) it is the ratio of the averages of both labels.

        **Arguments:** `x`, a matrix with one row for each point.

        **Returns:** one probability for each point.
        """
        return _probability(unfreeze(self.model.loss), *self.latent(x))

    @property
    def message(self) -> str:
        """What `result` means; for a batch, the meaning of its worst member."""
        return RESULTS(int(np.max(np.asarray(self.result)))).message


def check_offset(model: KernelMachine) -> None:
    """Raise if the model has a free offset, which has no prior."""
    if model.offset:
        raise ValueError(
            "a Gaussian process has no free, unpenalized offset: use `offset=False` and add a `Constant` "
            "kernel, whose variance is that of the offset"
        )


def check_tolerance(tolerance: Any) -> None:
    """Raise unless the tolerance is None, for the default, or a share: one would accept a start at zero."""
    if tolerance is None or is_traced(tolerance):
        return
    if not 0 <= tolerance < 1:
        raise ValueError(
            f"`tolerance` must be at least zero and less than one, for it is relative, but is {tolerance}"
        )


def variances(gram: Float[Array, "n n"], response: Float[Array, "n n"]) -> Float[Array, " n"]:
    """The diagonal of `K - K response K`, none of it negative."""
    return jnp.maximum(jnp.diag(gram) - jnp.sum((gram @ response) * gram, axis=1), 0)


def raise_if_failed(posterior, throw: bool):
    """The posterior as it is, with its own model; or an error if the fixed point was not reached."""
    if not throw:
        return posterior

    def details():
        return (
            f" (residual {float(posterior.residual):.1e} after {int(posterior.iterations)} iterations; "
            "`throw=False` returns the posterior all the same)"
        )

    dual = raise_on_failure(posterior.dual, posterior.result, details)
    return eqx.tree_at(lambda tree: tree.dual, posterior, dual)


@jit
def _latent(kernel, known, x, dual, response):
    cross = kernel.matrix(x, known, same=False)
    variance = kernel.diagonal(x) - jnp.sum((cross @ response) * cross, axis=1)
    return cross @ dual, safe_root(variance)


@jit
def _probability(loss, mean, deviation):
    one = jnp.ones_like(mean)
    yes, no = (averaged(loss, label, mean, deviation**2).log_value for label in (one, -one))
    return jax.nn.sigmoid(yes - no)

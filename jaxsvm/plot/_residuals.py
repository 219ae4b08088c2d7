"""Residuals, and the noise density that the loss implies."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes

from ..calibration import as_posterior
from ..posteriors import AbstractPosterior, Components, require_known_noise
from ..runtime import jit
from ..validation import as_targets, check_count
from ._figure import one_axes

_RESOLUTION = 401  # odd, so that it includes a peak at zero


def residuals(
    posterior: AbstractPosterior, x: Any, y: Any, *, bins: int | None = None, ax: Any = None
) -> Axes:
    """Draw a histogram of residuals `y - mean`, with the density of the noise and a Gaussian.

    Everything is in units of the standard deviation of the noise, so that shapes can be compared. The
    density of the noise is proportional to `exp(-L)`: [CKO04, eqs. 14-15]. Residuals at new points are wider
    than the noise, because the latent function is uncertain; residuals of the training data are narrower.

    **Arguments:**

    - `posterior`: the posterior of a regression, from `jaxsvm.laplace` or `jaxsvm.sample`.
    - `x`, `y`: points, one row each, and their targets.
    - `bins`: the number of bins; by default `3 n^(1/3)` for n points.
    - `ax`: the Axes to draw in; by default, those of a new figure.

    **Returns:** the Axes.
    """
    if bins is not None:
        check_count("bins", bins)
    require_known_noise(as_posterior(posterior).loss)
    parts = posterior.components(x)
    targets = np.asarray(as_targets(y, parts.mean.shape[0], labels=False))
    deviation = float(_deviation(parts))
    scaled = (targets - np.asarray(parts.mean)) / deviation
    farthest = float(np.abs(scaled).max()) or 1.0
    count = int(np.ceil(3 * np.cbrt(len(scaled)))) if bins is None else int(bins)

    reach = max(1.05 * farthest, 4.0)
    ticks = np.linspace(-reach, reach, _RESOLUTION)
    noise = deviation * np.asarray(_density(parts, jnp.asarray(deviation * ticks)))

    ax = one_axes(ax)
    edges = np.linspace(-farthest, farthest, count + 1)
    ax.hist(
        scaled,
        edges.tolist(),
        density=True,
        color="C0",
        alpha=0.35,
        edgecolor="white",
        linewidth=0.6,
        label=f"{len(scaled)} residuals",
    )
    ax.plot(
        ticks, noise, color="C0", linewidth=1.6, label=f"noise of {type(parts.losses).__name__}"
    )
    gaussian = np.exp(-(ticks**2) / 2) / np.sqrt(2 * np.pi)
    ax.plot(ticks, gaussian, color="0.4", linestyle="--", linewidth=1, label="Gaussian")
    ax.set(xlim=(-reach, reach), xlabel="residual / standard deviation of the noise")
    ax.set(ylim=(0, None), ylabel="density")
    ax.legend(fontsize="small", loc="upper right")
    return ax


@jit
def _deviation(parts: Components) -> Float[Array, ""]:
    """The standard deviation of the noise, averaged over all machines."""
    return jnp.sqrt(parts.shares @ jax.vmap(lambda loss: loss.noise_variance)(parts.losses))


@jit
def _density(parts: Components, sizes: Float[Array, " t"]) -> Float[Array, " t"]:
    """The density of noise of these sizes, averaged over all machines."""
    sizes = sizes.astype(parts.means.dtype)
    logs = jax.vmap(lambda loss: loss.log_likelihood(sizes, jnp.zeros_like(sizes)))(parts.losses)
    return parts.shares @ jnp.exp(logs)

"""R-hat and effective numbers of draws, by ranks.

Vehtari, Gelman, Simpson, Carpenter and Buerkner, "Rank-normalization, folding, and localization: an
improved R-hat for assessing convergence of MCMC", 2021. On the host: sorting is all there is to it.
"""

import numpy as np


def rhat(draws: np.ndarray) -> float:
    """The larger of the split R-hats of ranks and folded ranks, of draws of shape (chains, draws)."""
    split = _split(draws)
    folded = np.abs(split - np.median(split))
    return max(_plain_rhat(_normalize(split)), _plain_rhat(_normalize(folded)))


def ess_bulk(draws: np.ndarray) -> float:
    """The effective number of draws for the middle of the distribution."""
    return _ess(_normalize(_split(draws)))


def ess_tail(draws: np.ndarray) -> float:
    """The effective number of draws for its 5 % and 95 % quantiles, the smaller of the two."""
    split = _split(draws)
    return min(_ess((split <= np.quantile(split, q)).astype(float)) for q in (0.05, 0.95))


def _split(draws):
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _normalize(draws):
    from scipy.special import ndtri  # here: it takes a third of a second to import

    _, places, counts = np.unique(draws, return_inverse=True, return_counts=True)
    means = np.cumsum(counts) - (counts - 1) / 2  # equal draws share the mean of their ranks
    ranks = means[places].reshape(draws.shape)
    return ndtri((ranks - 0.375) / (draws.size + 0.25))


def _plain_rhat(draws):
    within = np.mean(np.var(draws, axis=1, ddof=1))
    between = np.var(np.mean(draws, axis=1), ddof=1)
    count = draws.shape[1]
    with np.errstate(all="ignore"):
        return float(np.sqrt(((count - 1) / count * within + between) / within))


def _ess(draws):
    """Geyer's initial monotone sequence of the autocorrelations of all chains together."""
    chains, count = draws.shape
    covariances = _autocovariances(draws)
    within = np.mean(covariances[:, 0]) * count / (count - 1)
    total = within * (count - 1) / count + np.var(np.mean(draws, axis=1), ddof=1)
    if not total > 0:
        return float("nan")
    correlations = 1 - (within - np.mean(covariances, axis=0)) / total
    correlations[0] = 1.0
    pairs = correlations[: count // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    end = negative[0] if negative.size else len(pairs)
    pairs = np.minimum.accumulate(pairs[:end])
    time = -1 + 2 * np.sum(pairs)
    # the first term that was cut off still counts where it is positive
    if 2 * end < count and end > 0:
        time += max(correlations[2 * end], 0.0)
    size = chains * count
    return float(size / max(time, 1 / np.log10(size)))


def _autocovariances(draws):
    count = draws.shape[1]
    centered = draws - np.mean(draws, axis=1, keepdims=True)
    length = 2 ** int(np.ceil(np.log2(2 * count)))
    spectrum = np.fft.rfft(centered, length, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, length, axis=1)[:, :count] / count

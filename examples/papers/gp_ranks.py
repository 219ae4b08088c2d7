"""Compare classifiers over several data sets: mean ranks, signed ranks, z statistics, and a plot.

[CT07, sec. 3]; Demsar, "Statistical comparisons of classifiers over multiple data sets". Smaller scores are
better.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

Scores = Mapping[str, Mapping[str, Mapping[int, float]]]  # by method, set and partition
ENOUGH = 5  # partitions; with fewer the standard error is itself uncertain


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error, NaN for a single value."""
    spread = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(spread)


def cell(values: Sequence[float], digits: int) -> str:
    """A mean and its standard error; a dash for the error of fewer than five values."""
    mean, spread = mean_and_error(values)
    return f"{mean:.{digits}f} ± " + ("-" if len(values) < ENOUGH else f"{spread:.{digits}f}")


def shared(*rows: Iterable[int]) -> list[int]:
    """The partitions that occur in all rows, in order."""
    return sorted(set.intersection(*(set(row) for row in rows)))


def means(scores: Scores, sets: Sequence[str]) -> np.ndarray:
    """Mean scores, one row for each method and one column for each set."""
    return np.array([[np.mean(list(scores[m][n].values())) for n in sets] for m in scores])


def mean_ranks(scores: Scores, sets: Sequence[str]) -> dict[str, float]:
    """The rank of each method among all, averaged over the sets; ties share their ranks."""
    ranks = stats.rankdata(means(scores, sets), axis=0)
    return {m: float(r) for m, r in zip(scores, ranks.mean(axis=1), strict=True)}


def z_statistic(first: Sequence[float], second: Sequence[float]) -> float:
    """The difference of the means in combined standard errors, positive if the first is better."""
    (x, e_x), (y, e_y) = mean_and_error(first), mean_and_error(second)
    return (y - x) / np.hypot(e_x, e_y) if np.hypot(e_x, e_y) > 0 else 0.0


def critical_difference(methods: int, sets: int) -> float:
    """Nemenyi's critical difference of two mean ranks at the 95 % level."""
    quantile = stats.studentized_range.ppf(0.95, methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6 * sets)))


def table(scores: Scores, sets: Sequence[str], digits: int) -> str:
    """Means and standard errors of each method on each set, their mean, and the mean rank."""
    lines = [
        "| set | partitions | " + " | ".join(scores) + " |",
        "|---|---|" + "---|" * len(scores),
    ]
    for name in sets:
        rows = [list(scores[method][name].values()) for method in scores]
        cells = " | ".join(cell(row, digits) for row in rows)
        lines.append(f"| {name} | {len(rows[0])} | {cells} |")
    averages = means(scores, sets).mean(axis=1)
    lines.append("| mean | | " + " | ".join(f"{a:.{digits}f}" for a in averages) + " |")
    ranks = mean_ranks(scores, sets)
    lines.append("| mean rank | | " + " | ".join(f"{r:.1f}" for r in ranks.values()) + " |")
    return "\n".join(lines)


def comparisons(scores: Scores) -> str:
    """For each pair: on how many sets one is better or worse by z > 1.64, and p of the signed ranks.

    On the partitions that both have. Sets with less than five of them have no z; a dash if no set has one.
    """
    lines = ["| | " + " | ".join(scores) + " |", "|---|" + "---|" * len(scores)]
    for row in scores:
        cells = [
            "" if row == column else _compare(scores[row], scores[column]) for column in scores
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _compare(
    first: Mapping[str, Mapping[int, float]], second: Mapping[str, Mapping[int, float]]
) -> str:
    pairs: list[list[list[float]]] = []
    for name in first:
        partitions = shared(first[name], second.get(name, {}))
        pairs.append(
            [[scores[name][p] for p in partitions] for scores in (first, second) if partitions]
        )
    pairs = [pair for pair in pairs if pair]
    z = np.array([z_statistic(*pair) for pair in pairs if len(pair[0]) >= ENOUGH])
    counts = f"{np.sum(z > 1.64)} / {np.sum(z < -1.64)}" if len(z) else "-"
    difference = np.array([np.mean(one) - np.mean(other) for one, other in pairs])
    signed_ranks: Any = stats.wilcoxon  # its types lack the result
    p = signed_ranks(difference).pvalue if np.any(difference != 0) else 1.0
    return f"{counts}, {p:.2f}"


def groups(ranks: dict[str, float], difference: float) -> list[tuple[float, float]]:
    """First and last rank of each largest group in which no two ranks are further apart than that."""
    ordered = sorted(ranks.values())
    found: list[tuple[float, float]] = []
    for low in ordered:
        high = max(r for r in ordered if r <= low + difference)
        if high > low and (not found or high > found[-1][1]):
            found.append((low, high))
    return found


def draw(ranks: dict[str, float], difference: float, path: Path) -> None:
    """The critical-difference plot: mean ranks on a line, bars under methods that do not differ."""
    from matplotlib import pyplot

    ordered = sorted(ranks.items(), key=lambda item: item[1])
    half = (len(ordered) + 1) // 2
    bars = groups(ranks, difference)
    figure, axes = pyplot.subplots(figsize=(8, 0.34 * half + 1.2), layout="constrained")
    top = len(ordered)
    axes.hlines(0, 1, top, color="black")
    for tick in range(1, top + 1):
        axes.vlines(tick, 0, 0.15, color="black")
        axes.text(tick, 0.25, str(tick), ha="center", va="bottom", fontsize=8)
    lowest = -0.35 * len(bars) - 0.5
    for i, (name, rank) in enumerate(ordered):
        left = i < half
        level = lowest - 0.8 * (i if left else top - 1 - i)
        side = 0.6 if left else top + 0.4
        axes.plot([rank, rank, side], [0, level, level], color="0.4", linewidth=0.8)
        label = f"{name} ({rank:.1f})"
        axes.text(
            side, level, f" {label} ", ha="right" if left else "left", va="center", fontsize=8
        )
    for i, (low, high) in enumerate(bars):
        axes.hlines(-0.35 * (i + 1), low - 0.05, high + 0.05, color="black", linewidth=3)
    axes.hlines(1.4, 1, 1 + difference, color="black", linewidth=1.5)
    axes.text(
        1 + difference / 2, 1.5, f"critical difference {difference:.2f}", ha="center", fontsize=8
    )
    axes.set(xlim=(-2.5, top + 3.5), ylim=(lowest - 0.8 * half - 0.3, 2.3))
    axes.axis("off")
    figure.savefig(path, dpi=100)
    pyplot.close(figure)

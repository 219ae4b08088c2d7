"""The HTML report of `jaxsvm tune`: one file with its pictures inside."""

import base64
import html
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..persistence import write_whole
from ._cells import DataError, shown
from ._model import SavedModel, relevant_inputs
from ._show import described

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise DataError("a report needs matplotlib: pip install 'jaxsvm[plot]'") from error

_LONGEST_NAME = 40
_STYLE = """
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse } td, th { padding: 0.2em 1em 0.2em 0; text-align: left }
pre { background: #f5f5f5; padding: 1em; overflow-x: auto } img { max-width: 100% }
"""


def write(path: Path, model: SavedModel, x: np.ndarray, y: np.ndarray) -> None:
    """Write the report of a model and the rows that were held out."""
    pictures = [_relevance(model), _search(model)]
    pictures += [_reliability(model, x, y)] if model.is_classifier else [_predictions(model, x, y)]
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
        for name, text in model.measured.items()
    )
    title = html.escape(f"{shown(model.target)}: {type(model.estimator).__name__}")
    images = "".join(_image(*picture) for picture in pictures if picture is not None)
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1><table>{rows}</table>{images}"
        f"<h2>Everything else</h2><pre>{html.escape(described(model))}</pre></body></html>\n"
    )
    write_whole(path, page.encode())


def _image(title: str, text: str, figure: Figure) -> str:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of letters that the font does not have
        figure.savefig(stream, format="png", dpi=110)
    data = base64.b64encode(stream.getvalue()).decode()
    alternative = html.escape(title, quote=True)
    return (
        f"<h2>{html.escape(title)}</h2><p>{html.escape(text)}</p>"
        f'<img alt="{alternative}" src="data:image/png;base64,{data}">'
    )


def _axes(width: float = 6.0, height: float = 3.6) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _short(name: str) -> str:
    """A name that leaves room for the picture, in which it stands as it is: `$` begins no formula."""
    name = shown(name)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _relevance(model: SavedModel):
    found = relevant_inputs(model)[:20]
    if not found or all(relevance == 1 for _, relevance in found):
        return None
    figure, axes = _axes(height=0.6 + 0.28 * len(found))
    names, values = zip(*reversed(found), strict=True)
    axes.barh(range(len(names)), values)
    axes.set_yticks(range(len(names)), [_short(name) for name in names], parse_math=False)
    axes.set_xlabel("1 / lengthscale², largest = 1")
    return "Which inputs matter", "How quickly the prediction changes with each input.", figure


def _search(model: SavedModel):
    history = model.estimator.history_
    histories = history if isinstance(history, list) else [history]
    figure, axes = _axes()
    sampled = not hasattr(histories[0], "value")
    for one in histories:
        for row in np.atleast_2d(np.asarray(one.magnitude if sampled else one.value)):
            row = row[np.isfinite(row)]
            axes.plot(np.arange(1, len(row) + 1), row)
    axes.set_xlabel("step")
    axes.set_ylabel("mean magnitude of the gradient" if sampled else "criterion")
    return "The search", "What was minimized, at each step of each search.", figure


def _reliability(model: SavedModel, x, y):
    p = model.estimator.predict_proba(x)
    certain = p.max(axis=1)
    right = model.estimator.classes_[np.argmax(p, axis=1)] == y
    edges = np.quantile(certain, np.linspace(0, 1, min(11, 1 + max(1, len(y) // 20))))
    places = np.clip(np.searchsorted(edges, certain, side="right") - 1, 0, len(edges) - 2)
    figure, axes = _axes(4.5, 4.5)
    axes.plot([0, 1], [0, 1], color="0.7")
    for place in np.unique(places):
        chosen = places == place
        share = right[chosen].mean()
        error = np.sqrt(max(share * (1 - share), 1 / 12) / chosen.sum())
        axes.errorbar(certain[chosen].mean(), share, error, fmt="o", color="C0")
    lowest = max(0.0, certain.min() - 0.05)
    axes.set(xlabel="probability of the predicted class", ylabel="share that is right")
    axes.set_xlim(lowest, 1.02)
    text = "Of rows held out, by how certain the prediction is; on the line, certainty is right."
    return "Can its probabilities be trusted?", text, figure


def _predictions(model: SavedModel, x, y):
    mean, deviation = model.estimator.predict(x, return_std=True)
    figure, axes = _axes(5, 5)
    axes.errorbar(mean, y, xerr=deviation, fmt="o", markersize=3, alpha=0.5, elinewidth=0.5)
    ends = [min(mean.min(), y.min()), max(mean.max(), y.max())]
    axes.plot(ends, ends, color="0.5")
    axes.set_xlabel("predicted, ± one standard deviation")
    axes.set_ylabel(_short(model.target), parse_math=False)
    return "Predictions of rows held out", "On the line, predictions are right.", figure

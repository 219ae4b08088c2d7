"""The HTML report of `jaxsvm tune`: a single file that includes its plots."""

import base64
import html
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..persistence import write_whole
from ._model import SavedModel, described
from ._table import DataError, printable

try:
    from matplotlib.figure import Figure

    from .. import plot
except ImportError as error:
    raise DataError("a report needs matplotlib: pip install 'jaxsvm[plot]'") from error

_MAX_NAME = 40  # characters
_STYLE = """
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse } td, th { padding: 0.2em 1em 0.2em 0; text-align: left }
pre { background: #f5f5f5; padding: 1em; overflow-x: auto } img { max-width: 100% }
"""


def write(path: Path, model: SavedModel, x: np.ndarray, y: np.ndarray) -> None:
    """Write the report on a model and the held-out rows."""
    pictures = [_relevance(model), _search(model)]
    pictures += [_reliability(model, x, y)] if model.is_classifier else [_predictions(model, x, y)]
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
        for name, text in model.measured.items()
    )
    title = html.escape(f"{printable(model.target)}: {type(model.estimator).__name__}")
    images = "".join(_image(*picture) for picture in pictures if picture is not None)
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1><table>{rows}</table>{images}"
        f"<h2>Details</h2><pre>{html.escape(described(model))}</pre></body></html>\n"
    )
    write_whole(path, page.encode())


def _image(title: str, text: str, figure: Figure) -> str:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the font may lack a character
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
    """A name that leaves room for the plot; `$` is escaped, since matplotlib takes it as a formula."""
    name = printable(name)
    name = name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
    return name.replace("$", r"\$")


def _relevance(model: SavedModel):
    relevances = model.relevances[:20]
    if not relevances or all(relevance == 1 for _, relevance in relevances):
        return None
    figure, axes = _axes(height=0.6 + 0.28 * len(relevances))
    names, values = zip(*relevances, strict=True)
    plot.relevance_bars(values, [_short(name) for name in names], ax=axes)
    return "Relevance of the inputs", "How quickly the prediction changes with each input.", figure


def _search(model: SavedModel):
    history = model.estimator.history_
    figure, axes = _axes()
    names = None
    if isinstance(history, list):  # one search for each class
        names = [_short(str(label)) for label in model.estimator.classes_]
    plot.progress(history, names, ax=axes)
    return "The search", "The criterion that was minimized, at each step of each search.", figure


def _reliability(model: SavedModel, x, y):
    p = model.estimator.predict_proba(x)
    is_right = model.estimator.classes_[np.argmax(p, axis=1)] == y
    figure, axes = _axes(4.5, 4.5)
    plot.reliability(np.where(is_right, 1, -1), p.max(axis=1), ax=axes)
    axes.set(xlabel="probability of the predicted class", ylabel="fraction correct")
    text = "Held-out rows, grouped by the probability of the predicted class. On the diagonal, it is right."
    return "Are the probabilities reliable?", text, figure


def _predictions(model: SavedModel, x, y):
    mean, deviation = model.estimator.predict(x, return_std=True)
    figure, axes = _axes(5, 5)
    plot.agreement(y, mean, deviation, ax=axes)
    axes.set_ylabel(_short(model.target))
    return "Predictions for held-out rows", "Points on the diagonal are predicted exactly.", figure

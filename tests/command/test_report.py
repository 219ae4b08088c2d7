"""The report of `jaxsvm tune`, with names that matplotlib or HTML would interpret."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from jaxsvm.command import _report
from jaxsvm.command._model import SavedModel

ODD = ["$a", "$\\frac{$", "x_^", "a\nb\x1b[31m", "<b>&", "x" * 500, "温度", ""]


class Regressor:
    """The part of an estimator that a report needs."""

    def predict(self, x, return_std=False):
        return x[:, 0], np.full(len(x), 0.1)


@pytest.mark.parametrize("name", ODD)
def test_names_are_drawn_as_they_are(name, monkeypatch):
    relevances = [(name, 1.0), ("b", 0.5), (name, 0.25)]  # a level may have the name of a column
    monkeypatch.setattr(SavedModel, "relevances", relevances)
    x = np.arange(6.0)[:, None]
    model = SavedModel(Regressor(), [], name, {})
    for picture in (_report._relevance(model), _report._predictions(model, x, x[:, 0])):
        assert picture is not None
        page = _report._image(*picture)
        assert page.count("data:image/png;base64,") == 1
    (axes,) = _report._relevance(model)[2].axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        _report._short(name), "b", _report._short(name),
    ]  # fmt: skip
    assert len(axes.patches) == 3

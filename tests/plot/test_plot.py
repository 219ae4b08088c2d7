"""What the plots draw, and what they say to wrong input."""

import dataclasses
import importlib
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import RESULTS, criteria, kernels, losses

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402, after the choice of a backend
from matplotlib.contour import ContourSet  # noqa: E402

from jaxsvm import plot  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = np.where(X[:, 0] + 0.5 * RNG.normal(size=40) > 0, 1.0, -1.0)
TRAIN, TEST = (X[:20], Y[:20]), (X[20:], Y[20:])
MODEL = jsvm.KernelMachine(
    kernels.RBF(jnp.array([1.0, 2.0, 4.0])) + kernels.Constant(0.1), losses.LeastSquares()
)
PRESS = criteria.PRESS()


@pytest.fixture(autouse=True)
def close_figures():
    """Each test ends with no figure open."""
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def selection():
    model = jsvm.freeze(MODEL, "kernel.right")
    steps = jnp.array([0.0, -1.0, 1.5])
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf + step for step in steps]), model)
    return jsvm.select(model, *TRAIN, PRESS, restarts=3, starts=starts, max_steps=10, test=TEST)


@pytest.fixture(scope="module")
def hinge_fit():
    machine = jsvm.KernelMachine(MODEL.kernel, losses.Hinge(1.0))
    return jsvm.fit(machine, *TRAIN)


def with_history(selection, **changes):
    history = dataclasses.replace(selection.history, **changes)
    return dataclasses.replace(selection, history=history)


def titles(axes, place="center"):
    return [ax.get_title(place) for ax in axes]


def test_history(selection):
    axes = plot.history(selection)
    best, record = selection.best, selection.history
    steps = int(record.steps[best])
    names = ["kernel.left.lengthscale", "kernel.left.variance", "loss.C"]
    assert titles(axes) == [*names, "criterion", "gradient norm", "error (%)"]
    assert [ax.get_yscale() for ax in axes] == ["log"] * 3 + ["linear", "log", "linear"]
    assert [len(ax.lines) for ax in axes] == [3, 1, 1, 2, 1, 1]
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["0", "1", "2"]
    drawn = [ax.lines[0].get_ydata() for ax in axes]
    expected = [
        record.parameters[names[0]][best, :, 0],
        record.parameters[names[1]][best],
        record.parameters[names[2]][best],
        record.value[best],
        record.gradient_norm[best],
        100 * record.test_error[best],
    ]
    for line, values in zip(drawn, expected, strict=True):
        np.testing.assert_array_equal(line, np.asarray(values)[:steps])
    np.testing.assert_array_equal(axes[3].lines[0].get_xdata(), np.arange(steps))
    assert axes[3].lines[1].get_ydata() == [selection.value]  # the end point
    axes[0].figure.canvas.draw()


def test_history_with_other_criteria(selection):
    axes = plot.history(selection, names="loss.C", others={"LOO": criteria.LeaveOneOut("squared")})
    assert titles(axes)[:3] == ["loss.C", "criterion", "LOO"]
    # PRESS is half the sum of what the other is the mean of
    drawn = [ax.lines[0].get_ydata() for ax in axes[1:3]]
    np.testing.assert_allclose(10 * drawn[1], drawn[0], rtol=1e-6)
    np.testing.assert_allclose(10 * axes[2].lines[1].get_ydata(), selection.value, rtol=1e-6)
    other = (selection.best + 1) % 3
    values = selection.along(PRESS, other)
    length = int(selection.history.steps[other])
    np.testing.assert_allclose(values, selection.history.value[other, :length], rtol=1e-8)


def test_history_of_one_start_and_of_all(selection):
    record = selection.history
    other = (selection.best + 1) % 3
    axes = plot.history(selection, other, "loss")
    assert titles(axes)[:2] == ["loss.C", "criterion"]
    drawn = axes[1].lines[0].get_ydata()
    np.testing.assert_array_equal(drawn, record.value[other, : record.steps[other]])
    lines = plot.history(selection, "all", "loss.C")[1].lines
    assert len(lines) == 4 and lines[0].get_linewidth() < lines[2].get_linewidth()
    np.testing.assert_array_equal(lines[2].get_ydata()[0], record.value[selection.best, 0])


def test_history_of_many_lengthscales(selection):
    shape = (*selection.history.value.shape, 20)
    many = {"kernel.left.lengthscale": jnp.ones(shape)}
    changed = with_history(selection, parameters=many)
    legend = plot.history(changed)[0].get_legend()
    assert len(legend.get_texts()) == 6 and legend.get_title().get_text() == "6 of 20"


def test_history_without_gradients_and_errors(selection):
    nothing = jnp.full_like(selection.history.gradient_norm, jnp.nan)
    changed = with_history(selection, gradient_norm=nothing, test_error=None)
    figure, axes = pyplot.subplots(2)
    drawn = plot.history(changed, names=["loss.C"], axes=axes)
    assert titles(drawn) == ["loss.C", "criterion"] and list(drawn) == list(axes)
    assert pyplot.get_fignums() == [figure.number]
    both = with_history(selection, validation_error=selection.history.test_error)
    legend = plot.history(both)[-1].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["test", "validation"]


def test_history_says_what_is_wrong(selection):
    with pytest.raises(TypeError, match=r"the result of `jaxsvm.select`, not a KernelMachine"):
        plot.history(MODEL)
    for start in (3, -1, 1.5, True):
        with pytest.raises(ValueError, match="number of a start, from 0 to 2"):
            plot.history(selection, start)
    with pytest.raises(ValueError, match='"all" or None'):
        plot.history(selection, "best")
    with pytest.raises(ValueError, match="no parameter `C`"):
        plot.history(selection, names=["C"])
    with pytest.raises(ValueError, match=r"`kernel.right.variance` is frozen"):
        plot.history(selection, names=["loss.C", "kernel.right.variance"])
    ax = pyplot.figure().subplots()
    with pytest.raises(ValueError, match=r"1 Axes, but there are 4 panels: loss.C, criterion"):
        plot.history(selection, names="loss.C", axes=[ax])
    with pytest.raises(TypeError, match="`axes` must be the Axes"):
        plot.history(selection, axes="here")
    empty = with_history(selection, steps=jnp.zeros(3, int))
    with pytest.raises(ValueError, match="start 0 failed before its first step"):
        plot.history(empty, 0)


def heights(ax):
    """Left end of each bar -> its height."""
    return {round(bar.get_x(), 6): bar.get_height() for bar in ax.patches}


def test_error_histogram():
    errors = {"first": [0.0, 0.06, 0.0599, 0.14, np.nan], "second": np.array([0.29])}
    first, second = plot.error_histogram(errors)
    assert heights(first) == {0: 1, 4: 1, 6: 1, 14: 1}  # 0.06 begins a bin, despite rounding
    assert heights(second) == {28: 1}
    assert titles([first, second], "left") == ["first (4 trials)", "second (1 trial)"]
    assert first.get_xlim() == second.get_xlim()
    assert second.get_xlabel() == "test error (%)"
    (ax,) = plot.error_histogram({"a": [0.11, 0.14]}, bin_width=0.1, labels=["b"])
    assert heights(ax) == {10: 2} and ax.get_title("left") == "b (2 trials)"


@pytest.mark.usefixtures("wrong_arrays")
def test_error_histogram_of_a_selection(selection):
    errors = jnp.array([[0.5, 0.1, jnp.nan], [0.5, 0.4, 0.3], [0.5, 0.2, 0.2]])
    codes = jnp.array([RESULTS.successful, RESULTS.nonfinite, RESULTS.iteration_limit])
    changed = dataclasses.replace(selection, results=codes)
    changed = with_history(changed, test_error=errors, end=jnp.array([1, 2, 1]))
    (ax,) = plot.error_histogram(changed, bin_width=0.05)
    assert heights(ax) == {10: 1, 20: 1}  # of the usable starts, at their end points
    first, second = plot.error_histogram({"a": changed, "b": [0.1]}, bin_width=0.05)
    assert heights(first) == heights(ax) and heights(second) == {10: 1}


def test_error_histogram_says_what_is_wrong(selection):
    for errors in ([0.1, 0.2], {}):
        with pytest.raises(TypeError, match="mapping from labels to test errors"):
            plot.error_histogram(errors)
    with pytest.raises(ValueError, match="divide percentages by 100"):
        plot.error_histogram({"a": [3.0, 12.0]})
    with pytest.raises(ValueError, match="'a' has no test errors other than NaN"):
        plot.error_histogram({"a": [np.nan]})
    with pytest.raises(TypeError, match="'a' must be numbers"):
        plot.error_histogram({"a": ["much"]})
    with pytest.raises(ValueError, match="`bin_width`"):
        plot.error_histogram({"a": [0.1]}, bin_width=0.0)
    with pytest.raises(ValueError, match="1 histograms, but 2 `labels`"):
        plot.error_histogram({"a": [0.1]}, labels=["a", "b"])
    with pytest.raises(ValueError, match="with `test=`"):
        plot.error_histogram(with_history(selection, test_error=None))
    regression = jsvm.KernelMachine(MODEL.kernel, losses.Quadratic())
    with pytest.raises(ValueError, match="of a regression"):
        plot.error_histogram(dataclasses.replace(selection, model=regression))


def test_criterion_along_a_selection(selection):
    ax, positions, values = plot.criterion_along(selection, PRESS, first=2, second=0, points=8)
    assert len(positions) == 8  # this grid meets both ends
    np.testing.assert_allclose(positions[[0, -1]], [-0.2, 1.2])
    np.testing.assert_allclose(values[positions == 0], selection.values[2], rtol=1e-9)
    np.testing.assert_allclose(values[positions == 1], selection.values[0], rtol=1e-9)
    ends = [jax.tree.map(lambda leaf, i=i: leaf[i], selection.models) for i in (2, 0)]
    middle = jax.tree.map(lambda a, b: a + positions[3] * (b - a), *ends)
    np.testing.assert_allclose(values[3], PRESS(middle, *TRAIN), rtol=1e-9)
    line, first, second = ax.lines
    np.testing.assert_array_equal(line.get_xydata(), np.stack([positions, values], axis=1))
    assert first.get_label() == "start 2" and first.get_xdata() == [0]
    assert second.get_label() == "start 0" and second.get_ydata() == values[positions == 1]
    assert ax.get_ylabel() == "PRESS"


def test_criterion_along_models_has_gaps():
    # frozen at different values; on the way to the second model the kernel overflows
    models = [jsvm.freeze(jsvm.replace(MODEL, {"loss.C": c}), "loss") for c in (1.0, 2.0)]
    models[1] = eqx.tree_at(lambda m: m.kernel.left.log_variance, models[1], jnp.asarray(800.0))
    figure, ax = pyplot.subplots()
    line = plot.criterion_along(models, PRESS, *TRAIN, points=8, ax=ax)
    assert line.ax is ax and [mark.get_label() for mark in ax.lines[1:]] == ["model 0", "model 1"]
    assert np.isfinite(line.values[line.positions < 0.8]).all()
    assert np.isnan(line.values[line.positions >= 1]).all()
    figure.canvas.draw()


def test_criterion_along_says_what_is_wrong(selection):
    with pytest.raises(TypeError, match=r"one of `jaxsvm.criteria`"):
        plot.criterion_along(selection, "PRESS")
    with pytest.raises(TypeError, match="`Selection` or a list of kernel machines"):
        plot.criterion_along(MODEL, PRESS, *TRAIN)
    with pytest.raises(ValueError, match="pass the data"):
        plot.criterion_along([MODEL, MODEL], PRESS)
    with pytest.raises(ValueError, match="`second` must be the number of a start, from 0 to 2"):
        plot.criterion_along(selection, PRESS, second=3)
    with pytest.raises(ValueError, match="the same start: 1"):
        plot.criterion_along(selection, PRESS, first=1, second=1)
    with pytest.raises(ValueError, match="only 1 model"):
        plot.criterion_along([MODEL], PRESS, *TRAIN)
    with pytest.raises(ValueError, match="`points`"):
        plot.criterion_along(selection, PRESS, points=1)
    for kernel in (kernels.RBF(1.0) + kernels.Constant(0.1), kernels.RBF(jnp.ones(3))):
        other = jsvm.KernelMachine(kernel, MODEL.loss)
        with pytest.raises(ValueError, match="the same structure"):
            plot.criterion_along([MODEL, other], PRESS, *TRAIN)


def bars(ax):
    labels = [text.get_text() for text in ax.get_yticklabels()]
    return dict(zip(labels, [bar.get_width() for bar in ax.patches], strict=True))


def test_relevance(selection):
    expected = {"input 0": 1.0, "input 1": 0.25, "input 2": 0.0625}
    assert bars(plot.relevance(MODEL)) == pytest.approx(expected)
    assert jsvm.relevance(MODEL) == pytest.approx([1.0, 0.25, 0.0625])
    # the first on top, sorted or not
    turned = jsvm.replace(MODEL, {"kernel.left.lengthscale": jnp.array([4.0, 1.0, 2.0])})
    ax = plot.relevance(turned, ["a", "b", "c"])
    assert list(bars(ax)) == ["b", "c", "a"] and ax.get_ylim()[0] > ax.get_ylim()[1]
    assert list(bars(plot.relevance(turned, ["a", "b", "c"], sort=False))) == ["a", "b", "c"]
    scales = np.asarray(selection.model.kernel.left.lengthscale)
    drawn = bars(plot.relevance(selection, sort=False))
    np.testing.assert_allclose(list(drawn.values()), scales**-2.0 / max(scales**-2.0))
    tiny = jsvm.replace(MODEL, {"kernel.left.lengthscale": jnp.array([1e-200, 1.0, 1e15])})
    assert list(bars(plot.relevance(tiny)).values()) == [1.0, 0.0, 0.0]


def test_relevance_of_an_ascent():
    ascent = jsvm.evidence_ascent(
        MODEL, X, Y, key=jax.random.key(0), approximation=jsvm.Exact(), max_steps=1, chains=2, draws=20,
        warmup=5, first_warmup=20,
    )  # fmt: skip
    np.testing.assert_array_equal(jsvm.relevance(ascent), jsvm.relevance(ascent.model))
    assert bars(plot.relevance(ascent)) == bars(plot.relevance(ascent.model))


def test_relevance_of_a_fit_with_several_lengthscales(hinge_fit):
    assert bars(plot.relevance(hinge_fit)) == bars(plot.relevance(MODEL))
    both = jsvm.KernelMachine(MODEL.kernel + kernels.Matern32(jnp.ones(3)), losses.Hinge())
    names = "kernel.left.left.lengthscale, kernel.right.lengthscale"
    with pytest.raises(ValueError, match=f"choose one of these with `parameter=`: {names}"):
        plot.relevance(both)
    drawn = bars(plot.relevance(both, parameter="kernel.right.lengthscale"))
    assert list(drawn.values()) == [1.0] * 3


def test_relevance_says_what_is_wrong():
    with pytest.raises(TypeError, match="not ndarray"):
        plot.relevance(np.ones(3))
    for kernel, what in ((kernels.RBF(1.0), "one lengthscale for all"), (kernels.Linear(), "no l")):
        with pytest.raises(ValueError, match=f"the model has {what}"):
            plot.relevance(jsvm.KernelMachine(kernel, losses.Hinge()))
    with pytest.raises(ValueError, match=r"not 'loss.C'; the model has: kernel.left.lengthscale"):
        plot.relevance(MODEL, parameter="loss.C")
    with pytest.raises(ValueError, match="`names` must hold 3 names"):
        plot.relevance(MODEL, ["a"])
    with pytest.raises(TypeError, match="`ax` must be the Axes"):
        plot.relevance(MODEL, ax=3)


def points_of(ax):
    """Label -> the points drawn under it."""
    contours = [c for c in ax.collections if isinstance(c, ContourSet)]
    scatters = [c for c in ax.collections if c not in contours]
    return {c.get_label(): np.asarray(c.get_offsets()) for c in scatters}


def lines_of(ax):
    filled, lines = [c for c in ax.collections if isinstance(c, ContourSet)]
    assert filled.filled and not lines.filled
    return lines


def test_decision_surface_of_a_fit(hinge_fit):
    ax = plot.decision_surface(hinge_fit, inputs=(2, 0), resolution=30)
    x, y = TRAIN
    free, bound = np.asarray(hinge_fit.free), np.asarray(hinge_fit.bound)
    assert free.any() and bound.any() and not (free | bound).all()
    drawn = points_of(ax)
    groups = {"class +1": y > 0, "class \N{MINUS SIGN}1": y < 0}
    groups |= {"free support vector": free, "bound support vector": bound}
    assert set(drawn) == set(groups)
    for label, group in groups.items():
        np.testing.assert_array_equal(drawn[label], x[group][:, [2, 0]])
    lines = lines_of(ax)
    assert set(lines.levels) <= {-1.0, 0.0, 1.0} and 0.0 in lines.levels
    # along the line of level 0 the decision is zero, with the other input at its mean
    path = lines.get_paths()[list(lines.levels).index(0.0)].vertices
    points = np.stack([path[:, 1], np.full(len(path), x[:, 1].mean()), path[:, 0]], axis=1)
    assert np.abs(hinge_fit.decision(points)).max() < 0.02
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("input 2", "input 0")
    ax.figure.canvas.draw()


def test_decision_surface_of_an_ensemble(selection):
    ensemble = selection.ensemble()
    ax = plot.decision_surface(ensemble, resolution=15)
    assert set(points_of(ax)) == {"class +1", "class \N{MINUS SIGN}1"}
    drawn = points_of(plot.decision_surface(ensemble, TEST[0], resolution=15))
    np.testing.assert_array_equal(drawn["points"], TEST[0][:, :2])
    drawn = points_of(plot.decision_surface(selection.fit(), *TEST, resolution=15))
    np.testing.assert_array_equal(drawn["class +1"], TEST[0][TEST[1] > 0][:, :2])
    # all examples of a least-squares machine are free
    assert len(points_of(plot.decision_surface(selection.fit(), resolution=15))) == 2


def test_decision_surface_without_lines(hinge_fit):
    flat = dataclasses.replace(hinge_fit, dual=jnp.zeros(20), offset=jnp.asarray(0.5))
    ax = plot.decision_surface(flat, resolution=5)
    assert [c.filled for c in ax.collections if isinstance(c, ContourSet)] == [True]


def test_decision_surface_says_what_is_wrong(hinge_fit):
    with pytest.raises(TypeError, match="a Fit or an Ensemble, not KernelMachine"):
        plot.decision_surface(MODEL)
    for inputs in ((0, 3), (0, -1), (0, 1.0)):
        with pytest.raises(ValueError, match="number of an input, from 0 to 2"):
            plot.decision_surface(hinge_fit, inputs=inputs)
    with pytest.raises(ValueError, match="two different inputs"):
        plot.decision_surface(hinge_fit, inputs=(1, 1))
    with pytest.raises(ValueError, match="numbers of two inputs"):
        plot.decision_surface(hinge_fit, inputs=(0, 1, 2))
    with pytest.raises(ValueError, match="`resolution`"):
        plot.decision_surface(hinge_fit, resolution=1)
    with pytest.raises(ValueError, match="fitted on 3 inputs, but `x` has 2"):
        plot.decision_surface(hinge_fit, X[:, :2])
    with pytest.raises(ValueError, match="`y` needs the points `x` as well"):
        plot.decision_surface(hinge_fit, y=Y)
    broken = dataclasses.replace(hinge_fit, dual=jnp.full(20, jnp.nan))
    with pytest.raises(ValueError, match="not finite"):
        plot.decision_surface(broken, resolution=5)
    narrow = dataclasses.replace(hinge_fit, x=hinge_fit.x[:, :1])
    with pytest.raises(ValueError, match="only one input"):
        plot.decision_surface(narrow)
    regression = jsvm.KernelMachine(MODEL.kernel, losses.Quadratic())
    with pytest.raises(ValueError, match="needs a classifier"):
        plot.decision_surface(dataclasses.replace(hinge_fit, model=regression))


def test_errors_leave_no_figure(selection, hinge_fit):
    assert not pyplot.get_fignums()
    with pytest.raises(ValueError):
        plot.relevance(MODEL, ["a"])
    with pytest.raises(ValueError):
        plot.history(selection, 7)
    with pytest.raises(ValueError):
        plot.decision_surface(hinge_fit, inputs=(0, 0))
    assert not pyplot.get_fignums()


def test_matplotlib_is_imported_by_plots_only():
    slow = "{'matplotlib', 'scipy.special', 'blackjax', 'sklearn'}"
    program = f"import sys, jaxsvm; assert not {slow} & set(sys.modules), set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_matplotlib(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("jaxsvm.plot")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "jaxsvm\[plot\]"'):
        importlib.import_module("jaxsvm.plot")


def test_an_ascent_beside_its_gradients():
    x, y = jsvm.datasets.noisy_xor(30, key=jax.random.key(0), inputs=2)
    kernel = kernels.RBF(jnp.ones(2)) + kernels.Constant(0.1)
    path = jsvm.evidence_ascent(
        jsvm.KernelMachine(kernel, losses.Hinge(1.0)), x, y, key=jax.random.key(0), chains=2,
        approximation=jsvm.Exact(), draws=10, warmup=3, first_warmup=6, max_steps=3,
        stop=jsvm.stopping.Settled(), test=(x, y), method=jsvm.sampling.HMC(),
    )  # fmt: skip
    panels = plot.ascent(path)
    assert len(panels) == 2 * 4 + 2
    lengthscale = np.asarray(path.history.parameters["kernel.left.lengthscale"])[0]
    np.testing.assert_allclose(panels[0].lines[1].get_ydata(), lengthscale[:, 1])
    gradient = np.asarray(path.history.gradient["kernel.left.lengthscale"])[0]
    np.testing.assert_allclose(panels[1].lines[0].get_ydata(), gradient[:, 0])
    errors = 100 * np.asarray(path.history.test_error)[0]
    np.testing.assert_allclose(panels[-1].lines[0].get_ydata(), errors)
    with pytest.raises(TypeError, match="must be the result of"):
        plot.ascent(path.model)


def test_progress_of_several_searches(selection):
    record = selection.history
    ax = plot.progress([record, record], ["one", "two"])
    assert len(ax.lines) == 2 * len(selection.results)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "two"]
    row = np.asarray(record.value)[0]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), row[np.isfinite(row)])
    assert len(plot.progress(record).lines) == len(selection.results)
    for wrong in (selection, [], [record, 1]):
        with pytest.raises(TypeError, match="the history of a search"):
            plot.progress(wrong)
    with pytest.raises(ValueError, match="2 histories, but 1 `names`"):
        plot.progress([record, record], ["one"])


def test_relevances_that_are_known_already():
    ax = plot.relevance_bars([0.5, 1.0], ["a", "b"])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b", "a"]
    with pytest.raises(ValueError, match="`names` must hold 2 names"):
        plot.relevance_bars([0.5, 1.0], ["a"])

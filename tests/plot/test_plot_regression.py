"""What the plots of regressions draw, against the posterior they are of."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import jaxsvm as jsvm
from jaxsvm import calibration, kernels, losses
from jaxsvm.approximations import LandmarkSubspace

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402, after the choice of a backend

from jaxsvm import plot  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.uniform(-4, 4, size=(40, 1))
Y = np.sin(X[:, 0]) + 0.2 * RNG.laplace(size=40)
NEW_X = RNG.uniform(-4, 4, size=(40, 1))
NEW_Y = np.sin(NEW_X[:, 0]) + 0.2 * RNG.laplace(size=40)
LOSS = losses.SoftInsensitive(6.0, 0.15, 0.3)


def literal_noise(residual):
    """The density of that loss's noise, and its standard deviation, by sums over a fine grid."""

    def exp_loss(residual):
        size = np.abs(residual)
        middle = 6.0 * (size - 0.7 * 0.15) ** 2 / (4 * 0.3 * 0.15)
        loss = np.where(size < 1.3 * 0.15, middle, 6.0 * (size - 0.15))
        return np.exp(-np.where(size < 0.7 * 0.15, 0.0, loss))

    ticks = np.linspace(-10, 10, 200_001)
    mass = exp_loss(ticks).sum() * 1e-4
    deviation = np.sqrt((ticks**2 * exp_loss(ticks)).sum() * 1e-4 / mass)
    return exp_loss(residual) / mass, deviation


@pytest.fixture(autouse=True)
def close_figures(monkeypatch):
    """Each test ends with no figure open; a coarse grid saves time."""
    monkeypatch.setattr("jaxsvm.plot._predictions._RESOLUTION", 40)
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def posterior():
    machine = jsvm.KernelMachine(kernels.RBF(1.2), LOSS)
    return jsvm.laplace(jsvm.fit(machine, X, Y))


def with_loss(posterior, loss):
    """The same latent function with other noise."""
    model = dataclasses.replace(posterior.fit.model, loss=loss)
    fit = dataclasses.replace(posterior.fit, model=model)
    return dataclasses.replace(posterior, fit=fit)


@pytest.fixture(scope="module")
def wide(posterior):
    """Three times the noise."""
    return with_loss(posterior, losses.SoftInsensitive(2.0, 0.45, 0.3))


@pytest.fixture(scope="module")
def classifier(posterior):
    return with_loss(posterior, losses.Logistic())


def scatters(ax):
    """Label -> the points drawn under it."""
    drawn = {c.get_label(): np.asarray(c.get_offsets()) for c in ax.collections}
    return {
        label: points for label, points in drawn.items() if "±" not in label and "%" not in label
    }


def edges(band, places):
    """The lower and upper edges of a filled band over its sorted places."""
    vertices = band.get_paths()[0].vertices
    heights = [vertices[vertices[:, 0] == place, 1] for place in places]
    return np.array([h.min() for h in heights]), np.array([h.max() for h in heights])


def test_predictions_along_one_input(posterior):
    ax = plot.predictions(posterior, level=0.9)
    (line,) = ax.lines
    grid = line.get_xdata()
    assert np.all(np.diff(grid) > 0) and grid[0] < X.min() and grid[-1] > X.max()
    mean, deviation = posterior.latent(grid[:, None])
    np.testing.assert_allclose(line.get_ydata(), mean, rtol=1e-12)
    outer, inner = ax.collections[:2]
    assert outer.get_label() == "90% of targets"
    for drawn, expected in (
        (edges(outer, grid), posterior.interval(grid[:, None], 0.9)),
        (edges(inner, grid), (mean - 2 * deviation, mean + 2 * deviation)),
    ):
        np.testing.assert_allclose(drawn[0], expected[0], rtol=1e-10)
        np.testing.assert_allclose(drawn[1], expected[1], rtol=1e-10)
    ax.figure.canvas.draw()


def test_predictions_mark_the_examples(posterior):
    data = np.stack([X[:, 0], Y], axis=1)
    free, bound = np.asarray(posterior.fit.free), np.asarray(posterior.fit.bound)
    groups = {"free support vector": free, "bound support vector": bound}
    groups["other example"] = ~(free | bound)
    assert all(group.any() for group in groups.values())
    # the training data, given or not, are drawn once
    for ax in (plot.predictions(posterior), plot.predictions(posterior, X, Y)):
        drawn = scatters(ax)
        assert set(drawn) == set(groups)
        for label, group in groups.items():
            np.testing.assert_array_equal(drawn[label], data[group])
    drawn = scatters(plot.predictions(posterior, NEW_X, NEW_Y))
    assert set(drawn) == {"targets", *groups}
    np.testing.assert_array_equal(drawn["targets"], np.stack([NEW_X[:, 0], NEW_Y], axis=1))
    # each member of a mixture has its own groups
    mixture = jsvm.LaplaceMixture((posterior,), jnp.ones(1))
    np.testing.assert_array_equal(scatters(plot.predictions(mixture))["example"], data)
    # no groups where all are free; none of those without weight
    fit = dataclasses.replace(posterior.fit, group=jnp.ones(40, int))
    fit = dataclasses.replace(fit, weights=jnp.ones(40).at[0].set(0.0))
    drawn = scatters(plot.predictions(dataclasses.replace(posterior, fit=fit)))
    np.testing.assert_array_equal(drawn["example"], data[1:])


def test_predictions_in_order():
    x = RNG.normal(size=(40, 3))
    y = x[:, 0] + 0.1 * RNG.normal(size=40)
    machine = jsvm.KernelMachine(kernels.RBF(2.0), losses.Quadratic(0.01))
    posterior = jsvm.laplace(jsvm.fit(machine, x, y))
    own = pyplot.figure().subplots()
    ax = plot.predictions(posterior, x[::-1], y[::-1], level=0.8, ax=own)
    assert ax is own
    targets, means = ax.lines
    np.testing.assert_array_equal(targets.get_ydata(), y[::-1])
    mean, deviation = posterior.target(x[::-1])
    np.testing.assert_allclose(means.get_ydata(), mean, rtol=1e-12)
    segments = np.array(ax.collections[0].get_segments())
    np.testing.assert_array_equal(segments[:, 0, 0], np.arange(40))
    # of a Gaussian process the interval is known
    half = norm.ppf(0.9) * np.asarray(deviation)
    np.testing.assert_allclose(segments[:, 0, 1], mean - half, atol=1e-6)
    np.testing.assert_allclose(segments[:, 1, 1], mean + half, atol=1e-6)
    ax.figure.canvas.draw()
    assert len(plot.predictions(posterior, x).lines) == 1  # no targets, no line of them
    np.testing.assert_array_equal(plot.predictions(posterior).lines[0].get_ydata(), y)


def test_predictions_of_one_point(posterior):
    ax = plot.predictions(posterior, [[0.5]], [2.0])
    assert ax.get_xlim() == (-0.5, 1.5)
    np.testing.assert_array_equal(scatters(ax)["targets"], [[0.5, 2.0]])


def test_residuals(posterior):
    ax = plot.residuals(posterior, NEW_X, NEW_Y, bins=8)
    _, deviation = literal_noise(0.0)
    scaled = (NEW_Y - np.asarray(posterior.latent(NEW_X)[0])) / deviation
    farthest = np.abs(scaled).max()
    ends = np.linspace(-farthest, farthest, 9)
    counts = [
        sum(a <= r < b or (b == ends[-1] and r == b) for r in scaled)
        for a, b in itertools.pairwise(ends)
    ]
    assert sum(counts) == 40
    widths = np.array([bar.get_width() for bar in ax.patches])
    heights = np.array([bar.get_height() for bar in ax.patches])
    np.testing.assert_allclose(widths * heights, np.array(counts) / 40, atol=1e-12)
    np.testing.assert_allclose([bar.get_x() for bar in ax.patches], ends[:-1], atol=1e-6)
    noise, gaussian = ax.lines
    ticks = noise.get_xdata()
    density, _ = literal_noise(deviation * ticks)
    np.testing.assert_allclose(noise.get_ydata(), deviation * density, rtol=1e-5)
    np.testing.assert_allclose(gaussian.get_ydata(), norm.pdf(ticks), rtol=1e-10)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["40 residuals", "noise of SoftInsensitive", "Gaussian"]
    ax.figure.canvas.draw()
    assert len(plot.residuals(posterior, NEW_X, NEW_Y).patches) == 11


def test_residuals_of_a_mixture(posterior, wide):
    """Its noise has unit mass and, in its own units, unit variance."""
    mixture = jsvm.LaplaceMixture((posterior, wide), jnp.array([0.7, 0.3]))
    noise, gaussian = plot.residuals(mixture, NEW_X, 20 * NEW_Y).lines
    ticks, density = noise.get_xydata().T
    assert ticks[-1] > 20 and density[200] > 1.2 * gaussian.get_ydata()[200]
    for power in (0, 2):
        np.testing.assert_allclose(np.trapezoid(density * ticks**power, ticks), 1.0, atol=0.02)
    # the variances are 1 and 9 times that of one member
    deviation = literal_noise(0.0)[1] * np.sqrt(0.7 + 0.3 * 9)
    means = np.asarray(posterior.latent(NEW_X)[0])
    farthest = np.abs((20 * NEW_Y - means) / deviation).max()
    np.testing.assert_allclose(ticks[-1], 1.05 * farthest, rtol=1e-6)


def test_coverage_diagram(posterior, wide):
    levels = [0.2, 0.5, 0.9]
    ax = plot.coverage({"one": posterior, "two": wide}, NEW_X, NEW_Y, levels=levels)
    diagonal, *drawn = ax.lines
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    for line, bars, one in zip(drawn, ax.collections, (posterior, wide), strict=True):
        table = calibration.coverage(one, NEW_X, NEW_Y, levels)
        np.testing.assert_allclose(line.get_xdata(), levels, atol=0.01)
        np.testing.assert_array_equal(line.get_ydata(), table.shares)
        lengths = [np.ptp(segment[:, 1]) for segment in bars.get_segments()]
        np.testing.assert_allclose(lengths, 2 * table.standard_errors)
    assert drawn[0].get_ydata()[1] < drawn[1].get_ydata()[1]  # wider noise covers more
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "two"]
    ax.figure.canvas.draw()
    own = pyplot.figure().subplots()
    assert plot.coverage(posterior, NEW_X, NEW_Y, ax=own) is own
    assert own.get_legend() is None
    np.testing.assert_array_equal(own.lines[1].get_xdata(), np.arange(1, 20) / 20)


def test_of_samples(posterior):
    """With invented draws, since only the plot of them matters."""
    model, x = posterior.fit.model, posterior.fit.x
    whitening = jax.jit(LandmarkSubspace.whiten)(LandmarkSubspace(None, 8), model.kernel, x)
    b = jnp.asarray(RNG.normal(size=(2, 10, 8)))
    means = b.mean(axis=1)
    posterior = jsvm.Posterior(
        model,
        x,
        posterior.fit.y,
        jnp.ones(40),
        whitening,
        b,
        means,
        None,
        None,
        None,
        jnp.arange(10),
    )
    ax = plot.predictions(posterior)
    grid = ax.lines[0].get_xdata()[:, None]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), posterior.latent(grid)[0], rtol=1e-10)
    assert set(scatters(ax)) == {"example"}
    low, high = edges(ax.collections[0], grid[:, 0])
    expected = posterior.interval(grid, 0.95)
    np.testing.assert_allclose([low, high], expected, rtol=1e-10)
    noise = plot.residuals(posterior, NEW_X, NEW_Y).lines[0].get_ydata()
    density, deviation = literal_noise(0.0)
    np.testing.assert_allclose(noise.max(), density * deviation, rtol=1e-6)
    assert np.ptp(plot.coverage(posterior, NEW_X, NEW_Y).lines[1].get_ydata()) > 0.5


@pytest.mark.parametrize("function", [plot.predictions, plot.residuals, plot.coverage])
def test_plots_say_what_is_wrong(function, posterior, classifier):
    with pytest.raises(
        TypeError, match=r"the result of `jaxsvm.laplace` or `jaxsvm.sample`, not a F"
    ):
        function(posterior.fit, NEW_X, NEW_Y)
    with pytest.raises(ValueError, match=r"Logistic is not a noise model.*regression loss"):
        function(classifier, NEW_X, NEW_Y)
    with pytest.raises(ValueError, match="`x` has 40 rows, but `y` has 39 entries"):
        function(posterior, NEW_X, NEW_Y[1:])
    with pytest.raises(ValueError, match=r"use `x\[:, None\]`"):
        function(posterior, NEW_X[:, 0], NEW_Y)
    with pytest.raises(ValueError, match="fitted on 1 inputs, but `x` has 2"):
        function(posterior, np.tile(NEW_X, 2), NEW_Y)
    with pytest.raises(TypeError, match="`ax` must be the Axes"):
        function(posterior, NEW_X, NEW_Y, ax="here")
    assert not pyplot.get_fignums()


def test_arguments_of_one_plot_only(posterior):
    with pytest.raises(ValueError, match="`y` needs the points `x` as well"):
        plot.predictions(posterior, y=Y)
    with pytest.raises(ValueError, match="`level` must be between zero and one"):
        plot.predictions(posterior, level=95)
    for bins in (0, 2.5, True):
        with pytest.raises(ValueError, match="`bins` must be a positive integer"):
            plot.residuals(posterior, NEW_X, NEW_Y, bins=bins)
    with pytest.raises(ValueError, match="`levels` must be between zero and one"):
        plot.coverage(posterior, NEW_X, NEW_Y, levels=[0.5, 1.0])
    with pytest.raises(ValueError, match="nothing to draw"):
        plot.coverage({}, NEW_X, NEW_Y)
    assert not pyplot.get_fignums()


def test_agreement():
    ax = plot.agreement([1.0, 2.0, 3.0], [1.1, 1.9, 3.5], 0.2)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[1.1, 1], [1.9, 2], [3.5, 3]])
    np.testing.assert_array_equal(ax.lines[-1].get_xdata(), [1.0, 3.5])
    assert "deviation" in ax.get_xlabel()
    assert plot.agreement([1.0], [1.0]).get_xlabel() == "predicted"
    with pytest.raises(ValueError, match="3 targets, but 2 predictions"):
        plot.agreement([1.0, 2.0, 3.0], [1.0, 2.0])

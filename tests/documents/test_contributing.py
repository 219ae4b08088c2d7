"""The recipes of CONTRIBUTING.md run, and what they add works like parts of the library."""

import re
from pathlib import Path

import grid
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def recipes():
    """The names that the code of the recipes defines."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert len(blocks) == 5
    names = {"__name__": "recipes"}
    for block in blocks:
        exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    return names


def test_the_kernel(recipes):
    kernel, x = recipes["Cauchy"](2.0, 0.7), np.asarray(recipes["x"])
    distances = ((x[:3, None] - x[None, :4]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(kernel.cross(x[:3], x[:4]), 0.7 / (1 + distances / 4))
    np.testing.assert_allclose(kernel.diagonal(x), np.diag(kernel.gram(x)))
    assert jsvm.parameters(kernel).keys() == {"lengthscale", "variance"}
    assert recipes["kernel_fit"].result == jsvm.RESULTS.successful
    with pytest.raises(ValueError, match="`lengthscale` must be positive"):
        recipes["Cauchy"](-1.0)

    def objective(model, x, y):
        return jnp.sum(jsvm.fit(model, x, y).latent ** 2)

    grid.check_gradient(objective, recipes["model"], recipes["x"], recipes["y"])


def test_the_loss(recipes):
    fit = recipes["loss_fit"]
    assert fit.result == jsvm.RESULTS.successful and fit.stats.kkt_residual < 1e-9
    np.testing.assert_allclose(fit.dual, fit.y * 0.5 * np.exp(-fit.y * fit.latent), rtol=1e-7)


def test_the_criterion(recipes):
    selection = recipes["selection"]
    begin = recipes["SmoothTrainingError"]()(recipes["model"], recipes["x"], recipes["y"])
    assert selection.value < begin
    regression = jsvm.KernelMachine(jsvm.kernels.RBF(), jsvm.losses.Quadratic())
    with pytest.raises(ValueError, match="needs the loss of a classification"):
        recipes["SmoothTrainingError"]()(regression, recipes["x"], recipes["y"])


def test_the_sampler(recipes):
    """Both means have errors of a few hundredths of the posterior's width, which is about one."""
    mean, deviation = recipes["reference"].latent(recipes["x"])
    gaps = (recipes["latent_mean"] - mean) / deviation
    assert np.abs(gaps).max() < 0.2


def test_files_that_the_recipes_name_exist():
    named = set(
        re.findall(r"`((?:tests|jaxsvm)/[\w./]+?)/?`", (ROOT / "CONTRIBUTING.md").read_text())
    )
    assert len(named) > 25 and all((ROOT / name).exists() for name in named), named


def test_the_citation_names_the_papers_and_the_version():
    text = (ROOT / "CITATION.cff").read_text()
    cited = dict(re.findall(r"notes: (\w+)\n    title: \"(.*)\"", text))
    papers = re.findall(r"- (\w+): (.*?)(?=\n- |\Z)", jsvm.__doc__ or "", re.DOTALL)
    assert len(papers) == 5
    assert cited == {
        key: re.findall('"(.*?)"', " ".join(paper.split()))[0] for key, paper in papers
    }
    assert f"\nversion: {jsvm.__version__}\n" in text

"""The guides in docs/: their code runs, and their links lead somewhere."""

import re
from pathlib import Path

import numpy as np
import pytest
from scripts import names_of

import jaxsvm as jsvm

ROOT = Path(__file__).parents[2]
GUIDES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.filterwarnings("ignore::jaxsvm.sampling.SamplingWarning")  # small settings draw little
@pytest.mark.parametrize(
    "page", [page for page in GUIDES if "```python" in (ROOT / page).read_text()]
)
def test_the_code_of_the_guides_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = names_of(page)
    if page == "docs/fitting.md":
        step, untuned = names["step"], jsvm.freeze(names["model"], "loss.C")
        assert step(names["tuned"])[0] < step(untuned)[0]
        assert (names["batch"].result == jsvm.RESULTS.successful).all()
        assert jsvm.kernels.is_covariance(names["own"].gram(names["x"]))
    if page == "docs/files.md":
        np.testing.assert_array_equal(names["restored"].dual, names["fit"].dual)
        assert names["longer"].value <= names["chosen"].value


def test_links_between_the_pages_lead_somewhere():
    for page in ["README.md", "CONTRIBUTING.md", *GUIDES]:
        text = (ROOT / page).read_text()
        links = re.findall(r"\]\(([^)#]+)[)#]", text)
        for link in (link for link in links if not link.startswith("http")):
            assert ((ROOT / page).parent / link).exists(), f"{page} links to {link}"
    listed = set(
        re.findall(r"^\| \[(\w+\.md)\]", (ROOT / "docs/README.md").read_text(), re.MULTILINE)
    )
    assert listed | {"README.md"} == {Path(page).name for page in GUIDES}

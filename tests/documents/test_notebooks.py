"""Notebooks: they run in a quick form, and what is stored in them is whole."""

import base64
import json
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
FIGURES = {
    "1_first_ten_minutes": 3,
    "2_kernels": 4,
    "3_criteria": 3,
    "4_evidence": 3,
    "5_regression": 5,
    "6_studies": 3,
}


def cells(name, kind):
    notebook = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def source(cell):
    return "".join(cell["source"])


@pytest.mark.filterwarnings("ignore::jaxsvm.sampling.SamplingWarning")  # a quick run draws little
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_code_runs(name, monkeypatch, capsys):
    matplotlib.use("Agg")
    from matplotlib import pyplot

    monkeypatch.setenv("JAXSVM_QUICK", "1")
    namespace = {"__name__": f"notebook_{name}"}
    try:
        with matplotlib.rc_context():
            for place, cell in enumerate(cells(name, "code")):
                exec(compile(source(cell), f"{name}, cell {place}", "exec"), namespace)
            assert namespace["QUICK"]
            assert pyplot.get_fignums()
    finally:
        pyplot.close("all")
    printed = capsys.readouterr().out
    assert printed and "nan" not in printed.lower().split()


def test_all_of_them_are_here():
    assert sorted(FIGURES) == NOTEBOOKS


@pytest.mark.records
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_stored_is_whole(name):
    """Each was executed from top to bottom, without an error, and its figures are small."""
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 500_000
    code = cells(name, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    images = [
        output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})
    ]
    assert len(images) >= FIGURES[name]
    for image in images:
        assert base64.b64decode("".join(image)).startswith(b"\x89PNG")
    texts = ["".join(output.get("text", "")) for output in outputs]
    assert any(texts) and not any("/home/" in text or "Warning" in text for text in texts)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_there_is_prose_and_a_formula(name):
    prose = [source(cell) for cell in cells(name, "markdown")]
    assert prose[0].startswith("# ")
    assert len(prose) >= 5 and sum(len(text.split()) for text in prose) > 250
    assert any("$$" in text or "$" in text for text in prose)

"""Notebooks: their code runs with small settings, and their stored outputs are complete."""

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
    "7_many_rows": 2,
}
# Text of the notebooks and what replaces it here, so that the code runs in seconds. Each text occurs once.
SMALLER = {
    "1_first_ten_minutes": {
        "noisy_xor(150,": "noisy_xor(60,",
        "noisy_xor(200,": "noisy_xor(60,",
        "max_steps=60": "max_steps=3",
    },
    "2_kernels": {
        "linspace(-3, 3, 240)": "linspace(-3, 3, 60)",
        "linspace(0, 4, 80)": "linspace(0, 4, 40)",
        "in candidates.items()": "in list(candidates.items())[2:]",
        "LaplaceEvidence(), max_steps=100": "LaplaceEvidence(), max_steps=4",
        "noisy_xor(200,": "noisy_xor(60,",
        "in structures.items()": "in list(structures.items())[1:2]",
        "PRESS(), max_steps=100": "PRESS(), max_steps=3",
        "max_steps=30": "max_steps=5",
        "x, labels = ring(300,": "x, labels = ring(60,",
        "x_valid, labels_valid = ring(300,": "x_valid, labels_valid = ring(60,",
        "for name, kernel in kernels.items()": "for name, kernel in list(kernels.items())[2:]",
        "range(61)": "range(2)",
        "PRESS(), max_steps=60": "PRESS(), max_steps=2",
    },
    "3_criteria": {
        "noisy_xor(100,": "noisy_xor(50,",
        "in studies.items()": 'in [("PRESS", studies["PRESS"])]',
        "restarts=12": "restarts=2",
        "max_steps=80": "max_steps=5",
        '["Span", "PRESS"]': '["PRESS"]',
        "points=41": "points=11",
        '["PRESS", "PRESS + prior", "GACV", "Laplace, squared hinge"]': '["PRESS"]',
    },
    "4_evidence": {
        "linspace(-7, 7, 1401)": "linspace(-7, 7, 301)",
        "draws=4000": "draws=300",
        "rank=60": "rank=10",
        "(50, 200, 800, 3200)": "(300,)",
        "ranks = (2, 5, 10, 20, 40, 80, 160)": "ranks = (10,)",
        "draws=2000": "draws=300",
        "noisy_xor(200,": "noisy_xor(60,",
        "rank=40": "rank=10",
        "max_steps=40": "max_steps=3",
        "max_steps=60": "max_steps=2",
        "[0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0]": "[3.0]",
        "noisy_xor(60, key=jax.random.key(8)": "noisy_xor(30, key=jax.random.key(8)",
    },
    "5_regression": {
        "sinc(300,": "sinc(40,",
        "adapt(x, y)": "adapt(x, y, max_steps=4, restarts=1)",
        "sinc(2000,": "sinc(200,",
        "range(20)": "range(1)",
        "adapt(train_x / scale, train_y)": "adapt(train_x / scale, train_y, max_steps=4, restarts=1)",
        "in zip(axes, machines.items(), strict=False)": "in zip(axes, list(machines.items())[1:])",
        "adapt(x, shifted, loss=loss)": "adapt(x, shifted, loss=loss, max_steps=4, restarts=1)",
        "robot_arm(200,": "robot_arm(40,",
        "max_steps=150": "max_steps=3, loss=jsvm.losses.Quadratic()",
    },
    "6_studies": {
        "noisy_xor(150,": "noisy_xor(60,",
        "logspace(-3, 4, 60)": "logspace(-3, 4, 8)",
        "count = 40": "count = 4",
        "[1.0, 10.0, 1e2, 1e3, 1e4, 1e5]": "[1.0, 1e3]",
        "trials = 12": "trials = 2",
        "noisy_xor(80,": "noisy_xor(40,",
        "jsvm.criteria.PRESS()": "LeaveOneOutLogLoss()",
        "max_steps=60": "max_steps=3",
    },
    "7_many_rows": {
        "noisy_xor(20_000,": "noisy_xor(300,",
        "noisy_xor(10_000,": "noisy_xor(100,",
        "ranks = [10, 20, 50, 100, 200, 400]": "ranks = [10, 20]",
        "tolerance=0.02": "tolerance=0.5",
        "nystrom(150)": "nystrom(290)",
        "max_steps=40": "max_steps=2",
        "[1_000, 10_000, 100_000, 1_000_000]": "[300]",
        "represent(nystrom(100), model, many)": "represent(nystrom(20), model, many)",
        "few = 5_001": "few = 101",
    },
}


def cells(name, kind):
    notebook = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def source(cell):
    return "".join(cell["source"])


def small_sources(name):
    """The code cells of a notebook with the smaller settings."""
    code = "\0".join(source(cell) for cell in cells(name, "code"))
    for text, replacement in SMALLER[name].items():
        assert code.count(text) == 1, f"{name} has {text!r} {code.count(text)} times, not once"
        code = code.replace(text, replacement)
    return code.split("\0")


@pytest.mark.filterwarnings("ignore::jaxsvm.sampling.SamplingWarning")  # a small run draws little
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_code_runs(name, capsys):
    matplotlib.use("Agg")
    from matplotlib import pyplot

    namespace = {"__name__": f"notebook_{name}"}
    try:
        with matplotlib.rc_context():
            for number, code in enumerate(small_sources(name)):
                exec(compile(code, f"{name}, cell {number}", "exec"), namespace)
            assert pyplot.get_fignums()
    finally:
        pyplot.close("all")
    printed = capsys.readouterr().out
    assert printed and "nan" not in printed.lower().split()


def test_all_of_them_are_here():
    assert sorted(FIGURES) == sorted(SMALLER) == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_readers_see_no_switch_for_the_tests(name):
    text = "".join(source(cell) for cell in cells(name, "code"))
    assert "QUICK" not in text and "environ" not in text


@pytest.mark.records
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_stored_outputs_are_complete(name):
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

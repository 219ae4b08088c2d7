"""Scripts of Chu, Keerthi and Ong's tables: they run and print their saved results."""

import json
import re

import numpy as np
import pytest
from scripts import EXAMPLES, output_of

FOLDER = EXAMPLES / "papers"


@pytest.mark.parametrize(
    "script, arguments, expected",
    [
        ("chu_sinc", ["--parts", "table1", "draws"], "| 0.3 | 50 | ours |"),
        ("chu_robot_arm", [], "| BSVR ARD | 2 |"),
        ("chu_laser", [], "| 1051-1080 |"),
        ("chu_benchmarks", ["--methods", "SVR", "BSVR ARD"], "| generated | BSVR ARD | 2 |"),
    ],
)
def test_quick_runs(script, arguments, expected):
    printed = output_of(f"papers/{script}.py", "--quick", *arguments)
    assert expected in printed
    assert ("| 50 | 2 | ours |" in printed) == ("draws" in arguments)


@pytest.mark.records
def test_tables_of_what_is_there():
    tables = {
        "chu_sinc": "| 0.1 | 4000 | ours |",
        "chu_robot_arm": "| Neal, hybrid Monte Carlo | 6 |",
        "chu_laser": "Fig. 5",
        "chu_benchmarks": "| Relevance vector machine |",
    }
    for script, expected in tables.items():
        assert expected in output_of(f"papers/{script}.py", "--show")


def committed(script):
    """The records that a script has saved."""
    return json.loads((FOLDER / "results" / f"{script}.json").read_text())["records"]


def readme():
    """The paper's section of the README."""
    text = (FOLDER / "README.md").read_text()
    start = text.index("## Chu, Keerthi and Ong")
    end = text.find("\n## ", start + 1)
    return text[start : end if end > 0 else len(text)]


@pytest.mark.records
def test_the_noise_of_the_sinc_data_is_found():
    records = committed("chu_sinc")
    for beta in (0.3, 0.1):
        found = records[f"table1/{beta}/4000"]
        np.testing.assert_allclose([found["C"], found["epsilon"]], [10.0, 0.1], rtol=0.05)
        np.testing.assert_allclose(found["noise_variance"], found["sample_noise"], rtol=0.05)
        # next to the smallest error that is possible
        assert 0 < found["ASE"] - records["test noise"]["ASE"] < 1e-4


@pytest.mark.records
def test_errors_shrink_with_examples_and_are_those_of_a_gaussian_process():
    records = committed("chu_sinc")

    def error(method, size):
        keys = [key for key in records if key.startswith(f"figure4/{method}/{size:04d}/")]
        return np.mean([records[key]["ASE"] for key in keys])

    for method in ("SVR", "BSVR", "GPR"):
        assert error(method, 50) > 3 * error(method, 200) > 9 * error(method, 1000)
    assert error("BSVR", 1000) < 1.5 * error("GPR", 1000)


@pytest.mark.records
def test_inputs_of_noise_are_switched_off():
    records = committed("chu_robot_arm")
    six = [key for key in records if re.match(r"(draws/)?BSVR ARD/(6/)?y[12](/\d\d)?$", key)]
    assert len(six) == 22
    for key in six:
        kappa = np.array(records[key]["kappa"])
        assert np.argmax(kappa) in (0, 2) and max(kappa[4:]) < 1e-3 * max(kappa)


@pytest.mark.records
def test_errors_of_the_robot_arm_are_near_the_papers():
    """The difference is below 0.39e-3, one standard error of the mean over the 200 test examples."""
    records = committed("chu_robot_arm")
    for inputs, paper in ((2, 5.68e-3), (6, 5.64e-3)):
        found = sum(records[f"BSVR ARD/{inputs}/{output}"]["ASE"] for output in ("y1", "y2"))
        assert abs(found - paper) < 0.39e-3


@pytest.mark.records
def test_the_evidence_is_higher_than_at_the_papers_hyperparameters():
    records = committed("chu_robot_arm")
    for output, paper in (("y1", 2.491e-3), ("y2", 3.184e-3)):
        theirs, ours = records[f"paper/2/{output}"], records[f"BSVR ARD/2/{output}"]
        np.testing.assert_allclose(theirs["ASE"], paper, rtol=0.002)  # the same machine
        assert ours["minus_log_evidence"] < theirs["minus_log_evidence"] - 2
        random = records[f"random/2/{output}"]
        assert abs(ours["minus_log_evidence"] - random["minus_log_evidence"]) < 0.5


@pytest.mark.records
def test_the_collapse_of_the_laser_is_where_errors_and_error_bars_are():
    found = committed("chu_laser")["laser"]
    assert found["ASE"] < 0.02 and found["log_density"] > 0.4
    target, mean, bar = (np.array(found["series"][k]) for k in ("target", "mean", "deviation"))
    collapse = np.isin(np.arange(1001, 1101), np.arange(1051, 1081))
    assert bar[collapse].mean() > 3 * bar[~collapse].mean()
    squares = (target - mean) ** 2
    assert squares[collapse].mean() > 20 * squares[~collapse].mean()


@pytest.mark.records
def test_every_table_of_the_readme_has_rows():
    lines = readme().splitlines()
    rules = [place for place, line in enumerate(lines) if re.fullmatch(r"(\|---)+\|", line)]
    assert len(rules) >= 11
    for place in rules:
        columns = lines[place].count("---")
        row = lines[place + 1] if place + 1 < len(lines) else ""
        assert lines[place - 1].count("|") == columns + 1 == row.count("|"), lines[place - 1]


@pytest.mark.records
def test_the_readme_shows_what_has_been_computed():
    text = readme()
    for script in ("chu_robot_arm", "chu_laser"):
        rows = [
            line
            for line in output_of(f"papers/{script}.py", "--show").splitlines()
            if line[:1] == "|"
        ]
        assert rows and all(row in text for row in rows)

"""The README and the example scripts: their code runs and prints what it should."""

import os
import re
from pathlib import Path

import pytest
from scripts import names_of, output_of

import jaxsvm as jsvm

ROOT = Path(__file__).parents[2]
CI = ROOT / ".ci" / "run"


@pytest.mark.skipif(not CI.exists(), reason="this copy has no .ci/run")
def test_the_readme_shows_the_command_that_ci_runs():
    command = re.search(r"^readme_command='(.*)'$", CI.read_text(), re.MULTILINE)
    assert command is not None and f"```sh\n{command[1]}\n```" in (ROOT / "README.md").read_text()
    files = re.findall(r"tests/\w+/\w+\.py", CI.read_text())
    assert len(files) > 8 and all((ROOT / file).exists() for file in files)


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = names_of("README.md")
    assert names["classifier"].score(names["x_cancer"], names["y_cancer"]) > 0.9
    assert names["fit"].stats.kkt_residual < 1e-9
    loaded = jsvm.load(tmp_path / "tuned.jaxsvm")
    assert jsvm.frozen(loaded) == ("loss.C",) and loaded == names["tuned"]
    assert len(names["best"].results) == 3 and names["posterior"].b.shape[0] == 8


def test_a_newcomer_can_read_the_readme_at_once():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120 and all(len(line) < 130 or line.startswith("|") for line in lines)


@pytest.mark.parametrize(
    "script, arguments, expected",
    [
        ("first_fit.py", [], "support vectors: 31 free, 27 at the bound"),
        ("overview.py", [], "new examples, evidence"),
        ("benchmarks/estimators.py", ["--quick"], "| LSSVC |"),
        ("benchmarks/solve.py", ["--quick"], "geometric mean of the ratios"),
        ("benchmarks/scale.py", ["--quick"], "exponent"),
        ("benchmarks/estimators_at_scale.py", ["--quick"], "of the grid's seconds"),
        (
            "benchmarks/evidence_at_scale.py",
            ["--quick", "--parts", "bias", "ascent"],
            "s per step",
        ),
        ("benchmarks/cost.py", ["--quick"], "all-reduce"),
        (
            "benchmarks/versions.py",
            [str(ROOT), str(ROOT), "--quick", "--parts", "gp"],
            "all, geometric mean",
        ),
        ("benchmarks/table.py", ["--rows", "300", "--rank", "20"], "predict"),
        pytest.param(
            "benchmarks/processes.py",
            ["--quick"],
            "two processes",
            marks=pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux"),
        ),
        ("benchmarks/criteria.py", ["--quick"], "GridSearchCV of SVC"),
        ("benchmarks/evidence.py", ["--quick"], "Effective draws"),
        ("benchmarks/samplers.py", ["--quick"], "per gradient"),
        ("benchmarks/log_evidence.py", ["--quick"], "Bridge and smc"),
        pytest.param(
            "benchmarks/soak.py",
            ["--quick"],
            "most in the first 1: ",
            marks=pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux"),
        ),
        ("regression.py", [], "intervals of 50 % and 95 % hold"),
        ("benchmarks/regression.py", ["--quick"], "Coverage of 95 % intervals"),
        (
            "papers/gold_sollich_tables.py",
            ["--quick", "--methods", "gradient"],
            "| twonorm | GACV |",
        ),
        ("papers/gold_sollich_evidence.py", ["--quick"], "| twonorm | Evid grad | 4.0"),
        ("papers/gold_sollich_nystrom.py", ["--quick"], "error of the medians"),
        ("papers/laplace_against_exact.py", ["--quick"], "Laplace"),
        ("papers/linear_response.py", ["--quick"], "| hinge, free offset | all | 6 |"),
    ],
)
def test_examples_run(script, arguments, expected):
    assert expected in output_of(script, *arguments)


def test_the_neural_kernel_learns():
    errors = [float(e) for e in re.findall(r"test error ([0-9.]+)", output_of("neural_kernel.py"))]
    assert len(errors) == 3 and errors[2] < min(errors[0], errors[1])


@pytest.mark.skipif("JAXSVM_DATA" not in os.environ, reason="needs data: set JAXSVM_DATA")
def test_the_table_of_least_squares_machines():
    printed = output_of("papers/cawley_talbot_table2.py", "--quick")
    assert "| thyroid | 2 |" in printed


@pytest.mark.skipif("JAXSVM_DATA" not in os.environ, reason="needs data: set JAXSVM_DATA")
def test_the_table_of_probabilities():
    printed = output_of("papers/calibration.py", "--quick")
    assert "| thyroid | 1 | samples, normalized |" in printed and "Platt" in printed


@pytest.mark.records
@pytest.mark.parametrize(
    "script, expected",
    [
        ("cawley_talbot_table2", "significantly (z > 1.64) on 4 (the paper: 9)"),
        ("gold_sollich_tables", "| crabs | LE1 | 10.7 ± 2.1 (5.9) |"),
        ("gold_sollich_nystrom", "| 21 ± 6 |"),
        ("gold_sollich_evidence", "| twonorm | ES | 3.7 ± 0.4 (3.0) |"),
        ("linear_response", "| squared hinge, no offset | all | 240 | 10.6 of 80 |"),
    ],
)
def test_the_papers_readme_shows_the_committed_results(script, expected):
    printed = output_of(f"papers/{script}.py", "--show")
    assert expected in printed
    text = (ROOT / "examples" / "papers" / "README.md").read_text()
    rows = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(rows) > 10 and all(row in text for row in rows)

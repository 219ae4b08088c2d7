"""The scripts of Chu, Keerthi and Ong's tables: they run, and print what has been computed."""

import pytest
from test_documents import output_of


@pytest.mark.parametrize(
    "script, arguments, expected",
    [
        ("chu_sinc.py", ["--parts", "table1"], "| 0.3 | 50 | ours |"),
        ("chu_robot_arm.py", [], "| BSVR ARD | 2 |"),
        ("chu_laser.py", [], "| 1051-1080 |"),
        ("chu_benchmarks.py", ["--methods", "SVR", "BSVR ARD"], "| generated | BSVR ARD | 2 |"),
    ],
)
def test_quick_runs(script, arguments, expected):
    assert expected in output_of(f"papers/{script}", "--quick", *arguments)


@pytest.mark.parametrize(
    "script, expected",
    [
        ("chu_sinc.py", "Table I: training results"),
        ("chu_robot_arm.py", "| Neal, hybrid Monte Carlo | 6 |"),
        ("chu_laser.py", "Fig. 5"),
        ("chu_benchmarks.py", "| Relevance vector machine |"),
    ],
)
def test_tables_of_what_is_there(script, expected):
    assert expected in output_of(f"papers/{script}", "--show")

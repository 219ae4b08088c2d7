"""The scripts of Chu, Keerthi and Ong's tables: they run, and print what has been computed."""

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = str(Path(__file__).parents[1] / "examples" / "papers")


def output_of(script, capsys, *arguments):
    """What a script prints: in this process, which has imported and compiled most of it."""
    sys.path.insert(0, FOLDER)
    try:
        importlib.import_module(script).main(arguments)
    finally:
        sys.path.remove(FOLDER)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "script, arguments, expected",
    [
        ("chu_sinc", ["--parts", "table1"], "| 0.3 | 50 | ours |"),
        ("chu_robot_arm", [], "| BSVR ARD | 2 |"),
        ("chu_laser", [], "| 1051-1080 |"),
        ("chu_benchmarks", ["--methods", "SVR", "BSVR ARD"], "| generated | BSVR ARD | 2 |"),
    ],
)
def test_quick_runs(script, arguments, expected, capsys):
    assert expected in output_of(script, capsys, "--quick", *arguments)


def test_tables_of_what_is_there(capsys):
    tables = {
        "chu_sinc": "| 0.1 | 4000 | ours |",
        "chu_robot_arm": "| Neal, hybrid Monte Carlo | 6 |",
        "chu_laser": "Fig. 5",
        "chu_benchmarks": "| Relevance vector machine |",
    }
    for script, expected in tables.items():
        assert expected in output_of(script, capsys, "--show")

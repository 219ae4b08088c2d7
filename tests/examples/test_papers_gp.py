"""Scripts of Gaussian process classification: they run and print their saved results."""

import json
import os
import re

import numpy as np
import pytest
from scripts import module_of, output_of

NEEDS_DATA = pytest.mark.skipif(
    "JAXSVM_DATA" not in os.environ, reason="needs data: set JAXSVM_DATA"
)


def test_the_adatron_ends_where_the_fit_does():
    printed = output_of("adatron.py")
    apart = [
        float(value) for value in re.findall(r"rounds to 1e-6, alpha within (\S+) of", printed)
    ]
    assert len(apart) == 2 and max(apart) < 1e-5
    assert "Newton steps to a KKT residual of" in printed


def test_the_benchmark_compares_the_same_evidence(tmp_path):
    """Both libraries agree on the evidence of either solution; all parts run and save their output."""
    saved = tmp_path / "gp.txt"
    printed = output_of("benchmarks/gp.py", "--quick", "--output", str(saved))
    both = re.findall(r"solution by both: (\S+) and (\S+)", printed)
    assert len(both) == 2
    np.testing.assert_allclose(*np.array(both, float).T, rtol=1e-6)
    ends = [float(value) for value in re.findall(r"log evidence +(\S+)", printed)]
    # five steps come near the optimum that scikit-learn finds, and not above it
    assert ends[1] - 1 < ends[0] <= ends[1] + 1e-3
    for part in ("newton", "adaptive", "posterior", "evidence and gradient"):
        assert re.search(rf"{part} +.*ratio +\d", printed)
    assert saved.read_text() == printed


@NEEDS_DATA
def test_the_wisconsin_study():
    """Three folds of 60 examples: retraining agrees with the estimates within one example."""
    parts = ["--parts", "folds", "exact"]
    printed = output_of("papers/opper_winther_wisconsin.py", "--quick", *parts)
    rows = [
        line.split("|")
        for line in printed.splitlines()
        if line.startswith(("| SVM | ", "| mean field | "))
    ]
    exact = [(row[3], row[4]) for row in rows if row[2].strip() == "40"]
    counts = [[int(cell.split("(")[1].strip(" )")) for cell in pair] for pair in exact]
    assert len(counts) == 2 and all(abs(one - other) <= 1 for one, other in counts)


@NEEDS_DATA
def test_the_table_of_classifiers(tmp_path):
    arguments = ["--quick", "--output", str(tmp_path / "some.json")]
    printed = output_of("papers/gp_classifiers.py", *arguments)
    assert "thyroid/Laplace/01" in printed and "| thyroid | 0 |" in printed
    # a second call has nothing to do
    again = output_of("papers/gp_classifiers.py", *arguments)
    assert "thyroid/Laplace/01" not in again and "| thyroid | 0 |" in again
    # two partitions have no standard errors
    assert re.search(r"\| thyroid \| 2 \|( \d+.\d\d ± - \|)+", again) and "Nemenyi" in again


@NEEDS_DATA
def test_evidence_ascent_in_the_table(tmp_path):
    output = tmp_path / "some.json"
    arguments = ["--quick", "--output", str(output), "--methods", "Evidence ascent"]
    output_of("papers/gp_classifiers.py", *arguments)
    records = json.loads(output.read_text())["records"]
    first = records["thyroid/Evidence ascent/00"]
    assert first["error"] < 20 and first["log_loss"] < 0.45 and first["steps"] == 3
    assert first["parameters"] != records["thyroid/Evidence ascent/01"]["parameters"]


def test_the_table_of_gaussian_processes():
    printed = output_of("papers/gp_table5.py", "--quick")
    assert re.search(r"\| twonorm \| 4.0 \| - \| [0-9.]+ \(0[0-9.]+\) \| - \|", printed)


@pytest.mark.records
def test_tables_of_what_is_there():
    printed = output_of("papers/gp_classifiers.py", "--show")
    assert "| ringnorm |" in printed and "mean rank" in printed and "Nemenyi" in printed
    # those with twenty partitions are compared on twenty
    assert re.search(r"\| LS-SVM \|  \| \d+ / \d+, \d.\d\d \|", printed)
    printed = output_of("papers/gp_table5.py", "--show")
    assert "| crabs | 3.3 | 1.7 |" in printed
    printed = output_of("papers/opper_winther_wisconsin.py", "--show")
    assert "| mean field | 683 | 0.0264 (18) | 0.0264 (18) |" in printed
    assert "| SVM | 683 | 0.0293 (20) | 0.0293 (20) |" in printed
    # all rows of Table 8.2 have a time with leave-one-out, and nearly the same errors
    rows = re.findall(
        r"\| (?:SVM|mean field), .*?\| \d+ \| \S+ \| (\S+) \| \S+ \| (\S+) \|", printed
    )
    assert len(rows) == 4 and all(0 < float(alone) < float(whole) for alone, whole in rows)
    counts = re.search(r"Adatron (\d+), fit (\d+), adaptive (\d+), newton (\d+)", printed)
    assert counts and abs(int(counts[1]) - int(counts[2])) <= 1 and counts[3] == counts[4]


def test_all_partitions_of_a_set_come_before_the_next(monkeypatch):
    """Each method compiles once for each set; ARD starts from the spherical solution computed before it."""
    script = module_of("papers/gp_classifiers.py")
    calls = []

    def run(data, method, spherical, max_steps, seed):
        calls.append((data, seed, method.start, spherical))
        return {"error": 0.0, "seconds": 0.0, "number": len(calls)}

    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(script.jsvm.datasets, "load", lambda name, split: name)
    store = script.Store(None, "")
    script.run_all(store, ["heart", "thyroid"], ["Laplace ARD"], range(2), 3, False)
    order = [("heart", 0), ("heart", 1), ("thyroid", 0), ("thyroid", 1)]
    assert [call[:2] for call in calls[::2]] == [call[:2] for call in calls[1::2]] == order
    assert [(start, spherical["number"]) for _, _, start, spherical in calls[1::2]] == [
        ("Laplace", number) for number in (1, 3, 5, 7)
    ]
    assert list(store.records)[:2] == ["heart/Laplace/00", "heart/Laplace ARD/00"]


def numbered(scores):
    return {
        m: {n: dict(enumerate(values)) for n, values in sets.items()} for m, sets in scores.items()
    }


def test_ranks_and_their_statistics(tmp_path):
    """Against a hand calculation, and tables of Demsar: q = 2.728 for five methods."""
    ranks = module_of("papers/gp_ranks.py")
    sets = ["a", "b"]
    lists = {
        "first": {"a": [1.0, 2.0], "b": [2.0, 4.0]},
        "second": {"a": [4.0, 6.0], "b": [3.0, 3.0]},
        "third": {"a": [9.0, 9.0], "b": [0.0, 2.0]},
    }
    scores = numbered(lists)
    assert ranks.mean_ranks(scores, sets) == {"first": 1.75, "second": 2.25, "third": 2.0}
    z = ranks.z_statistic(lists["first"]["a"], lists["second"]["a"])
    np.testing.assert_allclose(z, 3.5 / np.hypot(0.5, 1.0))
    np.testing.assert_allclose(
        ranks.critical_difference(5, 30), 2.728 * np.sqrt(30 / 180), rtol=1e-3
    )
    assert ranks.groups({"a": 1.0, "b": 1.5, "c": 2.5, "d": 4.0}, 1.0) == [(1.0, 1.5), (1.5, 2.5)]
    # the same values again and again: five partitions have a standard error, two and four have none
    many = {m: {n: 3 * v for n, v in values.items()} for m, values in lists.items()}
    many["third"] = lists["third"]
    printed = ranks.comparisons(numbered(many))
    assert "| first |  | 1 / 0, 1.00 | -, 1.00 |" in printed
    assert "| third | -, 1.00 | -, 1.00 |  |" in printed
    assert "| a | 2 | 1.50 ± - | 5.00 ± - |" in ranks.table(scores, sets, 2)
    assert ranks.cell([1.0, 2.0, 1.0, 2.0], 2) == "1.50 ± -"
    assert ranks.cell([1.0, 2.0, 1.0, 2.0, 1.5], 2) == "1.50 ± 0.22"
    pytest.importorskip("matplotlib").use("Agg")
    ranks.draw(ranks.mean_ranks(scores, sets), 0.3, tmp_path / "ranks.png")
    assert (tmp_path / "ranks.png").stat().st_size > 0

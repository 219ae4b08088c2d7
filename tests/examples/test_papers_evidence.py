"""Scripts on the evidence and on class probabilities: the tables they make of their records."""

import numpy as np
import pytest
from scripts import module_of

from jaxsvm import calibration


def drawn(seed, count=300):
    rng = np.random.default_rng(seed)
    p = rng.uniform(size=count)
    return np.where(rng.uniform(size=count) < p, 1, -1), p


def test_bins_of_partitions_make_the_diagram_of_all_predictions(tmp_path):
    pytest.importorskip("sklearn")
    module = module_of("papers/calibration.py")
    pairs = [drawn(seed) for seed in range(2)]
    rows = [{"Platt": module.scores_of(y, p)} for y, p in pairs]
    y, p = (np.concatenate(part) for part in zip(*pairs, strict=True))
    pooled = module.pooled(rows, "Platt")
    for ours, expected in zip(
        calibration.reliability(*pooled), calibration.reliability(y, p), strict=True
    ):
        np.testing.assert_allclose(ours, expected)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    store = module.Store(None, "")
    for number, (y, p) in enumerate(pairs):
        store.records[f"heart/{number:02d}"] = {
            label: module.scores_of(y, p**power)
            for label, power in zip(module.DRAWN, (1, 2, 3), strict=True)
        }
    module.draw(store, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    with pytest.raises(SystemExit, match="no record holds the bins"):
        module.draw(module.Store(None, ""), tmp_path / "none.png")


def test_steps_and_seconds_are_of_the_same_part_of_an_ascent(capsys):
    module = module_of("papers/gold_sollich_nystrom.py")
    assert module.LANDMARKS[-1] == "all"
    records = {
        f"tune/heart/{p}": {"steps": 20 + p, "seconds": 40.0 + 2 * p, "at": {"0.15": {"step": 10}}}
        for p in range(module.TUNED)
    }
    module.show(records)
    assert "| heart | 10 ± 0 | 29 ± 7 | 20.0 | 0:15 | 22 ± 2 | 44.0 |" in capsys.readouterr().out


def test_printed_output_goes_to_the_file(tmp_path, capsys):
    printed_to = module_of("benchmarks/measure.py").printed_to
    with printed_to(tmp_path / "new" / "text.txt"):
        print("one\ntwo", flush=True)
    with printed_to(None):
        print("three")
    assert (tmp_path / "new" / "text.txt").read_text() == "one\ntwo\n"
    assert capsys.readouterr().out == "one\ntwo\nthree\n"

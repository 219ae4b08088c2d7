"""What `tune` keeps of an unfinished run, and what it may remove."""

import csv

import numpy as np
import pytest

from jaxsvm import persistence
from jaxsvm.command import _state, main

MARKS = ("0123456789abcdef" * 4, "fedcba9876543210" * 4)


@pytest.fixture
def table(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    path = tmp_path / "data.csv"
    with path.open("w", newline="") as file:
        rows = [[*row, "yes" if row[0] > 0 else "no"] for row in x]
        csv.writer(file).writerows([["a", "b", "answer"], *rows])
    return path


def arguments(table, *more):
    out = table.with_name("model.jaxsvm")
    return ["tune", str(table), "--target", "answer", "--method", "press", "--ard", "no", "--quiet",
            "--output", str(out), *more]  # fmt: skip


def interrupt(monkeypatch, run):
    """Run, and interrupt after the first piece of the search is kept."""
    keep = _state.State.keep

    def interrupted(self, name, search):
        keep(self, name, search)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_state.State, "keep", interrupted)
        assert main(run) == 130


def test_a_run_removes_its_own_files_only(table, monkeypatch, capsys):
    others = [table.with_name(f"model.jaxsvm.state{end}") for end in ("", ".bak", ".1", ".a-b")]
    for path in others:
        path.write_text("precious")
    interrupt(monkeypatch, arguments(table))
    (state,) = table.parent.glob("model.jaxsvm.*.state")
    content = state.read_bytes()
    assert f"progress is saved in {state}" in capsys.readouterr().err
    assert main(arguments(table, "--seed", "1")) == 0  # another run with the same output
    assert f"{state} belongs to an unfinished run" in capsys.readouterr().err
    assert state.read_bytes() == content
    assert main(arguments(table)) == 0
    assert "resuming after 0 finished searches" in capsys.readouterr().err
    names = {path.name for path in table.parent.iterdir()}
    assert names == {"data.csv", "model.jaxsvm", *(path.name for path in others)}
    assert all(path.read_text() == "precious" for path in others)


def test_a_forged_state_removes_no_other_file(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("")
    state = _state.State(tmp_path / "model", MARKS[0], None, print)
    own = state.checkpoint("class 0")
    own.write_text("")
    names = ["precious", "../precious", "/etc/x", f"{state.path.stem}.x/../precious", "model"]
    content = persistence.load_as("state", state.path)
    content["checkpoints"] += names
    persistence.save_as("state", state.path, content)
    again = _state.State(tmp_path / "model", MARKS[0], None, print)
    assert again._checkpoints == [own.name]
    again.remove()
    assert list(tmp_path.iterdir()) == [precious]


def test_states_that_cannot_be_used(tmp_path):
    said = []
    path = _state.State(tmp_path / "model", MARKS[0], None, said.append).path
    sound = {"of": MARKS[0], "done": 0, "best": None, "searches": {}, "checkpoints": []}
    bad = [
        [], 3, {}, sound | {"of": MARKS[1]}, sound | {"done": "x"}, sound | {"done": -1},
        sound | {"searches": {"a": 1}}, sound | {"searches": []}, sound | {"checkpoints": [1]},
        sound | {"best": 1}, sound | {"best": {"estimator": [], "state": {}}}, sound | {"more": 1},
    ]  # fmt: skip
    for content in bad:
        persistence.save_as("state", path, content)
        state = _state.State(tmp_path / "model", MARKS[0], None, said.append)
        assert said.pop().startswith(f"{path} cannot be used; starting over: ")
        assert state.done == 0 and state.best is None
    path.write_bytes(b"PK")
    _state.State(tmp_path / "model", MARKS[0], None, said.append)
    assert "cannot be used" in said.pop()
    persistence.save_as("state", path, sound)
    _state.State(tmp_path / "model", MARKS[0], None, said.append)
    assert said == [f"resuming after 0 finished searches, from {path}"]
    with pytest.raises(persistence.WriteError, match="File name too long"):
        _state.State(tmp_path / ("x" * 250), MARKS[0], None, print)

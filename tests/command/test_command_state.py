"""The files that `tune` saves for an unfinished run, and which files it may remove."""

import csv

import numpy as np
import pytest
from interruptions import watch

from jaxsvm import persistence
from jaxsvm.command import _tune, main

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
    """Run, and interrupt after the first steps of the search are saved."""
    assert watch(monkeypatch, lambda: main(run), 1) == (130, [0])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_removes_its_own_files_only(table, monkeypatch, capsys):
    others = [table.with_name(f"model.jaxsvm.state{end}") for end in ("", ".bak", ".1", ".a-b")]
    for path in others:
        path.write_text("precious")
    interrupt(monkeypatch, arguments(table))
    (state,) = table.parent.glob("model.jaxsvm.*.state")
    content = contents(state)
    assert list(content) == ["class-0.jaxsvm"]
    assert f"progress is saved in {state}" in capsys.readouterr().err
    assert main(arguments(table, "--seed", "1")) == 0  # another run with the same output
    said = capsys.readouterr().err
    assert f"keeping {state}: it belongs to an unfinished run with other data or settings" in said
    assert contents(state) == content
    assert main(arguments(table)) == 0
    assert f"resuming from {state}" in capsys.readouterr().err
    names = {path.name for path in table.parent.iterdir()}
    assert names == {"data.csv", "model.jaxsvm", *(path.name for path in others)}
    assert all(path.read_text() == "precious" for path in others)


def test_files_of_others_in_the_folder_stay(tmp_path):
    precious = tmp_path / "precious.jaxsvm"
    precious.write_text("")
    state = _tune.State(tmp_path / "model", MARKS[0], print)
    state.folder.mkdir()
    (state.folder / "class-0.jaxsvm").write_text("")
    (state.folder / "link.jaxsvm").symlink_to(precious)
    others = ["notes.txt", "Mine.jaxsvm", "folder.jaxsvm", "class-0.jaxsvm.bak", ".jaxsvm"]
    for name in others:
        (state.folder / name).mkdir() if name.startswith("folder") else (
            state.folder / name
        ).touch()
    _tune.State(tmp_path / "model", MARKS[0], print).remove()
    assert sorted(path.name for path in state.folder.iterdir()) == sorted(others)
    assert precious.exists()


def test_a_link_to_another_folder_is_refused(tmp_path):
    """Whoever put the link there could make us remove files in that folder."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.jaxsvm").touch()
    folder = _tune.State(tmp_path / "model", MARKS[0], print).folder
    folder.symlink_to(other)
    with pytest.raises(persistence.WriteError, match="is a link: remove it"):
        _tune.State(tmp_path / "model", MARKS[0], print)
    assert (other / "precious.jaxsvm").exists()


def test_damaged_checkpoints_are_refused(table, monkeypatch, capsys):
    interrupt(monkeypatch, arguments(table))
    (state,) = table.parent.glob("model.jaxsvm.*.state")
    file = state / "class-0.jaxsvm"
    whole = file.read_bytes()
    content = persistence.load_as("checkpoint", file)
    forged = [
        [], {}, content | {"format": 0}, content | {"fingerprint": MARKS[0]}, content | {"starts": []},
        content | {"starts": {0: {"steps": 3, "leaves": []}}},
    ]  # fmt: skip
    for thing in ["damaged", "cut", *forged]:
        if isinstance(thing, str):
            file.write_bytes(b"PK" if thing == "damaged" else whole[:-100])
        else:
            persistence.save_as("checkpoint", file, thing)
        before = file.read_bytes()
        capsys.readouterr()
        assert main(arguments(table)) == 3
        said = capsys.readouterr().err
        assert str(file) in said and "remove it to start over" in said
        assert file.read_bytes() == before and not table.with_name("model.jaxsvm").exists()
    file.write_bytes(whole)
    assert main(arguments(table)) == 0
    assert sorted(path.name for path in table.parent.iterdir()) == ["data.csv", "model.jaxsvm"]


def test_places_that_cannot_be_used(tmp_path, table, monkeypatch, capsys):
    with pytest.raises(persistence.WriteError, match="File name too long"):
        _tune.State(tmp_path / ("x" * 250), MARKS[0], print)
    interrupt(monkeypatch, arguments(table))
    (folder,) = table.parent.glob("model.jaxsvm.*.state")
    (folder / "class-0.jaxsvm").unlink()
    folder.rmdir()
    folder.write_text("precious")
    capsys.readouterr()
    assert main(arguments(table)) == 3
    assert f"must be a folder, but {folder} is a file" in capsys.readouterr().err
    assert folder.read_text() == "precious"

"""Damaged and forged files, odd tables and command lines, at random: what was tried, and what failed.

A case fails if anything but the documented error comes out, if a file that was there is lost, or if
something is left behind. `python tests/fuzz_files.py 2000` tries that many cases in each area and prints a
table; `test_fuzz_files.py` tries a few.
"""

import contextlib
import copy
import csv
import errno
import functools
import hashlib
import io
import json
import os
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import jaxsvm as jsvm
from jaxsvm.command import _tune, main
from jaxsvm.persistence import write_whole
from jaxsvm.persistence._container import MANIFEST, SEAL
from jaxsvm.selection._checkpoint import Checkpoint

X = np.random.default_rng(0).normal(size=(40, 2))
Random = np.random.Generator


# --- sound files -----------------------------------------------------------------------------------------


@functools.cache
def sound_files() -> dict[str, bytes]:
    """The content of one file of each kind."""
    with tempfile.TemporaryDirectory() as name, quiet():
        folder = Path(name)
        y = np.where(X[:, 0] > 0, 1.0, -1.0)
        kernel = jsvm.kernels.RBF(0.3) + jsvm.kernels.Subspace(jsvm.kernels.Polynomial(2), (0,))
        model = jsvm.freeze(jsvm.KernelMachine(kernel, jsvm.losses.Hinge(2.0)), "loss")
        things = {
            "fit": jsvm.fit(model, X[:6], y[:6]), "labels": np.array(["yes", "no"]), "mixed": (1, None, 2.5),
            "criterion": jsvm.criteria.Span(), "again": [model, True],
        }  # fmt: skip
        jsvm.save(folder / "thing", things)
        example = (jnp.arange(3.0), jnp.zeros((0, 2)))
        Checkpoint(folder / "checkpoint", "a run").save(0, (example[0], np.zeros((1, 2))), 1)
        table(
            folder / "data.csv", ["a", "b", "answer"], [[*x, s] for x, s in zip(X, y, strict=True)]
        )
        tune = [
            "tune",
            str(folder / "data.csv"),
            "--target",
            "answer",
            "--method",
            "press",
            "--ard",
            "no",
        ]
        assert main([*tune, "--quiet", "--output", str(folder / "model")]) == 0
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def table(path: Path, names, rows) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(parts: dict[str, bytes]) -> bytes:
    """A file of those members, with a checksum that agrees: what a forger would make."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
        archive.comment = SEAL + b"0" * 64
    content = stream.getvalue()[:-64]
    return content + hashlib.sha256(content).hexdigest().encode()


@contextlib.contextmanager
def quiet():
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        yield out


# --- what is done to them --------------------------------------------------------------------------------

POOL = (
    0, -1, 1.5, None, True, "x", [], {}, {"frozen": 0}, {"array": 0, "as": "jax"}, {"tuple": []},
    {"array": 1, "as": "numpy"}, {"array": 0, "as": "scalar"}, {"dict": []}, {"float": "nan"}, [[]],
    {"result": "successful"}, 10**30, "kernels.RBF", {"function": "jax.numpy.tanh"}, {"yours": "x"},
)  # fmt: skip


def places(node, at=()) -> Iterator[tuple]:
    if at:
        yield at
    entries = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    for key, value in entries:
        yield from places(value, (*at, key))


def at_place(node, at):
    for key in at:
        node = node[key]
    return node


def damaged(content: bytes, random: Random) -> bytes:
    """The file with a few bytes changed, cut out, repeated, or with its end missing."""
    changed = bytearray(content)
    for _ in range(random.integers(1, 4)):
        place = int(random.integers(len(changed))) if changed else 0
        length = int(random.integers(1, 40))
        match random.integers(4):
            case 0 if changed:
                changed[place] ^= 1 << random.integers(8)
            case 1:
                del changed[place : place + length]
            case 2:
                changed[place:place] = changed[:length]
            case 3:
                del changed[max(place, 1) :]
    return bytes(changed)


def forged(content: bytes, random: Random) -> bytes:
    """The file with its description or its arrays changed, and a checksum that agrees."""
    parts = members(content)
    manifest = json.loads(parts[MANIFEST])
    for _ in range(random.integers(1, 4)):
        here = list(places(manifest))
        *above, last = here[random.integers(len(here))]
        value = POOL[random.integers(len(POOL))]
        if random.random() < 0.5:
            value = at_place(manifest, here[random.integers(len(here))])
        at_place(manifest, above)[last] = copy.deepcopy(value)
    if random.random() < 0.2:
        arrays = [name for name in parts if name != MANIFEST]
        one, two = (arrays[random.integers(len(arrays))] for _ in range(2))
        parts[one] = parts[two] if random.random() < 0.5 else damaged(parts[one], random)
    return sealed({**parts, MANIFEST: json.dumps(manifest).encode()})


CELLS = (
    "", "0", "1", "-1", "1.5", "1e5", "1e999", "-1e-999", "1e99999999999999999999", "nan", "inf", "-inf",
    "NA", "-", "+", "007", "7", "1_0", "10", "1,5", "1.000,5", "yes", "no", "=1+1", "@x", "'=x", "none",
    "١٢", "\u22125", "\u00e9", "\U0001f600", " a ", "a\nb", 'a"b', "a,b", "a;b", "x" * 2000,
    "10000000000000000",
    "10000000000000001", "\0", "$x_", "\x1b[31m", "True",
)  # fmt: skip


CODES = (
    "007",
    "7",
    "7.0",
    "07",
    "1_0",
    "10",
    "1e1",
    "10000000000000000",
    "10000000000000001",
    "1e16",
    "-",
)
MISSING = ("", "na", "n/a", "nan", "null", "none", "?")


def odd_table(random: Random) -> bytes:
    """A table of odd cells, or of mostly numbers with some odd cells, or hardly a table."""
    names = [
        str(random.choice(["a", "b", "$c_", "=d", "", "e e", "\u00e9"])) + str(i) for i in range(3)
    ]
    codes = random.random() < 0.3
    few = random.choice(CODES if codes else CELLS, random.integers(2, 6))
    share = random.choice([0.0, 0.02, 0.5, 1.0])
    rows = [
        [
            str(random.choice(few)) if random.random() < share else f"{random.normal():.4g}"
            for _ in names
        ]
        for _ in range(random.integers(0, 40))
    ]
    for row in rows:
        keep = codes or random.random() < 0.8
        row.append(str(random.choice(few)) if keep else f"{random.integers(5)}")
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=str(random.choice([",", ";", "\t"])))
    writer.writerows([[*names, "target"], *rows])
    content = stream.getvalue().encode()
    return damaged(content, random) if random.random() < 0.3 else content


# --- the areas: each tries one case, and raises if it fails ----------------------------------------------


def refused(error: type[Exception], use: Callable[[], object]) -> bool:
    try:
        use()
    except error as raised:
        assert str(raised)
        return True
    return False


def damaged_things(random: Random, folder: Path) -> None:
    content = sound_files()["thing"]
    changed = damaged(content, random)
    (folder / "file").write_bytes(changed)
    was = refused(jsvm.FileError, lambda: jsvm.load(folder / "file"))
    assert was or changed == content


def forged_things(random: Random, folder: Path) -> None:
    (folder / "file").write_bytes(forged(sound_files()["thing"], random))
    refused(jsvm.FileError, lambda: repr(jsvm.load(folder / "file")))


def bad_checkpoints(random: Random, folder: Path) -> None:
    change = damaged if random.random() < 0.5 else forged
    content = sound_files()["checkpoint"]
    changed = change(content, random)
    (folder / "file").write_bytes(changed)
    example = (jnp.arange(3.0), jnp.zeros((0, 2)))
    found = []

    def resume():
        checkpoint = Checkpoint(folder / "file", "a run")
        if checkpoint.has(0) or change is damaged:  # a forger may give a start another number
            found.append(checkpoint.load(0, example))

    if not refused(ValueError, resume):
        assert change is forged or changed == content
        for leaf in jax.tree.leaves(found):
            assert isinstance(leaf, int) or leaf.shape in ((3,), (1, 2))


def bad_models(random: Random, folder: Path) -> None:
    change = damaged if random.random() < 0.3 else forged
    content = sound_files()["model"]
    changed = change(content, random)
    (folder / "file").write_bytes(changed)
    table(folder / "data.csv", ["a", "b"], X[:5])
    with quiet() as out:
        code = main(["show", str(folder / "file")])
        assert code in (0, 4) and (code == 4 or change is forged or changed == content)
    with quiet() as out:
        code = main(["predict", str(folder / "file"), str(folder / "data.csv")])
        assert code in (0, 3, 4, 5)
        assert code or (out.getvalue().count("\n") == 6 and "nan" not in out.getvalue())


class Reached(Exception):
    """The search would begin now."""


def odd_tables(random: Random, folder: Path) -> None:
    (folder / "data.csv").write_bytes(odd_table(random))
    task = str(random.choice(["auto", "classification", "regression"]))
    arguments = ["tune", str(folder / "data.csv"), "--target", "target", "--task", task, "--output"]
    found = []

    def search(estimator, x, y, chosen):
        found.extend([x, y])
        raise Reached

    with quiet(), mock.patch.object(_tune, "_fit", search):
        try:
            assert main([*arguments, str(folder / "model")]) == 3
        except Reached:
            x, y = found
            assert np.isfinite(x).all() and len(x) == len(y)
            if y.dtype.kind == "U":  # each text is a separate class
                cells = {row[-1].strip() for row in rows_of(folder / "data.csv") if row}
                wanted = {cell for cell in cells if cell.lower() not in MISSING}
                assert set(y) in (wanted, wanted - {"-"})
            else:
                assert np.isfinite(y).all()
    assert [path.name for path in folder.iterdir()] == ["data.csv"]


def rows_of(path: Path) -> list[list[str]]:
    text = path.read_bytes().decode("utf-8-sig")
    separator = max(",;\t", key=text.partition("\n")[0].count)
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))[1:]


def odd_points(random: Random, folder: Path) -> None:
    """Predictions for odd tables."""
    (folder / "model").write_bytes(sound_files()["model"])
    content = odd_table(random).replace(b"a0", b"a", 1).replace(b"b1", b"b", 1)
    names, _, rest = content.partition(b"\n")
    separator = max((b",", b";", b"\t"), key=names.count)
    if random.random() < 0.9:
        names = separator.join([b"a", b"b", b"c", b"d"])
    (folder / "data.csv").write_bytes(names + b"\n" + rest)
    with quiet() as out:
        code = main(["predict", str(folder / "model"), str(folder / "data.csv")])
    assert code in (0, 3)
    if code == 0:
        rows = [row for row in rows_of(folder / "data.csv") if any(cell.strip() for cell in row)]
        assert len(list(csv.reader(io.StringIO(out.getvalue())))) == len(rows) + 1


WORDS = (
    "tune", "predict", "show", "--target", "answer", "--task", "regression", "--method", "span", "evidence",
    "--seed", "-1", "0", "99999999999999999999", "nan", "--output", ".", "", "a\0b", "/nowhere/x", "--report",
    "--restarts", "--seconds", "-5", "1e400", "--test-share", "--level", "--ignore", "--ard", "yes",
    "data.csv", "model", "--", "-h", "\ud800", "x" * 300, "--kernel", "rbf", "--version", "--quiet",
)  # fmt: skip


def odd_command_lines(random: Random, folder: Path) -> None:
    for name in ("data.csv", "model"):
        (folder / name).write_bytes(sound_files()[name])
    command = str(random.choice(["tune", "predict", "show"]))
    words = [str(word) for word in random.choice(WORDS, random.integers(0, 7))]
    arguments = [str(folder / word) if word in ("data.csv", "model") else word for word in words]
    here = Path.cwd()
    os.chdir(folder)
    try:
        with quiet(), mock.patch.object(_tune, "_fit", side_effect=Reached):
            assert main([command, *arguments]) in (0, 3, 4, 6)
    except SystemExit as stopped:
        assert stopped.code in (0, 2)
    except Reached:
        pass
    finally:
        os.chdir(here)
    for name in ("data.csv", "model"):
        if not any("output" in word or "report" in word for word in words):
            assert (folder / name).read_bytes() == sound_files()[name]


def failing_writes(random: Random, folder: Path) -> None:
    """Writes that fail at some call of the system, on files of all kinds: nothing is lost or left."""
    old, new = b"old" * 1000, random.bytes(int(random.integers(0, 5000)))
    path = folder / "file"
    kind = str(random.choice(["none", "file", "link", "dangling", "pipe", "folder", "loop"]))
    match kind:
        case "file":
            path.write_bytes(old)
        case "link":
            (folder / "real").write_bytes(old)
            path.symlink_to("real")
        case "dangling":
            path.symlink_to("real")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to("file")
    before = {p.name: p.lstat().st_mode for p in folder.iterdir()}
    call = random.choice(["none", "open", "fdopen", "fchmod", "fsync", "replace", "unlink"])
    failure = KeyboardInterrupt if random.random() < 0.3 else OSError(errno.EIO, "broken")
    count = [int(random.integers(1, 3))]
    original = getattr(os, str(call), None)

    def fails(*arguments, **options):
        count[0] -= 1
        if count[0] == 0:
            raise failure
        return original(*arguments, **options)

    failed = False
    context = (
        contextlib.nullcontext() if call == "none" else mock.patch.object(os, str(call), fails)
    )
    with context:
        try:
            write_whole(path, new)
        except (jsvm.FileError, KeyboardInterrupt):
            failed = True
    after = {p.name: p.lstat().st_mode for p in folder.iterdir()}
    if kind in ("pipe", "folder", "loop"):
        assert failed and after == before
        return
    target = path.resolve()
    extra = set(after) - set(before) - {target.name}
    assert not extra or call == "unlink", extra
    if target.exists():
        found = target.read_bytes()
        assert found == new or (failed and found == old)
    else:
        assert failed and kind in ("none", "dangling")


AREAS = {
    function.__name__.replace("_", " "): function
    for function in (
        damaged_things, forged_things, bad_checkpoints, bad_models, odd_tables, odd_points,
        odd_command_lines, failing_writes,
    )
}  # fmt: skip


def run(area: str, cases: int, seed: int = 0) -> list[str]:
    """Try a number of cases of an area; return one traceback for each failure."""
    failures = []
    for case in range(cases):
        with tempfile.TemporaryDirectory() as folder:
            try:
                AREAS[area](np.random.default_rng([seed, case]), Path(folder))
            except Exception:
                failures.append(f"{area}, case {case} of seed {seed}\n{traceback.format_exc()}")
    return failures


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    print(f"{'area':20s} {'tried':>7s} {'failed':>7s}")
    for area in AREAS:
        failures = run(area, cases, seed)
        print(f"{area:20s} {cases:7d} {len(failures):7d}", flush=True)
        for failure in failures[:3]:
            print(failure, file=sys.stderr)

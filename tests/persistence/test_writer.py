"""Files are written completely or not at all, to regular files only, and leave nothing else behind."""

import contextlib
import os
import socket
import stat
import threading
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm.persistence import WriteError, require_writable, write_whole
from jaxsvm.selection._checkpoint import Checkpoint

MODEL = jsvm.kernels.RBF(0.5)


def save_checkpoint(path):
    Checkpoint(path, "a run").save(0, (jnp.arange(3.0),), 1)


WRITERS = [lambda path: jsvm.save(path, MODEL), save_checkpoint]


def special_files(folder):
    """A pipe, a socket, a folder and, where that is allowed, a device."""
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(folder)  # names of sockets must be short
        server.bind("socket")
    (folder / "folder").mkdir()
    with contextlib.suppress(PermissionError):
        os.mknod(folder / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    return sorted(folder.iterdir())


@pytest.mark.parametrize("write", WRITERS)
def test_only_regular_files_are_replaced(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # and back
    files = special_files(tmp_path)
    assert len(files) >= 3
    for path in files:
        before = path.lstat()
        link = tmp_path / "link"
        link.symlink_to(path)
        for name in (path, link):
            with pytest.raises(WriteError, match=r"is a (pipe|socket|folder|device): "):
                write(name)
        after = path.lstat()
        assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
        link.unlink()
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the links to open files of Linux")
def test_open_files_are_not_replaced(write, tmp_path):
    """`--output /dev/stdout >> all.csv` must not throw away what `all.csv` holds."""
    path = tmp_path / "all.csv"
    path.write_bytes(b"earlier")
    (tmp_path / "link").symlink_to("/dev/fd")
    with path.open("ab") as file:
        for name in (f"/dev/fd/{file.fileno()}", f"{tmp_path}/link/{file.fileno()}"):
            with pytest.raises(WriteError, match="a file that a process has open"):
                write(Path(name))
    assert path.read_bytes() == b"earlier"


@pytest.mark.parametrize("write", WRITERS)
def test_names_that_no_file_can_have(write, tmp_path):
    for name in ("a\0b", "x" * 300, "\ud800"):
        with pytest.raises(jsvm.FileError, match="cannot be written"):
            write(tmp_path / name)
    (tmp_path / "file").touch()
    with pytest.raises((jsvm.FileError, FileExistsError, NotADirectoryError)):
        write(tmp_path / "file" / "inside")


def test_links_of_the_user_are_followed_and_stay(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "file"
    (tmp_path / "second").symlink_to("elsewhere/file")
    (tmp_path / "first").symlink_to("second")
    for content in (b"new", b"old"):  # the link leads to no file at first
        write_whole(tmp_path / "first", content)
        assert target.read_bytes() == content and not target.is_symlink()
    assert os.readlink(tmp_path / "first") == "second"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(WriteError, match="cannot be written: Too many levels"):
        write_whole(tmp_path / "loop", b"")


def test_links_of_other_users_are_refused(tmp_path, monkeypatch):
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("precious")
    link.symlink_to(victim)
    if os.geteuid() == 0:
        os.lchown(link, 12345, 12345)
    else:
        user = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(WriteError, match="another user made"):
        write_whole(link, b"replaced")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("suffix", [".partial", ".tmp"])
def test_no_name_beside_the_file_is_written_through(suffix, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for write in WRITERS:
        path = tmp_path / "run"
        path.with_name("run" + suffix).symlink_to(victim)
        write(path)
        assert victim.read_text() == "precious"
        path.unlink()
        path.with_name("run" + suffix).unlink()


def test_content_and_name_are_flushed_to_the_disk(tmp_path, monkeypatch):
    kinds, flush = [], os.fsync

    def noted(descriptor):
        kinds.append(stat.S_IFMT(os.fstat(descriptor).st_mode))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    save_checkpoint(tmp_path / "run")
    assert kinds == [stat.S_IFREG, stat.S_IFDIR]


def test_permissions_are_kept(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"one")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    for mode in (0o600, 0o640, 0o666):
        path.chmod(mode)
        write_whole(path, b"two")
        assert stat.S_IMODE(path.stat().st_mode) == mode
    monkeypatch.setattr(os, "access", lambda place, mode: False)  # root may always write
    with pytest.raises(WriteError, match="is not writable: choose another location"):
        write_whole(path, b"three")
    assert path.read_bytes() == b"two"
    with pytest.raises(WriteError, match="is not writable, since its folder is not"):
        require_writable(tmp_path / "new")


def test_an_interruption_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"one")

    def interrupted(*_):
        raise KeyboardInterrupt

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                write_whole(path, b"two")
        assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"one"


def test_writers_of_the_same_checkpoint_do_not_collide(tmp_path):
    path = tmp_path / "run"
    problems = []

    def write_often(number):
        checkpoint = Checkpoint(None, "a run")
        checkpoint._path, checkpoint._fingerprint = path, "mark"
        try:
            for steps in range(20):
                checkpoint.save(number, (jnp.full(2000, float(steps)),), steps)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=write_often, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == [] and list(tmp_path.iterdir()) == [path]


def test_damaged_and_forged_checkpoints_are_refused(tmp_path):
    """Some have a valid checksum; the only error is a `ValueError`."""
    from jaxsvm.persistence import load_as, save_as

    path = tmp_path / "run"
    save_checkpoint(path)
    content, whole = load_as("checkpoint", path), path.read_bytes()
    entry = content["starts"][0]
    forged = [
        {"format": 3}, [], content | {"starts": 3}, content | {"starts": {0: 1}},
        content | {"starts": {0: entry | {"steps": -1}}}, content | {"starts": {0: {"steps": 1}}},
        content | {"starts": {0: entry | {"leaves": [1.0]}}}, content | {"format": 99},
        content | {"starts": {"leaves": entry}}, content | {"starts": {-1: entry}},
        content | {"starts": {True: entry}},
    ]  # fmt: skip
    for thing in forged:
        save_as("checkpoint", path, thing)
        with pytest.raises(ValueError, match=r"remove it to start over|another model"):
            Checkpoint(path, "a run")
    for leaves in ([np.arange(4.0)], [np.arange(3)], [], [np.array(["a", "b", "c"])]):
        save_as("checkpoint", path, content | {"starts": {0: entry | {"leaves": leaves}}})
        with pytest.raises(ValueError, match="does not fit this run"):
            Checkpoint(path, "a run").load(0, (jnp.zeros(3),))
    random = np.random.default_rng(0)
    for length in random.integers(0, len(whole), 30):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="not a checkpoint, or is damaged"):
            Checkpoint(path, "a run")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="not a checkpoint, or is damaged"):
        Checkpoint(tmp_path / "other.npz", "a run")

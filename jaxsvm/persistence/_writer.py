"""Files that are written whole or not at all, and the errors of files."""

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path

_MAX_LINKS = 40  # in a chain, as Linux has it
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_CREATE |= getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# errors of systems that cannot open or flush a folder
_NO_FLUSH = {errno.EINVAL, errno.EACCES, errno.EPERM, errno.EBADF, errno.ENOSYS, errno.ENOTSUP}


class FileError(ValueError):
    """A file cannot be read or written, or its content is invalid; the message says why."""


class WriteError(FileError, OSError):
    """A file cannot be written; the message says why and what to do."""


def kind_of(mode: int) -> str | None:
    """The kind of a file from its mode, such as "a pipe"; None for a regular file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "not a regular file")


def write_whole(path: str | os.PathLike[str], *parts: bytes | memoryview) -> None:
    """Replace the content of a file in one step, or leave the file as it is.

    The content is written to a new file with an unpredictable name in the same folder, flushed to disk, and
    then replaces the old file. The new file is removed if anything fails.

    Regular files are replaced and keep their permissions. Devices, pipes, sockets, folders, files without
    write permission, and open files such as `/dev/stdout` are refused. A symbolic link at `path` is followed
    and stays in place if it belongs to the current user or to root; a link made by another user is refused.
    Other hard links to the file keep the old content.

    **Arguments:** `path`, the file to write, in an existing folder; `parts`, the content.

    **Returns:** nothing; raises `WriteError` if the file cannot be written.
    """
    try:
        target, old = _target(path)
        temporary = target.with_name(f".jaxsvm-{secrets.token_hex(8)}.tmp")
        # the new file is never more readable to others than the old one
        descriptor = os.open(temporary, _CREATE, 0o666 if old is None else 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                if old is not None:
                    _keep_rights(file.fileno(), old)
                os.fsync(file.fileno())
            _target(target)  # again: something else may have appeared there meanwhile
            os.replace(temporary, target)
        finally:
            with suppress(OSError):  # after the replacement it is gone
                temporary.unlink()
        _flush_folder(target.parent)
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {error.strerror or error}") from error


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise a `WriteError` now if `write_whole` would refuse the path later.

    **Arguments:** `path`, the file to write.
    """
    try:
        target, _ = _target(path)
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {error.strerror or error}") from error
    if not target.parent.is_dir():
        raise WriteError(f"the folder {target.parent} does not exist: create it first")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise WriteError(
            f"{path} is not writable, since its folder is not: choose another location"
        )


def _target(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """The file to replace, after following links, and its status (None if it does not exist)."""
    target = Path(path)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        pass
    except ValueError as error:  # an invalid name
        raise WriteError(f"{str(path)!r} cannot be written: {error}") from error
    else:
        _require_regular(path, mode)  # also behind links to objects without a name
    for _ in range(_MAX_LINKS):
        try:
            status = os.lstat(target)
        except FileNotFoundError:
            return target, None
        if not stat.S_ISLNK(status.st_mode):
            _require_regular(path, status.st_mode)
            if not os.access(target, os.W_OK):
                raise WriteError(f"{path} is not writable: choose another location")
            return target, status
        if _is_in_proc(target):
            raise WriteError(
                f"{path} is a file that a process has open, not the name of one: choose another name, or "
                "redirect the output"
            )
        if not _is_trusted(status):
            raise WriteError(
                f"{path} is a symbolic link that another user made: remove it, "
                "or choose another location"
            )
        target = target.parent / os.readlink(target)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _require_regular(path: str | os.PathLike[str], mode: int) -> None:
    kind = kind_of(mode)
    if kind == "a folder":
        raise WriteError(f"{path} is a folder: give the name of a file in it")
    if kind is not None:
        raise WriteError(f"{path} is {kind}: only regular files are written; choose another name")


def _is_trusted(status: os.stat_result) -> bool:
    return sys.platform == "win32" or status.st_uid in (os.geteuid(), 0)


def _is_in_proc(link: Path) -> bool:
    """Whether a link is one of Linux to an open file, whose content may be needed: `/dev/stdout` is one."""
    return os.path.realpath(link.parent).startswith("/proc/")


def _keep_rights(descriptor: int, old: os.stat_result) -> None:
    if sys.platform == "win32":  # no owners and modes of this kind
        return
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):  # most users may not change the owner
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


def _flush_folder(folder: Path) -> None:
    """Make the new name survive a power failure, if the system supports it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise

"""Files that are written whole or not at all, and the errors of files."""

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path

_MOST_LINKS = 40  # in a chain, as Linux has it
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_NEW |= getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# what systems answer that cannot open or flush a folder
_NO_FLUSH = {errno.EINVAL, errno.EACCES, errno.EPERM, errno.EBADF, errno.ENOSYS, errno.ENOTSUP}


class FileError(ValueError):
    """A file cannot be read or written, or its content is invalid; the message says why."""


class WriteError(FileError, OSError):
    """A file cannot be written; the message says why and what to do."""


def kind_of(mode: int) -> str | None:
    """What the mode of a file says it is, such as "a pipe"; None for a regular file."""
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "not a regular file")


def write_whole(path: str | os.PathLike[str], *parts: bytes | memoryview) -> None:
    """Replace the content of a file in one step, or leave the file as it is.

    The content goes to a new file with an unpredictable name in the same folder, is flushed to the disk,
    and then takes the place of the old file. The new file is removed if anything fails.

    Regular files are replaced and keep their permissions; devices, pipes, sockets and folders are refused,
    as are files without write permission. A symbolic link at `path` is followed and stays in place if it
    belongs to the current user or to root; a link made by another user is refused. Other hard links to the
    file keep the old content.

    **Arguments:** `path`, of the file, in a folder that exists; `parts`, the content.

    **Returns:** nothing; raises `WriteError` where the file cannot be written.
    """
    try:
        target, old = _target(path)
        temporary = target.with_name(f".jaxsvm-{secrets.token_hex(8)}.tmp")
        # others see no more of the new file than of the old one, at any time
        descriptor = os.open(temporary, _NEW, 0o666 if old is None else 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                if old is not None:
                    _keep_rights(file.fileno(), old)
                os.fsync(file.fileno())
            _target(target)  # what has appeared there meanwhile is not to be lost
            os.replace(temporary, target)
        finally:
            with suppress(OSError):  # after the replacement there is none
                temporary.unlink()
        _flush_folder(target.parent)
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {error.strerror or error}") from error


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise a `WriteError` now if `write_whole` would refuse the path later.

    **Arguments:** `path`, of the file.
    """
    try:
        target, _ = _target(path)
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {error.strerror or error}") from error
    if not target.parent.is_dir():
        raise WriteError(f"there is no folder {target.parent}: make it first")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise WriteError(
            f"{path} is not writable, since its folder is not: choose another location"
        )


def _target(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """The file to replace, behind all links, and its status, None if there is no such file."""
    place = Path(path)
    try:
        mode = os.stat(place).st_mode
    except FileNotFoundError:
        pass
    except ValueError as error:  # a name that no file can have
        raise WriteError(f"{str(path)!r} cannot be written: {error}") from error
    else:
        _require_regular(path, mode)  # also where a link leads to something without a name
    for _ in range(_MOST_LINKS):
        try:
            status = os.lstat(place)
        except FileNotFoundError:
            return place, None
        if not stat.S_ISLNK(status.st_mode):
            _require_regular(path, status.st_mode)
            if not os.access(place, os.W_OK):
                raise WriteError(f"{path} is not writable: choose another location")
            return place, status
        if not _is_trusted(status):
            raise WriteError(
                f"{path} is a symbolic link that another user made, which may lead anywhere: remove it, "
                "or choose another location"
            )
        place = place.parent / os.readlink(place)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _require_regular(path: str | os.PathLike[str], mode: int) -> None:
    kind = kind_of(mode)
    if kind == "a folder":
        raise WriteError(f"{path} is a folder: give the name of a file in it")
    if kind is not None:
        raise WriteError(f"{path} is {kind}: only regular files are written; choose another name")


def _is_trusted(status: os.stat_result) -> bool:
    return sys.platform == "win32" or status.st_uid in (os.geteuid(), 0)


def _keep_rights(descriptor: int, old: os.stat_result) -> None:
    if sys.platform == "win32":  # which has no owners and modes of this kind
        return
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):  # only some users may give files away
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


def _flush_folder(folder: Path) -> None:
    """Make the new name last through a power failure, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise

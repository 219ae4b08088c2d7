"""Errors of files."""


class FileError(ValueError):
    """A file that cannot be read or written, or is not what it should be; the message says why."""


class WriteError(FileError, OSError):
    """A file that cannot be written; the message says why and what to do."""

"""The zip archive of a file: one description and the arrays, verified to the last byte."""

import hashlib
import io
import json
import math
import os
import struct
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._writer import FileError, kind_of, write_whole

FORMAT = "jaxsvm"
VERSION = 1
MANIFEST = "jaxsvm.json"
SEAL = b"jaxsvm sha256 "
_DIGITS = 64
_BEFORE_NAME = 30  # bytes of a zip archive before the name of its first member
_TIME = (1980, 1, 1, 0, 0, 0)  # constant, so that equal contents make equal files

_DAMAGE = (
    zipfile.BadZipFile,
    struct.error,
    OSError,
    EOFError,
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    MemoryError,
    RuntimeError,  # encryption, unknown compression methods, endless nesting
)


def is_storable(dtype: np.dtype) -> bool:
    """Whether a type holds plain numbers, truth values or text, which are the same on all machines."""
    if dtype.kind == "f":
        return dtype.itemsize in (2, 4, 8)
    if dtype.kind == "c":
        return dtype.itemsize in (8, 16)
    return dtype.kind in "biuSU"


def write(path: Path, manifest: dict[str, Any], arrays: Sequence[np.ndarray]) -> None:
    """Write a file completely, or leave the old one as it is."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        text = json.dumps(manifest, allow_nan=False, separators=(",", ":"))
        archive.writestr(zipfile.ZipInfo(MANIFEST, _TIME), text)
        for number, array in enumerate(arrays):
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(_member(number), _TIME), member.getbuffer())
        archive.comment = SEAL + b"0" * _DIGITS
    content = stream.getbuffer()[:-_DIGITS]
    digest = hashlib.sha256(content).hexdigest().encode()
    write_whole(path, content, digest)


def read(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Read the manifest and the arrays of a file, and check all that does not depend on their meaning."""
    content = _content(path)
    _verify(path, content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _members(archive, len(content))
        manifest = json.loads(members.pop(MANIFEST), parse_constant=_refuse_constant)
    except _DAMAGE as error:
        raise FileError(f"{path} is damaged: {error}") from error
    _check_version(path, manifest)
    try:
        count = manifest["arrays"]
        # compare the number of members first: a forged count may be huge
        agrees = type(count) is int and count == len(members)
        if not agrees or set(members) != {_member(i) for i in range(count)}:
            raise ValueError("its list of arrays does not match its members")
        return manifest, [_array(members[_member(number)]) for number in range(count)]
    except _DAMAGE as error:
        raise FileError(f"{path} is damaged: {error}") from error


def _content(path: Path) -> bytes:
    """Read a regular file or a pipe; a device might never end."""
    try:
        with path.open("rb") as file:
            kind = kind_of(os.fstat(file.fileno()).st_mode)
            if kind == "a device":
                raise FileError(f"{path} is a device: give a file or a pipe")
            return file.read()
    except FileNotFoundError as error:
        raise FileError(f"{path} does not exist") from error
    except (
        OSError,
        ValueError,
        MemoryError,
    ) as error:  # a folder, no permission, a NUL in the name
        if isinstance(error, FileError):
            raise
        raise FileError(f"{str(path)!r} cannot be read: {error}") from error


def _member(number: int) -> str:
    return f"arrays/{number}.npy"


def _verify(path: Path, content: bytes) -> None:
    name = content[_BEFORE_NAME : _BEFORE_NAME + len(MANIFEST)]
    if not content.startswith(b"PK\x03\x04") or name != MANIFEST.encode():
        raise FileError(
            f"{path} is {'empty' if not content else 'not a file of jaxsvm'}: `jaxsvm.load` reads files "
            "written by `jaxsvm.save`"
        )
    seal = content[-_DIGITS - len(SEAL) : -_DIGITS]
    if seal != SEAL:
        raise FileError(f"{path} is truncated: its end is missing")
    digest = hashlib.sha256(memoryview(content)[:-_DIGITS]).hexdigest().encode()
    if content[-_DIGITS:] != digest:
        raise FileError(f"{path} has been altered: its checksum does not match its contents")


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, bytes]:
    """Read all members by name; none is compressed, so together they are not larger than the file."""
    infos = archive.infolist()
    if len({info.filename for info in infos}) != len(infos):
        raise ValueError("two members have the same name")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"{info.filename!r} is compressed")
    if sum(info.file_size for info in infos) > size:
        raise ValueError("its members overlap")
    return {info.filename: archive.read(info) for info in infos}


def _refuse_constant(name: str):
    raise ValueError(f"{name} is not JSON")


def _check_version(path: Path, manifest: Any) -> None:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise FileError(f"{path} is not a file of jaxsvm: its description does not name the format")
    version = manifest.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise FileError(f"{path} is damaged: {version!r} is not a version of the format")
    if version > VERSION:
        raise FileError(
            f"{path} has version {version} of the format and was written by jaxsvm "
            f"{manifest.get('jaxsvm')}; this jaxsvm reads versions up to {VERSION}: upgrade jaxsvm"
        )


def _array(member: bytes) -> np.ndarray:
    """Read an array, after comparing its declared size with the bytes present, before taking memory."""
    stream = io.BytesIO(member)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            version = np.lib.format.read_magic(stream)
            if version == (1, 0):
                shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
            elif version == (2, 0):
                shape, by_columns, dtype = np.lib.format.read_array_header_2_0(stream)
            else:
                raise ValueError(f"an array has the unknown version {version}")
    except Exception as error:  # NumPy parses a header as Python, which fails in many ways
        raise ValueError(f"the header of an array cannot be read: {error}") from error
    if dtype.names is not None or dtype.subdtype is not None or not is_storable(dtype):
        raise ValueError(f"an array has the type {dtype}, which is not supported")
    if by_columns or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ValueError(f"an array has the invalid shape or order {shape}")
    data = memoryview(member)[stream.tell() :]
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"an array of shape {shape} and type {dtype} has {len(data)} bytes")
    array = np.empty(shape, dtype)  # new memory, aligned and writable
    if len(data):
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    _check_values(array)
    return array


def _check_values(array: np.ndarray) -> None:
    """Raise for bits that are not a valid value of the type, which NumPy would notice late or never."""
    flat = array.reshape(-1)
    if array.dtype.kind == "b" and (flat.view(np.uint8) > 1).any():
        raise ValueError("a truth value is neither true nor false")
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        points = flat.view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if (points > 0x10FFFF).any():
            raise ValueError("invalid Unicode code point")

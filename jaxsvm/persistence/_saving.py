"""`save` and `load`, and their variants for other kinds of files."""

import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ._container import FORMAT, VERSION, read, write
from ._describe import Describer
from ._rebuild import Rebuilder
from ._writer import FileError

# what a file may say about its reader: words and names, without control characters of terminals
_HINT = re.compile(r"[\w .,:`-]{1,120}", re.ASCII)


def save(path: str | os.PathLike[str], value: Any) -> None:
    """Write a model, a fit, or a structure of them to a file that holds data and no code.

    All numbers are kept bit for bit, and frozen parameters stay frozen. The file is written completely or not
    at all: a failure leaves the old file unchanged. `jaxsvm.persistence` describes the format, and
    `jaxsvm.persistence.write_whole` what happens to links and existing files.

    **Arguments:**

    - `path`: the file to write; an existing regular file is replaced, anything else is refused.
    - `value`: a `KernelMachine`, a kernel, a loss, a `Fit`, a posterior, a `Selection`, or lists, tuples
      and dictionaries of these, of numbers, text and arrays. Your own functions and classes (in `Custom` and
      `Transform` kernels) are saved by name, so define them at the top level of a module. Networks of
      `equinox.nn` are saved completely.

    **Returns:** nothing; raises `FileError` if the file cannot be written, `TypeError` or `ValueError` if the
    value cannot be saved.

    **Example:**

    >>> jsvm.save("model.jsvm", model)
    >>> bool(jsvm.load("model.jsvm") == model)
    True
    """
    save_as(None, path, value)


def save_as(
    kind: str | None, path: str | os.PathLike[str], value: Any, *, hint: str | None = None
) -> None:
    """Save a file of another `kind`, which `load` does not read.

    **Arguments:** `kind`, its name, or `None` for a file that `load` reads; `path`; `value`, what to save;
    `hint`, what the file holds and how to read it, shown to users who try another reader: words, and names
    in backquotes.
    """
    describer = Describer()
    description = describer.describe(value)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "jaxsvm": version("jaxsvm"),
        "arrays": len(describer.arrays),
        "thing": description,
    }
    if kind is not None:
        manifest |= {"kind": kind} if hint is None else {"kind": kind, "hint": hint}
    write(Path(path), manifest, describer.arrays)


def load(path: str | os.PathLike[str], module: Any = None) -> Any:
    """Read a file written by `save`.

    Nothing in the file is executed: classes of this library are rebuilt field by field, and your own
    functions and classes are looked up in the module that you pass.

    **Arguments:**

    - `path`: the file to read.
    - `module`: has your own functions and classes: a module, a mapping such as `globals()`, or any object
      with them as attributes. Needed only if the file names some.

    **Returns:** the model, fit or structure; raises `FileError` for a file that is missing, truncated,
    altered, of another kind, of a newer version, or that names an unknown class or function.

    **Example:**

    >>> jsvm.save("results.jsvm", {"fit": jsvm.fit(model, x, y), "inputs": ["height", "weight"]})
    >>> back = jsvm.load("results.jsvm")
    >>> back["inputs"], back["fit"].predict(x).shape
    (['height', 'weight'], (30,))
    """
    return load_as(None, path, module)


def load_as(kind: str | None, path: str | os.PathLike[str], module: Any = None) -> Any:
    """Load a file of another `kind`; files without a kind are accepted as well.

    **Arguments:** `kind`, its name, or `None` for files that `save` writes; `path`; `module`, as for
    `load`.

    **Returns:** the saved value.
    """
    file = Path(path)
    manifest, arrays = read(file)
    saved = manifest.get("kind")
    if saved is not None and saved != kind:
        hint = manifest.get("hint")
        is_shown = isinstance(hint, str) and _HINT.fullmatch(hint)
        raise FileError(f"{file} holds {hint if is_shown else f'something of the kind {saved!r}'}")
    try:
        return Rebuilder(arrays, module).rebuild(manifest.get("thing"))
    except FileError as error:
        raise FileError(f"{file} cannot be loaded: {error}") from error

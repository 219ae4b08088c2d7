"""`save` and `load`."""

import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ._container import FORMAT, VERSION, read, write
from ._describe import Describer
from ._rebuild import Rebuilder
from ._writer import FileError

# what a file of a kind may say of its reader: words and names, nothing that a terminal would obey
_HINT = re.compile(r"[\w .,:`-]{1,120}", re.ASCII)


def save(path: str | os.PathLike[str], thing: Any) -> None:
    """Write a model, a fit, or a structure of them to a file that holds data and no code.

    All numbers are kept bit for bit, frozen parameters stay frozen. The file is written whole or not at
    all: a failure leaves the old file unchanged. `jaxsvm.persistence` describes the format, and
    `jaxsvm.persistence.write_whole` what happens to links and to files that exist.

    **Arguments:**

    - `path`: of the file; an existing regular file is replaced, anything else is refused.
    - `thing`: a `KernelMachine`, a kernel, a loss, a `Fit`, a posterior, a `Selection`, or lists, tuples
      and dictionaries of these, of numbers, text and arrays. Functions and classes of your own (in `Custom`
      and `Transform` kernels) are saved by name, so they must stand at the top level of a module;
      networks of `equinox.nn` are saved as they are.

    **Returns:** nothing; raises `FileError` where the file cannot be written, `TypeError` or `ValueError`
    for what cannot be saved.

    **Example:**

    >>> jsvm.save("model.jsvm", model)
    >>> bool(jsvm.load("model.jsvm") == model)
    True
    """
    save_as(None, path, thing)


def save_as(
    kind: str | None, path: str | os.PathLike[str], thing: Any, *, hint: str | None = None
) -> None:
    """Save something that `load` should not read: a `kind` of file with a reader of its own.

    **Arguments:** `kind`, its name, or `None` for what `load` reads; `path`; `thing`, what to save; `hint`,
    what to do with the file, which other readers show to the user: words, and names in backquotes.
    """
    describer = Describer()
    description = describer.describe(thing)
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
    """Read what `save` has written.

    Nothing of the file is executed: classes of this library are rebuilt field by field, and names of
    your own functions and classes are looked up in what you pass.

    **Arguments:**

    - `path`: of the file.
    - `module`: where your own functions and classes are: a module, a mapping such as `globals()`, or any
      object that has them as attributes. Needed only where the file names some.

    **Returns:** the model, fit or structure; raises `FileError` for a file that is missing, truncated,
    altered, of another kind, of a newer version, or names what is not known.

    **Example:**

    >>> jsvm.save("results.jsvm", {"fit": jsvm.fit(model, x, y), "inputs": ["height", "weight"]})
    >>> back = jsvm.load("results.jsvm")
    >>> back["inputs"], back["fit"].predict(x).shape
    (['height', 'weight'], (30,))
    """
    return load_as(None, path, module)


def load_as(kind: str | None, path: str | os.PathLike[str], module: Any = None) -> Any:
    """Load a `kind` of file with a reader of its own; files of no kind are accepted as well.

    **Arguments:** `kind`, its name, or `None` for what `save` writes; `path`; `module`, where classes of the
    user's own are found.

    **Returns:** what was saved.
    """
    place = Path(path)
    manifest, arrays = read(place)
    found = manifest.get("kind")
    if found is not None and found != kind:
        hint = manifest.get("hint")
        known = isinstance(hint, str) and _HINT.fullmatch(hint)
        raise FileError(f"{place} holds {hint if known else f'something of the kind {found!r}'}")
    try:
        return Rebuilder(arrays, module).rebuild(manifest.get("thing"))
    except FileError as error:
        raise FileError(f"{place} cannot be loaded: {error}") from error

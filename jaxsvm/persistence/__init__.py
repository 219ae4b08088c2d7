"""Saving and loading models, fits and structures of them, in files that hold data and no code.

A file is a zip archive without compression, which any zip tool opens:

- `jaxsvm.json` comes first: `{"format": "jaxsvm", "version": 1, "jaxsvm": version of the writer, "arrays":
  number of arrays, "thing": description}`. A file that `jaxsvm.load` should not read has a `kind`, and a
  `hint` that says how to read it.
- `arrays/0.npy`, `arrays/1.npy`, ...: the arrays, in NumPy's format, by rows, none of Python objects.
- The archive's comment, which ends the file: `jaxsvm sha256 ` and the SHA-256 of all bytes before the 64
  digits. It detects any accidental change of the file; it is not a signature.

In a description, numbers, text, true, false, null and lists stand for themselves. Everything else is an
object with one of these keys:

| key | meaning |
|---|---|
| `float` | a number that JSON does not have: `"nan"`, `"inf"`, `"-inf"` |
| `tuple`, `dict` | the list of entries; the list of pairs of key and value |
| `array` | the number of an array; `as` is `jax`, `numpy`, or `scalar` for a NumPy scalar |
| `class` | a class of this library or of `equinox.nn` by its public name, and its `fields` |
| `result` | a code of `jaxsvm.RESULTS` by its name |
| `function` | a JAX function that is common in networks, such as `jax.numpy.tanh` |
| `yours` | a user's function, or with `fields` a user's class, by its name in the user's module |
| `frozen` | a frozen parameter: the number of its array |

A file may name the concrete modules and named tuples that are public in this library or in `equinox.nn`.
Loading looks them up by name among the modules already imported, and looks up a user's functions and classes
in the module that the caller passes. It sets fields and calls none of these classes and functions. A class
declares how it is stored, if not by its fields, with `store_as_array`, `store_in_parts` and `check_fields`.
"""

from ._rules import check_fields as check_fields
from ._rules import store_as_array as store_as_array
from ._rules import store_in_parts as store_in_parts
from ._saving import load as load
from ._saving import load_as as load_as
from ._saving import save as save
from ._saving import save_as as save_as
from ._writer import FileError as FileError
from ._writer import WriteError as WriteError
from ._writer import require_writable as require_writable
from ._writer import write_whole as write_whole

"""The command `jaxsvm`, also `python -m jaxsvm`: tune, predict, show, demo."""

import argparse
import sys
from collections.abc import Sequence

from .. import __version__
from . import _demo, _predict, _show, _tune
from ._table import DataError

BAD_DATA, BAD_MODEL, FAILED, INTERRUPTED = 3, 4, 5, 130

_EPILOG = f"""\
exit codes:
  0  it worked
  2  the command line makes no sense
  {BAD_DATA}  the data cannot be used
  {BAD_MODEL}  the model file cannot be used
  {FAILED}  no machine could be fitted
  {INTERRUPTED}  interrupted; the same `tune` command goes on where it was
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with the given arguments, by default those of the process.

    **Arguments:** `arguments`, such as `["show", "model.jaxsvm"]`.

    **Returns:** the exit code.
    """
    parser = argparse.ArgumentParser(
        prog="jaxsvm",
        description="Support vector machines that choose their hyperparameters by themselves.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jaxsvm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for module in (_tune, _predict, _show, _demo):
        module.add_to(commands)
    chosen = parser.parse_args(arguments)
    try:
        chosen.run(chosen)
    except KeyboardInterrupt:
        print("jaxsvm: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has gone
        return 0
    except (DataError, ImportError) as error:
        return _complain(error, BAD_DATA)
    except Exception as error:
        code = _code_of(error)
        if code is None:
            raise
        return _complain(error, code)
    return 0


def _complain(error: Exception, code: int) -> int:
    print(f"jaxsvm: {error}", file=sys.stderr)
    return code


def _code_of(error: Exception) -> int | None:
    from .._results import FitError
    from ..persistence import FileError

    if isinstance(error, FileError):
        return BAD_MODEL
    return FAILED if isinstance(error, FitError) else None

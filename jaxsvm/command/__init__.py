"""The command `jaxsvm`, also `python -m jaxsvm`: tune, predict, show, demo."""

import argparse
import sys
from collections.abc import Sequence

BAD_DATA, BAD_MODEL, FAILED, NOT_WRITTEN, INTERRUPTED = 3, 4, 5, 6, 130

_EPILOG = f"""\
without a command, `demo` is run.

exit codes:
  0  it worked
  2  the command line is not valid
  {BAD_DATA}  the data cannot be used
  {BAD_MODEL}  the model file cannot be used
  {FAILED}  no machine could be fitted
  {NOT_WRITTEN}  a file could not be read or written
  {INTERRUPTED}  interrupted; `jaxsvm tune --help` says how to resume
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with the given arguments, by default those of the process.

    **Arguments:** `arguments`, such as `["show", "model.jaxsvm"]`.

    **Returns:** the exit code.
    """
    try:
        _run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        print("jaxsvm: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has gone
        return 0
    except UnicodeEncodeError as error:
        text = f"standard output has no character {error.object[error.start]!r} in {error.encoding}"
        print(
            f"jaxsvm: {text}: set PYTHONUTF8=1, or write to a file with --output", file=sys.stderr
        )
        return NOT_WRITTEN
    except Exception as error:
        code = _code_of(error)
        if code is None:
            raise
        return _complain(error, code)
    return 0


def _run(arguments: Sequence[str]) -> None:
    # imported here, so that an interruption meanwhile is one as well
    from .. import __version__
    from . import _demo, _predict, _show, _tune

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
    chosen = parser.parse_args(arguments or ["demo"])
    chosen.run(chosen)


def _complain(error: Exception, code: int) -> int:
    print(f"jaxsvm: {error}", file=sys.stderr)
    return code


def _code_of(error: Exception) -> int | None:
    from .._results import FitError
    from ..persistence import FileError
    from ._cells import DataError

    codes = {
        DataError: BAD_DATA,
        ImportError: BAD_DATA,
        OSError: NOT_WRITTEN,  # first, since some of these are of files that cannot be written
        FileError: BAD_MODEL,
        FitError: FAILED,
    }
    return next((code for kind, code in codes.items() if isinstance(error, kind)), None)

"""The command `jaxsvm`, also `python -m jaxsvm`: tune, predict, show, demo."""

import argparse
import sys
from collections.abc import Sequence

BAD_DATA, BAD_MODEL, FAILED, NOT_WRITTEN, INTERRUPTED = 3, 4, 5, 6, 130

_EPILOG = f"""\
Without a command, `jaxsvm` runs `jaxsvm demo`.

exit codes:
  0    success
  2    invalid command line
  {BAD_DATA}    the data cannot be used
  {BAD_MODEL}    the model file cannot be used
  {FAILED}    the fit failed
  {NOT_WRITTEN}    a file could not be read or written
  {INTERRUPTED}  interrupted (`jaxsvm tune --help` says how to resume)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    **Arguments:** `arguments`, such as `["show", "model.jaxsvm"]`; by default those of the process.

    **Returns:** the exit code.
    """
    try:
        _run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        print("jaxsvm: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed it
        return 0
    except UnicodeEncodeError as error:
        print(
            f"jaxsvm: standard output cannot show {error.object[error.start]!r} in {error.encoding}: set "
            "PYTHONUTF8=1, or write to a file with --output",
            file=sys.stderr,
        )
        return NOT_WRITTEN
    except Exception as error:
        code = _code_of(error)
        if code is None:
            raise
        print(f"jaxsvm: {error}", file=sys.stderr)
        return code
    return 0


def _run(arguments: Sequence[str]) -> None:
    # imported here, so that `main` also handles an interruption of the imports
    from .. import __version__
    from . import _demo, _model, _predict, _tune

    parser = argparse.ArgumentParser(
        prog="jaxsvm",
        description="Support vector machines that choose their own hyperparameters.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jaxsvm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for module in (_tune, _predict, _model, _demo):
        module.add_to(commands)
    options = parser.parse_args(arguments or ["demo"])
    options.run(options)


def _code_of(error: Exception) -> int | None:
    from .. import FileError, FitError
    from ._table import DataError

    codes = {
        DataError: BAD_DATA,
        ImportError: BAD_DATA,
        OSError: NOT_WRITTEN,  # before FileError: an error of writing a file is both
        FileError: BAD_MODEL,
        FitError: FAILED,
    }
    return next((code for kind, code in codes.items() if isinstance(error, kind)), None)

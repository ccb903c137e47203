"""`thera`: finds the command, and turns errors into one sentence and an exit status."""

import errno
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from types import FrameType
from typing import NoReturn

import click

from thera._version import __version__
from thera.errors import TheraError
from thera.memory import is_out_of_memory

COMMANDS = (
    "upscale",
    "warp",
    "app",
    "serve",
    "site",
    "models",
    "info",
    "convert",
    "export",
    "fit",
    "inspect",
    "eval",
    "bench",
    "figures",
    "train",
    "average",
    "ablations",
    "completion",
    "man",
)


class LazyGroup(click.Group):
    """Commands that are only imported when they are called, so that `thera --version` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if find_spec(f"thera.cli.{name}")]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS or not find_spec(f"thera.cli.{name}"):
            return None
        command: click.Command = import_module(f"thera.cli.{name}").command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="thera", message="%(prog)s %(version)s")
def cli() -> None:
    """Images at any size, through neural heat fields.

    \b
    thera upscale photo.jpg --scale 4            photo_x4.jpg beside it
    thera upscale scans/ --width 3000            every image of a folder
    thera upscale --help                         everything else
    """


def main() -> NoReturn:
    """Runs the program and exits at once.

    Unloading ONNX Runtime and NumPy would take longer than starting Python, and everything is written by
    then. If PyTorch is loaded, the usual exit lets it clean up.
    """
    _have_streams()
    try:
        run()
    except KeyboardInterrupt:  # a second one, while the first is dealt with
        os._exit(130)
    except SystemExit as ended:
        for name in ("stdout", "stderr"):
            try:
                getattr(sys, name).flush()
            except (OSError, ValueError):  # a full disk, or a pipe whose reader has gone
                setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        if "torch" in sys.modules:
            raise
        os._exit(ended.code if isinstance(ended.code, int) else 1 if ended.code else 0)


def run(arguments: list[str] | None = None) -> NoReturn:
    """Runs the program and exits: 0 for success, 1 for a failure, 2 for wrong usage."""
    try:
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            signal.signal(number, _stop)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = cli.main(arguments, prog_name="thera", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "thera"
        message = " ".join(error.format_message().split())  # choices have a line each
        _fail(f"{message.rstrip('.')}{_meant(error, arguments)} (see {command} --help).", 2)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("Interrupted: no partial output was left.", 130)
    except TheraError as error:
        _fail(str(error), 1)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _fail("This needs more memory than there is: use smaller pictures, or a smaller data.batch.", 1)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _fail("The output could not be written: the disk is full.", 1)


def _meant(error: click.UsageError, arguments: list[str] | None) -> str:
    """How to write the name of a file that was taken for an option."""
    given = sys.argv[1:] if arguments is None else arguments
    if isinstance(error, click.NoSuchOption):
        for name in given:
            if name.startswith(error.option_name) and os.path.exists(name):
                return f": write ./{name} for the file of this name"
    return ""


def _stop(number: int, frame: FrameType | None) -> None:
    """Ends the program as Ctrl-C does, so that temporary files are removed."""
    sys.exit(128 + number)


def _fail(sentence: str, status: int) -> NoReturn:
    with suppress(OSError):  # nobody reads a stream that is closed or full
        click.echo(f"thera: {sentence}", err=True)
    sys.exit(status)


def _have_streams() -> None:
    """Puts the null device in place of streams that are closed, so that no file gets their numbers.

    Messages vanish in it. A picture cannot be written to it, as that would be lost.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115
        elif number:  # a sign like × is a question mark where the stream has no such letter
            getattr(sys, name).reconfigure(errors="replace")

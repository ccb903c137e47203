"""`thera upscale - -`: pictures from stdin and other pipes, and to them."""

import shutil
import stat
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from thera.cli.feedback import Feedback
from thera.cli.items import file_item, made_folders
from thera.cli.run import Record, Scaler
from thera.errors import ImageFileError
from thera.files import reason_of
from thera.geo.files import Item
from thera.imaging.quiet import quiet

STDIN, STDOUT = ("-", "/dev/stdin"), ("-", "/dev/stdout")
#: How files begin, and the extension that their formats have.
BEGINNINGS = {
    b"\x89PNG": ".png",
    b"\xff\xd8\xff": ".jpg",
    b"RIFF": ".webp",
    b"BM": ".bmp",
    b"GIF8": ".gif",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
    b"II+\0": ".tif",
    b"MM\0+": ".tif",
    b"\xff\x0a": ".jxl",
    b"\0\0\0\x0cJXL ": ".jxl",
    b"IIRO": ".orf",
    b"IIRS": ".orf",
    b"MMOR": ".orf",
    b"IIU\0": ".rw2",
    b"FUJIFILMCCD-": ".raf",
    b"\x76\x2f\x31\x01": ".exr",
    b"#?RADIANCE": ".hdr",
    b"#?RGBE": ".hdr",
}
#: TIFF's tag of what samples mean, and what it says of the samples of a sensor.
_PHOTOMETRIC, _SENSOR = 262, (32803, 34892)


def is_pipe(path: Path | None, standard: tuple[str, str]) -> bool:
    """True for a standard stream and for any other pipe, such as bash's <(command)."""
    if path is None or str(path) in standard:
        return path is not None
    with suppress(OSError):
        return stat.S_ISFIFO(path.stat().st_mode)
    return False


def to_stdout(source: Path, output: Path | None) -> bool:
    """True if the picture is written to stdout, as that from a pipe is unless an output is named."""
    return is_pipe(source, STDIN) if output is None else str(output) in STDOUT


def scale_piped(scaler: Scaler, source: Path, output: Path | None, slashed: bool = False) -> Record:
    """Scales a picture from a pipe, to a pipe, or both. A pipe gets a whole picture or nothing.

    `slashed`: the output is a folder, even if it is new.
    """
    from_pipe = is_pipe(source, STDIN)
    output = Path("-") if output is None and from_pipe else output
    to_pipe = is_pipe(output, STDOUT)
    if to_pipe and str(output) in STDOUT and sys.stdout.isatty():
        raise click.UsageError("The picture would be written to the terminal: redirect it, or name a file.")
    with TemporaryDirectory(prefix="thera-") as folder:
        named = Path("stdin") if str(source) in STDIN else source
        item = file_item(named, None if to_pipe else output, scaler.request.label, slashed)
        if from_pipe:
            item = item._replace(source=_spooled(source, Path(folder)))
            scaler.feedback.shown[f"{folder}/in"] = "stdin" if str(source) in STDIN else str(source)
        if to_pipe:
            item = Item(item.source, Path(folder), "out")
            scaler.feedback.shown[f"{folder}/out"] = "stdout" if str(output) in STDOUT else str(output)
            assert output is not None
            scaler.deliver = partial(_send, scaler.feedback, output)
        with made_folders([item], scaler.dry):
            record = scaler.attempt(item)
        return record | {"input": str(source)} | ({"output": str(output)} if to_pipe else {})


def _spooled(source: Path, folder: Path) -> Path:
    """What comes out of a pipe, in a file: formats are told apart and read at any place of it."""
    path = folder / "in"
    try:
        with path.open("x+b") as file:
            if str(source) in STDIN:
                shutil.copyfileobj(sys.stdin.buffer, file)
            else:
                with source.open("rb") as pipe:
                    shutil.copyfileobj(pipe, file)
            file.seek(0)
            head = file.read(12)
    except OSError as error:
        name = "stdin" if str(source) in STDIN else source
        raise ImageFileError(f"{name} could not be read: {reason_of(error)}.") from error
    suffix = next((ext for start, ext in BEGINNINGS.items() if head.startswith(start)), "")
    if head[4:8] == b"ftyp":
        suffix = {b"avif": ".avif", b"avis": ".avif", b"crx ": ".cr3"}.get(head[8:12], ".heic")
    if suffix == ".tif" and _is_raw(path):
        suffix = ".dng"
    return path.rename(path.with_suffix(suffix))


def _is_raw(path: Path) -> bool:
    """True for a camera RAW file, most of which are TIFFs: one that holds the samples of a sensor."""
    import tifffile

    try:
        with quiet(), tifffile.TiffFile(path) as file:
            first = file.pages.first
            pages = [first, *(first.pages or ())]
            return any(page.tags.valueof(_PHOTOMETRIC) in _SENSOR for page in pages if hasattr(page, "tags"))
    except Exception:  # a damaged file: whoever reads it will say so
        return False


def _send(feedback: Feedback, output: Path, written: Path) -> None:
    """Sends a file to a pipe. One with a name waits for its reader."""
    target: int | Path = output
    try:
        if str(output) in STDOUT:
            sys.stdout.flush()
            target = 1  # sys.stdout may be the null device: see main
        else:
            feedback.wait_for(f"Waiting until {output} is read")
        with written.open("rb") as picture, open(target, "wb", closefd=target != 1) as pipe:
            shutil.copyfileobj(picture, pipe)
    except BrokenPipeError:
        raise
    except OSError as error:
        name = "stdout" if str(output) in STDOUT else output
        raise ImageFileError(f"The picture could not be written to {name}: {reason_of(error)}.") from error

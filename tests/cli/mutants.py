"""Run as a program: mutates images, scales each in a process of its own with limits, and prints results.

For each line `FORM COUNT` on standard input, one line of JSON is printed: a list of what `Outcome` holds.
"""

import io
import json
import os
import resource
import signal
import struct
import sys
import tempfile
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import Image

#: Limits of one process: bytes of addresses, seconds of processor, seconds of the clock.
ADDRESSES, PROCESSOR, CLOCK = 4 << 30, 20, 120
#: TIFFs whose directory entries are mutated one by one: a picture, and a map of several types.
TAGGED = ["tiff-tags", "geo-tags"]
#: Tags whose values decide how a TIFF is read, or that are carried over.
_CODES = [254, 256, 257, 258, 259, 262, 266, 270, 273, 274, 277, 278, 279, 282, 284, 296, 317, 320, 322, 323]
_CODES += [324, 325, 338, 339, 347, 530, 532, 700, 33550, 33922, 34264, 34665, 34675, 34735, 34736, 34853]
_CODES += [42112, 42113]
_NUMBERS = [0, 1, 2, 3, 4, 5, 8, 16, 32767, 65535, 2**24, 2**31 - 1, 2**31, 2**32 - 1]
_REALS = [0.0, -1.0, 1e-320, 1e300, float("nan"), float("inf")]


@dataclass
class Outcome:
    """How one process ended. `made`: there is an output. `left`: other files that it left behind."""

    status: int  # the exit status, or minus the signal
    made: bool
    left: list[str]
    out: str
    err: str


def sample(form: str) -> bytes:
    """A small, good image."""
    rng = np.random.default_rng(3)
    image = Image.fromarray(rng.integers(0, 256, (12, 15, 3), np.uint8))
    exif = Image.Exif()
    exif[274] = 6
    exif.get_ifd(0x8769)[0xA002] = 15
    file = io.BytesIO()
    if form == "png16":
        import imagecodecs

        return imagecodecs.png_encode(rng.integers(0, 65536, (12, 15, 4), np.uint16))
    if form == "jxl":
        import imagecodecs

        return imagecodecs.jpegxl_encode(np.asarray(image), lossless=True, usecontainer=True)
    if form == "heic":
        import pillow_heif

        pillow_heif.from_pillow(image).save(file, exif=exif.tobytes())
    elif form == "gif":
        image.quantize(32).save(file, "GIF")
    elif form.startswith("tiff"):
        image.save(file, "TIFF", compression="tiff_lzw", exif=exif, dpi=(300, 300))
    elif form == "geo-tags":
        import tifffile

        keys = (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32633)
        tags = [
            (33550, 12, 3, (10.0, 10.0, 0.0), True),
            (33922, 12, 6, (0.0, 0.0, 0.0, 5e5, 5e6, 0.0), True),
            (34735, 3, len(keys), keys, True),
            (42113, 2, 0, "0", True),
        ]
        values = rng.integers(0, 2000, (12, 15), np.uint16)
        tifffile.imwrite(file, values, extratags=tags, metadata=None)
    else:
        image.save(file, form.upper(), exif=exif, dpi=(300, 300))
    return file.getvalue()


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes changed, a piece cut out or all cut off; most often near the head, where structure is."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        at = int(len(out) * rng.random() ** 3)
        kind = rng.integers(0, 5)
        if kind <= 1:
            out[at : at + 1] = bytes([rng.integers(0, 256)])
        elif kind == 2:
            out[at : at + 4] = rng.choice(
                [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\1\0"]
            )
        elif kind == 3:
            del out[at : at + int(rng.integers(1, 30))]
        else:
            del out[max(1, at) :]
    return bytes(out)


def retagged(data: bytes, rng: np.random.Generator) -> bytes:
    """A little-endian TIFF in which entries of the directory have another code, type, count or value."""
    out = bytearray(data)
    (first,) = struct.unpack_from("<I", out, 4)
    (entries,) = struct.unpack_from("<H", out, first)
    for _ in range(rng.integers(1, 4)):
        at = first + 2 + 12 * int(rng.integers(entries))
        kind = rng.integers(0, 5)
        if kind == 0:
            struct.pack_into("<H", out, at, int(rng.choice(_CODES)))
        elif kind == 1:
            struct.pack_into("<H", out, at + 2, int(rng.integers(0, 19)))
        elif kind == 2:
            struct.pack_into("<I", out, at + 4, int(rng.choice(_NUMBERS)))
        elif kind == 3:
            struct.pack_into("<I", out, at + 8, int(rng.choice([*_NUMBERS, rng.integers(len(out))])))
        else:
            (place,) = struct.unpack_from("<I", out, at + 8)
            if place + 8 <= len(out):
                struct.pack_into("<d", out, place, rng.choice(_REALS))
    return bytes(out)


def scaled(source: Path, output: Path, folder: Path) -> Outcome:
    """Scales a file in a process of its own."""
    printed = [folder.parent / name for name in ("stdout", "stderr")]
    child = os.fork()
    if not child:
        _child(source, output, printed)
    _, ended = os.waitpid(child, 0)
    out, err = (path.read_text(errors="replace") for path in printed)
    left = sorted(path.name for path in folder.iterdir() if path not in (source, output))
    made = output.exists()
    output.unlink(missing_ok=True)
    return Outcome(os.waitstatus_to_exitcode(ended), made, left, out, err)


def _child(source: Path, output: Path, printed: list[Path]) -> None:
    from thera.cli.main import run

    status = 99
    try:
        for number, path in enumerate(printed, 1):
            os.dup2(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR, PROCESSOR))
        signal.alarm(CLOCK)
        # Of the megapixels that a mutated header may claim none needs to be computed here.
        run(["upscale", str(source), str(output), "--size", "20x20", "--max-pixels", "900"])
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def outcomes(form: str, count: int) -> list[Outcome]:
    """The good image, and then so many mutated ones. Every other TIFF is written as a TIFF."""
    data, rng = sample(form), np.random.default_rng(sum(form.encode()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "images")
        folder.mkdir()
        tagged = form in TAGGED
        source = folder / ("in.tif" if tagged else "in.img")
        results = []
        for turn in range(count + 1):
            change = retagged if tagged else mutated
            source.write_bytes(change(data, rng) if turn else data)
            results.append(scaled(source, folder / ("out.tif" if turn % 2 else "out.png"), folder))
        return results


def main() -> None:
    # All that is common to the processes is imported and loaded once.
    import imagecodecs  # noqa: F401
    import tifffile  # noqa: F401

    import thera.cli.upscale
    import thera.geo.files  # noqa: F401
    from thera.imaging import DEFAULT_MODEL
    from thera.models import load
    from thera.models.choice import ModelChoice

    model = load(DEFAULT_MODEL, threads=1)  # threads would not survive a fork
    ModelChoice.load = lambda self: model  # type: ignore[method-assign]
    for line in sys.stdin:
        form, count = line.split()
        print(json.dumps([asdict(outcome) for outcome in outcomes(form, int(count))]), flush=True)


if __name__ == "__main__":
    main()

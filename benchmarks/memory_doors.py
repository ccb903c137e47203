"""Peak memory of `thera app` and `thera serve` with a large picture open, on Linux.

    python benchmarks/memory_doors.py [--width 12000] [--height 9000] [--profile] [--turned]

Both run as processes of their own with their default models and options. Each row is one thing that is done,
most of them twice at once, and the peak of the resident memory while it was done (VmHWM).
`--profile` gives the picture a colour profile that has to be applied, `--turned` an orientation.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psutil
from PIL import Image, ImageCms
from serve import program

from cli import photograph
from thera.memory import human_bytes

Work = Callable[[], object]


def fetch(url: str, body: dict | None = None, method: str | None = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=3600) as answer:
        return answer.read()


def peak(process: psutil.Process) -> int:
    """The peak of the resident memory since it was last asked for."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    kibibytes = int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return 1024 * kibibytes


def at_once(*work: Work) -> None:
    with ThreadPoolExecutor(len(work)) as pool:
        for result in [pool.submit(each) for each in work]:
            result.result()


def measure(process: psutil.Process, rows: Iterator[tuple[str, Work]]) -> None:
    for name, work in rows:
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        print(f"| {name} | {human_bytes(peak(process))} | {seconds:.1f} |", flush=True)


def app(url: str, width: int, height: int, most_seconds: float) -> Iterator[tuple[str, Work]]:
    (picture,) = json.loads(fetch(f"{url}/api/pictures"))
    base = f"{url}/api/pictures/{picture['id']}"

    def tile(x: float, y: float, side: int, size: int) -> None:
        place = {"x": x, "y": y, "w": side, "h": side, "width": size, "height": size}
        fetch(f"{base}/tile?{urlencode({'model': 'edsr-air', **place})}")

    def field() -> None:
        order = {"model": "edsr-air", "region": [500, 500, 1500, 1500]}
        job = json.loads(fetch(f"{base}/field", order))
        wait(job["id"], 3600)
        fetch(f"{url}/api/jobs/{job['id']}/result")

    def wait(job: str, seconds: float) -> None:
        """Until a job is done, or as long as is measured; then it is cancelled."""
        end = time.monotonic() + seconds
        while json.loads(fetch(f"{url}/api/jobs/{job}"))["state"] in ("queued", "running"):
            if time.monotonic() > end:
                fetch(f"{url}/api/jobs/{job}", method="DELETE")
                break
            time.sleep(0.2)

    def download(**order: object) -> None:
        job = json.loads(fetch(f"{base}/download", {"model": "edsr-air", **order}))
        wait(job["id"], most_seconds)

    def two_tiles(first: tuple[float, float], second: tuple[float, float], side: int, size: int) -> Work:
        return lambda: at_once(lambda: tile(*first, side, size), lambda: tile(*second, side, size))

    def tile_and_download(**order: object) -> Work:
        return lambda: at_once(lambda: download(**order), lambda: tile(100, 6000, 500, 500))

    yield "opened", lambda: None
    yield "two previews", lambda: at_once(*[lambda: fetch(f"{base}/image")] * 2)
    yield "two tiles, ×4", two_tiles((0, 0), (5000, 4000), 64, 256)
    yield "two tiles, ×1", two_tiles((0, 0), (3000, 900), 500, 500)
    yield "two tiles of all", two_tiles((0, 0), (0, 0), min(width, height), 512)
    yield "a live field of 1000×1000", field
    yield "a tile and a download at ×0.25", tile_and_download(scale=0.25)
    yield "a tile and a download at ×2", tile_and_download(scale=2, format="png")
    yield "two more tiles, ×1", two_tiles((5000, 0), (7000, 900), 700, 700)


def serve(url: str, name: str) -> Iterator[tuple[str, Work]]:
    def image(path: str, zoom: str = "") -> Work:
        return lambda: fetch(f"{url}/iiif/3/{name}{zoom}/{path}")

    def two(first: str, second: str, zoom: str = "") -> Work:
        return lambda: at_once(image(first, zoom), image(second, zoom))

    yield "started", lambda: None
    yield "opened, twice", two("info.json", "full/600,/0/default.jpg")
    yield (
        "two regions, ×8",
        two("8000,8000,512,512/max/0/default.jpg", "40000,9000,512,512/max/0/default.jpg", ":8x"),
    )
    yield (
        "two regions, ×2",
        two("0,0,700,600/^1400,/0/default.jpg", "5000,3000,700,600/^1400,/0/default.png"),
    )
    yield (
        "two regions, ×0.6",
        two("3000,0,700,600/420,/0/default.jpg", "7000,3000,700,600/420,/0/default.webp"),
    )
    yield "two regions, ×1", two("0,0,6000,5000/max/0/default.jpg", "5000,3000,6000,5000/max/0/gray.png")
    yield "all, small", two("full/3000,/0/default.jpg", "full/90,/0/default.png")
    yield "two regions, turned", two("0,0,900,800/max/30/default.png", "5000,0,900,800/max/200.5/default.jpg")


@contextmanager
def picture(width: int, height: int, profile: bool, turned: bool) -> Iterator[Path]:
    """A folder with a JPEG of this size."""
    with tempfile.TemporaryDirectory() as folder:
        own = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        exif = Image.Exif()
        exif[0x0112] = 8 if turned else 1
        image = photograph(1500).resize(
            (height, width) if turned else (width, height), Image.Resampling.BICUBIC
        )
        icc = own.replace(b"rXYZ", b"????").replace(b"bXYZ", b"rXYZ").replace(b"????", b"bXYZ")
        image.save(Path(folder) / "large.jpg", quality=92, exif=exif, icc_profile=icc if profile else None)
        del image
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=12_000)
    parser.add_argument("--height", type=int, default=9_000)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--turned", action="store_true")
    parser.add_argument("--seconds", type=float, default=60, help="of a download; then it is cancelled")
    parser.add_argument("doors", nargs="*", default=["app", "serve"])
    options = parser.parse_args()
    if sys.platform != "linux":
        sys.exit("Peaks of other processes are read from /proc, which only Linux has.")
    with picture(options.width, options.height, options.profile, options.turned) as folder:
        for door in options.doors:
            print(f"\n| `thera {door}`, {options.width}×{options.height} | peak | seconds |")
            print("| --- | --- | --- |")
            if door == "app":
                with program("app", str(folder / "large.jpg"), "--no-browser") as (port, process):
                    url = f"http://127.0.0.1:{port}"
                    measure(process, app(url, options.width, options.height, options.seconds))
            else:
                with program("serve", str(folder), "--no-cache", "-q") as (port, process):
                    measure(process, serve(f"http://127.0.0.1:{port}", "large.jpg"))


if __name__ == "__main__":
    main()

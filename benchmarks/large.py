"""What rasters larger than memory cost, on this machine.

    python benchmarks/large.py [--model edsr-air] [--quick] [--only workers tiling memory graphs rasters]
    python benchmarks/large.py --only tile --device cuda [--size 10980] [--limit 150]    a Sentinel-2 tile

- workers: throughput per core of Dask clusters of one and of two workers, one thread each, and of independent
  processes, which show what the machine itself allows; in elapsed time, and in CPU time, which other programs
  on the machine disturb less;
- tiling: CPU time for chunks over that for the whole image, beside the pixels that their overlap adds;
- memory: peak resident memory of `thera upscale a.zarr` against the size of the raster;
- graphs: CPU time to build the graph of a Dask array against its number of chunks;
- rasters: CPU seconds for each megapixel and band of GeoTIFFs of 1,000², 2,000² and 4,000² pixels;
- tile: elapsed seconds for four bands of 10,980² pixels, what the main thread spends them on, how long each
  step takes in the thread that runs it, and peak memory. After `--limit` seconds, or when terminated, it
  stops and says how far it came. It runs only where it is named, and needs rasterio, not Dask.

Things that are compared are measured in turn, so that all see the same machine. Numbers are medians and
ranges of repetitions.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np

import thera
from cli import peak_memory, photograph
from thera.field.threads import one_core
from thera.geo.upscaling import RasterOptions, prepare_raster
from thera.imaging.sizing import TargetSize
from thera.memory import human_bytes
from thera.tiled import Options
from thera.values.ranges import Range

try:
    import dask.array as da
    import zarr
    from distributed import Client, LocalCluster

    import dask
    from thera.dask import tasks, upscale
    from thera.models.choice import ModelChoice
except ModuleNotFoundError:  # on a machine for the tile alone
    pass

SCALE = 2.0
PARTS_OF_SIDE = 4  # chunks along each side of a worker's raster; with fewer, uneven shares would show


@cache
def _photograph() -> np.ndarray:
    return np.asarray(photograph(512))


def raster(rows: int, cols: int) -> np.ndarray:
    """A photograph, repeated until it is large enough."""
    tile = _photograph()
    return np.tile(tile, (-(-rows // 512), -(-cols // 512), 1))[:rows, :cols]


def scaled(image: np.ndarray, chunk: int, model: str) -> da.Array:
    """The sum of one sample of each output chunk: everything is computed, and almost nothing is sent."""
    lazy = upscale(da.from_array(image, (chunk, chunk, 3)), SCALE, model)
    return lazy.map_blocks(lambda block: block[:1, :1, :1].astype(int), dtype=int, chunks=(1, 1, 1)).sum()


def seconds(work: Callable[[], object]) -> float:
    """CPU time, which other programs on the machine disturb less than elapsed time."""
    began = time.process_time()
    work()
    return time.process_time() - began


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


# A process that computes at every line it reads, and prints the CPU time that took.
ALONE = """
import sys, time
import dask
from large import PARTS_OF_SIDE, raster, scaled
side, model = int(sys.argv[1]), sys.argv[2]
lazy = scaled(raster(side, side), side // PARTS_OF_SIDE, model)
with dask.config.set(scheduler="synchronous"):
    for line in sys.stdin:
        began = time.process_time()
        lazy.compute()
        print(time.process_time() - began, flush=True)
"""


class Alone:
    """Independent processes, without a Dask cluster."""

    def __init__(self, side: int, model: str) -> None:
        command = [sys.executable, "-c", ALONE, str(side), model]
        here = Path(__file__).parent
        self.processes = [
            subprocess.Popen(command, cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]

    def compute(self, count: int) -> float:
        """The CPU time that so many of them took."""
        for process in self.processes[:count]:
            print("go", file=process.stdin, flush=True)
        return sum(float(process.stdout.readline()) for process in self.processes[:count] if process.stdout)


class Workers:
    """A cluster of `count` workers, one thread each, and a raster for each of them."""

    def __init__(self, count: int, side: int, model: str) -> None:
        self.cluster = LocalCluster(
            n_workers=count, threads_per_worker=1, memory_limit=0, dashboard_address=":0", silence_logs=50
        )
        self.client = Client(self.cluster)
        images = [raster(side, side), raster(side, side)[::-1]][:count]
        self.lazy = [scaled(image, side // PARTS_OF_SIDE, model) for image in images]
        name = tasks.ModelName.of(ModelChoice(model))
        self.client.run(lambda: tasks.loaded(name) and None)

    def compute(self) -> float:
        """The CPU time that the workers took."""
        began = sum(self.client.run(time.process_time).values())
        self.client.gather(self.client.compute(self.lazy))
        return sum(self.client.run(time.process_time).values()) - began

    def close(self) -> None:
        self.client.close()
        self.cluster.close()


def workers(model: str, quick: bool) -> None:
    side, repetitions = (640, 3) if quick else (1024, 3)
    alone, single, pair = Alone(side, model), Workers(1, side, model), Workers(2, side, model)
    ways: dict[str, tuple[int, Callable[[], float]]] = {
        "1 worker": (1, single.compute),
        "2 workers": (2, pair.compute),
        "1 process": (1, lambda: alone.compute(1)),
        "2 processes": (2, lambda: alone.compute(2)),
    }
    wall: dict[str, list[float]] = {name: [] for name in ways}  # seconds per megapixel of one raster
    busy: dict[str, list[float]] = {name: [] for name in ways}  # CPU seconds
    alone.compute(2)
    for _ in range(repetitions):
        for name, (count, compute) in ways.items():
            began = time.perf_counter()
            busy[name].append(compute() / count / (side**2 / 1e6))
            wall[name].append((time.perf_counter() - began) / (side**2 / 1e6))
    single.close()
    pair.close()
    for process in alone.processes:
        process.communicate(timeout=60)
    cut = f"at ×{SCALE:g} in chunks of {side // PARTS_OF_SIDE}, {model}"
    print(f"\nseconds per megapixel of input on each core, {cut}")
    print(f"{'':>12} {'elapsed':>24} {'CPU':>24}")
    for name in ways:
        print(f"{name:>12} {spread(wall[name]):>24} {spread(busy[name]):>24}")
    print(f"{'throughput per core':<46} {'elapsed':>24} {'CPU':>24}")
    for label, a, b in (
        ("2 workers / 1 worker", "1 worker", "2 workers"),
        ("2 processes / 1 process", "1 process", "2 processes"),
        ("2 workers / 2 processes", "2 processes", "2 workers"),
    ):
        ratios = [[x / y for x, y in zip(times[a], times[b], strict=True)] for times in (wall, busy)]
        print(f"{label:<46} {spread(ratios[0]):>24} {spread(ratios[1]):>24}")


def tiling(model: str, quick: bool) -> None:
    side, repetitions = (544, 2) if quick else (1536, 5)
    image = raster(side, side)
    network = thera.load(model, threads=1)
    halo, span = network.info.halo, Range(0.0, 255.0)

    def whole() -> None:
        with one_core():
            span.restore(network.upscale(span.normalise(image), SCALE), image.dtype)

    print(f"\nCPU time for chunks over that for the whole, {side}×{side} at ×{SCALE:g} with {model}")
    print(f"{'chunk':>8} {'measured':>22} {'pixels encoded':>16}")
    with dask.config.set(scheduler="synchronous"):
        for parts in (4, 3, 2):
            lazy = scaled(image, -(-side // parts), model)
            ratios = [1 / seconds(whole) * seconds(lazy.compute) for _ in range(repetitions)]
            encoded = (1 + 2 * halo * (parts - 1) / side) ** 2
            print(f"{-(-side // parts):>8} {spread(ratios):>22} {encoded:>16.2f}")


def memory(model: str, quick: bool) -> None:
    print(f"\npeak resident memory of `thera upscale` on Zarr, at ×{SCALE:g} with {model}")
    print(f"{'raster':>12} {'input':>10} {'output':>10} {'peak':>10}")
    with tempfile.TemporaryDirectory() as name:
        for side in (512, 1024) if quick else (1024, 2048, 4096):
            source, output = Path(name) / f"{side}.zarr", Path(name) / "out.zarr"
            image = raster(side, side)
            zarr.create_array(source, shape=image.shape, dtype=image.dtype, chunks=(512, 512, 3))[:] = image
            options = ["-s", str(SCALE), "-m", model, "-q", "--overwrite"]
            peak = peak_memory("-m", "thera", "upscale", str(source), str(output), *options)
            row = " ".join(f"{human_bytes(n):>10}" for n in (image.nbytes, image.nbytes * SCALE**2, peak))
            print(f"{f'{side}×{side}':>12} {row}")


def graphs(model: str, quick: bool) -> None:
    print(f"\nCPU seconds to build the graph of an array in chunks of 512, at ×{SCALE:g} with {model}")
    print(f"{'raster':>16} {'chunks':>8} {'bytes':>8} {'16 bits':>8} {'floats':>8}")
    for side in (5_000, 20_000) if quick else (10_000, 30_000, 100_000):
        row = []
        for dtype, values in (("u1", "dtype"), ("i2", "extent"), ("f4", "extent")):
            image = da.zeros((side, side, 1), chunks=(512, 512, 1), dtype=dtype)
            row.append(seconds(partial(upscale, image, SCALE, model, value_range=values)))
        times = " ".join(f"{each:>8.2f}" for each in row)
        print(f"{f'{side}×{side}':>16} {image.npartitions:>8} {times}", flush=True)


def scene(rows: int, cols: int, bands: int, at: tuple[int, int] = (0, 0)) -> np.ndarray:
    """Reflectances of 16 bits, bands×rows×cols: a photograph's detail, brighter and darker regions, and the
    noise of a sensor. `at`: where in a scene the first pixel lies."""
    y, x = (start + np.arange(n, dtype=np.float32) for start, n in zip(at, (rows, cols), strict=True))
    regions = 1 + 0.5 * np.sin(y / 900)[:, None] * np.cos(x / 1300)
    values = 12 * np.random.default_rng(at).standard_normal((bands, rows, cols), np.float32)
    for band in range(bands):
        values[band] += 200 * (1 + band) + (6 + 4 * band) * regions * raster(rows, cols)[..., 0]
    return values.clip(1, 10_000).astype(np.uint16)


def geotiff(path: Path, side: int, bands: int) -> Path:
    """A scene of 16 bits in tiles of 512, as satellites deliver them."""
    import rasterio

    profile = {"driver": "GTiff", "dtype": "uint16", "tiled": True, "compress": "deflate", "predictor": 2}
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 4e5, 0, -10, 6.6e6)}
    profile |= {"blockxsize": 512, "blockysize": 512, "num_threads": "all_cpus"} if side > 512 else {}
    with rasterio.open(path, "w", height=side, width=side, count=bands, **profile, **place) as dataset:
        for _, window in dataset.block_windows():
            at = window.row_off, window.col_off
            dataset.write(scene(window.height, window.width, bands, at), window=window)
    return path


def scaled_file(source: Path, output: Path, network: thera.Model) -> None:
    file = RasterOptions(overwrite=True)
    prepare_raster(source, output, network, TargetSize(scale=SCALE), file=file).run()


def rasters(model: str, quick: bool) -> None:
    network = thera.load(model, threads=1)
    sides = (500, 1000, 2000) if quick else (1000, 2000, 4000)
    took: dict[int, list[float]] = {side: [] for side in sides}
    print(f"\nCPU seconds for each megapixel and band of a GeoTIFF, at ×{SCALE:g} with {model}")
    with tempfile.TemporaryDirectory() as name, one_core():
        sources = {side: geotiff(Path(name) / f"{side}.tif", side, 1) for side in sides}
        scaled_file(geotiff(Path(name) / "warm.tif", 256, 1), Path(name) / "out.tif", network)
        for _ in range(1 if quick else 2):
            for side, source in sources.items():
                each = seconds(partial(scaled_file, source, Path(name) / "out.tif", network))
                took[side].append(each / (side**2 / 1e6))
    for side, times in took.items():
        print(f"{f'{side}×{side}':>12} {spread(times)}")
    middles = [statistics.median(times) for times in took.values()]
    print(f"{'apart':>12} {max(middles) / min(middles) - 1:.1%}")


class Steps:
    """Seconds that each step takes, added up over its calls, in the thread that runs it."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}

    def time(self, name: str, owner: object, function: str) -> None:
        """Measures a function from now on. On a GPU it waits for the results, which are otherwise late."""
        original = getattr(owner, function)
        self.seconds[name] = 0.0

        def call(*given: object, **named: object) -> object:
            began = time.perf_counter()
            try:
                result = original(*given, **named)
                if name == "encoding" and "cuda" in self.device:
                    import torch

                    torch.cuda.synchronize()
                return result
            finally:
                self.seconds[name] += time.perf_counter() - began

        setattr(owner, function, call)

    def table(self, names: Sequence[str], total: float) -> None:
        for name in names:
            print(f"{name:>24} {self.seconds[name]:>8.1f} s, {self.seconds[name] / total:.0%}")


#: What the main thread does in turn, and what runs within that or beside it.
WAITING = "waiting for reading", "waiting for writing"
IN_TURN = "value ranges", "frames", *WAITING, "overviews", "reading back"
WITHIN = "encoding", "rendering", "samples", "means"
BESIDE = "reading", "writing"


def measured(device: str) -> Steps:
    """Steps of scaling a raster, measured from now on."""
    from thera.geo import upscaling, writing
    from thera.geo.reading import ReadAhead
    from thera.tiled import field
    from thera.values.planes import Plane

    steps = Steps(device)
    steps.time("value ranges", upscaling, "ranges")
    steps.time(WAITING[0], ReadAhead, "take")
    steps.time("frames", upscaling.RasterScaling, "_frame")
    steps.time(WAITING[1], upscaling, "written")
    steps.time("overviews", writing, "_finish")
    steps.time("reading back", writing, "_check")
    steps.time("encoding", thera.Model, "encode")
    steps.time("rendering", field, "_rendered")
    steps.time("samples", Plane, "put")
    steps.time("means", Plane, "agree")
    steps.time("reading", ReadAhead, "_read")
    steps.time("writing", writing.Writer, "_write")
    return steps


def machine(device: str) -> str:
    """The processors, and the GPU if one computes."""
    processors = f"{len(os.sched_getaffinity(0))} processors"
    if "cuda" not in device:
        return processors
    import torch

    return f"{torch.cuda.get_device_name(device)}, {processors}"


def peaks(device: str) -> str:
    """The most memory that this process has held, and the GPU's."""
    own = human_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    if "cuda" not in device:
        return own
    import torch

    return f"{own}; {human_bytes(torch.cuda.max_memory_reserved(device))} on the GPU"


class Stopped(Exception):
    """The seconds that `--limit` allows are over, or the process was terminated."""


def stop_after(seconds: float) -> None:
    """Raises `Stopped` after so many seconds, unless they are 0, or when the process is terminated."""

    def stop(*_: object) -> None:
        raise Stopped

    signal.signal(signal.SIGALRM, stop)
    signal.signal(signal.SIGTERM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def tile(
    model: str,
    quick: bool,
    device: str = "auto",
    precision: str | None = None,
    size: int = 10_980,
    gib: int = 4,
    limit: float = 0,
) -> None:
    """A Sentinel-2 tile: four bands of 10,980×10,980 pixels of 16 bits."""
    stop_after(limit)
    side, bands = size // 10 if quick else size, 4
    network = thera.load(model, device=device, **({"precision": precision} if precision else {}))
    where = network.info.device
    print(f"{side}×{side}, {bands} bands, at ×{SCALE:g} with {network}, on {machine(where)}", flush=True)
    pixels, done, last = (SCALE * side) ** 2, 0, 0.0

    def progress(count: int) -> None:
        nonlocal done, last
        done += count
        if time.perf_counter() > last + 10:
            last = time.perf_counter()
            print(f"{done / pixels:>7.1%} after {last - began:.0f} s", flush=True)

    with tempfile.TemporaryDirectory() as name:
        began = time.perf_counter()
        source, output = geotiff(Path(name) / "tile.tif", side, bands), Path(name) / "out.tif"
        small = geotiff(Path(name) / "warm.tif", min(side, 512), 1)
        scaled_file(small, Path(name) / "warm.out.tif", network)  # loads libraries, compiles kernels
        steps = measured(where)
        print(f"the scene and the first use took {time.perf_counter() - began:.0f} s", flush=True)
        began = last = time.perf_counter()
        try:
            job = prepare_raster(source, output, network, TargetSize(scale=SCALE), Options(memory=gib << 30))
            print(f"frames of {job.frame} within {gib} GiB,", end=" ")
            print(f"{job.encoded / side**2:.2f} pixels encoded for each of the input", flush=True)
            job.run(progress)
            print(*(human_bytes(file.stat().st_size) for file in (source, output)), sep=" in, ", end=" out\n")
        except Stopped:
            print("stopped")
        took = time.perf_counter() - began
    stop_after(0)
    done_area = bands * side**2 / 1e6 * done / pixels
    print(f"{took:.1f} s for {done / pixels:.1%}, {took / max(done_area, 1e-9):.3f} s per megapixel and band")
    print("the main thread, in turn:")
    steps.table(IN_TURN, took)
    print("within frames, the last two in other threads beside a GPU:")
    steps.table(WITHIN, took)
    print("in threads of their own, beside all of that:")
    steps.table(BESIDE, took)
    print(f"peak memory {peaks(where)}")


PARTS = {
    "workers": workers,
    "tiling": tiling,
    "memory": memory,
    "graphs": graphs,
    "rasters": rasters,
    "tile": tile,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="edsr-air")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, smaller rasters")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS][:-1])
    parser.add_argument("--device", default="auto", help="for the tile")
    parser.add_argument("--precision", help="for the tile, such as bf16; by default that of thera.load")
    parser.add_argument("--gib", type=int, default=4, help="the memory limit for the tile (--memory)")
    parser.add_argument("--size", type=int, default=10_980, help="the side of the tile in pixels")
    parser.add_argument("--limit", type=float, default=0, help="stop the tile after so many seconds")
    options = parser.parse_args()
    for part in options.only:
        given = ("device", "precision", "size", "gib", "limit") if part == "tile" else ()
        PARTS[part](options.model, options.quick, **{name: getattr(options, name) for name in given})


if __name__ == "__main__":
    main()

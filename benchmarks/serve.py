"""What `thera serve` takes, on this machine's loopback.

    python benchmarks/serve.py [--model edsr-air] [--quick]

- requests a second and the time of each (half of them are faster than p50, all but one in twenty than p95),
  with 1, 8 and 64 clients that ask for one image after the other: tiles that were asked for before, tiles of
  fields that are known, and tiles of images that nobody has looked at;
- resident memory of the server over 10,000 requests for tiles all over an image larger than its caches.

Tiles are 512×512 JPEGs at eight times native resolution. The server is a process of its own; the clients are
another, on the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import psutil

from cli import photograph
from thera.memory import human_bytes

CLIENTS = (1, 8, 64)
#: One block of a field, and three tiles across at eight times its size.
SIDE, ZOOM, TILE = 192, 8, 512


@contextmanager
def program(command: str, *options: str) -> Iterator[tuple[int, psutil.Process]]:
    """The port and the process of `thera serve` or `thera app`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = subprocess.Popen([sys.executable, "-m", "thera", command, *options, "--port", str(port)])
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert running.poll() is None, f"thera {command} ended"
                time.sleep(0.1)
        yield port, psutil.Process(running.pid)
    finally:
        running.terminate()
        running.wait()


def serving(folder: Path, *options: str) -> AbstractContextManager[tuple[int, psutil.Process]]:
    return program("serve", str(folder), "--no-cache", "-q", *options)


def tile(name: str, left: int = 0, top: int = 0) -> str:
    return f"/iiif/3/{name}:{ZOOM}x/{left},{top},{TILE},{TILE}/max/0/default.jpg"


def tiles(name: str, count: int, within: int, rng: np.random.Generator) -> list[str]:
    """Tiles at random places of the first so many pixels of an image."""
    return [tile(name, *corner) for corner in rng.integers(0, within - TILE, (count, 2))]


async def client(port: int, paths: Iterator[str], times: list[float]) -> None:
    """Asks for one path after the other on one connection, as long as there are any."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for path in paths:
        began = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head.decode()
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        times.append(time.perf_counter() - began)
    writer.close()


async def asked(port: int, clients: int, paths: list[str]) -> tuple[float, list[float]]:
    """Seconds in all, and of each request."""
    times: list[float] = []
    rest = iter(paths)
    began = time.perf_counter()
    await asyncio.gather(*(client(port, rest, times) for _ in range(clients)))
    return time.perf_counter() - began, times


def show(what: str, clients: int, seconds: float, times: list[float]) -> None:
    p50, p95 = np.percentile(times, [50, 95]) * 1000
    rate = len(times) / seconds
    print(f"{what:<22} {clients:>7} {len(times):>8} {rate:>11.1f} {p50:>8.1f} {p95:>8.1f}", flush=True)


def load(folder: Path, model: str, before: int, known: int, first: int) -> None:
    """So many of the three kinds of requests, at each number of clients; first encodes at least one each."""
    picture, rng = photograph(SIDE), np.random.default_rng(0)
    firsts = {clients: [f"{clients}-{i}.png" for i in range(max(first, clients))] for clients in CLIENTS}
    for name in itertools.chain(*firsts.values()):
        picture.save(folder / name)
    with serving(folder, "--model", model) as (port, _):
        columns = f"{'clients':>7} {'requests':>8} {'requests/s':>11} {'p50 ms':>8} {'p95 ms':>8}"
        print(f"{'512×512 tiles at ×8':<22} {columns}")
        for clients in CLIENTS:
            paths = [tile(name) for name in firsts[clients]]
            show("first encodes", clients, *asyncio.run(asked(port, clients, paths)))
        for clients in CLIENTS:
            paths = tiles("1-0.png", known, SIDE * ZOOM, rng)
            show("fields known", clients, *asyncio.run(asked(port, clients, paths)))
        for clients in CLIENTS:
            show("asked for before", clients, *asyncio.run(asked(port, clients, [tile("1-0.png")] * before)))


def memory(folder: Path, model: str, requests: int) -> None:
    """Resident memory while tiles are asked for that the caches cannot all hold."""
    photograph(3 * SIDE).save(folder / "wide.png")
    rng = np.random.default_rng(0)
    with serving(folder, "--model", model, "--memory", "32MiB") as (port, process):
        print("\nresident memory: caches of 32 MiB, random tiles of nine blocks that take 43, 8 clients")
        print(f"{'requests':>8} {'resident':>10}")
        for done in range(0, requests + 1, requests // 10):
            if done:
                paths = tiles("wide.png", requests // 10, 3 * SIDE * ZOOM, rng)
                # Neighbours after each other, as people look: else most tiles would need a block again.
                paths.sort(key=lambda path: [int(n) // 512 for n in path.split("/")[4].split(",")[:2]])
                asyncio.run(asked(port, 8, paths))
            print(f"{done:>8,} {human_bytes(process.memory_info().rss):>10}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="edsr-air")
    parser.add_argument("--quick", action="store_true", help="fewer requests")
    options = parser.parse_args()
    print(f"{options.model}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        load(Path(name), options.model, *((500, 40, 4) if options.quick else (3000, 300, 16)))
    with tempfile.TemporaryDirectory() as name:
        memory(Path(name), options.model, 1000 if options.quick else 10_000)


if __name__ == "__main__":
    main()

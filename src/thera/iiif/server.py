"""Answers to the URIs of the Image API 3.0, from a folder of images."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fastapi import Request, Response

from thera._version import __version__
from thera.errors import ImageFileError, TheraError, UnknownImage
from thera.imaging.reading import read
from thera.imaging.srgb import without_nodata
from thera.lru import LRU
from thera.memory import release_freed
from thera.models import Model

from .admission import Admission
from .blocks import Blocks, Shared
from .cache import Disk
from .folder import Folder, ImageFile, identifier_of
from .info import CONTEXT, PROFILE, information
from .pictures import Facts, ServedPicture
from .presentation import CONTEXT as PRESENTATION
from .presentation import collection, manifest
from .rendering import Renderer
from .requests import IMAGE_FORMATS, Canvas, parse

PREFIX = "/iiif/3/"
#: The name of the collection of all pictures, which is below the prefix, too.
COLLECTION = "collection.json"
#: Bytes that the facts of a file count as in memory.
FACTS_BYTES = 1024
#: Seconds that a server that ends waits for what it computes.
CLOSING = 2.0


@dataclass(frozen=True)
class Settings:
    """Limits and other settings of a server.

    `max_pixels`: of one response. `max_source`: of a file. `queue`: requests at once, others get a 503.
    `encoders`: tiles encoded at once; an encoder takes all cores by itself. `memory`: bytes of pictures,
    tiles and responses kept. `cache`: a folder for fields, of up to `cache_size` bytes. `url`: where clients
    find this server, if not where they say they do. `max_age`: seconds for which a response need not be asked
    for again.
    """

    zoom: int = 8
    max_pixels: int = 1 << 25
    max_source: int = 1 << 27
    queue: int = 128
    encoders: int = 1
    memory: int = 1 << 29
    cache: Path | None = None
    cache_size: int = 8 << 30
    quality: int = 90
    url: str | None = None
    max_age: int = 3600


class Server:
    """A folder of images and all that answers requests for them."""

    def __init__(self, folder: str | Path, model: Model, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self.settings, self.folder = settings, Folder(folder, settings.zoom)
        self.memory: LRU[Any] = LRU(settings.memory)
        self.disk = None if settings.cache is None else Disk(settings.cache, settings.cache_size)
        self._encoders = ThreadPoolExecutor(settings.encoders, "encoder")
        self._painters = ThreadPoolExecutor(os.cpu_count() or 1, "painter")
        self._readers = ThreadPoolExecutor(1, "reader")  # a file at a time: decoding takes memory
        self.blocks = Blocks(model, self.memory, self.disk, self._encoders, self._readers)
        self._renderer = Renderer(self.blocks, self._painters, settings.quality)
        self._opening = Shared()
        self.admission = Admission(settings.queue, 2 * settings.max_pixels)
        self.idle = True  # False if work was under way when it was closed
        self._salt = __version__, self.blocks.identity, settings.quality

    def close(self) -> None:
        """Ends what has not begun, and waits a few seconds for what has."""
        executors = self._encoders, self._painters, self._readers
        for executor in executors:
            executor.shutdown(wait=False, cancel_futures=True)
        end = time.monotonic() + CLOSING
        for thread in (thread for executor in executors for thread in executor._threads):
            thread.join(max(0.0, end - time.monotonic()))
        self.idle = not any(thread.is_alive() for executor in executors for thread in executor._threads)

    async def answer(self, request: Request) -> Response:
        """The response to a request below `PREFIX`."""
        path = request.scope["raw_path"].decode("ascii", "replace")
        parts = path.removeprefix(PREFIX).split("/") if path.startswith(PREFIX) else []
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": "GET, HEAD, OPTIONS"})
        if parts == [COLLECTION]:
            return self._collection(request)
        if len(parts) == 1 or (len(parts) == 2 and parts[1] in ("", "info.json", "manifest.json")):
            image = self.folder.find(parts[0])
            if parts[1:] == ["info.json"]:
                return await self._info(request, image)
            if parts[1:] == ["manifest.json"]:
                return await self._manifest(request, image)
            base = self.base(request, image)
            return Response(status_code=303, headers={"Location": f"{base}/info.json"})
        if len(parts) != 5:
            raise UnknownImage(f"There is nothing at {path}: see {PREFIX}IDENTIFIER/info.json.")
        return await self._image(request, self.folder.find(parts[0]), parts[1:])

    def base(self, request: Request, image: ImageFile) -> str:
        """The URI of an image, as clients know it."""
        return f"{self._prefix(request)}/{image.identifier}"

    def _prefix(self, request: Request) -> str:
        found = self.settings.url or f"{request.url.scheme}://{request.url.netloc}{PREFIX}"
        return found.rstrip("/")

    def _enlarged(self, image: ImageFile) -> ImageFile:
        """The same picture at the largest size that is served."""
        return replace(image, zoom=max(image.zoom, self.settings.zoom))

    def canvas(self, facts: Facts, zoom: int) -> Canvas:
        height, width = facts.shape
        return Canvas(width * zoom, height * zoom, self.settings.max_pixels)

    async def picture(self, image: ImageFile) -> ServedPicture:
        """The picture of a file. Concurrent requests decode it once."""
        known = self.memory.get(("picture", image.key))
        return known or await self._opening.get(image.key, lambda: self._open(image))

    async def facts(self, image: ImageFile) -> Facts:
        """What is known of a file once it was decoded, even if its pixels are not kept any more."""
        known = self.memory.get(("facts", image.key))
        if known is None:
            async with self.admission.work(0):
                known = (await self.picture(image)).facts
            self.memory.put(("facts", image.key), known, FACTS_BYTES)
        return known

    async def _open(self, image: ImageFile) -> ServedPicture:
        def opened() -> ServedPicture:
            try:
                halo = self.blocks.model.info.halo
                file = without_nodata(read(image.path, self.settings.max_source))
                picture = ServedPicture.of(file, image.key, halo)
            except TheraError as error:
                # Whatever was wrong, the file is to blame. Clients need not know where it lies.
                reason = error.problem.removeprefix(f"{image.path}: ").replace(str(image.path), "It")
                raise ImageFileError(f"{image.name}: {reason}") from error
            self.memory.put(("picture", image.key), picture)
            release_freed()
            return picture

        return await asyncio.get_running_loop().run_in_executor(self._readers, opened)

    async def _info(self, request: Request, image: ImageFile) -> Response:
        facts = await self.facts(image)
        larger = None
        if image.zoom == 1 and self.settings.zoom > 1:
            larger = self.base(request, self._enlarged(image))
        info = information(self.base(request, image), self.canvas(facts, image.zoom), facts, larger)
        return self._json(request, info, CONTEXT, {"Link": f'<{PROFILE}>;rel="profile"'})

    async def _manifest(self, request: Request, image: ImageFile) -> Response:
        canvas = self.canvas(await self.facts(image), image.zoom)
        service = self.base(request, self._enlarged(image))
        made = manifest(image.name, self.base(request, image), canvas, service)
        return self._json(request, made, PRESENTATION, {})

    def _collection(self, request: Request) -> Response:
        prefix = self._prefix(request)
        pictures = ((name, f"{prefix}/{identifier_of(name)}") for name in self.folder.names())
        made = collection(self.folder.path.name, f"{prefix}/{COLLECTION}", pictures)
        return self._json(request, made, PRESENTATION, {})

    def _json(self, request: Request, content: Any, context: str, headers: dict[str, str]) -> Response:
        body = json.dumps(content, indent=2, ensure_ascii=False).encode()
        kind = _negotiated(request.headers.get("accept", "*/*"), context)
        return self._respond(request, body, kind, _tag(body, kind), headers | {"Vary": "Accept"})

    async def _image(self, request: Request, image: ImageFile, parts: list[str]) -> Response:
        facts = await self.facts(image)
        canvas = self.canvas(facts, image.zoom)
        region, size, rotation, ending = map(unquote, parts)
        wanted = parse(region, size, rotation, ending, canvas, default="gray" if facts.grey else "color")
        uri = f"{self.base(request, image)}/{wanted.canonical.replace('^', '%5E')}"
        headers = {"Link": f'<{PROFILE}>;rel="profile", <{uri}>;rel="canonical"'}
        key = "response", image.key, image.zoom, wanted.canonical
        tag = _tag(key, self._salt)
        kind = IMAGE_FORMATS[wanted.format][1]
        if request.method == "HEAD" or _matches(request, tag):
            return self._respond(request, b"", kind, tag, headers)
        body = self.memory.get(key)
        if body is None:
            width, height = wanted.turned_size
            async with self.admission.work(width * height):
                picture = await self.picture(image)
                body = await self._renderer.image(picture, image.zoom, wanted)
            self.memory.put(key, body, len(body))
        return self._respond(request, body, kind, tag, headers)

    def _respond(
        self, request: Request, body: bytes, kind: str, tag: str, headers: dict[str, str]
    ) -> Response:
        headers |= {"ETag": tag, "Cache-Control": f"public, max-age={self.settings.max_age}"}
        if _matches(request, tag):
            return Response(status_code=304, headers=headers)
        response = Response(body, headers=headers | {"Content-Type": kind})
        if request.method == "HEAD" and not body:
            del response.headers["Content-Length"]  # it would be that of the image
        return response


def _negotiated(accept: str, context: str = CONTEXT) -> str:
    """The media type of a description for an Accept header.

    >>> _negotiated("text/html,*/*;q=0.8"), _negotiated("application/ld+json")[:19]
    ('application/json', 'application/ld+json')
    """
    weights = {}
    for part in accept.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        q = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        weights[kind] = float(q) if re.fullmatch(r"[01](\.\d*)?", q) else 0.0
    anything = weights.get("*/*", 0.0)
    linked = weights.get("application/ld+json", anything)
    # A browser that shows it to a person shows JSON best.
    plain = max(weights.get("application/json", 0.0), weights.get("text/html", 0.0))
    return "application/json" if plain > linked else f'application/ld+json;profile="{context}"'


def _tag(*contents: object) -> str:
    """A strong ETag."""
    return f'"{hashlib.sha256(repr(contents).encode()).hexdigest()[:32]}"'


def _matches(request: Request, tag: str) -> bool:
    """True if the client has the response already."""
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    return tag in known or known == ["*"]

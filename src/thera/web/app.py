"""The web application of `thera app`, for one person on this computer."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from thera._version import __version__
from thera.errors import TheraError
from thera.field.grid import Box
from thera.files import reason_of
from thera.imaging.filters import FilterName
from thera.memory import human_bytes
from thera.models import shipped
from thera.pages import VIEWER
from thera.web.export import PAGE
from thera.web.gallery import MOST_CELLS, Entry, Gallery, safe_name
from thera.web.guard import Guard
from thera.web.jobs import Job, Jobs
from thera.web.results import Order, write_result
from thera.web.tiles import Shown, TileRequest

#: What the page starts with: the model whose fields its GPU draws.
LIVE_MODEL = "edsr-air"
#: A larger file is refused before it is read.
MOST_BYTES = 1 << 30
#: Tiles that are rendered at once.
TILES_AT_ONCE = 2
#: Bytes of a packed field that are sent at a time.
CHUNK = 1 << 22


@dataclass
class Studio:
    """What the routes share."""

    gallery: Gallery
    models: Sequence[str]
    jobs: Jobs = field(default_factory=Jobs)
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(TILES_AT_ONCE))

    def entry(self, id: str) -> Entry:
        found = self.gallery.find(id)
        if found is None:
            raise HTTPException(404, "This picture is not open any more: drop it again.")
        return found

    def job(self, id: str) -> Job:
        found = self.jobs.find(id)
        if found is None:
            raise HTTPException(404, "There is no such job.")
        return found

    def known(self, model: str) -> str:
        if model not in self.models:
            raise HTTPException(422, f"There is no model {model!r} here: choose {' or '.join(self.models)}.")
        return model


def create_app(
    images: Sequence[Path] = (),
    model: str = LIVE_MODEL,
    engine: str = "auto",
    device: str = "auto",
    precision: str = "f32",
    max_pixels: int | None = None,
    memory: int | None = None,
) -> FastAPI:
    """The page as an application, with these pictures open and this model chosen.

    `max_pixels`: of a picture. `memory`: bytes that all of it takes, about.

    >>> create_app().title
    'Thera'
    """
    gallery = Gallery(engine, device, precision, max_pixels, memory)
    gallery.model(model)  # refused now, if at all
    names = list(dict.fromkeys([model, *(each.name for each in shipped())]))
    studio = Studio(gallery, names)
    for image in images:
        gallery.add(image)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        studio.jobs.close()
        gallery.close()

    app = FastAPI(
        title="Thera", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan
    )
    app.add_middleware(Guard)

    @app.exception_handler(TheraError)
    async def sentence(request: Request, error: TheraError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)

    @app.get("/api/about")
    def about() -> dict[str, Any]:
        models = [{"name": name, "live": gallery.live(name)} for name in names]
        return {"version": __version__, "models": models, "model": model, "most_cells": MOST_CELLS}

    _pictures(app, studio)
    _jobs(app, studio)
    app.mount("/viewer", StaticFiles(directory=VIEWER))
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


def _pictures(app: FastAPI, studio: Studio) -> None:
    gallery = studio.gallery

    @app.get("/api/pictures")
    def list_pictures() -> list[dict[str, object]]:
        return [entry.describe() for entry in gallery.all()]

    @app.post("/api/pictures", status_code=201)
    async def add_picture(request: Request, name: str = "picture") -> dict[str, object]:
        try:
            with gallery.place(name) as path:
                await _receive(request, path)
                entry = await run_in_threadpool(gallery.add, path, path.name)
        except TheraError as error:
            raise HTTPException(422, str(error).replace(str(path), path.name)) from error
        except ClientDisconnect as error:
            raise HTTPException(499, "The page was gone before all of the file had come.") from error
        except OSError as error:
            raise HTTPException(507, f"{safe_name(name)} could not be kept: {reason_of(error)}.") from error
        return entry.describe()

    @app.delete("/api/pictures/{id}", status_code=204)
    def remove_picture(id: str) -> None:
        gallery.remove(studio.entry(id))

    @app.get("/api/pictures/{id}/image")
    def image(id: str) -> Response:
        png = gallery.preview(studio.entry(id))
        return Response(png, media_type="image/png", headers={"Cache-Control": "private"})

    @app.get("/api/pictures/{id}/tile")
    async def tile(
        request: Request,
        id: str,
        model: str,
        x: float,
        y: float,
        w: float,
        h: float,
        width: Annotated[int, Query(ge=1)],
        height: Annotated[int, Query(ge=1)],
        filter: FilterName = "gaussian",
        sharpness: float = 1.0,
        shown: Shown = "picture",
    ) -> Response:
        entry = studio.entry(id)
        wanted = TileRequest.of((y, x, y + h, x + w), (height, width), entry.shape, filter, sharpness, shown)
        async with studio.turns:
            if await request.is_disconnected():  # it has gone out of sight while it waited
                return Response(status_code=499)
            data = await run_in_threadpool(wanted.png, gallery, entry, studio.known(model))
        return Response(data, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})

    @app.post("/api/pictures/{id}/field", status_code=202)
    def make_field(
        id: str,
        model: str,
        top: int | None = None,
        left: int | None = None,
        bottom: int | None = None,
        right: int | None = None,
    ) -> dict[str, Any]:
        """Starts to encode. The job's result is the packed field; there is none if the page draws tiles."""
        entry, name = studio.entry(id), studio.known(model)
        region: Box | None = None
        if top is not None and left is not None and bottom is not None and right is not None:
            region = top, left, bottom, right
        return studio.jobs.start(lambda job: gallery.pack(entry, name, region, job.report)).describe()

    @app.post("/api/pictures/{id}/result", status_code=202)
    def make_result(id: str, order: Order) -> dict[str, Any]:
        entry = studio.entry(id)
        studio.known(order.model)
        order.check(entry.shape)  # refused at once, if at all

        def work(job: Job) -> Path:
            with gallery.place("result") as path:
                return write_result(gallery, entry, path.parent, order, job.report)

        return studio.jobs.start(work, lambda path: shutil.rmtree(path.parent, ignore_errors=True)).describe()


def _jobs(app: FastAPI, studio: Studio) -> None:
    @app.get("/api/jobs/{id}")
    def job(id: str) -> dict[str, Any]:
        return studio.job(id).describe()

    @app.delete("/api/jobs/{id}")
    def cancel(id: str) -> dict[str, Any]:
        job = studio.job(id)
        job.drop()
        return job.describe()

    @app.get("/api/jobs/{id}/result")
    def result(id: str) -> Response:
        job = studio.job(id)
        found = job.result
        if found is None:
            raise HTTPException(409, "This job has no result: it is not done, was cancelled or sent it.")
        if isinstance(found, Path):
            return FileResponse(found, filename=found.name)
        # A packed field may take a quarter of a gigabyte, so it goes once it is sent.
        chunks: Iterator[bytes] = (bytes(found[i : i + CHUNK]) for i in range(0, len(found), CHUNK))
        headers = {"Content-Length": str(len(found)), "Content-Type": "application/octet-stream"}
        return StreamingResponse(chunks, headers=headers, background=BackgroundTask(job.drop))


async def _receive(request: Request, path: Path) -> None:
    """Stores a request body in a file, up to MOST_BYTES."""
    too_large = HTTPException(413, f"The file is larger than the {human_bytes(MOST_BYTES)} that are taken.")
    if int(request.headers.get("content-length") or 0) > MOST_BYTES:
        raise too_large
    count = 0
    with path.open("wb") as file:
        async for chunk in request.stream():
            count += len(chunk)
            if count > MOST_BYTES:
                raise too_large
            file.write(chunk)

"""The web application of `thera app`, for one person on this computer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from thera._version import __version__
from thera.errors import TheraError, UnknownImage
from thera.field.grid import Box
from thera.files import reason_of
from thera.memory import human_bytes
from thera.pages import VIEWER
from thera.web.export import PAGE
from thera.web.gallery import MOST_CELLS, Gallery, safe_name
from thera.web.guard import Guard
from thera.web.jobs import Job, Jobs
from thera.web.results import Order, write_result
from thera.web.tiles import TileQuery

#: What the page starts with: the model whose fields its GPU draws.
LIVE_MODEL = "edsr-air"
#: A larger file is refused before it is read.
MOST_BYTES = 1 << 30
#: Tiles that are rendered at once.
TILES_AT_ONCE = 2
#: Bytes of a packed field that are sent at a time.
CHUNK = 1 << 22


class FieldOrder(BaseModel):
    """What to encode: a region (top, left, bottom, right) of a picture, or all of it."""

    model: str
    region: Box | None = None


def create_app(
    images: Sequence[Path] = (), model: str = LIVE_MODEL, gallery: Gallery | None = None
) -> FastAPI:
    """The page as an application, with these pictures open and this model chosen.

    >>> create_app().title
    'Thera'
    """
    gallery, jobs = gallery or Gallery(), Jobs()
    gallery.model(model)  # refused now, if at all
    for image in images:
        gallery.add(image)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        jobs.close()
        gallery.close()

    app = FastAPI(
        title="Thera", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan
    )
    app.add_middleware(Guard)

    @app.exception_handler(TheraError)
    async def sentence(request: Request, error: TheraError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 404 if isinstance(error, UnknownImage) else 422)

    @app.get("/api/about")
    def about() -> dict[str, Any]:
        models = [{"name": name, "live": gallery.live(name)} for name in gallery.models]
        return {"version": __version__, "models": models, "model": model, "most_cells": MOST_CELLS}

    _pictures(app, gallery, jobs)
    _jobs(app, jobs)
    app.mount("/viewer", StaticFiles(directory=VIEWER))
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


def _pictures(app: FastAPI, gallery: Gallery, jobs: Jobs) -> None:
    turns = asyncio.Semaphore(TILES_AT_ONCE)

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
        gallery.remove(gallery.find(id))

    @app.get("/api/pictures/{id}/image")
    def image(id: str) -> Response:
        png = gallery.preview(gallery.find(id))
        return Response(png, media_type="image/png", headers={"Cache-Control": "private"})

    @app.get("/api/pictures/{id}/tile")
    async def tile(request: Request, id: str, query: Annotated[TileQuery, Query()]) -> Response:
        entry, model = gallery.find(id), gallery.known(query.model)
        wanted = query.of(entry.shape)
        async with turns:
            if await request.is_disconnected():  # it has gone out of sight while it waited
                return Response(status_code=499)
            data = await run_in_threadpool(wanted.png, gallery, entry, model)
        return Response(data, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})

    @app.post("/api/pictures/{id}/field", status_code=202)
    def make_field(id: str, order: FieldOrder) -> dict[str, Any]:
        """Starts to encode. The job's result is the packed field; there is none if the page draws tiles."""
        entry, name = gallery.find(id), gallery.known(order.model)
        return jobs.start(lambda job: gallery.pack(entry, name, order.region, job.report)).describe()

    @app.post("/api/pictures/{id}/result", status_code=202)
    def make_result(id: str, order: Order) -> dict[str, Any]:
        entry = gallery.find(id)
        gallery.known(order.model)
        order.check(entry.shape)  # refused at once, if at all

        def work(job: Job) -> Path:
            with gallery.place("result") as path:
                return write_result(gallery, entry, path.parent, order, job.report)

        return jobs.start(work).describe()


def _jobs(app: FastAPI, jobs: Jobs) -> None:
    @app.get("/api/jobs/{id}")
    def job(id: str) -> dict[str, Any]:
        return jobs.find(id).describe()

    @app.delete("/api/jobs/{id}")
    def cancel(id: str) -> dict[str, Any]:
        job = jobs.find(id)
        job.drop()
        return job.describe()

    @app.get("/api/jobs/{id}/result")
    def result(id: str) -> Response:
        job = jobs.find(id)
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
    count = int(request.headers.get("content-length") or 0)
    with path.open("wb") as file:
        async for chunk in request.stream():
            count = max(count, file.tell() + len(chunk))
            if count > MOST_BYTES:
                most = human_bytes(MOST_BYTES)
                raise HTTPException(413, f"The file is larger than the {most} that are taken.")
            file.write(chunk)

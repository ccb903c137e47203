"""The web application of `thera app`, for one person on this computer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
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
from thera.imaging.formats import FORMATS
from thera.memory import human_bytes
from thera.pages import VIEWER
from thera.web.export import PAGE
from thera.web.gallery import MOST_CELLS, Entry, Gallery, safe_name
from thera.web.guard import Guard
from thera.web.jobs import Job, Queue
from thera.web.results import Order, ViewOrder, check_order, check_view, write_result, write_view
from thera.web.tiles import TileQuery

#: What the page starts with: the model whose fields its GPU draws.
LIVE_MODEL = "edsr-air"
#: A larger file is refused before it is read.
MOST_BYTES = 1 << 30
#: Tiles that are rendered at once.
TILES_AT_ONCE = 2
#: Seconds without work before a model's speed is measured: a picture that was just opened is encoded first.
IDLE = 1.0
#: Bytes of a packed field that are sent at a time.
CHUNK = 1 << 22
#: Pixels of a thumbnail.
THUMBNAIL = 192 * 192


class FieldOrder(BaseModel):
    """What to encode for a page: a region (top, left, bottom, right) of a picture, or all of it."""

    model: str
    region: Box | None = None
    page: str = ""


def create_app(
    images: Sequence[Path] = (), model: str = LIVE_MODEL, gallery: Gallery | None = None
) -> FastAPI:
    """The page as an application, with these pictures open and this model chosen.

    `app.state.queue` has all jobs; closing it ends whatever runs, and lets go of the pages.

    >>> create_app().title
    'Thera'
    """
    gallery, queue = gallery or Gallery(), Queue()
    gallery.model(model)  # refused now, if at all
    for image in images:
        gallery.add(image)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        queue.close()
        gallery.close()

    app = FastAPI(
        title="Thera", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan
    )
    app.state.queue = queue
    app.add_middleware(Guard)

    @app.exception_handler(TheraError)
    async def sentence(request: Request, error: TheraError) -> JSONResponse:
        return JSONResponse({"detail": error.problem}, 404 if isinstance(error, UnknownImage) else 422)

    @app.get("/api/about")
    def about() -> dict[str, Any]:
        models = [{"name": name, "live": gallery.live(name)} for name in gallery.models]
        formats = [{"name": form.name, "lossy": form.lossy, "alpha": form.alpha} for form in FORMATS.values()]
        facts = {"version": __version__, "model": model, "most_cells": MOST_CELLS}
        return {**facts, "models": models, "formats": formats}

    _pictures(app, gallery, queue)
    _orders(app, gallery, queue)
    _jobs(app, gallery, queue)
    app.mount("/viewer", StaticFiles(directory=VIEWER))
    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


def _pictures(app: FastAPI, gallery: Gallery, queue: Queue) -> None:
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
            raise HTTPException(422, error.problem.replace(str(path), path.name)) from error
        except ClientDisconnect as error:
            raise HTTPException(499, "The page was gone before all of the file had come.") from error
        except OSError as error:
            raise HTTPException(507, f"{safe_name(name)} could not be kept: {reason_of(error)}.") from error
        queue.changed()
        return entry.describe()

    @app.delete("/api/pictures/{id}", status_code=204)
    def remove_picture(id: str) -> None:
        ordered = any(job.about["picture"] == id for job in queue.all("download"))
        gallery.remove(gallery.find(id), keep_file=ordered)
        queue.changed()

    @app.get("/api/pictures/{id}/image")
    def image(id: str) -> Response:
        return _png(gallery.preview(gallery.find(id)))

    @app.get("/api/pictures/{id}/thumbnail")
    def thumbnail(id: str) -> Response:
        return _png(gallery.preview(gallery.find(id), THUMBNAIL))

    @app.get("/api/pictures/{id}/tile")
    async def tile(request: Request, id: str, query: Annotated[TileQuery, Query()]) -> Response:
        entry, model = gallery.find(id), gallery.known(query.model)
        wanted = query.of(entry.shape)
        async with turns:
            if await request.is_disconnected():  # it has gone out of sight while it waited
                return Response(status_code=499)
            return _png(await run_in_threadpool(wanted.png, gallery, entry, model))


def _png(data: bytes) -> Response:
    return Response(bytes(data), media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})


def _orders(app: FastAPI, gallery: Gallery, queue: Queue) -> None:
    @app.post("/api/pictures/{id}/field", status_code=202)
    def make_field(id: str, order: FieldOrder) -> dict[str, Any]:
        """Starts to encode. The job's result is the packed field; there is none if the page draws tiles."""
        entry, model = gallery.find(id), gallery.known(order.model)
        about = {"picture": id, "tiles": not gallery.drawn_live(entry, model)}
        top, left, bottom, right = order.region or (0, 0, *entry.shape)

        def work(job: Job) -> memoryview | None:
            job.expected = gallery.seconds((bottom - top) * (right - left), model)
            return gallery.pack(entry, model, order.region, job.report)

        return queue.start("field", work, about, order.page).describe()

    @app.post("/api/pictures/{id}/download", status_code=202)
    def make_download(id: str, order: Order) -> dict[str, Any]:
        entry = gallery.find(id)
        name = check_order(gallery, entry, order)  # refused at once, if at all
        cells = entry.cells * (4 if order.ensemble else 1)
        expected = partial(gallery.seconds, cells, order.model)
        return started(entry, name, partial(write_result, gallery, entry, order=order), expected)

    @app.post("/api/pictures/{id}/view", status_code=202)
    def make_view(id: str, order: ViewOrder) -> dict[str, Any]:
        entry = gallery.find(id)
        name = check_view(gallery, entry, order)  # refused at once, if at all
        return started(entry, name, partial(write_view, gallery, entry, order=order), lambda: None)

    def started(
        entry: Entry, name: str, write: Callable[..., Path], expected: Callable[[], float | None]
    ) -> dict[str, Any]:
        def work(job: Job) -> Path:
            job.expected = expected()

            def report(share: float) -> None:
                if queue.forgotten:
                    job.cancel()
                job.report(share)

            with gallery.place("result") as path:
                written = write(folder=path.parent, progress=report)
            job.about["bytes"] = written.stat().st_size
            return written

        return queue.start("download", work, {"picture": entry.id, "name": name}).describe()


def _jobs(app: FastAPI, gallery: Gallery, queue: Queue) -> None:
    @app.get("/api/jobs")
    def jobs(page: str = "") -> list[dict[str, Any]]:
        return queue.describe(page)

    @app.get("/api/jobs/{id}")
    def job(id: str) -> dict[str, Any]:
        return queue.find(id).describe()

    @app.post("/api/jobs/{id}/cancel")
    def cancel(id: str) -> dict[str, Any]:
        job = queue.find(id)
        job.cancel()
        return job.describe()

    @app.post("/api/jobs/{id}/retry")
    def retry(id: str) -> dict[str, Any]:
        queue.retry(queue.find(id))
        return queue.find(id).describe()

    @app.delete("/api/jobs/{id}", status_code=204)
    def remove(id: str) -> None:
        queue.remove(queue.find(id))

    @app.get("/api/jobs/{id}/result")
    def result(id: str) -> Response:
        job = queue.find(id)
        found = job.result
        if found is None:
            reasons = "it is not done, has failed, was cancelled, or is drawn in tiles"
            raise HTTPException(409, f"This job has no result: {reasons}.")
        if isinstance(found, Path):
            return FileResponse(found, filename=found.name)
        # A packed field may take a quarter of a gigabyte, so it goes once it is sent.
        chunks: Iterator[bytes] = (bytes(found[i : i + CHUNK]) for i in range(0, len(found), CHUNK))
        headers = {"Content-Length": str(len(found)), "Content-Type": "application/octet-stream"}
        return StreamingResponse(chunks, headers=headers, background=BackgroundTask(queue.remove, job))

    @app.get("/api/events")
    def events(request: Request, page: str) -> Response:
        """What a page shows of the program, whenever it changes. While it listens, it is open."""

        async def stream() -> AsyncIterator[str]:
            async with aclosing(queue.changes(page, request.is_disconnected)) as changes:
                async for _ in changes:
                    pictures = [entry.describe() for entry in gallery.all()]
                    state = {"pictures": pictures, "jobs": queue.describe(page), "speeds": gallery.speeds}
                    yield f"data: {json.dumps(state)}\n\n"

        if not queue.all("measure"):
            queue.start("measure", lambda job: _measure(gallery, queue))
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)


def _measure(gallery: Gallery, queue: Queue) -> None:
    """Measures all models, whenever nothing else is to be done."""
    models, idle = gallery.models, 0.0
    while models and not queue.closed:
        jobs = (*queue.all("field"), *queue.all("download"))
        if not gallery.all() or any(job.active for job in jobs):
            idle = 0.0
        if idle >= IDLE:
            gallery.measure(models.pop(0))
            queue.changed()
        else:
            time.sleep(0.2)
            idle += 0.2


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

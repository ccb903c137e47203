"""The web application: routes, errors as statuses, and work that ends when its client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.datastructures import MutableHeaders
from starlette.responses import FileResponse, PlainTextResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from thera.errors import InvalidInput, ServerBusy, TheraError, UnknownImage
from thera.pages import VIEWER

from .folder import identifier_of
from .server import PREFIX, Server

#: The front page. It shows images in the viewer that `thera app` uses.
FRONT = Path(__file__).parent / "page"
#: Seconds after which a client may retry.
RETRY = 5
#: The status that servers log for clients that went away.
GONE = 499
STATUS: dict[type, int] = {
    InvalidInput: 400,
    UnknownImage: 404,
    ServerBusy: 503,
    TheraError: 500,  # an image that cannot be read, above all
}


def create_app(server: Server) -> FastAPI:
    """The web application of a server, for uvicorn or any other that runs ASGI."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        server.close()

    app = FastAPI(title="Thera", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(OpenToAll)
    app.add_exception_handler(TheraError, refuse)

    async def image(request: Request) -> Response:
        return await while_connected(request, server.answer(request))

    # A plain route: FastAPI's own would take a tenth of a cached tile's time to find no parameters.
    app.add_route(PREFIX + "{path:path}", image, methods=["GET", "HEAD", "OPTIONS"])

    @app.api_route("/images.json", methods=["GET", "HEAD"])
    def images() -> dict[str, object]:
        """The folder's images, for the front page."""
        names = server.folder.names()
        listed = [{"name": name, "identifier": identifier_of(name)} for name in names]
        return {"folder": server.folder.path.name, "images": listed}

    @app.api_route("/", methods=["GET", "HEAD"])
    def front() -> Response:
        policy = {"Content-Security-Policy": "default-src 'self'; img-src 'self' data:"}
        return FileResponse(FRONT / "index.html", headers=policy)

    app.mount("/page", StaticFiles(directory=FRONT))
    app.mount("/viewer", StaticFiles(directory=VIEWER))
    return app


async def while_connected(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """The result of `work`, which is cancelled if the client goes away."""
    task, gone = asyncio.create_task(work), asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return Response(status_code=GONE)
    except asyncio.CancelledError:  # the server ends
        return Response(status_code=503, headers={"Retry-After": str(RETRY)})
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class OpenToAll:
    """Lets pages of every origin read every response, as the Image API asks for."""

    headers: Mapping[str, str] = {
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
        "Access-Control-Allow-Headers": "*",
        "Access-Control-Expose-Headers": "ETag, Link, Retry-After",
        "Access-Control-Max-Age": "86400",
        "X-Content-Type-Options": "nosniff",
    }

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def opened(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        await self.app(scope, receive, opened)


def refuse(request: Request, error: Exception) -> Response:
    """Sends an error's message, with its status."""
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    headers = {"Cache-Control": "no-store"} | ({"Retry-After": str(RETRY)} if status == 503 else {})
    return PlainTextResponse(f"{error}\n", status, headers)

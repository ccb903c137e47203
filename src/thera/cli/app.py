"""`thera app`: a local page with live zoom, or one file with a picture to look at."""

from __future__ import annotations

import asyncio
import socket
import webbrowser
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import click

from thera.cli.parameters import BYTES, engine_options
from thera.errors import InvalidInput, MissingDependency

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

#: Where the page is looked for first; another free port is taken when this one is not.
PORT = 8372
#: Connections that may wait before the server takes them, as many as uvicorn allows.
BACKLOG = 2048


@click.command("app")
@click.argument("images", metavar="[IMAGE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-m", "--model", default="edsr-air", show_default=True, help="A name from `thera models`, or a file."
)
@click.option(
    "--export", "page", type=click.Path(path_type=Path), help="Write one HTML file, and no page is opened."
)
@click.option("--overwrite", is_flag=True, help="Replace an exported file that exists.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"[default: {PORT}, or another that is free]")
@click.option("--browser/--no-browser", default=True, help="Open the page in the browser. [default: yes]")
@click.option(
    "--max-pixels",
    type=click.IntRange(1),
    help="Open pictures up to this many pixels. [default: 134 million]",
)
@click.option(
    "--memory", type=BYTES, default="1.25GiB", show_default=True, help="For pictures, fields and downloads."
)
@engine_options
def command(
    images: tuple[Path, ...],
    model: str,
    page: Path | None,
    overwrite: bool,
    port: int | None,
    browser: bool,
    max_pixels: int | None,
    memory: int,
    engine: str,
    device: str,
    precision: str,
) -> None:
    """Look at pictures at any magnification, on a page in your browser.

    \b
    thera app                                   drop pictures there
    thera app photo.jpg                         with this one open
    thera app photo.jpg --export page.html      a file with this picture to look at, to put on the web

    Only this computer can reach the page: it listens on 127.0.0.1, and no picture leaves the machine.
    Needs thera[web]; --export needs nothing.
    """
    if page is not None:
        from thera.models import load
        from thera.web.export import export_page

        if len(images) != 1:
            raise click.UsageError(f"--export takes one image, and {len(images)} were given")
        export_page(images[0], page, load(model, engine, device, precision), overwrite=overwrite)
        click.echo(f"Wrote {page}.", err=True)
        return
    try:
        import uvicorn  # noqa: F401

        from thera.web.app import create_app
        from thera.web.gallery import Gallery
    except ImportError as error:
        raise MissingDependency("The page needs FastAPI and uvicorn: pip install 'thera[web]'.") from error
    app = create_app(images, model, Gallery(engine, device, precision, max_pixels, memory))
    with listening(port) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        click.echo(f"Thera is at {url}\nOnly this computer can reach it. Ctrl-C ends it.", err=True)
        if browser:
            Timer(0.5, webbrowser.open, [url]).start()
        with suppress(KeyboardInterrupt):  # which is how it ends
            page_server(app).run(sockets=[listener])


def page_server(app: FastAPI) -> uvicorn.Server:
    """A server for the page, which ends at once although pages listen: `server.should_exit = True`."""
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await asyncio.to_thread(app.state.queue.close)
            await super().shutdown(sockets)

    return Server(uvicorn.Config(app, log_level="warning", access_log=False))


def listening(port: int | None, host: str = "127.0.0.1") -> socket.socket:
    """A socket on this address, and nowhere else."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, PORT if port is None else port))
    except OSError as error:
        if port is not None:
            raise InvalidInput(
                f"The port {port} of {host} cannot be used ({error.strerror}): choose another."
            ) from error
        listener.bind((host, 0))
    listener.listen(BACKLOG)  # now: whoever reads the address may ask at once
    return listener

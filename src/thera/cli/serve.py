"""`thera serve`: a folder of images through the IIIF Image API."""

from pathlib import Path
from typing import Any

import click

from thera.cli.parameters import BYTES, Parsed, engine_options
from thera.errors import InvalidInput
from thera.files import cache_folder

#: Viewers wait for what they see: the fastest model, unless another is asked for.
MODEL = "edsr-air"


def web_address(text: str) -> str:
    """The address itself, if clients could ask there."""
    if not text.startswith(("http://", "https://")):
        raise InvalidInput(f"{text!r} is no address: write it like https://images.example.org/iiif/3.")
    return text


@click.command("serve")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0: for other machines, too.")
@click.option("--port", type=click.IntRange(0, 65535), default=8182, show_default=True)
@click.option(
    "--url",
    type=Parsed("URL", web_address),
    help="Where clients find /iiif/3, behind a proxy: https://images.example.org/iiif/3",
)
@click.option(
    "-m", "--model", default=MODEL, show_default=True, help="A name from `thera models`, or a file."
)
@engine_options
@click.option(
    "--zoom",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="Up to how many times its own size an image can be opened, as IDENTIFIER:8x.",
)
@click.option(
    "--quality", type=click.IntRange(1, 100), default=90, show_default=True, help="Of JPEG and WebP."
)
@click.option(
    "--max-pixels", type=click.IntRange(1), default=1 << 25, show_default=True, help="Of a response."
)
@click.option("--max-source", type=click.IntRange(1), default=1 << 27, show_default=True, help="Of a file.")
@click.option("--queue", type=click.IntRange(1), default=128, show_default=True, help="Requests at once.")
@click.option(
    "--encoders", type=click.IntRange(1), default=1, show_default=True, help="Networks that run at once."
)
@click.option("--memory", type=BYTES, default="512MiB", show_default=True, help="For what is kept at hand.")
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for encoded fields. [default: thera/fields where this system keeps caches]",
)
@click.option("--cache-size", type=BYTES, default="8GiB", show_default=True, help="Of that folder.")
@click.option("--no-cache", is_flag=True, help="Keep nothing on disk.")
@click.option(
    "--max-age", type=click.IntRange(0), default=3600, show_default=True, help="Seconds, for clients."
)
@click.option("-q", "--quiet", is_flag=True, help="Only errors.")
def command(folder: Path, host: str, port: int, quiet: bool, **given: Any) -> None:
    """Serve a folder of images by the IIIF Image API 3.0 (level 2, with upscaling).

    \b
    thera serve scans/                       http://127.0.0.1:8182/ in a browser
    thera serve scans/ --host 0.0.0.0        for everyone on the network

    \b
    /iiif/3/photo.jpg/info.json              for viewers: the image at its own size
    /iiif/3/photo.jpg:8x/info.json           the same, to be zoomed to eight times that
    /iiif/3/photo.jpg/full/^2000,/0/default.jpg
    /iiif/3/collection.json                  all of them, for Mirador and others (Presentation API 3)

    Images are encoded where they are first looked at closely, and the fields are kept in memory and on disk.
    """
    from thera.cli.app import listening
    from thera.cli.feedback import Feedback
    from thera.cli.run import Loading
    from thera.optional import require

    require("uvicorn", "web", "thera serve")
    require("fastapi", "web", "thera serve")
    from thera.iiif.running import run
    from thera.iiif.server import Server, Settings
    from thera.models.choice import ModelChoice

    choice = ModelChoice(*(given.pop(name) for name in ("model", "engine", "device", "precision")))
    model = Loading(choice, Feedback(quiet))()
    cache = given.pop("cache") or cache_folder() / "fields"
    kept = None if given.pop("no_cache") else cache
    server = Server(folder, model, Settings(cache=kept, **given))
    with listening(port, host) as listener:
        if not quiet:
            count = sum(1 for _ in server.folder.names())
            images = f"{count} image{'s' * (count != 1)}"
            address = f"http://{host}:{listener.getsockname()[1]}/"
            click.echo(f"{folder}: {images} at {address}, by {model.name}. Ctrl-C ends it.")
            click.echo(f"For Mirador and other IIIF viewers: {address}iiif/3/collection.json")
        run(server, listener, quiet)

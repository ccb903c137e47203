"""A page in one file: the modules, the picture and its field, to be opened from disk or any web host."""

from __future__ import annotations

import base64
import html
import json
import re
from importlib.resources import files
from pathlib import Path

from thera.errors import ImageFileError, InvalidInput
from thera.files import check_place, replacing
from thera.imaging.reading import read
from thera.imaging.srgb import without_nodata
from thera.models import Model
from thera.pages import VIEWER
from thera.tiled import Options, TiledField
from thera.web.packing import MOST_COMPONENTS, pack
from thera.web.pixels import DisplayedPicture, as_png

#: The folder of the page's own files; it shows pictures by the viewer's.
PAGE = Path(str(files("thera"))) / "web" / "page"
#: A page of this many pixels has 180 MB; browsers do not take much more in one piece.
MOST_CELLS = 1 << 19
#: Bytes to encode a picture in.
ENCODING_MEMORY = 1 << 30


def export_page(image: Path, page: Path, model: Model, *, overwrite: bool = False) -> None:
    """Writes `page`: the picture in `image`, to be zoomed live wherever the file is opened."""
    if page.suffix.lower() not in (".html", ".htm"):
        raise ImageFileError(f"The output {page.name!r} is to be a page: end it in .html.")
    check_place(page, overwrite, image)
    if model.info.components > MOST_COMPONENTS:
        raise InvalidInput(
            f"{model.name} has {model.info.components} components and a page sums {MOST_COMPONENTS} live: "
            "export with an Air model, such as edsr-air."
        )
    picture = DisplayedPicture(without_nodata(read(image)))
    H, W = picture.shape
    if H * W > MOST_CELLS:
        raise InvalidInput(
            f"{image} has {W}×{H} pixels and a page holds {MOST_CELLS:,}: make it smaller first, as with "
            f"`thera upscale {image.name} --fit 800x600`."
        )
    notes = ["What is transparent is shown on white."] if picture.transparent else []
    facts = {"name": image.name, "width": W, "height": H, "model": model.name, "notes": notes}
    box = (0, 0, H, W)
    (field,) = TiledField(model, picture, Options(memory=ENCODING_MEMORY)).fields(box)
    png, packed = as_png(picture.bytes(box)), pack(field)
    with replacing(page) as file:
        file.write(document(facts, png, packed).encode())


def document(facts: dict[str, object], png: bytes, field: bytes) -> str:
    """The whole page as text: index.html with everything it refers to within it."""
    text = (PAGE / "index.html").read_text(encoding="utf-8")
    text = text.replace("<html ", "<html data-standalone ", 1)
    text = text.replace("<title>Thera</title>", f"<title>{html.escape(str(facts['name']))}</title>", 1)
    text = re.sub(r'<link rel="stylesheet" href="([\w./]+)" />', _style, text)
    text = re.sub(r'href="([\w./]+\.svg)"', lambda m: f'href="{_data("image/svg+xml", _read(m[1]))}"', text)
    data = json.dumps(facts).replace("<", "\\u003c")  # a name must not end the script
    scripts = [
        f'<script type="importmap">{json.dumps({"imports": _modules()})}</script>',
        f'<script type="application/json" id="facts">{data}</script>',
        f'<script type="text/plain" id="image">{base64.b64encode(png).decode()}</script>',
        f'<script type="text/plain" id="field">{base64.b64encode(field).decode()}</script>',
        '<script type="module">import "thera/standalone.js";</script>',
    ]
    text = text.replace('    <script type="module" src="main.js"></script>\n', "", 1)
    return text.replace("  </body>", "".join(f"    {script}\n" for script in scripts) + "  </body>", 1)


def _modules() -> dict[str, str]:
    """Every module under a name of its own: a page from disk may import no other file."""
    found = {}
    for path in (*VIEWER.glob("*.js"), *PAGE.glob("*.js")):
        source = re.sub(r'from "\./(?:viewer/)?([\w.]+)"', r'from "thera/\1"', path.read_text("utf-8"))
        found[f"thera/{path.name}"] = _data("text/javascript", source.encode())
    return found


def _style(link: re.Match[str]) -> str:
    return f"<style>\n{_read(link[1]).decode()}</style>"


def _read(name: str) -> bytes:
    """A file that the page refers to."""
    folder, _, file = name.rpartition("/")
    return ((VIEWER if folder else PAGE) / file).read_bytes()


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"

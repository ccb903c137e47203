"""Writes the folder of a static page: its modules, the runtime, the networks and the first pictures."""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from PIL import Image

from thera._version import __version__
from thera.errors import InvalidInput
from thera.files import replacing_path
from thera.models import Shipped, shipped
from thera.models.onnx_templates import complete
from thera.networks.spec import MEAN
from thera.pages import VIEWER
from thera.web.export import PAGE

HERE = Path(str(files("thera"))) / "site"
#: The description that the page reads first, the service worker, and the list of files that it keeps.
DESCRIPTION, WORKER, LIST = "site.json", "service-worker.js", "files.json"
#: What a site runs unless asked otherwise, the default first.
MODELS = ("edsr-air", "edsr-plus")
#: Pixels of a tile, its halo included. A browser takes 1.2 and 9 kB of memory for each.
TILE_PIXELS = {"air": 300_000, "plus": 52_000}
#: Pictures that every browser can show.
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".avif")
#: Files of the npm package onnxruntime-web: always, and for WebGPU.
RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
WEBGPU = (
    "ort.webgpu.min.mjs",
    "ort-wasm-simd-threaded.asyncify.mjs",
    "ort-wasm-simd-threaded.asyncify.wasm",
)


#: What a site's page has beside that of `thera app`. Nothing may be loaded from another host.
HEAD = """\
    <meta name="description" content="Pictures at any size, in your browser: none leaves your computer." />
    <meta name="theme-color" media="(prefers-color-scheme: light)" content="#f7f6f3" />
    <meta name="theme-color" media="(prefers-color-scheme: dark)" content="#17181a" />
    <meta http-equiv="Content-Security-Policy" content="default-src 'self' blob: data:; \
script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; style-src 'self' 'unsafe-inline'" />
    <link rel="manifest" href="manifest.webmanifest" />
    <link rel="apple-touch-icon" href="apple-touch-icon.png" />
"""


def write_site(
    out: Path, pictures: Sequence[Path] = (), models: Sequence[str] = MODELS, runtime: Path | None = None
) -> int:
    """Writes a site to the folder `out`, whole or not at all; gives its size in bytes.

    `runtime`: a folder of the npm package onnxruntime-web. Its build for WebGPU is then used where a browser
    has it. Without it, the build for the CPU that comes with Thera is written.
    """
    out = out.resolve()  # a dot has no name, and a link cannot be replaced
    chosen = [_shipped(name) for name in dict.fromkeys(models)]
    _check(out, pictures)
    source = None if runtime is None else _npm_folder(runtime)
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing_path(out) as folder:
        folder.mkdir()
        # The page of `thera app`, with another backend.
        shutil.copytree(PAGE, folder, dirs_exist_ok=True)
        shutil.copytree(VIEWER, folder / "viewer")
        shutil.copytree(HERE / "compute", folder / "compute")
        shutil.copytree(HERE / "page", folder, dirs_exist_ok=True)
        (folder / "standalone.js").unlink()
        _copy_runtime(source, folder / "runtime")
        (folder / "models").mkdir()
        for model in chosen:
            (folder / "models" / f"{model.name}.onnx").write_bytes(complete(model.safetensors))
        (folder / "pictures").mkdir()
        shown = [_copy_picture(path, folder) for path in pictures]
        facts = {
            "version": __version__,
            "webgpu": source is not None,
            "models": [_describe(model, folder) for model in chosen],
            "pictures": shown,
        }
        (folder / DESCRIPTION).write_text(json.dumps(facts, indent=1), encoding="utf-8")
        index = folder / "index.html"
        text = index.read_text(encoding="utf-8")
        index.write_text(text.replace("  </head>", f"{HEAD}  </head>", 1), encoding="utf-8")
        _list_files(folder)
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _list_files(folder: Path) -> None:
    """Tells the service worker which files to keep, and makes it new if any of them is."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in paths]
    digest = hashlib.sha256()
    for name, path in zip(names, paths, strict=True):
        digest.update(name.encode() + hashlib.sha256(path.read_bytes()).digest())
    worker = folder / WORKER
    text = worker.read_text(encoding="utf-8").replace("@VERSION@", digest.hexdigest()[:16])
    worker.write_text(text, encoding="utf-8")
    # A browser fetches the service worker itself, and WebGPU's runtime where it has WebGPU.
    kept = [name for name in names if name != worker.name and "asyncify" not in name]
    (folder / LIST).write_text(json.dumps(["./", *kept], indent=0), encoding="utf-8")


def _describe(model: Shipped, folder: Path) -> dict[str, Any]:
    spec, file = model.spec, f"models/{model.name}.onnx"
    return {
        "name": model.name,
        "file": file,
        "halo": spec.halo,
        "components": spec.components,
        "pixelBias": list(MEAN) if spec.published else [0, 0, 0],
        "tilePixels": TILE_PIXELS[spec.variant],
        "work": model.parameters,  # convolutions read each of them once per pixel
        "bytes": (folder / file).stat().st_size,
    }


def _shipped(name: str) -> Shipped:
    known = {model.name: model for model in shipped() if model.spec.variant in TILE_PIXELS}
    if name not in known:
        raise InvalidInput(f"A site cannot run the model {name!r}: choose one of {', '.join(known)}.")
    return known[name]


def _check(out: Path, pictures: Sequence[Path]) -> None:
    if out.is_dir():
        other = _other_file(out)
        if other is not None:
            raise InvalidInput(
                f"The folder {out} holds other files, such as {other}: give a new folder, or an earlier site."
            )
    elif out.exists():
        raise InvalidInput(f"{out} is a file: give the name of a folder.")
    for path in pictures:
        if not path.is_file():
            raise InvalidInput(f"There is no picture {path}: check its name.")
        if path.suffix.lower() not in PICTURES:
            raise InvalidInput(f"Not every browser can show {path}: save it as PNG, JPEG or WebP first.")
        try:
            with Image.open(path) as image:
                image.load()
        except Exception as error:  # for damaged files, decoders raise anything: RuntimeError, IndexError, …
            reason = "it is empty" if not path.stat().st_size else str(error) or "it is damaged"
            raise InvalidInput(f"No browser could show {path} ({reason}): give another picture.") from error


def _other_file(folder: Path) -> str | None:
    """A file in a folder that is no part of an earlier site there, such as CNAME; None if there is none."""
    own: set[str] = set()
    with suppress(OSError, ValueError, TypeError):
        listed = set(json.loads((folder / LIST).read_text(encoding="utf-8")))
        if DESCRIPTION in listed:
            own = {*listed, WORKER, LIST, *(f"runtime/{name}" for name in WEBGPU)}
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return next((name for path in found if (name := path.relative_to(folder).as_posix()) not in own), None)


def _npm_folder(given: Path) -> Path:
    """The folder with the built files of onnxruntime-web, from its own folder or one that contains it."""
    for folder in (given, given / "dist", given / "onnxruntime-web" / "dist"):
        if (folder / RUNTIME[0]).is_file():
            missing = [name for name in (*RUNTIME, *WEBGPU) if not (folder / name).is_file()]
            if missing:
                raise InvalidInput(f"{folder} has no {missing[0]}: install onnxruntime-web 1.30 with npm.")
            return folder
    raise InvalidInput(
        f"{given} is no folder of onnxruntime-web: give node_modules/onnxruntime-web after"
        " `npm install onnxruntime-web`."
    )


def _copy_runtime(source: Path | None, target: Path) -> None:
    own = HERE / "runtime"
    target.mkdir()
    shutil.copyfile(own / "LICENSE", target / "LICENSE")
    if source is not None:
        for name in (*RUNTIME, *WEBGPU):
            shutil.copyfile(source / name, target / name)
        return
    for path in own.iterdir():
        if path.suffix == ".xz":
            (target / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
        elif path.suffix == ".mjs":
            shutil.copyfile(path, target / path.name)


def _copy_picture(path: Path, folder: Path) -> dict[str, str]:
    number = sum(1 for _ in (folder / "pictures").iterdir()) + 1
    name = f"pictures/{number}{path.suffix.lower()}"
    shutil.copyfile(path, folder / name)
    return {"name": path.name, "file": name}

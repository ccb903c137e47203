"""Parameters that several commands take."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from thera.errors import InvalidInput
from thera.imaging import DEFAULT_MODEL
from thera.memory import parse_bytes

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Size(click.ParamType):
    """WIDTHxHEIGHT, converted to (height, width)."""

    name = "WxH"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        try:
            width, height = (int(side) for side in value.lower().replace("×", "x").split("x"))
        except ValueError:
            self.fail(f"{value!r} is not a size; write it like 1920x1080.", param, ctx)
        return height, width


class Numbers(click.ParamType):
    """Numbers separated by spaces, commas or brackets, or a file of them."""

    name = "NUMBERS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            text = Path(value).read_text(encoding="utf-8") if Path(value).is_file() else value
            return tuple(float(word) for word in re.split(r"[\s,;\[\]()]+", text) if word)
        except (ValueError, OSError):
            self.fail(f"{value!r} is neither a list of numbers nor a file of them.", param, ctx)


@dataclass
class Parsed(click.ParamType):
    """A value as people write it, read by a function that raises `InvalidInput`."""

    name: str
    parse: Callable[[str], Any]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


#: Where a click context keeps the paths that were written with a slash at the end.
FOLDERS = "thera.folders"


class NamedPath(click.Path):
    """A path with a name. An empty one, as an unset shell variable gives it, would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("the name is empty. Give a file or a folder; the current one is a dot.", param, ctx)
        path = super().convert(value, param, ctx)
        if ctx is not None and isinstance(value, str) and value.endswith((os.sep, os.altsep or os.sep)):
            ctx.meta.setdefault(FOLDERS, set()).add(path)
        return path


def engine_options(function: Callable[..., Any], precision: str = "auto") -> Callable[..., Any]:
    """Adds --engine, --device and --precision; `precision` is the default of the last."""
    options: list[Decorator] = [
        click.option(
            "--engine",
            type=click.Choice(["auto", "onnx", "ncnn", "openvino", "torch"]),
            default="auto",
            show_default=True,
            help="What runs the network. auto: the fastest here, measured once; torch needs thera[torch].",
        ),
        click.option("--device", default="auto", show_default=True, help="cpu, cuda, vulkan, gpu, coreml, …"),
        click.option(
            "--precision",
            type=click.Choice(["auto", "f32", "tf32", "bf16", "f16"]),
            default=precision,
            show_default=True,
            help="Precision of the network. auto: f16 on CUDA GPUs, f32 elsewhere. Fields are always f32.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


BYTES = Parsed("SIZE", parse_bytes)  # 2GiB, 500MB, …
NAMED_PATH = NamedPath(readable=False, path_type=Path)

model_option: Decorator = click.option(
    "-m", "--model", default=DEFAULT_MODEL, show_default=True, help="A name from `thera models`, or a file."
)
strength_option: Decorator = click.option(
    "--strength",
    type=click.FloatRange(0, 1),
    default=1.0,
    show_default=True,
    help="How much a model that restores changes: 0 is the clean model of its kind.",
)

append_option: Decorator = click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also append the results to this file, as JSON lines.",
)

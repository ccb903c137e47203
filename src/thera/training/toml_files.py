"""Reads the TOML files of configurations, and changes single keys of them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thera.errors import InvalidInput


def read_toml(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"No configuration at {path}: name one such as configs/edsr-air.toml.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as e:
        raise InvalidInput(f"{path} is not a TOML file: {e}.") from None


def changed(values: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """`values` after "section.key=value" changes, in place."""
    for change in changes:
        key, _, value = change.partition("=")
        *sections, name = key.split(".")
        target = values
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise InvalidInput(f"{change!r} sets a key of {section}, which is a single value.")
        target[name] = _value(change, value)
    return values


def _value(change: str, text: str) -> Any:
    """`text` as a TOML value. What is not TOML, such as a model's name, is a string."""
    if not text:
        raise InvalidInput(f"{change!r} sets nothing: write KEY=VALUE, such as optimiser.rate=2e-4.")
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text

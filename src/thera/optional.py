"""Parts that a plain installation does without."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from thera.errors import MissingDependency


def require(module: str, extra: str, purpose: str) -> Any:
    """The module, or an error that names the extra which brings it.

    >>> require("json", "torch", "a file").__name__
    'json'
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingDependency(f"{purpose} needs {package}: pip install 'thera[{extra}]'.") from error

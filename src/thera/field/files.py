"""Fields in files: .npz archives with a JSON header, a checksum for every array, and no pickles."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from thera.errors import FieldFileError
from thera.field.psf import to_numpy
from thera.files import replacing

if TYPE_CHECKING:
    from thera.field.heatfield import HeatField

KIND, FORMAT = "thera heat field", 1
ARRAYS = ("pixels", "features", "components", "head_weight", "head_bias")


def save(field: HeatField, path: str | os.PathLike[str]) -> None:
    """Write a field to `path`. A reader never sees half a field."""
    arrays = {name: to_numpy(getattr(field, name)) for name in ARRAYS if getattr(field, name) is not None}
    header = json.dumps({"kind": KIND, "format": FORMAT, "kappa": field.kappa})
    with replacing(Path(path), FieldFileError) as file:
        np.savez(file, allow_pickle=False, header=np.array(header), **arrays)


def load(path: str | os.PathLike[str], asarray: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    """The arguments of the `HeatField` in a file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(str(arrays.pop("header")))
        kind, version, kappa = header["kind"], header["format"], float(header["kappa"])
    except FileNotFoundError as error:
        raise FieldFileError(f"There is no file {path}: save a field with HeatField.save first.") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        raise _damaged(path) from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise _damaged(path) from error
    if kind != KIND:
        raise _damaged(path)
    if version != FORMAT:
        raise FieldFileError(
            f"{path} has format {version!r}, but this Thera reads {FORMAT}: use a newer Thera."
        )
    if not {"pixels", "features", "components"} <= set(arrays) <= set(ARRAYS):
        raise _damaged(path)
    return {
        "head_weight": None,
        "head_bias": None,
        **{name: array if name == "components" else asarray(array) for name, array in arrays.items()},
        "kappa": kappa,
    }


def _damaged(path: str | os.PathLike[str]) -> FieldFileError:
    return FieldFileError(f"{path} is no heat field or is damaged: save the field again with HeatField.save.")

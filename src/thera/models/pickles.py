"""Read the pickles of published checkpoints without running the code that a pickle may contain.

Every name in a pickle is looked up in a closed list. The list does not hold NumPy's and PyTorch's own
functions but stand-ins, which check their arguments and which a pickle cannot alter. Any other name is
refused before it is called. A file of `torch.save` is an archive with a pickle and the bytes of its tensors.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from thera.errors import ModelError, UnsafeCheckpoint

NUMBERS = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
LARGEST_TREE = 100_000  # containers and values; published checkpoints have fewer than 2,000


def read_pickle(path: str | Path) -> Any:
    """The containers, arrays and plain values in a pickle or a file of `torch.save`. No code in it is run."""
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                file.seek(0)
                return _plain(_Unpickler(file).load(), [LARGEST_TREE])
            with zipfile.ZipFile(file) as archive:
                return _plain(_archived(archive).load(), [LARGEST_TREE])
    except ModelError as refusal:
        raise type(refusal)(f"{path} is refused, and no code in it was run: {refusal}") from None
    except OSError:
        raise
    except Exception as error:  # the unpickler raises errors of many kinds for a damaged file
        raise ModelError(f"{path} is a damaged pickle ({error}): download it again.") from error


class _StandIn:
    """What a name in a pickle resolves to: a callable whose state a pickle cannot set."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> NoReturn:
        raise UnsafeCheckpoint("it tries to alter the program that reads it.")


class _DType:
    """Stands in for numpy.dtype: a number type and its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any, *flags: Any) -> None:
        if not isinstance(code, str) or code.lstrip("<>=|") not in NUMBERS:
            raise UnsafeCheckpoint(f"it holds values of type {code!r}, but only plain numbers are allowed.")
        self.code, self.order = code.lstrip("<>=|"), "<"

    def __setstate__(self, state: Any) -> None:
        order, *structure = state[1:5]
        if order not in ("<", ">", "|", "=") or structure != [None, None, None]:
            raise UnsafeCheckpoint("it holds structured values, but only plain numbers are allowed.")
        self.order = "<" if order == "=" else order

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


class _Array:
    """Stands in for numpy.ndarray while a pickle fills it."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = np.zeros(0, np.float32)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        self.value = _filled(data, dtype, shape, "F" if fortran else "C")


class _Dict(dict):
    """Stands in for collections.OrderedDict. PyTorch attaches notes to its state dicts, which are dropped."""

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict) or set(state) != {"_metadata"}:
            raise UnsafeCheckpoint("it tries to alter the program that reads it.")


def _filled(data: Any, dtype: Any, shape: Any, order: str) -> np.ndarray:
    if not isinstance(dtype, _DType) or not isinstance(data, bytes | bytearray):
        raise UnsafeCheckpoint("it holds an array of something other than numbers.")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ModelError("it holds an array without a valid shape.")
    if len(data) != math.prod(shape) * dtype.dtype.itemsize:
        raise ModelError(f"it holds {len(data)} bytes for an array of shape {shape}.")
    return np.frombuffer(bytes(data), dtype.dtype).reshape(shape, order="F" if order == "F" else "C")


def _reconstruct(kind: Any, *start: Any) -> _Array:
    if kind is not _NDARRAY:
        raise UnsafeCheckpoint("it holds an array that is not a numpy.ndarray.")
    return _Array()


def _refuse_ndarray(*arguments: Any) -> NoReturn:
    raise UnsafeCheckpoint("it calls numpy.ndarray.")


def _latin1(text: Any, encoding: Any = "latin1") -> bytes:
    """Protocols 0 to 2 write bytes as text with a call of _codecs.encode."""
    if not isinstance(text, str) or encoding != "latin1":
        raise UnsafeCheckpoint(f"it asks for the codec {encoding!r}.")
    return text.encode("latin1")


def _tensor(storage: Any, first: Any, shape: Any, strides: Any, *rest: Any) -> np.ndarray:
    """Stands in for torch._utils._rebuild_tensor_v2: some of the numbers of a storage, in a shape."""
    if not isinstance(storage, np.ndarray) or not all(type(n) is int and n >= 0 for n in (first, *shape)):
        raise ModelError("it holds a tensor without valid numbers or a valid shape.")
    contiguous = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    numbers = storage[first : first + math.prod(shape)]
    if tuple(strides) != contiguous or numbers.size != math.prod(shape):
        raise ModelError(f"it holds a tensor of shape {shape} and strides {strides}, which cannot be read.")
    return numbers.reshape(shape)


def _archived(archive: zipfile.ZipFile) -> _Unpickler:
    """The unpickler of a file of `torch.save`, whose tensors are other entries of the archive."""
    entries = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
    if "data.pkl" not in entries:
        raise ModelError("it is an archive without the pickle of a checkpoint.")
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.values()):
        raise ModelError("it is compressed, as no checkpoint is.")

    def storage(pid: Any) -> np.ndarray:
        kind, dtype, key = pid[:3] if isinstance(pid, tuple) and len(pid) >= 3 else (None, None, None)
        if kind != "storage" or dtype not in _STORAGES or f"data/{key}" not in entries:
            raise UnsafeCheckpoint("it asks for an object outside the file.")
        return np.frombuffer(archive.read(entries[f"data/{key}"]), _STORAGES[dtype])

    unpickler = _Unpickler(io.BytesIO(archive.read(entries["data.pkl"])))
    unpickler.persistent_load = storage  # type: ignore[assignment, method-assign]
    return unpickler


_NDARRAY = _StandIn(_refuse_ndarray)
_STORAGES = {_StandIn(_refuse_ndarray): code for code in ("<f4", "<f2", "<f8", "<i8")}
_KINDS = dict(zip(("FloatStorage", "HalfStorage", "DoubleStorage", "LongStorage"), _STORAGES, strict=True))
_NUMPY = {
    "multiarray._reconstruct": _StandIn(_reconstruct),
    "multiarray.scalar": _StandIn(lambda dtype, data: _filled(data, dtype, (), "C")),
    "numeric._frombuffer": _StandIn(_filled),  # protocol 5
}
_NAMES = {
    **{f"torch.{name}": kind for name, kind in _KINDS.items()},
    "torch._utils._rebuild_tensor_v2": _StandIn(_tensor),
    "numpy.ndarray": _NDARRAY,
    "numpy.dtype": _StandIn(_DType),
    **{f"numpy.{core}.{name}": function for core in ("core", "_core") for name, function in _NUMPY.items()},
    "flax.core.frozen_dict.FrozenDict": _StandIn(dict),
    "collections.OrderedDict": _StandIn(_Dict),
    "_codecs.encode": _StandIn(_latin1),
    "__builtin__.bytes": _StandIn(lambda: b""),  # how protocols 0 to 2 write empty bytes
}


class _Unpickler(pickle._Unpickler):
    """Python's unpickler written in Python: the one in C allocates whatever size a damaged file names."""

    def find_class(self, module: str, name: str) -> Any:
        if found := _NAMES.get(f"{module}.{name}"):
            return found
        raise UnsafeCheckpoint(f"it asks for {module}.{name}: only NumPy arrays and containers are allowed.")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UnsafeCheckpoint("it asks for an object outside the file.")


def _plain(value: Any, remaining: list[int]) -> Any:
    """The same tree with arrays for stand-ins. It may contain itself: at most `remaining` values are read."""
    remaining[0] -= 1
    if remaining[0] < 0:
        raise ModelError("it holds far more values than a checkpoint.")
    if isinstance(value, dict):
        return {_plain(k, remaining): _plain(v, remaining) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_plain(v, remaining) for v in value)
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, np.ndarray | str | bytes | bytearray | int | float | complex | bool | None):
        return value
    raise UnsafeCheckpoint(f"it holds a {type(value).__name__}.")

"""The functions of Thera that one command calls, in order: how long the path of a photograph is.

    python benchmarks/hops.py upscale photo.jpg --scale 2 --overwrite

Functions of `field` and `models` are not counted, nor are properties, lambdas and comprehensions.
"""

import contextlib
import inspect
import sys
import threading
from functools import cached_property
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import thera
from thera.cli.main import run

ROOT = Path(thera.__file__).parent


def is_property(code: CodeType) -> bool:
    """True for the body of a property. Functions within functions are none."""
    *names, name = code.co_qualname.split(".")
    owner: Any = sys.modules.get("thera." + ".".join(path_of(code).with_suffix("").parts))
    for part in names:
        owner = getattr(owner, part, None)
    return isinstance(inspect.getattr_static(owner, name, None), property | cached_property)


def path_of(code: CodeType) -> Path:
    return Path(code.co_filename).relative_to(ROOT)


def main() -> None:
    calls: dict[CodeType, str] = {}  # each function, and who called it first

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        named = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith(
            "<"
        )  # no class, no lambda
        if event == "call" and named and code.co_filename.startswith(f"{ROOT}/"):
            calls.setdefault(code, frame.f_back.f_code.co_qualname if frame.f_back else "")

    threading.setprofile(note)
    sys.setprofile(note)
    with contextlib.suppress(SystemExit):
        run()
    sys.setprofile(None)
    threading.setprofile(None)
    ours = {c: by for c, by in calls.items() if path_of(c).parts[0] not in ("field", "models")}
    functions = [code for code in ours if not is_property(code)]
    for number, code in enumerate(functions, 1):
        print(f"{number:4} {path_of(code)}:{code.co_firstlineno} {code.co_qualname}  (from {ours[code]})")
    print(f"{len(functions)} functions in {len(set(map(path_of, functions)))} files", end=", ")
    print(f"{len(ours) - len(functions)} properties")


if __name__ == "__main__":
    main()

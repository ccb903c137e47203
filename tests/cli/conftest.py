"""The real program, run in this process, and photographs to run it on."""

import io
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from thera.cli.main import run as run_program


class Result(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """The lines of --json."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def counts(self) -> dict[str, int]:
        """How many files have each status."""
        return dict(Counter(record["status"] for record in self.records))


Program = Callable[..., Result]


@pytest.fixture
def thera(capfd) -> Program:
    """`thera(*arguments)` runs the program and gives its exit status and what it printed.

    A picture is scaled by the fastest model unless a test names one: few of them are about the model. A dry
    run, which scales nothing, chooses as the program does.
    """

    def run(*arguments: object) -> Result:
        capfd.readouterr()
        scales = arguments[:1] == ("upscale",) and len(arguments) > 1
        if scales and not {"-m", "--model", "--dry-run"} & set(arguments):
            arguments += ("--model", "edsr-air")
        with pytest.raises(SystemExit) as ended:
            run_program([str(argument) for argument in arguments])
        return Result(int(ended.value.code or 0), *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def photo() -> np.ndarray:
    """48×64×3 floats in [0, 1]: shading, a disc, fine stripes, a corner of every colour."""
    rows, cols = np.mgrid[:48, :64] / 48.0
    image = np.stack([rows, cols / 1.4, 1 - rows * 0.7], axis=2) * 0.6 + 0.2
    image[(rows - 0.5) ** 2 + (cols - 0.45) ** 2 < 0.09] = (0.9, 0.3, 0.1)
    image[30:44, 44:60] = (0.1, 0.15, 0.5)
    image[30:44, 44:60:4] = (0.9, 0.9, 0.8)
    return image.astype(np.float32)


@pytest.fixture(scope="session")
def as_bytes(photo) -> np.ndarray:
    return np.rint(photo * 255).astype(np.uint8)


@pytest.fixture(scope="session")
def png(as_bytes) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(as_bytes).save(file, "PNG")
    return file.getvalue()

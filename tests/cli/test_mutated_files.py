"""Mutated images of every format: a sentence or a picture, never a traceback, a leftover or much memory."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork and limits of memory")

#: Mutated images of each kind. With more of them this is a fuzzer.
COUNT = int(os.environ.get("THERA_MUTANTS", "20"))
FORMATS = ["png", "png16", "jpeg", "webp", "avif", "tiff", "bmp", "gif", "tga", "heic", "jxl"]
FORMATS += ["tiff-tags", "geo-tags"]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Callable[[str], list[dict]]]:
    """The outcomes of mutated images of a form, from one program that has everything loaded."""
    program = [sys.executable, str(Path(__file__).with_name("mutants.py"))]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin and server.stdout

        def ask(form: str) -> list[dict]:
            server.stdin.write(f"{form} {COUNT}\n")
            server.stdin.flush()
            return json.loads(server.stdout.readline())

        yield ask


@pytest.mark.parametrize("form", FORMATS)
def test_mutated_images_give_a_sentence_or_a_picture(outcomes, form):
    if form == "heic":
        pytest.importorskip("pillow_heif")
    good, *changed = outcomes(form)
    assert (good["status"], good["made"]) == (0, True), good
    for turn, outcome in enumerate(changed, 1):
        where = f"{form} {turn}: {outcome}"
        assert outcome["status"] in (0, 1), where
        assert outcome["made"] == (outcome["status"] == 0), where
        assert outcome["left"] == [], where
        if outcome["status"]:  # one sentence; before it the plan of a raster, which is read in windows
            *before, last = outcome["err"].splitlines()
            assert last.startswith("thera: "), where
            assert all(" → " in line or line.startswith("  note: ") for line in before), where
    assert any(outcome["status"] for outcome in changed)

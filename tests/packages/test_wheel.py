"""The wheel and the source archive: complete, small, and enough by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = 40_000_000  # bytes


def run(*command: object, **options: object) -> str:
    """What a program printed. It must succeed."""
    done = subprocess.run([*map(str, command)], capture_output=True, encoding="utf-8", **options)  # type: ignore
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> tuple[Path, Path]:
    """A wheel made from a source archive made from this folder, as `python -m build` does."""
    pytest.importorskip("build", reason="pip install build")
    out = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "thera"
    for name in (*(f"src/{name}" for name in shipped_files()), "LICENSE", "README.md", "pyproject.toml"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)  # a copy: a build leaves folders behind
        (source / name).symlink_to(ROOT / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def shipped_files() -> set[str]:
    """All files of the package but notes for developers."""
    package = ROOT / "src" / "thera"
    found = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT / "src").as_posix() for path in found if path.name != "README.md"}


def test_both_hold_every_file_of_the_package(archives):
    wheel, sdist = archives
    with zipfile.ZipFile(wheel) as file:
        assert shipped_files() <= set(file.namelist())
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {f"src/{name}" for name in shipped_files()} <= names
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names


def test_both_are_small(archives):
    assert all(1_000_000 < archive.stat().st_size < MOST for archive in archives)


def test_the_installed_wheel_scales_a_picture_without_the_repository(archives, tmp_path):
    from PIL import Image

    target = tmp_path / "installed"
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--target",
        target,
        archives[0],
    )
    Image.new("RGB", (5, 4), "teal").save(tmp_path / "a.png")
    environment = os.environ | {"PYTHONPATH": str(target)}
    where = run(sys.executable, "-c", "import thera; print(thera.__file__)", cwd=tmp_path, env=environment)
    assert Path(where.strip()).is_relative_to(target)
    program = sys.executable, "-m", "thera"
    run(*program, "upscale", "a.png", "--scale", "3", cwd=tmp_path, env=environment)
    with Image.open(tmp_path / "a_x3.png") as image:
        assert image.size == (15, 12)
    run(*program, "site", "demo", "--picture", "a.png", cwd=tmp_path, env=environment)
    assert (tmp_path / "demo" / "models" / "edsr-plus.onnx").stat().st_size > 1_000_000

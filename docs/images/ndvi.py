"""Makes ndvi.png of rasters.md: a made-up Sentinel-2 product, scaled to 5 m, and its vegetation index.

python docs/images/ndvi.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import rasterio
import rasterio.shutil
from PIL import Image

HERE = Path(__file__).parent
SIDE = 120  # pixels of 10 m
BANDS = ("B02", "B03", "B04", "B08")
FIELD, CROP, TRACK = (900, 1100, 1500, 2200), (300, 600, 350, 4200), (1400, 1500, 1700, 1900)


def ground(side: int) -> np.ndarray:
    """Reflectances of fields between tracks, 4×side×side, with a river across them."""
    y, x = (np.mgrid[:side, :side] + 0.5) / side
    turned = np.stack([x * 0.94 + y * 0.34, y * 0.94 - x * 0.34])
    cell = np.floor(turned * np.array([[[7]], [[4]]])).astype(int)
    share = np.random.default_rng(3).uniform(0, 1, (16, 16))[cell[0] % 16, cell[1] % 16]
    bands = [field + share * (crop - field) for field, crop in zip(FIELD, CROP, strict=True)]
    within = turned * np.array([[[7]], [[4]]]) - cell
    tracks = (within.min(axis=0) < 0.045) | (np.abs(y - 0.6 - 0.12 * np.sin(5 * x)) < 0.008)
    water = np.abs(y - 0.25 - 0.15 * np.sin(4 * x + 1)) < 0.03
    result = np.where(tracks, np.array(TRACK)[:, None, None], bands)
    return np.where(water, np.array((500, 450, 300, 200))[:, None, None], result)


def make_product(folder: Path) -> Path:
    """A SAFE folder with four bands of 10 m, each the mean over its pixels."""
    product = folder / "S2A_MSIL2A_20250601T103041_T33VVF.SAFE"
    images = product / "GRANULE" / "L2A_T33VVF" / "IMG_DATA" / "R10m"
    images.mkdir(parents=True)
    fine = ground(8 * SIDE)
    coarse = fine.reshape(4, SIDE, 8, SIDE, 8).mean(axis=(2, 4))
    noise = np.random.default_rng(0).normal(0, 12, coarse.shape)
    for name, band in zip(BANDS, np.rint(coarse + noise).astype(np.uint16), strict=True):
        path = folder / "band.tif"
        profile = {"driver": "GTiff", "width": SIDE, "height": SIDE, "count": 1, "dtype": "uint16"}
        transform = rasterio.Affine(10, 0, 400_000, 0, -10, 6_600_000)
        with rasterio.open(path, "w", crs="EPSG:32633", transform=transform, **profile) as dataset:
            dataset.write(band, 1)
        target = images / f"T33VVF_20250601T103041_{name}_10m.jp2"
        rasterio.shutil.copy(path, target, driver="JP2OpenJPEG", QUALITY="100", REVERSIBLE="YES")
    return product


def ndvi(path: Path) -> np.ndarray:
    """(NIR − red) / (NIR + red) of the bands that are called B08 and B04."""
    with rasterio.open(path) as scene:
        band = dict(zip(scene.descriptions, scene.read().astype(np.float32), strict=True))
    return (band["B08"] - band["B04"]) / (band["B08"] + band["B04"])


def coloured(index: np.ndarray, side: int) -> Image.Image:
    """Blue below 0, from brown to green above."""
    stops = np.array(
        [[60, 90, 140], [214, 190, 140], [225, 225, 130], [90, 160, 60], [10, 70, 20]], np.float32
    )
    position = np.clip((index + 0.3) / 1.2, 0, 1) * (len(stops) - 1)
    low = np.minimum(position.astype(int), len(stops) - 2)
    share = (position - low)[..., None]
    colours = stops[low] * (1 - share) + stops[low + 1] * share
    return Image.fromarray(np.rint(colours).astype(np.uint8)).resize((side, side), Image.Resampling.NEAREST)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        product = make_product(folder)
        command = [sys.executable, "-m", "thera", "upscale", product, folder / "5m.tif", "--resolution", "5"]
        subprocess.run([*command, "--model", "edsr-plus"], check=True)
        plain = [*command[:5], folder / "10m.tif", "--resolution", "10"]
        subprocess.run([*plain, "--model", "edsr-plus", "-q"], check=True)
        before, after = ndvi(folder / "10m.tif"), ndvi(folder / "5m.tif")
    fine = ground(8 * SIDE)
    red, near = (fine[k].reshape(2 * SIDE, 4, 2 * SIDE, 4).mean(axis=(1, 3)) for k in (2, 3))
    truth = (near - red) / (near + red)
    doubled = before.repeat(2, axis=0).repeat(2, axis=1)
    for name, index in (("10 m", doubled), ("5 m", after)):
        print(f"{name}: root mean square error {np.sqrt(np.mean((index - truth) ** 2)):.4f}")
    panels = [coloured(index, 480) for index in (before, after)]
    sheet = Image.new("RGB", (2 * 480 + 12, 480), "white")
    for k, panel in enumerate(panels):
        sheet.paste(panel, (k * 492, 0))
    sheet.save(HERE / "ndvi.png", optimize=True)


if __name__ == "__main__":
    main()

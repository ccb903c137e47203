"""Makes warps.png, and prints the tables of rasters.md: zone plates into other coordinate systems.

python docs/images/warps.py
"""

import tempfile
from pathlib import Path

import numpy as np
import rasterio
from PIL import Image, ImageDraw
from rasterio.enums import Resampling
from rasterio.warp import reproject

import thera
from thera.geo.crs import Reprojection, reprojected
from thera.geo.raster import describe
from thera.geo.upscaling import RasterOptions
from thera.geo.warped_rasters import prepare_warped_raster
from thera.tiled import Options
from thera.values.ranges import Stretch

HERE = Path(__file__).parent
SIDE = 400
UTM = ("EPSG:32633", rasterio.Affine(10, 0, 400_000, 0, -10, 6_600_000), "EPSG:3857")
DEGREES = ("EPSG:4326", rasterio.Affine(0.45, 0, -135, 0, -0.0625, 89.9), "EPSG:3413")
CASES = [
    ("UTM to Web Mercator, 1.3 pixels in one", *UTM, {"resolution": 26}),
    ("UTM to Web Mercator, 2.5 pixels in one", *UTM, {"resolution": 50}),
    (
        "degrees to polar stereographic, 1 to 6 pixels in one",
        *DEGREES,
        {"resolution": 12_000, "bounds": (-1.5e6, -2e6, 1.5e6, -1e4)},
    ),
]


def zone_plate(squared: np.ndarray) -> np.ndarray:
    """Rings ever closer, at Nyquist's frequency where they reach the middle of an edge."""
    return 0.5 + 0.5 * np.cos(np.pi / SIDE * squared)


def main() -> None:
    model = thera.load("edsr-air")
    row, column = np.mgrid[:SIDE, :SIDE] + 0.5 - SIDE / 2
    plate = np.rint(255 * zone_plate(row**2 + column**2)).astype(np.uint8)
    for title, crs, transform, to, grid in CASES:
        with tempfile.TemporaryDirectory() as folder:
            source, output = Path(folder) / "plate.tif", Path(folder) / "warped.tif"
            profile = {"driver": "GTiff", "width": SIDE, "height": SIDE, "count": 1, "dtype": "uint8"}
            with rasterio.open(source, "w", crs=crs, transform=transform, **profile) as dataset:
                dataset.write(plate, 1)
            place = reprojected(describe(source), to, **grid)
            results = {}
            for name in ("bilinear", "cubic", "lanczos"):
                results[f"GDAL {name}"] = image = np.zeros(place.size, np.uint8)
                with rasterio.open(source) as dataset:
                    band = rasterio.band(dataset, 1)
                    where = {"dst_transform": place.transform, "dst_crs": place.crs}
                    reproject(band, image, **where, resampling=Resampling[name])
            for name, psf in (("gaussian", thera.Gaussian()), ("lanczos", thera.Lanczos())):
                given = Options(psf), RasterOptions(Stretch("dtype"), overwrite=True)
                prepare_warped_raster(describe(source), output, model, place, *given).run()
                with rasterio.open(output) as dataset:
                    results[f"thera {name}"] = dataset.read(1)
            print(f"\n| {title} | beyond Nyquist | below it | contrast |\n| --- | --- | --- | --- |")
            for name, image in results.items():
                print(f"| {name} | {' | '.join(f'{n:.3f}' for n in measured(source, place, image))} |")
    # The last case, at twice its size.
    shown = ["GDAL bilinear", "GDAL cubic", "GDAL lanczos", "thera lanczos"]
    width, height = 2 * place.size[1], 2 * place.size[0]
    sheet = Image.new("L", (2 * width + 8, 2 * (height + 24)), 255)
    for i, name in enumerate(shown):
        left, top = (i % 2) * (width + 8), (i // 2) * (height + 24)
        ImageDraw.Draw(sheet).text((left + 4, top + 5), name, fill=0)
        panel = Image.fromarray(results[name]).resize((width, height), Image.Resampling.NEAREST)
        sheet.paste(panel, (left, top + 22))
    sheet.save(HERE / "warps.png", optimize=True)


def measured(source: Path, place: object, image: np.ndarray) -> tuple[float, float, float]:
    """What is left of rings too fine for the output, which should be grey; how far the others are from what
    they should be; and how much of their contrast there is. The first two as root mean squares, white 1."""
    points, jacobian = Reprojection(describe(source), place)((0, 0, *place.size))
    centre = points - SIDE / 2
    inside = np.all(np.abs(centre) < SIDE / 2 - 8, axis=-1)
    highest = np.abs(np.einsum("hwij,hwi->hwj", jacobian, centre / SIDE)).max(axis=-1)  # cycles to a pixel
    beyond, below = inside & (highest > 0.55), inside & (highest > 0.05) & (highest < 0.35)
    values, truth = image / 255 - 0.5, zone_plate((centre**2).sum(axis=-1)) - 0.5
    contrast = (values * truth)[below].sum() / (truth[below] ** 2).sum()
    return rms(values[beyond]), rms((values - truth)[below]), contrast


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


if __name__ == "__main__":
    main()

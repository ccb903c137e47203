"""The same picture with the same options becomes the same pixels through every door.

A door is a function `door(case, model, tmp_path) -> H'×W'×C samples`. Each gets pictures that are larger than
a tile, a chunk and what the network sees, and renders them with the ensemble. To add a door, write such a
function and name it in DOORS, with the pictures that it takes and what it does in another way.
"""

import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import thera
import thera.imaging.api  # before models are replaced: what it imports stays as it is
from thera.field import Filter, Lanczos
from thera.imaging.sizing import TargetSize
from thera.models import Model
from thera.tiled import Options, make_plan

SCALE = 1.3
#: Bytes that are too few for any of the pictures to be one tile.
LITTLE = 400 << 20


@dataclass(frozen=True)
class Case:
    """A picture, and what its samples mean: the options of `thera.upscale`."""

    name: str
    samples: np.ndarray  # H×W×C
    names: tuple[str, ...]  # of its bands
    meaning: dict[str, Any] = field(default_factory=dict)
    scale: float = SCALE


def photo(rows: int = 720, cols: int = 140) -> np.ndarray:
    """H×W×3 floats in [0, 1]: shading, stripes, a disc and a little noise."""
    y, x = np.mgrid[:rows, :cols] / rows
    image = 0.3 + 0.3 * np.stack([y, x, 1 - y], axis=2)
    image[(y - 0.5) ** 2 + (x - 0.1) ** 2 < 0.004] = (0.9, 0.3, 0.1)
    image[rows // 2 : rows // 2 + 60, 70:120:3] = (0.1, 0.9, 0.5)
    return np.clip(image + np.random.default_rng(0).normal(0, 0.02, image.shape), 0, 1)


def rgb8() -> Case:
    return Case("rgb8", np.rint(photo() * 255).astype(np.uint8), ("red", "green", "blue"))


def rgba8() -> Case:
    """Black and transparent around a disc at the top, half transparent at the lower right."""
    samples = np.dstack([rgb8().samples, np.full((720, 140), 255, np.uint8)])
    samples[:450][np.hypot(*(np.mgrid[:450, :140] - np.array([[[300]], [[60]]]))) > 80] = 0
    samples[500:, 100:, 3] = 128
    return Case("rgba8", samples, ("red", "green", "blue", "alpha"))


def bands16() -> Case:
    """Reflectances of four bands, with nodata along one side, in a hole of one band, and here and there."""
    image = np.dstack([photo(), photo()[::-1, ::-1, :1]])
    samples = np.rint(image**2 * 6000 + 100).astype(np.uint16)
    samples[:, 120:] = samples[340:420, 20:60, 2] = samples[::53, ::47] = 0
    samples[600:, :30, 3] = 31000  # clouds: outliers to a percentile
    meaning = {"value_range": "extent", "groups": [], "nodata": 0}
    return Case("bands16", samples, ("B02", "B03", "B04", "B08"), meaning)


def bands16_doubled() -> Case:
    """At whole-number scales, the means over the pixels of the input are limited, too."""
    return replace(bands16(), scale=2)


CASES = {case.__name__: case for case in (rgb8, rgba8, bands16, bands16_doubled)}


def through_array(case: Case, model: Model, tmp_path: Path) -> np.ndarray:
    return thera.upscale(case.samples, case.scale, model=model, ensemble=True, memory=LITTLE, **case.meaning)


def through_tensor(case: Case, model: Model, tmp_path: Path) -> np.ndarray:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(np.moveaxis(case.samples, 2, 0).copy())
    return np.moveaxis(
        thera.upscale(tensor, case.scale, model=model, ensemble=True, **case.meaning).numpy(), 0, 2
    )


def through_dask(case: Case, model: Model, tmp_path: Path) -> np.ndarray:
    da = pytest.importorskip("dask.array")
    from thera.dask import upscale

    lazy = upscale(
        da.from_array(case.samples, (360, 140, 1)), case.scale, ensemble=True, memory=LITTLE, **case.meaning
    )
    assert lazy.npartitions == 2
    return lazy.compute(scheduler="synchronous")


def through_xarray(case: Case, model: Model, tmp_path: Path) -> np.ndarray:
    xr = pytest.importorskip("xarray")
    import thera.xarray  # noqa: F401

    scene = xr.DataArray(case.samples, dims=("y", "x", "band"), coords={"band": list(case.names)})
    if "nodata" in case.meaning:
        scene.attrs["_FillValue"] = case.meaning["nodata"]
    return scene.chunk(y=360).thera.upscale(case.scale, ensemble=True).transpose("y", "x", "band").values


def through_masked_xarray(case: Case, model: Model, tmp_path: Path) -> np.ndarray:
    """Read as floats, with NaN where the file has nodata."""
    xr = pytest.importorskip("xarray")
    import thera.xarray  # noqa: F401

    nodata = case.meaning["nodata"]
    scene = xr.DataArray(case.samples, dims=("y", "x", "band"), coords={"band": [1, 2, 3, 4]})
    scene = scene.where(scene != nodata).astype(np.float32)
    scene.encoding = {"_FillValue": nodata, "dtype": "uint16"}
    values = scene.thera.upscale(case.scale, ensemble=True).transpose("y", "x", "band").values
    stored = np.rint(values).clip(1, 65535)  # a value that would be nodata becomes its neighbour
    return np.where(np.isnan(values), nodata, stored).astype(np.uint16)


def stored(case: Case, folder: Path) -> Path:
    """Pictures as PNG, rasters as GeoTIFF."""
    if case.name != "bands16":
        Image.fromarray(case.samples).save(folder / "in.png")
        return folder / "in.png"
    rasterio = pytest.importorskip("rasterio")
    rows, cols, count = case.samples.shape
    profile = {"height": rows, "width": cols, "count": count, "dtype": case.samples.dtype, "nodata": 0}
    place = {"crs": "EPSG:32631", "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 4.6e6)}
    with rasterio.open(folder / "in.tif", "w", **profile, **place) as dataset:
        dataset.write(np.moveaxis(case.samples, 2, 0))
    return folder / "in.tif"


def samples_of(path: Path) -> np.ndarray:
    if path.suffix == ".png":
        return np.asarray(Image.open(path))
    with pytest.importorskip("rasterio").open(path) as dataset:
        return np.moveaxis(dataset.read(), 0, 2)


def program(*arguments: object) -> str:
    """What `thera` prints."""
    from thera.cli.main import run

    with pytest.raises(SystemExit) as ended, redirect_stdout(StringIO()) as printed:
        run([str(argument) for argument in arguments])
    assert not ended.value.code
    return printed.getvalue()


def through_program(case: Case, model: Model, tmp_path: Path) -> np.ndarray:
    source = stored(case, tmp_path)
    output = source.with_stem("out")
    options = ("-s", case.scale, "--ensemble", "--memory", LITTLE + (128 << 20), "--json")
    record = json.loads(program("upscale", source, output, *options))
    assert record["tiles"] > 1
    return samples_of(output)


def through_identity_warp(case: Case, model: Model, tmp_path: Path) -> np.ndarray:
    source = stored(case, tmp_path)
    output = source.with_stem("out")
    program("warp", source, output, "--affine", "1,0,0,0,1,0", "--ensemble", "--memory", "560MiB", "-q")
    return samples_of(output)


def through_app_download(case: Case, model: Model, tmp_path: Path) -> np.ndarray:
    pytest.importorskip("pydantic")
    from thera.web.gallery import Gallery
    from thera.web.results import Order, write_result

    gallery = Gallery()
    entry = gallery.add(stored(case, tmp_path))
    (tmp_path / "out").mkdir()
    order = Order(model="edsr-air", scale=case.scale, ensemble=True)
    return samples_of(write_result(gallery, entry, tmp_path / "out", order, lambda share: None))


def through_iiif(case: Case, model: Model, tmp_path: Path) -> np.ndarray:
    testclient = pytest.importorskip("fastapi.testclient")
    from thera.iiif.application import create_app
    from thera.iiif.server import PREFIX, Server

    path = stored(case, tmp_path)
    rows, cols = TargetSize(scale=case.scale).for_image(case.samples.shape[:2])
    with testclient.TestClient(create_app(Server(tmp_path, model))) as client:
        answer = client.get(f"{PREFIX}{path.name}/full/^{cols},{rows}/0/default.png")
    assert answer.status_code == 200, answer.text
    return np.asarray(Image.open(BytesIO(answer.content)))


@dataclass(frozen=True)
class Door:
    """A way to pixels, the pictures that it takes, and how it differs from others in what it is asked for."""

    through: Callable[[Case, Model, Path], np.ndarray]
    cases: tuple[str, ...] = tuple(CASES)
    scale: float | None = None  # that of the case
    ensemble: bool = True
    psf: Filter | None = None
    off: int = 1  # by how much samples may differ


DOORS = [
    Door(through_array),
    Door(through_tensor),
    Door(through_dask),
    Door(through_xarray),
    Door(through_masked_xarray, ("bands16",)),
    # Integers are rounded before their means are moved by whole numbers, floats after that.
    Door(through_masked_xarray, ("bands16_doubled",), off=2),
    Door(through_program),
    Door(through_identity_warp, ("rgb8", "rgba8", "bands16"), scale=1, psf=Lanczos()),
    Door(through_app_download, ("rgb8", "rgba8")),  # four bands it cannot show
    Door(through_iiif, ("rgb8", "rgba8"), ensemble=False),
]


@pytest.fixture
def everywhere(far_sighted, monkeypatch) -> Model:
    """A model that sees as far as a network does, under every name."""
    model = far_sighted("air")
    monkeypatch.setattr("thera.models.choice.ModelChoice.load", lambda choice: model)
    monkeypatch.setattr("thera.models.load", lambda *arguments: model)
    monkeypatch.setattr("thera.web.gallery.load", lambda *arguments: model)
    if find_spec("dask") is not None:
        monkeypatch.setattr("thera.dask.tasks._load", lambda name: model)
    return model


@pytest.fixture(scope="session")
def expected(far_sighted) -> Callable[..., np.ndarray]:
    """The pixels of each picture, computed at once."""

    @cache
    def pixels(
        name: str, scale: float = SCALE, ensemble: bool = True, psf: Filter | None = None
    ) -> np.ndarray:
        case, model = CASES[name](), far_sighted("air")
        return thera.upscale(case.samples, scale, model=model, ensemble=ensemble, psf=psf, **case.meaning)

    return pixels


@pytest.mark.parametrize(
    ("door", "name"),
    [pytest.param(door, name, id=f"{door.through.__name__}-{name}") for door in DOORS for name in door.cases],
)
def test_every_door_gives_the_same_pixels(everywhere, expected, door, name, tmp_path):
    case = CASES[name]()
    whole = expected(name, door.scale or case.scale, door.ensemble, door.psf)
    pixels = door.through(case, everywhere, tmp_path)
    assert (pixels.shape, pixels.dtype) == (whole.shape, case.samples.dtype)
    apart = np.abs(pixels.astype(int) - whole)
    assert apart.max() <= door.off
    assert (apart > 1).mean() < 1e-3
    nodata = case.meaning.get("nodata")
    np.testing.assert_array_equal(pixels == nodata, whole == nodata)


def test_what_becomes_smaller_is_the_same_light_from_the_app_as_from_the_program(everywhere, tmp_path):
    """Bright dots on black, which averaging stored values would darken."""
    pytest.importorskip("pydantic")
    from thera.web.gallery import Gallery
    from thera.web.results import Order, write_result

    dots = np.zeros((48, 40, 3), np.uint8)
    dots[4::8, 4::8] = 255
    source = stored(Case("dots", dots, ("red", "green", "blue")), tmp_path)
    program("upscale", source, tmp_path / "program.png", "-s", 0.25, "-q")
    gallery = Gallery()
    order = Order(model="edsr-air", scale=0.25)
    download = write_result(gallery, gallery.add(source), tmp_path, order, lambda share: None)
    pixels = samples_of(download)
    np.testing.assert_array_equal(pixels, samples_of(tmp_path / "program.png"))
    assert pixels.mean() > 2 * thera.upscale(dots, 0.25, model=everywhere).mean()


@pytest.mark.parametrize("name", CASES)
def test_pictures_take_several_tiles(far_sighted, name):
    samples = CASES[name]().samples
    size = TargetSize(scale=CASES[name]().scale).for_image(samples.shape[:2])
    assert make_plan(far_sighted("air"), samples.shape[:2], size, Options(None, True, LITTLE)).tiles > 1


def test_the_expected_pixels_are_those_of_the_field(far_sighted, expected):
    image = rgb8().samples
    size = expected("rgb8").shape[:2]
    values = far_sighted("air").upscale(image.astype(np.float32) / 255, size=size, ensemble=True)
    assert np.abs(np.rint(np.clip(values, 0, 1) * 255) - expected("rgb8")).max() <= 1


@pytest.mark.parametrize("size", [(4, 4), (9, 7), (40, 30)])
def test_one_colour_stays_that_colour_however_small_its_picture_becomes(far_sighted, size):
    """Also where a filter averages over many hidden pixels."""
    picture = np.zeros((400, 380, 4), np.uint8)
    picture[np.hypot(*(np.mgrid[:400, :380] - 190)) < 25] = (255, 0, 0, 255)
    scaled = thera.upscale(picture, size=size, model=far_sighted("air"))
    visible = scaled[..., 3] > 0
    assert visible.any()
    np.testing.assert_allclose(scaled[visible][:, :3].astype(int) - (255, 0, 0), 0, atol=1)


def test_a_wholly_transparent_picture_keeps_its_colours_through_every_door(everywhere):
    da = pytest.importorskip("dask.array")
    from thera.dask import upscale

    picture = np.random.default_rng(0).integers(0, 256, (60, 50, 4), np.uint8)
    picture[..., 3] = 0
    opaque = picture[..., :3].copy()
    whole = thera.upscale(picture, 2, model=everywhere)
    chunks = upscale(da.from_array(picture, (30, 25, 4)), 2).compute(scheduler="synchronous")
    assert np.abs(whole.astype(int) - chunks).max() <= 1
    assert np.abs(whole[..., :3].astype(int) - thera.upscale(opaque, 2, model=everywhere)).max() <= 1

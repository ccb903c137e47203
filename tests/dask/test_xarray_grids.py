"""`.thera.reduce` and `.thera.warp`: arrays on coarser grids and on those of other coordinate systems."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import thera
import thera.xarray
from thera.errors import InvalidInput

pytest.importorskip("pyproj")
rasterio = pytest.importorskip("rasterio")

WEST, NORTH, STEP = 500_000.0, 4_600_000.0, 10.0


@pytest.fixture
def scene(photo) -> xr.DataArray:
    """Two bands of 96×80 pixels of ten metres in UTM 31, with a hole."""
    samples = np.rint(np.moveaxis(photo[100:196, 60:140, :2], 2, 0) * 10_000).astype(np.int16)
    samples[:, 20:30, 50:70] = -1
    return xr.DataArray(
        samples,
        dims=("band", "y", "x"),
        coords={
            "band": [4, 8],
            "y": NORTH - STEP * (np.arange(96) + 0.5),
            "x": WEST + STEP * (np.arange(80) + 0.5),
            "spatial_ref": ((), 0, {"crs_wkt": rasterio.CRS.from_epsg(32631).to_wkt()}),
        },
        attrs={"_FillValue": -1},
    )


def as_file(scene: xr.DataArray, path: Path) -> Path:
    transform = rasterio.Affine(STEP, 0, WEST, 0, -STEP, NORTH)
    profile = {"width": 80, "height": 96, "count": 2, "dtype": "int16", "nodata": -1}
    with rasterio.open(path, "w", "GTiff", crs="EPSG:32631", transform=transform, **profile) as file:
        file.write(scene.values)
    return path


@pytest.mark.parametrize(("crs", "options"), [("EPSG:3857", {"resolution": 21.0}), ("EPSG:4326", {})])
def test_a_warp_is_that_of_the_program(cheap, scene, tmp_path, crs, options):
    from thera.geo.crs import reprojected
    from thera.geo.raster import describe
    from thera.geo.warped_rasters import prepare_warped_raster

    raster = describe(as_file(scene, tmp_path / "scene.tif"))
    grid = reprojected(raster, crs, **options)
    prepare_warped_raster(raster, tmp_path / "warped.tif", cheap, grid).run()
    with rasterio.open(tmp_path / "warped.tif") as file:
        expected, transform, system = file.read(), file.transform, file.crs
    warped = scene.chunk(y=50, x=60).thera.warp(crs, **options)
    assert warped.chunks is not None and warped.dims == ("band", "y", "x")
    np.testing.assert_array_equal(warped.values == -1, expected == -1)
    np.testing.assert_allclose(warped.values, expected, rtol=0, atol=1)
    centres = transform * (np.arange(warped.sizes["x"]) + 0.5, np.zeros(warped.sizes["x"]))
    np.testing.assert_allclose(warped.x, centres[0], rtol=1e-12)
    numbers = [float(number) for number in warped.spatial_ref.attrs["GeoTransform"].split()]
    np.testing.assert_allclose(numbers, transform.to_gdal(), rtol=1e-12)
    assert rasterio.CRS.from_wkt(warped.spatial_ref.attrs["crs_wkt"]) == system
    assert warped.attrs == scene.attrs and warped.band.values.tolist() == [4, 8]
    assert warped.encoding["grid_mapping"] == "spatial_ref"  # else stores would keep it as data


@pytest.mark.parametrize(("chunk", "spacing"), [(40, 32), (25, 8)])
def test_chunks_of_a_warp_do_not_show(cheap, scene, monkeypatch, chunk, spacing):
    from thera.dask import warping

    whole = scene.thera.warp("EPSG:3035", 12.0)
    assert whole.chunks is None
    monkeypatch.setattr(warping, "CHUNK", chunk)
    monkeypatch.setattr(warping, "LEAST_CHUNK", 1)
    monkeypatch.setattr(warping, "SPACING", spacing)
    parts = scene.chunk(y=31, x=47).thera.warp("EPSG:3035", 12.0)
    assert parts.data.npartitions > 4
    xr.testing.assert_allclose(parts.compute().astype(int), whole.astype(int), rtol=0, atol=1)


def test_a_warp_beyond_a_horizon_shows_what_there_is():
    """Half of this view of the Earth from above 0° 0° is sky, which has no longitudes."""
    lat, lon = 89.0 - 2 * np.arange(90), -179.0 + 2 * np.arange(180)
    values = np.cos(np.radians(lat))[:, None] * np.cos(np.radians(lon))
    system = {"crs_wkt": rasterio.CRS.from_epsg(4326).to_wkt()}
    coords = {"latitude": lat, "longitude": lon, "spatial_ref": ((), 0, system)}
    world = xr.DataArray(values.astype("f4"), dims=("latitude", "longitude"), coords=coords).chunk(
        latitude=45
    )
    radius = 6_378_137.0
    seen = world.thera.warp(
        "+proj=ortho +R=6378137", model="edsr-air", size=(64, 64), bounds=(-radius, -radius, radius, radius)
    )
    assert seen.dims == ("y", "x") and seen.x.attrs["units"] == "metre"
    x, y = seen.x.values / radius, seen.y.values[:, None] / radius
    distance = x**2 + y**2
    deep = distance < 0.9
    assert np.isfinite(seen.values[deep]).all() and np.isnan(seen.values[distance > 1]).all()
    np.testing.assert_allclose(seen.values[deep], np.sqrt(1 - distance[deep]), atol=0.03)


def test_a_dataset_is_warped_with_all_it_holds(cheap, scene):
    dataset = xr.Dataset(
        {"scene": scene, "red": scene[0], "gain": ("band", [1.0, 2.0])}, attrs={"title": "a"}
    )
    warped = dataset.reset_coords("spatial_ref").thera.warp("EPSG:3857", 40.0)
    image = scene.thera.warp("EPSG:3857", 40.0)
    assert warped.attrs == {"title": "a"} and "spatial_ref" in warped.coords
    xr.testing.assert_identical(dataset.thera.warp("EPSG:3857", 40.0), warped)  # with the new CRS, too
    assert warped.spatial_ref.attrs == image.spatial_ref.attrs
    xr.testing.assert_equal(warped.scene, image)
    assert warped.red.shape == image.shape[1:] and warped.gain.values.tolist() == [1.0, 2.0]


def test_what_cannot_be_warped_is_said(cheap, scene):
    with pytest.raises(InvalidInput, match=r"no coordinate system: say which with \.rio.write_crs"):
        scene.drop_vars("spatial_ref").thera.warp("EPSG:3857")
    with pytest.raises(InvalidInput, match="neither evenly spaced coordinates"):
        scene.assign_coords(x=np.arange(80.0) ** 2).thera.warp("EPSG:3857")
    with pytest.raises(InvalidInput, match="is not a known coordinate system"):
        scene.thera.warp("Atlantis")
    with pytest.raises(InvalidInput, match="need a value: say which stands for no data"):
        scene.drop_attrs().assign_coords(spatial_ref=scene.spatial_ref).thera.warp("EPSG:3857", 40.0)
    with pytest.raises(InvalidInput, match="Nothing of the input lies in the output"):
        scene.thera.warp("EPSG:3857", 40.0, bounds=(0, 0, 400, 400))
    given = scene.drop_attrs().assign_coords(spatial_ref=scene.spatial_ref)
    assert given.thera.warp("EPSG:3857", 40.0, nodata=-1).attrs == {"_FillValue": -1}


@pytest.mark.parametrize("factor", [2, 3.5])
def test_reducing_takes_no_more_than_the_grid_can_show(cheap, scene, factor):
    """What `reduce` gives is the field under a Lanczos filter; stripes beyond Nyquist are gone."""
    lazy = scene.chunk(y=48, x=40).thera.reduce(factor)
    assert lazy.chunks is not None and lazy.sizes["x"] == round(80 / factor)
    image = np.moveaxis(scene.values, 0, 2)
    options = {"value_range": "extent", "groups": [], "nodata": -1, "psf": thera.Lanczos()}
    whole = thera.upscale(image, 1 / factor, model=cheap, **options)
    np.testing.assert_allclose(np.moveaxis(lazy.values, 0, 2), whole, rtol=0, atol=1)
    np.testing.assert_allclose(lazy.x.diff("x"), STEP * 80 / lazy.sizes["x"], rtol=1e-9)


def test_reducing_leaves_no_trace_of_what_is_too_fine():
    stripes = xr.DataArray(np.tile(np.float32([0.2, 0.8]), (48, 32)), dims=("y", "x"))
    inner = stripes.thera.reduce(3.2, model="edsr-air").values[3:-3, 3:-3]
    assert np.ptp(inner) < 0.01  # taking every third pixel would give 0.2 and 0.8
    assert abs(inner.mean() - 0.5) < 0.05  # a network may see such stripes a little darker or brighter


def test_reducing_does_not_enlarge(cheap, scene):
    for wrong in ({"factor": 0.5}, {"size": (120, 60)}):
        with pytest.raises(InvalidInput, match=r"would make the array larger: use \.thera"):
            scene.thera.reduce(**wrong)
    for wrong in ({"factor": 0}, {"factor": -2}, {}, {"factor": 2, "size": (20, 20)}):
        with pytest.raises(InvalidInput):
            scene.thera.reduce(**wrong)


def test_sharded_zarr_holds_what_was_computed(cheap, scene, tmp_path):
    zarr = pytest.importorskip("zarr")
    finer = scene.chunk(y=48, x=40).thera.upscale(2).chunk(band=1, y=96, x=80)
    shards = {"chunks": (1, 48, 40), "shards": (1, 96, 80)}
    finer.to_dataset(name="fine").to_zarr(
        tmp_path / "fine.zarr", encoding={"fine": shards}, consolidated=False
    )
    stored = zarr.open(tmp_path / "fine.zarr")["fine"]
    assert (stored.shards, stored.chunks) == (shards["shards"], shards["chunks"])
    back = xr.open_zarr(tmp_path / "fine.zarr", mask_and_scale=False, consolidated=False)
    np.testing.assert_array_equal(back.fine, finer)

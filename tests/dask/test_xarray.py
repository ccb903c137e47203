"""Scaled arrays of xarray lie where they did: coordinates, CRS and everything else they carry."""

import doctest

import numpy as np
import pytest
import xarray as xr

import thera
import thera.xarray
from thera.errors import InvalidInput
from thera.geo.upscaling import prepare_raster
from thera.imaging.sizing import TargetSize

NORTH, WEST, STEP = 4_600_000.0, 500_000.0, 10.0
#: What the program takes for granted of raster files, and the accessor of arrays.
AS_RASTERS = {"value_range": "extent", "groups": []}


@pytest.fixture
def scene(photo) -> xr.DataArray:
    """Three bands of 300×290 pixels of ten metres, as rioxarray reads them."""
    samples = np.rint(np.moveaxis(photo, 2, 0) * 10_000).astype(np.uint16)
    attrs = {"crs_wkt": 'PROJCS["somewhere"]', "GeoTransform": f"{WEST} {STEP} 0.0 {NORTH} 0.0 -{STEP}"}
    return xr.DataArray(
        samples,
        dims=("band", "y", "x"),
        coords={
            "band": [4, 3, 2],
            "y": ("y", NORTH - STEP * (np.arange(300) + 0.5), {"units": "m"}),
            "x": WEST + STEP * (np.arange(290) + 0.5),
            "time": np.datetime64("2026-11-15"),
            "spatial_ref": ((), 0, attrs),
        },
        name="reflectance",
        attrs={"units": "1e-4"},
    )


@pytest.mark.parametrize("scale", [2.5, 0.3])
def test_pixels_keep_their_place_on_the_ground(cheap, scene, scale):
    scene.encoding = {"grid_mapping": "spatial_ref", "_FillValue": 0, "preferred_chunks": {"x": 290}}
    scaled = scene.thera.upscale(scale)
    assert scaled.dims == scene.dims
    assert scaled.sizes["x"] == round(290 * scale)
    image = np.moveaxis(scene.values, 0, 2)
    whole = thera.upscale(image, scale, model=cheap, **AS_RASTERS, nodata=0)
    np.testing.assert_array_equal(np.moveaxis(scaled.values, 0, 2), whole)
    step_x, step_y = (STEP * scene.sizes[dim] / scaled.sizes[dim] for dim in "xy")
    # To a millionth of a pixel: the outer corners stay, and centres lie evenly between them.
    np.testing.assert_allclose(scaled.x, WEST + step_x * (np.arange(scaled.sizes["x"]) + 0.5), atol=1e-5)
    np.testing.assert_allclose(scaled.y, NORTH - step_y * (np.arange(scaled.sizes["y"]) + 0.5), atol=1e-5)
    transform = [float(number) for number in scaled.spatial_ref.attrs["GeoTransform"].split()]
    np.testing.assert_allclose(transform, [WEST, step_x, 0, NORTH, 0, -step_y], rtol=1e-12)
    assert scaled.spatial_ref.attrs["crs_wkt"] == 'PROJCS["somewhere"]'
    assert scene.spatial_ref.attrs["GeoTransform"].split()[1] == "10.0"  # the input's is its own
    assert scaled.encoding == {"grid_mapping": "spatial_ref", "_FillValue": 0}
    assert (scaled.name, scaled.attrs, scaled.y.attrs) == ("reflectance", {"units": "1e-4"}, {"units": "m"})
    assert scaled.time == scene.time
    np.testing.assert_array_equal(scaled.band, scene.band)


def test_rasterio_sees_the_same_bounds_and_crs(cheap, scene):
    pytest.importorskip("rioxarray")
    scene = scene.drop_vars("spatial_ref").rio.write_crs("EPSG:32631")
    scaled = scene.thera.upscale(1.7)
    assert scaled.rio.crs == scene.rio.crs
    np.testing.assert_allclose(scaled.rio.bounds(), scene.rio.bounds(), atol=1e-6 * STEP)


@pytest.mark.parametrize("masked", [False, True])
def test_rasters_that_rioxarray_opens_become_what_the_program_makes(photo, tmp_path, masked):
    rioxarray, rasterio = pytest.importorskip("rioxarray"), pytest.importorskip("rasterio")
    bands = np.rint(np.moveaxis(photo, 2, 0)[:, :40, :50] * 9000 + 200).astype(np.int16)
    bands[:, :9, :12] = -999
    profile = {"height": 40, "width": 50, "count": 3, "dtype": "int16", "nodata": -999, "crs": "EPSG:32633"}
    place = rasterio.Affine(10, 0, 400_000, 0, -10, 6_600_000)
    with rasterio.open(tmp_path / "in.tif", "w", transform=place, **profile) as dataset:
        dataset.write(bands)
    source, output = tmp_path / "in.tif", tmp_path / "out.tif"
    prepare_raster(source, output, thera.load("edsr-air"), TargetSize(scale=2)).run()
    scaled = rioxarray.open_rasterio(source, masked=masked).thera.upscale(2, "edsr-air")
    expected = rioxarray.open_rasterio(output, masked=masked)
    assert scaled.rio.crs == expected.rio.crs and scaled.rio.bounds() == expected.rio.bounds()
    assert scaled.rio.nodata == expected.rio.nodata or masked
    assert scaled.rio.encoded_nodata == expected.rio.encoded_nodata
    np.testing.assert_array_equal(np.isnan(scaled), np.isnan(expected))
    np.testing.assert_allclose(scaled, expected, atol=2 if masked else 1)  # floats are not rounded


def test_chunks_stay_lazy_and_arrays_are_computed(cheap, scene):
    lazy = scene.chunk(band=1, y=150, x=145).thera.upscale(1.5)
    assert lazy.chunks is not None
    whole = scene.thera.upscale(1.5)
    assert whole.chunks is None
    xr.testing.assert_allclose(lazy.compute().astype(int), whole.astype(int), rtol=0, atol=1)  # of 65,535


def test_dimensions_may_have_any_names_and_order(cheap, scene):
    turned = scene.transpose("x", "band", "y").rename(x="east", y="north", band="colour")
    scaled = turned.thera.upscale(1.5, dims=("north", "east"))
    assert scaled.dims == ("east", "colour", "north")
    back = scaled.rename(east="x", north="y", colour="band").transpose("band", "y", "x")
    xr.testing.assert_equal(back, scene.thera.upscale(1.5))
    with pytest.raises(InvalidInput, match="say which are"):
        turned.thera.upscale(1.5)
    for dims in (("x", "x"), ("y",), ("x", "y", "band"), 2):
        for array in (scene, scene.to_dataset()):
            with pytest.raises(InvalidInput, match="expected the names of rows and columns"):
                array.thera.upscale(1.5, dims=dims)


def test_a_curved_grid_keeps_its_latitudes_and_longitudes(cheap, scene):
    rows, cols = np.mgrid[:300, :290] + 0.5
    scene = scene.assign_coords(lat=(("y", "x"), 50 - 0.01 * rows + 0.002 * cols))
    scaled = scene.thera.upscale(2)
    rows, cols = (np.mgrid[:600, :580] + 0.5) / 2
    np.testing.assert_allclose(scaled.lat, 50 - 0.01 * rows + 0.002 * cols, atol=1e-9)


def test_a_dataset_is_scaled_image_by_image_and_the_rest_is_kept(cheap, scene):
    dataset = xr.Dataset(
        {"reflectance": scene, "red": scene[0], "gain": ("band", [1.0, 2.0, 3.0])}, attrs={"title": "a"}
    )
    dataset = dataset.reset_coords("spatial_ref")  # as it is read where nobody says that it is a coordinate
    scaled = dataset.thera.upscale(1.5)
    assert scaled.attrs == {"title": "a"}
    xr.testing.assert_equal(scaled.gain, dataset.gain)
    image = scene.thera.upscale(1.5)
    xr.testing.assert_equal(scaled.reflectance, image.drop_vars("spatial_ref"))
    assert scaled.red.shape == image.shape[1:]
    assert scaled.spatial_ref.attrs == image.spatial_ref.attrs
    with_coordinate = dataset.set_coords("spatial_ref").thera.upscale(1.5)
    assert with_coordinate.spatial_ref.attrs == image.spatial_ref.attrs


def test_what_cannot_be_scaled_is_said(cheap, scene):
    with pytest.raises(InvalidInput, match=r"none of the dimensions \['hour', 'day'\] is known to be that"):
        scene[0].expand_dims(hour=2, day=3).thera.upscale(2, groups=[(0, 1, 2)])
    with pytest.raises(InvalidInput, match=r"no band 8 among \[4, 3, 2\]"):
        scene.thera.upscale(2, groups=[(4, 3, 8)])
    with pytest.raises(InvalidInput, match="expected integers or floats"):
        (scene > 3).assign_attrs(_FillValue=1).thera.upscale(2)
    with pytest.raises(InvalidInput, match="cannot be put between pixels"):
        scene.assign_coords(column=("x", [f"c{i}" for i in range(290)])).thera.upscale(2)
    with pytest.raises(InvalidInput, match="no variable"):
        xr.Dataset(coords={"x": [1.0], "y": [2.0]}).thera.upscale(2)
    with pytest.raises(InvalidInput, match=r"\['profile'\].*drop them"):
        xr.Dataset({"image": scene[0], "profile": scene[0, 0]}).thera.upscale(2)


def test_a_geotransform_of_other_than_six_numbers_is_left_out(cheap, scene):
    scene.spatial_ref.attrs["GeoTransform"] = "-124.77 0.0417 0 49.4 -0.0417"  # as gridMET writes it
    with pytest.warns(UserWarning, match="GeoTransform '-124.77.*' is not six numbers: it is left out"):
        scaled = scene.thera.upscale(2)
    assert "GeoTransform" not in scaled.spatial_ref.attrs and "crs_wkt" in scaled.spatial_ref.attrs


def nearest(mask: np.ndarray, scale: float) -> np.ndarray:
    """Which input pixel each output pixel's centre lies in, of the last two axes."""
    rows, cols = (
        np.floor((np.arange(round(n * scale)) + 0.5) * n / round(n * scale)) for n in mask.shape[-2:]
    )
    return mask[..., rows.astype(int)[:, None], cols.astype(int)]


@pytest.mark.parametrize("attribute", ["_FillValue", "missing_value", "nodata"])
@pytest.mark.parametrize("place", ["attrs", "encoding"])
@pytest.mark.parametrize(("dtype", "mark"), [("i2", -999), ("f4", 1e20), ("f4", np.nan)])
def test_samples_that_stand_for_no_data_stay_apart(cheap, photo, attribute, place, dtype, mark):
    values = (photo[..., 0] * 1000).astype(dtype)
    holes = np.zeros(values.shape, bool)
    holes[200:, 20:30] = holes[3, 5] = True
    decoded = place == "encoding" and dtype == "f4"
    shown = np.nan if decoded else mark  # xarray shows a decoded value as NaN
    array = xr.DataArray(np.where(holes, np.array(shown, dtype), values), dims=("y", "x"), name="height")
    getattr(array, place)[attribute] = mark
    scaled = array.chunk(y=150).thera.upscale(1.5).compute()
    assert getattr(scaled, place) == getattr(array, place)
    found = np.isnan(scaled.values) if np.isnan(shown) else scaled.values == np.array(shown, dtype)
    np.testing.assert_array_equal(found, nearest(holes, 1.5))
    whole = thera.upscale(array.values, 1.5, model=cheap, nodata=shown, value_range="extent")
    np.testing.assert_allclose(scaled, whole, rtol=0, atol=1 if dtype == "i2" else 0.01)


def test_several_values_that_stand_for_no_data_become_one(cheap, photo):
    values = (photo[..., 0] * 1000).astype("i2")
    values[100:120], values[:, 50:60] = -999, -32768
    attrs = {"_FillValue": -999, "missing_value": np.array([-32768, -999], "i2")}
    scaled = xr.DataArray(values, dims=("y", "x"), attrs=attrs).thera.upscale(1.5)
    np.testing.assert_array_equal(scaled == -999, nearest(values < 0, 1.5))
    assert scaled.min() == -999


def test_what_is_given_comes_before_what_is_declared(cheap, scene):
    scene.attrs["_FillValue"] = 7
    image = np.moveaxis(scene.values, 0, 2)
    options = {"value_range": [(0, 9000), (0, 8000), (0, 9500)], "nodata": int(image.max())}
    whole = thera.upscale(image, 1.5, model=cheap, groups=[], **options)
    np.testing.assert_array_equal(np.moveaxis(scene.thera.upscale(1.5, **options).values, 0, 2), whole)


def test_bands_are_seen_one_by_one_unless_they_are_a_colour(cheap, scene):
    alone = scene.thera.upscale(1.5)
    for k in range(3):
        xr.testing.assert_equal(scene[k].thera.upscale(1.5), alone[k])
    image = np.moveaxis(scene.values, 0, 2)
    together = thera.upscale(image[..., ::-1], 1.5, model=cheap, value_range="extent")
    together = np.moveaxis(together[..., ::-1], 2, 0)
    assert np.abs(together - alone.values.astype(float)).max() > 10
    coloured = [
        scene.thera.upscale(1.5, groups=[(2, 3, 4)]),
        scene.assign_coords(band=["blue", "green", "red"]).thera.upscale(1.5),
        scene.assign_attrs(long_name=("B2", "B3", "B4")).thera.upscale(1.5, groups=[("B4", "B3", "B2")]),
        scene.assign_attrs(long_name=("B2", "B3", "B4")).thera.upscale(1.5, groups=[(2, 3, 4)]),
        scene.drop_vars("band").thera.upscale(1.5, groups=[(2, 1, 0)]),
    ]
    for scaled in coloured:
        np.testing.assert_array_equal(scaled, together)
    dates = scene.rename(band="date").assign_coords(date=np.arange("2026-01", "2026-04", dtype="M8[M]"))
    np.testing.assert_array_equal(dates.thera.upscale(1.5), alone)


def test_a_band_called_alpha_covers(cheap, scene):
    rgba = xr.concat([scene, (scene[:1] > 4000).astype("u2") * 65535], "band")
    rgba = rgba.assign_coords(band=["red", "green", "blue", "alpha"])
    image = np.moveaxis(rgba.values, 0, 2)
    for alpha in (None, "data"):
        options = {"value_range": "extent", "groups": [(0, 1, 2)], "alpha": alpha or "cover"}
        whole = thera.upscale(image, 1.5, model=cheap, **options)
        np.testing.assert_array_equal(rgba.thera.upscale(1.5, alpha=alpha), np.moveaxis(whole, 2, 0))


def test_more_dimensions_are_scaled_slice_by_slice(cheap, scene):
    cube = xr.concat([scene, scene[:, ::-1].assign_coords(y=scene.y), scene // 2], "date").chunk(y=150)
    scaled = cube.thera.upscale(1.5, groups=[(4, 3, 2)])
    assert scaled.dims == ("date", "band", "y", "x") and scaled.chunks is not None
    for date in range(3):
        expected = cube[date].thera.upscale(1.5, groups=[(4, 3, 2)])
        xr.testing.assert_equal(scaled[date].compute(), expected.compute())
    turned = cube.transpose("x", "date", "y", "band").thera.upscale(1.5, groups=[(4, 3, 2)])
    assert turned.dims == ("x", "date", "y", "band")
    xr.testing.assert_equal(turned.transpose(*scaled.dims).compute(), scaled.compute())


def test_examples_run():
    failed, attempted = doctest.testmod(thera.dask.accessor)
    assert failed == 0 < attempted

"""Scaled arrays of xarray lie where they did: coordinates, CRS and everything else they carry."""

import doctest

import numpy as np
import pytest
import xarray as xr

import thera
import thera.xarray
from thera.errors import InvalidInput

NORTH, WEST, STEP = 4_600_000.0, 500_000.0, 10.0


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
    np.testing.assert_array_equal(np.moveaxis(scaled.values, 0, 2), thera.upscale(image, scale, model=cheap))
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
    with pytest.raises(InvalidInput, match="at most one more"):
        scene.expand_dims(hour=2).thera.upscale(2)
    with pytest.raises(InvalidInput, match="cannot be put between pixels"):
        scene.assign_coords(column=("x", [f"c{i}" for i in range(290)])).thera.upscale(2)
    with pytest.raises(InvalidInput, match="no variable"):
        xr.Dataset(coords={"x": [1.0], "y": [2.0]}).thera.upscale(2)
    with pytest.raises(InvalidInput, match=r"\['profile'\].*drop them"):
        xr.Dataset({"image": scene[0], "profile": scene[0, 0]}).thera.upscale(2)
    with pytest.raises(InvalidInput, match="NaN"):
        scene.where(scene > 3000).thera.upscale(2)
    scene.spatial_ref.attrs["GeoTransform"] = "1 2 3"
    with pytest.raises(InvalidInput, match="GeoTransform '1 2 3' was given: expected a text of six"):
        scene.thera.upscale(2)


@pytest.mark.parametrize("attribute", ["_FillValue", "missing_value"])
@pytest.mark.parametrize(("dtype", "mark"), [("i2", -999), ("f4", 1e20)])
def test_samples_that_stand_for_no_data_are_refused_where_they_are(cheap, photo, attribute, dtype, mark):
    values = (photo[..., 0] * 1000).astype(dtype)
    array = xr.DataArray(values, dims=("y", "x"), name="height", attrs={attribute: mark}).chunk(y=150)
    assert array.thera.upscale(1.5).compute().attrs == array.attrs
    array[200:, 20:30] = mark
    lazy = array.thera.upscale(1.5)
    with pytest.raises(InvalidInput, match=f"'height' holds .*, its {attribute}, which stands for no data"):
        lazy.compute()


def test_examples_run():
    failed, attempted = doctest.testmod(thera.xarray)
    assert failed == 0 < attempted

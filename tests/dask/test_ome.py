"""OME-Zarr images keep their axes, channels and the size of their pixels."""

import numpy as np
import pytest
import zarr

import thera
from thera.dask.arrays import Settings
from thera.dask.stores import prepare_store
from thera.errors import ImageFileError
from thera.imaging.sizing import TargetSize
from thera.values.meaning import Meaning

AXES = [
    {"name": "c", "type": "channel"},
    {"name": "z", "type": "space", "unit": "micrometer"},
    {"name": "y", "type": "space", "unit": "micrometer"},
    {"name": "x", "type": "space", "unit": "micrometer"},
]
OMERO = {"channels": [{"label": "DAPI", "color": "0000FF"}, {"label": "GFP", "color": "00FF00"}]}


def image(path, samples, form):
    """An image of two levels, as bioformats2raw and ome-zarr-py write them."""
    group = zarr.open_group(path, mode="w", zarr_format=form)
    levels = []
    for level, part in enumerate((samples, samples[..., ::2, ::2])):
        more = {"chunk_key_encoding": {"name": "v2", "separator": "/"}} if form == 2 else {}
        group.create_array(str(level), data=part, chunks=(1, 1, 32, 32), **more)
        scale = [1.0, 2.0, 0.5 * 2**level, 0.25 * 2**level]
        levels.append({"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": scale}]})
    described = {"multiscales": [{"name": "cells", "axes": AXES, "datasets": levels}], "omero": OMERO}
    group.attrs.update({"ome": {"version": "0.5", **described}} if form == 3 else described)
    return path


def scaled(source, output, scale=2):
    settings = Settings.of("edsr-air", Meaning())
    prepare_store(source, output, TargetSize(scale=scale), settings).run()
    return zarr.open_group(output, mode="r")


@pytest.mark.parametrize("form", [2, 3])
def test_planes_are_scaled_one_by_one_and_pixels_have_their_size(cheap, photo, tmp_path, form):
    planes = np.rint(4000 * np.stack([photo[:40, :60, 0], photo[50:90, :60, 1]])).astype(np.uint16)
    samples = np.stack([planes, planes[:, ::-1]], axis=1)
    group = scaled(image(tmp_path / "a.zarr", samples, form), tmp_path / "b.zarr")
    fine = group["0"]
    assert (fine.shape, fine.chunks, fine.dtype) == ((2, 2, 80, 120), (1, 1, 32, 32), np.uint16)
    for c, z in np.ndindex(2, 2):
        alone = thera.upscale(samples[c, z], 2, model=cheap, value_range="extent")
        np.testing.assert_allclose(fine[c, z].astype(int), alone.astype(int), atol=1)
    means = fine[:].astype(float).reshape(2, 2, 40, 2, 60, 2).mean(axis=(3, 5))
    np.testing.assert_allclose(group["1"][:], means, atol=0.5)
    described = group.attrs["ome"] if form == 3 else group.attrs.asdict()
    (kept,) = described["multiscales"]
    assert (kept["axes"], kept["name"], described["omero"]) == (AXES, "cells", OMERO)
    for level, path in enumerate("01"):
        scale, move = kept["datasets"][level]["coordinateTransformations"]
        assert kept["datasets"][level]["path"] == path
        assert scale["scale"] == [1, 2, 0.25 * 2**level, 0.125 * 2**level]
        # The outer edge stays in place: half a pixel before the first centre.
        edges = np.subtract(move["translation"], np.divide(scale["scale"], 2))
        np.testing.assert_allclose(edges, [-0.5, -1, -0.25, -0.125])
    assert group.metadata.zarr_format == form


def test_what_is_no_image_of_rows_and_columns_is_refused(cheap, tmp_path):
    path = image(tmp_path / "a.zarr", np.zeros((1, 1, 40, 40), np.uint8), 3)
    group = zarr.open_group(path)
    ome = dict(group.attrs["ome"])
    ome["multiscales"][0]["axes"] = AXES[::-1]
    group.attrs["ome"] = ome
    with pytest.raises(ImageFileError, match="axes x, y, z, c: expected y and x at the end"):
        scaled(path, tmp_path / "b.zarr")
    short = [{"type": "translation", "translation": [1.0]}]
    for level in ({"path": "9"}, {"path": "0", "coordinateTransformations": short}):
        ome["multiscales"][0]["datasets"] = [level]
        group.attrs["ome"] = ome
        with pytest.raises(ImageFileError, match="damaged description"):
            scaled(path, tmp_path / "b.zarr")
    assert not (tmp_path / "b.zarr").exists()

"""A Dask array is scaled as the array in memory is, whatever its chunks, and not before it is asked for."""

import weakref
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dask
import thera
from thera.dask import tasks, upscale
from thera.dask.arrays import cuts_of
from thera.errors import InvalidInput, ModelError
from thera.field import Box, Gaussian
from thera.imaging.picture import Picture
from thera.imaging.upscaling import scale_picture
from thera.models import choice, loading
from thera.tiled import Options

UNEVEN = ((11, 200, 89), (40, 50, 60, 140), (2, 1))


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.parametrize("scale", [2, 1.37, 3.14, 0.6, 0.21])
@pytest.mark.parametrize("chunks", [(150, 145, 3), (137, 290, 1), UNEVEN], ids=str)
def test_any_chunks_at_any_scale_equal_the_whole(cheap, photo, scale, chunks):
    lazy = upscale(da.from_array(photo, chunks), scale)
    assert lazy.npartitions > 1
    np.testing.assert_allclose(lazy.compute(), thera.upscale(photo, scale, model=cheap), atol=1e-5)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.tuples(st.integers(1, 460), st.integers(1, 460)),
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    st.integers(30, 200),
)
def test_every_pixel_of_any_size_lies_where_it_does_in_the_whole(cheap, source, size, chunk):
    ramp = np.add.outer(np.linspace(0, 0.5, source[0]), np.linspace(0, 0.5, source[1])).astype(np.float32)
    lazy = upscale(da.from_array(ramp, chunk), size=size)
    assert lazy.shape == size
    np.testing.assert_allclose(lazy.compute(), thera.upscale(ramp, size=size, model=cheap), atol=1e-5)


@pytest.mark.parametrize("cheap", ["pro"], indirect=True)
@pytest.mark.parametrize("ensemble", [False, True])
def test_windows_lie_in_chunks_as_they_do_in_the_whole(cheap, ensemble):
    image = np.random.default_rng(0).random((861, 93, 3), np.float32)
    lazy = upscale(da.from_array(image, (419, 93, 3)), 1.2, ensemble=ensemble)
    assert lazy.npartitions == 2
    whole = thera.upscale(image, 1.2, model=cheap, ensemble=ensemble)
    np.testing.assert_allclose(lazy.compute(), whole, atol=1e-5)


@pytest.mark.parametrize("psf", [Box(3.0), Gaussian(0.7)], ids=str)
def test_filters_look_as_far_as_they_must(cheap, photo, psf):
    lazy = upscale(da.from_array(photo, (150, 145, 3)), 0.4, psf=psf)
    assert lazy.npartitions == 4
    whole = thera.upscale(photo, 0.4, model=cheap, psf=psf)
    np.testing.assert_allclose(lazy.compute(), whole, atol=1e-5)


def test_little_memory_divides_a_task_and_changes_nothing(cheap, photo, monkeypatch):
    plans = []
    real = tasks.make_plan
    monkeypatch.setattr(tasks, "make_plan", lambda *a, **k: plans.append(real(*a, **k)) or plans[-1])
    lazy = upscale(da.from_array(photo, (150, 290, 3)), 1.5, memory=360 << 20)
    np.testing.assert_allclose(lazy.compute(), thera.upscale(photo, 1.5, model=cheap), atol=1e-5)
    assert [plan.tiles > 1 for plan in plans] == [True, True]


def test_the_network_itself_gives_the_same_in_chunks(photo):
    image = photo[:280, :160]
    lazy = upscale(da.from_array(image, (140, 160, 3)), 1.7, "edsr-air")
    assert lazy.npartitions == 2
    whole = thera.upscale(image, 1.7, model="edsr-air")
    np.testing.assert_allclose(lazy.compute(scheduler="threads"), whole, atol=1e-5)


@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "i4", "f2", "f4", "f8"])
def test_every_dtype_comes_back_in_its_own_units(cheap, photo, dtype):
    kind = np.dtype(dtype)
    units = photo * {"u1": 255, "u2": 65535}.get(dtype, 3000) - (0 if dtype[0] == "u" else 400)
    image = (units if kind.kind == "f" else np.rint(units)).astype(kind)
    lazy = upscale(da.from_array(image, (150, 145, 3)), 1.5)
    assert lazy.dtype == kind
    whole = thera.upscale(image, 1.5, model=cheap)
    # 1e-5 of a range of 3,000, or one step: of an integer, or of float16 beyond 4,096
    tolerance = {"f2": 4, "f4": 0.03, "f8": 0.03}.get(dtype, 1)
    assert np.abs(lazy.compute().astype(float) - whole).max() <= tolerance


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
def test_a_colour_is_seen_as_one_and_every_other_channel_by_itself(cheap, photo, count):
    image = np.concatenate([photo, 1 - photo], axis=2)[..., :count]
    lazy = upscale(da.from_array(image, (150, 145, 1)), 1.5, alpha="data").compute()
    if count <= 4:
        picture = replace(Picture.of_channels(image), covers=False)
        whole = scale_picture(cheap, picture, lazy.shape[:2], Options()).samples
    else:
        whole = np.stack([thera.upscale(image[..., k], 1.5, model=cheap) for k in range(count)], axis=2)
    np.testing.assert_allclose(lazy, whole, atol=1e-5)


@pytest.mark.parametrize("cheap", ["air", "pro"], indirect=True)
@pytest.mark.parametrize("scale", [1.5, 0.4])
@pytest.mark.parametrize("count", [2, 4])
def test_an_alpha_covers_whatever_the_chunks(cheap, count, scale):
    image = np.random.default_rng(0).integers(0, 256, (1500, 90, count), np.uint8)
    image[..., -1] = np.where(np.hypot(*(np.mgrid[:1500, :90] - np.array([[[820]], [[30]]]))) < 300, 255, 0)
    image[900:, 40:, -1] = 90
    lazy = upscale(da.from_array(image, (750, 90, 1)), scale)
    assert lazy.npartitions > 1
    whole = thera.upscale(image, scale, model=cheap)
    assert np.abs(lazy.compute().astype(int) - whole).max() <= 1
    assert set(np.unique(whole[: int(500 * scale), :, -1])) == {0}  # no veil where nothing was


@pytest.mark.parametrize("dtype", ["i2", "f4"])
def test_nodata_stays_apart_whatever_the_chunks(cheap, photo, dtype):
    image = (np.tile(photo, (4, 1, 2))[..., :4] * 3000).astype(dtype)
    image[400:700, 50:200, 1] = image[::7, ::5, 2] = -9999
    options = {"nodata": -9999, "groups": [(3, 0, 1)], "value_range": "2%:98%"}
    lazy = upscale(da.from_array(image, (400, 290, 4)), 1.5, **options)
    assert lazy.npartitions > 1
    whole = thera.upscale(image, 1.5, model=cheap, **options)
    scaled = lazy.compute()
    np.testing.assert_array_equal(scaled == -9999, whole == -9999)
    nearest = [np.floor((np.arange(N) + 0.5) / 1.5).astype(int) for N in scaled.shape[:2]]
    np.testing.assert_array_equal(whole == -9999, (image == -9999)[np.ix_(*nearest)])
    assert np.abs(scaled.astype(float) - whole).max() <= (1 if dtype == "i2" else 0.03)  # 1e-5 of 3,000


@pytest.mark.parametrize(("dtype", "passes"), [("u2", 1), ("f4", 2), ("f8", 4)])
def test_percentiles_are_exact_and_no_chunk_is_kept_for_them(cheap, dtype, passes):
    alive, most, reads = 0, 0, 0

    def forget() -> None:
        nonlocal alive
        alive -= 1

    def read(block_id: tuple[int, ...]) -> np.ndarray:
        nonlocal alive, most, reads
        block = (np.random.default_rng(block_id).normal(size=(70, 70, 1)) * 100 + 500).astype(dtype)
        weakref.finalize(block, forget)
        alive, reads = alive + 1, reads + 1
        most = max(most, alive)
        return block

    chunks = ((70,) * 8, (70,) * 8, (1, 1))
    image = da.map_blocks(read, chunks=chunks, meta=np.empty((0, 0, 0), dtype))
    lazy = upscale(image, 0.1, value_range="percentile", alpha="data")
    corners = lazy.map_blocks(lambda block: block[:1, :1, :1], chunks=(1, 1, 1)).compute()
    assert reads == (passes + 1) * 128
    assert most <= 32  # of 128: nine that are merged into one, of two channels, and those on the way
    low, high = (np.percentile(image.compute(), p, axis=(0, 1), method="nearest") for p in (0.5, 99.5))
    given = upscale(image, 0.1, value_range=list(zip(low, high, strict=True)), alpha="data")
    np.testing.assert_array_equal(
        given.map_blocks(lambda block: block[:1, :1, :1], chunks=(1, 1, 1)).compute(), corners
    )


def test_a_graph_of_many_chunks_is_not_made_before_it_is_needed(cheap):
    """The passes that find the range of 38,416 chunks of floats are one layer, which nobody has opened."""
    image = da.zeros((100_000, 100_000), chunks=512, dtype="f4")
    layers = upscale(image, 2, value_range="extent").dask.layers.values()
    (survey,) = (layer for layer in layers if type(layer).__name__ == "Pass")
    assert not survey.is_materialized()
    few = upscale(image[:1200, :600], 2, value_range="extent")
    assert few.sum().compute() == 0


def test_channels_may_come_first_and_grey_needs_none(cheap, photo):
    image = da.from_array(photo, (150, 145, 3))
    last = upscale(image, 1.5)
    first = upscale(da.moveaxis(image, 2, 0), 1.5, channels="first")
    assert first.shape == (3, *last.shape[:2])
    np.testing.assert_array_equal(np.moveaxis(first.compute(), 0, 2), last.compute())
    grey = upscale(image[..., 0], 1.5)
    assert grey.shape == last.shape[:2]
    np.testing.assert_allclose(grey.compute(), thera.upscale(photo[..., 0], 1.5, model=cheap), atol=1e-5)


def test_a_range_that_is_given_spares_looking_for_it(cheap, photo):
    read = []

    def counted(block: np.ndarray) -> np.ndarray:
        read.append(block.shape)
        return block

    image = da.from_array(photo * 50 - 10, (150, 145, 3)).map_blocks(counted, meta=np.empty((0, 0, 0), "f4"))
    known = image.min().compute(), image.max().compute()

    def corner(value_range: object) -> np.ndarray:
        read.clear()
        return upscale(image, 1.5, value_range=value_range)[:10, :10].compute()

    found = corner(None)
    assert len(read) == 3 * 4  # twice for the range and again: nothing is kept in memory in between
    np.testing.assert_allclose(corner(known), found, atol=1e-3)  # of 50
    assert len(read) == 4
    np.testing.assert_array_equal(corner([known] * 3), corner(known))
    assert np.abs(corner((-10, 400)) - found).max() > 0.5


def test_nothing_is_computed_until_it_is_asked_for(photo):
    def refuse(block: np.ndarray) -> np.ndarray:
        raise AssertionError("computed")

    image = da.from_array(photo, (150, 145, 3)).map_blocks(refuse, meta=np.empty((0, 0, 0), "f4"))
    lazy = upscale(image, 2, "edsr-air")
    with pytest.raises(AssertionError, match="computed"):
        lazy.compute()


def test_a_graph_names_its_model_and_the_same_call_is_the_same_graph(photo):
    image = da.from_array(photo, (150, 145, 3))
    first, again, other = (upscale(image, scale, "edsr-air") for scale in (2, 2, 2.5))
    assert first.name == again.name != other.name


def test_a_process_loads_a_model_once_however_many_threads_ask(monkeypatch):
    loads = []
    real = loading.load
    monkeypatch.setattr(loading, "load", lambda *arguments: loads.append(arguments[-1]) or real(*arguments))
    tasks._load.cache_clear()
    image = da.zeros((300, 150, 3), np.uint8, chunks=(150, 150, 3))
    upscale(image, 0.1, "edsr-air").compute(scheduler="threads", num_workers=2)
    assert loads == [1]  # with one thread: it is Dask that keeps the cores busy


def test_a_model_file_that_changes_is_loaded_again(tmp_path):
    (weights,) = (m.safetensors for m in thera.models.shipped() if m.name == "edsr-air")
    path = tmp_path / "mine.safetensors"
    path.write_bytes(weights.read_bytes())
    before = tasks.ModelName.of(choice.ModelChoice(str(path)))
    assert before.choice.name == str(path)
    assert tasks.loaded(before) is tasks.loaded(before)
    import os

    os.utime(path, ns=(1, 1))
    assert tasks.ModelName.of(choice.ModelChoice(str(path))) != before


@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(1, 300), st.integers(1, 900))
def test_chunks_keep_their_places_unless_they_are_too_small_or_too_large(chunks, least, most):
    most = max(least, most)
    cuts = cuts_of(chunks, least, most)
    lengths = np.diff(cuts)
    assert (cuts[0], cuts[-1]) == (0, sum(chunks))
    assert lengths.min() >= min(least, sum(chunks))
    assert lengths.max() < most + 2 * least
    if min(chunks) >= least and max(chunks) <= most:
        np.testing.assert_array_equal(lengths, chunks)


def test_chunks_of_the_output_stay_within_dasks_size():
    image = da.zeros((4000, 3000, 3), np.uint8, chunks=-1)
    with dask.config.set({"array.chunk-size": "4MiB"}):
        lazy = upscale(image, 3, "edsr-air")
    assert max(np.prod(block.shape) for block in lazy.blocks.ravel()[:3]) <= 4 << 20


WRONG = {
    "expected a dask.array": lambda image: upscale(image.compute(), 2),
    "expected H×W, H×W×C": lambda image: upscale(image[None], 2),
    "channels come last": lambda image: upscale(image.transpose(2, 0, 1), 2),
    "expected integers or floats": lambda image: upscale(image > 0.5, 2),
    "expected one of plain NumPy": lambda image: upscale(da.ma.masked_less(image, 0.5), 2),
    "unknown: call its compute_chunk_sizes": lambda image: upscale(image[image[:, 0, 0] > 0], 2),
    'expected "last"': lambda image: upscale(image, 2, channels="middle"),
    "Give one of scale, size": lambda image: upscale(image),
    "give a number above 0": lambda image: upscale(image, -1),
    "leaves no pixel": lambda image: upscale(image, 1e-4),
    "the lower one first": lambda image: upscale(image, 2, value_range=(1, 0)),
    "for each of the 3 channels": lambda image: upscale(image, 2, value_range=[(0, 1), (0, 2)]),
    "'2' is not a range of values": lambda image: upscale(image, 2, value_range="2"),
    "none of them is a colour": lambda image: upscale(image, 2, "edsr-air", groups=(2, 1, 0)),
    "there is no band 3 among": lambda image: upscale(image, 2, groups=[3]),
    "the band 1 is there twice": lambda image: upscale(image, 2, groups=[(0, 1, 1)]),
    "a group has one band or three": lambda image: upscale(image, 2, groups=[(0, 1)]),
    'expected "cover" or "data"': lambda image: upscale(image, 2, alpha="shows"),
    "the last of 3 bands is no alpha": lambda image: upscale(image, 2, alpha="cover"),
    "nodata='none' was given": lambda image: upscale(image, 2, nodata="none"),
    "for each of 3 bands": lambda image: upscale(image, 2, nodata=[0, 1]),
    "expected a value of uint8": lambda image: upscale(image.astype("u1"), 2, nodata=-1),
    "give its name or its file": lambda image: upscale(image, 2, thera.load("edsr-air")),
    "not a filter": lambda image: upscale(image, 2, "edsr-air", psf="sharp"),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_what_cannot_be_scaled_is_said_at_once(photo, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        WRONG[sentence](da.from_array(photo, (150, 145, 3)))


def test_memory_is_an_amount_as_people_write_it(cheap, photo):
    image = da.from_array(photo)
    assert upscale(image, 2, memory="2GiB").shape == (2 * photo.shape[0], 2 * photo.shape[1], 3)
    with pytest.raises(InvalidInput, match="is not an amount of memory"):
        upscale(image, 2, memory="much")


def test_an_unknown_model_is_said_at_once(photo):
    with pytest.raises(ModelError, match="There is no file or model"):
        upscale(da.from_array(photo), 2, "edsr-aire")


@pytest.mark.parametrize("value_range", [None, (0, 1)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_refused_when_they_are_met(cheap, photo, bad, value_range):
    image = photo.copy()
    image[200, 200, 1] = bad
    lazy = upscale(da.from_array(image, (150, 145, 3)), 2, value_range=value_range)
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        lazy.compute()

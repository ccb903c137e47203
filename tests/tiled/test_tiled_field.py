"""Tiles and bands change nothing but the memory it takes."""

import pickle
from dataclasses import replace
from itertools import pairwise
from threading import Barrier, Event, Lock
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import thera
from thera.errors import InvalidInput
from thera.field import Box, Gaussian, Lanczos, Point, Seamless
from thera.field.grid import Axis
from thera.models import Model
from thera.models.engine import interruptible
from thera.models.model import Shared
from thera.networks import Spec
from thera.tiled import ArraySource, Options, Plan, TiledField, make_plan
from thera.tiled import field as tiled_field
from thera.tiled.plan import GOOD_ENOUGH, costs, with_halo


def rendered(model, image, plan, options=None) -> np.ndarray:
    strips = TiledField(model, ArraySource(image), options).rows(plan)
    return np.concatenate([strip.values for strip in strips])


def plan_of(source, size, rows, cols) -> Plan:
    return Plan(source, size, rows, cols, memory=0, encoded=0)


SIZES = [(850, 402), (282, 402), (283, 353), (235, 335), (95, 134), (70, 100), (20, 31), (1, 1)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("ensemble", [False, True])
def test_tiled_equals_untiled_up_and_down_with_and_without_ensemble(model, size, ensemble, monkeypatch):
    image = np.random.default_rng(0).random((94, 134, 3), np.float32)
    whole = model.upscale(image, size=size, ensemble=ensemble)
    monkeypatch.setattr(tiled_field, "BAND_MEMORY", 12 * size[1] * 7)  # bands of seven rows
    plan = plan_of((94, 134), size, (0, 31, 40, 94), (0, 50, 57, 134))
    np.testing.assert_allclose(rendered(model, image, plan, Options(ensemble=ensemble)), whole, atol=1e-5)


@pytest.mark.parametrize("psf", [Gaussian(0.7), Gaussian(2.0), Box(3.0), Point()], ids=str)
def test_tiled_equals_untiled_for_filters_that_look_far(model, psf):
    image = np.random.default_rng(1).random((80, 90, 3), np.float32)
    whole = model.upscale(image, size=(33, 100), psf=psf)
    plan = plan_of((80, 90), (33, 100), (0, 20, 50, 80), (0, 45, 90))
    np.testing.assert_allclose(rendered(model, image, plan, Options(psf)), whole, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 90), st.integers(1, 90), st.integers(1, 30))
def test_every_output_row_is_made_once_whatever_the_sizes(model, H, W, rows, cols, step):
    image = np.random.default_rng(2).random((H, W, 3), np.float32)
    plan = plan_of((H, W), (rows, cols), (*range(0, H, step), H), (*range(0, W, step), W))
    made = rendered(model, image, plan, Options(Seamless()))
    np.testing.assert_allclose(made, model.upscale(image, size=(rows, cols)), atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(st.integers(1, 50), st.integers(1, 50)),
    st.tuples(st.integers(1, 90), st.integers(1, 90)),
    st.lists(st.integers(0, 50), min_size=3, max_size=5),
    st.lists(st.integers(0, 50), min_size=3, max_size=5),
)
def test_a_part_of_the_image_is_scaled_as_that_part_of_the_whole(model, source, size, rows, cols):
    image = np.random.default_rng(3).random((*source, 3), np.float32)
    cuts = [
        sorted({min(cut, n) for cut in cuts} | {n - 1, n})
        for cuts, n in zip((rows, cols), source, strict=True)
    ]
    plan = plan_of(source, size, *(tuple(part) for part in cuts))
    whole = model.upscale(image, size=size)
    mine = [Axis.whole(n, N).within(part[0], part[-1]) for n, N, part in zip(source, size, cuts, strict=True)]
    expected = whole[mine[0], mine[1]]
    if expected.size:
        np.testing.assert_allclose(rendered(model, image, plan, Options(Seamless())), expected, atol=1e-5)
    else:
        assert list(TiledField(model, ArraySource(image)).rows(plan)) == []


def test_progress_adds_up_to_the_output(model):
    done = []
    plan = plan_of((50, 40), (111, 97), (0, 20, 50), (0, 15, 40))
    image = np.zeros((50, 40, 3), np.float32)
    list(TiledField(model, ArraySource(image)).rows(plan, done.append))
    assert sum(done) == pytest.approx(111 * 97)


def test_plans_stay_within_their_memory_and_cover_the_image(model):
    for source in ((10, 10), (3000, 2000), (500, 40000), (40000, 500), (20000, 20000)):
        size = (source[0] * 4, source[1] * 4)
        for memory in (700 << 20, 2 << 30, 16 << 30):
            plan = make_plan(model, source, size, Options(memory=memory), held=100 << 20)
            assert plan.memory <= memory
            assert plan.rows[0] == plan.cols[0] == 0
            assert (plan.rows[-1], plan.cols[-1]) == source
            assert all(a < b for cuts in (plan.rows, plan.cols) for a, b in pairwise(cuts))


def test_more_memory_never_means_more_work(model):
    costs = [
        make_plan(model, (3000, 4000), (6000, 8000), Options(memory=m << 20)).encoded
        for m in (600, 1000, 2000, 4000, 32000)
    ]
    assert all(b <= GOOD_ENOUGH * a for a, b in pairwise(costs))
    assert costs[-1] <= GOOD_ENOUGH * 3000 * 4000


def test_a_small_image_is_one_tile(model):
    assert make_plan(model, (256, 256), (1024, 1024), Options(memory=2 << 30)).tiles == 1


def test_a_small_image_takes_no_memory_for_threads_that_have_nothing_to_do():
    pro = thera.load("edsr-pro", "ncnn", threads=64)
    assert make_plan(pro, (40, 40), (80, 80), Options(memory=500 << 20)).tiles == 1
    few = thera.load("edsr-pro", "ncnn", threads=2)
    large = [make_plan(m, (2000, 2000), (4000, 4000), Options(memory=64 << 30)).memory for m in (few, pro)]
    assert large[1] > large[0] + (1 << 30)


def test_too_little_memory_is_said_before_anything_is_computed(model):
    with pytest.raises(InvalidInput, match="--memory"):
        make_plan(model, (3000, 4000), (6000, 8000), Options(memory=100 << 20))
    part = slice(0, 50), slice(0, 60)
    with pytest.raises(InvalidInput, match="Scaling 4000×3000 to 8000×6000"):  # a user knows no parts
        make_plan(model, (3000, 4000), (6000, 8000), Options(memory=100 << 20), part=part)


def test_windows_lie_in_a_tile_as_they_lie_in_the_image_from_every_side():
    info = SimpleNamespace(halo=16, alignment=8)
    for length in (100, 131):
        for low, high in ((0, 8), (24, 40), (64, 96), (96, length)):
            start, stop = with_halo(low, high, length, info)
            assert start <= max(0, low - 16)
            assert stop >= min(length, high + 16)
            assert start % 8 == 0
            assert (length - stop) % 8 == 0


@pytest.mark.parametrize(("variant", "ensemble"), [("air", False), ("plus", False), ("pro", True)])
def test_tiled_equals_untiled_with_the_networks_themselves(variant, ensemble):
    torch = pytest.importorskip("torch")
    from thera.models.torch_engine import TorchEngine
    from thera.models.weights import describe
    from thera.networks import Spec, Thera

    torch.manual_seed(0)
    network = Thera(Spec("edsr", variant))
    with torch.no_grad():
        network.head.weight[: 3 * network.spec.components] *= 30  # amplitudes as large as a trained network's
    real = Model(TorchEngine(network, "cpu"), describe(network))
    # Long enough that both tiles end within the image, halo and all, and no multiple of eight, so that Pro's
    # windows begin elsewhere when the ensemble turns the image.
    H, W = 2 * real.info.halo + 21, 8
    image = np.random.default_rng(0).random((H, W, 3), np.float32)
    middle = real.info.halo + 8 - real.info.halo % 8
    rows = (0, middle, H)
    whole = real.upscale(image, scale=1.5, ensemble=ensemble)
    assert np.abs(whole - np.clip(whole, 0.2, 0.8)).max() > 0.1
    tiled = rendered(real, image, plan_of((H, W), whole.shape[:2], rows, (0, W)), Options(ensemble=ensemble))
    np.testing.assert_allclose(tiled, whole, atol=1e-5)


@pytest.mark.parametrize("kept", [False, True], ids=["nothing kept", "tiles kept"])
@pytest.mark.parametrize("psf", [None, Gaussian(2.0), Box(3.0), Lanczos()], ids=str)
@pytest.mark.parametrize("step", [0.06, 0.4, 1.0, 3.7], ids="step {}".format)
def test_any_part_of_any_output_is_that_part_of_the_whole(model, kept, psf, step):
    image = np.random.default_rng(4).random((61, 75, 3), np.float32)
    rows, cols = (Axis.whole(n, round(n / step)) for n in image.shape[:2])
    part = [slice(len(axis) // 3, len(axis) // 3 + min(40, len(axis) // 2)) for axis in (rows, cols)]
    whole = model.upscale(image, size=(len(rows), len(cols)), psf=psf)
    if step == 1 and psf is None:
        whole = image
    field = TiledField(model, ArraySource(image), Options(psf), side=16, tiles=KeptTiles() if kept else None)
    for _ in range(2):
        found = field.render(rows[part[0]], cols[part[1]])
        np.testing.assert_allclose(found, whole[part[0], part[1]], atol=1e-5)


class KeptTiles:
    """Keeps all tiles, and fails if one is encoded twice."""

    def __init__(self) -> None:
        self.kept: dict = {}

    def get(self, tile, encode):
        if tile not in self.kept:
            self.kept[tile] = encode()
        return self.kept[tile]


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(0.03, 6),
    st.floats(0.03, 6),
    st.sampled_from([Seamless(), Gaussian(1.7), Lanczos(), Box(2.0), Point()]),
    st.booleans(),
)
def test_points_read_the_same_from_tiles_as_from_the_whole(model, seed, long, short, psf, ensemble):
    rng = np.random.default_rng(seed)
    image = rng.random((50, 44, 3), np.float32)
    turn = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    jacobian = turn * (long, short)
    centre = rng.random(2) * image.shape[:2]
    points = np.clip(centre + rng.normal(0, 2, (20, 2)), 0, image.shape[:2])
    found = TiledField(model, ArraySource(image), Options(psf, ensemble), side=16).sample(points, jacobian)
    fields = list(model.encode_rotations(image)) if ensemble else [model.encode(image)]
    whole = np.mean([field.sample(points, psf, jacobian=jacobian) for field in fields], axis=0)
    np.testing.assert_allclose(found, whole, atol=2e-5)


def test_a_report_may_stop_between_two_tiles(model):
    encoded = []

    def report() -> None:
        encoded.append(1)
        if len(encoded) == 3:
            raise InterruptedError

    field = TiledField(model, ArraySource(np.zeros((64, 64, 3), np.float32)), side=16)
    with pytest.raises(InterruptedError):
        field.fields((0, 0, 64, 64), report)
    assert len(encoded) == 3


def test_fields_that_share_a_lock_are_encoded_one_tile_at_a_time(model):
    class Lock:
        held = entered = 0

        def __enter__(self) -> None:
            assert not self.held
            self.held, self.entered = True, self.entered + 1

        def __exit__(self, *error: object) -> None:
            self.held = False

    for ensemble in (False, True):
        options = Options(ensemble=ensemble, lock=Lock())
        field = TiledField(model, ArraySource(np.zeros((32, 40, 3), np.float32)), options, side=16)
        field.fields((0, 0, 32, 40))
        assert options.lock.entered == len(field.parts((0, 0, 32, 40))) * options.rotations
        assert not options.lock.held


@pytest.mark.parametrize("kept", [False, True])
def test_parts_cover_a_box_once_and_lie_in_one_tile_each(model, kept):
    image = ArraySource(np.zeros((64, 90, 3), np.float32))
    field = TiledField(model, image, side=16, tiles=KeptTiles() if kept else None)
    count = np.zeros((64, 90), int)
    for top, left, bottom, right in field.parts((5, 7, 60, 88)):
        count[top:bottom, left:right] += 1
        assert bottom - top <= 17 and right - left <= 17
        assert not kept or len(field.tiles((top, left, bottom, right))) == 1
    assert count.sum() == 55 * 81 and count.max() == 1


def test_options_that_were_sent_to_another_process_are_the_same_options():
    options = Options(Gaussian(0.7), ensemble=True, memory=1 << 30)
    sent = pickle.loads(pickle.dumps(options))
    assert sent == options
    assert hash(sent) == hash(options)


@pytest.mark.parametrize("ensemble", [False, True])
def test_scale_1_gives_the_picture_itself_unless_a_filter_is_asked_for(model, ensemble):
    image = np.random.default_rng(7).random((40, 30, 3), np.float32)
    plan = plan_of((40, 30), (40, 30), (0, 16, 40), (0, 10, 30))
    np.testing.assert_array_equal(rendered(model, image, plan, Options(ensemble=ensemble)), image)
    filtered = rendered(model, image, plan, Options(Gaussian(), ensemble))
    np.testing.assert_allclose(
        filtered, model.upscale(image, 1, ensemble=ensemble, psf=Gaussian()), atol=1e-5
    )
    assert np.abs(filtered - image).max() > 0.01


@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "f4"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_an_array_at_scale_1_is_itself(model, dtype, channels):
    samples = np.random.default_rng(8).random((9, 7, channels)) * (1 if dtype == "f4" else 99)
    samples = samples.astype(dtype)
    if channels in (2, 4):
        samples[..., -1] = np.linspace(1, 99, 63).reshape(9, 7) / (99 if dtype == "f4" else 1)
    result = thera.upscale(samples, 1, model=model)
    np.testing.assert_allclose(result, samples, atol=1e-6 if dtype == "f4" else 0)


def sharing(engine, threads=2) -> Model:
    """A model whose engine may be called from several threads at once."""
    about = {**Spec("edsr", "air").to_dict(), "name": "sharing", "parameters": 0}
    return Model(engine, about, shared=Shared(threads, lambda threads, calls: engine))


class Meeting:
    """An engine whose calls wait until two of them compute at the same time."""

    def __init__(self, model: Model) -> None:
        vars(self).update(name="meeting", device="cpu", precision="f32", head=model._engine.head)
        self.asarray, self._features = model._engine.asarray, model._engine.features
        self._both = Barrier(2, timeout=60)

    def features(self, image):
        self._both.wait()
        return self._features(image)


@pytest.mark.parametrize("ensemble", [False, True])
def test_tiles_that_are_encoded_side_by_side_give_the_same_pixels(model, ensemble):
    image = np.random.default_rng(7).random((60, 90, 3), np.float32)
    plan = plan_of((60, 90), (150, 200), (0, 30, 60), (0, 20, 50, 70, 90))
    options, reported = Options(ensemble=ensemble), []
    field = TiledField(sharing(Meeting(model)), ArraySource(image), options)
    beside = [strip.values for strip in field.rows(replace(plan, workers=2), reported.append)]
    assert np.array_equal(np.concatenate(beside), rendered(model, image, plan, options))
    assert sum(reported) == pytest.approx(150 * 200)


def test_a_plan_counts_the_memory_of_all_tiles_that_are_encoded_side_by_side(model):
    source, size = (1500, 2000), (3000, 4000)
    one, two = (
        make_plan(sharing(model._engine, threads), source, size, Options(memory=16 << 30), good_enough=1)
        for threads in (1, 2)
    )
    tile = two.memory - one.memory + source[0] * source[1] * costs(model.info).pixel
    across = 1000 + 2 * model.info.halo
    assert (one.workers, one.tiles, two.workers, two.tiles) == (1, 1, 2, 2)
    assert tile == pytest.approx(2 * source[0] * across * costs(model.info).pixel, rel=0.01)
    assert two.effort < one.effort / 1.1  # two threads make one tile faster, too, but not twice
    for memory in (700 << 20, 1 << 30, 2 << 30):
        assert make_plan(sharing(model._engine, 8), source, size, Options(memory=memory)).memory <= memory


def test_tiles_are_encoded_one_by_one_under_a_lock(model):
    locked = Options(memory=16 << 30, lock=Lock())
    assert make_plan(sharing(model._engine, 8), (1500, 2000), (3000, 4000), locked).workers == 1


def test_an_error_in_one_tile_ends_the_others(model):
    class Fails(Meeting):
        def features(self, image):
            self._both.wait()
            if image[0, 0, 0] == 1:
                raise InvalidInput("a tile failed")
            interruptible(lambda: ended.wait(60), ended.set)
            raise RuntimeError("cancelled")

    image, ended = np.zeros((20, 200, 3), np.float32), Event()
    image[:, 60:] = 1
    plan = replace(plan_of((20, 200), (40, 400), (0, 20), (0, 100, 200)), workers=2)
    with pytest.raises(InvalidInput, match="a tile failed"):
        list(TiledField(sharing(Fails(model)), ArraySource(image)).rows(plan))
    assert ended.is_set()

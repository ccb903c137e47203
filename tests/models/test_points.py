"""Models that decode point by point: LIIF's published files, and what a `Model` promises."""

import pickle
import zipfile
from functools import partial

import numpy as np
import pytest

import thera
from thera.errors import InvalidInput, ModelError, UnsafeCheckpoint
from thera.evaluation.inspection import bank_of
from thera.evaluation.methods import load_methods
from thera.field.grid import Axis
from thera.models import load_network, points, save_safetensors
from thera.models.points import PointModel
from thera.models.published_liif import MODULES
from thera.models.weights import describe
from thera.networks import Spec, make_network
from thera.networks.decoders import DECODERS, Decoded
from thera.tiled import ArraySource, Options, TiledField
from thera.tiled.plan import make_plan

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def liif():
    torch.manual_seed(0)
    return make_network(Spec("edsr", "liif", published=True)).eval().requires_grad_(False)


def theirs(name: str) -> str:
    """The name that LIIF's authors give our parameter, from the table read backwards."""
    module, _, leaf = name.rpartition(".")
    numbers = [part for part in module.split(".") if part.isdigit()]
    for pattern, ours in MODULES.items():
        filled, plain = ours, pattern.replace("\\.", ".")
        if "decoder" not in ours:
            for number in numbers:
                filled = filled.replace(f"\\{numbers.index(number) + 1}", number, 1)
                plain = plain.replace("(\\d+)", number, 1)
        if filled == module:
            return f"{plain}.{leaf}"
    raise AssertionError(name)


@pytest.fixture
def published(tmp_path, liif):
    """A file as LIIF's authors write it, with what changes of its contents."""

    def write(**changes):
        state = {theirs(name): tensor for name, tensor in liif.state_dict().items()}
        state |= {"encoder.sub_mean.weight": torch.eye(3).view(3, 3, 1, 1)}
        arguments = {"encoder_spec": {"name": "edsr-baseline", "args": {"no_upsampling": True}}}
        model = {
            "name": "liif",
            "args": arguments,
            "sd": torch.nn.Linear(1, 1).state_dict() | state,
        } | changes
        model["sd"] = {k: v for k, v in model["sd"].items() if k not in ("weight", "bias")}
        path = tmp_path / "edsr-baseline-liif.pth"
        torch.save({"model": model, "optimizer": {"name": "adam"}, "epoch": 1000}, path)
        return path

    return write


def test_a_published_liif_loads_as_it_is(published, liif):
    network, metadata = load_network(published())
    assert (metadata["name"], metadata["parameters"]) == ("edsr-liif", 1_567_299)
    for name, tensor in liif.state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], tensor)
    image = torch.rand(1, 3, 6, 5)
    torch.testing.assert_close(network.normalised(image), (image - 0.5) / 0.5)


def test_other_encoders_ablations_and_damage_are_refused(published, tmp_path):
    with pytest.raises(ModelError, match="encoder 'swinir': it must be one of edsr-baseline, rdn"):
        load_network(published(args={"encoder_spec": {"name": "swinir"}}))
    with pytest.raises(ModelError, match="without feat_unfold"):
        load_network(published(args={"encoder_spec": {"name": "rdn"}, "feat_unfold": False}))
    with pytest.raises(ModelError, match=r"lacks the parameter backbone\.head\.weight"):
        load_network(published(sd={}))
    whole = published().read_bytes()
    (tmp_path / "half.pth").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"damaged|refused"):
        load_network(tmp_path / "half.pth")


def test_no_code_in_a_file_of_torch_save_is_run(tmp_path):
    class Harmful:
        def __reduce__(self):
            return (open, (str(tmp_path / "proof"), "w"))

    for name, value in (("harmful", Harmful()), ("module", torch.nn.Linear(1, 1))):
        torch.save({"model": value}, tmp_path / f"{name}.pth")
        with pytest.raises(UnsafeCheckpoint, match="no code in it was run"):
            load_network(tmp_path / f"{name}.pth")
    assert not (tmp_path / "proof").exists()
    with zipfile.ZipFile(tmp_path / "small.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
    with pytest.raises(ModelError, match="compressed"):
        load_network(tmp_path / "small.pth")
    with zipfile.ZipFile(tmp_path / "empty.pth", "w") as archive:
        archive.writestr("archive/other", b"")
    with pytest.raises(ModelError, match="without the pickle"):
        load_network(tmp_path / "empty.pth")


@pytest.fixture(params=[{"variant": "liif"}, {"activation": "relu", "components": 8}])
def model(request, tmp_path):
    torch.manual_seed(1)
    save_safetensors(make_network(Spec("edsr", **request.param)), tmp_path / "it.safetensors")
    return thera.load(tmp_path / "it.safetensors", device="cpu")


@pytest.mark.parametrize("ensemble", [False, True])
def test_tiles_are_exact(model, ensemble):
    image = np.random.default_rng(0).random((50, 41, 3), np.float32)
    tiled = TiledField(model, ArraySource(image), Options(ensemble=ensemble), side=17)
    rows, cols = Axis.whole(50, 75), Axis.whole(41, 60)
    whole = model.upscale(image, size=(75, 60), ensemble=ensemble)
    np.testing.assert_allclose(tiled.render(rows[20:60], cols), whole[20:60], atol=1e-5)


@pytest.mark.parametrize("variant", ["srno", "ciaosr"])
def test_decoders_of_whole_pictures_are_exact_in_tiles_and_bands(variant, monkeypatch):
    torch.manual_seed(1)
    network = make_network(Spec("edsr", variant)).eval()
    model = PointModel(network, describe(network), "cpu")
    image = np.random.default_rng(0).random((20, 15, 3), np.float32)
    whole = model.upscale(image, size=(50, 32), ensemble=True)
    tiled = TiledField(model, ArraySource(image), Options(ensemble=True), side=11)
    rows, cols = Axis.whole(20, 50), Axis.whole(15, 32)
    np.testing.assert_allclose(tiled.render(rows[10:23], cols), whole[10:23], atol=1e-5)
    monkeypatch.setattr("thera.models.points.available_memory", lambda: 1 << 20)
    monkeypatch.setattr("thera.models.points.MEMORY", 700 * network.point_bytes)  # of 1,600 points
    if variant == "ciaosr":  # sees the whole picture, but its points do not see each other
        np.testing.assert_allclose(model.upscale(image, size=(50, 32), ensemble=True), whole, atol=1e-5)
        return
    field = model.encode(image)
    monkeypatch.setattr(model.network, "features", None)  # the others are refused before they are encoded
    for refused in (
        lambda: model.upscale(image, size=(50, 32)),
        lambda: make_plan(model, (20, 15), (50, 32), Options()),
        lambda: field.render(size=(50, 32)),
    ):
        with pytest.raises(InvalidInput, match=r"at once: 1,600 of them need .* 1 MiB are there"):
            refused()


def test_a_gpu_gives_points_a_share_of_what_is_free(monkeypatch):
    network = make_network(Spec("edsr", "liif"))
    model = PointModel(network, describe(network), "cpu")
    assert model.room == points.MEMORY
    model.device = torch.device("cuda")
    for name, bytes_ in (("memory_reserved", 3 << 30), ("memory_allocated", 1 << 30)):
        monkeypatch.setattr(torch.cuda, name, lambda device, bytes_=bytes_: bytes_)
    for free, room in ((4 << 30, 3 << 30), (100 << 30, points.GPU_MEMORY)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 200 << 30))
        assert model.room == room


@pytest.mark.parametrize("ensemble", [False, True])
def test_cells_are_decoded_in_parts_that_fit_into_memory(ensemble, monkeypatch):
    torch.manual_seed(1)
    network = make_network(Spec("edsr", "msit")).eval()
    model = PointModel(network, describe(network), "cpu")
    image = np.random.default_rng(0).random((8, 11, 3), np.float32)
    whole = model.upscale(image, size=(20, 33), ensemble=ensemble)
    room, needs, colours = 10 * (network.cell_bytes + network.point_bytes), [], model.network.colours

    def measured(maps, points):
        cells = torch.unique(torch.floor(points.at[0]), dim=0)
        needs.append(len(cells) * network.cell_bytes + points.at.shape[1] * network.point_bytes)
        return colours(maps, points)

    monkeypatch.setattr("thera.models.points.MEMORY", room)
    monkeypatch.setattr(model.network, "colours", measured)
    np.testing.assert_allclose(model.upscale(image, size=(20, 33), ensemble=ensemble), whole, atol=1e-6)
    assert max(needs) < room + network.cell_bytes + network.point_bytes
    assert len(needs) <= 1.2 * sum(needs) / room + (4 if ensemble else 1)  # nor are they smaller than need be


@pytest.mark.parametrize("variant", DECODERS)
def test_a_compiled_decoder_gives_the_same_pictures_of_any_size(variant, monkeypatch):
    graphs = []

    def count(graph, example_inputs):
        graphs.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=count))  # no kernels, to be quick
    network = make_network(Spec("edsr", variant)).eval()
    plain, compiled = (PointModel(network, describe(network), "cpu") for _ in range(2))
    compiled.network.compile_decoder()
    found = []
    for shape, size in ((8, 8), (24, 24)), ((9, 7), (14, 10)), ((5, 12), (21, 40)):
        image = np.random.default_rng(0).random((*shape, 3), np.float32)
        expected = plain.upscale(image, size=size, ensemble=True)
        np.testing.assert_allclose(compiled.upscale(image, size=size, ensemble=True), expected, atol=1e-5)
        found.append(len(graphs))
    if variant in ("clit", "msit"):  # these decode cell by cell, and stay as they are
        assert found[2] == 0
        return
    assert 0 < found[0] <= found[1] == found[2]  # a square may have graphs of its own
    if variant not in ("srno", "ciaosr"):  # these have no derivatives
        rows, cols = Axis.whole(5, 10), Axis.whole(12, 24)
        slopes = (m.encode(image).on_axes(rows, cols, m.psf(()), (1, 0)) for m in (compiled, plain))
        torch.testing.assert_close(*slopes)
        assert len(graphs) == found[2]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("variant", DECODERS)
def test_decoders_are_compiled_where_many_pictures_are_measured_on_a_gpu(variant, tmp_path, monkeypatch):
    torch.manual_seed(1)
    save_safetensors(make_network(Spec("edsr", variant)), path := tmp_path / "it.safetensors")
    plain = thera.load(path, device="cuda", precision="f32")
    compiled, compile_decoder = [], Decoded.compile_decoder
    monkeypatch.setattr(Decoded, "compile_decoder", lambda it: compiled.append(compile_decoder(it)))
    (method,) = load_methods([str(path)], ensemble=False, device="cuda")
    assert len(compiled) == 1
    for shape, size in ((40, 30), (80, 60)), ((33, 47), (200, 290)):
        image = np.random.default_rng(0).random((*shape, 3), np.float32)
        expected = plain.upscale(image, size=size)
        np.testing.assert_allclose(method.upscale(image, size).cpu().numpy(), expected, atol=1e-4)


def test_the_ensemble_is_the_mean_over_turned_pictures(model):
    image = np.random.default_rng(0).random((8, 6, 3), np.float32)
    turned = [
        np.rot90(model.upscale(np.rot90(image, k).copy(), size=((20, 15), (15, 20))[k % 2]), -k)
        for k in range(4)
    ]
    np.testing.assert_allclose(
        model.upscale(image, size=(20, 15), ensemble=True), np.mean(turned, axis=0), atol=1e-5
    )


def test_points_of_a_grid_are_its_pixels(model):
    image = np.random.default_rng(0).random((8, 6, 3), np.float32)
    field = model.encode(image)
    grid = np.stack(np.meshgrid((np.arange(16) + 0.5) / 2, (np.arange(12) + 0.5) / 2, indexing="ij"), -1)
    sampled = field.sample(grid.reshape(-1, 2), jacobian=np.eye(2) / 2)
    np.testing.assert_allclose(sampled.view(16, 12, 3), field.render(scale=2), atol=1e-5)


def test_filters_and_derivatives_are_refused(model):
    image = np.zeros((8, 6, 3), np.float32)
    with pytest.raises(InvalidInput, match="no heat field, so it does not have a filter"):
        model.upscale(image, scale=2, psf=thera.Gaussian())
    axis = Axis.whole(8, 16), Axis.whole(6, 12)
    with pytest.raises(InvalidInput, match="these derivatives"):
        model.encode(image).on_axes(*axis, model.psf(()), (2, 1))
    with pytest.raises(InvalidInput, match="no heat field and has no components"):
        bank_of(model)


def test_derivatives_are_the_limit_of_differences(model):
    field = model.encode(np.random.default_rng(0).random((8, 6, 3), np.float32))
    h = 0.01
    rows, cols = Axis.whole(8, 32), Axis.whole(6, 24)  # no centre of a cell, where LIIF bends
    for order, shift in ((1, 0), (h, 0)), ((0, 1), (0, h)):
        exact = field.on_axes(rows, cols, model.psf(()), order)
        grid = np.stack(np.meshgrid(rows.centre, cols.centre, indexing="ij"), -1).reshape(-1, 2)
        step = np.eye(2) / 4
        ahead, behind = (field.sample(grid + sign * np.array(shift), jacobian=step) for sign in (1, -1))
        differences = ((ahead - behind) / (2 * h)).view(32, 24, 3)
        # Not at every pixel: a ReLU may bend in between.
        close = (exact - differences).abs() < 0.02 * exact.abs().max()
        assert close.float().mean() > 0.9
    second = field.on_axes(rows, cols, model.psf(()), (1, 1))
    assert torch.isfinite(second).all()


def test_no_heat_field_is_exported_as_onnx(model, tmp_path):
    with pytest.raises(ModelError, match="makes no heat field"):
        thera.models.export(model.network, tmp_path / "it.onnx")

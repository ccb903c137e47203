"""Runs over folders: what is measured, stored, resumed and refused."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from thera.cli.eval import command as eval_command
from thera.errors import ImageFileError, InvalidInput, TheraError
from thera.evaluation.images import check_sizes, image_sets, read
from thera.evaluation.methods import (
    Method,
    baseline,
    fingerprint,
    load_methods,
    model_method,
    sinc_method,
)
from thera.evaluation.protocol import METRICS
from thera.evaluation.records import read_records
from thera.evaluation.resize import resize
from thera.evaluation.runner import run
from thera.evaluation.tables import summarise
from thera.field import Gaussian, HeatField
from thera.models import save_safetensors
from thera.models.points import PointModel
from thera.networks import Spec, make_network


@pytest.fixture
def folder(tmp_path, photograph):
    path = tmp_path / "Set5"
    path.mkdir()
    for i in range(3):
        Image.fromarray(photograph(60, 64 + 4 * i, seed=i)).save(path / f"{i}.png")
    (path / "notes.txt").write_text("no image")
    return path


class StubModel:
    """Bicubic pretending to be a network, with a last layer to be known by."""

    def __init__(self, name="stub", kappa=0.03, fail=False):
        self.name, self.kappa, self.fail, self.calls = name, kappa, fail, []
        self.info = SimpleNamespace(engine="onnx", device="cpu", precision="f32")
        self.compiled = 0

    def compile(self):
        self.compiled += 1

    def encode(self, image):
        c, features = 2, np.zeros((*image.shape[:2], 5))
        return HeatField(image, features, np.ones((5, 4 * c)), np.zeros(4 * c), np.ones((2, c)), self.kappa)

    def upscale(self, image, size, ensemble):
        self.calls.append((image.shape, size, ensemble))
        return resize(image, size).astype(np.float32)


@pytest.fixture
def models(monkeypatch):
    """What `thera.models.load` finds, by name."""
    found = {}
    monkeypatch.setattr("thera.models.load", lambda source, **options: found[source])
    return found


def test_a_run_stores_one_line_per_method_image_and_scale(folder, tmp_path):
    out = tmp_path / "eval.jsonl"
    run([baseline("bicubic"), baseline("nearest")], image_sets([folder]), [2, 2.5], out)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(r["method"], r["image"], r["scale"]) for r in records} == {
        (m, f"{i}.png", s) for m in ("bicubic", "nearest") for i in range(3) for s in (2, 2.5)
    }
    assert all(np.isfinite(record[metric]) for record in records for metric in METRICS)


def test_a_run_measures_what_the_protocol_says(folder, tmp_path, evaluate):
    records = run([baseline("bicubic")], image_sets([folder]), [3], tmp_path / "eval.jsonl")
    images = [read(path).pixels for path in sorted(folder.glob("*.png"))]
    expected = evaluate(lambda image, size: resize(image, size), images, [3], "psnr_y")[3]
    assert np.mean([record["psnr_y"] for record in records]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (InvalidInput("It needs 40 GiB."), r"It needs 40 GiB\."),
        (torch.OutOfMemoryError("CUDA out of memory."), r"It needs more memory than"),
    ],
)
def test_what_a_method_refuses_is_named_and_does_not_stop_the_others(folder, tmp_path, error, sentence):
    def upscale(image, size):
        raise error

    methods = [Method("large", upscale, "1", "stub"), baseline("bicubic")]
    with pytest.raises(TheraError, match=rf"not .*×2 by large: {sentence}.* \d+ more were refused"):
        run(methods, image_sets([folder]), [2, 3], tmp_path / "o.jsonl")
    records = read_records(tmp_path / "o.jsonl")
    assert {record["method"] for record in records} == {"bicubic"} and len(records) >= 4


def test_one_pass_of_a_decoder_is_the_first_of_its_ensemble(folder, tmp_path, monkeypatch):
    """Four pictures are encoded, not five, and every figure stays the same to the last bit."""
    network = make_network(Spec("edsr", "metasr")).eval().requires_grad_(False)
    save_safetensors(network, tmp_path / "m.safetensors")
    encode, encoded = PointModel._encoded, []
    monkeypatch.setattr(PointModel, "_encoded", lambda *given: encoded.append(given[2]) or encode(*given))

    def scores(name, **options):
        methods = load_methods([str(tmp_path / "m.safetensors")], engine="torch", device="cpu", **options)
        records = run(methods, image_sets([folder]), [2, 3], tmp_path / name)
        return {(r["method"], r["image"], r["scale"]): r["psnr_y"] for r in records}

    together = scores("both.jsonl", both=True)
    assert sorted(encoded) == sorted([0, 1, 2, 3] * 6)  # of three pictures at two scales
    assert together == scores("one.jsonl", ensemble=False) | scores("four.jsonl", ensemble=True)


def test_a_stopped_run_goes_on_where_it_was(folder, tmp_path):
    out = tmp_path / "eval.jsonl"
    calls = []

    def upscale(image, size):
        calls.append(size)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return resize(image, size)

    method = Method("slow", upscale, "1", "stub")
    with pytest.raises(KeyboardInterrupt):
        run([method], image_sets([folder]), [2, 3], out, workers=1)
    with out.open("a") as file:
        file.write('{"method": "cut sho')  # as a power failure leaves it
    assert len(read_records(out)) == 3
    calls[:] = [None] * 4
    records = run([method], image_sets([folder]), [2, 3], out, workers=1)
    assert len(records) == len(read_records(out)) == 6
    assert len(calls) == 4 + 3


def test_results_of_another_checkpoint_or_image_are_never_mixed_in(folder, tmp_path, photograph):
    out = tmp_path / "eval.jsonl"
    sets = image_sets([folder])
    first, second = (Method("m", baseline("bicubic").upscale, identity) for identity in ("first", "second"))
    run([first, baseline("nearest")], sets, [2], out)
    with pytest.raises(InvalidInput, match=r"holds results of another m .*--replace"):
        run([second], sets, [2], out)
    run([second], sets, [2], out, replace=True)
    records = read_records(out)
    assert [record["method"] for record in records].count("nearest") == 3
    assert {record["identity"] for record in records if record["method"] == "m"} == {"second"}
    Image.fromarray(photograph(60, 64, seed=9)).save(folder / "0.png")
    with pytest.raises(InvalidInput, match=r"another 0.png of Set5"):
        run([second], sets, [2], out)
    run([second, baseline("nearest")], sets, [2], out, replace=True)
    assert len(read_records(out)) == 6


def test_results_of_an_older_protocol_are_never_mixed_in(folder, tmp_path):
    out, sets = tmp_path / "eval.jsonl", image_sets([folder])
    run([baseline("bicubic")], sets, [2], out)
    old = [{k: v for k, v in record.items() if k != "protocol"} for record in read_records(out)]
    out.write_text("".join(json.dumps(record) + "\n" for record in old))
    with pytest.raises(InvalidInput, match=r"version 1 of the protocol, not of version 2.*--replace"):
        run([baseline("nearest")], sets, [2], out)
    run([baseline("nearest")], sets, [2], out, replace=True)
    assert {record["method"] for record in read_records(out)} == {"nearest"}
    with pytest.raises(InvalidInput, match="2 versions of the protocol"):
        summarise([*old, *read_records(out)], "Set5", "psnr_y")


def test_checkpoints_of_one_model_can_be_added(folder, tmp_path):
    out = tmp_path / "eval.jsonl"
    runs = [Method("m", baseline("bicubic").upscale, identity) for identity in ("first", "second")]
    run(runs[:1], image_sets([folder]), [2], out)
    assert len(run(runs, image_sets([folder]), [2], out)) == len(read_records(out)) == 6


def test_models_run_one_at_a_time_whatever_the_workers(folder, tmp_path):
    import threading

    inside = threading.Semaphore(1)

    def upscale(image, size):
        assert inside.acquire(blocking=False)
        try:
            return resize(image, size)
        finally:
            inside.release()

    run([Method("m", upscale, "1", "stub")], image_sets([folder]), [2, 3, 4], tmp_path / "o.jsonl", workers=4)


def test_a_damaged_results_file_is_refused(folder, tmp_path):
    out = tmp_path / "eval.jsonl"
    out.write_text("not json\n{}\n")
    with pytest.raises(InvalidInput, match=r"Line 1 of .*eval.jsonl is not JSON"):
        run([baseline("bicubic")], image_sets([folder]), [2], out)


def test_sinc_is_the_model_at_four_times_resized_by_lanczos(photograph):
    model = StubModel()
    method = sinc_method(model_method(model, "stub", "1", True, "onnx"))
    image = photograph(10, 12).astype(np.float32) / 255
    output = method.upscale(image, (60, 72))
    assert method.name == "stub+ ×4, sinc"
    assert model.calls == [((10, 12, 3), (40, 48), True)]
    np.testing.assert_allclose(output, resize(resize(image, (40, 48)), (60, 72), "lanczos"), atol=1e-6)


def test_models_are_loaded_after_the_baselines_and_marked_for_the_ensemble(models):
    models["a.onnx"] = StubModel("air")
    names = [m.name for m in load_methods(["a.onnx"], ["bicubic", "sinc"], ensemble=True)]
    assert names == ["bicubic", "air+ ×4, sinc", "air+"]
    assert [m.name for m in load_methods(["a.onnx"], ensemble=False)] == ["air"]
    assert [m.name for m in load_methods(["a.onnx"], both=True)] == ["air", "air+"]
    assert models["a.onnx"].compiled == 3  # by each: many pictures follow


def test_figures_are_measured_in_f32_unless_another_precision_is_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr("thera.models.load", lambda _, precision: asked.append(precision) or StubModel("air"))
    load_methods(["a.onnx"])
    load_methods(["a.onnx"], precision="f16")
    command = next(option for option in eval_command.params if option.name == "precision")
    assert [*asked, command.default] == ["f32", "f16", "f32"]


def test_two_models_of_one_name_are_refused(models):
    models |= {"a.onnx": StubModel("air"), "b.onnx": StubModel("air", kappa=0.04)}
    with pytest.raises(InvalidInput, match=r"Two models are called air\+: tell them apart with LABEL=PATH"):
        load_methods(["a.onnx", "b.onnx"])
    assert len(load_methods(["first=a.onnx", "second=b.onnx"])) == 2


def test_several_checkpoints_of_a_model_share_a_name_and_differ_in_identity(models):
    models |= {"a.onnx": StubModel("air"), "b.onnx": StubModel("air", kappa=0.04)}
    first, second = load_methods(["runs=a.onnx,b.onnx"])
    assert first.name == second.name == "runs+"
    assert first.identity != second.identity
    with pytest.raises(InvalidInput, match="same checkpoint twice"):
        load_methods(["runs=a.onnx,a.onnx"])


def test_a_fingerprint_is_of_the_parameters_alone():
    assert fingerprint(StubModel("a")) == fingerprint(StubModel("b"))
    assert fingerprint(StubModel(kappa=0.03)) != fingerprint(StubModel(kappa=0.031))


@pytest.mark.parametrize("spec", ["=a.onnx", "label=", "label=,"])
def test_half_a_model_is_refused(spec):
    with pytest.raises(InvalidInput, match="names no model"):
        load_methods([spec])


def test_an_unknown_baseline_and_nothing_at_all_are_refused():
    with pytest.raises(InvalidInput, match="'bilinear' is no baseline"):
        load_methods([], ["bilinear"])
    with pytest.raises(InvalidInput, match="Nothing to evaluate"):
        load_methods([], [])


def test_measuring_needs_none_of_the_programs_other_parts(folder, tmp_path):
    """A machine with a GPU and little else: no click, no tqdm, no matplotlib, no image codecs."""
    absent = ["click", "tqdm", "matplotlib", "tifffile", "imagecodecs", "torch", "onnxruntime"]
    code = f"""
import sys
sys.modules |= dict.fromkeys({absent!r})
from pathlib import Path
from thera.evaluation.images import image_sets
from thera.evaluation.methods import load_methods
from thera.evaluation.runner import run
folder, out = {str(folder)!r}, Path({str(tmp_path / "eval.jsonl")!r})
print(len(run(load_methods([], ["bicubic"]), image_sets([folder]), [2], out)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "3\n", done.stderr


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="has no image in it"):
        image_sets([tmp_path / "empty"])
    with pytest.raises(InvalidInput, match="is not a folder"):
        image_sets([tmp_path / "missing"])


def test_two_folders_of_one_name_are_refused(folder, tmp_path, picture):
    other = tmp_path / "other" / "Set5"
    other.mkdir(parents=True)
    Image.fromarray(picture).save(other / "a.png")
    with pytest.raises(InvalidInput, match="Two folders are called Set5"):
        image_sets([folder, other])


def test_an_image_too_small_for_a_scale_is_refused_before_anything_runs(folder, tmp_path):
    with pytest.raises(InvalidInput, match=r"0.png of 64×60 pixels is too small for ×20"):
        run([baseline("bicubic")], image_sets([folder]), [2, 20], tmp_path / "eval.jsonl")
    assert not (tmp_path / "eval.jsonl").exists()


def test_a_run_without_scales_is_refused(folder, tmp_path):
    with pytest.raises(InvalidInput, match="No scale was given"):
        run([baseline("bicubic")], image_sets([folder]), [], tmp_path / "eval.jsonl")


def test_checked_sizes_are_sizes_that_can_be_scored(tmp_path, photograph):
    for side in range(30, 50):
        path = tmp_path / f"set{side}"
        path.mkdir()
        Image.fromarray(photograph(side, 60)).save(path / "a.png")
        sets = image_sets([path])
        try:
            check_sizes(sets, [4])
        except InvalidInput:
            continue
        run([baseline("bicubic")], sets, [4], tmp_path / f"{side}.jsonl")
        break
    assert side == 32  # 2·(4 + 6) of border and more than 10 inside, in multiples of 4


def test_grey_images_are_repeated_and_it_is_said(tmp_path, picture):
    Image.fromarray(picture[..., 1]).save(tmp_path / "grey.png")
    image = read(tmp_path / "grey.png")
    np.testing.assert_array_equal(image.pixels, np.repeat(picture[..., 1:2], 3, 2))
    assert image.conversion == "grey repeated in three channels"


def test_sixteen_bits_are_cut_to_eight_and_it_is_said(tmp_path, picture):
    deep = picture[..., 0].astype(np.uint16) * 256 + 200
    Image.fromarray(deep).save(tmp_path / "deep.png")
    image = read(tmp_path / "deep.png")
    np.testing.assert_array_equal(image.pixels[..., 2], picture[..., 0])
    assert image.conversion == "16 bits cut to the upper 8, grey repeated in three channels"


def test_sixteen_bit_colour_is_cut_and_it_is_said(tmp_path, picture):
    imagecodecs = pytest.importorskip("imagecodecs")
    deep = picture.astype(np.uint16) * 256 + 99
    (tmp_path / "deep.png").write_bytes(imagecodecs.png_encode(deep))
    image = read(tmp_path / "deep.png")
    np.testing.assert_array_equal(image.pixels, picture)
    assert image.conversion == "16 bits cut to the upper 8"


def test_opaque_alpha_is_dropped_and_transparency_refused(tmp_path, picture):
    rgba = np.dstack([picture, np.full(picture.shape[:2], 255, np.uint8)])
    Image.fromarray(rgba).save(tmp_path / "opaque.png")
    assert read(tmp_path / "opaque.png").conversion == "opaque alpha dropped"
    rgba[0, 0, 3] = 254
    Image.fromarray(rgba).save(tmp_path / "glass.png")
    with pytest.raises(ImageFileError, match="transparent pixels"):
        read(tmp_path / "glass.png")


def test_other_colour_models_and_damaged_files_are_refused(tmp_path, picture):
    Image.fromarray(picture).convert("CMYK").save(tmp_path / "print.jpg")
    with pytest.raises(ImageFileError, match="CMYK pixels"):
        read(tmp_path / "print.jpg")
    Image.fromarray(picture).save(tmp_path / "whole.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "whole.png").read_bytes()[:3000])
    with pytest.raises(ImageFileError, match="damaged"):
        read(tmp_path / "half.png")
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ImageFileError, match="cannot be read"):
        read(tmp_path / "text.png")


def test_without_seamless_fields_end_at_their_borders_beyond_8_times(photograph):
    torch = pytest.importorskip("torch")
    from thera.models.loading import make_model
    from thera.models.weights import describe
    from thera.networks import Spec, Thera

    torch.manual_seed(0)
    network = Thera(Spec("edsr", "air"))
    torch.nn.init.normal_(network.head.bias, std=0.1)  # something to see at the borders
    model, image = make_model(network, describe(network), "cpu"), photograph(6, 5).astype(np.float32) / 255
    outputs = [
        model_method(model, "it", "", False, "torch", seamless).upscale(image, (96, 80))
        for seamless in (True, False)
    ]
    expected = model.upscale(image, size=(96, 80), psf=Gaussian())
    np.testing.assert_array_equal(outputs[1], expected)
    assert np.abs(outputs[0] - expected).max() > 1e-3

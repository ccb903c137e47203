"""Inspection, costs, ablations, figures and the page of results."""

import json
import math
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from thera.cli import figures
from thera.errors import InvalidInput, MissingDependency, TheraError
from thera.evaluation import bench, methods
from thera.evaluation.ablation import ablation_markdown
from thera.evaluation.bench import Case, bare_backbone_ms, bench_markdown, measure, measure_apart
from thera.evaluation.inspection import inspect_model, inspection_text, parameters_by_part
from thera.evaluation.reconstruction import Bank, reconstruct, reconstruction_markdown
from thera.evaluation.report import report, write_report
from thera.evaluation.trained import TRAINED


@pytest.fixture(scope="module")
def air(tmp_path_factory):
    """A file of an EDSR-Air with random weights."""
    torch = pytest.importorskip("torch")
    from thera.models import save_safetensors
    from thera.networks import Spec, Thera

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("models") / "edsr-air.safetensors"
    save_safetensors(Thera(Spec("edsr", "air")), path)
    return path


@pytest.fixture(scope="module")
def model(air):
    from thera.models import load

    return load(air)


@pytest.mark.parametrize("backbone", ["edsr", "rdn"])
@pytest.mark.parametrize("variant", ["air", "plus", "pro"])
def test_parameters_by_part_are_the_networks_own(backbone, variant):
    torch = pytest.importorskip("torch")
    from thera.networks import Spec, Thera

    spec = Spec(backbone, variant)
    with torch.device("meta"):  # shapes alone: nothing is drawn or stored
        network = object.__new__(Thera)
        torch.nn.Module.__init__(network)
        network.reset_fields = lambda: None
        Thera.__init__(network, spec)
    parts = {"backbone": network.backbone, "hypernetwork": network.hypernetwork, "last layer": network.head}
    expected = {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}
    expected |= {"components": network.components.numel(), "kappa": 1}
    features = SimpleNamespace(features=np.zeros((1, 1, network.hypernetwork.width_out)))
    stub = SimpleNamespace(
        info=SimpleNamespace(spec=spec, components=spec.components, parameters=sum(expected.values())),
        encode=lambda image: features,
    )
    assert parameters_by_part(stub) == expected


def test_inspection_shows_kappa_against_theory_and_the_bank(model):
    record = inspect_model(model)
    assert record["kappa_theory"] == pytest.approx(math.log(4) / (2 * math.pi**2))
    assert record["added_parameters"] == 8192 + 128 + 64 + 1
    assert 0 < record["median_frequency"] < record["largest_frequency"] < 6 * math.pi
    text = inspection_text(record)
    assert "κ            0.0702   (1.00 of ln 4 / 2π² = 0.0702" in text
    assert "last layer          8,320" in text


def test_large_inputs_are_encoded_in_tiles_with_the_same_result(model, monkeypatch, photograph):
    image = photograph(140, 12).astype(np.float32) / 255
    method = methods.model_method(model, "air", "", False, "torch")
    whole = method.upscale(image, (196, 17))
    calls = []
    monkeypatch.setattr(model, "encode", lambda tile, encode=model.encode: calls.append(1) or encode(tile))
    monkeypatch.setattr(methods, "WHOLE_PIXELS", 0)
    for memory in range(64 << 20, 1 << 30, 1 << 20):  # the least that is enough
        monkeypatch.setattr(methods, "TILE_MEMORY", memory)
        try:
            tiled = method.upscale(image, (196, 17))
            break
        except InvalidInput:
            continue
    assert len(calls) > 1
    np.testing.assert_allclose(tiled, whole, atol=1e-5)


@pytest.fixture
def ablation(tmp_path):
    """Files of small networks with random weights whose fields are not near zero, by what is ablated."""
    torch = pytest.importorskip("torch")
    from thera.models import save_safetensors
    from thera.networks import Spec, Thera

    def make(**what):
        torch.manual_seed(1)
        network = Thera(Spec("edsr", "air", components=8, **what))
        torch.nn.init.normal_(network.head.weight, std=0.2)
        path = tmp_path / "ablation.safetensors"
        save_safetensors(network, path)
        return path

    return make


@pytest.mark.parametrize("ensemble", [False, True])
def test_point_by_point_evaluation_equals_rendering_where_both_can(ablation, photograph, ensemble):
    from thera.models import load, load_network
    from thera.models.points import PointModel

    path = ablation()
    image = photograph(9, 13).astype(np.float32) / 255
    direct = PointModel(*load_network(path), "cpu").upscale(image, size=(27, 39), ensemble=ensemble)
    rendered = load(path, device="cpu").upscale(image, size=(27, 39), ensemble=ensemble)
    np.testing.assert_allclose(direct, rendered, atol=1e-4)  # float32 phases of up to 20 radians


@pytest.mark.parametrize(
    "what", [{"activation": "relu"}, {"predicted_components": True}, {"filter": "ideal"}]
)
def test_ablations_that_no_field_holds_are_evaluated_all_the_same(ablation, photograph, what):
    (method,) = methods.load_methods([f"Mine={ablation(**what)}"], device="cpu")
    assert (method.name, method.engine) == ("Mine+", "torch cpu f32")
    image = photograph(8, 8).astype(np.float32) / 255
    output = method.upscale(image, (20, 20))
    assert output.shape == (20, 20, 3)
    assert np.abs(output - method.upscale(image + 0.01, (20, 20))).max() > 1e-4


def test_a_case_is_timed_in_a_process_of_its_own(air):
    record = measure_apart(Case(str(air), engine="torch", device="cpu", width=8, height=6, repeats=1))
    assert record["encode_ms"] > 0
    assert record["render_ms"] > 0
    assert record["memory_mib"] > 50
    assert (record["model"], record["added_parameters"]) == ("edsr-air", 8385)
    assert "| 8×6 ×4 |" in bench_markdown([record])


def test_a_case_that_fails_says_why(tmp_path):
    with pytest.raises(TheraError, match=r"failed: .*no-such-model"):
        measure_apart(Case(str(tmp_path / "no-such-model.onnx")))


def decoded_points(monkeypatch) -> list[int]:
    """Makes `load` give a SRNO, and counts how often it decodes points."""
    pytest.importorskip("torch")
    from thera import models
    from thera.models.points import PointModel
    from thera.models.weights import describe
    from thera.networks import Spec, make_network
    from thera.networks.decoders import Decoded

    network = make_network(Spec("edsr", "srno"))  # its fields keep what they have rendered
    monkeypatch.setattr(models, "load", lambda *_, **__: PointModel(network, describe(network), "cpu"))
    decode, decoded = Decoded.colours, []
    monkeypatch.setattr(Decoded, "colours", lambda *given: decoded.append(1) or decode(*given))
    return decoded


def test_every_rendering_is_timed_anew(monkeypatch):
    decoded = decoded_points(monkeypatch)
    record = measure(Case("srno", width=4, height=3, scale=2, repeats=3))
    assert (len(decoded), record["repeats"]) == (3 + bench.WARM_UP, 3)


def test_what_takes_long_is_timed_once_after_one_call(monkeypatch):
    decoded = decoded_points(monkeypatch)
    monkeypatch.setattr(bench, "PATIENCE", 0.0)
    record = measure(Case("srno", width=4, height=3, scale=2, repeats=3))
    assert (len(decoded), record["repeats"]) == (2, 1)


def test_costs_are_ratios_to_the_encoding_of_air(air):
    small = measure(Case(str(air), engine="torch", device="cpu", width=8, height=6, repeats=1))
    large = small | {
        "model": "edsr-pro",
        "variant": "pro",
        "encode_ms": 3 * small["encode_ms"],
        "render_ms": 0,
    }
    other = large | {"model": "rdn-pro", "backbone": "rdn"}
    assert bare_backbone_ms([small, large, other], large) == small["encode_ms"]
    text = bench_markdown([small, large, other])
    assert "| 3.00 |" in next(line for line in text.splitlines() if line.startswith("| edsr-pro"))
    assert "| — |" in next(line for line in text.splitlines() if line.startswith("| rdn-pro"))
    assert "medians of at most 7 calls" in bench_markdown([small, large | {"repeats": 7}])
    assert "| LIIF, quoted | RTX 3090 Ti | 48×48 ×4 | 350,000 | 13.80 |" in text


def test_reconstruction_prints_means_beside_the_papers(tmp_path, photograph):
    files = []
    for seed in range(2):
        path = tmp_path / f"{seed}.png"
        Image.fromarray(photograph(24, 24, seed)).save(path)
        files.append(("Set5", path))
    records = reconstruct(files, [3, 12], Bank.choose("random", 16))
    text = reconstruction_markdown(records)
    mean = np.mean([record["mse"] for record in records if record["cell"] == 12])
    assert f"| {mean:.2e} |" in text
    assert "| Set5, quoted | bank of Thera Pro (RDN), 512 components | 2.00e-10 | 1.37e-06 |" in text


def ablation_records():
    values = {
        "Thera Plus": (34.0, 26.0),
        "Fixed κ": (33.9, 25.99),
        "No TV prior": (34.01, 24.0),
        "Mine": (30, 20),
    }
    return [
        {"method": method, "identity": "", "data": "photo20", "image": "a", "scale": scale, "psnr_rgb": value}
        for method, pair in values.items()
        for scale, value in zip((2, 18), pair, strict=True)
    ]


def test_ablations_are_compared_with_the_papers_effects():
    text = ablation_markdown(ablation_records())
    # Paper at ×2 and ×18: fixed κ -0.04 and -0.05, no TV prior 0.00 and -1.92.
    assert "| Fixed κ | -0.10 | -0.04 | -0.01 | -0.05 | yes, no |" in text
    assert "| No TV prior | +0.01 | +0.00 | -2.00 | -1.92 | yes, yes |" in text
    assert "| Mine | +" not in text


@pytest.fixture
def results(tmp_path, photograph):
    """A folder with some of everything."""
    from thera.evaluation.images import image_sets
    from thera.evaluation.methods import load_methods
    from thera.evaluation.runner import run

    data, folder = tmp_path / "Set5", tmp_path / "results"
    data.mkdir()
    Image.fromarray(photograph(60, 60)).save(data / "a.png")
    run(load_methods([], ["nearest", "bicubic"]), image_sets([data]), [2, 3, 4], folder / "eval.jsonl")
    (folder / "ablation.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ablation_records()))
    (folder / "ablation.json").write_text(json.dumps({"budget": "one minute each."}))
    Image.fromarray(photograph(8, 8)).save(folder / "zoom.png")
    return folder


def test_the_page_is_written_from_stored_results_alone(results):
    text = write_report(results).read_text()
    assert "thera eval --data Set5 --scales 2 3 4 --baselines nearest bicubic -o " in text
    assert "| known | 33.66 | 30.39 | 28.42 |" in text
    assert "**Set5, SSIM**" in text
    assert "| LIIF (RDN), quoted | 38.17 | 34.68 | 32.50 |" in text
    assert f"## Ablations\n\n{TRAINED}: one minute each." in text
    assert "(results/zoom.png)" in text
    assert text == report(results)


def test_the_command_names_models_scales_and_what_was_left_out(results):
    line = results / "eval.jsonl"
    first = json.loads(line.read_text().splitlines()[0])
    model = first | {"method": "edsr-air+", "engine": "onnx cpu f32"}
    records = [model | {"scale": s, "data": "photo20"} for s in (2, 30)] + [
        first | {"data": "photo20", "scale": 30}
    ]
    records += [first | {"data": "photo20", "scale": 2}]
    line.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert "thera eval edsr-air --data photo20 --scales 2 30 --baselines nearest -o" in report(results)
    records += [record | {"method": name} for record in records[:2] for name in ("edsr-air", "LIIF", "LIIF+")]
    line.write_text("".join(json.dumps(record) + "\n" for record in records))
    command = (
        "thera eval edsr-air LIIF=edsr-baseline-liif.pth --data photo20 --scales 2 30 --baselines nearest"
    )
    assert f"{command} --both -o" in report(results)


def test_commands_are_those_of_models_with_the_same_scales_and_bring_their_precision_back(results):
    line = results / "eval.jsonl"
    first = json.loads(line.read_text().splitlines()[0]) | {"data": "photo20 jpeg:40"}
    engines = {"photo": "torch cuda f32", "edsr-plus": "torch cuda f32", "zoom": "onnx cpu f32"}
    records = [first | {"method": m, "engine": e, "scale": 2} for m, e in engines.items()]
    records += [first | {"method": m, "engine": engines[m], "scale": 4} for m in ("photo", "zoom")]
    line.write_text("".join(json.dumps(record) + "\n" for record in records))
    text, tail = report(results), "--degrade jpeg:40 --baselines none --no-ensemble"
    assert f"thera eval photo --data photo20 --scales 2 4 {tail} --precision f32 -o" in text
    assert f"thera eval edsr-plus --data photo20 --scales 2 {tail} --precision f32 -o" in text
    assert f"thera eval zoom --data photo20 --scales 2 4 {tail} -o" in text


def test_methods_are_compared_pass_with_pass_and_ensemble_with_ensemble(results):
    records = [
        {"method": m, "identity": "", "data": "Set5", "image": "a", "scale": 2, "psnr_y": value}
        for m, value in {"liif": 37.0, "air": 36.5, "liif+": 37.1, "air+": 37.2}.items()
    ]
    (results / "methods.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (results / "methods.json").write_text(json.dumps({"budget": "a minute each."}))
    text = report(results)
    section = text[text.index("## Methods, trained alike") : text.index("## Ablations")]
    assert "same budget: a minute each." in section
    one_pass, ensemble = section.split("**Set5, PSNR of Y, dB, ensemble**")
    assert "**Set5, PSNR of Y, dB, one pass**" in one_pass and "| liif | **37.00** |" in one_pass
    assert "| air+ | **37.20** |" in ensemble


def test_every_figure_of_the_page_has_a_command_that_draws_it():
    root = Path(__file__).parents[2]
    pages = "".join((root / name).read_text("utf-8") for name in ("CONTRIBUTING.md", "docs/methods.md"))
    calls = [shlex.split(line) for line in re.findall(r"^    thera figures (.+)$", pages, re.MULTILINE)]
    options = {option for parameter in figures.command.params for option in parameter.opts}
    assert options >= {word for call in calls for word in call if word.startswith("-")}
    drawn = {path.stem for path in (root / "docs" / "results").glob("*.png")}
    assert drawn == set(figures.NAMES) & {word for call in calls for word in call}


def test_quoted_means_over_a_whole_set_are_not_compared_with_those_over_a_part(results):
    note = "Quoted rows are means over all 5: do not compare them with these."
    assert note in report(results)  # one picture was measured
    line = results / "eval.jsonl"
    found = [json.loads(text) for text in line.read_text().splitlines()]
    line.write_text("".join(json.dumps(r | {"image": f"{n}.png"}) + "\n" for r in found for n in range(5)))
    assert "mean over 5 images" in report(results)
    assert note not in report(results)


@pytest.fixture
def alike(results):
    """A folder with two methods at two scales, trained for four and for twelve minutes, and their times."""
    for name, seconds, gain in (("methods", 240, 0.0), ("methods-12", 720, 1.0)):
        records = [
            {
                "method": m,
                "identity": f"{m} {seconds}",
                "data": data,
                "image": "a",
                "scale": s,
                "psnr_y": v + gain,
            }
            for m, values in {
                "LIIF": (37.0, 32.0),
                "Thera Air": (36.0, 31.0),
                "Thera Air+": (38.0, 33.0),
            }.items()
            for s, v in zip((2, 4), values, strict=True)
            for data, v in (("Set5", v), ("Set14", v - 2))
        ]
        (results / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        rows = [
            {
                "method": m,
                "network": n,
                "seed": 0,
                "added_parameters": p,
                "steps": 9,
                "patches": 288,
                "took": 241.3,
            }
            for m, n, p in (("LIIF", "edsr-liif", 346883), ("Thera Air", "edsr-air", 8385))
        ]
        about = {"budget": "all of it.", "seconds": seconds, "command": f"thera ablations --runs runs/{name}"}
        (results / f"{name}.json").write_text(json.dumps(about | {"rows": rows}))
    case = {"width": 510, "height": 340, "scale": 4, "machine": "GPU", "precision": "f32", "engine": "torch"}
    case |= {
        "model": "",
        "device": "cuda",
        "repeats": 9,
        "added_parameters": 1,
        "encode_ms": 2.0,
        "memory_mib": 1234,
    }
    times = [
        case | {"backbone": "edsr", "variant": v, "render_ms": ms}
        for v, ms in (("liif", 9.5), ("air", 0.25), ("air", 0.5))
    ]
    (results / "bench.jsonl").write_text("".join(json.dumps(r) + "\n" for r in times))
    return results


def test_the_minutes_of_a_day_are_written_out(alike):
    stated = alike / "methods.json"
    stated.write_text(json.dumps(json.loads(stated.read_text()) | {"seconds": 86_400}))
    assert "## Methods, trained alike, 1440 minutes each" in report(alike)


def test_methods_have_one_table_of_what_they_saw_reach_and_cost_for_each_budget(alike):
    text = report(alike)
    assert f"## Methods, trained alike, 4 minutes each\n\n{TRAINED}: all of it." in text
    assert "## Methods, trained alike, 12 minutes each" in text
    assert (
        "thera ablations --runs runs/methods-12 --data photos/ --validate Set5 Set14 --scales 2 4\n" in text
    )
    assert "| ×2, dB | ×4, dB | ms, 510×340 ×4, GPU | MiB, 510×340 ×4, GPU |" in text
    assert "| LIIF | 346,883 | 9 | 288 | 241 | 36.00 | 31.00 | 11.50 | 1,234 |" in text
    assert "| Thera Air | 8,385 | 9 | 288 | 241 | 36.00 | 31.00 | 2.25 | 1,234 |" in text  # after 12 minutes
    assert "means over Set5, Set14 of the PSNR of Y, one pass" in text


def test_quality_against_time_has_a_panel_for_each_scale(alike, tmp_path):
    pytest.importorskip("matplotlib")
    from thera.evaluation.charts import cost_figure
    from thera.evaluation.records import read_records
    from thera.evaluation.trained import Trained

    drawn = cost_figure(Trained.read(alike / "methods.jsonl"), read_records(alike / "bench.jsonl"))
    shown = [axes for axes in drawn.axes if axes.lines]
    assert [axes.get_title() for axes in shown] == ["×2", "×4"]
    points = {text.get_text(): text.xy for text in shown[1].texts}
    assert points == {"LIIF": (11.5, 31.0), "Thera Air": (2.25, 30.0)}
    with pytest.raises(InvalidInput, match="needs methods measured on a benchmark set, and their times"):
        cost_figure(Trained.read(alike / "methods.jsonl"), [])


def test_ablations_without_a_stated_budget_are_refused(results):
    (results / "ablation.json").unlink()
    with pytest.raises(InvalidInput, match="must state the budget"):
        report(results)


def test_an_empty_folder_of_results_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="holds no results"):
        report(tmp_path)


def test_a_missing_matplotlib_names_the_extra(monkeypatch):
    import sys

    from thera.evaluation.figures import figure

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependency, match=r"thera\[figures\]"):
        figure(1, 1)

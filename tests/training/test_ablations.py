"""Every ablation of the paper, trained for a moment and measured."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from thera.cli.ablations import command as ablations_command
from thera.errors import InvalidInput, TheraError
from thera.evaluation.ablation import ablation_markdown
from thera.evaluation.paper import paper
from thera.evaluation.records import read_records
from thera.evaluation.report import report
from thera.evaluation.runner import Refusals
from thera.models import load_network
from thera.models.weights import load_safetensors, save_safetensors
from thera.training import ablations, rows
from thera.training import run as training_run
from thera.training.checkpoint import load as load_state
from thera.training.config import Config

REPOSITORY = Path(__file__).parents[2]


def measured(arguments):
    CliRunner().invoke(ablations_command, arguments, catch_exceptions=False)


def test_every_ablation_of_the_paper_is_trained_and_measured_and_its_budget_stated(
    photos, tmp_path, monkeypatch
):
    monkeypatch.setattr(training_run, "COMPILING", 1)
    monkeypatch.setattr(rows, "RATE_STEPS", 1)
    out, small = tmp_path / "results", tmp_path / "small"
    small.mkdir()
    Image.open(photos / "0.png").crop((0, 0, 60, 48)).save(small / "0.png")
    command = (
        f"--data {photos} --seconds 0.01 --validate {small} --scales 6 --device cpu --runs {tmp_path}/runs "
        f"-o {out} --set data.batch=1 data.patch=8 network.variant=air".split()
    )  # Air in place of Plus: the ablations are the same, and it is fast
    measured(command)
    records = read_records(out / "runs.jsonl")
    names = [row["method"] for row in paper()["tables"]["ablation"]["rows"]]
    assert {r["method"].rstrip("+") for r in records} == set(names)
    assert len(records) == len(names)
    assert not any(r["method"] == "No GSE+" for r in records)
    budget = json.loads((out / "runs.json").read_text("utf-8"))["budget"]
    assert "0.01 seconds" in budget

    monkeypatch.setattr(ablations, "train_all", None)  # nothing is trained or measured twice
    measured(command)
    assert read_records(out / "runs.jsonl") == records

    network, about = load_safetensors(tmp_path / "runs/relu.safetensors")
    longer = {"ablation": about["ablation"] | {"seconds": 60}}
    save_safetensors(network, tmp_path / "runs/relu.safetensors", metadata=longer)
    with pytest.raises(InvalidInput, match=r"relu.safetensors was trained with .*60"):
        measured(command)


@pytest.fixture
def trial(photos, tmp_path, monkeypatch):
    """trial(folder, *options) runs `thera ablations` on files of `configs`: two steps of tiny patches."""
    monkeypatch.setattr(training_run, "COMPILING", 1)
    monkeypatch.setattr(rows, "steps_per_second", lambda run, steps, seconds: 2.0)
    small = tmp_path / "small"
    small.mkdir()
    Image.open(photos / "0.png").crop((0, 0, 60, 48)).save(small / "0.png")

    def run(folder, *arguments, data=photos, validate=small):
        options = f"--configs {REPOSITORY}/configs/{folder} --scales 3 --device cpu --runs {tmp_path}/runs"
        options += f" -o {tmp_path}/results" + (f" --data {data}" if data else "")
        options += f" --validate {validate}" if validate else ""
        options += " --seconds 1 --set data.batch=1 data.patch=8"
        measured([*options.split(), *arguments])

    return run


def test_methods_of_a_folder_are_trained_alike_from_one_backbone(trial, tmp_path, monkeypatch):
    runs, out = tmp_path / "runs", tmp_path / "results"
    monkeypatch.setattr(rows, "steps_per_second", lambda run, steps, seconds: 1.0)
    read, reads = ablations.read_images, []
    monkeypatch.setattr(ablations, "read_images", lambda *given: reads.append(given) or read(*given))
    trial("methods", "--names", "air", "liif", validate=None)
    assert len(reads) == 1  # for all rows
    assert not out.exists()  # nothing is measured
    trial("methods", "--names", "air", "liif", data=None)  # nothing is trained, as on another machine
    records = read_records(out / "runs.jsonl")
    assert {r["method"] for r in records} == {"Thera Air", "Thera Air+", "LIIF", "LIIF+"}
    stated = json.loads((out / "runs.json").read_text("utf-8"))
    assert "1 seconds of steps from the backbone of edsr-x4 on one cpu" in stated["budget"]
    assert "from 4 images" in stated["budget"]
    assert stated["command"].startswith(
        "thera ablations --configs configs/methods --runs runs/runs --seconds 1"
    )
    assert [(r["method"], r["network"], r["steps"], r["patches"]) for r in stated["rows"]] == [
        ("Thera Air", "edsr-air", 1, 1),
        ("LIIF", "edsr-liif", 1, 1),
    ]
    assert stated["rows"][1]["added_parameters"] == 346_883
    start = load_network("configs/methods/edsr-x4.safetensors")[0].state_dict()
    trained = load_safetensors(runs / "air.safetensors")[0].state_dict()
    torch.testing.assert_close(
        trained["backbone.tail.weight"], start["backbone.tail.weight"], atol=1e-3, rtol=1e-3
    )
    assert (runs / "air.safetensors").stat().st_size < 2.2 * 1_228_801 + 50_000  # bytes: 16 bits a weight


def test_a_part_of_a_start_leaves_all_other_weights_random():
    config = Config.parse({"start": "edsr-air", "start_part": "backbone", "network": {"variant": "air"}})
    shipped = load_network("edsr-air")[0].state_dict()
    begun = training_run.initial_network(config)[0].state_dict()
    assert torch.equal(begun["backbone.tail.weight"], shipped["backbone.tail.weight"])
    assert not torch.allclose(begun["head.weight"], shipped["head.weight"], atol=1e-3)


def test_folders_that_cannot_be_trained_are_refused(trial, tmp_path):
    with pytest.raises(InvalidInput, match="holds no configuration"):
        trial("../tests")
    with pytest.raises(InvalidInput, match=r"aligned\.toml needs pairs"):
        trial("zoom", "--set", "data.batch=2")
    with pytest.raises(InvalidInput, match=r"holds no box\.toml: choose among area, bicubic, lanczos"):
        trial("kernels", "--names", "box")
    with pytest.raises(InvalidInput, match=r"lacks area: give --data"):
        trial("kernels", "--names", "area", data=None)
    with pytest.raises(InvalidInput, match="nothing to do"):
        trial("kernels", data=None, validate=None)
    with pytest.raises(InvalidInput, match="Only the paper's ablations"):
        trial("kernels", "--at-equal-patches")
    for options in (("--scales", "-2"), ("--scales", "999"), ("--precision", "tf32")):
        with pytest.raises(InvalidInput):  # before anything is trained
            trial("kernels", *options)
    assert not (tmp_path / "runs").exists()


def test_a_stopped_run_goes_on_and_seeds_make_a_deviation(trial, tmp_path, monkeypatch):
    runs, out, area = tmp_path / "runs", tmp_path / "results", ("--seeds", "2", "--names", "area")
    trial("kernels", *area, "--pause", "0")
    assert not out.exists()
    assert load_state(runs / "area" / "state.safetensors")[1]["total"] == 2
    with pytest.raises(InvalidInput, match="stopped run of other values, and is now given 2 seconds, not 1"):
        trial("kernels", *area, "--seconds", "2")
    with pytest.raises(InvalidInput, match=r"optimiser.rate = 0.001, not 0.0003"):
        trial("kernels", "--names", "lanczos", "area", "--set", "optimiser.rate=1e-3")
    stated = (runs / "area" / "row.json").rename(runs / "kept.json")
    with pytest.raises(InvalidInput, match=r"area holds a stopped run of an earlier version.*: remove it"):
        trial("kernels", *area)
    stated.rename(runs / "area" / "row.json")
    assert not (runs / "lanczos.safetensors").exists()  # nothing is trained by values that are refused
    with monkeypatch.context() as patched:
        patched.setattr(rows, "steps_per_second", None)  # the first run is not measured again
        with pytest.raises(TheraError, match="area-seed1 failed"):
            trial("kernels", *area)
    assert (runs / "area.safetensors").exists()
    trial("kernels", *area)
    assert len(read_records(out / "runs.jsonl")) == 4  # two seeds, one pass and the ensemble
    stated = json.loads((out / "runs.json").read_text("utf-8"))
    first, second = stated["kappa"]["area"]
    assert first != second
    assert [row["seed"] for row in stated["rows"]] == [0, 1]
    for name in ("runs.jsonl", "runs.json"):
        (out / name).rename(out / name.replace("runs", "kernels"))
    text = report(out)
    assert "± 0." in text
    assert "κ after training" in text


def test_a_row_that_fails_is_named_and_does_not_stop_the_others(trial, tmp_path, monkeypatch, capsys):
    start = rows.initial_network

    def failing(config):
        if config.degradation.kernels == ("area",):
            raise RuntimeError("CUDA out of memory")
        return start(config)

    with monkeypatch.context() as patched:
        patched.setattr(rows, "initial_network", failing)
        with pytest.raises(TheraError, match=r"^area failed, all others are trained"):
            trial("kernels", "--names", "area", "lanczos", validate=None)
        assert (tmp_path / "runs" / "lanczos.safetensors").exists()
        with pytest.raises(TheraError, match=r"^area failed"):
            trial("kernels", "--names", "area", "lanczos")
    records = read_records(tmp_path / "results" / "runs.jsonl")
    assert {record["method"] for record in records} == {"lanczos", "lanczos+"}  # what there is, is measured
    trial("kernels", "--names", "area", "lanczos", validate=None)
    assert (tmp_path / "runs" / "area.safetensors").exists()


def test_rows_that_fail_are_named_beside_what_measuring_refuses_and_at_a_pause(trial, monkeypatch):
    start = rows.initial_network

    def failing(config):
        if config.degradation.kernels == ("area",):
            raise RuntimeError("CUDA out of memory")
        return start(config)

    def refusing(*given, **options):
        raise Refusals("All else is measured, but not a.png.", [])

    monkeypatch.setattr(rows, "initial_network", failing)
    monkeypatch.setattr(ablations, "evaluate", refusing)
    names = ("--names", "area", "lanczos")
    with pytest.raises(TheraError, match=r"^area failed, the others are paused: the same command"):
        trial("kernels", *names, "--pause", "0")
    with pytest.raises(TheraError, match=r"^area failed, all others are trained.*but not a\.png\.$"):
        trial("kernels", *names)
    monkeypatch.setattr(rows, "initial_network", start)
    with pytest.raises(Refusals, match=r"^All else is measured"):
        trial("kernels", *names)


def test_weights_and_results_of_other_values_are_refused(trial, tmp_path):
    one = ("--names", "area")
    trial("kernels", *one)
    weights, records = tmp_path / "runs" / "area.safetensors", tmp_path / "results" / "runs.jsonl"
    with pytest.raises(InvalidInput, match=r"area.safetensors was .*optimiser.rate = 0.001, not 0.0003"):
        trial("kernels", *one, "--set", "optimiser.rate=1e-3")
    with pytest.raises(InvalidInput, match=r"area.safetensors was .*2 seconds, not 1"):
        trial("kernels", *one, "--seconds", "2")
    before, stated = records.read_bytes(), (tmp_path / "results" / "runs.json").read_bytes()
    weights.unlink()
    (tmp_path / "runs" / "area" / "state.safetensors").unlink()
    with pytest.raises(InvalidInput, match="another area"):
        trial("kernels", *one, "--set", "seed=5")
    assert records.read_bytes() == before
    assert (tmp_path / "results" / "runs.json").read_bytes() == stated
    trial("kernels", *one, "--replace", "--set", "seed=5")
    assert records.read_bytes() != before


def test_rows_that_are_measured_apart_stand_together(trial, tmp_path):
    for name in ("lanczos", "area"):
        trial("kernels", "--names", name)
    stated = json.loads((tmp_path / "results" / "runs.json").read_text("utf-8"))
    assert [row["method"] for row in stated["rows"]] == ["area", "lanczos"] == list(stated["kappa"])
    assert "--seconds 1 --names area lanczos --set" in stated["command"]
    other = ("--names", "area", "--seconds", "2", "--runs", f"{tmp_path}/longer/runs")
    before = (tmp_path / "results" / "runs.jsonl").read_bytes()
    with pytest.raises(InvalidInput, match=r"runs\.json states another budget \(1 seconds"):
        trial("kernels", *other)
    with pytest.raises(InvalidInput, match="tf32"):
        trial("kernels", *other, "--replace", "--precision", "tf32")
    assert (tmp_path / "results" / "runs.jsonl").read_bytes() == before
    trial("kernels", *other, "--replace")
    assert {r["method"] for r in read_records(tmp_path / "results" / "runs.jsonl")} == {"area", "area+"}


def test_ablations_that_saw_fewer_patches_are_compared_at_equal_patches(trial, tmp_path, monkeypatch):
    monkeypatch.setattr(
        rows, "steps_per_second", lambda run, *_: 2.0 if run.network.spec.activation == "relu" else 4.0
    )
    few = ("--names", "plus", "relu", "no-tv", "--at-equal-patches", "--set", "network.variant=air")
    trial("ablations", *few)
    stated = json.loads((tmp_path / "results" / "runs.json").read_text("utf-8"))["rows"]
    extra = "Thera Plus at the patches of ReLU instead ξ"
    patches = {row["method"]: row["patches"] for row in stated}
    assert patches == {"Thera Plus": 4, "ReLU instead ξ": 2, "No TV prior": 4, extra: 2}
    assert sorted(path.stem for path in (tmp_path / "runs").glob("*.safetensors")) == [
        "no-tv",
        "plus",
        "plus-at-relu",
        "relu",
    ]
    records = read_records(tmp_path / "results" / "runs.jsonl")
    psnr = {record["method"]: record["psnr_rgb"] for record in records}
    text = ablation_markdown(records)
    difference = f"{psnr['ReLU instead ξ+'] - psnr[f'{extra}+']:+.2f}"
    assert f"| ReLU instead ξ+ | {difference} | — |" in text


def test_a_row_that_fails_is_tried_once_though_equal_patches_take_a_second_turn(trial, monkeypatch):
    start, tried = rows.initial_network, []

    def failing(config):
        tried.append(config.network.activation)
        if tried[-1] == "relu":
            raise RuntimeError("CUDA out of memory")
        return start(config)

    monkeypatch.setattr(rows, "initial_network", failing)
    few = ("--names", "relu", "plus", "--at-equal-patches", "--set", "network.variant=air")
    with pytest.raises(TheraError, match=r"^relu failed, "):
        trial("ablations", *few, validate=None)
    assert len(tried) == 2 and tried.count("relu") == 1


def test_rows_stand_in_the_papers_order():
    records = [
        {"method": m, "identity": "", "data": "photo20", "image": "a", "scale": 18, "psnr_rgb": 20.0}
        for m in ("Mine", "No GSE", "Fixed κ+", "Thera Plus+")
    ]
    text = ablation_markdown(records)
    places = [text.index(f"| {name} |") for name in ("Thera Plus+", "Fixed κ+", "No GSE", "Mine")]
    assert places == sorted(places)

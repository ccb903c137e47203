"""Every ablation of the paper, trained for a moment and measured."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from thera.cli.ablations import command as ablations_command
from thera.errors import InvalidInput
from thera.evaluation.ablation import ablation_markdown
from thera.evaluation.paper import paper
from thera.evaluation.records import read_records
from thera.evaluation.report import report
from thera.models import load_network
from thera.models.weights import load_safetensors, save_safetensors
from thera.training import ablations
from thera.training import run as training_run
from thera.training.checkpoint import load as load_state

REPOSITORY = Path(__file__).parents[2]


def measured(arguments):
    CliRunner().invoke(ablations_command, arguments, catch_exceptions=False)


def test_every_ablation_of_the_paper_is_trained_and_measured_and_its_budget_stated(
    photos, tmp_path, monkeypatch
):
    monkeypatch.setattr(training_run, "COMPILING", 1)
    monkeypatch.setattr(ablations, "TIMED", 1)
    out, small = tmp_path / "results", tmp_path / "small"
    small.mkdir()
    Image.open(photos / "0.png").crop((0, 0, 60, 48)).save(small / "0.png")
    command = (
        f"--data {photos} --seconds 0.01 --validate {small} --scales 6 --device cpu --runs {tmp_path}/runs "
        f"-o {out} --set data.batch=1 data.patch=8 network.variant=air".split()
    )  # Air in place of Plus: the ablations are the same, and it is fast
    measured(command)
    records = read_records(out / "ablation.jsonl")
    names = [row["method"] for row in paper()["tables"]["ablation"]["rows"]]
    assert {r["method"].rstrip("+") for r in records} == set(names)
    assert len(records) == len(names)
    assert not any(r["method"] == "No GSE+" for r in records)
    budget = json.loads((out / "ablation.json").read_text("utf-8"))["budget"]
    assert "0.01 seconds" in budget
    assert budget in ablation_markdown(records, budget)

    monkeypatch.setattr(ablations, "train", None)  # nothing is trained or measured twice
    measured(command)
    assert read_records(out / "ablation.jsonl") == records

    network, about = load_safetensors(tmp_path / "runs/relu.safetensors")
    longer = {"ablation": about["ablation"] | {"seconds": 60}}
    save_safetensors(network, tmp_path / "runs/relu.safetensors", metadata=longer)
    with pytest.raises(InvalidInput, match=r"relu.safetensors was trained with .*60"):
        measured(command)


def test_methods_of_a_folder_are_trained_alike_from_one_backbone(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(training_run, "COMPILING", 1)
    monkeypatch.setattr(ablations, "TIMED", 1)
    configs, out, small = (tmp_path / name for name in ("methods", "results", "small"))
    configs.mkdir()
    small.mkdir()
    for name in ("air", "liif"):
        text = (REPOSITORY / "configs" / "methods" / f"{name}.toml").read_text("utf-8")
        (configs / f"{name}.toml").write_text(text, "utf-8")
    Image.open(photos / "0.png").crop((0, 0, 60, 48)).save(small / "0.png")
    measured(
        f"--configs {configs} --data {photos} --seconds 0.01 --validate {small} --scales 3 --device cpu "
        f"--runs {tmp_path}/runs -o {out} --set data.batch=1 data.patch=8 optimiser.rate=1e-9".split()
    )
    assert {r["method"] for r in read_records(out / "methods.jsonl")} == {"air", "air+", "liif", "liif+"}
    assert "from the backbone of edsr-air" in json.loads((out / "methods.json").read_text("utf-8"))["budget"]
    shipped = load_network("edsr-air")[0].state_dict()
    trained = load_safetensors(tmp_path / "runs" / "air.safetensors")[0].state_dict()
    torch.testing.assert_close(trained["backbone.tail.weight"], shipped["backbone.tail.weight"])
    assert not torch.allclose(trained["head.weight"], shipped["head.weight"])
    with pytest.raises(InvalidInput, match="holds no configuration"):
        measured(f"--configs {small} --data {photos} --validate {small} -o {out}".split())
    zoom = REPOSITORY / "configs" / "zoom"
    with pytest.raises(InvalidInput, match=r"aligned\.toml needs pairs"):
        measured(f"--configs {zoom} --data {photos} --validate {small} -o {out}".split())


def test_a_stopped_run_goes_on_and_seeds_make_a_deviation(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(training_run, "COMPILING", 1)
    monkeypatch.setattr(ablations, "TIMED", 1)
    monkeypatch.setattr(ablations, "steps_per_second", lambda run, steps: 3.0)
    small, out, runs = tmp_path / "small", tmp_path / "results", tmp_path / "runs"
    small.mkdir()
    Image.open(photos / "0.png").crop((0, 0, 60, 48)).save(small / "0.png")
    command = (
        f"--configs {REPOSITORY}/configs/kernels --data {photos} --validate {small} --scales 3 --device cpu "
        f"--runs {runs} -o {out} --seeds 2 --names area --set data.batch=1 data.patch=8 --seconds"
    ).split()
    measured([*command, "1", "--pause", "0"])
    assert not out.exists()
    assert load_state(runs / "area" / "state.safetensors")[1]["done"] == 0
    with pytest.raises(InvalidInput, match="1 seconds, not 2"):
        measured([*command, "2"])
    monkeypatch.setattr(ablations, "steps_per_second", None)  # the first run is not measured again
    with pytest.raises(TypeError):
        measured([*command, "1"])
    assert (runs / "area.safetensors").exists()
    monkeypatch.setattr(ablations, "steps_per_second", lambda run, steps: 2.0)
    measured([*command, "1"])
    assert len(read_records(out / "kernels.jsonl")) == 4  # two seeds, one pass and the ensemble
    stated = json.loads((out / "kernels.json").read_text("utf-8"))
    assert "with each of 2 seeds" in stated["budget"]
    first, second = stated["kappa"]["area"]
    assert first != second
    text = report(out)
    assert "± 0." in text
    assert "κ after training" in text
    with pytest.raises(InvalidInput, match=r"holds no box\.toml: choose among area, bicubic, lanczos"):
        measured([*command, "1", "--names", "box"])


def test_rows_stand_in_the_papers_order():
    records = [
        {"method": m, "identity": "", "data": "photo20", "image": "a", "scale": 18, "psnr_rgb": 20.0}
        for m in ("Mine", "No GSE", "Fixed κ+", "Thera Plus+")
    ]
    text = ablation_markdown(records, "a minute.")
    places = [text.index(f"| {name} |") for name in ("Thera Plus+", "Fixed κ+", "No GSE", "Mine")]
    assert places == sorted(places)

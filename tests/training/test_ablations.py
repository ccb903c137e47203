"""Every ablation of the paper, trained for a moment and measured."""

import json

import pytest
from click.testing import CliRunner
from PIL import Image

from thera.cli.ablations import command as ablations_command
from thera.errors import InvalidInput
from thera.evaluation.ablation import ablation_markdown
from thera.evaluation.paper import paper
from thera.evaluation.records import read_records
from thera.models.weights import load_safetensors, save_safetensors
from thera.training import ablations
from thera.training import run as training_run


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
        f"-o {out} --set data.batch=1 data.patch=8".split()
    )
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


def test_rows_stand_in_the_papers_order():
    records = [
        {"method": m, "identity": "", "data": "photo20", "image": "a", "scale": 18, "psnr_rgb": 20.0}
        for m in ("Mine", "No GSE", "Fixed κ+", "Thera Plus+")
    ]
    text = ablation_markdown(records, "a minute.")
    places = [text.index(f"| {name} |") for name in ("Thera Plus+", "Fixed κ+", "No GSE", "Mine")]
    assert places == sorted(places)

"""Every ablation of the paper, trained for a moment and measured."""

import json

from PIL import Image

from thera.evaluation.ablation import ablation_markdown
from thera.evaluation.paper import paper
from thera.evaluation.runner import read_records
from thera.training import ablations
from thera.training import run as training_run


def test_every_ablation_of_the_paper_is_trained_and_measured_and_its_budget_stated(
    photos, tmp_path, monkeypatch
):
    monkeypatch.setattr(training_run, "COMPILING", 1)
    monkeypatch.setattr(ablations, "TIMED", 1)
    out, small = tmp_path / "results", tmp_path / "small"
    small.mkdir()
    Image.open(photos / "0.png").crop((0, 0, 60, 48)).save(small / "0.png")
    ablations.main(
        f"--data {photos} --seconds 0.01 --validate {small} --scales 6 --device cpu --runs {tmp_path}/runs "
        f"-o {out} --set data.batch=1 data.patch=8".split()
    )
    records = read_records(out / "ablation.jsonl")
    names = [row["method"] for row in paper()["tables"]["ablation"]["rows"]]
    assert {r["method"].rstrip("+") for r in records} == set(names)
    assert len(records) == len(names)
    assert not any(r["method"] == "No GSE+" for r in records)
    budget = json.loads((out / "ablation.json").read_text("utf-8"))["budget"]
    assert "0.01 seconds" in budget
    assert budget in ablation_markdown(records, budget)

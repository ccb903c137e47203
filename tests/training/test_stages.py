"""Stages of a folder run one after the other, continue where they stopped, and made the shipped weights."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from thera.errors import InvalidInput, ModelError
from thera.models.loading import shipped
from thera.models.weights import load_safetensors, read_header
from thera.training import loop, stages
from thera.training.config import Config
from thera.training.stages import Mean, read_stages, train

CONFIGS = Path(__file__).parents[2] / "configs"
RUN = "[data]\npatch = 12\nbatch = 2\n[optimiser]\nsteps = 3\nwarmup = 1\n"
QUIET = {"show": lambda _: None, "say": lambda _: None, "device": "cpu"}


@pytest.fixture
def folder(tmp_path):
    """Three runs, of which the third has the second as its teacher, and the mean of all."""
    folder = tmp_path / "stages"
    folder.mkdir()
    (folder / "1-first.toml").write_text(RUN)
    (folder / "2-second.toml").write_text('start = "1-first"\n' + RUN)
    (folder / "3-third.toml").write_text(
        'start = "1-first"\n' + RUN + '[teacher]\nmodel = "2-second"\nkept = 2\n'
    )
    (folder / "4-mean.toml").write_text('mean = ["1-first", "2-second", "3-third"]\n')
    return folder


def weights(out, name):
    return load_safetensors(out / name / loop.WEIGHTS)[0].state_dict()


def test_stages_follow_one_another_and_the_model_lists_them(folder, photos, tmp_path):
    out, messages = tmp_path / "out", []
    assert train(folder, [photos], out, **QUIET | {"say": messages.append})
    assert "Stage 2 of 4: 2-second." in messages and str(out / "4-mean" / loop.WEIGHTS) in messages[-1]
    one, two, three, mean = (weights(out, name) for name in ("1-first", "2-second", "3-third", "4-mean"))
    for key, value in mean.items():
        torch.testing.assert_close(value, (one[key] + two[key] + three[key]) / 3)
    assert not torch.equal(one["head.weight"], two["head.weight"])
    *runs, last = read_header(out / "4-mean" / loop.WEIGHTS)["training"]
    assert [run["start"] for run in runs] == ["", "stage 1", "stage 1"] and last == {"mean": [1, 2, 3]}
    assert (out / "2-second" / "run.png").exists()


def test_an_interrupted_stage_is_continued_and_those_before_it_are_not_run_again(
    folder, photos, tmp_path, monkeypatch
):
    (folder / "3-third.toml").write_text('start = "2-second"\n' + RUN)  # no teacher: continued exactly
    assert train(folder, [photos], tmp_path / "whole", **QUIET)
    step, out, steps = loop.Run.step, tmp_path / "out", []

    def interrupted(run):
        step(run)
        steps.append(run.done)
        if len(steps) == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop.Run, "step", interrupted)
    assert not train(folder, [photos], out, **QUIET)
    assert not (out / "2-second" / loop.WEIGHTS).exists()
    assert train(folder, [photos], out, **QUIET)
    assert steps == [1, 2, 3] * 3
    one, other = weights(tmp_path / "whole", "4-mean"), weights(out, "4-mean")
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert train(folder, [photos], out, **QUIET) and len(steps) == 9  # nothing is left to do


def test_pausing_counts_the_minutes_of_all_stages(folder, photos, tmp_path):
    assert not train(folder, [photos], tmp_path / "out", pause=0, **QUIET)
    assert not (tmp_path / "out" / "2-second").exists()
    assert train(folder, [photos], tmp_path / "out", pause=10, **QUIET)


def test_a_stage_that_ended_is_not_taken_for_another(folder, photos, tmp_path):
    train(folder, [photos], tmp_path / "out", **QUIET)
    with pytest.raises(InvalidInput, match="seed = 3, not 0"):
        train(folder, [photos], tmp_path / "out", changes=["seed=3"], **QUIET)


def test_a_name_stands_for_a_stage_only_after_it(folder, photos, tmp_path):
    """A run may start from the shipped model of its own name."""
    path = folder / "edsr-air.toml"
    path.write_text('start = "edsr-air"\n' + RUN)
    assert train(path, [photos], tmp_path / "run", **QUIET)
    history = read_header(tmp_path / "run" / loop.WEIGHTS)["training"]
    assert len(history) > 1 and history[-1]["start"] == "edsr-air"


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ('start = "2-secnd"\n' + RUN, {}, ModelError, "2-secnd"),
        ('mean = ["1-first", "9-mean"]', {}, ModelError, "9-mean"),
        ('mean = ["1-first", "2-second"]\nseed = 1', {}, InvalidInput, "9-mean.toml takes a mean"),
        ("mean = 3", {}, InvalidInput, "takes a mean"),
        ("[data]\nbatch = 2", {}, InvalidInput, "9-mean.toml does not say how long"),
        (RUN, {"minutes": 3}, InvalidInput, "5 stages: leave it out"),
    ],
)
def test_mistakes_are_found_before_the_first_stage_runs(folder, tmp_path, text, options, error, message):
    (folder / "9-mean.toml").write_text(text)
    with pytest.raises(error, match=message):
        train(folder, ["no-such-folder"], tmp_path / "out", **options, **QUIET)
    assert not (tmp_path / "out").exists()


def test_a_folder_without_stages_is_named(tmp_path):
    with pytest.raises(InvalidInput, match="holds no stage"):
        train(tmp_path, ["photos"], tmp_path / "out", **QUIET)


def numbered(theirs, history):
    """The numbers that the stages of a shipped model have in this history, in which some may be missing."""
    numbers = {}
    for number, stage in enumerate(theirs, 1):
        if "mean" in stage:
            stage = {"mean": [numbers.get(n) for n in stage["mean"]]}
        elif stage["start"].startswith("stage "):
            stage = stage | {"start": f"stage {numbers.get(int(stage['start'].removeprefix('stage ')))}"}
        if stage in history:
            numbers[number] = history.index(stage) + 1
    return numbers


@pytest.mark.parametrize("model", shipped(), ids=lambda model: model.name)
def test_the_stage_files_are_what_the_shipped_weights_record(model):
    files = read_stages(CONFIGS / "shipped" / model.name, [])
    names, history = list(files), model.metadata["training"]
    named = {
        name for stage in files.values() for name in (stage.of if isinstance(stage, Mean) else [stage.start])
    }
    others = {
        m.name: numbered(m.metadata["training"], history) for m in shipped() if m.name in named - {*names}
    }
    theirs = {number for known in others.values() for number in known.values()}
    made = [number for number in range(1, len(history) + 1) if number not in theirs]
    made = made[-len(files) :]  # by these files, one after the other

    def number_of(name, stage):
        """The stage that made this model: one of these files, or the last that a shipped one then had."""
        if name in names:
            return made[names.index(name)]
        return max(n for n in others[name].values() if n < stage)

    assert others or len(made) == len(history)
    for i, (number, stage) in enumerate(zip(made, files.values(), strict=True)):
        recorded = history[number - 1]
        if isinstance(stage, Mean):
            assert [number_of(name, number) for name in stage.of] == recorded["mean"]
            continue
        config = Config.stored({key: recorded[key] for key in stage.to_dict() if key in recorded})
        assert stage.optimiser.steps * stage.data.batch == recorded["patches"]
        start = recorded["start"]
        if start.startswith("stage "):
            earlier = int(start.removeprefix("stage "))
            # A stage of the shipped model that it began from has no file here.
            start = names[made.index(earlier)] if earlier in made else stage.start
            assert earlier in made or i == 0
        elif start:  # once, a stage was recorded by the name of the model
            start = names[i - 1] if i else start
        same = {"steps": stage.optimiser.steps}
        if stage.network.variant != "pro":  # the only one with branches to drop
            same["drop_path"] = stage.optimiser.drop_path
        if not stage.teacher.model:
            config = replace(config, teacher=stage.teacher)
        assert stage == replace(config, start=start, optimiser=replace(config.optimiser, **same))


def test_every_configuration_of_the_repository_is_valid():
    files = sorted(CONFIGS.rglob("*.toml"))
    assert len(files) >= 42
    for file in files:
        assert isinstance(stages.read_stage(file, []), Config | Mean)

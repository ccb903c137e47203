"""How long it takes: the plan says so, the bar shows it, and a dry run says it of everything."""

import io
import json
import select
import sys
import time
from types import SimpleNamespace

import pytest
from PIL import Image

from thera.cli import feedback, timing
from thera.models import load
from thera.models.choice import ModelChoice
from thera.warp.mappings import Projective
from thera.warp.pictures import prepare_warped_picture

AIR = ("-m", "edsr-air")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "thera" / "rates.json"


@pytest.fixture
def large(tmp_path):
    """A picture that is worth a calibration."""
    path = tmp_path / "large.png"
    Image.effect_noise((90, 70), 60).convert("RGB").save(path)
    return path


def test_the_plan_says_how_long_it_takes_by_rates_that_are_kept(thera, large, cache):
    onnx = (*AIR, "--engine", "onnx")  # on a busy machine, "auto" may change its mind in between
    first = thera("upscale", large, "-s", 1.5, *onnx)
    assert " | about " in first.err.splitlines()[0]
    kept = json.loads(cache.read_text())
    (name,) = kept
    assert name.startswith("edsr-air ")
    kept[name] = [1.0, 1e9]  # a pixel a second
    cache.write_text(json.dumps(kept))
    result = thera("upscale", large, "-s", 1.5, *onnx, "--overwrite")
    assert " | about 1.8 h" in result.err.splitlines()[0]


def test_a_copy_takes_no_time_of_the_network(thera, large, cache):
    assert "about" not in thera("upscale", large, "-s", 1, *AIR).err
    assert not cache.exists()


@pytest.mark.parametrize("damaged", ["", "[]", '{"x": 1', "null"])
def test_rates_that_cannot_be_read_are_measured_again(thera, large, cache, damaged):
    cache.parent.mkdir(parents=True)
    cache.write_text(damaged)
    assert " | about " in thera("upscale", large, "-s", 1.5, *AIR, "--dry-run").err


def test_rates_follow_the_jobs_that_were_done(monkeypatch, thera, large, cache):
    monkeypatch.setattr(timing, "LEARN_FROM", 0.0)
    monkeypatch.setattr(timing, "_calibrated", lambda *given: [1e9, 1e9])
    thera("upscale", large, "-s", 1.5, *AIR)
    (rates,) = json.loads(cache.read_text()).values()
    assert max(rates) < 1e8


def test_a_dry_run_says_everything_and_writes_nothing(thera, large, tmp_path, png):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a.png").write_bytes(png)
    (tmp_path / "in" / "deep" / "b.png").write_bytes(png)
    (tmp_path / "a.png").write_bytes(png)
    before = sorted(tmp_path.rglob("*"))
    one = thera("upscale", large, "-s", 3, "--dry-run", *AIR)
    plan, end = one.err.splitlines()
    assert (one.status, one.out) == (0, "")
    for part in ("270×210", "1 tile", "MiB", "about", "on disk"):
        assert part in plan
    assert end == "Nothing was written: this was a dry run."
    many = thera("upscale", tmp_path / "in", "-s", 3, "-r", "--dry-run", *AIR)
    *plans, total, end = many.err.splitlines()
    assert (many.status, len(plans)) == (0, 2)
    assert plans[1].startswith("2 of 2  ") and "in_x3/deep/b.png 192×144" in plans[1]
    assert total.startswith("2 to do: about ") and "162 KiB on disk" in total
    several = thera(
        "upscale", large, tmp_path / "in", "-s", 3, "-o", tmp_path / "new", "--dry-run", *AIR, "--json"
    )
    assert several.counts == {"planned": 2}
    assert all(record["disk"] > 0 and record["seconds"] > 0 for record in several.records)
    assert [path for path in sorted(tmp_path.rglob("*")) if "cache" not in path.parts] == before


def test_a_dry_run_finds_what_would_fail(thera, tmp_path, png):
    (tmp_path / "a.png").write_bytes(png)
    (tmp_path / "cut.png").write_bytes(png[:300])
    result = thera(
        "upscale", tmp_path / "a.png", tmp_path / "cut.png", "-o", tmp_path / "b", "-s", 2, "--dry-run"
    )
    assert result.status == 1
    assert "cut short" in result.err.splitlines()[-2]


def test_files_of_a_folder_are_counted_and_the_end_says_the_time(thera, tmp_path, png):
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / f"{name}.png").write_bytes(png)
    result = thera("upscale", tmp_path / "in", "-s", 1.5, *AIR)
    first, *_, end = result.err.splitlines()
    assert first.startswith("1 of 3  ") and "64×48 → 96×72 in " in first
    assert end.startswith("3 done in ") and end.endswith(" s.")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def reconfigure(self, **options: object) -> None:
        """The program says what becomes of letters that a stream has not."""


def test_a_bar_moves_within_a_tile_and_never_arrives_before_the_work(monkeypatch):
    monkeypatch.setattr(feedback, "BAR_DELAY", 0.05)
    monkeypatch.setattr(feedback, "BAR_STEP", 0.05)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with feedback.Feedback(quiet=False).progress(1000, "photo.png", seconds=1.0) as progress:
        time.sleep(1.5)
        shown = [int(part.split()[-1]) for part in sys.stderr.getvalue().split("%")[:-1]]
        progress(1000)
    assert shown == sorted(shown)
    assert len(set(shown)) > 3 and shown[-1] <= 95
    assert "left" in sys.stderr.getvalue()


def test_a_bar_is_shown_on_a_terminal_that_reports_no_columns(monkeypatch):
    pty = pytest.importorskip("pty", reason="there are no pseudo-terminals")
    monkeypatch.setattr(feedback, "BAR_DELAY", 0.0)
    reader, writer = pty.openpty()  # whose size is 0×0
    with open(reader, "rb", 0) as shown, open(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with feedback.Feedback(quiet=False).progress(1000, "photo.png", seconds=1.0):
            assert select.select([shown], [], [], 30)[0]
            text = shown.read(9)
    assert text.strip().startswith(b"photo")


@pytest.mark.parametrize("command", ["upscale", "warp", "info"])
def test_a_terminal_is_told_of_a_model_that_takes_long_to_open(thera, large, tmp_path, monkeypatch, command):
    monkeypatch.setattr("thera.cli.run.PATIENCE", 0.05)
    own = ModelChoice.load
    monkeypatch.setattr(ModelChoice, "load", lambda choice: time.sleep(0.5) or own(choice))
    monkeypatch.setattr(sys, "stderr", Terminal())
    arguments = {
        "upscale": (large, "-s", 1, *AIR),
        "warp": (large, tmp_path / "a.png", "--affine", "1,0,0,0,1,0", *AIR),
        "info": ("edsr-air",),
    }
    assert thera(command, *arguments[command]).status == 0
    assert "Opening edsr-air" in sys.stderr.getvalue()


def test_one_busy_moment_does_not_spoil_the_estimates(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    info = SimpleNamespace(name="a", parameters=1, engine="e", device="cpu", precision="f32")
    job = SimpleNamespace(work=(10_000.0, 0.0))
    clock = timing.Clock(SimpleNamespace(info=info))
    clock._keep([1000.0, 1000.0])  # ten seconds
    clock.learn(job, 40.0)
    assert clock.estimate(job) == pytest.approx(20)
    clock.learn(job, 10.0)
    assert clock.estimate(job) == pytest.approx(10)
    clock.learn(job, 4.0)  # a faster job counts although it is short
    assert timing.Clock(clock.model).estimate(job) == pytest.approx(4)


def test_errors_of_a_dry_run_come_before_its_last_line(thera, tmp_path):
    (tmp_path / "a.png").write_bytes(b"no picture")
    result = thera("upscale", tmp_path / "a.png", "-s", 2, "--dry-run")
    assert result.status == 1 and result.err.splitlines()[-1] == "Nothing was written: this was a dry run."


def test_outputs_of_another_scale_are_named_as_left(thera, tmp_path, png):
    (tmp_path / "in").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "in" / name).write_bytes(png)
    for scale in (1, 2):
        result = thera("upscale", tmp_path / "in", tmp_path / "out", "-s", scale, *AIR)
    assert result.status == 0 and "2 already there" in result.err and "--overwrite makes them" in result.err


def test_a_warp_says_how_long_it_takes_and_its_line_is_that_of_upscale(thera, large, tmp_path, cache):
    result = thera("warp", large, tmp_path / "a.png", "--affine", "1,0.1,0,0,1,0", *AIR, "--json")
    plan, end = result.err.splitlines()
    assert " | about " in plan and end.startswith(f"{tmp_path / 'a.png'} is done in ")
    (name,) = json.loads(cache.read_text())
    assert name.endswith(" points")
    (line,) = result.out.splitlines()
    made = thera("upscale", large, "-s", 1.5, *AIR, "--json").records[0]
    assert set(json.loads(line)) == set(made) - {"tiles", "memory"}
    failed = thera("warp", large, tmp_path / "a.png", "--affine", "1,0,0,0,1,0", *AIR, "--json")
    assert failed.status == 1 and json.loads(failed.out)["status"] == "failed" and "exists" in failed.err


def test_a_warp_that_is_mostly_outside_the_picture_changes_no_rates(
    monkeypatch, thera, large, tmp_path, cache
):
    monkeypatch.setattr(timing, "LEARN_FROM", 0.0)
    monkeypatch.setattr(timing, "_calibrated", lambda *given: [1e9, 1e9])
    onnx = (*AIR, "--engine", "onnx")  # another engine has rates of its own, and "auto" may change its mind
    cases = ("300x300", [], True), ("180x180", ["--ensemble"], True), ("80x60", [], False)
    for number, (size, options, kept) in enumerate(cases):
        output = tmp_path / f"{number}.png"
        options += ["--affine", "1,0,0,0,1,0", "--size", size, *onnx]
        assert thera("warp", large, output, *options).status == 0
        (rates,) = json.loads(cache.read_text()).values()
        assert (rates == [1e9, 1e9]) == kept


@pytest.mark.parametrize("matrix", [(1, 0, 0, 0, 1, 0), (0.5, 0, 0, 0, 0.5, 0), (2, 0, -40, 0, 2, -30)])
def test_the_work_of_a_warp_is_counted_about_as_it_is_done(large, tmp_path, matrix, monkeypatch):
    model, encoded = load("edsr-air"), []
    job = prepare_warped_picture(
        large, tmp_path / "a.png", model, lambda shape: (shape, Projective(matrix, shape, False))
    )
    own = model.encode
    monkeypatch.setattr(model, "encode", lambda image: encoded.append(image[..., 0].size) or own(image))
    job.run()
    sampled = sum(piece.inside.sum() for piece in job.warp.pieces((0, 0, *job.size)))
    assert job.work == pytest.approx((sum(encoded), sampled), rel=0.2)


def test_overlap_is_spoken_of_where_more_memory_reduces_it(capsys):
    """A part in one tile has none, and tiles that are encoded side by side overlap for the sake of time."""
    for tiles, workers in ((1, 1), (2, 1), (2, 2)):
        job = SimpleNamespace(plan=SimpleNamespace(overlap=4.0, workers=workers), tiles=tiles, notes=())
        feedback.Feedback(quiet=False).notes(feedback.Shown(None, job, "", ""))
        assert ("overlap" in capsys.readouterr().err) == (tiles > workers)

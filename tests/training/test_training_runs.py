"""Runs are exact: one seed, one result; an interruption changes nothing; processes share a batch."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from thera.cli.train import command as train_command
from thera.errors import InvalidInput, ModelError
from thera.models.weights import load_safetensors
from thera.networks import Spec, Thera
from thera.training import checkpoint, loop
from thera.training.config import Config
from thera.training.data import Sampler
from thera.training.images import read_images
from thera.training.run import initial_network, read_log, start


def run_for(config, photos):
    torch.manual_seed(config.seed)
    network, _ = initial_network(config)
    sampler = Sampler(read_images([photos], 48), config.data)
    return loop.Run(config, sampler, network, config.optimiser.steps)


def weights(run):
    return {k: v.clone() for k, v in run.network.state_dict().items()}


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(small, photos, tmp_path):
    runs = [run_for(small(seed=s), photos) for s in (1, 1, 2)]
    for i, run in enumerate(runs):
        torch.manual_seed(run.config.seed)
        loop.train(run, tmp_path / str(i))
    a, b, c = map(weights, runs)
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not all(torch.equal(a[k], c[k]) for k in a)


@pytest.mark.parametrize("method", ["adam", "muon"])
def test_a_run_that_was_interrupted_ends_with_the_same_weights(method, small, photos, tmp_path):
    config = small(optimiser={"method": method})
    whole, first = run_for(config, photos), run_for(config, photos)
    torch.manual_seed(5)
    loop.train(whole, tmp_path / "whole", every=1)
    torch.manual_seed(5)
    for _ in range(3):
        first.step()
    checkpoint.save(tmp_path / "half.safetensors", *first.state())
    torch.manual_seed(99)  # whatever happened in between
    second = run_for(config, photos)
    second.restore(*checkpoint.load(tmp_path / "half.safetensors"))
    loop.train(second, tmp_path / "second", every=1)
    one, other = whole.state()[0], second.state()[0]
    assert one.keys() == other.keys()
    assert all(torch.equal(one[k], other[k]) for k in one)
    assert [e["l1"] for e in read_log(tmp_path / "whole")][3:] == [
        e["l1"] for e in read_log(tmp_path / "second")
    ]


def test_an_optimiser_comes_back_in_the_memory_order_of_its_parameters():
    """Files hold rows; networks on a GPU hold channels last, and fused Adam refuses a mixture."""
    p = torch.nn.Parameter(torch.randn(4, 4, 3, 3).to(memory_format=torch.channels_last))
    optimiser = torch.optim.Adam([p])
    p.grad = torch.randn_like(p)
    optimiser.step()
    before = {k: v.clone() for k, v in optimiser.state[p].items()}
    tensors = checkpoint.optimiser_tensors(optimiser)
    checkpoint.restore_optimiser(optimiser, {k: v.contiguous() for k, v in tensors.items()})
    assert optimiser.state[p]["exp_avg"].stride() == p.stride()
    assert all(torch.equal(before[k], v) for k, v in optimiser.state[p].items())


@pytest.mark.parametrize(("method", "loss"), [("adam", "l1"), ("muon", "rms"), ("adam", "mse")])
def test_a_short_run_learns(method, loss, small, photos, tmp_path):
    """From the nearest pixel, which is where a field starts, to well below it."""
    config = small(
        data={"patch": 16, "targets": 4},
        objective={"loss": loss},
        optimiser={"steps": 60, "rate": 1e-3, "method": method},
    )
    run = run_for(config, photos)
    torch.manual_seed(0)
    loop.train(run, tmp_path, every=20)
    losses = [entry["l1"] for entry in read_log(tmp_path)]
    assert losses[-1] < 0.8 * losses[0]


def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_last_checkpoint(small, photos, tmp_path):
    run = run_for(small(optimiser={"steps": 4}), photos)
    for _ in range(2):
        run.step()
    checkpoint.save(tmp_path / loop.STATE, *run.state())
    good = (tmp_path / loop.STATE).read_bytes()
    with torch.no_grad():
        run.network.head.bias.fill_(float("nan"))
    with pytest.raises(loop.DivergedError, match="nan at step 4"):
        loop.train(run, tmp_path, every=2)
    assert (tmp_path / loop.STATE).read_bytes() == good


def test_a_time_budget_ends_the_schedule_and_writes_a_model(small, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("thera.training.run.RATE_STEPS", 3)
    config = small(data={"batch": 1}, optimiser={"steps": 0})
    network = start(config, [photos], tmp_path, minutes=0.1, show=lambda _: None, say=lambda _: None)
    log = read_log(tmp_path)
    assert log[-1]["step"] == log[-1]["of"] > 8 and log[-1]["rate"] == 0
    loaded, about = load_safetensors(tmp_path / loop.WEIGHTS)
    assert about["training"][-1]["patches"] == log[-1]["step"] * config.data.batch
    assert torch.equal(loaded.head.weight, network.head.weight)


def test_a_paused_run_goes_on(small, photos, tmp_path):
    config = small(optimiser={"steps": 4})
    assert start(config, [photos], tmp_path, pause=0, show=lambda _: None, say=lambda _: None) is None
    assert start(config, [photos], tmp_path, show=lambda _: None, say=lambda _: None) is not None


def test_the_average_follows_the_network_and_soon_forgets_its_start(small, photos):
    run = run_for(small(optimiser={"ema": 0.5}), photos)
    before = run.average.head.weight.clone()
    run.step()
    torch.testing.assert_close(run.average.head.weight, 0.1 * before + 0.9 * run.network.head.weight)
    run.done = 100
    before = run.average.head.weight.clone()
    run.step()
    torch.testing.assert_close(run.average.head.weight, 0.5 * before + 0.5 * run.network.head.weight)


def test_the_rate_is_held_before_it_decays_to_zero(small, photos):
    optimiser = {"steps": 100, "warmup": 10, "rate": 1e-3, "hold": 0.6}
    rates = [run_for(small(optimiser=optimiser), photos).schedule(step) for step in (4, 10, 60, 80, 100)]
    assert rates == pytest.approx([5e-4, 1e-3, 1e-3, 5e-4, 0])


def test_a_start_gives_every_weight_that_fits(small, photos, tmp_path):
    torch.manual_seed(7)
    from thera.models.weights import save_safetensors

    source = Thera(Spec("edsr", "air"))
    save_safetensors(source, tmp_path / "air.safetensors", metadata={"training": [{"patches": 7}]})
    config = small(network={"variant": "plus"}, start=str(tmp_path / "air.safetensors"))
    network, earlier = initial_network(config)
    assert torch.equal(network.backbone.tail.weight, source.backbone.tail.weight)
    assert network.components.shape == (2, 512)
    assert earlier == [{"patches": 7}]


def test_fixed_kappa_stays_and_trainable_kappa_moves(small, photos):
    for rate, moves in ((0.0, False), (0.1, True)):
        run = run_for(small(optimiser={"kappa_rate": rate, "kappa": 0.05}), photos)
        for _ in range(2):
            run.step()
        assert (run.network.kappa.item() != pytest.approx(0.05, abs=1e-9)) is moves


@pytest.mark.parametrize(
    "network", [{"activation": "relu"}, {"predicted_components": True}, {"filter": "ideal"}]
)
def test_ablations_train(network, small, photos, tmp_path):
    run = run_for(small(network={"components": 8, **network}), photos)
    loop.train(run, tmp_path)
    assert np.isfinite(read_log(tmp_path)[-1]["l1"])


def test_a_checkpoint_of_another_network_is_refused(small, photos, tmp_path):
    run = run_for(small(), photos)
    checkpoint.save(tmp_path / loop.STATE, *run.state())
    with pytest.raises(InvalidInput, match=r"now given network\.components = 16, not 32: name"):
        start(small(network={"components": 16}), [photos], tmp_path, say=lambda _: None)
    (tmp_path / loop.STATE).write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="Cannot read the checkpoint"):
        start(small(), [photos], tmp_path, say=lambda _: None)


def test_a_run_goes_on_only_as_it_was_begun(small, photos, tmp_path):
    quiet = {"show": lambda _: None, "say": lambda _: None}
    start(small(optimiser={"steps": 1}), [photos], tmp_path, **quiet)
    weights = (tmp_path / loop.WEIGHTS).read_bytes()
    for changed, message in (
        ({"optimiser": {"steps": 3}}, "optimiser.steps = 3, not 1"),
        ({"optimiser": {"steps": 1, "method": "muon"}}, "optimiser.method = 'muon', not 'adam'"),
        ({"optimiser": {"steps": 1}, "seed": 7}, "seed = 7, not 0"),
    ):
        with pytest.raises(InvalidInput, match=message):
            start(small(**changed), [photos], tmp_path, **quiet)
    (photos / "0.png").unlink()
    with pytest.raises(InvalidInput, match="other images: name another --out"):
        start(small(optimiser={"steps": 1}), [photos], tmp_path, **quiet)
    assert (tmp_path / loop.WEIGHTS).read_bytes() == weights


def test_a_checkpoint_of_an_earlier_version_is_resumed(small, photos, tmp_path):
    """Their configurations have keys that were renamed or removed since."""
    config = small(objective={"ensemble_weight": 0.5}, optimiser={"steps": 2})
    run = run_for(config, photos)
    run.step()
    tensors, about = run.state()
    objective = about["config"]["objective"]
    objective["together"] = objective.pop("ensemble_weight")
    about["config"]["data"]["detail"] = objective["seam"] = 0.0
    checkpoint.save(tmp_path / loop.STATE, tensors, about)
    run.step()
    network = start(config, [photos], tmp_path, show=lambda _: None, say=lambda _: None)
    assert torch.equal(network.head.weight, run.average.head.weight)
    about["config"]["data"]["detail"] = 0.5
    checkpoint.save(tmp_path / loop.STATE, tensors, about)
    with pytest.raises(InvalidInput, match="Unknown key 'detail'"):
        start(config, [photos], tmp_path, say=lambda _: None)


def test_weights_that_are_not_finite_are_never_saved(small, photos, tmp_path):
    run = run_for(small(optimiser={"steps": 1}), photos)
    before = run.step

    def last_step():
        before()
        with torch.no_grad():
            run.network.head.bias.fill_(float("nan"))  # as after a gradient that overflowed

    run.step = last_step
    with pytest.raises(loop.DivergedError, match="not finite"):
        loop.train(run, tmp_path)
    assert not (tmp_path / loop.STATE).exists()


def test_ctrl_c_pauses_a_run_after_its_step(small, photos, tmp_path):
    run = run_for(small(optimiser={"steps": 9}), photos)
    before = run.step

    def interrupted_step():
        before()
        if run.done == 4:
            signal.raise_signal(signal.SIGINT)

    run.step = interrupted_step
    assert not loop.train(run, tmp_path)
    assert run.done == 4 and checkpoint.load(tmp_path / loop.STATE)[1]["done"] == 4


def test_slow_steps_are_reported_and_paused_in_time(small, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", 0)
    run = run_for(small(optimiser={"steps": 3}), photos)
    assert loop.train(run, tmp_path)
    assert [entry["step"] for entry in read_log(tmp_path)] == [1, 2, 3]
    run = run_for(small(optimiser={"steps": 3}), photos)
    before, until = run.step, time.monotonic() + 1

    def slow_step():
        before()
        time.sleep(max(0, until - time.monotonic()) + 1e-3)

    run.step = slow_step
    assert not loop.train(run, tmp_path / "paused", until=until) and run.done == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minutes": float("nan")}, "--minutes nan"),
        ({"pause": -1}, "--pause -1"),
        ({"device": "nosuch"}, "Unknown device 'nosuch'"),
        ({"folder": "photos/0.png/run"}, "cannot be made"),
    ],
)
def test_wrong_options_are_refused_before_any_work(small, photos, tmp_path, options, message):
    folder = tmp_path / options.pop("folder", "run")
    with pytest.raises(InvalidInput, match=message):
        start(small(), ["no-such-folder"], folder, **options)


def test_a_log_that_was_cut_off_is_read_and_continued_without_its_last_line(small, photos, tmp_path):
    (tmp_path / loop.LOG).write_text('{"step": 1}\n{"st')
    assert read_log(tmp_path) == [{"step": 1}]
    loop.train(run_for(small(optimiser={"steps": 2}), photos), tmp_path)
    assert [entry["step"] for entry in read_log(tmp_path)] == [1, 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"datas": {}}, "Unknown key 'datas'"),
        ({"data": {"batchsize": 3}}, r"Unknown key 'batchsize' in \[data\]"),
        ({"data": {"scales": [4, 2]}}, "data.scales"),
        ({"data": {"spread": "square"}}, "data.spread"),
        ({"data": {"detail": 0}}, r"Unknown key 'detail' in \[data\]"),
        ({"data": {"patch": "abc"}}, "data.patch = 'abc' .*a whole number"),
        ({"data": {"patch": True}}, "data.patch"),
        ({"data": {"scales": 2}}, "data.scales = 2 .*a list of 2 numbers"),
        ({"data": {"scales": [1, 2, 3]}}, "data.scales"),
        ({"data": {"scales": [1.2, float("inf")]}}, "data.scales = inf"),
        ({"data": {"resized": [0.5, "x"]}}, "data.resized = 'x'"),
        ({"objective": {"tv": float("nan")}}, "objective.tv"),
        ({"objective": {"seam": 0}}, r"Unknown key 'seam' in \[objective\]"),
        ({"objective": {"together": 0}}, r"Unknown key 'together' in \[objective\]"),
        ({"objective": {"ensemble_weight": 1.5}}, "objective.ensemble_weight"),
        ({"optimiser": {"betas": [2, 3]}}, "optimiser.betas"),
        ({"optimiser": {"warmup": -5}}, "optimiser.warmup"),
        ({"optimiser": {"hold": 1.0}}, "optimiser.hold"),
        ({"network": {"components": -3}}, "-3 components"),
        ({"network": {"predicted_components": 1}}, "network.predicted_components = 1 .*true or false"),
        ({"seed": "abc"}, "seed = 'abc'"),
        ({"start": 3}, "start = 3 .*text"),
        ({"objective": {"loss": "l3"}}, "objective.loss"),
        ({"optimiser": {"rate": -1}}, "optimiser.rate"),
        ({"network": {"variant": "ultra"}}, "unknown variant 'ultra'"),
        ({"data": 3}, r"\[data\] must be a table"),
    ],
)
def test_a_configuration_with_a_mistake_says_which(values, message):
    with pytest.raises((InvalidInput, ModelError), match=message):
        Config.parse(values)


def test_changes_set_keys_of_a_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[data]\nbatch = 8\n[optimiser]\nrate = 1e-3\n")
    config = Config.read(path, ["optimiser.rate=2e-4", "data.scales=[2, 3]", "start=edsr-air", "seed=3"])
    assert config.optimiser.rate == 2e-4 and config.data.scales == (2, 3) and config.data.batch == 8
    assert config.start == "edsr-air" and config.seed == 3
    with pytest.raises(InvalidInput, match="Unknown key 'speed'"):
        Config.read(path, ["optimiser.speed=1"])
    with pytest.raises(InvalidInput, match="KEY=VALUE"):
        Config.read(path, ["seed"])
    with pytest.raises(InvalidInput, match="a single value"):
        Config.read(path, ["data.batch.x=3"])
    with pytest.raises(InvalidInput, match="not a TOML file"):
        Config.read(tmp_path)


def test_without_a_length_a_run_does_not_begin(small, photos, tmp_path):
    with pytest.raises(InvalidInput, match="no length"):
        start(small(optimiser={"steps": 0}), [photos], tmp_path)


PROCESS = """
import json, sys, torch, torch.distributed as dist
torch.set_num_threads(1)
from thera.training import loop
from thera.training.config import Config
from thera.training.data import Sampler
from thera.training.images import read_images
from thera.training.run import initial_network
dist.init_process_group("gloo")
assert loop.agreed(dist.get_rank()) == 0
config = Config.parse(json.loads(sys.argv[1]))
torch.manual_seed(0)
run = loop.Run(config, Sampler(read_images([sys.argv[2]], 48), config.data), initial_network(config)[0], 2)
torch.manual_seed(1)
run.step(); run.step()
if dist.get_rank() == 0:
    torch.save({k: v for k, v in run.network.state_dict().items()}, sys.argv[3])
dist.destroy_process_group()
"""


def test_two_processes_train_as_one_with_the_same_total_batch(small, photos, tmp_path):
    values = {"data": {"patch": 12, "batch": 4}, "optimiser": {"steps": 2, "warmup": 1}}
    config = Config.parse(values)
    torch.manual_seed(0)
    alone = loop.Run(config, Sampler(read_images([photos], 48), config.data), initial_network(config)[0], 2)
    torch.manual_seed(1)
    alone.step()
    alone.step()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    arguments = [sys.executable, "-c", PROCESS, json.dumps(values), str(photos), str(tmp_path / "two.pt")]
    common = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [subprocess.Popen(arguments, env=common | {"RANK": str(rank)}) for rank in (0, 1)]
    assert [p.wait(120) for p in processes] == [0, 0]
    together = torch.load(tmp_path / "two.pt", weights_only=True)
    # Adam divides by the gradient's own size, so a weight without a gradient may move by rounding alone:
    # compare as one vector.
    one = torch.cat([v.flatten() for v in alone.network.state_dict().values()])
    other = torch.cat([together[k].flatten() for k in alone.network.state_dict()])
    start = torch.cat([v.flatten() for v in initial_network_again(config).state_dict().values()])
    assert (one - other).norm() < 1e-3 * (one - start).norm()


def initial_network_again(config):
    torch.manual_seed(0)
    return initial_network(config)[0]


def test_the_command_trains_and_draws_the_run(photos, tmp_path):
    (tmp_path / "air.toml").write_text("[data]\npatch = 12\nbatch = 1\n")
    arguments = ["train", tmp_path / "air.toml", "--data", photos, photos, "--out", tmp_path / "run"]
    arguments += ["--validate", photos, "--scales", "3", "--set", "seed=1", "optimiser.steps=2"]
    done = subprocess.run(
        [sys.executable, "-m", "thera", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "photos ×3" in done.stderr
    assert (tmp_path / "run" / "run.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidInput, match=r"missing\.toml"):  # which the program prints as a sentence
        CliRunner().invoke(train_command, ["missing.toml", "--data", str(photos)], catch_exceptions=False)

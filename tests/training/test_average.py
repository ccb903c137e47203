"""The mean of several networks: of their weights, and the merged history of their training."""

import pytest
import torch
from click.testing import CliRunner

from thera.cli.average import command
from thera.errors import InvalidInput, TheraError
from thera.models.weights import load_safetensors, save_safetensors
from thera.networks import Spec, Thera
from thera.training.average import average, merged

AIR = Spec("edsr", "air")


def saved(path, seed, *stages, spec=AIR):
    torch.manual_seed(seed)
    network = Thera(spec)
    save_safetensors(network, path, "f32", {"training": list(stages)} if stages else {})
    return network


def test_every_weight_is_the_mean_and_each_stage_is_listed_once(tmp_path):
    first, second, last = {"start": "", "seed": 1}, {"start": "a", "seed": 2}, {"start": "b", "seed": 3}
    a = saved(tmp_path / "a.safetensors", 0, first, second)
    b = saved(tmp_path / "b.safetensors", 1, first, second, last)
    network, about = average([tmp_path / "b.safetensors", tmp_path / "a.safetensors"])
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, (a.state_dict()[name] + b.state_dict()[name]) / 2)
    assert about["training"] == [first, second, last, {"mean": [2, 3]}]


def test_the_stages_of_a_mean_are_numbered_anew_among_others(tmp_path):
    first, second, third, other = ({"start": "", "seed": seed} for seed in range(4))
    saved(tmp_path / "mean.safetensors", 0, first, second, third, {"mean": [2, 3]})
    saved(tmp_path / "other.safetensors", 1, first, other)
    _, about = average([tmp_path / "other.safetensors", tmp_path / "mean.safetensors"])
    assert about["training"] == [first, other, second, third, {"mean": [3, 4]}, {"mean": [2, 5]}]


def test_starts_are_numbered_anew_in_the_merged_history():
    first, second, third = ({"start": f"stage {n}" if n else ""} for n in range(3))
    other = {"start": "stage 1", "seed": 1}
    assert merged([[first, second], [first, other, third]])[-3:-1] == [other, {"start": "stage 3"}]


def run(*arguments):
    return CliRunner().invoke(command, list(map(str, arguments)))


def test_the_command_writes_a_model_that_loads(tmp_path):
    for seed, name in enumerate("ab"):
        saved(tmp_path / f"{name}.safetensors", seed)
    out = tmp_path / "mean.safetensors"
    result = run(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "-o", out)
    assert result.exit_code == 0 and str(out) in result.stderr
    assert load_safetensors(out)[0].spec == AIR
    (tmp_path / "any").touch()
    assert out.stat().st_mode == (tmp_path / "any").stat().st_mode  # safetensors' own are their owner's alone
    missing, other = tmp_path / "none.safetensors", tmp_path / "other.safetensors"
    for arguments, message in (
        ((out, out, "-o", tmp_path / "mean.onnx"), "must end in"),
        ((out, out, "-o", out), "exists: pass --overwrite"),
        ((out, missing, "-o", other), "none.safetensors"),
    ):
        error = run(*arguments).exception
        assert isinstance(error, TheraError) and message in str(error)


def test_one_file_and_other_networks_have_no_mean(tmp_path):
    air, plus = tmp_path / "air.safetensors", tmp_path / "plus.safetensors"
    saved(air, 0)
    saved(plus, 0, spec=Spec("edsr", "plus"))
    with pytest.raises(InvalidInput, match="two networks or more"):
        average([air])
    with pytest.raises(
        InvalidInput, match=r"air\.safetensors is edsr-air and .*plus\.safetensors is edsr-plus"
    ):
        average([air, plus])
    assert run(air, plus, "-o", tmp_path / "mean.safetensors").exit_code == 1
    assert not (tmp_path / "mean.safetensors").exists()

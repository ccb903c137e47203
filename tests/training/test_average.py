"""The mean of several networks: of their weights, and of what is known of them."""

import pytest
import torch

from thera.errors import InvalidInput
from thera.models.weights import load_safetensors, save_safetensors
from thera.networks import Spec, Thera
from thera.training.average import average, main

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


def test_the_command_writes_a_model_that_loads(tmp_path, capsys):
    for seed, name in enumerate("ab"):
        saved(tmp_path / f"{name}.safetensors", seed)
    out = tmp_path / "mean.safetensors"
    main([str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors"), "-o", str(out)])
    assert load_safetensors(out)[0].spec == AIR
    assert str(out) in capsys.readouterr().out
    (tmp_path / "any").touch()
    assert out.stat().st_mode == (tmp_path / "any").stat().st_mode  # safetensors' own are their owner's alone
    with pytest.raises(SystemExit, match="must end in"):
        main([str(out), str(out), "-o", str(tmp_path / "mean.onnx")])
    with pytest.raises(SystemExit, match="exists: pass --overwrite"):
        main([str(out), str(out), "-o", str(out)])
    with pytest.raises(SystemExit, match=r"error: .*none\.safetensors"):
        main([str(out), str(tmp_path / "none.safetensors"), "-o", str(tmp_path / "other.safetensors")])


def test_one_file_and_other_networks_have_no_mean(tmp_path):
    air, plus = tmp_path / "air.safetensors", tmp_path / "plus.safetensors"
    saved(air, 0)
    saved(plus, 0, spec=Spec("edsr", "plus"))
    with pytest.raises(InvalidInput, match="two files or more"):
        average([air])
    with pytest.raises(InvalidInput, match=r"air\.safetensors is edsr-air, .*plus\.safetensors edsr-plus"):
        average([air, plus])
    with pytest.raises(SystemExit, match="error: only networks of one kind"):
        main([str(air), str(plus), "-o", str(tmp_path / "mean.safetensors")])
    assert not (tmp_path / "mean.safetensors").exists()

"""Other methods train through the same runs: they learn, are stored, loaded, continued and refused."""

import numpy as np
import pytest
import torch

import thera
from thera.errors import InvalidInput, ModelError
from thera.networks.spec import DECODERS
from thera.training import loop
from thera.training.data import Sampler
from thera.training.images import read_images
from thera.training.run import initial_network, progress_line, read_log, start


def weights_of(folder):
    return thera.models.load_network(folder / "weights.safetensors")[0].state_dict()


@pytest.mark.parametrize("name", DECODERS)
def test_every_decoder_trains_and_its_file_is_a_model(name, small, photos, tmp_path):
    scales = [4, 4] if name == "sinc" else [1.2, 4]
    config = small(network={"variant": name}, data={"scales": scales, "patch": 8}, optimiser={"steps": 2})
    network = start(config, [photos], tmp_path / "run", device="cpu", show=lambda _: None)
    assert network is not None
    decoder = [p for n, p in network.named_parameters() if n.startswith("decoder.")]
    assert all(torch.isfinite(p).all() for p in decoder)
    (entry, *_) = read_log(tmp_path / "run")
    assert "kappa" not in entry
    assert "κ" not in progress_line(entry)
    model = thera.load(tmp_path / "run" / "weights.safetensors", device="cpu")
    assert (model.name, model.info.spec.variant) == (f"edsr-{name}", name)
    assert model.upscale(np.full((6, 7, 3), 0.5, np.float32), size=(15, 20)).shape == (15, 20, 3)


def test_a_decoder_learns(small, photos):
    config = small(network={"variant": "liif"}, optimiser={"rate": 1e-3})
    torch.manual_seed(0)
    run = loop.Run(config, Sampler(read_images([photos], 48), config.data), initial_network(config)[0], 100)

    def loss(steps):
        for _ in range(steps):
            run.step()
        return run.report()  # the mean of these steps

    first, _, last = loss(5), loss(40), loss(5)
    assert last < 0.6 * first


def test_a_run_starts_from_anothers_backbone_and_refuses_anothers_checkpoint(small, photos, tmp_path):
    quiet = {"device": "cpu", "show": lambda _: None}
    config = small(network={"variant": "metasr"}, start="edsr-air", optimiser={"steps": 1, "rate": 1e-9})
    start(config, [photos], tmp_path, **quiet)
    backbone = thera.models.load_network("edsr-air")[0].state_dict()["backbone.head.weight"]
    torch.testing.assert_close(weights_of(tmp_path)["backbone.head.weight"], backbone, atol=1e-6, rtol=0)
    with pytest.raises(InvalidInput, match="not 'metasr'"):
        start(small(network={"variant": "liif"}), [photos], tmp_path, **quiet)
    with pytest.raises((InvalidInput, ModelError), match="unknown variant 'lief'"):
        small(network={"variant": "lief"})

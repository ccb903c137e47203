"""On a GPU a field gives what it gives on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from field_reference import random_field

import thera.field as tf


@pytest.mark.gpu
def test_a_field_on_the_gpu_reads_as_on_the_cpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    cpu = random_field(shape=(33, 29), c=64)
    gpu = random_field(shape=(33, 29), c=64, asarray=lambda array: torch.asarray(array, device="cuda"))
    points = np.random.default_rng(0).random((500, 2)) * cpu.shape
    homography = np.array([[0.9, 0.1, 1.0], [-0.1, 0.8, 2.0], [0.004, 0.01, 1.0]])
    readings = [
        lambda field: field.render(scale=4),
        lambda field: field.render(scale=3.7, region=(2, 3.3, 20, 21)),
        lambda field: field.render(scale=0.3),
        lambda field: field.render(scale=2, psf=tf.Transfer(lambda nu1, nu2: np.exp(-(nu1**2)))),
        lambda field: field.laplacian(scale=2),
        lambda field: field.sample(points),
        lambda field: field.sample(points, tf.Box(), jacobian=np.diag([3.0, 0.5])),
        lambda field: field.warp(homography, (40, 30)),
        lambda field: field.warp(lambda p: p * 0.5 + 3, (30, 30)),
        lambda field: field.warp(np.diag([2.5, 3.0, 1.0]), (13, 9)),
    ]
    for read in readings:
        with torch.no_grad():
            there = read(gpu)
        assert there.is_cuda
        here = read(cpu)
        np.testing.assert_allclose(there.cpu().numpy(), here, atol=1e-5 * max(1.0, np.abs(here).max()))

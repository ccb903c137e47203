"""Three processes give what one does, also when one of them dies, and what they lack is said."""

import os
import signal
import subprocess
import sys
import time

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import thera
from thera.dask import clusters, tasks, upscale
from thera.errors import ClusterError

SCALE = 1.4


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 65536, (420, 280, 3), np.uint16)


@pytest.fixture(scope="module")
def whole(image) -> np.ndarray:
    return thera.upscale(image, SCALE, model="edsr-air")


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, memory_limit=0, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def lazily(image: np.ndarray) -> da.Array:
    lazy = upscale(da.from_array(image, (140, 140, 3)), SCALE, "edsr-air")
    assert lazy.npartitions == 6
    return lazy


def assert_equal(scaled: np.ndarray, whole: np.ndarray) -> None:
    assert scaled.dtype == whole.dtype
    assert np.abs(scaled.astype(int) - whole).max() <= 1  # of 65,535: 1e-5 is less than a step


def test_three_processes_give_what_one_does_and_load_the_model_once_each(client, image, whole):
    assert_equal(lazily(image).compute(), whole)
    loads = client.run(lambda: tasks._load.cache_info().misses)
    assert len(loads) == 3
    assert max(loads.values()) == 1
    assert sum(loads.values()) > 1  # no worker does it all


def test_percentiles_and_nodata_are_the_same_on_several_processes(client, image):
    scene = image[:280, :160, :2].astype(np.float32)
    scene[100:150, 50:90] = np.nan
    options = {"value_range": "2%:98%", "groups": [], "nodata": np.nan}
    lazy = upscale(da.from_array(scene, (140, 160, 1)).persist(), SCALE, "edsr-air", **options)
    # 1e-5 of 65,535, and NaN in the same places
    np.testing.assert_allclose(
        lazy.compute(), thera.upscale(scene, SCALE, model="edsr-air", **options), atol=0.7
    )


def test_a_worker_that_is_killed_loses_nothing(client, image, whole):
    processes = client.run(os.getpid)
    running = client.compute(lazily(image))
    busy = None
    deadline = time.monotonic() + 30
    while busy is None and time.monotonic() < deadline:
        time.sleep(0.05)
        working = {where for where, keys in client.processing().items() if "upscale_chunk" in str(keys)}
        done = {where for where, keys in client.has_what().items() if "upscale_chunk" in str(keys)}
        busy = next(iter(working & done), None)  # what it has made is lost with it
    assert busy is not None
    os.kill(processes[busy], signal.SIGKILL)
    scaled = running.result(timeout=60)
    assert busy not in client.scheduler_info()["workers"]
    assert_equal(scaled, whole)


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked")
def test_workers_do_not_hear_of_ctrl_c_and_the_program_does():
    def blocked():
        return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    with clusters.connected(None) as client:
        assert list(client.run(blocked).values()) == [True]
    assert not blocked()


def test_a_scheduler_that_does_not_answer_is_said(monkeypatch):
    monkeypatch.setattr(clusters, "PATIENCE", 1)
    with (
        pytest.raises(ClusterError, match="No Dask scheduler answers at tcp"),
        clusters.connected("tcp://127.0.0.1:9"),
    ):
        pass
    with pytest.raises(ClusterError, match="reads like tcp://host:8786"), clusters.connected("no address"):
        pass


@pytest.fixture
def scheduler():
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster:
        yield cluster.scheduler_address


def test_a_scheduler_without_workers_is_said(scheduler, monkeypatch):
    monkeypatch.setattr(clusters, "PATIENCE", 1)
    with pytest.raises(ClusterError, match="has no workers: start some"), clusters.connected(scheduler):
        pass


@pytest.mark.parametrize(
    ("disguise", "sentence"),
    [
        ("import sys; sys.modules['thera'] = None", "has no thera and this is thera"),
        ("import thera; thera.__version__ = '0.0.1'", "has thera 0.0.1 and this is thera"),
    ],
)
def test_a_worker_without_the_package_or_with_another_is_said(
    scheduler, tmp_path, monkeypatch, disguise, sentence
):
    monkeypatch.setattr(clusters, "PATIENCE", 60)  # for Python to start on a busy machine
    (tmp_path / "disguise.py").write_text(disguise)
    options = ["--preload", tmp_path / "disguise.py", "--no-nanny", "--no-dashboard"]
    command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, *options]
    worker = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
    try:
        with pytest.raises(ClusterError, match=sentence), clusters.connected(scheduler):
            pass
        with Client(scheduler), pytest.raises(ClusterError, match=sentence):
            upscale(da.zeros((9, 9), chunks=9), 2, "edsr-air")
    finally:
        worker.terminate()
        worker.wait(timeout=20)

"""ncnn and OpenVINO compute what ONNX Runtime does, and the fastest is found by measuring."""

import json
import os
import subprocess
import sys
import threading
import time
from threading import Event

import numpy as np
import pytest

from thera.errors import InvalidInput, MissingDependency, ModelError
from thera.models import choosing, load, save_safetensors, shipped
from thera.models.beside import side_by_side
from thera.models.choosing import Candidate, choose, refresh
from thera.models.engine import default_threads
from thera.models.engines import Files
from thera.models.ncnn_engine import NcnnEngine, vulkan_count
from thera.models.ncnn_graph import build
from thera.models.onnx_engine import OnnxEngine
from thera.models.onnx_templates import complete
from thera.models.openvino_engine import _limit_of_cpu
from thera.models.weights import read_tensors
from thera.networks import Spec, Thera

SHIPPED = {model.name: model for model in shipped()}
ALL = ("edsr-air", "edsr-plus", "edsr-pro")


@pytest.fixture(scope="module")
def engines():
    return {
        name: (
            OnnxEngine(complete(SHIPPED[name].safetensors), 1),
            NcnnEngine(SHIPPED[name].safetensors, threads=1),
        )
        for name in ALL
    }


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 3), (17, 23), (40, 33)])
@pytest.mark.parametrize("name", ALL)
def test_ncnn_computes_the_features_of_onnx_runtime(name, shape, engines):
    image = np.random.default_rng(3).random((*shape, 3), np.float32)
    expected, features = (engine.features(engine.asarray(image)) for engine in engines[name])
    assert features.shape == expected.shape
    assert np.abs(features - expected).max() < 1e-4


@pytest.mark.parametrize("name", ALL)
def test_features_do_not_depend_on_how_ncnn_cuts_an_image_into_bands(name, engines, monkeypatch):
    image = np.random.default_rng(4).random((37, 22, 3), np.float32)
    whole = engines[name][1].features(image)  # of one band
    several = NcnnEngine(SHIPPED[name].safetensors, threads=3)
    for tiles, across in ((1, 100), (20, 100), (20, 4), (20, 1)):  # 1, 1, 2 and 6 panels
        monkeypatch.setattr("thera.models.ncnn_bands.TILES", tiles)
        monkeypatch.setattr("thera.models.ncnn_bands.ACROSS", across)
        monkeypatch.setattr("thera.models.ncnn_windows.WINDOWS", tiles)
        for engine in (engines[name][1], several):
            difference = np.abs(engine.features(image) - whole).max()
            assert difference == 0 if name == "edsr-air" else difference < 1e-5


def test_a_thread_goes_on_with_the_next_stage_while_another_ends_this_one():
    from thera.models.ncnn_bands import Order

    order = Order(stages=2, parts=4)
    slow, fast = order.tasks(), order.tasks()
    assert next(fast) == (0, 0)
    assert next(fast) == (0, 1)
    assert next(fast) == (0, 2)
    assert next(slow) == (0, 3)
    assert [next(fast), next(fast)] == [(1, 0), (1, 1)]  # which read nothing of part 3
    waiting = threading.Thread(target=lambda: parts.append(next(fast)), daemon=True)
    parts: list[tuple[int, int]] = []
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive() and not parts  # part 2 of stage 1 reads part 3
    assert next(slow) == (1, 3)
    waiting.join(10)
    assert parts == [(1, 2)]
    assert [*slow, *fast] == []


@pytest.mark.parametrize(("threads", "parts"), [(1, 1), (2, 2), (2, 5), (3, 4), (4, 4)])
def test_each_part_is_computed_once_after_those_that_it_reads_and_before_they_are_overwritten(threads, parts):
    from thera.models.ncnn_bands import Order

    order, rows, stages = Order(30, parts), [[0] * parts for _ in range(2)], []

    def work() -> None:
        for stage, part in order.tasks():
            beside = slice(max(part - 1, 0), part + 2)
            before = rows[stage % 2][beside]
            time.sleep(0.0001 * ((7 * stage + 3 * part) % 4))  # some parts take longer
            read = rows[stage % 2][beside]
            rows[1 - stage % 2][part] = stage + 1
            stages.append((stage, part, set(before) | set(read)))

    team = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join(30)
    assert sorted(task[:2] for task in stages) == [(s, p) for s in range(30) for p in range(parts)]
    assert all(read == {stage} for stage, _, read in stages)  # the result of the stage before


def test_who_waits_for_a_part_ends_if_another_thread_fails():
    from thera.models.ncnn_bands import Order

    order = Order(stages=2, parts=1)
    failing, parts = order.tasks(), []
    next(failing)
    waiting = threading.Thread(target=lambda: parts.extend(order.tasks()), daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    order.stop()
    waiting.join(10)
    assert not waiting.is_alive() and parts == []


def test_a_result_of_ncnn_of_another_shape_or_type_is_refused(monkeypatch):
    from thera.models.ncnn_maps import Worker, view, zeros

    # Groups, rows, columns, channels of a group.
    given, target = (zeros((2, 3, columns, 4), np.dtype(np.float32)) for columns in (7, 5))
    given[:] = np.arange(given.size).reshape(given.shape)

    def run(**change):
        mat = view(given, 0, 3)
        for name, value in change.items():
            setattr(mat, name, value)
        monkeypatch.setattr(Worker, "extract", lambda self, inputs, output: mat)
        Worker(None).run({}, "", target, left=1)

    run()
    assert np.array_equal(target, given[:, :, 1:6])
    for change in ({"c": 1}, {"h": 2}, {"elempack": 1}, {"elemsize": 8}):
        with pytest.raises(ModelError, match="unexpected shape"):
            run(**change)


def test_an_error_in_one_of_several_threads_ends_the_others(monkeypatch):
    from thera.models import ncnn_bands

    class Worker(ncnn_bands.Worker):
        def __init__(self, net):
            super().__init__(net)
            if threading.current_thread() is not caller:
                raise MemoryError("for a test")

    caller = threading.current_thread()
    engine = NcnnEngine(SHIPPED["edsr-air"].safetensors, threads=2)
    monkeypatch.setattr(ncnn_bands, "Worker", Worker)
    with pytest.raises(MemoryError, match="for a test"):
        engine._compute(np.zeros((40, 8, 3), np.float32), threading.Event())


@pytest.mark.parametrize("name", ALL)
def test_ncnn_reads_the_same_last_layer_and_description(name, engines):
    onnx, ncnn = engines[name]
    assert onnx.metadata == ncnn.metadata
    for array in ("weight", "bias", "components"):
        assert np.array_equal(getattr(onnx.head, array), getattr(ncnn.head, array)), array
    assert onnx.head.kappa == ncnn.head.kappa


def psnr(a, b):
    return -10 * np.log10(np.square(a - b).mean())


@pytest.mark.parametrize("name", ALL)
def test_bf16_changes_a_picture_by_less_than_its_own_rounding_to_8_bits(name, photograph):
    exact, rounded = (load(name, "ncnn", "cpu", p, threads=1).upscale(photograph, 2) for p in ("f32", "bf16"))
    assert 58 < psnr(exact, rounded) < 90  # rounding to 8 bits is at 58.9 dB; and bf16 is in use
    assert load(name, "ncnn", "cpu", "bf16").info.precision == "bf16"


def test_openvino_computes_the_features_of_onnx_runtime(engines, photograph):
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    for name in ALL[:2]:
        onnx, openvino = engines[name][0], load(name, "openvino", "cpu", threads=1)._engine
        assert np.abs(onnx.features(photograph) - openvino.features(photograph)).max() < 1e-4
        assert np.array_equal(onnx.head.weight, openvino.head.weight)


def test_ctrl_c_is_safe_after_another_thread_dropped_openvino_s_model():
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    code = """
import signal, threading
from thera.models import load

signal.signal(signal.SIGINT, signal.default_int_handler)
models = [load("edsr-air", "openvino", "cpu", threads=1)]
thread = threading.Thread(target=models.clear)
thread.start()
thread.join()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "interrupted\n", (run.returncode, run.stderr)


@pytest.mark.parametrize("most", ["AVX2", "AVX512_CORE", "avx512_core_vnni"])
def test_openvino_refuses_16_bits_that_the_environment_forbids(monkeypatch, most):
    """They would end the program: oneDNN heeds the variable, and OpenVINO's choice of kernels does not."""
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", most)
    assert _limit_of_cpu() == f"ONEDNN_MAX_CPU_ISA={most.upper()}"
    with pytest.raises(InvalidInput, match="use f32"):
        load("edsr-air", "openvino", precision="bf16")
    assert load("edsr-air", "openvino", precision="f32").info.engine == "openvino"
    for enough in ("", "ALL", "AVX512_CORE_BF16", "AVX512_CORE_AMX"):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", enough)
        assert _limit_of_cpu() == ""


def test_onnx_files_on_cuda_need_no_pytorch(tmp_path):
    """PyTorch, where it is installed, could not read them."""
    (tmp_path / "air.onnx").write_bytes(complete(SHIPPED["edsr-air"].safetensors))
    assert Files(tmp_path / "air.onnx", None).candidates("cuda", "f32") == [Candidate("onnx", "cuda")]


def test_the_comparison_of_slow_engines_takes_one_round():
    calls = []

    class Slow:
        def asarray(self, image):
            return image

        def features(self, image):
            calls.append(1)
            time.sleep(0.01)
            return image

    for enough, each in ((0.0, 2), (60.0, 1 + choosing.ROUNDS)):
        calls.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choosing, "ENOUGH", enough)
            choosing.measure({Candidate("slow", "cpu"): Slow})
        assert len(calls) == each


def test_openvino_names_the_devices_that_it_finds():
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    with pytest.raises(InvalidInput, match=r"no device 'npu:7': it has .*cpu"):
        load("edsr-air", device="npu:7")
    with pytest.raises(InvalidInput, match="not in tf32"):
        load("edsr-air", "openvino", precision="tf32")


def test_a_network_that_ncnn_cannot_run_is_named(tmp_path):
    save_safetensors(Thera(Spec("edsr", "air", predicted_components=True)), tmp_path / "mine.safetensors")
    with pytest.raises(ModelError, match="cannot run this edsr-air"):
        load(tmp_path / "mine.safetensors", "ncnn")
    with pytest.raises(ModelError, match="runs edsr-pro on the CPU alone"):
        load("edsr-pro", device="vulkan")


def test_ncnn_refuses_files_that_lack_a_parameter_or_have_another_shape():
    tensors = read_tensors(SHIPPED["edsr-air"].safetensors)
    spec = Spec("edsr", "air")
    without = {name: tensor for name, tensor in tensors.items() if name != "backbone.tail.bias"}
    with pytest.raises(ModelError, match=r"mine lacks the parameter backbone\.tail\.bias"):
        build(spec, without, "mine")
    with pytest.raises(ModelError, match=r"backbone\.tail\.bias of shape \(3,\): it must be \(64,\)"):
        build(spec, tensors | {"backbone.tail.bias": np.zeros(3)}, "mine")


def test_a_trained_model_runs_without_pytorch(tmp_path, monkeypatch):
    save_safetensors(Thera(Spec("edsr", "air")), tmp_path / "mine.safetensors")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert load(tmp_path / "mine.safetensors").info.engine in ("onnx", "ncnn")  # the faster one


def test_what_a_device_or_a_build_does_not_have_is_said():
    for device, package in (
        ("coreml", "macOS"),
        ("directml", "onnxruntime-directml"),
        ("openvino", "engine"),
    ):
        with pytest.raises(InvalidInput, match=f"no {device}: install .*{package}"):
            load("edsr-air", device=device)
    with pytest.raises(InvalidInput, match="no device 'npu': use cpu, cuda"):
        load("edsr-air", "onnx", "npu")
    with pytest.raises(InvalidInput, match="no device 'npu': use cpu or vulkan"):
        load("edsr-air", "ncnn", "npu")
    with pytest.raises(InvalidInput, match="f32 or bf16, not in f16"):
        load("edsr-air", "ncnn", "cpu", "f16")
    with pytest.raises(InvalidInput, match="no 'vulkan:99'"):
        load("edsr-air", device="vulkan:99")


def test_ncnn_computes_the_same_features_on_vulkan():
    """In a process of its own, whose exit status shows that the driver is left in order."""
    if not vulkan_count():
        lacking = "this test needs a Vulkan device: install mesa-vulkan-drivers for one in software"
        if os.environ.get("THERA_REQUIRE_VULKAN") == "1":
            pytest.fail(f"THERA_REQUIRE_VULKAN is 1, and {lacking}")
        pytest.skip(lacking)
    code = """
import numpy as np, thera
image = np.random.default_rng(0).random((9, 13, 3), np.float32)
for precision in ("f32", "f16"):
    vulkan, cpu = thera.load("edsr-air", device="vulkan", precision=precision), thera.load("edsr-air", "onnx")
    print(vulkan.info.device, np.abs(vulkan.encode(image).features - cpu.encode(image).features).max())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    results = [line.split() for line in run.stdout.splitlines()]
    assert [device for device, _ in results] == ["vulkan", "vulkan"]
    single, half = (float(difference) for _, difference in results)
    assert single < 1e-4 < half < 0.2  # features have a standard deviation of 1.2


def test_a_missing_ncnn_is_named_or_done_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "ncnn", None)
    assert load("edsr-air").info.engine == "onnx"
    with pytest.raises(MissingDependency, match="pip install ncnn"):
        load("edsr-air", "ncnn")


def test_candidates_are_those_that_can_run_the_model(monkeypatch):
    there = {"ncnn", "openvino", "torch"}
    monkeypatch.setattr("thera.models.engines.installed", lambda package: package in there)

    def names(model, device="auto", precision="f32"):
        files = Files(None, SHIPPED[model].safetensors)
        return [tuple(candidate) for candidate in files.candidates(device, precision)]

    assert names("edsr-plus") == [("onnx", "cpu"), ("ncnn", "cpu")]
    assert names("edsr-pro", "cpu") == [("onnx", "cpu"), ("ncnn", "cpu")]
    assert names("edsr-pro", precision="bf16") == [("ncnn", "cpu"), ("openvino", "cpu")]
    assert names("edsr-air", precision="bf16") == [("ncnn", "cpu"), ("openvino", "cpu")]
    assert names("edsr-air", precision="tf32") == [("torch", "auto")]
    assert names("edsr-air", "cuda:1") == [("torch", "cuda:1")]
    assert names("edsr-air", "vulkan:0") == [("ncnn", "vulkan:0")]
    assert names("edsr-air", "gpu") == [("openvino", "gpu")]
    there.clear()
    assert names("edsr-plus") == [("onnx", "cpu")]
    assert names("edsr-air", "cuda") == [("onnx", "cuda")]


class Fake:
    """An engine that takes so many seconds of a clock that nothing else moves."""

    made = 0
    clock = 0.0

    def __init__(self, seconds):
        Fake.made += 1
        self.seconds = seconds

    def asarray(self, image):
        return image

    def features(self, image):
        Fake.clock += self.seconds
        return image


def makers(*seconds):
    def maker(s):
        def make():
            if s is None:
                raise InvalidInput("no such device")
            return Fake(s)

        return make

    return {Candidate(f"e{i}", "cpu"): maker(s) for i, s in enumerate(seconds)}


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("thera.models.choosing.perf_counter", lambda: Fake.clock)
    Fake.made = 0
    return tmp_path / "thera" / "engines.json"


def test_the_fastest_engine_is_measured_until_two_runs_agree_and_then_remembered(cache):
    first = choose("model", "f32", 0, makers(0.05, 0.005, 0.2))
    assert first.engine.seconds == 0.005 and Fake.made == 3
    assert "e1 on cpu" in first.why and "times" in first.why
    assert choose("model", "f32", 0, makers(0.05, 0.005, 0.2)).engine.seconds == 0.005 and Fake.made == 6
    for count in (7, 8):
        again = choose("model", "f32", 0, makers(0.05, 0.005, 0.2))
        assert again.engine.seconds == 0.005 and Fake.made == count
        assert again.why.startswith("measured on this machine, with the speed of e0 on cpu as 1: e1")
    choose("another", "f32", 0, makers(0.05, 0.005))
    assert len(json.loads(cache.read_text())) == 2


def test_a_measurement_on_a_busy_machine_does_not_stick(cache):
    names = Candidate("e0", "cpu"), Candidate("e1", "cpu")
    busy, quiet = makers(0.02, 0.06), makers(0.02, 0.004)
    assert choose("model", "f32", 0, busy).engine.seconds == 0.02
    for _ in range(2):
        assert choose("model", "f32", 0, quiet).engine.seconds == 0.004
    assert Fake.made == 6  # the first two disagreed
    # From now on it is remembered, whatever the machine is busy with.
    assert choose("model", "f32", 0, busy).engine.seconds == 0.06 and Fake.made == 7
    assert set(refresh("model", "f32", 0, busy)) == set(names)
    assert choose("model", "f32", 0, busy).engine.seconds == 0.02


def test_nothing_slower_than_the_reference_is_chosen_and_a_failing_engine_is_left_out(cache):
    assert choose("model", "f32", 0, makers(0.005, 0.05, None)).engine.seconds == 0.005
    with pytest.raises(ModelError, match="no such device"):
        choose("other", "f32", 0, makers(None, None))


def test_a_lone_candidate_is_not_measured(cache):
    assert choose("model", "f32", 0, makers(0.01)).why == ""
    assert not cache.exists()


def test_a_damaged_or_unwritable_cache_costs_only_a_measurement(cache, monkeypatch, tmp_path):
    cache.parent.mkdir()
    cache.write_text("[1, 2")
    assert choose("model", "f32", 0, makers(0.05, 0.005)).engine.seconds == 0.005
    kept = json.loads(cache.read_text())
    cache.write_text(json.dumps({key: {"seconds": {"e1 on cpu": "?"}, "agreed": True} for key in kept}))
    assert choose("model", "f32", 0, makers(0.05, 0.005)).engine.seconds == 0.005
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert choose("model", "f32", 0, makers(0.05, 0.005)).engine.seconds == 0.005


def test_a_remembered_engine_that_stopped_working_is_replaced(cache):
    working, failing = makers(0.05, 0.005), makers(0.05, None)
    for _ in range(2):
        assert choose("model", "f32", 0, working).engine.seconds == 0.005
    broken = dict(zip(working, failing.values(), strict=True))
    assert choose("model", "f32", 0, broken).engine.seconds == 0.05


@pytest.mark.parametrize("given", ["0", "²", "-1", "2,1", ""])
def test_no_value_of_omp_num_threads_leaves_ncnn_without_threads(monkeypatch, given):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert default_threads() >= 1


def test_a_negative_number_of_threads_is_refused():
    with pytest.raises(InvalidInput, match="0 for all cores"):
        load("edsr-air", threads=-1)


def test_the_chosen_engine_says_why_without_importing_pytorch():
    code = (
        "import sys, thera; info = thera.load('edsr-air').info; print(info.engine, '|', info.why);"
        "print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "measured on this machine" in run.stdout and run.stdout.splitlines()[-1] == "False"


def test_ctrl_c_cancels_what_is_computed_in_another_thread():
    code = """
import os, signal, threading
from thera.models.engine import interruptible

signal.signal(signal.SIGINT, signal.default_int_handler)
cancelled = threading.Event()

def compute():
    os.kill(os.getpid(), signal.SIGINT)
    cancelled.wait(60)

try:
    interruptible(compute, cancelled.set)
except KeyboardInterrupt:
    print("interrupted, cancelled:", cancelled.is_set())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "interrupted, cancelled: True\n", run.stderr


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGINT)", "interrupt(main)"])
def test_images_that_are_encoded_side_by_side_end_when_they_are_interrupted(end):
    code = f"""
import os, signal, threading
from thera.models.beside import side_by_side
from thera.models.engine import interrupt, interruptible

signal.signal(signal.SIGINT, signal.default_int_handler)
main, computing, ended = threading.get_ident(), threading.Barrier(3), []

def work(item):
    cancelled = threading.Event()
    computing.wait(60)
    interruptible(lambda: cancelled.wait(60), cancelled.set)
    ended.append(cancelled.is_set())
    raise RuntimeError("cancelled")

def stop():
    computing.wait(60)
    {end}

threading.Thread(target=stop).start()
try:
    side_by_side(work, range(1, 9), 2, lambda: None)
except (KeyboardInterrupt, RuntimeError):
    print(ended)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert run.stdout == "[True, True]\n", run.stderr


@pytest.mark.parametrize("engine", ["onnx", "ncnn", "openvino"])
def test_a_model_for_several_callers_at_once_computes_the_same(engine, photograph):
    pytest.importorskip({"onnx": "onnxruntime"}.get(engine, engine), reason=f"{engine} is not installed")
    model = load("edsr-air", engine, "cpu", threads=2)
    beside = model.beside(2)
    assert model.info.threads == 2 and beside._engine is not model._engine and beside is model.beside(2)
    found = []
    side_by_side(lambda turn: found.append(beside.encode(photograph)), range(1, 4), 2, lambda: None)
    for field in found:
        assert np.array_equal(field.features, model.encode(photograph).features)
        assert field.head is model.encode(photograph).head  # its tables serve all


def test_a_model_whose_file_changes_or_is_removed_goes_on_as_it_was_loaded(tmp_path):
    path = tmp_path / "mine.safetensors"
    path.write_bytes(SHIPPED["edsr-air"].safetensors.read_bytes())
    model = load(path, "onnx", "cpu", threads=2)
    save_safetensors(Thera(Spec("edsr", "air")), path)
    assert model.beside(2) is model
    path.unlink()
    assert model.beside(2) is model


def test_calls_of_onnx_runtime_share_one_pool_and_bring_a_thread_each(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "thera.models.onnx_engine.OnnxEngine", lambda model, threads, device: asked.append(threads)
    )
    files = Files(None, SHIPPED["edsr-air"].safetensors)
    for threads, calls in ((0, 1), (3, 1), (1, 2), (4, 4)):
        files.engine("onnx", "cpu", "f32", threads, calls)
    assert asked == [0, 3, 1, 13]


def test_the_program_ends_while_a_daemon_thread_waits_for_images_side_by_side():
    code = """
import threading
import time
from thera.models import engine
from thera.models.beside import side_by_side
engine.ENDING_SECONDS = 600
computing = threading.Barrier(3)

def work(item):
    cancelled = threading.Event()
    computing.wait(60)
    engine.interruptible(lambda: cancelled.wait(300), cancelled.set)
    raise RuntimeError("cancelled")

threading.Thread(target=side_by_side, args=(work, [1, 2], 2, print), daemon=True).start()
computing.wait(60)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("engine", ["ncnn", "onnx"])
def test_the_program_ends_while_a_daemon_thread_encodes(engine):
    code = f"""
import threading, time, numpy as np, thera
from thera.models import engine
model, image = thera.load("edsr-air", "{engine}", "cpu", threads=1), np.zeros((200, 200, 3), np.float32)
def work():
    while True:
        model.encode(image)
threading.Thread(target=work, daemon=True).start()
while not engine._cancels:
    time.sleep(0.001)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


def test_a_cancelled_encoding_ends_at_the_next_step(engines):
    ncnn, cancelled = engines["edsr-plus"][1], threading.Event()
    cancelled.set()
    with pytest.raises(RuntimeError, match="cancelled"):
        ncnn._compute(np.zeros((8, 8, 3), np.float32), cancelled)


def test_pytorch_ends_before_the_next_layer_once_it_is_cancelled():
    pytest.importorskip("torch")
    engine = load("edsr-air", engine="torch", device="cpu")._engine
    cancelled = Event()
    image = engine.asarray(np.zeros((8, 8, 3), np.float32))
    assert engine._cancellable(image, cancelled).shape[:2] == (8, 8)
    cancelled.set()
    with pytest.raises(RuntimeError, match="cancelled"):
        engine._cancellable(image, cancelled)
    assert engine.features(image).shape[:2] == (8, 8)  # another call is not

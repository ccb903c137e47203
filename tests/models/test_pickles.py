"""A published checkpoint is read; a pickle that wants anything else is refused, and nothing of it runs."""

from __future__ import annotations

import collections
import contextlib
import io
import os
import pickle
import pickletools
import sys
import types

import numpy as np
import pytest
from model_reference import checkpoint, network

from thera.errors import ModelError, UnsafeCheckpoint
from thera.models.pickles import read_pickle
from thera.models.published import from_checkpoint, load_published


class FrozenDict(dict):
    """Pickled under flax's name, as its own is: a call with a dict."""

    def __reduce__(self):
        return FrozenDict, (dict(self),)


@pytest.fixture
def flax(monkeypatch):
    """Just enough of flax to write a pickle that names it."""
    FrozenDict.__module__ = "flax.core.frozen_dict"
    modules = ["flax", "flax.core", "flax.core.frozen_dict"]
    for name in modules:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["flax.core.frozen_dict"].FrozenDict = FrozenDict


@pytest.fixture
def written(tmp_path):
    """Writes bytes to a file."""

    def write(data: bytes):
        path = tmp_path / "checkpoint.pkl"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_checkpoint_of_every_protocol_is_read(protocol, flax, written):
    whole = checkpoint("edsr-air")
    whole["model"] = FrozenDict(whole["model"])
    data = pickle.dumps(whole, protocol)
    assert b"flax.core.frozen_dict" in data
    state = load_published(written(data)).state_dict()
    assert all((state[name] == value).all() for name, value in network("edsr-air").state_dict().items())


@pytest.mark.parametrize("core", ["numpy.core", "numpy._core"])
def test_arrays_of_old_and_new_numpy_come_back_as_they_were(core, written):
    values = {
        "matrix": np.arange(6, dtype="<f4").reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6, dtype="<f8").reshape(2, 3)),
        "big": np.arange(3, dtype=">i4"),
        "half": np.float16([[0.5]]),
        "scalar": np.float32(0.25),
        "none": np.zeros((0, 4), np.uint8),
        "flags": np.array([True, False]),
        "ordered": collections.OrderedDict(a=1, b=[2, (3.5, None, "x", b"y")]),
    }
    data = pickle.dumps(values, 2)
    name = type(np.zeros(1)).__reduce__(np.zeros(1))[0].__module__.removesuffix(".multiarray")
    data = data.replace(f"c{name}.".encode(), f"c{core}.".encode())  # protocol 2 writes plain lines
    read = read_pickle(written(data))
    assert read["ordered"] == values["ordered"]
    for key in values.keys() - {"ordered"}:
        assert np.array_equal(read[key], values[key])
        assert np.shape(read[key]) == np.shape(values[key])
        assert read[key].dtype.newbyteorder("=") == values[key].dtype.newbyteorder("=")


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments, state=None):
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.reduced


MALICIOUS = {
    "os.system": lambda at: Calls(os.system, f"touch {at}"),
    "os.popen": lambda at: Calls(os.popen, f"touch {at}"),
    "builtins.eval": lambda at: Calls(eval, f"open({at!r}, 'w')"),
    "builtins.exec": lambda at: Calls(exec, f"open({at!r}, 'w')"),
    "builtins.open": lambda at: Calls(open, at, "w"),
    "builtins.getattr": lambda at: Calls(getattr, "text", "format"),
    "builtins.__import__": lambda at: Calls(__import__, "os"),
    "numpy.save": lambda at: Calls(np.save, at, np.zeros(3)),
    "numpy.savetxt": lambda at: Calls(np.savetxt, at, np.zeros(3)),
    "numpy.load": lambda at: Calls(np.load, at),
    "numpy.memmap": lambda at: Calls(np.memmap, at, "u1", "w+", 0, (10,)),
    "numpy.fromfile": lambda at: Calls(np.fromfile, at),
    "numpy.frompyfunc": lambda at: Calls(np.frompyfunc, print, 1, 1),
    "ndarray itself": lambda at: Calls(np.ndarray, (10_000_000_000,)),
    "a codec other than latin1": lambda at: Calls(__import__("_codecs").encode, "uryyb", "rot13"),
    "objects in an array": lambda at: np.array([{"a": 1}, Calls(os.system, f"touch {at}")], dtype=object),
    "objects in an array, alone": lambda at: np.array([{"a": 1}], dtype=object),
    "fields in an array": lambda at: np.zeros(3, [("a", "f4"), ("b", "O")]),
    "text in an array": lambda at: np.array(["a", "b"]),
    "a subclass of ndarray": lambda at: np.ma.masked_array([1.0, 2.0], [True, False]),
    "a partial": lambda at: __import__("functools").partial(os.system, f"touch {at}"),
}


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("kind", MALICIOUS)
def test_a_pickle_that_wants_more_is_refused_and_does_nothing(kind, protocol, tmp_path, written):
    at = os.fspath(tmp_path / "ran")
    data = pickle.dumps({"model": {"params": {"k": np.zeros(1), "x": MALICIOUS[kind](at)}}}, protocol)
    with pytest.raises(UnsafeCheckpoint, match="no code in it was run"):
        read_pickle(written(data))
    assert not os.path.exists(at)


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n"
HAND_MADE = {
    "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
    "an attribute of an allowed class": b"\x80\x04\x8c\x05numpy\x8c\x10dtype.__reduce__\x93.",
    "a class made without calling it": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "a stand-in made anew": b"\x80\x02cnumpy\nndarray\n)\x81.",
    "old-style instance": b"\x80\x02(S'touch x'\nios\nsystem\n.",
    "old-style object": b"\x80\x02(cos\nsystem\nS'touch x'\no.",
    "state for a function": b"\x80\x02" + ARRAY + b"}S'__code__'\nS'x'\nsb.",
    "slots for a function": b"\x80\x02" + ARRAY + b"(N}S'_function'\nS'x'\nstb.",
    "state for a class": b"\x80\x02cnumpy\nndarray\n}S'__setstate__'\nS'x'\nsb.",
    "state for a dict": b"\x80\x02ccollections\nOrderedDict\n)R}S'update'\nS'x'\nsb.",
    "a persistent object": b"\x80\x02Pid\n.",
    "an extension code": b"\x80\x02\x82\x01.",
    "an array of another kind": b"\x80\x02" + ARRAY + b"(cnumpy\ndtype\n(I0\ntS'b'\ntR.",
    "items set in an array": b"\x80\x02" + ARRAY + b"(cnumpy\nndarray\n(I0\ntS'b'\ntRI0\nI1\ns.",
    "a memo of a hundred gigabytes": b"\x80\x02]r\xff\xff\xff\xffcos\nsystem\n\x86.",
    "a function as the result": b"\x80\x02" + ARRAY + b".",
    "an array without a type": b"\x80\x02"
    + ARRAY
    + b"(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I9\ntI0\nI0\nS''\ntb.",
}


@pytest.mark.parametrize("kind", HAND_MADE)
def test_tricks_of_the_pickle_machine_are_refused(kind, written):
    with pytest.raises(ModelError):
        read_pickle(written(HAND_MADE[kind]))
    # The stand-ins are as they were: an honest pickle is still read.
    assert read_pickle(written(pickle.dumps({"a": np.ones(2)})))["a"].sum() == 2


def test_a_tree_that_grows_without_end_is_refused(written):
    loop: dict[str, object] = {}
    loop["again"] = loop
    with pytest.raises(ModelError):
        read_pickle(written(pickle.dumps(loop)))
    laughs: list[object] = []
    for _ in range(40):
        laughs = [laughs, laughs]
    with pytest.raises(ModelError):
        read_pickle(written(pickle.dumps(laughs)))


def test_a_damaged_pickle_is_read_or_refused_but_never_fails_otherwise(written):
    tree = {"k": np.zeros(4, np.float32), "b": {"c": np.ones((2, 3)), "d": [1.5, "text"]}}
    data = pickle.dumps({"model": {"params": tree}, "backbone": "rdn", "size": "air"})
    for length in range(2, len(data)):
        with pytest.raises(ModelError):
            read_pickle(written(data[:length]))
    rng = np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(data)
        for at in rng.integers(2, len(data), rng.integers(1, 4)):
            damaged[at] = rng.integers(256)
        with contextlib.suppress(ModelError):
            read_pickle(written(bytes(damaged)))


def nested_as_flax_0_6_10(tree):
    """The same parameters with the layers of a Sequential kept under it."""
    encoder = dict(tree["encoder"])
    encoder["Sequential_0"] = {"layers_0": encoder.pop("Conv_2"), "layers_1": encoder.pop("Conv_3")}
    for name in [n for n in encoder if n.startswith("RDB_")]:
        encoder[name] = {
            layer: {"Sequential_0": {"layers_0": value["Conv_0"]}} if layer.startswith("RDB_Conv") else value
            for layer, value in encoder[name].items()
        }
    return {**tree, "encoder": encoder}


def test_parameters_nested_as_flax_0_6_10_did_are_found():
    whole = checkpoint("rdn-air")
    whole["model"] = {"params": nested_as_flax_0_6_10(whole["model"]["params"])}
    assert "Conv_2" not in whole["model"]["params"]["encoder"]
    state = from_checkpoint(whole, "old").state_dict()
    assert all((state[name] == value).all() for name, value in network("rdn-air").state_dict().items())


def test_a_missing_a_misshapen_and_an_unknown_parameter_are_named():
    def broken(change):
        whole = checkpoint("edsr-air")
        change(whole["model"]["params"])
        return whole

    missing = broken(lambda tree: tree["encoder"]["body"]["layers_7"]["body"].pop("layers_2"))
    with pytest.raises(ModelError, match=r"lacks .*params/encoder/body/layers_7/body/layers_2/kernel"):
        from_checkpoint(missing, "it")
    shape = broken(lambda tree: tree["out_conv"].update(kernel=np.zeros((1, 1, 64, 7))))
    with pytest.raises(ModelError, match=r"params/out_conv/kernel .*\(1, 1, 64, 7\).*\(64, 128\)"):
        from_checkpoint(shape, "it")
    more = broken(lambda tree: tree.update(more=np.zeros(1)))
    with pytest.raises(ModelError, match="params/more"):
        from_checkpoint(more, "it")


def test_a_pickle_of_something_else_is_refused(written):
    for value in ([1, 2], {"model": 3}, {"model": {"params": {}}, "backbone": "vgg", "size": "air"}):
        with pytest.raises(ModelError):
            load_published(written(pickle.dumps(value)))


def test_hand_made_pickles_are_what_they_claim():
    for data in HAND_MADE.values():
        pickletools.dis(data, out=io.StringIO())

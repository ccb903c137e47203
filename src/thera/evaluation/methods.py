"""The methods that are compared: models and baselines, behind one type."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from thera.errors import InvalidInput
from thera.evaluation.protocol import Upscaler
from thera.evaluation.resize import Kernel, resize
from thera.field import Gaussian
from thera.field.psf import to_numpy

if TYPE_CHECKING:
    from thera.networks import Network

WHOLE_PIXELS = 1 << 20  # inputs up to this size are encoded whole
TILE_MEMORY = 4 << 30  # bytes for the tiles of larger inputs

BASELINES = (*get_args(Kernel), "sinc")


@dataclass(frozen=True)
class Method:
    """One row of a table, or one of several checkpoints that a row is the mean of."""

    name: str
    upscale: Upscaler
    identity: str = ""  # identifies the checkpoint's contents
    engine: str | None = None  # engine, device and precision of a model; None for a baseline


def baseline(kernel: Kernel) -> Method:
    """Classical interpolation as a method."""
    return Method(kernel, lambda image, size: resize(image, size, kernel))


class OnePass(threading.local):
    """Keeps the last output of a decoder in one pass: it takes long, and the ensemble begins with it.

    If that pass was measured just before, the `seconds` that are stored for the ensemble leave it out.
    """

    image: Any = None
    size: tuple[int, int] = (0, 0)
    output: Any = None

    def of(self, image: Any, size: tuple[int, int]) -> Any:
        return self.output if self.image is image and self.size == size else None


def model_method(
    model: Any,
    name: str,
    identity: str,
    ensemble: bool,
    engine: str,
    seamless: bool = True,
    one_pass: OnePass | None = None,
) -> Method:
    """A model as a method. As usual, a plus marks the ensemble of four rotations.

    The output of a model on a GPU stays there. `seamless`: fields are blended at their borders beyond ×8.
    `one_pass`: the output that the single pass and the ensemble of one model share.
    """
    device = model.info.device
    options: dict[str, Any] = {"ensemble": ensemble}
    if not seamless and model.info.spec.renderable:
        options["psf"] = Gaussian()

    def upscale(image: NDArray[np.float32], size: tuple[int, int]) -> Any:
        if image.shape[0] * image.shape[1] > WHOLE_PIXELS:
            return _tiled(model, image, size, options)
        known = {}
        if one_pass is not None and ensemble:
            known = {"first": one_pass.of(image, size)}
        if not device.startswith("cuda"):
            output = model.upscale(image, size=size, **options, **known)
        else:
            import torch

            output = model.upscale(torch.from_numpy(image).to(device), size=size, **options, **known)
            torch.cuda.synchronize(device)  # so that its time can be taken
        if one_pass is not None and not ensemble:
            one_pass.image, one_pass.size, one_pass.output = image, size, output
        return output

    return Method(f"{name}+" if ensemble else name, upscale, identity, engine)


def _tiled(
    model: Any, image: NDArray[np.float32], size: tuple[int, int], given: dict[str, Any]
) -> NDArray[np.floating]:
    """The same as `model.upscale`, tile by tile to limit memory."""
    from thera.tiled import ArraySource, Options, TiledField, make_plan

    options = Options(**given, memory=TILE_MEMORY)
    plan = make_plan(model, (image.shape[0], image.shape[1]), size, options)
    strips = TiledField(model, ArraySource(image), options).rows(plan)
    return np.concatenate([strip.values for strip in strips])


def network_method(network: Network, device: str, ensemble: bool) -> Method:
    """A network in memory as a method, evaluated exactly as its file would be."""
    import torch

    from thera.models.loading import make_model
    from thera.models.weights import build, describe

    name = network.spec.name
    with torch.random.fork_rng([]):  # a new network draws its weights, which must not change a training run
        plain = build(network.spec, network.state_dict(), name)  # nothing compiled or aligned for training
    return model_method(make_model(plain, describe(plain), device), name, "", ensemble, "torch")


def sinc_method(method: Method) -> Method:
    """The paper's "+ sinc" baseline: the model's ×4 output, resized with Lanczos."""

    def upscale(image: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.floating]:
        height, width = image.shape[:2]
        return resize(to_numpy(method.upscale(image, (4 * height, 4 * width))), size, "lanczos")

    return replace(method, name=f"{method.name} ×4, sinc", upscale=upscale)


def fingerprint(model: Any) -> str:
    """A digest of the last layer, bank and κ, or of a decoder; equal for all file formats and engines."""
    parameters: list[Any]
    if hasattr(model, "network"):
        found = model.network.named_parameters()
        parameters = [parameter for name, parameter in found if not name.startswith("backbone.")]
    else:
        field = model.encode(np.zeros((8, 8, 3), np.float32))
        parameters = [field.head_weight, field.head_bias, field.components, np.float64(field.kappa)]
    digest = hashlib.sha256()
    for parameter in parameters:
        digest.update(np.ascontiguousarray(to_numpy(parameter), dtype=np.float32).tobytes())
    return digest.hexdigest()[:12]


def parse_model(spec: str) -> tuple[str | None, list[str]]:
    """Label and paths of a model as given on the command line: NAME, PATH, or LABEL=PATH,PATH,….

    >>> parse_model("edsr-air"), parse_model("air=run1.safetensors,run2.safetensors")
    ((None, ['edsr-air']), ('air', ['run1.safetensors', 'run2.safetensors']))
    """
    label, equals, paths = spec.partition("=")
    if not equals:
        return None, [spec]
    parts = [path for path in paths.split(",") if path]
    if not label or not parts:
        raise InvalidInput(f"{spec!r} names no model: write NAME, PATH, or LABEL=PATH,PATH for several runs.")
    return label, parts


def load_methods(
    models: Iterable[str],
    baselines: Iterable[str] = (),
    ensemble: bool = True,
    both: bool = False,
    precision: str = "f32",
    seamless: bool = True,
    **options: Any,
) -> list[Method]:
    """The methods to compare: baselines, then models. `options` are passed to `thera.models.load`.

    `both`: each model in one pass, and then with the ensemble.
    `precision`: f32 unless another is asked for, so that figures do not depend on the device.
    `seamless`: fields are blended at their borders beyond ×8, which other decoders cannot do.

    >>> [method.name for method in load_methods([], ["bicubic", "lanczos"])]
    ['bicubic', 'lanczos']
    """
    methods: list[Method] = []
    groups: dict[str, list[Method]] = {}
    for spec in models:
        label, sources = parse_model(spec)
        passes = [False, True] if both else [ensemble]
        options = options | {"precision": precision}
        found = [_load(source, label, passes, seamless, options) for source in sources]
        for same in map(list, zip(*found, strict=True)):
            name = same[0].name
            if name in groups:
                raise InvalidInput(f"Two models are called {name}: tell them apart with LABEL=PATH.")
            if len({method.identity for method in same}) < len(same):
                raise InvalidInput(f"{spec!r} names the same checkpoint twice: give each once.")
            groups[name] = same
    for kind in baselines:
        if kind == "sinc":
            methods += [sinc_method(method) for method in next(iter(groups.values()), [])]
        elif kind in BASELINES:
            methods.append(baseline(kind))  # type: ignore[arg-type]
        else:
            raise InvalidInput(f"{kind!r} is no baseline: choose among {', '.join(BASELINES)}.")
    loaded = [method for group in groups.values() for method in group]
    methods += sorted(loaded, key=lambda method: method.name.endswith("+"))  # one pass before ensembles
    if not methods:
        raise InvalidInput("Nothing to evaluate: name a model or a baseline.")
    return methods


def _load(
    source: str, label: str | None, ensembles: Iterable[bool], seamless: bool, options: dict[str, Any]
) -> list[Method]:
    from thera.models import load

    model = load(source, **options)
    model.compile()  # many pictures follow
    info = model.info
    identity = fingerprint(model) if info.precision == "f32" else f"{fingerprint(model)} {info.precision}"
    engine = f"{info.engine} {info.device} {info.precision}"
    name = label or model.name
    one_pass = OnePass() if hasattr(model, "network") else None
    return [model_method(model, name, identity, each, engine, seamless, one_pass) for each in ensembles]

"""The description of a network that a model file contains. It needs no PyTorch: every engine reads it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from thera.errors import ModelError
from thera.kernels.swin.sizes import WINDOW

MEAN = (0.4488, 0.4371, 0.4040)  # of the DIV2K training images, in RGB
STD = 0.5
KAPPA = math.log(4) / (2 * math.pi**2)  # the paper's Eq. 3: half amplitude at the input's Nyquist frequency

BACKBONES = ("edsr", "rdn")
FILTERS = ("gaussian", "butterworth", "ideal")
VARIANTS = {"air": 32, "plus": 512, "pro": 512}  # of Thera: the number of components c of each
WHOLE = 1 << 20  # cells: more than a picture has on a side
#: Other methods: the cells on each side of its own that an output pixel is decoded from.
DECODERS = {"sinc": 18, "metasr": 2, "liif": 2, "lte": 2, "srno": WHOLE, "cuf": 2, "ciaosr": WHOLE}
DECODERS |= {"clit": 4, "msit": 9}

# The receptive field of one feature: input pixels on each side. In Pro every Swin layer adds half a window,
# the first layer of a group a whole one, every convolution one pixel: (1+7+4·6) + (1+7+4·5) + 3.
_REACH = {"edsr": 1 + 2 * 16 + 1, "rdn": 2 + 16 * 8 + 1, "air": 0, "plus": 16, "pro": 63}


@dataclass(frozen=True)
class Spec:
    """A network: its backbone, its variant, and the paper's two architectural ablations.

    The variant is one of Thera's three, or the decoder of another method (`networks/decoders`).

    >>> Spec("edsr", "air").name
    'edsr-air'
    """

    backbone: str = "edsr"
    variant: str = "air"
    components: int = 0  # 0 stands for the published number of the variant
    activation: str = "thermal"  # or "relu", an ablation of the paper
    filter: str = "gaussian"  # or "butterworth", "ideal": what the field is seen through in training
    predicted_components: bool = False  # a bank per pixel, an ablation of the paper
    published: bool = False  # made by the published code of its method

    def __post_init__(self) -> None:
        known = {
            "backbone": BACKBONES,
            "variant": (*VARIANTS, *DECODERS),
            "activation": ("thermal", "relu"),
            "filter": FILTERS,
        }
        for name, names in known.items():
            if (given := getattr(self, name)) not in names:
                raise ModelError(f"The network has an unknown {name} {given!r}: expected {', '.join(names)}.")
        if self.components < 0:
            raise ModelError(f"A field cannot have {self.components} components: give a number from 1 up.")
        ablated = self.components or self.predicted_components or self.activation != "thermal"
        if (ablated or self.filter != "gaussian") and not self.heat:
            raise ModelError(
                f"{self.name} is no heat field: leave out components, filters and ablations of one."
            )
        if not self.components:
            object.__setattr__(self, "components", VARIANTS.get(self.variant, 0))

    @property
    def name(self) -> str:
        return f"{self.backbone}-{self.variant}"

    @property
    def heat(self) -> bool:
        """True for Thera, False for the decoders of other methods."""
        return self.variant in VARIANTS

    @property
    def renderable(self) -> bool:
        """True if a `HeatField` renders it as it was trained: Thera without ablations or other filters."""
        return (
            self.heat
            and self.activation == "thermal"
            and self.filter == "gaussian"
            and not self.predicted_components
        )

    @property
    def neighbours(self) -> int:
        """The cells on each side of its own that an output pixel is decoded from."""
        return DECODERS.get(self.variant, 0)

    @property
    def alignment(self) -> int:
        """Tiles must start at multiples of this many input pixels, to have the windows of the whole image."""
        return WINDOW if self.variant == "pro" else 1

    @property
    def halo(self) -> int:
        """Input pixels to add around a tile, so that its fields equal those of the whole image."""
        reach = _REACH[self.backbone] + _REACH.get(self.variant, 0)
        return -(-reach // self.alignment) * self.alignment

    def to_dict(self) -> dict[str, Any]:
        return {"format": 1, "name": self.name, **asdict(self)}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Spec:
        if d.get("format") != 1:
            raise ModelError(
                f"This version of thera reads model format 1, not format {d.get('format')!r}: update thera."
            )
        return cls(**{f.name: d[f.name] for f in fields(cls) if f.name in d})

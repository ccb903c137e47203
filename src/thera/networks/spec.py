"""What a network is, in a few words that a file can carry. No PyTorch here: every engine reads it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from thera.errors import ModelError

MEAN = (0.4488, 0.4371, 0.4040)  # of the DIV2K training images, in RGB
STD = 0.5
KAPPA = math.log(4) / (2 * math.pi**2)  # the paper's Eq. 3: half amplitude at the input's Nyquist frequency

BACKBONES = ("edsr", "rdn")
VARIANTS = {"air": 32, "plus": 512, "pro": 512}  # the number of components c of each

WINDOW = 8  # Pro's attention window

# How far one feature sees, in input pixels on each side. In Pro every Swin layer widens the view by half a
# window, each group's first by a whole one, every convolution by one pixel: (1+7+4·6) + (1+7+4·5) + 3.
_REACH = {"edsr": 1 + 2 * 16 + 1, "rdn": 2 + 16 * 8 + 1, "air": 0, "plus": 16, "pro": 63}


@dataclass(frozen=True)
class Spec:
    """One network: a backbone, a variant, and the paper's two architectural ablations.

    >>> Spec("edsr", "air").name
    'edsr-air'
    """

    backbone: str = "edsr"
    variant: str = "air"
    components: int = 0  # 0: as published for the variant
    activation: str = "thermal"  # or "relu": the paper's ablation
    predicted_components: bool = False  # a bank per pixel: the paper's ablation
    published: bool = False  # outputs carry the published code's extra mean

    def __post_init__(self) -> None:
        if self.backbone not in BACKBONES:
            raise ModelError(f"unknown backbone {self.backbone!r}: expected one of {', '.join(BACKBONES)}")
        if self.variant not in VARIANTS:
            raise ModelError(f"unknown variant {self.variant!r}: expected one of {', '.join(VARIANTS)}")
        if self.activation not in ("thermal", "relu"):
            raise ModelError(f"unknown activation {self.activation!r}: expected 'thermal' or 'relu'")
        if self.components < 0:
            raise ModelError(
                f"{self.components} components make no field: give a number above 0, or 0 for the variant's"
            )
        if not self.components:
            object.__setattr__(self, "components", VARIANTS[self.variant])

    @property
    def name(self) -> str:
        return f"{self.backbone}-{self.variant}"

    @property
    def renderable(self) -> bool:
        """Whether its fields are sums of sinusoids over one bank: all but the two ablations."""
        return self.activation == "thermal" and not self.predicted_components

    @property
    def alignment(self) -> int:
        """Tiles must start at multiples of this many input pixels to see the same windows as the whole."""
        return WINDOW if self.variant == "pro" else 1

    @property
    def halo(self) -> int:
        """Input pixels around a tile that make its fields equal to those of the whole image."""
        reach = _REACH[self.backbone] + _REACH[self.variant]
        return -(-reach // self.alignment) * self.alignment

    def to_dict(self) -> dict[str, Any]:
        return {"format": 1, "name": self.name, **asdict(self)}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Spec:
        if d.get("format") != 1:
            raise ModelError(
                f"model format {d.get('format')!r} is not one this version reads (1): update thera"
            )
        return cls(**{f.name: d[f.name] for f in fields(cls) if f.name in d})

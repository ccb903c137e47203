"""Decoders of other methods, one file each: from features to colours at any points of a picture."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thera.networks.decoders.ciaosr import CiaoSR
from thera.networks.decoders.clit import CLIT
from thera.networks.decoders.cuf import CUF
from thera.networks.decoders.decoder import Decoder
from thera.networks.decoders.liif import LIIF
from thera.networks.decoders.lte import LTE
from thera.networks.decoders.metasr import MetaSR
from thera.networks.decoders.msit import MSIT
from thera.networks.decoders.sinc import Sinc
from thera.networks.decoders.srno import SRNO
from thera.networks.network import Network, Points, compile_within
from thera.networks.spec import STD, Spec

DECODERS: dict[str, type[Decoder]] = {
    decoder.__name__.lower(): decoder for decoder in (Sinc, MetaSR, LIIF, LTE, SRNO, CUF, CiaoSR, CLIT, MSIT)
}


class Decoded(Network):
    """A backbone and the decoder of another method.

    >>> import torch
    >>> network = Decoded(Spec("edsr", "liif"))
    >>> points = Points(torch.tensor([[[0.5, 0.5], [3.2, 4.1]]]), torch.full((1, 1, 2), 0.25))
    >>> image = torch.rand(1, 3, 6, 7)
    >>> network.colours(network.maps(network.features(image), image), points).shape
    torch.Size([1, 2, 3])
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self.decoder = DECODERS[spec.variant]()
        self.point_bytes, self.cell_bytes = self.decoder.point_bytes, self.decoder.cell_bytes
        self.together = self.decoder.together

    def maps(self, features: Tensor, image: Tensor) -> Any:
        return self.decoder.maps(features, self.normalised(image))

    def colours(self, maps: Any, points: Points) -> Tensor:
        return STD * self.decoder(maps, points).float() + self.mean.view(3)

    def compile_decoder(self) -> None:
        """Compile the decoder for pictures of any size. Derivatives still use the plain form.

        Each class of decoders has its own `forward`, but all share `colours`, and PyTorch stops compiling a
        function after eight versions of it. What is decoded cell by cell stays plain: there the points decide
        on the shapes.
        """
        if self.cell_bytes:
            return
        plain = self.decoder.forward
        fast = torch.compile(plain, dynamic=True)

        def forward(maps: Any, points: Points) -> Tensor:
            return (plain if torch.is_grad_enabled() else fast)(maps, points)

        self.decoder.forward = forward  # type: ignore[method-assign]

    def compile_blocks(self) -> None:
        """The decoder is one block: it spends its time between its layers, where kernels can be merged."""
        from torch._inductor import list_options

        compile_within(self.backbone)
        # PyTorch 2.11 cannot compile CiaoSR's gradients with this way of merging sums.
        merging = "triton.mix_order_reduction"
        options = {merging: False} if merging in list_options() else None
        self.decoder.compile(dynamic=False, options=options)

"""Fields on a CUDA device, with a precision of their own for each matrix product."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import RLock

import torch
from torch import Tensor

from thera.field.head import Array, Head, Shift
from thera.kernels.available import TRITON, agree

# Rows and columns of cells, offsets of the table, and whether phases are shifted: programs that share the
# components of a cell, and programs that do not.
TRIED = (9, 11, 16, False), (70, 80, 64, True)

# The settings belong to the process: without a lock, two threads could leave them changed.
_SETTINGS = RLock()


@contextmanager
def float32_products(*, tf32: bool) -> Iterator[None]:
    """Compute float32 convolutions and matrix products in TF32 or in full, whatever the process has set."""
    matmul, conv = torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv", None)
    if conv is not None:  # PyTorch 2.9 on
        owners, name, value = (matmul, conv), "fp32_precision", "tf32" if tf32 else "ieee"
    else:
        owners, name, value = (matmul, torch.backends.cudnn), "allow_tf32", tf32  # type: ignore[assignment]
    with _SETTINGS:
        before = [getattr(owner, name) for owner in owners]
        for owner in owners:
            setattr(owner, name, value)
        try:
            yield
        finally:
            for owner, old in zip(owners, before, strict=True):
                setattr(owner, name, old)


class CudaHead(Head):
    """A head whose fields are tensors on a CUDA device.

    With `tf32`, the amplitudes and the product with the table are computed in TF32: eleven binary digits are
    enough for sums of many small numbers. Phases reach ±25 radians and stay in float32.
    """

    def __init__(self, weight: Array, bias: Array, components: Array, kappa: float, tf32: bool) -> None:
        super().__init__(weight, bias, components, kappa)
        self.tf32 = tf32
        if self.weight.is_cuda:  # type: ignore[union-attr]
            with torch.cuda.device_of(self.weight):
                weight, bias = self.by_channel
                if tf32 and TRITON:
                    from thera.kernels.render import LastLayer

                    if LastLayer.fits(len(weight), self.components.shape[1], len(bias)):
                        self._layer = LastLayer.of(weight, bias)
                        self.fused = self._agrees()
                torch.cuda.current_stream().synchronize()  # other streams may use the results

    def _agrees(self) -> bool:
        """Whether the kernel renders on the current GPU what the plain form does, to the digits of TF32."""
        from thera.kernels.render import oscillations

        device, (C, _), c = self.weight.device, self.weight.shape, self.components.shape[1]  # type: ignore[union-attr]

        def both(h: int, w: int, offsets: int, shifted: bool) -> tuple[Tensor, Tensor]:
            draw = partial(torch.randn, device=device, generator=torch.Generator(device).manual_seed(0))
            given = draw(h, w, C), (draw(h, c), draw(w, c)) if shifted else None, draw(2 * c, offsets)
            return oscillations(self._layer, *given), Head.oscillations(self, *given)

        return all(agree(partial(both, *case), tolerance=5e-3) for case in TRIED)

    @property
    def place(self) -> Hashable:
        """Tables are cached per stream, and those of inference mode apart from the others."""
        stream = torch.cuda.current_stream(self.weight.device)  # type: ignore[union-attr]
        return stream.cuda_stream, torch.is_inference_mode_enabled()

    def coefficients(self, features: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = self.by_channel
        c = self.components.shape[1]
        split = len(bias) - c
        with float32_products(tf32=self.tf32):
            amplitude = torch.addmm(bias[:split], features, weight[:, :split])
        with float32_products(tf32=False):
            phase = torch.addmm(bias[split:], features, weight[:, split:])
        return amplitude.view(len(features), -1, c), phase

    def oscillations(self, features: Tensor, shift: Shift | None, table: Tensor) -> Tensor:
        if self.fused and not (torch.is_grad_enabled() and features.requires_grad):
            from thera.kernels.render import oscillations

            return oscillations(self._layer, features.contiguous(), shift, table)
        with float32_products(tf32=self.tf32):
            return super().oscillations(features, shift, table)

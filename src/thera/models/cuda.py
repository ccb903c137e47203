"""Fields on a CUDA device: the precision of each of their products, whatever the process has set."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from threading import RLock

import torch
from torch import Tensor

from thera.field.head import Array, Head, Shift
from thera.networks.fusing import can_fuse

# The switches are the process's: were two threads to turn them at once, one might not be set back.
_SWITCHES = RLock()


@contextmanager
def float32_products(*, tf32: bool) -> Iterator[None]:
    """Float32 convolutions and products in full or in TF32, whatever the process has set."""
    matmul, conv = torch.backends.cuda.matmul, getattr(torch.backends.cudnn, "conv", None)
    if conv is not None:  # PyTorch 2.9 on
        owners, name, value = (matmul, conv), "fp32_precision", "tf32" if tf32 else "ieee"
    else:
        owners, name, value = (matmul, torch.backends.cudnn), "allow_tf32", tf32  # type: ignore[assignment]
    with _SWITCHES:
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

    With `tf32` the amplitudes and the product with the table are computed in TF32, whose ten binary digits do
    for sums of many small numbers. Phases reach ±25 radians and stay in float32.
    """

    def __init__(self, weight: Array, bias: Array, components: Array, kappa: float, tf32: bool) -> None:
        super().__init__(weight, bias, components, kappa)
        self.tf32 = tf32
        if self.weight.is_cuda:  # type: ignore[union-attr]
            with torch.cuda.device_of(self.weight):
                self._prepare(fuse=tf32 and can_fuse())
                torch.cuda.current_stream().synchronize()  # any stream may be the first to use these

    def _prepare(self, fuse: bool) -> None:
        """Whatever of the last layer can be made once."""
        weight, bias = self.by_channel
        if fuse:
            from thera.networks.kernels_render import LastLayer

            if LastLayer.fits(len(weight), self.components.shape[1], len(bias)):
                self._layer, self.fused = LastLayer.of(weight, bias), True

    @property
    def place(self) -> Hashable:
        """Tables are made on one stream and given back to it; those of inference mode stay in it."""
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
            from thera.networks.kernels_render import oscillations

            return oscillations(self._layer, features.contiguous(), shift, table)
        with float32_products(tf32=self.tf32):
            return super().oscillations(features, shift, table)

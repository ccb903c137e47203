"""Pro: a SwinIR body as hypernetwork. It has attention in 8×8 windows, shifted by half in every second layer.

With `aligned = True` it computes with a width of 192 instead of 180 and a head size of 32 instead of 30. The
surplus channels have zero weights, so the function is the same. On a GPU it is several times faster, and the
layers run on the kernels of `thera.kernels.swin` if there is Triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thera.kernels.available import TRITON, matmul_dtype
from thera.kernels.swin.sizes import (
    ALIGNED_HEAD,
    ALIGNED_HIDDEN,
    ALIGNED_WIDTH,
    GROUPS,
    HEAD,
    HEADS,
    SHIFT,
    WIDTH,
    WINDOW,
)

if TYPE_CHECKING:
    from thera.kernels.swin.weights import Folded, Parameters

DROP_PATH = 0.1  # default stochastic depth of the last layer; the first has none


def kernel_dtype(x: Tensor) -> torch.dtype | None:
    """The dtype in which the kernels of `thera.kernels.swin` compute; None if they cannot run."""
    return matmul_dtype(x) if TRITON and x.is_cuda and x.shape[-1] == ALIGNED_WIDTH else None


def fit(t: Tensor, *shape: int) -> Tensor:
    """Zero-pad t at the end of each axis to `shape`."""
    if t.shape == shape:
        return t
    return F.pad(t, [p for n, m in zip(reversed(t.shape), reversed(shape), strict=True) for p in (0, m - n)])


def relative_position_index() -> Tensor:
    """64×64: the row of the bias table (15² rows) for each pair of pixels of a window."""
    at = torch.stack(torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")).flatten(1)
    dy, dx = at[:, :, None] - at[:, None, :] + WINDOW - 1
    return dy * (2 * WINDOW - 1) + dx


def to_windows(x: Tensor) -> Tensor:
    """N×H×W×d → N×(windows)×64×d."""
    N, H, W, d = x.shape
    x = x.reshape(N, H // WINDOW, WINDOW, W // WINDOW, WINDOW, d).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(N, (H // WINDOW) * (W // WINDOW), WINDOW * WINDOW, d)


def from_windows(x: Tensor, H: int, W: int) -> Tensor:
    N, _, _, d = x.shape
    x = x.reshape(N, H // WINDOW, W // WINDOW, WINDOW, WINDOW, d).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(N, H, W, d)


def window_attention(qkv: Tensor, position: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q kᵀ / √30 + position + mask) v in each window.

    qkv: N×(windows)×64×3×heads×head; position: heads×64×64; mask: (windows)×64×64 or None.
    Returns N×(windows)×64×(heads·head).
    """
    q, k, v = qkv.permute(3, 0, 1, 4, 2, 5).unbind(0)  # each N×(windows)×heads×64×head
    logits = (q * HEAD**-0.5) @ k.transpose(-1, -2) + position.to(q.dtype)
    if mask is not None:
        logits = logits + mask[:, None].to(q.dtype)
    y = torch.softmax(logits, dim=-1).to(v.dtype) @ v
    return y.transpose(2, 3).flatten(3)


def shift_mask(H: int, W: int, device: torch.device) -> Tensor:
    """(windows)×64×64: -100 between pixels that the cyclic shift moved together from opposite borders."""

    def region(n: int) -> Tensor:
        at = torch.arange(n, device=device)
        return (at >= n - WINDOW).int() + (at >= n - SHIFT).int()

    regions = 3 * region(H)[:, None] + region(W)[None, :]
    r = to_windows(regions[None, :, :, None])[0, :, :, 0]
    return (r[:, :, None] != r[:, None, :]).float() * -100.0


class LayerNorm(nn.LayerNorm):
    """LayerNorm over the first 180 channels. The surplus channels of an aligned tensor are zero."""

    def forward(self, x: Tensor) -> Tensor:
        n, m = WIDTH, x.shape[-1]
        if n == m:
            return super().forward(x)
        x = x.float()
        mean = x.sum(-1, keepdim=True) / n
        centred = x - mean
        var = ((centred * centred).sum(-1, keepdim=True) - (m - n) * mean * mean) / n
        return centred * torch.rsqrt(var + self.eps) * fit(self.weight, m) + fit(self.bias, m)


class Convolution(nn.Conv2d):
    """3×3 convolution on N×H×W×d, zero-padded to `width` output channels."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__(width_in, width_out, 3, padding=1)

    def forward(self, x: Tensor, width: int) -> Tensor:  # type: ignore[override]
        weight = fit(self.weight, width, x.shape[-1], 3, 3)
        bias = fit(self.bias, width)  # type: ignore[arg-type]
        return F.conv2d(x.permute(0, 3, 1, 2), weight, bias, padding=1).permute(0, 2, 3, 1)


class Attention(nn.Module):
    """Multi-head self-attention in each window, with a learnt bias for every relative position."""

    index: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.bias_table = nn.Parameter(torch.zeros((2 * WINDOW - 1) ** 2, HEADS))
        nn.init.trunc_normal_(self.bias_table, std=0.02)
        self.register_buffer("index", relative_position_index(), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x: N×(windows)×64×d; mask: (windows)×64×64."""
        N, windows, area, width = x.shape
        head = HEAD if width == WIDTH else ALIGNED_HEAD
        weight = self.qkv.weight.view(3, HEADS, -1, self.qkv.in_features)
        weight = fit(weight, 3, HEADS, head, width).reshape(-1, width)
        bias = fit(self.qkv.bias.view(3, HEADS, -1), 3, HEADS, head).flatten()
        qkv = F.linear(x, weight, bias).view(N, windows, area, 3, HEADS, head)
        position = self.bias_table[self.index].permute(2, 0, 1)  # 6×64×64
        y = window_attention(qkv, position, mask)  # N×(windows)×64×(6·head)
        out = fit(self.proj.weight.view(-1, HEADS, self.proj.in_features // HEADS), width, HEADS, head)
        return F.linear(y, out.reshape(width, -1), fit(self.proj.bias, width))

    def align(self) -> None:
        """Replace the parameters by padded ones, so that nothing is padded at run time."""
        d, h = ALIGNED_WIDTH, ALIGNED_HEAD
        self.qkv = _linear(
            fit(self.qkv.weight.view(3, HEADS, HEAD, WIDTH), 3, HEADS, h, d).reshape(-1, d),
            fit(self.qkv.bias.view(3, HEADS, HEAD), 3, HEADS, h).flatten(),
        )
        self.proj = _linear(
            fit(self.proj.weight.view(WIDTH, HEADS, HEAD), d, HEADS, h).reshape(d, -1), fit(self.proj.bias, d)
        )


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.weight = nn.Parameter(weight.detach().contiguous())
    layer.bias = nn.Parameter(bias.detach().contiguous())
    return layer


class SwinLayer(nn.Module):
    """x + attention(norm x), then x + mlp(norm x), on N×H×W×d."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.kernels = True
        self.folded: dict[torch.dtype, Folded] | None = None  # of final parameters, by operand
        self.norm1 = LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm2 = LayerNorm(WIDTH)
        self.expand = nn.Linear(WIDTH, 2 * WIDTH)
        self.project = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None, keep: Tensor | None) -> Tensor:
        """mask: `shift_mask`, not needed by the kernels; keep: 2×N×1×1×1, the factors of stochastic depth
        for the two branches, or None."""
        operand = kernel_dtype(x) if self.kernels else None
        if operand is not None:
            return self.in_kernels(x, keep, operand)
        _, H, W, width = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = from_windows(self.attention(to_windows(y), mask if self.shift else None), H, W)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + (y if keep is None else y * keep[0].to(y.dtype))
        hidden = 2 * WIDTH if width == WIDTH else ALIGNED_HIDDEN
        y = F.linear(self.norm2(x), fit(self.expand.weight, hidden, width), fit(self.expand.bias, hidden))
        y = F.gelu(y, approximate="tanh")
        y = F.linear(y, fit(self.project.weight, width, hidden), fit(self.project.bias, width))
        return x + (y if keep is None else y * keep[1].to(y.dtype))

    def in_kernels(self, x: Tensor, keep: Tensor | None, operand: torch.dtype) -> Tensor:
        """`forward` of an aligned x by the kernels. operand: the dtype of matrix products."""
        from thera.kernels.swin.layer import swin_layer

        parameters = self.kernel_parameters()
        return swin_layer(x, keep, self.shift, self.norm1.eps, parameters, operand, self.folded)

    def kernel_parameters(self) -> Parameters:
        from thera.kernels.swin.weights import Parameters

        a = self.attention
        norm1, qkv, proj = ((m.weight, m.bias) for m in (self.norm1, a.qkv, a.proj))
        norm2, expand, project = ((m.weight, m.bias) for m in (self.norm2, self.expand, self.project))
        return Parameters(*norm1, *qkv, a.bias_table, *proj, *norm2, *expand, *project)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing if there is Triton: the layer then has kernels of its own."""
        if not TRITON:
            super().compile(*args, **kwargs)

    def align(self) -> None:
        d, h = ALIGNED_WIDTH, ALIGNED_HIDDEN
        self.attention.align()
        self.expand = _linear(fit(self.expand.weight, h, d), fit(self.expand.bias, h))
        self.project = _linear(fit(self.project.weight, d, h), fit(self.project.bias, d))
        self.folded = {}


class Group(nn.Module):
    """Swin layers, a convolution, and a skip around both."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SwinLayer(SHIFT * (i % 2)) for i in range(layers))
        self.conv = Convolution(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None, keep: list[Tensor | None]) -> Tensor:
        y = x
        for layer, kept in zip(self.layers, keep, strict=True):
            y = layer(y, mask, kept)
        return x + self.conv(y, y.shape[-1])


class SwinIR(nn.Module):
    """N×64×H×W → N×64×H×W; with the last layer and the bank 4.63 M parameters."""

    width_out = 64

    def __init__(self) -> None:
        super().__init__()
        self.aligned = False
        self.kernels = True
        self.drop_path = DROP_PATH
        self.conv_in = Convolution(64, WIDTH)
        self.norm_in = LayerNorm(WIDTH)
        self.groups = nn.ModuleList(Group(layers) for layers in GROUPS)
        self.norm_out = LayerNorm(WIDTH)
        self.conv_body = Convolution(WIDTH, WIDTH)
        self.conv_out = Convolution(WIDTH, 64)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                nn.init.zeros_(m.bias)

    def forward(self, features: Tensor) -> Tensor:
        H, W = features.shape[2:]
        width = ALIGNED_WIDTH if self.aligned else WIDTH
        rows, columns = reflected(H, features.device), reflected(W, features.device)
        x = features.permute(0, 2, 3, 1)[:, rows][:, :, columns]
        f = self.conv_in(x, width)
        operand = kernel_dtype(f) if self.kernels else None
        mask = None if operand is not None else shift_mask(x.shape[1], x.shape[2], x.device)
        keep = self._stochastic_depth(x)
        y = self.norm_in(f)
        if operand is not None:
            y = y.to(operand)
        for group in self.groups:
            y = group(y, mask, [keep.pop(0) for _ in group.layers])  # type: ignore[union-attr]
        y = f + self.conv_body(self.norm_out(y), width)
        y = F.leaky_relu(self.conv_out(y, 64), 0.01)
        return y[:, :H, :W].permute(0, 3, 1, 2)

    def _stochastic_depth(self, x: Tensor) -> list[Tensor | None]:
        """In training, branches are dropped at random for each sample, more often in deeper layers."""
        layers = sum(GROUPS)
        if not (self.training and self.drop_path):
            return [None] * layers
        kept = 1 - torch.linspace(0, self.drop_path, layers, device=x.device).view(-1, 1, 1, 1, 1, 1)
        drawn = torch.rand(layers, 2, x.shape[0], 1, 1, 1, device=x.device) < kept
        return list(drawn / kept)

    def align(self) -> None:
        """Switch to aligned widths for inference: the parameters are padded once, not at every call."""
        self.aligned = True
        for group in self.groups:
            for layer in group.layers:  # type: ignore[union-attr]
                layer.align()

    def allow_kernels(self, allowed: bool) -> None:
        """Whether the layers run on kernels where there are any; at first they do."""
        self.kernels = allowed
        for group in self.groups:
            for layer in group.layers:  # type: ignore[union-attr]
                layer.kernels = allowed


def reflected(n: int, device: torch.device) -> Tensor:
    """The indices 0 … n-1, continued by reflection to the next multiple of the window.

    They are arithmetic on `arange`, so that an exported graph takes any n from 1 up.
    """
    at = torch.arange((n + WINDOW - 1) // WINDOW * WINDOW, device=device)
    period = max(2 * (n - 1), 1)
    at = at - at // period * period  # at % period: the exporter has no % for a variable period
    return torch.minimum(at, period - at)

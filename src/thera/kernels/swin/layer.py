"""The Swin layer, x + attention(norm x) and then x + mlp(norm x), with its gradients.

In training, a plain layer spends more time on moving activations than on computing with them. Here there is
one pass between two matrix products, and three things need no pass at all:

- Shifted windows: the pixels stay in image order, and the attention kernel finds those of its window.
- The norms' weights and all biases: they are parts of the matrices (see `weights`). A surplus channel that is
  held at one multiplies the biases, so they and their gradients come out of the same matrix products.
- Stochastic depth: it multiplies the input of a branch's last product, the ones for its bias included.

The plain form is `thera.networks.swinir.SwinLayer`.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from thera.kernels.norm import norm_backward
from thera.kernels.swin.attention import attention, attention_backward
from thera.kernels.swin.mlp import expand, expand_backward
from thera.kernels.swin.norm import add_and_norm, norm
from thera.kernels.swin.sizes import WIDTH
from thera.kernels.swin.weights import Folded, Parameters, fold, unfold


class Saved(NamedTuple):
    """What the forward pass keeps for the backward pass. M×192 where nothing else is said."""

    weights: Folded
    unit1: Tensor
    rstd1: Tensor  # M
    qkv: Tensor  # M×576
    attended: Tensor
    logsum: Tensor  # M×6, window by window: the logarithms of the softmax's sums
    unit2: Tensor
    rstd2: Tensor  # M
    hidden: Tensor  # M×384, before the activation
    activated: Tensor  # M×384


def forward(
    x: Tensor, keep: Tensor | None, shift: int, eps: float, table: Tensor, weights: Folded
) -> tuple[Tensor, Saved]:
    """The layer. x: N×H×W×192; keep: 2×N, the factors of stochastic depth for the two branches."""
    N, H, W, d = x.shape
    keep1, keep2 = (None, None) if keep is None else keep
    x, unit1, rstd1 = norm(x.reshape(-1, d), None, eps)
    qkv = unit1 @ weights.qkv.T
    attended, logsum = attention(qkv, table, keep1, shift, H, W)
    x, unit2, rstd2 = add_and_norm(x, attended, weights.proj, eps)
    hidden, activated = expand(unit2, weights.expand, keep2, H * W)
    out = x.addmm_(activated, weights.project.T)  # in place: the backward pass needs unit2, not x
    return out.view(N, H, W, d), Saved(
        weights, unit1, rstd1, qkv, attended, logsum, unit2, rstd2, hidden, activated
    )


def backward(
    gout: Tensor, keep: Tensor | None, shift: int, p: Parameters, saved: Saved
) -> tuple[Tensor, Parameters]:
    """The gradients of x and of the parameters."""
    N, H, W, d = gout.shape
    keep1, keep2 = (None, None) if keep is None else keep
    g, s, w = gout.reshape(-1, d), saved, saved.weights
    gproject = g.T @ s.activated
    ghidden = expand_backward(g, w.project, s.hidden, keep2, H * W)
    gexpand = ghidden.T @ s.unit2
    g = norm_backward(ghidden @ w.expand, s.unit2, s.rstd2, WIDTH, g)
    gproj = g.T @ s.attended
    gqkv, gposition = attention_backward(g @ w.proj, s.qkv, s.logsum, p.table, keep1, shift, H, W)
    gweight = gqkv.T @ s.unit1
    g = norm_backward(gqkv @ w.qkv, s.unit1, s.rstd1, WIDTH, g)
    return g.view(N, H, W, d), unfold(p, Folded(gweight, gproj, gexpand, gproject), gposition)


class Layer(torch.autograd.Function):
    """`forward` and `backward` as one operation for autograd, with the 13 `Parameters` one by one."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, keep: Tensor | None, shift: int, eps: float, *parameters: Tensor
    ) -> Tensor:
        p = Parameters(*parameters)
        out, saved = forward(x, keep, shift, eps, p.table, fold(p, x.dtype))
        ctx.save_for_backward(keep, *parameters, *saved.weights, *saved[1:])
        ctx.shift = shift
        return out

    @staticmethod
    def backward(ctx: Any, gout: Tensor) -> tuple[Tensor | None, ...]:
        keep, *rest = ctx.saved_tensors
        parameters, weights, others = Parameters(*rest[:13]), Folded(*rest[13:17]), rest[17:]
        g, gparameters = backward(gout, keep, ctx.shift, parameters, Saved(weights, *others))
        return g, None, None, None, *gparameters


@torch.compiler.disable
def swin_layer(
    x: Tensor, keep: Tensor | None, shift: int, eps: float, parameters: Parameters, operand: torch.dtype,
    folded: dict[torch.dtype, Folded] | None,
) -> Tensor:  # fmt: skip
    """The layer as one operation, which PyTorch's compiler leaves alone.

    x: N×H×W×192; keep: 2×N×1×1×1 or None; operand: the dtype of matrix products, and of the result; folded:
    where to keep the folded parameters if they are final.
    """
    x = x.to(operand).contiguous()
    keep = None if keep is None else keep.flatten(1).contiguous()
    with torch.autocast(x.device.type, enabled=False), torch.cuda.device_of(x):
        if torch.is_grad_enabled():
            return Layer.apply(x, keep, shift, eps, *parameters)
        weights = (folded or {}).get(operand) or fold(parameters, operand)
        if folded is not None:
            folded[operand] = weights
        return forward(x, keep, shift, eps, parameters.table, weights)[0]

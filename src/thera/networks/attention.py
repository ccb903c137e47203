"""Attention inside windows of 64 pixels: softmax(q kᵀ · scale + position + mask) v."""

from __future__ import annotations

import torch
from torch import Tensor


def window_attention(qkv: Tensor, position: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Attend within each window.

    qkv: N×(windows)×64×3×heads×head; position: heads×64×64; mask: (windows)×64×64 or None.
    Returns N×(windows)×64×(heads·head).
    """
    q, k, v = qkv.permute(3, 0, 1, 4, 2, 5).unbind(0)  # each N×(windows)×heads×64×head
    logits = (q * scale) @ k.transpose(-1, -2) + position.to(q.dtype)
    if mask is not None:
        logits = logits + mask[:, None].to(q.dtype)
    y = torch.softmax(logits, dim=-1).to(v.dtype) @ v
    return y.transpose(2, 3).flatten(3)

"""A picture whose pixels say where they came from, and what follows for a batch that was drawn from it."""

import itertools

import numpy as np
import torch


def ramp(height=90, width=110):
    """Red is the row, green the column, blue both: a pixel's colour says where it came from."""
    y, x = np.mgrid[:height, :width]
    return np.stack([y, x, y + x], -1).astype(np.uint8)


def errors_by_position(batch):
    """N×8: how far, in grey levels, targets are from where they are said to lie, in each of the positions.

    On a ramp the field is linear: a target differs from its input pixel by offset × scale, up to rounding.
    A flip changes the sign, a transposition the channel.
    """
    pixel = batch.source.permute(0, 2, 3, 1)[:, 2:-2, 2:-2, None] * 255
    step = (batch.target[:, 2:-2, 2:-2] * 255 - pixel)[..., :2]
    offset = batch.x[:, 2:-2, 2:-2] * batch.t.rsqrt().view(-1, 1, 1, 1, 1)
    signs = itertools.product((1.0, -1.0), repeat=2)
    turned = [o * torch.tensor(s) for s in signs for o in (offset, offset.flip(-1))]
    return torch.stack([(step - o).abs().flatten(1).amax(1) for o in turned], 1)

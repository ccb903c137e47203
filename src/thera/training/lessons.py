"""Lessons: batches whose targets are what a better model sees in them, kept and drawn again.

An image is one of many that its small version may have come from, and most of a gradient is about which of
them it happened to be. A teacher says what they have in common: a small network that follows it learns from
gradients with little noise in them. Its work is shared among several steps: of the lessons kept, some of each
batch are drawn, flipped and turned anew, and the oldest make room.
"""

from __future__ import annotations

import torch

from thera.models.cuda_graph import Captured
from thera.networks import Thera
from thera.networks.heat import field_values
from thera.networks.spec import STD
from thera.training.config import Teacher
from thera.training.data import Batch, Crops, Sampler, position, turned


class Lessons:
    """A store of `config.kept` batches on the device of the sampler."""

    def __init__(self, sampler: Sampler, teacher: Thera, config: Teacher, batch: int, short: bool) -> None:
        self.sampler, self.config, self.batch = sampler, config, batch
        self.teacher, self.short = teacher.eval().requires_grad_(False), short  # computes in bfloat16
        P, q, device = sampler.config.patch, sampler.config.targets, sampler.device
        cells = config.kept, batch, P, P
        self.source = torch.empty(*cells, 3, dtype=torch.uint8, device=device)
        self.target = torch.empty(*cells, q, 3, dtype=torch.float16, device=device)
        self.x = torch.empty(*cells, q, 2, device=device)
        self.t = torch.empty(config.kept, batch, device=device)
        self.oldest = torch.zeros(1, dtype=torch.long, device=device)
        self.filled = False
        self._teach = Captured(self.teach, device, whole=True)

    def refresh(self, step: int) -> None:
        """Before a step: the whole store at first, then one batch every so many steps."""
        for _ in range(int(step % self.config.reuse == 0) if self.filled else self.config.kept):
            self._teach()
        self.filled = True

    @torch.no_grad()
    def teach(self) -> None:
        """Let the teacher look at a new batch, which takes the place of the oldest."""
        batch = self.sampler.build(self.sampler.draw(self.batch))
        # Nothing here has gradients; where they are allowed, EDSR runs in the kernels of training: faster.
        short = torch.autocast(self.source.device.type, torch.bfloat16, enabled=self.short)
        with torch.enable_grad(), short:
            value, _ = field_values(self.teacher, self.teacher.features(batch.source), batch.x, batch.t)
        source = batch.source.permute(0, 2, 3, 1)
        seen = source.unsqueeze(3) + STD * value.float()
        target = torch.lerp(batch.target, seen, self.config.share)
        for kept, new in (
            (self.source, (255 * source).round().to(torch.uint8)),
            (self.target, target.to(self.target.dtype)),
            (self.x, batch.x),
            (self.t, batch.t),
        ):
            kept.index_copy_(0, self.oldest, new[None])
        self.oldest.add_(1).remainder_(self.config.kept)

    @torch.no_grad()
    def draw(self) -> Batch:
        """A batch of lessons, each from anywhere in the store, flipped and turned anew."""
        P, device = self.sampler.config.patch, self.source.device
        count = self.config.kept * self.batch
        which = (torch.rand(self.batch, device=device) * count).long().clamp_(max=count - 1)
        turn = torch.rand(self.batch, 3, device=device)
        side = torch.full_like(which, P)
        first, down, across = turned(turn, side, side)
        cell = Crops(which * (P * P) + first, down, across, side).numbers(P)
        flat = [kept.flatten(0, 3)[cell] for kept in (self.source, self.target, self.x)]
        source, target, x = flat[0].float() / 255, flat[1].float(), flat[2]
        flipped, transposed = position(turn)
        x = torch.where(transposed.view(-1, 1, 1, 1, 1), x.flip(-1), x)
        x = torch.where(flipped.view(-1, 1, 1, 1, 2), -x, x)
        return Batch(source.permute(0, 3, 1, 2), target, x, self.t.flatten()[which])

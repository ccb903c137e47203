"""Distillation: the student's targets are the fields of a better model, its teacher.

Many images reduce to the same small one, and most of a gradient's noise comes from which of them the training
image happens to be. The teacher predicts their mean, so the student's gradients have little noise. The
teacher sees clean inputs, even where the student's are degraded. Its work is reused: its batches are stored,
and each step draws patches from all of them in new orientations. New batches replace the oldest.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from thera.models.cuda_graph import Captured
from thera.networks import Network
from thera.networks.spec import STD
from thera.training.config import Teacher
from thera.training.data import Batch, Crops, Sampler, oriented, turned_offsets
from thera.training.objective import ensemble_mean, four_rotations


class Distillation:
    """A store of `config.kept` of the teacher's batches, on the sampler's device."""

    def __init__(self, sampler: Sampler, teacher: Network, config: Teacher, batch: int, bf16: bool) -> None:
        self.sampler, self.config, self.batch = sampler, config, batch
        self.teacher, self.bf16 = teacher.eval().requires_grad_(False), bf16
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
        """Called before every step: fills the store at first, then renews one batch every `reuse` steps."""
        for _ in range(int(step % self.config.reuse == 0) if self.filled else self.config.kept):
            self._teach()
        self.filled = True

    @torch.no_grad()
    def teach(self) -> None:
        """Replace the oldest batch by a new one with the teacher's targets."""
        batch = self.sampler.build(self.sampler.draw(self.batch))
        autocast = torch.autocast(self.source.device.type, torch.bfloat16, enabled=self.bf16)
        # Nothing here requires gradients, but EDSR uses its faster training kernels where they are enabled.
        clean = batch if batch.clean is None else replace(batch, source=batch.clean)
        seen = four_rotations(clean) if self.config.ensemble else clean
        with torch.enable_grad(), autocast:
            features = self.teacher.features(seen.source)
            value, _ = self.teacher.field(features, seen.source, seen.x, seen.t)
        if self.config.ensemble:
            value = ensemble_mean(value)
        predicted = clean.source.permute(0, 2, 3, 1).unsqueeze(3) + STD * value.float()
        source = batch.source.permute(0, 2, 3, 1)
        target = torch.lerp(batch.target, predicted, self.config.share)
        for stored, new in (
            (self.source, (255 * source).round().to(torch.uint8)),
            (self.target, target.to(self.target.dtype)),
            (self.x, batch.x),
            (self.t, batch.t),
        ):
            stored.index_copy_(0, self.oldest, new[None])
        self.oldest.add_(1).remainder_(self.config.kept)

    @torch.no_grad()
    def draw(self) -> Batch:
        """A batch of stored patches, each drawn from the whole store, in new orientations."""
        P, device = self.sampler.config.patch, self.source.device
        count = self.config.kept * self.batch
        which = (torch.rand(self.batch, device=device) * count).long().clamp_(max=count - 1)
        turn = torch.rand(self.batch, 3, device=device)
        side = torch.full_like(which, P)
        first, down, across = oriented(turn, side, side)
        cell = Crops(which * (P * P) + first, down, across, side).indices(P)
        flat = [stored.flatten(0, 3)[cell] for stored in (self.source, self.target, self.x)]
        source, target, x = flat[0].float() / 255, flat[1].float(), flat[2]
        return Batch(source.permute(0, 3, 1, 2), target, turned_offsets(x, turn), self.t.flatten()[which])

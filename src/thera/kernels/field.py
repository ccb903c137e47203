"""The heat field for training, with the last layer before it.

These kernels save memory traffic. One training step has 75 million sinusoids: their arguments, sines and
products stay in registers. The backward kernel writes the gradients of amplitudes and phases as one matrix,
so that the last layer's gradients are one matrix product each. The plain form is
`thera.networks.heat.heat_field`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from thera.kernels.common import MULTIPROCESSORS, Tile, sine
from thera.kernels.sums import summed

# benchmarks/kernels.py compares these with others. The channels are components: they must divide c.
FORWARD = Tile(pixels=16, channels=32, warps=4, stages=3)
BACKWARD = Tile(pixels=16, channels=32, warps=4, stages=1, programs=16)


@triton.jit
def _gain(rho, FILTER: tl.constexpr):
    """`thera.networks.heat.gain`, and minus its derivative by ρ."""
    if FILTER == "butterworth":
        u = rho * 1.4426950408889634  # ρ / ln 2
        g = 1 / tl.sqrt(1 + u * u)
        return g, u * 1.4426950408889634 * g * g * g
    elif FILTER == "ideal":
        return tl.where(rho <= 0.6931471805599453, 1.0, 0.0), rho * 0
    else:
        g = tl.exp(-rho)
        return g, g


@triton.jit
def _heat_forward(
    amplitude, phase, w, kappa, x, t, value, slope, M, AREA,
    Q: tl.constexpr, C: tl.constexpr, FILTER: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """BM pixels, at target q of each."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    q = tl.program_id(1)
    ok = rows < M
    at = rows.to(tl.int64)
    x1 = tl.load(x + (at * Q + q) * 2, ok, 0.0)[:, None]
    x2 = tl.load(x + (at * Q + q) * 2 + 1, ok, 0.0)[:, None]
    kt = (tl.load(t + at // AREA, ok, 0.0) * tl.load(kappa))[:, None]
    v0 = tl.zeros((BM, BK), tl.float32)
    v1, v2, s00, s01, s10, s11, s20, s21 = v0, v0, v0, v0, v0, v0, v0, v0
    for k0 in tl.range(0, C, BK, num_stages=STAGES):
        k = k0 + tl.arange(0, BK)
        w1 = tl.load(w + k)[None, :]
        w2 = tl.load(w + C + k)[None, :]
        z = tl.load(phase + at[:, None] * C + k[None, :], ok[:, None], 0.0) + w1 * x1 + w2 * x2
        sin, cos = sine(z, False), sine(z, True)
        passed, _ = _gain((w1 * w1 + w2 * w2) * kt, FILTER)
        sin = sin * passed
        a = amplitude + at[:, None] * (3 * C) + k[None, :]
        a0 = tl.load(a, ok[:, None], 0.0).to(tl.float32)
        a1 = tl.load(a + C, ok[:, None], 0.0).to(tl.float32)
        a2 = tl.load(a + 2 * C, ok[:, None], 0.0).to(tl.float32)
        v0 += a0 * sin
        v1 += a1 * sin
        v2 += a2 * sin
        c1 = cos * w1
        c2 = cos * w2
        s00 += a0 * c1
        s01 += a0 * c2
        s10 += a1 * c1
        s11 += a1 * c2
        s20 += a2 * c1
        s21 += a2 * c2
    v = value + (at * Q + q) * 3
    tl.store(v, tl.sum(v0, 1), ok)
    tl.store(v + 1, tl.sum(v1, 1), ok)
    tl.store(v + 2, tl.sum(v2, 1), ok)
    s = slope + (at * Q + q) * 6
    tl.store(s, tl.sum(s00, 1), ok)
    tl.store(s + 1, tl.sum(s01, 1), ok)
    tl.store(s + 2, tl.sum(s10, 1), ok)
    tl.store(s + 3, tl.sum(s11, 1), ok)
    tl.store(s + 4, tl.sum(s20, 1), ok)
    tl.store(s + 5, tl.sum(s21, 1), ok)


@triton.jit
def _heat_backward(
    amplitude, phase, w, kappa, x, t, gv, gs, gfield, gsums, M, AREA,
    Q: tl.constexpr, C: tl.constexpr, FILTER: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    STEPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A program takes one chunk of components and every P-th block of rows, so that the gradients of the bank
    and of the last layer's biases stay in registers. gfield: M×4c, for the amplitudes (3×c) and the phases.
    """
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    w1 = tl.load(w + k)[None, :]
    w2 = tl.load(w + C + k)[None, :]
    ww = w1 * w1 + w2 * w2
    gw1 = tl.zeros((BM, BK), tl.float32)
    gw2, gk, b0, b1, b2, bz = gw1, gw1, gw1, gw1, gw1, gw1
    diffusivity = tl.load(kappa)
    for step in tl.range(STEPS, num_stages=STAGES):
        rows = (step * tl.num_programs(1) + tl.program_id(1)) * BM + tl.arange(0, BM)
        ok = rows < M
        at = rows.to(tl.int64)
        time = tl.load(t + at // AREA, ok, 0.0)[:, None]
        decay, fall = _gain(ww * (time * diffusivity), FILTER)
        phi = tl.load(phase + at[:, None] * C + k[None, :], ok[:, None], 0.0)
        a = at[:, None] * (3 * C) + k[None, :]
        a0 = tl.load(amplitude + a, ok[:, None], 0.0).to(tl.float32)
        a1 = tl.load(amplitude + a + C, ok[:, None], 0.0).to(tl.float32)
        a2 = tl.load(amplitude + a + 2 * C, ok[:, None], 0.0).to(tl.float32)
        ga0 = tl.zeros((BM, BK), tl.float32)
        ga1, ga2, gz = ga0, ga0, ga0
        for q in tl.static_range(Q):
            p = at * Q + q
            x1 = tl.load(x + p * 2, ok, 0.0)[:, None]
            x2 = tl.load(x + p * 2 + 1, ok, 0.0)[:, None]
            g0 = tl.load(gv + p * 3, ok, 0.0)[:, None]
            g1 = tl.load(gv + p * 3 + 1, ok, 0.0)[:, None]
            g2 = tl.load(gv + p * 3 + 2, ok, 0.0)[:, None]
            h00 = tl.load(gs + p * 6, ok, 0.0)[:, None]
            h01 = tl.load(gs + p * 6 + 1, ok, 0.0)[:, None]
            h10 = tl.load(gs + p * 6 + 2, ok, 0.0)[:, None]
            h11 = tl.load(gs + p * 6 + 3, ok, 0.0)[:, None]
            h20 = tl.load(gs + p * 6 + 4, ok, 0.0)[:, None]
            h21 = tl.load(gs + p * 6 + 5, ok, 0.0)[:, None]
            z = phi + w1 * x1 + w2 * x2
            sin, cos = sine(z, False), sine(z, True)
            damped = sin * decay
            ga0 += g0 * damped + (h00 * w1 + h01 * w2) * cos
            ga1 += g1 * damped + (h10 * w1 + h11 * w2) * cos
            ga2 += g2 * damped + (h20 * w1 + h21 * w2) * cos
            along = g0 * a0 + g1 * a1 + g2 * a2  # Σ over channels of ∂L/∂Φ · a
            along1 = h00 * a0 + h10 * a1 + h20 * a2
            along2 = h01 * a0 + h11 * a1 + h21 * a2
            dz = along * cos * decay - (along1 * w1 + along2 * w2) * sin
            gz += dz
            cooled = along * (sin * fall) * time
            gw1 += dz * x1 + along1 * cos - 2 * diffusivity * w1 * cooled
            gw2 += dz * x2 + along2 * cos - 2 * diffusivity * w2 * cooled
            gk -= ww * cooled
        out = gfield + at[:, None] * (4 * C) + k[None, :]
        tl.store(out, ga0.to(gfield.dtype.element_ty), ok[:, None])
        tl.store(out + C, ga1.to(gfield.dtype.element_ty), ok[:, None])
        tl.store(out + 2 * C, ga2.to(gfield.dtype.element_ty), ok[:, None])
        tl.store(out + 3 * C, gz.to(gfield.dtype.element_ty), ok[:, None])
        b0 += ga0
        b1 += ga1
        b2 += ga2
        bz += gz
    out = gsums + tl.program_id(1) * (7 * C) + k
    tl.store(out, tl.sum(b0, 0))
    tl.store(out + C, tl.sum(b1, 0))
    tl.store(out + 2 * C, tl.sum(b2, 0))
    tl.store(out + 3 * C, tl.sum(bz, 0))
    tl.store(out + 4 * C, tl.sum(gw1, 0))
    tl.store(out + 5 * C, tl.sum(gw2, 0))
    tl.store(out + 6 * C, tl.sum(gk, 0))


def heat_forward(
    amplitude: Tensor, phase: Tensor, w: Tensor, kappa: Tensor, x: Tensor, t: Tensor, filter: str = "gaussian"
) -> tuple[Tensor, Tensor]:
    """Φ - I and ∇Φ(x, 0). amplitude: M×3c, phase: M×c, w: 2×c, x: N×H×W×q×2, t: N, all contiguous."""
    N, H, W, q, _ = x.shape
    M, c = phase.shape
    value = torch.empty(N, H, W, q, 3, device=x.device)
    slope = torch.empty(N, H, W, q, 3, 2, device=x.device)
    BM, BK = FORWARD.pixels, FORWARD.channels
    _heat_forward[(triton.cdiv(M, BM), q)](
        amplitude, phase, w, kappa, x, t, value, slope, M, H * W,
        Q=q, C=c, FILTER=filter, BM=BM, BK=BK, **FORWARD.launch_staged(),
    )  # fmt: skip
    return value, slope


def heat_backward(
    amplitude: Tensor,
    phase: Tensor,
    w: Tensor,
    kappa: Tensor,
    x: Tensor,
    t: Tensor,
    gv: Tensor,
    gs: Tensor,
    filter: str = "gaussian",
) -> tuple[Tensor, Tensor]:
    """The gradients of amplitude and phase: M×4c, in the dtype of the amplitude. Then seven rows of c sums:
    the four sums of those gradients over the pixels, the bank's gradient (two), κ's (per component)."""
    _, H, W, q, _ = x.shape
    M, c = phase.shape
    gfield = amplitude.new_empty(M, 4 * c)
    BM, BK = BACKWARD.pixels, BACKWARD.channels
    programs = max(1, min(triton.cdiv(M, BM), MULTIPROCESSORS * BACKWARD.programs * BK // c))
    gsums = torch.empty(programs, 7, c, device=x.device)
    _heat_backward[(c // BK, programs)](
        amplitude, phase, w, kappa, x, t, gv.contiguous(), gs.contiguous(), gfield, gsums, M, H * W,
        Q=q, C=c, FILTER=filter, BM=BM, BK=BK, STEPS=triton.cdiv(triton.cdiv(M, BM), programs),
        **BACKWARD.launch_staged(),
    )  # fmt: skip
    return gfield, summed(gsums)


class Fields(torch.autograd.Function):
    """From features to Φ - I and ∇Φ(x, 0): the last layer, then the heat field.

    features: N×H×W×C, weight: 4c×C, bias: 4c, w: 2×c, κ, x: N×H×W×q×2, t: N. `operand` is the dtype of the
    last layer's matrix products, except for the phases: they are angles of several turns, so float32.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, w: Tensor, kappa: Tensor, x: Tensor,
        t: Tensor, operand: torch.dtype, filter: str = "gaussian",
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        C, c = features.shape[-1], w.shape[1]
        f, w, x, t = features.reshape(-1, C), w.contiguous(), x.contiguous(), t.contiguous()
        # Stored as (c, 3), read as (3, c): sums over the components then read consecutive memory.
        order = torch.cat([weight[: 3 * c].view(c, 3, C).transpose(0, 1).reshape(-1, C), weight[3 * c :]])
        biases = torch.cat([bias[: 3 * c].view(c, 3).T.flatten(), bias[3 * c :]])
        with torch.autocast(x.device.type, enabled=False):
            short, rows = order.to(operand), f.to(operand)
            amplitude = torch.addmm(biases[: 3 * c].to(operand), rows, short[: 3 * c].T)
            phase = torch.addmm(biases[3 * c :], f.float(), order[3 * c :].T)
        ctx.save_for_backward(rows, short, amplitude, phase, w, kappa, x, t)
        ctx.shape, ctx.type, ctx.filter = features.shape, features.dtype, filter
        return heat_forward(amplitude, phase, w, kappa, x, t, filter)

    @staticmethod
    def backward(ctx: Any, gv: Tensor, gs: Tensor) -> tuple[Tensor | None, ...]:
        rows, short, amplitude, phase, w, kappa, x, t = ctx.saved_tensors
        gfield, sums = heat_backward(amplitude, phase, w, kappa, x, t, gv, gs, ctx.filter)
        c, C = sums.shape[1], rows.shape[1]
        gfeatures = (gfield @ short).view(ctx.shape).to(ctx.type)
        gorder = (gfield.T @ rows).float()
        gweight = torch.cat([gorder[: 3 * c].view(3, c, C).transpose(0, 1).reshape(-1, C), gorder[3 * c :]])
        gbias = torch.cat([sums[:3].T.flatten(), sums[3]])
        return gfeatures, gweight, gbias, sums[4:6], sums[6].sum(), None, None, None, None

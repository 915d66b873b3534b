"""Cost figures that go round for Llama-3-70B and 8B, under the assumptions that make them true, and what our own models say.

The well-known pair "0.82 in FP16, 0.47 in FP8" shares no basis: the first counts input and output tokens of a full box,
the second output tokens of a box that is used to two thirds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.cost.levers import Routed, routed
from planner.cost.unit import Counted, per_million
from planner.estimate import Estimate, exactly
from planner.speed.deployment import Named, deployment
from planner.speed.efficiency import Fitted
from planner.speed.prediction import Load, predicted
from planner.speed.steps import Lengths
from planner.tensors import Layout

_THOUSAND: Final = Lengths(1000.0, 1000.0)


@dataclass(frozen=True, slots=True)
class Reference:
    """One figure: what is said (``told_usd``), the assumptions under which it is so, and the deployment for our model.

    ``tokens_per_s``: of output, full load, ``rate_source``: where it was measured, or that it was solved for.
    """

    name: str
    told_usd: float
    named: Named
    usd_per_gpu_hour: float
    price_source: str
    tokens_per_s: float
    rate_source: str
    utilisation: float
    counted: Counted


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A reference under its assumptions, and with the rate that the shipped speed model predicts instead."""

    reference: Reference
    reproduced: Estimate
    by_model: Estimate
    model_tokens_per_s: Estimate
    same_basis: Estimate


_TRT: Final = "TensorRT-LLM 0.14 performance table, 1000 in / 1000 out, every request queued"
_H100: Final = "2.30 USD per GPU-hour, assumed (market index of 2026-03: 2.35)"
_LLAMA: Final = "meta-llama/Llama-3.1-70B-Instruct"
REFERENCES: Final = (
    Reference(
        "Llama-3-70B FP16 on 2 x H100", 0.82,
        Named(_LLAMA, "fp16", "H100-SXM-80GB", 2, "tensorrt-llm", "0.14", Layout(tp=2), "fp16"),
        2.30, _H100, 785.5, _TRT, 1.0, "total",
    ),
    Reference(
        "Llama-3-70B FP8 weights and KV cache on 2 x H100", 0.47,
        Named(_LLAMA, "fp8", "H100-SXM-80GB", 2, "tensorrt-llm", "0.14", Layout(tp=2), "fp8"),
        2.30, _H100, 4116.4, _TRT, 0.66, "output",
    ),
    Reference(
        "Llama-3-8B FP8 on L40S", 0.20,
        Named("meta-llama/Llama-3.1-8B-Instruct", "fp8", "L40S-48GB", 1, "vllm", "", kv_dtype="fp8"),
        1.5484, "Nebius, 2026 (SkyPilot catalog v8, commit 0082b043)", 4301.0,
        "solved for: 2,151 output tokens/s are served at 50 % utilisation; not measured", 0.50, "output",
    ),
)  # fmt: skip


def references(fitted: Fitted) -> tuple[Reproduced, ...]:
    """Every reference under its own assumptions, beside what the shipped speed model makes of it."""
    return tuple(_reproduced(one, fitted) for one in REFERENCES)


def _reproduced(one: Reference, fitted: Fitted) -> Reproduced:
    usd = exactly(one.named.gpu_count * one.usd_per_gpu_hour, one.price_source)
    both = 2.0 if one.counted == "total" else 1.0  # as many input as output tokens in every row
    use = exactly(one.utilisation)
    rate = predicted(deployment(one.named), Load("max_throughput", _THOUSAND), fitted).output_tokens_per_s
    measured = exactly(one.tokens_per_s * both, one.rate_source)
    return Reproduced(
        one, per_million(usd, measured, utilisation=use, counted=one.counted),
        per_million(usd, rate.scaled(both), utilisation=use, counted=one.counted), rate,
        per_million(usd, exactly(one.tokens_per_s, one.rate_source), counted="output"),
    )  # fmt: skip


def routings() -> tuple[tuple[str, Routed], ...]:
    """80 % of the tokens on the small model: what the well-known 60 to 70 % saving assumes, and what is left of it."""
    small, slow, fast = exactly(0.20), exactly(0.82), exactly(0.47)
    unlike = routed(small, fast, 0.8)
    mixed = 1 - unlike.blended.point / slow.point
    both = Routed(
        unlike.blended, exactly(mixed, "FP8 and routing together, against all on FP16: two steps, and two bases mixed"),
        unlike.allowed, unlike.reason,
    )  # fmt: skip
    return (
        ("against 0.82 (FP16)", routed(small, slow, 0.8)),
        ("FP8 and routing, against 0.82 (FP16)", both),
        ("against 0.47 (FP8): routing alone", unlike),
        ("… and a tenth of the small model's answers done again", routed(small, fast, 0.8, escalated=0.1)),
        (
            "… and the big model's GPUs stay, used to 30 % instead of 66 %",
            routed(small, fast, 0.8, big_use=(0.66, 0.30)),
        ),
    )

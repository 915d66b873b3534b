"""Bucket bounds of the engines' latency histograms, as their released packages set them; in the native unit.

Operators can set others by a flag: bounds from live series go over these (``Options.bounds``).
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Bounds:
    """The finite bounds of one family from one version to another; None is open."""

    since: str | None
    until: str | None
    bounds: tuple[float, ...]


_S0: Final = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10"
_S1: Final = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
_S2: Final = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5"
_S3: Final = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80"
_S4: Final = "1 2.5 5 10 15 20 30 40 50 60"
_S5: Final = "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60"
_S6: Final = "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"
_S7: Final = "0.1 0.25 0.5 0.75 1 2 5 10 20 40 60 80 120 160"
_S8: Final = "0.1 0.3 0.5 0.7 0.9 1 2 4 6 8 10 20 40 60 80 120 160"
_S9: Final = "0.1 0.2 0.4 0.6 0.8 1 2 4 6 8 10 20 40 60 80 100 200 400"
_S10: Final = "0.005 0.01 0.015 0.02 0.025 0.03 0.04 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5"
_S11: Final = "0.002 0.005 0.01 0.02 0.03 0.04 0.05 0.06 0.07 0.08 0.09 0.1 0.15 0.2 0.3 0.4 0.6 0.8 1 2"
_S12: Final = "0.1 0.25 0.5 1 2 5 10 20 40 60 80 120 160"
_S13: Final = "0.1 0.2 0.4 0.8 1 2 5 10 20 40 60 80 100 150 200 250 300 350 500 1000"
_S14: Final = "0.1 0.2 0.4 0.6 0.8 1 2 4 6 8 10 20 40 60 80 100 200 400 800"
_S15: Final = "0.1 0.2 0.4 0.6 0.8 1 2 4 6 8 10 20 40 60 80 100 200 400 600 1200 1800 2400"
_S16: Final = (
    "0.002 0.004 0.006 0.008 0.01 0.015 0.02 0.025 0.03 0.035 0.04 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2"
)
_S17: Final = "0.002 0.004 0.006 0.008 0.01 0.015 0.02 0.025 0.03 0.035 0.04 0.06 0.08 0.1 0.2 0.4 0.6 0.8 1 2 4 6 8"
_S18: Final = "0 0.1 0.2 0.5 1 2 3 4 5 10 15 20 30 40 50 60 70 80 90 100 200 300 400 500 600 700 800 900 1000 1200 1400 1600 1800 2000 2500 3000"
_S19: Final = "0 0.001 0.005 0.01 0.05 0.1 0.2 0.5 1 2 3 4 5 10 15 20 30 40 50 60 70 80 90 100 200 300 400 500 600 700 800 900 1000 1200 1400 1600 1800 2000 2500 3000"
_S20: Final = "0.001 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 20 40 80 160 640 2560"
_S21: Final = "100 500 2000 5000"
_S22: Final = "0.005 0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80"
_S23: Final = "0.005 0.025 0.05 0.1 0.2 0.4 0.6 0.8 1 1.25 1.5 2 3 4 5 6 8 10 15 20 30 45 60 120 180 240 300 360 480 600 900 1200 1800 2700 3600"
_S24: Final = "0.005 0.025 0.05 0.1 0.2 0.4 0.6 0.8 1 1.25 1.5 2 3 4 5 6 8 10 15 20 30 45 60 120"
_S25: Final = "0.0005 0.00205 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.125 0.15 0.2 0.3 0.4 0.5 0.6 0.8 1 2"
_S26: Final = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.15 0.2 0.3 0.5 0.75 1 2"
_S27: Final = "0.0001 0.0005 0.001 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 30 60"
_S28: Final = "0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2 5 10 30 60 120 300 420 600"
_S29: Final = "0.05 0.1 0.25 0.5 1 2.5 5 10 30 60 120"
_S30: Final = "0.001 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 15 30 45 60 90 120 180 240"

#: family → its bounds, oldest version first
_TABLE: Final = {
    "inference_objective_request_duration_seconds": ((None, None, _S23),),
    "inference_objective_request_ttft_seconds": ((None, None, _S23),),
    "litellm_llm_api_time_to_first_token_metric": ((None, None, _S28),),
    "litellm_request_queue_time_seconds": ((None, None, _S28),),
    "litellm_request_total_latency_metric": ((None, None, _S28),),
    "llm_d_epp_flow_control_request_queue_duration_seconds": ((None, None, _S27),),
    "llm_d_epp_request_duration_seconds": ((None, None, _S23),),
    "llm_d_epp_request_streaming_itl_seconds": ((None, None, _S26),),
    "llm_d_epp_request_streaming_tpot_seconds": ((None, None, _S25),),
    "llm_d_epp_request_ttft_seconds": ((None, None, _S24),),
    "lmdeploy:e2e_request_latency_seconds": ((None, None, _S6),),
    "lmdeploy:iter_token_latency": ((None, None, _S22),),
    "lmdeploy:request_decode_time_seconds": ((None, None, _S6),),
    "lmdeploy:request_inference_time_seconds": ((None, None, _S6),),
    "lmdeploy:request_prefill_time_seconds": ((None, None, _S6),),
    "lmdeploy:request_queue_time_seconds": ((None, None, _S6),),
    "lmdeploy:time_per_output_token_seconds": ((None, None, _S22),),
    "lmdeploy:time_to_first_token_seconds": ((None, None, _S1),),
    "nv_inference_first_response_histogram_ms": ((None, None, _S21),),
    "sglang:e2e_request_latency_seconds": (
        ("0.4.2", "0.4.3", _S12),
        ("0.4.4", "0.4.4", _S13),
        ("0.4.5", "0.5.1", _S14),
        ("0.5.2", None, _S15),
    ),
    "sglang:inter_token_latency_seconds": (
        ("0.4.4", "0.4.4", _S16),
        ("0.4.5", None, _S17),
    ),
    "sglang:queue_time_s": (("0.5.2", "0.5.2", _S18),),
    "sglang:queue_time_seconds": (
        ("0.5.3", "0.5.11", _S18),
        ("0.5.12", None, _S19),
    ),
    "sglang:request_time_per_output_token_seconds": (("0.5.22", None, _S17),),
    "sglang:time_per_output_token_seconds": (
        ("0.4.2", "0.4.3", _S10),
        ("0.4.4", "0.4.4", _S11),
    ),
    "sglang:time_to_first_token_seconds": (
        ("0.4.2", "0.4.3", _S7),
        ("0.4.4", "0.4.4", _S8),
        ("0.4.5", None, _S9),
    ),
    "smg_router_request_duration_seconds": ((None, None, _S30),),
    "trtllm_e2e_request_latency_seconds": ((None, None, _S6),),
    "trtllm_request_decode_time_seconds": ((None, None, _S6),),
    "trtllm_request_inference_time_seconds": ((None, None, _S6),),
    "trtllm_request_prefill_time_seconds": ((None, None, _S20),),
    "trtllm_request_queue_time_seconds": ((None, None, _S6),),
    "trtllm_time_per_output_token_seconds": ((None, None, _S3),),
    "trtllm_time_to_first_token_seconds": ((None, None, _S1),),
    "vllm:e2e_request_latency_seconds": (
        ("0.6.0", "0.6.3", _S4),
        ("0.6.6", "0.8.0", _S5),
        ("0.8.5", None, _S6),
    ),
    "vllm:inter_token_latency_seconds": (("0.10.2", None, _S3),),
    "vllm:request_decode_time_seconds": (
        ("0.6.6", "0.8.0", _S5),
        ("0.8.5", None, _S6),
    ),
    "vllm:request_inference_time_seconds": (
        ("0.6.6", "0.8.0", _S5),
        ("0.8.5", None, _S6),
    ),
    "vllm:request_latency_seconds": ((None, None, _S29),),
    "vllm:request_prefill_time_seconds": (
        ("0.6.6", "0.8.0", _S5),
        ("0.8.5", None, _S6),
    ),
    "vllm:request_queue_time_seconds": (
        ("0.6.6", "0.8.0", _S5),
        ("0.8.5", None, _S6),
    ),
    "vllm:request_time_per_output_token_seconds": (("0.11.0", None, _S3),),
    "vllm:time_in_queue_requests": (
        ("0.6.6", "0.8.0", _S5),
        ("0.8.5", "0.8.5", _S6),
    ),
    "vllm:time_per_output_token_seconds": (
        ("0.6.0", "0.8.0", _S2),
        ("0.8.5", "0.14.0", _S3),
    ),
    "vllm:time_to_first_token_seconds": (
        ("0.6.0", "0.8.0", _S0),
        ("0.8.5", None, _S1),
    ),
}

BOUNDS: Final[dict[str, tuple[Bounds, ...]]] = {
    family: tuple(Bounds(since, until, tuple(map(float, text.split()))) for since, until, text in rows)
    for family, rows in _TABLE.items()
}

"""Every canonical signal: name, kind, unit, how series combine, what it means. The words of the whole product.

Latency signals are seen from the engine's vantage point: its clock starts when the request has been parsed.
Source of the definitions: the engines' own documentation and code, normalised; OpenTelemetry GenAI conventions.
"""

from dataclasses import dataclass
from typing import Final, Literal

from goodwatch.core.model import SignalKind

Group = Literal[
    "requests", "latency", "tokens", "cache", "speculation", "config", "http", "process", "disaggregation", "accelerator"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Signal:
    """One canonical signal.

    ``merge`` says how values of data-parallel engines and replicas combine: "sum", "weighted" (by KV capacity),
    "none" (never combine: an engine-made ratio). ``kernel`` marks what every derived number stands on: a capability
    report lists those first.
    """

    name: str
    kind: SignalKind
    unit: str
    group: Group
    definition: str
    merge: Literal["sum", "weighted", "none"] = "sum"
    kernel: bool = False


_G, _C, _H = SignalKind.GAUGE, SignalKind.COUNTER, SignalKind.HISTOGRAM

_ALL: Final = (
    Signal("requests_running", _G, "requests", "requests", "sequences in the batch now", kernel=True),
    Signal("requests_waiting", _G, "requests", "requests", "sequences accepted but not started", kernel=True),
    Signal("requests_swapped", _G, "requests", "requests", "sequences pushed out of device memory and not yet back"),
    Signal("requests_paused", _G, "requests", "requests", "sequences paused by the engine now"),
    Signal("requests_in_flight", _G, "requests", "requests", "inference HTTP requests open now"),
    Signal("requests_waiting_by_reason", _G, "requests", "requests", "waiting sequences, split by what they wait for"),
    Signal("requests_finished_total", _C, "requests", "requests", "requests that ended, by reason", kernel=True),
    Signal("requests_aborted_total", _C, "requests", "requests", "cancels that the engine saw"),
    Signal("requests_failed_total", _C, "requests", "requests", "requests that ended with an engine error"),
    Signal("requests_rejected_total", _C, "requests", "requests", "requests refused by a limit before any work"),
    Signal("ttft_seconds", _H, "s", "latency", "arrival at the engine to first output token", kernel=True),
    Signal("tpot_seconds", _H, "s", "latency", "per request: (last - first token) / (output tokens - 1)", kernel=True),
    Signal("itl_seconds", _H, "s", "latency", "one gap between outputs of a request; many per request"),
    Signal("e2e_seconds", _H, "s", "latency", "arrival at the engine to last token", kernel=True),
    Signal("queue_seconds", _H, "s", "latency", "accepted to first scheduled", kernel=True),
    Signal("prefill_seconds", _H, "s", "latency", "first scheduled to first token"),
    Signal("decode_seconds", _H, "s", "latency", "first to last token"),
    Signal("inference_seconds", _H, "s", "latency", "first scheduled to last token"),
    Signal("queue_mean_seconds", _G, "s", "latency", "engine-made mean of the queue time", merge="none"),
    Signal("input_tokens_total", _C, "tokens", "tokens", "prompt tokens, cached ones included", kernel=True),
    Signal("output_tokens_total", _C, "tokens", "tokens", "generated tokens", kernel=True),
    Signal("cached_input_tokens_total", _C, "tokens", "tokens", "prompt tokens served from a cache"),
    Signal("realtime_tokens_total", _C, "tokens", "tokens", "tokens as they are processed, by mode"),
    Signal("input_length_tokens", _H, "tokens", "tokens", "prompt length of finished requests"),
    Signal("output_length_tokens", _H, "tokens", "tokens", "output length of finished requests"),
    Signal("kv_cache_used_ratio", _G, "ratio", "cache", "share of the KV pool in use", merge="weighted", kernel=True),
    Signal("kv_cache_capacity_tokens", _G, "tokens", "cache", "size of the KV pool"),
    Signal("kv_block_size_tokens", _G, "tokens", "cache", "tokens per KV block", merge="none"),
    Signal("kv_blocks", _G, "blocks", "cache", "KV blocks in the pool"),
    Signal("prefix_cache_queries_total", _C, "tokens", "cache", "tokens looked up in the prefix cache"),
    Signal("prefix_cache_hits_total", _C, "tokens", "cache", "tokens found in the prefix cache"),
    Signal("prefix_cache_hit_ratio", _G, "ratio", "cache", "engine-made hit ratio; the counters win", merge="none"),
    Signal("preemptions_total", _C, "events", "cache", "running requests thrown out for lack of KV space", kernel=True),
    Signal("spec_drafts_total", _C, "drafts", "speculation", "verify steps of speculative decoding"),
    Signal("spec_draft_tokens_total", _C, "tokens", "speculation", "proposed draft tokens"),
    Signal("spec_accepted_tokens_total", _C, "tokens", "speculation", "accepted draft tokens"),
    Signal("spec_accept_length", _G, "tokens", "speculation", "engine-made mean accepted length", merge="none"),
    Signal("max_model_len_tokens", _G, "tokens", "config", "longest request that the engine takes", merge="none"),
    Signal("max_running_requests", _G, "requests", "config", "most sequences in a batch", merge="none"),
    Signal("http_requests_total", _C, "requests", "http", "inference HTTP requests answered, by status"),
    Signal("up", _G, "ratio", "process", "1 when a scrape was read, 0 when it failed", merge="none"),
    Signal("idle_ratio", _G, "ratio", "process", "1 when nothing ran or waited at a scrape", merge="none"),
    Signal("covered_seconds_total", _C, "s", "process", "time between the scrapes that were read", merge="none"),
    Signal("progress_total", _C, "events", "process", "what moved while requests ran: tokens, first tokens, ends"),
    Signal("restarts_total", _C, "events", "process", "restarts seen: all counters began again"),
    Signal("requests_decoding_max", _G, "requests", "requests", "most requests that can be past their first token now"),
    Signal(
        "ttft_top_seconds",
        _G,
        "s",
        "latency",
        "no first token came later than this since the process began",
        merge="none",
    ),
    Signal("process_start_seconds", _G, "s", "process", "start of the process, Unix seconds", merge="none"),
    # Devices never fold into each other: several series of one device repeat one value.
    Signal("gpu_utilisation_ratio", _G, "ratio", "accelerator", "share of time in which the device did work", "none"),
    Signal("gpu_sm_active_ratio", _G, "ratio", "accelerator", "share of cycles with work on a multiprocessor", "none"),
    Signal("gpu_tensor_active_ratio", _G, "ratio", "accelerator", "share of cycles of the tensor units", "none"),
    Signal("gpu_memory_bandwidth_ratio", _G, "ratio", "accelerator", "share of time the memory moved data", "none"),
    Signal("gpu_memory_used_bytes", _G, "bytes", "accelerator", "device memory in use", "none"),
    Signal("gpu_memory_total_bytes", _G, "bytes", "accelerator", "device memory", "none"),
    Signal("gpu_power_watts", _G, "W", "accelerator", "power draw", "none"),
    Signal("gpu_energy_joules_total", _C, "J", "accelerator", "energy since boot or since the driver loaded", "none"),
    Signal("gpu_temperature_celsius", _G, "°C", "accelerator", "temperature of the device", "none"),
    Signal("gpu_clock_hertz", _G, "Hz", "accelerator", "clock of the compute units", "none"),
    Signal("gpu_throttled_ratio", _G, "ratio", "accelerator", "share of time with the clock held down", "none"),
    Signal("gpu_error_code", _G, "code", "accelerator", "last error code seen; it stays, so it is no count", "none"),
    Signal("gpu_errors_total", _C, "events", "accelerator", "errors that the device counted, by code", "none"),
    Signal("gpu_healthy", _G, "ratio", "accelerator", "1 when the device calls itself healthy, 0 when not", "none"),
    Signal("gpu_covered_seconds_total", _C, "s", "accelerator", "time between the reads of a device", "none"),
)

#: made by goodwatch while it reads, on no engine's page
OWN: Final = frozenset(
    {
        "up",
        "covered_seconds_total",
        "progress_total",
        "idle_ratio",
        "restarts_total",
        "requests_decoding_max",
        "ttft_top_seconds",
        "gpu_covered_seconds_total",
    }
)

CATALOGUE: Final[dict[str, Signal]] = {signal.name: signal for signal in _ALL}

#: told by exporters of accelerators, not by engines; they are kept per device
ACCELERATOR_SIGNALS: Final = frozenset(s.name for s in _ALL if s.group == "accelerator" and s.name not in OWN)

#: counters that run since a machine booted: the first value that is seen is no increase
SINCE_BOOT: Final = frozenset({"gpu_energy_joules_total", "gpu_errors_total"})

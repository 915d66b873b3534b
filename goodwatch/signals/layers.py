"""Which target of a service tells which signal, so that no request is counted twice. Pure: windows in, windows out.

A router or gateway and the engines behind it see the same requests: one layer per signal. The innermost layer that
tells a signal is taken for the service's sums; the numbers of the others stay on their own targets. What decides
about a request as a whole (its end, its outcome, its duration) is taken from one layer together.

With prefill and decode apart each request is on both legs with a part of its latency: prompt tokens are counted on
prefill, ended requests and output tokens on decode, and the first token of neither is the client's.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from goodwatch.core.engine import Engine, Role
from goodwatch.core.model import Absence, Number
from goodwatch.signals.cost import Price
from goodwatch.signals.derive import Derived
from goodwatch.signals.windows import Gauge, Series, TargetWindow

Leg = Literal["", "prefill", "decode"]
T = TypeVar("T")

#: innermost first; what is on no layer (an accelerator's exporter) tells nothing of requests
_LAYERS: Final[tuple[Role, ...]] = ("engine", "worker", "router", "gateway")

#: a request's end, outcome and duration: taken from one layer, or ended requests and refusals would be two populations
_ENDS: Final = frozenset(
    {
        "requests_finished_total", "requests_aborted_total", "requests_failed_total", "requests_rejected_total",
        "http_requests_total", "e2e_seconds",
    }
)  # fmt: skip
_PROMPTS: Final = frozenset(
    {
        "input_tokens_total", "cached_input_tokens_total", "input_length_tokens", "prefix_cache_queries_total",
        "prefix_cache_hits_total", "prefix_cache_hit_ratio", "prefill_seconds", "queue_seconds",
    }
)  # fmt: skip
_OUTPUTS: Final = frozenset(
    {"output_tokens_total", "output_length_tokens", "tpot_seconds", "itl_seconds", "decode_seconds", "inference_seconds"}
)
_FIRST: Final = frozenset({"ttft_seconds"})
#: goodwatch's own words about a target; idle and full are the engine's to say where there is one
_ABOUT_TARGET: Final = frozenset({"up", "covered_seconds_total", "restarts_total", "process_start_seconds"})
_WITH_ENDS: Final = frozenset({"requests_decoding_max", "ttft_top_seconds"})
#: a target that another one stands for adds nothing to these sums, which is not the same as not telling
_ADDITIVE: Final = ("input_tokens_total", "output_tokens_total")

_TTFT_WHY: Final = "prefill and decode run apart and neither sees the client's first token; a router or gateway would"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a target stands: its layer, and its leg where prefill and decode run apart."""

    role: Role = "engine"
    leg: Leg = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Signals of a target that a service's numbers do not use, and why, for a person."""

    target: str
    signals: frozenset[str]
    why: str


@dataclass(frozen=True, slots=True)
class Layered:
    """The windows that a service is summed from. ``outer`` targets stand around engines that are there too."""

    windows: tuple[TargetWindow, ...]
    left_out: tuple[LeftOut, ...] = ()
    outer: frozenset[str] = frozenset()
    lent: Mapping[str, str] = frozenset()  # type: ignore[assignment]
    disaggregated: bool = False

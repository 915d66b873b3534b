"""The words of request facts: who held the stopwatch, how a request ended, which band its length falls into.

Sources: docs of the OpenTelemetry GenAI semantic conventions v1.41 for the parts of a trace; the bands are powers of
two, so that any coarser view is a union of them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Vantage(StrEnum):
    """Who held the stopwatch. Latencies of different vantage points are never mixed."""

    ENGINE = "engine"
    GATEWAY = "gateway"
    CLIENT = "client"


class PartKind(StrEnum):
    """What one kept span is of a request."""

    ENGINE_REQUEST = "engine_request"  # the engine's own span of one request (or of one choice of it)
    ENGINE_STAGE = "engine_stage"  # a stage of it that brings a duration (SGLang's prefill_waiting)
    ENGINE_FAULT = "engine_fault"  # a scheduler thread's span with an error (SGLang's aborts)
    WORKER_REQUEST = "worker_request"  # the framework around one engine (Dynamo's engine.generate)
    GATEWAY_REQUEST = "gateway_request"  # a router or proxy: the whole HTTP request
    GATEWAY_CALL = "gateway_call"  # a proxy's one call of the engine: carries usage
    GATEWAY_STAGE = "gateway_stage"  # a leg of it (llm-d's prefill and decode)
    CLIENT_CALL = "client_call"  # an application SDK's call of the model
    ENGINE_LINK = "engine_link"  # no numbers: ties stages to their request and rank (SGLang's scheduler threads)


class Outcome(StrEnum):
    """How a request ended, as the outermost vantage point that tells saw it."""

    OK = "ok"
    CLIENT_ERROR = "client_error"  # 4xx other than 408 and 429: not valid
    REFUSED = "refused"  # 408, 429, 503: overload; valid and bad
    ERROR = "error"  # engine or gateway error; valid and bad
    TIMEOUT = "timeout"  # the time limit of client or engine; valid and bad
    ABORTED = "aborted"  # the client hung up; valid only when a target was already missed
    UNKNOWN = "unknown"  # no part tells


class Verdict(StrEnum):
    """What an SLO says of one request (design: words that must mean one thing)."""

    GOOD = "good"
    BAD = "bad"
    UNDETERMINED = "undetermined"  # valid, and a field that the SLO needs is null
    NOT_VALID = "not_valid"  # outside the SLO: a client's own error, or a hang-up before anything was missed


#: Band of a length of zero tokens, and of a length that nobody told.
EMPTY_BAND: Final = -1
UNKNOWN_BAND: Final = -2


def band_of(tokens: int | None) -> int:
    """The base band of a length: ``b`` for ``[2^b, 2^(b+1))`` tokens, ``EMPTY_BAND`` for 0, ``UNKNOWN_BAND`` for None.

    Examples
    --------
    >>> [band_of(n) for n in (None, 0, 1, 2, 3, 1023, 1024)]
    [-2, -1, 0, 1, 1, 9, 10]
    """
    if tokens is None or tokens < 0:
        return UNKNOWN_BAND
    return tokens.bit_length() - 1 if tokens else EMPTY_BAND


def band_text(band: int) -> str:
    """A band for a person: "1024–2047", "0", "unknown"."""
    if band == UNKNOWN_BAND:
        return "unknown"
    if band == EMPTY_BAND:
        return "0"
    return str(1) if band == 0 else f"{2**band}–{2 ** (band + 1) - 1}"


@dataclass(frozen=True, slots=True)
class Origin:
    """What the configuration says of spans with certain resource attributes; None: not said.

    ``match`` are resource attributes (``service.name``: ``vllm-chat``) that must all be equal; an empty one matches
    every span. ``sampling_ratio`` is the share of requests that this source keeps when the spans do not tell (0..1].
    """

    match: tuple[tuple[str, str], ...] = ()
    service: str | None = None
    model: str | None = None
    target: str | None = None
    sampling_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class AttributeNames:
    """Span or resource attributes that the operator uses for what no convention names, most wanted first."""

    tenant: tuple[str, ...] = ("litellm.team.id", "tenant.id")
    route: tuple[str, ...] = ("http.route", "url.path")
    adapter: tuple[str, ...] = ("gen_ai.request.adapter", "lora.name")
    form: tuple[str, ...] = ("goodwatch.form",)
    sampling_ratio: tuple[str, ...] = ("sampling.probability",)

"""Traffic as tables: what clients, gateways and engines would send by OTLP, and the truth of each request beside it.

No clock and no I/O. Times are whole milliseconds, so that the truth is exact. A request of some shape (``SHAPES``) gives
spans with the names, scopes and attributes that these senders use, and one ``Truth`` row that no goodwatch code made.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from tests.collector.spans.build import CLIENT, INTERNAL, SERVER, key_values

ENGINE_RESOURCE: Final = {"service.name": "vllm-chat", "service.instance.id": "engine-1"}
PREFILL_RESOURCE: Final = {"service.name": "vllm-chat", "service.instance.id": "engine-0"}
SGLANG_RESOURCE: Final = {"service.name": "sglang-chat"}
PROXY_RESOURCE: Final = {"service.name": "proxy"}
APP_RESOURCE: Final = {"service.name": "shop-app"}


@dataclass(frozen=True, slots=True)
class Sent:
    """A span on its way: when it is received first, and what it belongs to."""

    at_ms: int
    resource: tuple[tuple[str, str], ...]
    scope: str
    span: Span


@dataclass(frozen=True, slots=True)
class Truth:
    """What a fact must say. Seconds; None: nobody told."""

    fact_id: str
    trace_id: str
    ended_at: float
    status: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    choices: int | None = None
    engine_ttft_s: float | None = None
    engine_e2e_s: float | None = None
    engine_queue_s: float | None = None
    gateway_e2e_s: float | None = None
    client_ttft_s: float | None = None
    client_e2e_s: float | None = None
    weight: float | None = None
    tenant: str | None = None

    def tpot_s(self) -> float | None:
        """(E2E - TTFT) / (tokens - 1) of the engine (design §3)."""
        if self.choices not in (None, 1) or self.engine_ttft_s is None or self.engine_e2e_s is None:
            return None
        tokens = self.output_tokens or 0
        return None if tokens < 2 else (self.engine_e2e_s - self.engine_ttft_s) / (tokens - 1)

    def verdict(self, ttft_s: float, tpot_s: float) -> str:
        """Design §4, by hand, for a TTFT and a TPOT target at the engine and requests that were streamed."""
        if self.status == "client_error":
            return "not_valid"
        if self.status in ("refused", "error", "timeout"):
            return "bad"
        if self.status == "aborted":
            waited = self.engine_ttft_s if self.engine_ttft_s is not None else self.engine_e2e_s
            if waited is None:
                return "undetermined"
            return "bad" if waited > ttft_s else "not_valid"
        late = self.engine_ttft_s is not None and self.engine_ttft_s > ttft_s
        per_token = self.tpot_s()
        if late or (per_token is not None and per_token > tpot_s):
            return "bad"
        one = self.output_tokens is not None and self.output_tokens <= 1
        told = self.engine_ttft_s is not None and (per_token is not None or one)
        return "good" if told else "undetermined"


@dataclass(slots=True)
class Traffic:
    """Requests of a seed. ``spans`` and ``truth`` grow with each ``add``."""

    seed: int
    weight: float | None = None  # told by tracestate as ot=th
    skew_ms: int = 0  # the engine's clock ahead of the others
    spans: list[Sent] = field(default_factory=list)
    truth: list[Truth] = field(default_factory=list)
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def ids(self, size: int) -> bytes:
        """Random bytes that are not all zero."""
        return self.rng.randbytes(size - 1) + b"\x01"

    def send(
        self, of: tuple[Mapping[str, str], str, str], ids: tuple[bytes, bytes, bytes | None], ms: tuple[int, int],
        kind: int, attributes: Mapping[str, Any], *, failed: bool = False,
    ) -> None:  # fmt: skip
        """Put a span of (resource, scope, name) on its way: SDKs send every five seconds."""
        resource, scope, name = of
        trace, own, parent = ids
        state = {None: "", 2.0: "ot=th:8", 4.0: "vendor=1,ot=th:c;rv:ffffffffffffff"}[self.weight]
        span = Span(
            trace_id=trace, span_id=own, parent_span_id=parent or b"", name=name, kind=kind, trace_state=state,  # type: ignore[arg-type]
            start_time_unix_nano=ms[0] * 10**6, end_time_unix_nano=ms[1] * 10**6, attributes=key_values(attributes),
        )  # fmt: skip
        if failed:
            span.status.code = Status.STATUS_CODE_ERROR
        at_ms = ms[1] + self.rng.randrange(20, 5000)
        self.spans.append(Sent(at_ms, tuple(resource.items()), scope, span))

    def vllm(
        self, trace: bytes, parent: bytes | None, arrived_ms: int, shape: "Shape", *, request_id: str = "", **more: Any
    ) -> bytes:
        """The engine's span of one finished request; ``arrived_ms`` by the engine's own clock."""
        own, start = self.ids(8), arrived_ms + self.skew_ms
        attributes = {
            "gen_ai.latency.time_to_first_token": shape.ttft_ms / 1000, "gen_ai.latency.e2e": shape.e2e_ms / 1000,
            "gen_ai.latency.time_in_queue": shape.queue_ms / 1000,
            "gen_ai.latency.time_in_model_prefill": (shape.ttft_ms - shape.queue_ms) / 1000,
            "gen_ai.latency.time_in_model_decode": (shape.e2e_ms - shape.ttft_ms) / 1000,
            "gen_ai.usage.prompt_tokens": shape.input_tokens, "gen_ai.usage.completion_tokens": shape.output_tokens,
            "gen_ai.request.id": request_id or f"chatcmpl-{own.hex()}", "gen_ai.request.n": 1, **more.pop("told", {}),
        }  # fmt: skip
        resource = more.pop("resource", ENGINE_RESOURCE)
        self.send(
            (resource, "vllm.tracing.otel", "llm_request"), (trace, own, parent), (start, start + shape.e2e_ms), SERVER,
            attributes,
        )  # fmt: skip
        return own

    def known(self, span_id: bytes, trace: bytes, ended_ms: int, status: str, **more: Any) -> None:
        """Write down the truth."""
        self.truth.append(Truth(span_id.hex(), trace.hex(), ended_ms / 1000, status, weight=self.weight, **more))

    def shape(self) -> "Shape":
        """Lengths and times of one request."""
        rng = self.rng
        queue, prefill, gap = int(rng.expovariate(1 / 60)), rng.randrange(30, 700), rng.randrange(10, 70)
        tokens = rng.choice([1, 2, rng.randrange(3, 400)])
        return Shape(queue, queue + prefill, queue + prefill + gap * (tokens - 1), rng.randrange(1, 40_000), tokens)

    def add(self, kind: str, at_ms: int, trace: bytes | None = None) -> int:
        """One request that arrives then; returns when everything of it is over."""
        return SHAPES[kind](self, at_ms, trace or self.ids(16))


@dataclass(frozen=True, slots=True)
class Shape:
    """Lengths and times of one request at the engine."""

    queue_ms: int
    ttft_ms: int
    e2e_ms: int
    input_tokens: int
    output_tokens: int

    def engine(self) -> dict[str, Any]:
        """What the engine's own fields of the fact must be."""
        return {
            "engine_ttft_s": self.ttft_ms / 1000, "engine_e2e_s": self.e2e_ms / 1000,
            "engine_queue_s": self.queue_ms / 1000, "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
        }  # fmt: skip


def _engine_alone(t: Traffic, at: int, trace: bytes) -> int:
    """The caller's span is not sent."""
    one = t.shape()
    own = t.vllm(trace, t.ids(8), at, one)
    t.known(own, trace, at + t.skew_ms + one.e2e_ms, "ok", choices=1, **one.engine())
    return at + one.e2e_ms


def _sglang(t: Traffic, at: int, trace: bytes) -> int:
    """Two tensor-parallel ranks repeat the stages; the span's own prefill time holds the queue."""
    one, own = t.shape(), t.ids(8)
    end, rid = at + one.e2e_ms, own.hex()
    attributes = {
        "rid": rid, "module": "sglang::request", "gen_ai.latency.time_to_first_token": one.ttft_ms / 1000,
        "gen_ai.latency.e2e": one.e2e_ms / 1000, "gen_ai.latency.time_in_model_prefill": one.ttft_ms / 1000,
        "gen_ai.usage.prompt_tokens": one.input_tokens, "gen_ai.usage.completion_tokens": one.output_tokens,
        "gen_ai.usage.cached_tokens": 0, "gen_ai.request.id": rid, "gen_ai.request.n": 1,
        "gen_ai.response.model": "llama", "gen_ai.response.finish_reasons": '["stop"]',
    }  # fmt: skip
    t.send((SGLANG_RESOURCE, "sglang server", f" Req {rid[:8]}"), (trace, own, None), (at, end), INTERNAL, attributes)
    for rank in (1, 0):
        thread = t.ids(8)
        t.send(
            (SGLANG_RESOURCE, "sglang server", f"Scheduler [TP {rank}]"), (trace, thread, own), (at, end), INTERNAL,
            {"thread_label": "Scheduler", "tp_rank": rank, "rid": rid},
        )  # fmt: skip
        queue = one.queue_ms + rank * 7
        t.send(
            (SGLANG_RESOURCE, "sglang server", "prefill_waiting"),
            (trace, t.ids(8), thread),
            (at, at + queue),
            INTERNAL,
            {},
        )
        t.send((SGLANG_RESOURCE, "sglang server", "decode_loop"), (trace, t.ids(8), thread), (at, at + 1), INTERNAL, {})
    t.known(own, trace, end, "ok", choices=1, **one.engine())
    return end


def _choices(t: Traffic, at: int, trace: bytes) -> int:
    """n = 3: three spans with one id, each with the whole prompt (otel-traces §0.6)."""
    base, parent = t.shape(), t.ids(8)
    ends = [base.e2e_ms + 11 * i for i in range(3)]
    spans = [
        t.vllm(trace, parent, at, Shape(base.queue_ms, base.ttft_ms, end, base.input_tokens, base.output_tokens + i),
               request_id=f"chatcmpl-{trace.hex()}")
        for i, end in enumerate(ends)
    ]  # fmt: skip
    own = min(spans)  # they began together: the first by id stands for the request
    t.known(
        own, trace, at + t.skew_ms + ends[-1], "ok", choices=3, engine_ttft_s=base.ttft_ms / 1000,
        engine_e2e_s=ends[-1] / 1000, engine_queue_s=base.queue_ms / 1000, input_tokens=base.input_tokens,
        output_tokens=3 * base.output_tokens + 3,
    )  # fmt: skip
    return at + ends[-1]


def _proxied(t: Traffic, at: int, trace: bytes) -> int:
    """A LiteLLM proxy: the request, its call, and one that repeats it; usage in texts; then the engine."""
    one = t.shape()
    top, call = t.ids(8), t.ids(8)
    start, end = at + 15, at + 15 + one.e2e_ms + 9
    usage = {
        "gen_ai.request.model": "llama", "gen_ai.usage.input_tokens": str(one.input_tokens),
        "gen_ai.usage.output_tokens": one.output_tokens, "gen_ai.response.id": f"chatcmpl-{trace.hex()}",
        "llm.is_streaming": "True", "litellm.team.id": "blue",
    }  # fmt: skip
    t.send((PROXY_RESOURCE, "litellm", "Received Proxy Server Request"), (trace, top, None), (at, end + 4), SERVER, {})
    t.send((PROXY_RESOURCE, "litellm", "litellm_request"), (trace, call, top), (start, end), INTERNAL, usage)
    t.send((PROXY_RESOURCE, "litellm", "raw_gen_ai_request"), (trace, t.ids(8), call), (start, end), INTERNAL, usage)
    t.vllm(trace, call, start + 3, one, request_id=f"chatcmpl-{trace.hex()}")
    t.known(
        top, trace, end + 4, "ok", choices=1, gateway_e2e_s=(end + 4 - at) / 1000, tenant="blue", **one.engine()
    )  # fmt: skip
    return end + 4


def _client(
    t: Traffic, at: int, trace: bytes, end: int, told: Mapping[str, Any], *, parent: bytes | None = None
) -> bytes:
    """An SDK's call; one with an error type failed."""
    own = t.ids(8)
    t.send(
        (APP_RESOURCE, "my-sdk", "chat llama"), (trace, own, parent), (at, end), CLIENT,
        {"gen_ai.operation.name": "chat", "gen_ai.request.model": "llama", **told}, failed="error.type" in told,
    )  # fmt: skip
    return own


def _called(t: Traffic, at: int, trace: bytes) -> int:
    """An SDK's call and the engine's span below an HTTP library's span that nobody keeps; usage of 0 is not told."""
    one, http = t.shape(), t.ids(8)
    end = at + one.e2e_ms + 31
    first = (one.ttft_ms + 12) / 1000
    zero = {"gen_ai.usage.output_tokens": 0, "gen_ai.usage.input_tokens": 0}
    told = {"gen_ai.response.time_to_first_chunk": first, "gen_ai.request.stream": True, **zero}
    own = _client(t, at, trace, end, told)
    t.send(
        (APP_RESOURCE, "opentelemetry.instrumentation.httpx", "POST"), (trace, http, own), (at + 2, end - 1), CLIENT, {}
    )
    t.vllm(trace, http, at + 12, one)
    t.known(own, trace, end, "ok", choices=1, client_ttft_s=first, client_e2e_s=(end - at) / 1000, **one.engine())
    return end


def _refused(t: Traffic, at: int, trace: bytes) -> int:
    """A proxy's 429: no engine ever saw it."""
    own = t.ids(8)
    t.send((PROXY_RESOURCE, "litellm", "Received Proxy Server Request"), (trace, own, None), (at, at + 7), SERVER,
           {"http.response.status_code": 429}, failed=True)  # fmt: skip
    t.known(own, trace, at + 7, "refused", gateway_e2e_s=0.007)
    return at + 7


def _aborted(t: Traffic, at: int, trace: bytes) -> int:
    """The client hung up: vLLM leaves no span."""
    own = _client(t, at, trace, at + 900, {"error.type": "asyncio.CancelledError"})
    t.known(own, trace, at + 900, "aborted", client_e2e_s=0.9)
    return at + 900


def _timed_out(t: Traffic, at: int, trace: bytes) -> int:
    own = _client(t, at, trace, at + 60_000, {"error.type": "openai.APITimeoutError"})
    t.known(own, trace, at + 60_000, "timeout", client_e2e_s=60.0)
    return at + 60_000


def _wrong(t: Traffic, at: int, trace: bytes) -> int:
    own = _client(t, at, trace, at + 40, {"error.type": "BadRequestError"})
    t.known(own, trace, at + 40, "client_error", client_e2e_s=0.04)
    return at + 40


def _retried(t: Traffic, at: int, trace: bytes) -> int:
    """One proxy request, two tries: the first failed before it reached an engine, the second is the answer."""
    one = t.shape()
    top, first, second = t.ids(8), t.ids(8), t.ids(8)
    start = at + 2_000
    end = start + one.e2e_ms + 8
    model = {"gen_ai.request.model": "llama"}
    t.send((PROXY_RESOURCE, "litellm", "Received Proxy Server Request"), (trace, top, None), (at, end), SERVER,
           {"http.response.status_code": 200})  # fmt: skip
    t.send((PROXY_RESOURCE, "litellm", "litellm_request"), (trace, first, top), (at + 1, at + 1_500), INTERNAL,
           {**model, "error.type": "InternalServerError"}, failed=True)  # fmt: skip
    t.send((PROXY_RESOURCE, "litellm", "litellm_request"), (trace, second, top), (start, end - 1), INTERNAL,
           {**model, "gen_ai.usage.output_tokens": one.output_tokens})  # fmt: skip
    t.vllm(trace, second, start + 2, one)
    t.known(top, trace, end, "ok", choices=1, gateway_e2e_s=(end - at) / 1000, **one.engine())
    return end


def _two_legs(t: Traffic, at: int, trace: bytes) -> int:
    """Prefill on one process, then decode on another: tokens are the decode leg's, the prefill leg's time is before."""
    one, parent = t.shape(), t.ids(8)
    shape = Shape(one.queue_ms, one.ttft_ms, one.e2e_ms, one.input_tokens, max(2, one.output_tokens))
    leg = Shape(5, 205, 210, one.input_tokens, 1)
    told = {"gen_ai.request.max_tokens": 1}
    first = t.vllm(trace, parent, at, leg, request_id=f"cmpl-{trace.hex()}", told=told, resource=PREFILL_RESOURCE)
    t.vllm(trace, parent, at + 260, shape, request_id=f"cmpl-{trace.hex()}", told={"gen_ai.request.max_tokens": 500})
    engine = shape.engine()
    engine["engine_ttft_s"] += 0.210
    engine["engine_e2e_s"] += 0.210
    engine["engine_queue_s"] += 0.005
    t.known(first, trace, at + t.skew_ms + 260 + shape.e2e_ms, "ok", choices=1, **engine)
    return at + 260 + shape.e2e_ms


def _agent(t: Traffic, at: int, trace: bytes) -> int:
    """Steps of an agent in one trace, with pauses; the agent's own span comes when all is over."""
    root, now = t.ids(8), at + 5
    for _ in range(t.rng.randrange(2, 9)):
        one = t.shape()
        end = now + one.e2e_ms + 20
        own = _client(t, now, trace, end, {}, parent=root)
        t.vllm(trace, own, now + 9, one)
        t.known(own, trace, end, "ok", choices=1, client_e2e_s=(end - now) / 1000, **one.engine())
        now = end + t.rng.choice([300, 4_000, 150_000])
    t.send((APP_RESOURCE, "my-sdk", "invoke_agent helper"), (trace, root, None), (at, now), INTERNAL,
           {"gen_ai.operation.name": "invoke_agent"})  # fmt: skip
    return now


SHAPES: Final = {
    "engine": _engine_alone, "sglang": _sglang, "choices": _choices, "proxied": _proxied, "called": _called,
    "refused": _refused, "aborted": _aborted, "timed_out": _timed_out, "wrong": _wrong, "retried": _retried,
    "two_legs": _two_legs, "agent": _agent,
}  # fmt: skip


def export(sent: Iterable[Sent]) -> ExportTraceServiceRequest:
    """One request that holds these spans, each below its own resource and scope."""
    made = ExportTraceServiceRequest()
    groups: dict[tuple[tuple[tuple[str, str], ...], str], list[Span]] = {}
    for one in sent:
        groups.setdefault((one.resource, one.scope), []).append(one.span)
    for (resource, scope), spans in groups.items():
        of_scope = ScopeSpans(spans=spans)
        of_scope.scope.name = scope
        of_resource = ResourceSpans(scope_spans=[of_scope])
        of_resource.resource.attributes.extend(key_values(dict(resource)))
        made.resource_spans.append(of_resource)
    return made


def deliveries(traffic: Traffic, *, late: float, again: float) -> Iterator[tuple[int, list[Sent]]]:
    """Batches of spans by when they come, in seconds: some late by up to an hour, some repeated, none in order."""
    coming: dict[int, list[Sent]] = {}
    for one in traffic.spans:
        at = one.at_ms + (traffic.rng.randrange(70_000, 3_600_000) if traffic.rng.random() < late else 0)
        coming.setdefault(at // 1000, []).append(one)
        if traffic.rng.random() < again:  # the answer was lost: sent again within five minutes
            coming.setdefault(at // 1000 + traffic.rng.randrange(1, 300), []).append(one)
    for at in sorted(coming):
        batch = coming[at]
        traffic.rng.shuffle(batch)
        yield at, batch

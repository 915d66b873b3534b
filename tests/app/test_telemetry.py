"""Own traces arrive at a real OTLP sink; without one nothing happens, and a dead one hurts nobody."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from pydantic import SecretStr

from goodwatch.app._sections import Telemetry as TelemetrySettings
from goodwatch.app.telemetry import Telemetry, span
from tests.api.test_app import OPEN, app_of, client_of, failing

pytestmark = pytest.mark.integration


@dataclass(slots=True)
class Sink:
    """What an OTLP endpoint received."""

    url: str = ""
    status: int = 200
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()  # aiohttp has undone the compression
        self.requests.append(
            ExportTraceServiceRequest.FromString(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        )
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.paths.append(request.path)
        return web.Response(status=self.status, content_type="application/x-protobuf")

    @property
    def spans(self) -> dict[str, Span]:
        found = [s for r in self.requests for one in r.resource_spans for scope in one.scope_spans for s in scope.spans]
        return {s.name: s for s in found}


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    found = Sink()
    app = web.Application()
    app.router.add_post("/{path:.*}", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}"
    yield found
    await runner.cleanup()


@asynccontextmanager
async def traced(url: str | None, **more: object) -> AsyncIterator[Telemetry]:
    """Tracing that is shut down, and so flushed, at the end."""
    telemetry = Telemetry.start(TelemetrySettings(otlp_endpoint=url, **more), version="1.2.3")  # type: ignore[arg-type]
    yield telemetry
    assert await asyncio.to_thread(telemetry.shutdown)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER", "OTEL_RESOURCE_ATTRIBUTES", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


def attributes(one: Span) -> dict[str, object]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value") or "string_value") for a in one.attributes}


async def test_spans_arrive_nested_with_attributes_and_the_service_name(sink: Sink) -> None:
    async with traced(sink.url, service_name="gw-eu", headers={"X-Key": SecretStr("k")}):
        with span("scrape", target="chat-0", up=True, error=None), span("store append", rows=3):
            pass
    outer, inner = sink.spans["scrape"], sink.spans["store append"]
    assert inner.parent_span_id == outer.span_id
    assert attributes(outer) == {"goodwatch.target": "chat-0", "goodwatch.up": True}
    assert attributes(inner) == {"goodwatch.rows": 3}
    resource = {a.key: a.value.string_value for a in sink.requests[0].resource_spans[0].resource.attributes}
    assert (resource["service.name"], resource["service.version"]) == ("gw-eu", "1.2.3")
    assert (sink.paths[0], sink.headers[0]["x-key"]) == ("/v1/traces", "k")


async def test_an_endpoint_may_have_its_own_path(sink: Sink) -> None:
    async with traced(f"{sink.url}/tenant/v1/traces/"):
        with span("derive"):
            pass
    assert sink.paths == ["/tenant/v1/traces"]


async def test_a_failed_piece_of_work_is_marked_and_the_error_goes_on(sink: Sink) -> None:
    async with traced(sink.url):
        with pytest.raises(ValueError, match="bad page"), span("scrape"):
            raise ValueError("bad page")
    assert sink.spans["scrape"].status.code == Status.STATUS_CODE_ERROR
    assert sink.spans["scrape"].status.message == "ValueError: bad page"
    assert list(sink.spans["scrape"].events) == []


async def test_http_requests_are_spans_under_their_route(sink: Sink) -> None:
    async with traced(sink.url), client_of(app_of()) as client:
        await client.get("/api/v1/services/chat")
        await client.get("/none")
    served = sink.spans["GET /api/v1/services/{name:path}"]
    assert served.kind == Span.SPAN_KIND_SERVER
    assert attributes(served)["http.response.status_code"] == 200
    assert attributes(sink.spans["GET"])["http.response.status_code"] == 404


async def test_a_request_that_fails_is_a_failed_span(sink: Sink) -> None:
    router = failing(ValueError("no"))
    async with traced(sink.url), client_of(app_of(None, OPEN, router)) as client:
        assert (await client.get("/fails")).status_code == 500
    assert next(iter(sink.spans.values())).status.code == Status.STATUS_CODE_ERROR


async def test_without_an_endpoint_spans_are_no_ops() -> None:
    async with traced(None):
        with span("scrape", target="a") as one:
            assert not one.is_recording()


async def test_after_the_end_spans_are_no_ops_and_a_second_shutdown_is_harmless(sink: Sink) -> None:
    async with traced(sink.url) as telemetry:
        with span("scrape") as one:
            assert one.is_recording()
    with span("late") as late:
        assert not late.is_recording()
    assert telemetry.shutdown()
    assert "late" not in sink.spans


async def test_a_dead_endpoint_neither_slows_work_nor_holds_up_the_end(free_port: int) -> None:
    telemetry = Telemetry.start(
        TelemetrySettings(otlp_endpoint=f"http://127.0.0.1:{free_port}"), version="1.2.3", delay_s=0.01
    )
    began = time.perf_counter()
    for i in range(5000):  # more than the queue holds
        with span("scrape", number=i):
            pass
    assert time.perf_counter() - began < 5
    began = time.perf_counter()
    await asyncio.to_thread(telemetry.shutdown, 0.5)
    assert time.perf_counter() - began < 5
    with span("scrape") as one:
        assert not one.is_recording()


async def test_an_endpoint_that_refuses_is_survived(sink: Sink) -> None:
    sink.status = 400
    async with traced(sink.url):
        with span("scrape"):
            pass
    assert len(sink.requests) == 1

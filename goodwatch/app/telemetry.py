"""What goodwatch tells of itself: its values for the exporter, and traces of its own work over OTLP/HTTP.

Own code writes ``with span("scrape", target=name):`` everywhere; without an endpoint that costs next to nothing.
The tracer is held here and not as OpenTelemetry's global one, which can be set only once in a process and would
switch on the tracing that libraries bring along.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracer, Span, SpanKind, Tracer

from exporters.prometheus import Scope, ServiceNow, Snapshot, TargetNow
from goodwatch.app._sections import Telemetry as TelemetrySettings
from goodwatch.app.view import Views

Scalar = str | bool | int | float

_TRACES_PATH: Final = "/v1/traces"
#: one try of one batch, retries included; a collector on the same network answers in milliseconds
_EXPORT_TIMEOUT_S: Final = 10.0
#: spans that wait while the endpoint is down; beyond it the oldest are dropped, so memory stays bounded
_QUEUE_SPANS: Final = 2048

_log = logging.getLogger(__name__)


class _Current:
    """The tracer in use; a no-op one until ``Telemetry.start`` found an endpoint."""

    tracer: Tracer = NoOpTracer()


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, Scalar] | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    **named: Scalar | None,
) -> Iterator[Span]:
    """Time one piece of own work; an exception marks the span as failed and goes on.

    ``named`` become ``goodwatch.NAME``, those that are None are left out; ``attributes`` keep their full names.
    """
    found: dict[str, Scalar] = dict(attributes or {})
    found.update({f"goodwatch.{key}": value for key, value in named.items() if value is not None})
    # The stack trace of an exception may hold what must not leave the process; type and message are enough.
    with _Current.tracer.start_as_current_span(name, kind=kind, attributes=found, record_exception=False) as one:
        yield one


class Telemetry:
    """Tracing of this process. ``start`` once, ``shutdown`` at the end; both are safe when there is no endpoint."""

    def __init__(self, provider: TracerProvider | None) -> None:
        self._provider = provider

    @classmethod
    def start(cls, settings: TelemetrySettings, *, version: str, delay_s: float = 5.0) -> "Telemetry":
        """Begin to send spans to ``settings.otlp_endpoint``, at most ``delay_s`` after they ended.

        The endpoint is the collector's base URL, or the full one that ends in ``/v1/traces``. One that is down is
        retried in a thread of its own; nothing else waits for it.
        """
        if settings.otlp_endpoint is None:
            return cls(None)
        exporter = OTLPSpanExporter(
            endpoint=_traces_url(settings.otlp_endpoint),
            headers={name: value.get_secret_value() for name, value in settings.headers.items()},
            timeout=_EXPORT_TIMEOUT_S,
            compression=Compression.Gzip,
        )
        resource = Resource.create({SERVICE_NAME: settings.service_name, SERVICE_VERSION: version})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=_QUEUE_SPANS, schedule_delay_millis=delay_s * 1000)
        )
        _Current.tracer = provider.get_tracer("goodwatch", version)
        return cls(provider)

    def shutdown(self, timeout_s: float = 5.0) -> bool:
        """Send what waits and stop; False when that took longer than ``timeout_s`` and was given up. Blocks.

        Spans that begin afterwards are no-ops.
        """
        provider, self._provider = self._provider, None
        if provider is None:
            return True
        _Current.tracer = NoOpTracer()
        # The SDK's own shutdown waits up to 30 s for a dead endpoint; a daemon thread can be left behind.
        worker = threading.Thread(target=provider.shutdown, name="telemetry-shutdown", daemon=True)
        worker.start()
        worker.join(timeout_s)
        if worker.is_alive():
            _log.warning("telemetry endpoint did not take the last spans", extra={"timeout_s": timeout_s})
        return not worker.is_alive()


def _traces_url(endpoint: str) -> str:
    base = endpoint.rstrip("/")
    return base if base.endswith(_TRACES_PATH) else base + _TRACES_PATH


def snapshot(views: Views) -> Snapshot:
    """The current values of the service as the exporter takes them."""
    services, targets, store = views.services(), views.targets(), views.health().store
    scopes = [Scope(s.name, s.derived.numbers) for s in services]
    # The model "" is what an engine says without naming a model; exported, "" means all models together.
    scopes += [Scope(s.name, d.numbers, model=m) for s in services for m, d in s.by_model.items() if m]
    scopes += [Scope(t.service, t.derived.numbers, target=t.name) for t in targets if t.derived is not None]
    return Snapshot(
        scopes=tuple(scopes),
        services=tuple(ServiceNow(s.name, s.state, s.objective) for s in services),
        targets=tuple(TargetNow(t.name, t.service, t.up) for t in targets),
        store_lag_s=store.lag_s,
        store_bytes=store.bytes,
    )

"""Settings to the parts that requests need: whose spans are whose, what they are held to, where they are kept."""

from pathlib import Path

from collector.otlp.forward import ForwardTo
from collector.otlp.receiver import Listening
from collector.otlp.seams import Limits as IntakeLimits
from collector.spans.known import known_tables
from collector.spans.mapper import Mapper
from collector.stores.duckdb_requests import DuckDBRequestStore, RequestRetention
from goodwatch.app._fields import split_listen
from goodwatch.app._otlp_sections import Otlp
from goodwatch.app.config import Service, Settings
from goodwatch.core.clock import Clock
from goodwatch.core.request import Origin, Vantage
from goodwatch.signals.attainment_limits import LimitsRow, LimitsTable


def mapper_of(otlp: Otlp) -> Mapper:
    """What reads spans. Raises ``ConfigError`` when an attribute is named that holds prompts or answers."""
    origins = [
        Origin(tuple(sorted(o.match.items())), o.service, o.model, o.target, o.sampling_ratio) for o in otlp.origins
    ]
    return Mapper(known_tables().values(), origins, otlp.attributes.names)


def listening_of(otlp: Otlp) -> Listening:
    """Addresses of the receiver."""
    http = None if otlp.http is None else split_listen(otlp.http)
    return Listening(http, None if otlp.grpc is None else split_listen(otlp.grpc))


def intake_limits_of(otlp: Otlp) -> IntakeLimits:
    """What bounds the receiver."""
    return IntakeLimits(body_bytes=otlp.body_limit_bytes, queue_bytes=otlp.queue_limit_bytes)


def forward_of(otlp: Otlp) -> ForwardTo | None:
    """Where bodies go on to, secrets opened; None when nowhere."""
    if otlp.forward is None:
        return None
    onward = otlp.forward
    headers = tuple((name, value.get_secret_value()) for name, value in onward.headers.items())
    return ForwardTo(
        onward.endpoint.rstrip("/"), headers, timeout_s=onward.timeout_s, queue_bytes=onward.queue_limit_bytes
    )


def limits_table_of(service: Service | None) -> LimitsTable:
    """What the requests of a service are held to: overrides first, then the SLO itself."""
    slo = service.slo if service is not None else None
    if service is None or slo is None:
        return LimitsTable()
    rows = [
        LimitsRow(
            one.limits, f"{service.name}#{place}", model=one.model, form=one.of_form, tenant=one.tenant,
            route=one.route,
        )
        for place, one in enumerate(slo.overrides, 1)
    ]  # fmt: skip
    return LimitsTable((*rows, LimitsRow(slo.limits, service.name)))


def vantage_of(service: Service | None) -> Vantage:
    """Whose stopwatch judges the requests of a service."""
    return Vantage.ENGINE if service is None or service.slo is None else Vantage(service.slo.vantage)


def open_request_store(settings: Settings, clock: Clock) -> DuckDBRequestStore:
    """The embedded request store in ``data_dir``. Raises ``StoreError`` that says what to do."""
    keep = settings.retention
    retention = RequestRetention(
        parts_s=keep.parts_s, facts_s=keep.facts_s, minutes_s=keep.rollup_minutes_s, hours_s=keep.rollup_hours_s
    )
    return DuckDBRequestStore(Path(settings.data_dir) / "requests.duckdb", retention=retention, clock=clock)

"""What the receiver of traces says of itself, as metric families."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import Metric


@dataclass(frozen=True, slots=True)
class IntakeNow:
    """Counts of the receiver since goodwatch started; ``requests`` by (kind, transport, media type, answer)."""

    requests: Mapping[tuple[str, str, str, str], int] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    spans: int = 0
    rows: int = 0
    repeated_rows: int = 0
    refused: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by (kind, reason)
    omitted: Mapping[tuple[str, str], int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    oddities: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    commits: int = 0
    commit_s: float = 0.0
    held_bytes: int = 0
    oldest_s: float = 0.0
    forward_sent: int = 0
    forward_lost: Mapping[str, int] = field(default_factory=dict)
    settled: int = 0
    late: int = 0


#: name, type, labels, meaning
INTAKE_SERIES: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("goodwatch_otlp_requests_total", "counter", "kind, transport, media, answer", "OTLP requests by what they were answered"),
    ("goodwatch_otlp_received_bytes_total", "counter", "transport", "bytes of their bodies as sent"),
    ("goodwatch_otlp_spans_total", "counter", "", "spans that were acknowledged"),
    ("goodwatch_otlp_parts_total", "counter", "", "spans that were kept"),
    ("goodwatch_otlp_repeated_parts_total", "counter", "", "spans that had come before and were not kept again"),
    ("goodwatch_otlp_refused_total", "counter", "kind, reason", "spans, log records and metrics that cannot be used"),
    ("goodwatch_otlp_omitted_total", "counter", "kind, reason", "damaged parts left out of what was kept"),
    ("goodwatch_otlp_dropped_spans_total", "counter", "reason", "spans that nothing needs, by class"),
    ("goodwatch_otlp_odd_fields_total", "counter", "reason", "fields of kept spans that were not used"),
    ("goodwatch_otlp_ignored_total", "counter", "kind", "log records and metrics that nothing needs"),
    ("goodwatch_otlp_commits_total", "counter", "", "commits of the request store by the receiver"),
    ("goodwatch_otlp_commit_seconds_total", "counter", "", "time that they took"),
    ("goodwatch_otlp_held_bytes", "gauge", "", "bytes that wait to be acknowledged"),
    ("goodwatch_otlp_oldest_seconds", "gauge", "", "age of the oldest request that waits"),
    ("goodwatch_otlp_forwarded_total", "counter", "", "bodies that the next receiver took"),
    ("goodwatch_otlp_forward_lost_total", "counter", "reason", "bodies that it did not get"),
    ("goodwatch_requests_settled_total", "counter", "", "requests that were counted"),
    ("goodwatch_requests_late_total", "counter", "", "requests that a late span corrected afterwards"),
)  # fmt: skip


def intake_families(now: IntakeNow) -> Iterator[Metric]:
    """One family a series, those without a sample included."""
    values: tuple[float | Mapping[Any, int], ...] = (
        now.requests, now.bytes, now.spans, now.rows, now.repeated_rows, now.refused, now.omitted, now.dropped,
        now.oddities, now.ignored, now.commits, now.commit_s, now.held_bytes, now.oldest_s, now.forward_sent, now.forward_lost,
        now.settled, now.late,
    )  # fmt: skip
    for (name, kind, labels, text), value in zip(INTAKE_SERIES, values, strict=True):
        family = Metric(name.removesuffix("_total"), text, kind)
        if isinstance(value, Mapping):
            for key, count in sorted(value.items()):
                given = key if isinstance(key, tuple) else (key,)
                family.add_sample(name, dict(zip(labels.split(", "), given, strict=True)), float(count))
        else:
            family.add_sample(name, {}, float(value))
        yield family

"""Series of alerting: what sinks were sent, what they failed on, and what came in from others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from exporters._families import label_text

#: name, type, labels, meaning
ALERTING_SERIES: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("goodwatch_notifications_sent_total", "counter", "sink, cause", "messages that a sink took"),
    ("goodwatch_notifications_failed_total", "counter", "sink, reason", "tries that failed; they are made again"),
    ("goodwatch_notifications_dropped_total", "counter", "sink, reason", "alerts that a sink was not told and never will be"),
    ("goodwatch_notifications_waiting", "gauge", "sink", "alerts that a sink has yet to be told"),
    ("goodwatch_alert_webhooks_total", "counter", "outcome", "alerts of others that came in, by what became of them"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SinkSeries:
    """One sink: counts by cause or reason, and what waits."""

    sink: str
    sent: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0


def alerting_families(sinks: Sequence[SinkSeries], webhooks: Mapping[str, int]) -> Iterator[Metric]:
    """Families of alerting; a family without samples is left out."""
    texts = {name: text for name, _, _, text in ALERTING_SERIES}
    for name, label in (("sent", "cause"), ("failed", "reason"), ("dropped", "reason")):
        full = f"goodwatch_notifications_{name}_total"
        counter = CounterMetricFamily(full, texts[full], labels=["sink", label])
        for one in sinks:
            for key, count in getattr(one, name).items():
                counter.add_metric([label_text(one.sink), label_text(key)], count)
        if counter.samples:
            yield counter
    waiting = GaugeMetricFamily(ALERTING_SERIES[3][0], ALERTING_SERIES[3][3], labels=["sink"])
    for one in sinks:
        waiting.add_metric([label_text(one.sink)], one.waiting)
    came = CounterMetricFamily(ALERTING_SERIES[4][0], ALERTING_SERIES[4][3], labels=["outcome"])
    for outcome, count in webhooks.items():
        came.add_metric([outcome], count)
    yield from (family for family in (waiting, came) if family.samples)

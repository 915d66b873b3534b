"""Series of alerting, as Prometheus reads them."""

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from exporters.alerting import ALERTING_SERIES, SinkSeries, alerting_families


class _Once(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def page(families: list[Metric]) -> list[str]:
    registry = CollectorRegistry()
    registry.register(_Once(families))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_nothing_is_shown_before_there_is_a_sink_or_a_webhook() -> None:
    assert list(alerting_families([], {})) == []


def test_counts_are_those_of_each_sink() -> None:
    sinks = [SinkSeries("slack", {"firing": 2}, {"timeout": 3}, {}, 1), SinkSeries("mail")]
    assert page(list(alerting_families(sinks, {"taken": 4}))) == [
        'goodwatch_notifications_sent_total{cause="firing",sink="slack"} 2.0',
        'goodwatch_notifications_failed_total{reason="timeout",sink="slack"} 3.0',
        'goodwatch_notifications_waiting{sink="slack"} 1.0',
        'goodwatch_notifications_waiting{sink="mail"} 0.0',
        'goodwatch_alert_webhooks_total{outcome="taken"} 4.0',
    ]


def test_every_family_is_in_the_table_of_series() -> None:
    full = [SinkSeries("s", {"a": 1}, {"b": 1}, {"c": 1}, 1)]
    names = {sample.name for family in alerting_families(full, {"taken": 1}) for sample in family.samples}
    assert names == {name for name, _, _, _ in ALERTING_SERIES}

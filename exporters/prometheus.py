"""The Prometheus exposition of derived numbers and of goodwatch's own health (prometheus-client).

Everything is read at scrape time: a service, model or target that is gone leaves no stale series behind.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder

from exporters._families import FACTS, page, series_name
from exporters._intake import INTAKE_SERIES, IntakeNow, intake_families
from exporters._own import SelfMetrics
from exporters._values import STATES, Scope, ServiceNow, Snapshot, TargetNow
from exporters.alerting import ALERTING_SERIES
from exporters.quality import QUALITY_SERIES
from exporters.recommendations import RECOMMENDATION_SERIES
from exporters.requests import REQUEST_SERIES
from exporters.slo import SLO_SERIES
from exporters.tenants import TENANT_SERIES
from goodwatch.signals.derive import MEANINGS

__all__ = [
    "MAX_SERIES",
    "STATES",
    "Exporter",
    "IntakeNow",
    "Scope",
    "SelfMetrics",
    "ServiceNow",
    "Snapshot",
    "TargetNow",
    "intake_families",
    "series_name",
    "series_table",
]

MAX_SERIES: Final = 20_000

_log = logging.getLogger(__name__)


class Exporter:
    """Renders ``/metrics``. ``registry`` holds everything for a caller that wants prometheus-client's own tools.

    Parameters
    ----------
    read
        The current values; called once a scrape, in the caller's thread.
    own
        goodwatch's own health.
    more
        Further families, such as those of requests from traces.
    max_series
        Most derived samples on one page; the rest is dropped, counted, and warned about once.
    """

    def __init__(
        self,
        read: Callable[[], Snapshot],
        own: SelfMetrics,
        *,
        more: Callable[[], Iterable[Metric]] = tuple,
        max_series: int = MAX_SERIES,
    ) -> None:
        self.read = read
        self._more = more
        self.own = own
        self.registry = CollectorRegistry()
        self._max_series = max_series
        self._full = False
        self.registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: names depend on what is there, and are never registered by anyone else."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families now, for the registry."""
        return self._families(self.read())

    def render(self, snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
        """Body and content type for an ``Accept`` header: OpenMetrics when asked for, else the text format.

        May run in a worker thread, as long as ``snapshot`` was read in the thread that owns the values.
        """
        encode, content_type = choose_encoder(accept)
        return encode(_Fixed(list(self._families(snapshot)))), content_type

    def _families(self, snapshot: Snapshot) -> Iterator[Metric]:
        made = page(snapshot, self._max_series)
        if made.dropped:
            self.own.dropped(made.dropped)
            if not self._full:
                _log.warning(
                    "metrics page is full: the numbers of some models or targets are left out",
                    extra={"dropped": made.dropped, "max_series": self._max_series},
                )
        self._full = made.dropped > 0
        yield from made.families
        yield from self._more()
        yield from self.own.families()


class _Fixed:
    """Families that are already there, as the encoders of prometheus-client want them."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def series_table() -> str:
    """Every exported series as a Markdown table: name, type, labels, meaning."""
    rows = [
        (series_name(name), "gauge", "service, model, target", f"{meaning.text} ({meaning.unit})")
        for name, meaning in MEANINGS.items()
    ]
    rows += [(name, "gauge", ", ".join(labels), text) for name, (labels, text) in FACTS.items()]
    rows += [*REQUEST_SERIES, *INTAKE_SERIES, *SLO_SERIES, *ALERTING_SERIES, *QUALITY_SERIES, *TENANT_SERIES]
    rows += RECOMMENDATION_SERIES
    own = SelfMetrics("")
    own.reloaded(True, 0.0)  # gauges have no sample before they are known
    rows += [
        (f"{f.name}_total" if f.type == "counter" else f.name, f.type, _OWN_LABELS.get(f.name, ""), f.documentation)
        for f in own.families()
        if f.name.startswith("goodwatch_")
    ]
    lines = [f"| `{name}` | {kind} | {labels} | {text} |" for name, kind, labels, text in rows]
    return "\n".join(["| series | type | labels | meaning |", "| --- | --- | --- | --- |", *lines, ""])


_OWN_LABELS: Final = {
    "goodwatch_build_info": "version",
    "goodwatch_scrapes": "reason",
    "goodwatch_refused_input": "reason",
    "goodwatch_auth_failures": "reason",
    "goodwatch_discovery_failures": "discovery, reason",
}

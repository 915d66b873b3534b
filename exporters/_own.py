"""What goodwatch says of itself: counts and times that the service reports as they happen."""

import threading
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, ProcessCollector

#: a scrape of an engine takes milliseconds; the default timeout is 10 s, the longest sensible one a minute
_SCRAPE_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
#: late by more than 50 ms, and scrapes and pages are late as well
_LAG_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)

#: gauges that have no sample until they are known: name → meaning
_GAUGES: Final = {
    "goodwatch_config_reload_success": "1 if the last reload of the configuration was taken, 0 if it was refused",
    "goodwatch_config_last_reload_timestamp_seconds": "when a configuration was last taken, Unix time",
}


class SelfMetrics:
    """goodwatch's own health. Methods may be called from any thread; they never raise and never block on I/O."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._lock = threading.Lock()
        self._values: dict[str, float] = {}
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._scrapes = self._counter("scrapes", "scrapes of targets by outcome", "reason")
        self._durations = Histogram(
            "goodwatch_scrape_duration_seconds", "time that one scrape took", buckets=_SCRAPE_BUCKETS_S,
            registry=self._registry,
        )  # fmt: skip
        self._lag = Histogram(
            "goodwatch_event_loop_lag_seconds", "how late the event loop woke, looked at every 50 ms",
            buckets=_LAG_BUCKETS_S, registry=self._registry,
        )  # fmt: skip
        self._store_errors = self._counter("store_errors", "times that the store could not keep or read data")
        self._refused = self._counter("refused_input", "input that was refused by a limit or a rule", "reason")
        self._auth_failures = self._counter("auth_failures", "requests that were refused for want of a right", "reason")
        self._discovery = self._counter("discovery_failures", "looks for targets that failed", "discovery", "reason")
        self._dropped = self._counter("dropped_samples", "derived samples left out of this page by its limit")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"goodwatch_{name}_total", text, labels, registry=self._registry)

    def scraped(self, reason: str, duration_s: float) -> None:
        """One scrape of a target ended; ``reason`` is "" (or "ok") for a good one, else why it failed."""
        self._scrapes.labels(reason or "ok").inc()
        self._durations.observe(duration_s)

    def store_error(self) -> None:
        """The store could not keep or read data."""
        self._store_errors.inc()

    def refused(self, reason: str, n: int = 1) -> None:
        """``n`` pieces of input were refused; ``reason`` is stable, such as "sample_limit"."""
        self._refused.labels(reason).inc(n)

    def auth_failed(self, reason: str) -> None:
        """A request was refused for want of a right; ``reason`` is one of ``goodwatch.api.auth.REASONS``."""
        self._auth_failures.labels(reason).inc()

    def discovery_failed(self, discovery: str, reason: str) -> None:
        """A look for targets failed; ``discovery`` is its place in the configuration, ``reason`` is stable."""
        self._discovery.labels(discovery, reason).inc()

    def dropped(self, n: int) -> None:
        """``n`` derived samples did not fit on a page."""
        self._dropped.inc(n)

    def reloaded(self, ok: bool, now_s: float) -> None:
        """The configuration was read again at ``now_s`` (Unix seconds); ``ok`` says whether it was taken."""
        with self._lock:
            self._values["goodwatch_config_reload_success"] = float(ok)
            if ok:
                self._values["goodwatch_config_last_reload_timestamp_seconds"] = now_s

    def loop_lag(self, seconds: float) -> None:
        """The event loop ran ``seconds`` later than asked."""
        self._lag.observe(seconds)

    def families(self) -> Iterator[Metric]:
        """All families now; the creation times that the library adds are left out, nobody reads them."""
        build = Metric("goodwatch_build_info", "the version that runs; always 1", "gauge")
        build.add_sample("goodwatch_build_info", {"version": self._version}, 1.0)
        yield build
        with self._lock:
            values = dict(self._values)
        for name, text in _GAUGES.items():
            if name in values:
                gauge = Metric(name, text, "gauge")
                gauge.add_sample(name, {}, values[name])
                yield gauge
        for family in self._registry.collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family

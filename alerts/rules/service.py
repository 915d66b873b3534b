"""Alerts of one service beside its budget: down, silent, stuck, and what usually comes before users feel it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from alerts.rules.burn import TILE_S, TOTAL
from alerts.rules.promql import TARGET, quoted, selector, span
from alerts.rules.sli import base_matchers, engines_of, indicators
from alerts.rules.sources import Native, gain, level, natives
from alerts.rules.values import Alert, Group, Options
from goodwatch.core.errors import ConfigError
from goodwatch.core.slo import Slo


@dataclass(frozen=True, slots=True)
class _Service:
    """A service as its alerts see it."""

    name: str
    select: tuple[str, ...]
    engines: tuple[str, ...]
    slos: tuple[Slo, ...]
    options: Options

    def of(self, signal: str) -> tuple[Native, ...]:
        return natives(self.options, self.engines, signal)

    def level(self, signal: str, over: str = "", *, combine: str = "sum") -> str:
        return level(self.of(signal), self.select, over, combine=combine)

    def held(self, signal: str, over: str) -> str:
        return f"sum({self.level(signal, over)})"

    def gain(self, signal: str, window: str) -> str:
        return f"sum by ({TARGET}) ({gain(self.of(signal), self.select, window)})"

    def gained(self, signal: str, window: str) -> str:
        return f"sum({self.gain(signal, window)})"

    def has(self, *signals: str) -> bool:
        return all(self.of(signal) for signal in signals)

    def alert(self, name: str, kind: str, expr: str, summary: str, **more: object) -> Alert:
        made = Alert(name, kind, expr, self.options.ticket, summary, labels={"service": self.name})
        return replace(made, **more)  # type: ignore[arg-type]


def service_group(slos: tuple[Slo, ...], options: Options) -> tuple[Group, tuple[str, ...]]:
    """The alerts of the service that these SLOs are of, and the names of those that its engines cannot carry."""
    first = slos[0]
    service = _Service(first.service, base_matchers(first, options), engines_of(first, options), slos, options)
    makers = {
        "LlmTargetDown": _down, "LlmSloNoData": _no_data, "LlmEngineStalled": _stalled, "LlmKvCacheThrash": _thrash,
        "LlmQueueGrowing": _queue, "LlmPrefixCacheCollapse": _prefix, "LlmReplicaOutlier": _outlier,
    }  # fmt: skip
    made = {name: tuple(maker(service)) for name, maker in makers.items()}
    alerts = tuple(alert for found in made.values() for alert in found)
    return Group(f"goodwatch-service-{first.service}", options.interval_s, alerts), tuple(
        n for n, a in made.items() if not a
    )


def _down(service: _Service) -> Iterator[Alert]:
    up = selector("up", service.select)
    yield service.alert(
        "LlmServiceDown", "service-down", f"max({up}) == 0 or max(absent({up}))",
        f"No target of {service.name} can be scraped: the service is down, or Prometheus lost all of its targets.",
        severity=service.options.page, for_s=180.0, keep_firing_for_s=300.0,
        description="All targets fail their scrapes, or there are none; the error budget cannot be seen meanwhile.",
    )  # fmt: skip
    yield service.alert(
        "LlmTargetDown", "target-down", f"count({up} == 0) unless on () (max({up}) == 0)",
        f"{{{{ $value }}}} of the targets of {service.name} cannot be scraped; others still can.",
        for_s=600.0, description="The others carry its traffic. The missing ones' requests are not counted.",
    )  # fmt: skip


def _no_data(service: _Service) -> Iterator[Alert]:
    """Targets answer and work, and yet the series that an SLO counts are gone: a rename, a flag, a frontend."""
    up = f"(max({selector('up', service.select)}) == 1)"
    for slo in service.slos:
        try:
            native = [sli.target for sli in indicators(slo, service.options).slis if sli.native]
        except ConfigError:
            native = []
        if not native:
            continue
        total = f"{TOTAL}{span(TILE_S)}"
        gone = [f"({up} unless on () {total}{{slo={quoted(slo.name)},target={quoted(t)}}})" for t in native]
        # Before its first event an engine may not have the series; then only a busy one is suspicious.
        zeros = all(service.options.engines[name].zeros_from_start for name in service.engines)
        if service.has("requests_running"):
            busy = f"{service.held('requests_running', 'avg_over_time [10m]')} > 0"
        else:
            busy = f"sum(sum_over_time({total}{{slo={quoted(slo.name)}}}[1d])) > 0"
        yield service.alert(
            "LlmSloNoData", "slo-no-data", f"({' or '.join(gone)}){'' if zeros else f' and on () ({busy})'}",
            f"The SLO {slo.name} of {service.name} has no data, though its targets answer.",
            for_s=900.0, labels={"service": service.name, "slo": slo.name},
            description="The series that it counts vanished: an engine upgrade that renamed them, a flag, another "
            "frontend, or relabelling. Its budget and its pages are blind until this is mended.",
        )  # fmt: skip


def _stalled(service: _Service) -> Iterator[Alert]:
    """Work in the batch and no token: the engine hangs. Histograms that are filled at the end see nothing of it."""
    if not service.has("requests_running"):
        return
    tokens, live = "output_tokens_total", "realtime_tokens_total"
    if not service.has(tokens):
        return
    late = any(service.options.engines[name].tokens_step_at_finish for name in service.engines)
    # Engines that count tokens when a request ends are silent as long as their longest answer takes.
    window = "5m" if not late else "15m" if service.has(live) else "30m"
    busy = f"({service.level('requests_running', f'min_over_time [{window}]')} > 0)"
    idle = f"({service.gain(tokens, window)} == 0)"
    still = f" unless on ({TARGET}) ({service.gain(live, window)} > 0)" if service.has(live) else ""
    yield service.alert(
        "LlmEngineStalled", "engine-stalled", f"count({busy} and on ({TARGET}) {idle}{still}) > 0",
        f"{{{{ $value }}}} replicas of {service.name} have requests running and made no token for {window}.",
        severity=service.options.page, keep_firing_for_s=300.0,
        description="Requests hang and do not end, so latency histograms and the error budget do not see them.",
    )  # fmt: skip


def _thrash(service: _Service) -> Iterator[Alert]:
    if not service.has("preemptions_total", "requests_finished_total"):
        return
    thrown, ended = service.gained("preemptions_total", "15m"), service.gained("requests_finished_total", "15m")
    full = ""
    if service.has("kv_cache_used_ratio"):
        full = f" and on () (max({service.level('kv_cache_used_ratio', 'max_over_time [15m]', combine='max')}) > 0.9)"
    yield service.alert(
        "LlmKvCacheThrash", "kv-cache-thrash",
        f"{thrown} / ({ended} > 0) > 0.1 and on () ({thrown} >= 10){full}",
        f"{service.name} throws out {{{{ $value | humanize }}}} running requests for each one that ends: the KV cache is too small.",
        for_s=900.0, description="Each preemption computes its prompt again, so throughput falls while the GPUs are busy.",
    )  # fmt: skip


def _queue(service: _Service) -> Iterator[Alert]:
    if not service.has("requests_waiting", "requests_running"):
        return
    now = service.held("requests_waiting", "avg_over_time [10m]")
    before = service.held("requests_waiting", "avg_over_time [10m] offset 15m")
    running = service.held("requests_running", "avg_over_time [10m]")
    yield service.alert(
        "LlmQueueGrowing", "queue-growing",
        f"({now} > 10) and on () ({now} > 2 * {before}) and on () ({now} > 0.5 * {running})",
        f"{{{{ $value | humanize }}}} requests wait for {service.name}, more than twice as many as a quarter of an hour ago.",
        for_s=600.0, description="Requests arrive faster than they are served; the time to first token follows.",
    )  # fmt: skip


def _prefix(service: _Service) -> Iterator[Alert]:
    hits, queries = "prefix_cache_hits_total", "prefix_cache_queries_total"
    if not service.has(hits, queries):
        return
    now, day = (  # a point every five minutes is enough of a day, and a twentieth of the samples
        f"{service.gained(hits, window)} / ({service.gained(queries, window)} > {_ENOUGH_TOKENS})"
        for window in ("30m", "1d:5m")
    )
    yield service.alert(
        "LlmPrefixCacheCollapse", "prefix-cache-collapse", f"({now}) < 0.5 * ({day} > 0.2)",
        f"Only {{{{ $value | humanizePercentage }}}} of the prompt tokens of {service.name} are found in the prefix cache, "
        "under half of what a day has.",
        for_s=1_800.0, description="Prompts are computed again: a template or a router changed, or the cache is too small.",
    )  # fmt: skip


#: looked-up tokens below which a hit ratio says nothing: some fifty prompts of two thousand tokens
_ENOUGH_TOKENS = 100_000


def _outlier(service: _Service) -> Iterator[Alert]:
    signal = next((s for s in ("itl_seconds", "tpot_seconds") if service.has(s)), None)
    if signal is None:
        return
    found = tuple(native for native in service.of(signal) if native.source.type == "histogram")
    counted = f"sum by ({TARGET}) ({gain(found, service.select, '15m', '_count')})"
    mean = f"sum by ({TARGET}) ({gain(found, service.select, '15m', '_sum')}) / ({counted} > 1000)"
    middle = f"scalar(quantile(0.5, {mean}))"
    yield service.alert(
        "LlmReplicaOutlier", "replica-outlier", f"count(({mean}) > 2 * {middle}) and on () (count({mean}) >= 3)",
        f"{{{{ $value }}}} replicas of {service.name} take more than twice as long for a token as the middle one.",
        for_s=900.0, description="The same work takes longer on some replicas: a throttled or faulty GPU, or a noisy neighbour.",
    )  # fmt: skip

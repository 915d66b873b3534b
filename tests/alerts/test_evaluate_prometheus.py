"""The evaluator against a real Prometheus on the same samples: events of every window, and when alerts fire.

What Prometheus extrapolates and goodwatch counts may differ by what arrives between two scrapes: ``increase`` takes the
first value in a window as its start and makes up for the edges by the average rate, goodwatch knows the value before it.
In steady traffic they are equal; at a change of the traffic each edge is off by at most an interval of scrapes, and by
a factor of the window over what of it was seen. Three things are known to be different, and are bounded below:

- a counter that is born late: Prometheus does not see its first value, goodwatch counts it from zero;
- a counter that began again: Prometheus loses what came between the last scrape and the reset, and so does goodwatch;
- a gap of scrapes longer than 1.1 intervals at a window's edge: Prometheus extrapolates half an interval into it only,
  goodwatch puts what came in the gap into the minute of the scrape that ended it.
"""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from alerts.evaluate_sources import countings
from alerts.rules.build import build
from alerts.rules.burn import BAD, RATIO
from alerts.rules.promql import span
from alerts.rules.sli import indicators
from collector.stores.memory import MemoryStore
from goodwatch.app.slo_events import SloSources
from goodwatch.core.slo import Availability, Slo, burn_pairs
from goodwatch.signals.budget import SloStatus, slo_status
from goodwatch.signals.slo_events import native_events
from tests.alerts.scenarios import (
    BEGIN_S,
    SCRAPE_S,
    Counter,
    Phase,
    counters_minutes,
    counters_openmetrics,
    length_min,
    minutes,
    openmetrics,
)
from tests.alerts.services import OPTIONS, first_token
from tests.support.prometheus_server import MetricsServer, fill_prometheus, needs_prometheus, prometheus_server

pytestmark = [pytest.mark.integration, needs_prometheus]

HOURS_6: Final = Phase(360, 1000)
ALL_BAD: Final = 1000

SCENARIOS: Final[dict[str, tuple[Phase, ...]]] = {
    "steady-good": (Phase(420, 1000, 1),),
    "burn-1": (HOURS_6, Phase(120, 1000, 10)),
    "burn-14": (HOURS_6, Phase(180, 1000, 150)),
    "spike": (HOURS_6, Phase(5, 1000, ALL_BAD), Phase(60, 1000)),
    "one-a-minute": (Phase(120, 1), Phase(1, 1, 1), Phase(80, 1)),
    "reset": (HOURS_6, Phase(30, 1000, reset=True)),
    "reset-in-outage": (HOURS_6, Phase(4, 1000, ALL_BAD), Phase(30, 1000, ALL_BAD, reset=True)),
    "gaps": (HOURS_6, *(Phase(7, 1000), Phase(3, 1000, seen=False)) * 5, Phase(10, 1000)),
    "gaps-in-outage": (HOURS_6, Phase(3, 1000, ALL_BAD), Phase(3, 1000, ALL_BAD, seen=False), Phase(30, 1000, ALL_BAD)),
    "late": (Phase(30, 0, told=False), Phase(60, 1000, ALL_BAD)),
    "new-pod": (HOURS_6, Phase(60, 1000, pod="b")),
    "new-pod-in-outage": (HOURS_6, Phase(15, 1000, ALL_BAD), Phase(30, 1000, ALL_BAD, pod="b")),
    "zero-traffic": (Phase(120, 0),),
    "recovery": (HOURS_6, Phase(12, 1000, ALL_BAD), Phase(60, 1000)),
    "flapping": (HOURS_6, *(Phase(10, 1000, ALL_BAD), Phase(10, 1000)) * 4),
}
FIRES: Final = {
    "burn-14", "reset-in-outage", "gaps-in-outage", "late", "new-pod-in-outage", "recovery", "flapping",
}  # fmt: skip
_WINDOWS_S: Final = (300.0, 1_800.0, 3_600.0, 21_600.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricsServer]:
    folder = tmp_path_factory.mktemp("prometheus")
    fill_prometheus(folder, openmetrics(dict(SCENARIOS)))
    with prometheus_server(folder) as running:
        yield running


def ask(server: MetricsServer, query: str, until_min: int) -> dict[int, float]:
    """Value at each whole minute since the beginning."""
    asked = {"query": query, "start": BEGIN_S + 60, "end": BEGIN_S + 60 * until_min, "step": 60}
    with urllib.request.urlopen(
        f"{server.url}/api/v1/query_range?{urllib.parse.urlencode(asked)}", timeout=60
    ) as answer:
        found = json.load(answer)["data"]["result"]
    assert len(found) <= 1, found
    return {round((at - BEGIN_S) / 60): float(value) for one in found for at, value in one["values"]}


def slo_of(job: str, days: float = 30) -> Slo:
    objective = 0.999 if job == "one-a-minute" else 0.99
    return replace(first_token(days, objective), service=job, name=f"slo-{job}")


def statuses(slo: Slo, phases: tuple[Phase, ...]) -> dict[int, SloStatus]:
    """The evaluator's answer at each whole minute, through the store."""
    store = MemoryStore()
    store.append_minutes(minutes(slo.service, phases))
    end_s = BEGIN_S + 60 * length_min(phases)
    events = SloSources(store, OPTIONS).read(slo.service, [slo], BEGIN_S, end_s).slos[slo.name]
    pairs = burn_pairs(slo.objective, slo.period.length_s, scrape_interval_s=OPTIONS.scrape_interval_s)
    return {
        minute: slo_status(slo, events, BEGIN_S + 60 * minute, pairs) for minute in range(1, length_min(phases) + 1)
    }


def expanded(slo: Slo, expr: str) -> str:
    """An alert's expression with the recordings that it reads written out, so that it can be asked of the past."""
    (sli,) = indicators(slo, OPTIONS).slis

    def counted(window: str) -> tuple[str, str]:
        total = f"({sli.total.replace('$window', window)})"
        return total, f"({sli.bad.replace('$total', total).replace('$window', window)})"

    def ratio(hit: re.Match[str]) -> str:
        total, bad = counted(hit[1])
        return f"({bad} / ({total} > 0))"

    expr = re.sub(rf"{RATIO}(\w+)\{{[^}}]*\}}", ratio, expr)
    return re.sub(rf"{BAD}(\w+)\{{[^}}]*\}}", lambda hit: counted(hit[1])[1], expr)


@pytest.mark.parametrize("job", SCENARIOS)
def test_windows_hold_what_prometheus_counts(job: str, server: MetricsServer) -> None:
    slo, phases = slo_of(job), SCENARIOS[job]
    (sli,) = indicators(slo, OPTIONS).slis
    mine = statuses(slo, phases)
    a_scrape = max(phase.per_min for phase in phases) * SCRAPE_S / 60
    gap = max((phase.minutes for phase in phases if not phase.seen), default=0) * 60 / SCRAPE_S
    series = len({phase.pod for phase in phases})
    slack = (
        2 * series + gap
    ) * a_scrape + 1  # two edges a series, what came in a gap, one request that does not divide
    for length_s in _WINDOWS_S:
        total = f"({sli.total.replace('$window', span(length_s))})"
        bad = sli.bad.replace("$total", total).replace("$window", span(length_s))
        theirs = {name: ask(server, query, length_min(phases)) for name, query in (("total", total), ("bad", bad))}
        for minute, status in mine.items():
            held = [t.windows[length_s] for t in status.targets if t.target == "ttft"]
            events = held[0] if held else None
            if minute not in theirs["total"]:  # fewer than two scrapes of the series in the window
                assert events is None or events.total <= slack
                continue
            assert events is not None, (minute, length_s)
            assert events.total == pytest.approx(theirs["total"][minute], abs=slack), (minute, length_s)
            assert events.bad == pytest.approx(theirs["bad"][minute], abs=slack), (minute, length_s)


@pytest.mark.parametrize("days", [30, 7])
@pytest.mark.parametrize("job", SCENARIOS)
def test_alerts_fire_in_the_same_minutes(job: str, days: int, server: MetricsServer) -> None:
    slo, phases = slo_of(job, days), SCENARIOS[job]
    mine = statuses(slo, phases)
    (page,) = [a for a in build([slo], OPTIONS).alerts if a.name == "LlmErrorBudgetBurnFast"]
    theirs = set(ask(server, expanded(slo, page.expr), length_min(phases)))
    ours = {minute for minute, status in mine.items() if status.firing("page")}
    edges = {minute for minute in theirs if minute - 1 not in theirs or minute + 1 not in theirs}
    near = {minute + off for minute in edges for off in (-1, 0, 1)}
    assert ours ^ theirs <= near, (sorted(ours - theirs), sorted(theirs - ours))
    assert (bool(ours), bool(theirs)) == (job in FIRES, job in FIRES)


def test_steady_traffic_is_counted_to_the_request(server: MetricsServer) -> None:
    """Where nothing changes the two are equal: 1000 a minute, 1 of them bad."""
    slo, phases = slo_of("steady-good"), SCENARIOS["steady-good"]
    (sli,) = indicators(slo, OPTIONS).slis
    theirs = ask(server, sli.total.replace("$window", "1h"), 420)
    (target,) = statuses(slo, phases)[400].targets
    held = target.windows[3_600.0]
    assert held is not None
    assert (held.total, held.bad) == (60_000, 60)
    assert theirs[400] == pytest.approx(60_000, abs=1e-6)


def test_an_slo_reads_the_store_as_it_reads_minutes() -> None:
    slo, phases = slo_of("recovery"), SCENARIOS["recovery"]
    store = MemoryStore()
    store.append_minutes(minutes(slo.service, phases))
    read = SloSources(store, OPTIONS).read(slo.service, [slo], BEGIN_S, BEGIN_S + 1e5).slos[slo.name]
    assert read.equals(native_events(minutes(slo.service, phases), slo, countings(slo, OPTIONS)))


VLLM_HTTP: Final = 'handler="/v1/chat/completions",method="POST",status="{}"'
SGLANG_HTTP: Final = 'endpoint="/v1/chat/completions",method="POST",status_code="{}"'
SERVED: Final[dict[str, tuple[Counter, ...]]] = {
    "vllm": (
        Counter("http_requests", VLLM_HTTP.format("2xx"), "http_requests_total", "status=2xx", 900),
        Counter("http_requests", VLLM_HTTP.format("4xx"), "http_requests_total", "status=4xx", 50),
        Counter("http_requests", VLLM_HTTP.format("5xx"), "http_requests_total", "status=5xx", 100, from_min=60),
        Counter("vllm:request_success", 'finished_reason="stop"', "requests_finished_total", "finished_reason=stop", 900),
    ),
    "sglang": tuple(
        Counter("sglang:http_responses", SGLANG_HTTP.format(code), "http_requests_total", f"status={code}", per_min)
        for code, per_min in (("200", 900), ("400", 40), ("429", 20), ("503", 30))
    ),
    "trtllm": (
        Counter("trtllm_request_success", 'finished_reason="stop"', "requests_finished_total", "finished_reason=stop", 900),
        Counter("trtllm_request_success", 'finished_reason="cancelled"', "requests_finished_total", "finished_reason=cancelled", 40),
        Counter("trtllm_request_error", 'http_code="500"', "requests_failed_total", "", 30),
        Counter("trtllm_request_error", 'http_code="429"', "requests_rejected_total", "", 20),
    ),
}  # fmt: skip


@pytest.mark.parametrize("engine", SERVED)
def test_served_requests_are_those_that_prometheus_counts(engine: str, tmp_path: Path) -> None:
    """Steady counters: equal to what arrives between two scrapes, for every engine's own way of telling failures."""
    slo = Slo("served", "chat", 0.99, Availability(), engines=(engine,))
    fill_prometheus(tmp_path, counters_openmetrics("chat", SERVED[engine], 180))
    rows = counters_minutes("chat", engine, SERVED[engine], 180)
    events = native_events(rows, slo, countings(slo, OPTIONS))
    (sli,) = indicators(slo, OPTIONS).slis
    slack = sum(one.per_min for one in SERVED[engine]) * SCRAPE_S / 60 + 1
    with prometheus_server(tmp_path) as server:
        for length_s in (300.0, 1_800.0, 3_600.0):
            total = f"({sli.total.replace('$window', span(length_s))})"
            bad = ask(server, sli.bad.replace("$total", total).replace("$window", span(length_s)), 180)
            totals = ask(server, total, 180)
            for minute in (65, 90, 130, 179):
                (target,) = slo_status(
                    slo, events, BEGIN_S + 60 * minute, burn_pairs(0.99, slo.period.length_s)
                ).targets
                held = target.windows[length_s]
                assert held is not None
                assert held.total == pytest.approx(totals[minute], abs=slack), (minute, length_s)
                assert held.bad == pytest.approx(bad[minute], abs=slack), (minute, length_s)
                if (
                    engine != "vllm"
                ):  # nothing changes: they are equal, but for the place of requests that do not divide
                    assert held.bad == pytest.approx(bad[minute], rel=0.02)

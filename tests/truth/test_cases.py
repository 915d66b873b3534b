"""Pages and faults that people reported in public, and what a good tool concludes from them, and does not say."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console

from collector.capability import Capability, capability
from collector.pipeline import TargetReader
from collector.scrape import Fetched, Session, fetch
from collector.targets import ScrapeOptions, TargetSpec
from goodwatch.app.build import ServiceInputs, TargetFacts, service_view
from goodwatch.app.config import Service
from goodwatch.app.engines import known_engines
from goodwatch.app.fleet import TargetState
from goodwatch.app.inspecting import How, Inspected, as_json, inspect
from goodwatch.app.show import show_capability
from goodwatch.app.view import ServiceView
from goodwatch.core.clock import SystemClock
from goodwatch.core.errors import TransientError
from goodwatch.core.model import Absence, Bounds, Limits, SignalStatus, Target
from tests.app.test_layers import Watched
from tests.collector.engines.pages import body
from tests.support.engine_server import TEXT, engine_server

CASES = Path(__file__).parent / "cases"
READ_AT_S = 1_800_000_000.0


class Case:
    """One case, read as a user would: the report, the text on the terminal, the JSON."""

    def __init__(self, name: str) -> None:
        self.path = CASES / name / "metrics.prom"
        how = How(known_engines(), Limits(0.5, 0.05), READ_AT_S)
        (self.inspected,) = inspect(str(self.path), how)
        self.text = text_of(self.inspected)
        self.json = as_json(self.inspected)

    @property
    def report(self) -> Capability:
        return self.inspected.capability

    def signal(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(s for s in self.json["signals"] if s["name"] == name)
        return found

    def remark(self, code: str) -> str:
        return next(r.text for r in self.report.remarks if r.code == code)

    def said(self) -> Iterator[str]:
        """Everything that a person or a program can read of it."""
        yield " ".join(self.text.split())
        yield json.dumps(self.json)


def text_of(inspected: Inspected) -> str:
    console = Console(width=140, highlight=False)
    with console.capture() as captured:
        show_capability(console, inspected, every=True)
    return captured.get()


@pytest.fixture(scope="module")
def old_names() -> Case:
    return Case("001-router-metrics-v0-names")


@pytest.fixture(scope="module")
def path_as_name() -> Case:
    return Case("002-sglang-path-as-name")


@pytest.fixture(scope="module")
def geometric() -> Case:
    return Case("003-sglang-stage-histogram-geometric-buckets")


@pytest.fixture(scope="module")
def two_engines() -> Case:
    return Case("004-two-engines-two-api-servers")


# -- 001: early names of vLLM; a router in front --------------------------------------------------------------------


def test_001_the_old_name_is_the_use_of_the_kv_cache(old_names: Case) -> None:
    used = old_names.signal("kv_cache_used_ratio")
    assert (used["status"], used["source"], used["number"]) == ("measured", "vllm:gpu_cache_usage_perc", 0.0)
    assert "vllm:gpu_cache_usage_perc as kv_cache_used_ratio" in old_names.remark("old_name")


def test_001_without_the_label_engine_it_is_one_engine_of_an_old_version(old_names: Case) -> None:
    assert old_names.report.engine == "vllm"
    assert old_names.report.version == "0.8.5 or older"
    assert old_names.signal("requests_running")["ranks"] == []


def test_001_the_page_of_an_engine_is_not_taken_for_a_router_s(old_names: Case) -> None:
    assert "router" not in {r.code for r in old_names.report.remarks}


def test_001_a_router_in_front_is_not_the_engine() -> None:
    # The facts: the router's own port shows its own process metrics and none of the engine's.
    own = "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.7e9\n"
    per_endpoint = '# TYPE vllm:current_qps gauge\nvllm:current_qps{server="http://e"} 2\n'
    per_endpoint += '# TYPE vllm:healthy_pods_total gauge\nvllm:healthy_pods_total{server="http://e"} 1\n'
    for page, code in ((own, "metrics_off"), (own + per_endpoint, "router")):
        found = report_of(page)
        assert found.engine == ""
        assert [r.code for r in found.remarks] == [code]
        assert re.search("[Ss]crape the engine", found.remarks[0].text)


def test_001_the_router_s_port_in_the_service_changes_no_number_but_what_its_own_price_is_part_of() -> None:
    own = "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.7e9\n"
    own += "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 439.7\n"
    per_endpoint = '# TYPE vllm:current_qps gauge\nvllm:current_qps{server="http://e"} 2\n'
    per_endpoint += 'vllm:num_requests_running{server="http://e"} 5\n'
    engine = Watched("engine", body("vllm_0_32_0"))
    alone = view_over_a_minute(engine).derived.numbers
    names = [n for n in alone if "usd" not in n]  # whether the router holds GPUs is not known
    for page in (own, own + per_endpoint):
        both = view_over_a_minute(engine, Watched("router", page)).derived.numbers
        assert {n: (both[n].value, both[n].bounds) for n in names} == {
            n: (alone[n].value, alone[n].bounds) for n in names
        }
        assert (both["usd_per_hour"].value, alone["usd_per_hour"].value) == (None, 3.6)


def test_001_uptime_is_counted_from_the_start_of_the_process(old_names: Case) -> None:
    assert old_names.signal("process_start_seconds")["number"] == 1742624005.57
    page = old_names.path.read_text()
    hour_later = next(r for r in report_of(page, now_s=1742624005.57 + 3600).remarks if r.code == "process_start")
    assert hour_later.text == "The process started at 2025-03-22 06:13:25 UTC, up 1 h 0 min."


def test_001_a_saved_page_claims_no_uptime(old_names: Case) -> None:
    assert not any(re.search(r"\bup \d", said) for said in old_names.said())


# -- 002: a path as the model's name; slots without memory ----------------------------------------------------------


def test_002_the_label_name_holds_a_path_and_is_shown_as_a_model(path_as_name: Case) -> None:
    assert path_as_name.report.models == ("/srv/models/Llama-3.2-3B/rev1/",)
    assert "serving Llama-3.2-3B (rev1)" in path_as_name.text


def test_002_the_pool_holds_few_long_requests_and_slots_are_no_capacity(path_as_name: Case) -> None:
    assert path_as_name.signal("kv_cache_capacity_tokens")["number"] == 570_979
    assert "570,979 tokens holds 4.36 requests of the full 131,072 tokens" in path_as_name.remark("kv_capacity")
    assert "2,231 requests may run at once, which leaves 255.9 tokens of KV each" in path_as_name.remark("kv_per_slot")


def test_002_it_never_says_that_as_many_long_requests_fit_as_there_are_slots(path_as_name: Case) -> None:
    assert not any(re.search(r"2,?231 [^.]*(long|full)|holds 2,?231", said) for said in path_as_name.said())


def test_002_an_engine_that_served_is_not_said_to_load_or_to_be_new(path_as_name: Case) -> None:
    assert path_as_name.report.version == "0.4.2 or older"
    assert not any("loading" in said for said in path_as_name.said())


# -- 003: sums before buckets, geometric bounds, a cut histogram ----------------------------------------------------


def test_003_bounds_are_numbers_and_not_texts(geometric: Case) -> None:
    assert geometric.signal("queue_seconds")["bounds"] == [0.0, 0.1]
    page = geometric.path.read_text().replace('stage="prefill_waiting"', 'stage="prefill_forward"')
    prefill = next(s for s in report_of(page).signals if s.name == "prefill_seconds")
    assert prefill.bounds == pytest.approx((0.001, 0.00162, 1191.064887146242))
    assert prefill.value == "1 seen, mean 175 µs"


def test_003_the_mean_is_told_where_a_bucket_says_little(geometric: Case) -> None:
    queue = geometric.signal("queue_seconds")
    assert queue["value"] == "at least 1 seen, sum 1.84 ms, so the mean is at most 1.84 ms"
    assert queue["number"] is None
    assert "no quantile is given" in geometric.remark("histogram_cut")


def test_003_no_quantile_is_made_from_one_bucket(geometric: Case) -> None:
    for said in geometric.said():
        assert not re.search(r"p\d\d in|P99|99 ms", said)


def test_003_another_stage_is_not_taken_for_the_prefill(geometric: Case) -> None:
    assert geometric.signal("prefill_seconds")["status"] == "absent"


# -- 004: two engines behind two API servers ------------------------------------------------------------------------


def test_004_tokens_of_both_engines_add_up(two_engines: Case) -> None:
    lengths = two_engines.signal("input_length_tokens")
    assert lengths["value"] == "sum 104 tokens (engine=0: 78, engine=1: 26); count not on the page"
    assert lengths["ranks"] == ["engine=0", "engine=1"]


def test_004_a_tiny_sample_is_no_imbalance(two_engines: Case) -> None:
    assert "Too few requests to say whether the load is even" in two_engines.remark("ranks")
    assert not any(re.search(r"\bimbalance|uneven|overloaded", said) for said in two_engines.said())


def test_004_one_engine_is_never_the_total(two_engines: Case) -> None:
    assert not any(re.search(r"(sum|total)[^()]{0,9}78", said) for said in two_engines.said())


def test_004_a_series_that_is_on_the_page_twice_counts_once(two_engines: Case) -> None:
    page = two_engines.path.read_text()
    found = report_of(page + page)
    lengths = next(s for s in found.signals if s.name == "input_length_tokens")
    assert lengths.value.startswith("sum 104 tokens")
    assert "was given before" in next(r.text for r in found.remarks if r.code == "page_problems")


def test_004_a_cut_page_does_not_date_the_engine_too_early(two_engines: Case) -> None:
    assert two_engines.report.version == "0.8.5 or newer"  # it was 0.10


def test_004_no_log_line_is_asked_for(two_engines: Case) -> None:
    kernel = [s.why for s in two_engines.report.signals if s.kernel and s.status is SignalStatus.ABSENT]
    assert kernel
    assert not any("log line" in why or "start-up log" in why for why in kernel)


@pytest.mark.parametrize("name", [p.name for p in sorted(CASES.iterdir()) if (p / "metrics.prom").exists()])
def test_nothing_absent_is_a_number(name: str) -> None:
    absent = [s for s in Case(name).json["signals"] if s["status"] == "absent"]
    assert all((s["number"], s["value"], s["source"]) == (None, "", "") and s["why"] for s in absent)


def report_of(page: str, *, now_s: float | None = None, limits: Limits | None = None) -> Capability:
    target = Target("t", "http://t/metrics", "s")
    return capability(TargetReader(target, known_engines()).understand(page, None), limits or Limits(), now_s=now_s)


def view_over_a_minute(*targets: Watched, service: dict[str, Any] | None = None) -> ServiceView:
    """The page of a service whose targets count, in one minute, all that their pages say."""
    rows = [row for t in targets for row in t.rows if row["minute_s"] > 0]
    before = [row for t in targets for row in t.rows if row["minute_s"] == 0]
    chat = Service.model_validate({"name": "chat", "slo": service or {"ttft": "500ms", "objective": 0.9}})
    facts = tuple(t.facts() for t in targets)
    return service_view(ServiceInputs("chat", chat, facts, rows, before, 0.0, 60.0), known_engines())


# -- 005: metrics answer 500 while the engine serves ----------------------------------------------------------------

SERVICE = Service.model_validate({"name": "chat", "slo": {"objective": 0.99, "ttft": "500ms"}})


async def broken(_: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="FileNotFoundError: /tmp/prom/gauge_mostrecent_1.db")


async def whole(_: web.Request) -> web.StreamResponse:
    return web.Response(body=body("vllm_0_32_0").encode(), headers={"Content-Type": TEXT})


async def served(_: web.Request) -> web.StreamResponse:
    return web.json_response({"choices": [{"text": "hello"}]})


async def scraped(url: str) -> tuple[TargetSpec, Fetched]:
    spec = TargetSpec(Target("gpu-1", url, "chat", engine="vllm"), ScrapeOptions(interval_s=5, timeout_s=5))
    async with Session() as session:
        return spec, await fetch(session, spec, SystemClock())


def view_after(spec: TargetSpec, *fetched: Fetched) -> ServiceView:
    """The service's page after these scrapes, 15 s apart."""
    engines: Mapping[str, Any] = known_engines()
    state = TargetState.of(spec, engines)
    for one in fetched:
        state.accept(state.read(one))
    assert state.last is not None
    end_s = state.last.ts + 1
    facts = TargetFacts(spec.target, state.last, state.understood, state.deployment, None)
    rows, before = state.rows(end_s - 300, end_s), state.before(end_s - 300)
    return service_view(ServiceInputs("chat", SERVICE, (facts,), rows, before, end_s - 300, end_s), engines)


@pytest.mark.integration
async def test_005_a_page_that_fails_is_a_fault_of_the_telemetry() -> None:
    async with engine_server({"/metrics": broken, "/v1/chat/completions": served}) as server:
        _, fetched = await scraped(server.url())
    assert (fetched.up, fetched.reason, fetched.status) == (False, "http_status", 500)
    assert "metrics" in fetched.error
    assert not re.search(r"(service|engine) (is )?(down|dead)", fetched.error)


@pytest.mark.integration
async def test_005_attainment_is_no_data_from_the_first_failed_scrape_and_never_0_or_100() -> None:
    async with engine_server({"/metrics": broken}) as server:
        spec, fetched = await scraped(server.url())
    view = view_after(spec, fetched)
    attainment = view.derived.numbers["attainment_ratio"]
    assert (attainment.value, attainment.bounds, attainment.absence) == (None, None, Absence.NO_DATA)
    shown = {name: n for name, n in view.derived.numbers.items() if n.value is not None or n.bounds is not None}
    assert not shown
    assert view.state not in ("good", "no traffic")
    assert view.state == "no data"
    assert "blind" in view.headline
    assert "HTTP 500" in view.headline
    assert not re.search(r"(?<!not proof that it is) down\b|\d ?%", view.headline)


@pytest.mark.integration
async def test_005_an_engine_that_was_seen_before_keeps_what_it_showed_and_no_more() -> None:
    async with engine_server({"/metrics": whole}) as server:
        spec, good = await scraped(server.url())
    async with engine_server({"/metrics": broken}) as server:
        _, bad = await scraped(server.url())
    attainment = view_after(spec, good, bad).derived.numbers["attainment_ratio"]
    assert (attainment.value, attainment.bounds) == (None, None)
    assert attainment.absence is not None


@pytest.mark.integration
async def test_005_inspecting_it_names_the_likely_cause() -> None:
    async with engine_server({"/metrics": broken}) as server:
        how = How(known_engines(), Limits(), READ_AT_S)
        with pytest.raises(TransientError, match=r"telemetry fault.*PROMETHEUS_MULTIPROC_DIR.*local disk"):
            await asyncio.to_thread(lambda: list(inspect(server.url(), how)))


# -- 016: a gateway whose histogram ends at 10 s before calls of minutes ---------------------------------------------


def capped_gateway(requests: int = 200, mean_s: float = 150.0) -> str:
    """A page of a gateway with the bounds of the case: every call is in the last bucket."""
    (edges,) = re.findall(r"edges: ([\d. ]+) s", (CASES / "016-gateway-10s-bucket-cap" / "facts.txt").read_text())
    name, total = "litellm_request_total_latency_metric", "litellm_proxy_total_requests_metric"
    lines = [f"# TYPE {name} histogram", *(f'{name}_bucket{{model="m",le="{edge}"}} 0' for edge in edges.split())]
    lines += [f'{name}_bucket{{model="m",le="+Inf"}} {requests}', f'{name}_sum{{model="m"}} {requests * mean_s}']
    lines += [f'{name}_count{{model="m"}} {requests}', f"# TYPE {total} counter"]
    return "\n".join([*lines, f'{total}{{status_code="200",model="m"}} {requests}', ""])


def test_016_a_target_above_the_last_bound_is_told_with_what_to_do() -> None:
    found = report_of(capped_gateway(), limits=Limits(e2e_s=60.0))
    text = next(r.text for r in found.remarks if r.code == "target_above_top_bucket")
    assert "60 s lies above the top bucket (10 s)" in text
    assert "Use another series for this SLO" in text


def test_016_the_mean_is_told_and_quantiles_are_open_above() -> None:
    e2e = next(s for s in report_of(capped_gateway()).signals if s.name == "e2e_seconds")
    assert e2e.value == "200 seen, mean 150 s, p50 in 10 s–∞"
    numbers = view_over_a_minute(Watched("gateway", capped_gateway())).derived.numbers
    for name in ("e2e_p50_seconds", "e2e_p90_seconds", "e2e_p99_seconds"):
        assert (numbers[name].value, numbers[name].bounds) == (None, Bounds(10.0, None))


def test_016_what_cannot_be_told_from_the_histogram_is_neither_met_nor_missed() -> None:
    view = view_over_a_minute(Watched("gateway", capped_gateway()), service={"e2e": "60s", "objective": 0.9})
    attainment = view.derived.numbers["attainment_ratio"]
    assert (attainment.value, attainment.bounds) == (None, Bounds(0.0, 1.0))
    assert view.state == "no data"
    assert "too wide to say anything" in view.headline


def test_016_with_the_engine_behind_it_latencies_are_the_engine_s_and_nothing_is_negative() -> None:
    engine, gateway = Watched("engine", body("vllm_0_32_0")), Watched("gateway", capped_gateway())
    both, alone = view_over_a_minute(engine, gateway).derived.numbers, view_over_a_minute(engine).derived.numbers
    for name in ("e2e_p50_seconds", "e2e_p99_seconds", "ttft_p50_seconds", "request_rate_per_s"):
        assert (both[name].value, both[name].bounds) == (alone[name].value, alone[name].bounds)
    assert "without gateway: it sees the same requests" in both["e2e_p50_seconds"].note
    low = [n.value if n.bounds is None else n.bounds.low for n in both.values()]
    assert all(v is None or v >= 0 for v in low)

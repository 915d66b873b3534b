"""A service of engines and routers through the whole way: pages in, one view and one history out."""

import re
from typing import Any

import pytest

from collector.capability import capability
from collector.pipeline import TargetReader, Understood
from goodwatch.app.build import ServiceInputs, TargetFacts, place_of, service_view
from goodwatch.app.config import Service
from goodwatch.app.engines import known_engines
from goodwatch.app.history import series
from goodwatch.app.view import ServiceView
from goodwatch.app.wiring import Priced
from goodwatch.core.counter import Tracker
from goodwatch.core.model import Absence, Limits, Target
from goodwatch.signals.cost import Price
from goodwatch.signals.increments import fold, rows_frame, step_rows
from goodwatch.signals.layers import Place
from tests.collector.engines.pages import body

ENGINES = known_engines()
CHAT = Service.model_validate({"name": "chat", "slo": {"ttft": "500ms", "objective": 0.9}})
MINUTE_S = 60.0
_VALUE = re.compile(r" [\d.e+-]+$", re.MULTILINE)


class Watched:
    """One target that was scraped twice: as it was born, and a minute later as the page says."""

    def __init__(self, name: str, page: str, **target: Any) -> None:
        self.target = Target(name, f"http://{name}/metrics", "chat", **target)
        reader, tracker = TargetReader(self.target, ENGINES), Tracker()
        self.rows: list[dict[str, Any]] = []
        for ts, text in ((0.0, _VALUE.sub(" 0", page)), (MINUTE_S, page)):
            self.understood: Understood = reader.understand(text, None)
            self.scrape = reader.scrape(self.understood, ts, 0.1, len(text))
            self.rows += step_rows(tracker.advance(self.scrape), tracker, self.understood.engine)

    def facts(self) -> TargetFacts:
        price = Priced(Price(1, 3.6)) if self.understood.engine and self.understood.engine.role == "engine" else None
        return TargetFacts(self.target, self.scrape, self.understood, None, price)


def view(*targets: Watched) -> ServiceView:
    facts = tuple(t.facts() for t in targets)
    rows = [row for t in targets for row in t.rows if row["minute_s"] > 0]
    before = [row for t in targets for row in t.rows if row["minute_s"] == 0]
    return service_view(ServiceInputs("chat", CHAT, facts, rows, before, 0.0, MINUTE_S), ENGINES)


def rate(of: ServiceView, name: str = "request_rate_per_s", target: str | None = None) -> float | None:
    derived = of.derived if target is None else next(t.derived for t in of.targets if t.name == target)
    assert derived is not None
    return derived.numbers[name].value


@pytest.fixture(scope="module")
def vllm() -> Watched:
    return Watched("vllm-1", body("vllm_0_32_0"))


@pytest.fixture(scope="module")
def picker() -> Watched:
    return Watched("picker", body("llmd_epp_composed"))


def test_a_service_of_an_engine_and_a_router_counts_the_engine_s_requests(vllm: Watched, picker: Watched) -> None:
    both, alone = view(vllm, picker), view(vllm)
    assert rate(both) == rate(alone) == pytest.approx(531 / MINUTE_S)
    assert rate(both, "output_tokens_per_s") == rate(alone, "output_tokens_per_s")
    assert both.derived.numbers["ttft_p50_seconds"].bounds == alone.derived.numbers["ttft_p50_seconds"].bounds
    assert both.derived.goodput == alone.derived.goodput
    assert rate(both, "usd_per_hour") == pytest.approx(3.6)
    assert "without picker" in both.derived.numbers["request_rate_per_s"].note
    assert both.stalls == ()


def test_the_router_s_own_numbers_stay_on_its_target(vllm: Watched, picker: Watched) -> None:
    both = view(vllm, picker)
    assert rate(both, target="picker") == pytest.approx(200 / MINUTE_S)
    assert rate(both, target="vllm-1") == pytest.approx(531 / MINUTE_S)


def test_a_service_with_a_router_only_is_summed_from_it(picker: Watched) -> None:
    assert rate(view(picker)) == pytest.approx(200 / MINUTE_S)


def test_a_router_that_is_set_to_the_engine_whose_names_it_repeats_is_still_a_router(vllm: Watched) -> None:
    text = "".join(
        f'# TYPE {name} gauge\n{name}{{server="http://e:8000"}} 3\n'
        for name in ("vllm:num_requests_running", "vllm:current_qps", "vllm:healthy_pods_total")
    )
    stack = Watched("stack", text, engine="vllm")
    assert place_of(stack.target, stack.understood) == Place("router")
    assert rate(view(vllm, stack), "requests_running") == rate(view(vllm), "requests_running")


def _leg(name: str, leg: str) -> Watched:
    return Watched(name, body("sglang_0_5_23").replace('engine_type="unified"', f'engine_type="{leg}"'))


def test_with_prefill_and_decode_apart_each_request_counts_once() -> None:
    prefill, decode = _leg("p", "prefill"), _leg("d", "decode")
    assert place_of(prefill.target, prefill.understood) == Place(leg="prefill")
    both = view(prefill, decode)
    assert rate(both) == pytest.approx(595 / MINUTE_S)
    assert rate(both, "input_tokens_per_s") == pytest.approx(187_625 / MINUTE_S)
    assert rate(both, "output_tokens_per_s") == pytest.approx(29_472 / MINUTE_S)
    assert both.derived.numbers["ttft_p50_seconds"].absence is Absence.NOT_MEASURABLE
    assert both.targets[0].derived is not None
    assert both.targets[0].derived.numbers["ttft_p50_seconds"].bounds is not None  # a leg's own stays on its target


def test_the_operator_s_word_wins_where_the_page_does_not_tell(vllm: Watched) -> None:
    legs = [Watched(n, body("vllm_0_32_0"), labels={"role": n}) for n in ("prefill", "decode")]
    assert [place_of(t.target, t.understood) for t in legs] == [Place(leg="prefill"), Place(leg="decode")]
    assert rate(view(*legs)) == rate(view(vllm))
    assert place_of(vllm.target, vllm.understood) is None


def test_a_worker_that_passes_its_engine_s_series_through_is_on_the_leg_that_its_labels_name() -> None:
    text = body("vllm_0_32_0").replace('engine="0"', 'engine="0",dynamo_component="prefill"')
    one = Watched("w", text)
    assert place_of(one.target, one.understood) == Place(leg="prefill")


def test_history_counts_as_the_live_view_does(vllm: Watched, picker: Watched) -> None:
    minutes = fold(rows_frame([*vllm.rows, *picker.rows]))
    frame = series(minutes, ENGINES, Limits(0.5), {}, start_s=60.0, end_s=120.0, step_s=60.0)
    one = frame.filter(frame["name"] == "request_rate_per_s")
    assert one["value"].to_list() == pytest.approx([531 / MINUTE_S])
    assert "without picker" in one["note"][0]


def _capped(name: str = "bifrost") -> Watched:
    """A gateway whose buckets end at 10 s, before calls that run for a minute and more."""
    series = "litellm_request_total_latency_metric"
    bounds = ("0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10")
    lines = [f"# TYPE {series} histogram", *(f'{series}_bucket{{le="{b}"}} 0' for b in bounds)]
    lines += [f'{series}_bucket{{le="+Inf"}} 200', f"{series}_sum 24000", f"{series}_count 200"]
    return Watched(name, "\n".join(lines) + "\n")


def test_016_quantiles_in_the_last_bucket_are_more_than_its_bound_and_not_equal_to_it() -> None:
    numbers = view(_capped()).derived.numbers
    for name in ("e2e_p50_seconds", "e2e_p99_seconds"):
        bounds = numbers[name].bounds
        assert bounds is not None
        assert bounds.low == 10
        assert bounds.high in (None, float("inf"))
    assert numbers["e2e_mean_seconds"].value == pytest.approx(120)  # the sum is not capped


def test_016_a_target_above_the_last_bucket_is_warned_about() -> None:
    report = capability(_capped().understood, Limits(e2e_s=60.0))
    (remark,) = (r for r in report.remarks if r.code == "target_above_top_bucket")
    assert "above the top bucket (10 s)" in remark.text
    assert "layer" in {r.code for r in report.remarks}


def test_016_an_engine_s_latencies_are_never_merged_with_a_capped_gateway_s(vllm: Watched) -> None:
    both, alone = view(vllm, _capped()).derived.numbers, view(vllm).derived.numbers
    for name in ("e2e_p50_seconds", "e2e_p99_seconds", "e2e_mean_seconds"):
        assert (both[name].bounds, both[name].value) == (alone[name].bounds, alone[name].value)

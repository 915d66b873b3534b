"""One layer per signal: a service with routers and engines, and one with prefill and decode apart."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.app.engines import known_engines
from goodwatch.core.catalogue import CATALOGUE
from goodwatch.core.model import Absence, Histogram, Limits
from goodwatch.signals import layers
from goodwatch.signals.cost import Price
from goodwatch.signals.derive import Derived, derive, total
from goodwatch.signals.goodput import service_goodput
from goodwatch.signals.layers import Layered, Place, explained, layered
from goodwatch.signals.windows import Gauge, TargetWindow

ENGINES = known_engines()
INF = float("inf")
LIMITS = Limits(ttft_s=0.5, e2e_s=5.0)
PRICE = Price(1, 3.6)

_COUNTERS = {
    "requests_finished_total": 100.0,
    "requests_rejected_total": 3.0,
    "input_tokens_total": 20_000.0,
    "output_tokens_total": 5_000.0,
    "preemptions_total": 2.0,
}
_HISTOGRAMS = ("ttft_seconds", "tpot_seconds", "e2e_seconds", "queue_seconds")


def window(
    target: str,
    engine: str = "vllm",
    *,
    counters: Mapping[str, float] | None = None,
    histograms: tuple[str, ...] = _HISTOGRAMS,
    running: float | None = 4.0,
) -> TargetWindow:
    """A minute of one target; every histogram has 100 observations below 0.5 s."""
    counts = {**(_COUNTERS if counters is None else counters), "covered_seconds_total": 60.0}
    gauges = {("up", ""): Gauge(1.0, 1.0, 1.0, 1.0)}
    if running is not None:
        gauges |= {
            (s, ""): Gauge(running, running, running, running) for s in ("requests_running", "requests_decoding_max")
        }
        gauges[("idle_ratio", "")] = Gauge(0.0, 0.0, 0.0, 0.0)
    return TargetWindow(
        target, "chat", "m", engine, 0.0, 60.0,
        {(s, ""): v for s, v in counts.items()},
        {(s, ""): Histogram((0.5, 5.0, INF), (100.0, 100.0, 100.0), 20.0) for s in histograms},
        gauges,
    )  # fmt: skip


def derived(found: Layered, prices: Mapping[str, Price], limits: Limits = LIMITS) -> Derived:
    made = derive(found.windows, ENGINES, limits, found.prices(prices), start_s=0.0, end_s=60.0)
    return explained(made, found)


def one(found: Layered, target: str) -> TargetWindow:
    (kept,) = (w for w in found.windows if w.target == target)
    return kept


_ROUTER = window(
    "gw", "llmd_epp", counters={"requests_finished_total": 101.0, "output_tokens_total": 5_050.0}, running=9.0
)


@pytest.mark.parametrize("engine", ["llmd_epp", "sglang_router", "vllm_router", "litellm", "dynamo_frontend"])
def test_with_engines_a_router_is_left_out_of_every_sum(engine: str) -> None:
    gw = window("gw", engine)
    found = layered([window("a"), window("b"), gw], ENGINES)
    assert [w.target for w in found.windows] == ["a", "b"]
    assert total(found.windows, "requests_finished_total") == 200
    assert total(found.windows, "output_tokens_total") == 10_000
    (left,) = found.left_out
    assert (left.target, left.why) == ("gw", "it sees the same requests as the engines behind it")
    assert {"requests_finished_total", "ttft_seconds", "requests_running"} <= left.signals


def test_a_service_with_a_router_only_is_summed_from_it() -> None:
    found = layered([_ROUTER], ENGINES)
    assert found.windows == (_ROUTER,)
    assert found.left_out == ()
    assert derived(found, {}).numbers["request_rate_per_s"].value == pytest.approx(101 / 60)


def test_a_gateway_before_a_router_is_left_out_too() -> None:
    found = layered([window("lite", "litellm"), _ROUTER], ENGINES)
    assert total(found.windows, "requests_finished_total") == 101
    assert total(found.windows, "output_tokens_total") == 5_050


def test_a_signal_that_no_engine_tells_is_lent_by_the_router_and_nothing_else_of_it() -> None:
    """llama.cpp counts tokens but no requests and no latencies; a proxy in front of it does."""
    bare = window("cpp", "llamacpp", counters={"output_tokens_total": 5_000.0}, histograms=())
    gw = window("gw", "litellm", running=None)
    found = layered([bare, gw], ENGINES)
    assert total(found.windows, "requests_finished_total") == 100
    assert total(found.windows, "output_tokens_total") == 5_000
    assert found.lent["e2e_seconds"] == ("gw",)
    numbers = derived(found, {"cpp": PRICE}).numbers
    assert numbers["request_rate_per_s"].note.endswith("as gw sees it, from outside the engine")
    assert numbers["e2e_mean_seconds"].value == pytest.approx(0.2)
    assert numbers["requests_running"].value == 4
    assert numbers["usd_per_million_output_tokens"].value == pytest.approx(0.06 / 5_000 * 1e6)
    assert numbers["idle_usd_per_hour"].value == 0


def test_what_decides_about_a_request_comes_from_one_layer_together() -> None:
    """An engine that counts ended requests and has no E2E histogram takes none from the router."""
    engine = window("a", counters={"requests_finished_total": 100.0}, histograms=("ttft_seconds",))
    found = layered([engine, window("gw", "litellm")], ENGINES)
    assert "e2e_seconds" not in found.lent
    goodput = service_goodput(found.windows, ENGINES, LIMITS)
    assert goodput is not None
    assert goodput.ended == 100


def test_an_engine_that_is_down_leaves_the_router_s_view() -> None:
    dead = TargetWindow("a", "chat", "", "", 0.0, 60.0, {}, {}, {("up", ""): Gauge(0.0, 0.0, 0.0, 0.0)})
    found = layered([dead, _ROUTER], ENGINES)
    assert total(found.windows, "requests_finished_total") == 101


def test_a_router_that_is_paid_for_stays_in_the_bill_and_one_that_is_not_costs_nothing() -> None:
    windows = [window("a"), window("gw", "litellm")]
    free = layered(windows, ENGINES, prices={"a": PRICE})
    assert derived(free, {"a": PRICE}).numbers["usd_per_hour"].value == pytest.approx(3.6)
    prices = {"a": PRICE, "gw": Price(1, 0.4)}
    paid = layered(windows, ENGINES, prices=prices)
    numbers = derived(paid, prices).numbers
    assert numbers["usd_per_hour"].value == pytest.approx(4.0)
    assert numbers["request_rate_per_s"].value == pytest.approx(100 / 60)
    assert numbers["usd_per_million_output_tokens"].value == pytest.approx(4.0 / 60 / 5_000 * 1e6)


def test_a_router_under_an_engine_s_names_is_told_by_its_place() -> None:
    found = layered([window("a"), window("stack")], ENGINES, {"stack": Place("router")})
    assert total(found.windows, "requests_finished_total") == 100


_PD = {"p": Place(leg="prefill"), "d": Place(leg="decode")}


def test_prompts_are_counted_on_prefill_and_ends_and_outputs_on_decode() -> None:
    found = layered([window("p", "sglang"), window("d", "sglang")], ENGINES, _PD)
    assert total(found.windows, "requests_finished_total") == 100
    assert total(found.windows, "requests_rejected_total") == 3
    assert total(found.windows, "input_tokens_total") == 20_000
    assert total(found.windows, "output_tokens_total") == 5_000
    assert total(found.windows, "preemptions_total") == 4  # each leg evicts for itself
    assert one(found, "p").histogram("e2e_seconds") is None
    assert one(found, "p").histogram("queue_seconds") is not None
    assert one(found, "d").histogram("queue_seconds") is None
    assert one(found, "d").histogram("tpot_seconds") is not None
    assert one(found, "p").gauge("requests_running") is not None


def test_the_first_token_of_neither_leg_is_the_client_s() -> None:
    found = layered([window("p", "sglang"), window("d", "sglang")], ENGINES, _PD)
    prices = {"p": PRICE, "d": PRICE}
    numbers = derived(found, prices).numbers
    for name in ("ttft_p50_seconds", "ttft_mean_seconds"):
        assert numbers[name].absence is Absence.NOT_MEASURABLE
        assert "neither sees the client's first token" in numbers[name].note
    attainment = numbers["attainment_ratio"]
    assert attainment.bounds is not None
    assert attainment.bounds.low == 0  # nobody knows the first token
    assert "neither sees the client's first token" in attainment.note
    assert numbers["usd_per_million_output_tokens"].value == pytest.approx(2 * 0.06 / 5_000 * 1e6)


def test_a_router_gives_the_first_token_of_a_disaggregated_service_and_not_its_ends() -> None:
    found = layered([window("p", "sglang"), window("d", "sglang"), _ROUTER], ENGINES, _PD)
    numbers = derived(found, {}).numbers
    assert numbers["ttft_mean_seconds"].value == pytest.approx(0.2)
    assert "as gw sees it" in numbers["ttft_mean_seconds"].note
    assert numbers["request_rate_per_s"].value == pytest.approx(100 / 60)
    assert total(found.windows, "output_tokens_total") == 5_000


@pytest.mark.parametrize("leg", ["p", "d"])
def test_a_leg_whose_partner_is_not_watched_is_all_there_is(leg: str) -> None:
    found = layered([window(leg, "sglang")], ENGINES, _PD)
    assert total(found.windows, "requests_finished_total") == 100
    assert total(found.windows, "input_tokens_total") == 20_000
    assert one(found, leg).histogram("ttft_seconds") is None


def test_requests_without_streaming_are_not_bad_for_lack_of_a_first_token() -> None:
    """A proxy sees first tokens of 40 streamed requests of 100: the other 60 may have met any target."""
    bare = window("gw", "litellm", counters={"requests_finished_total": 100.0})
    seen = {**bare.histograms, ("ttft_seconds", ""): Histogram((0.5, 5.0, INF), (40.0, 40.0, 40.0), 8.0)}
    goodput = service_goodput([replace(bare, histograms=seen)], ENGINES, Limits(ttft_s=0.5))
    assert goodput is not None
    assert goodput.good.high == 100
    assert goodput.good.low <= 40


def test_without_routers_and_legs_nothing_is_touched() -> None:
    windows = (window("a"), window("b", "sglang"))
    found = layered(windows, ENGINES)
    assert found.windows == windows
    made = derive(windows, ENGINES, LIMITS, {}, start_s=0.0, end_s=60.0)
    assert explained(made, found) is made


def test_nothing_in_nothing_out() -> None:
    assert layered([], ENGINES) == Layered(())


_STANDS = st.lists(
    st.tuples(st.sampled_from(["vllm", "sglang", "llmd_epp", "litellm", "dynamo_worker"]), st.integers(0, 50)),
    min_size=1, max_size=6,
)  # fmt: skip


@given(_STANDS, st.sampled_from(sorted(_COUNTERS)))
def test_a_sum_is_that_of_the_innermost_layer_that_tells_whatever_stands_around_it(
    stands: list[tuple[str, int]], signal: str
) -> None:
    windows = [window(f"t{i}", e, counters={signal: float(n)}) for i, (e, n) in enumerate(stands)]
    ranks = [layers.LAYERS.index(ENGINES[e].role) for e, _ in stands]
    innermost = sum(n for (_, n), rank in zip(stands, ranks, strict=True) if rank == min(ranks))
    assert total(layered(windows, ENGINES).windows, signal) == innermost


def test_every_signal_that_is_named_is_in_the_catalogue() -> None:
    named = layers._ENDS | layers._OF_PREFILL | layers._OF_DECODE | layers._OF_TARGET | {layers._TTFT}
    assert named <= set(CATALOGUE)

"""What pages ask of requests: rollups and single requests tell the same; what cannot be told says why."""

from dataclasses import dataclass
from functools import partial

import pytest

from collector.stores.memory import MemoryStore
from collector.stores.memory_requests import MemoryRequestStore
from goodwatch.app.engines import known_engines
from goodwatch.app.keeper import Keeper
from goodwatch.app.request_reads import RequestReads
from goodwatch.app.request_view import IntakeView, Slice
from goodwatch.app.request_watch import RequestLoop, RequestTerms
from goodwatch.app.watch import Terms, Watch
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Absence, Limits
from goodwatch.signals.attainment_limits import LimitsRow, LimitsTable
from goodwatch.signals.heatmap import Ask, Measure
from tests.app.test_request_watch import Hand
from tests.signals.request_parts import engine, parts

START = 1_800_000_000 // 86_400 * 86_400.0
DAY_S = 86_400.0
COUNT = 480
NOTHING = IntakeView((), 0, 0, {}, {}, 0, None, "")
LIMITS = LimitsTable(
    (LimitsRow(Limits(ttft_s=10.0), "chat#1", tenant="patient"), LimitsRow(Limits(ttft_s=0.5), "chat"))
)


@dataclass
class Reading:
    """A day of requests, one every three minutes, rolled up."""

    reads: RequestReads
    store: MemoryRequestStore
    clock: Hand

    @property
    def day(self) -> Slice:
        return Slice("chat", START, START + DAY_S)


@pytest.fixture
async def reading() -> Reading:
    clock = Hand(START + DAY_S + 300.0)
    store = MemoryRequestStore(clock=clock)
    watch = Watch(known_engines(), MemoryStore(), Keeper(MemoryStore(), clock), clock, Terms({}, {}))
    loop = RequestLoop(store, clock, RequestTerms(limits={"chat": LIMITS}))
    rows = [
        engine(
            f"s{n}", trace_id=f"{n:032x}", parent_id="unkept", service="chat", started_s=START + n * 180.0,
            ended_s=START + n * 180.0 + 5, received_s=START + n * 180.0 + 6, input_tokens=100 + n % 900,
            output_tokens=50 + n % 40, ttft_s=0.1 + (n % 10) / 10, e2e_s=5.0, queue_s=0.05,
            tenant="patient" if n % 4 == 0 else "hasty",
        )
        for n in range(COUNT)
    ]  # fmt: skip
    store.append_parts([parts(*rows)])
    while await loop.settle():
        pass
    await loop.roll()
    return Reading(RequestReads(loop, watch, True, partial(_told)), store, clock)


def _told() -> IntakeView:
    return NOTHING


#: by hand: patient ones (every fourth) wait up to 10 s, of the others those up to 0.5 s are good
GOOD = sum(n % 4 == 0 or 0.1 + (n % 10) / 10 <= 0.5 for n in range(COUNT))


async def test_the_day_is_read_from_rollups_and_six_hours_from_requests(reading: Reading) -> None:
    ask = Ask(Measure.LATENCY, 0.9, "engine_ttft_s")
    day = await reading.reads.heatmap(reading.day, ask)
    assert day.made_of == "rollups"
    assert sum(c.requests for c in day.map.cells) == COUNT
    hours = await reading.reads.heatmap(Slice("chat", START, START + 6 * 3600.0), ask)
    assert hours.made_of == "requests"
    assert sum(c.requests for c in hours.map.cells) == COUNT / 4


async def test_both_ways_tell_the_same_of_the_same_requests(reading: Reading) -> None:
    for ask in (Ask(Measure.LATENCY, 0.9, "engine_ttft_s"), Ask(Measure.ATTAINMENT), Ask(Measure.REQUESTS)):
        rolled = await reading.reads.heatmap(reading.day, ask)
        exact = await reading.reads.heatmap(
            Slice("chat", START, START + DAY_S, {"form": None}), ask
        )  # no key of rollups
        assert (rolled.made_of, exact.made_of) == ("rollups", "requests")
        for one, other in zip(rolled.map.cells, exact.map.cells, strict=True):
            assert one.requests == other.requests
            if other.number.value is not None:
                assert one.number.value == pytest.approx(other.number.value, rel=0.011)  # design §3: at most 1.1 %


async def test_attainment_uses_the_targets_of_each_tenant(reading: Reading) -> None:
    attained, _ = await reading.reads.attained(reading.day)
    assert attained.sums.good == GOOD
    assert attained.attainment.value == pytest.approx(GOOD / COUNT)
    groups = {g.key: g.attained.attainment.value for g in await reading.reads.groups(reading.day, "tenant")}
    assert groups["patient"] == 1.0
    assert attained.with_unaccounted.absence is Absence.NOT_MEASURABLE  # no engine is scraped here


async def test_requests_are_filtered_ordered_and_paged(reading: Reading) -> None:
    slow = Slice(
        "chat", START, START + DAY_S, {"tenant": "hasty", "verdict": "bad"}, slower_than=("engine_ttft_s", 0.75)
    )
    page = await reading.reads.requests(slow, order="engine_ttft_s", descending=True, limit=10, offset=5)
    wanted = [n for n in range(COUNT) if n % 4 and 0.1 + (n % 10) / 10 > 0.75]
    assert page.total == len(wanted)
    assert page.rows.height == 10
    assert page.rows["engine_ttft_s"].to_list() == [1.0] * 10
    assert page.rows["missed"].to_list() == [["ttft"]] * 10


async def test_token_bounds_are_inclusive(reading: Reading) -> None:
    some = Slice("chat", START, START + DAY_S, input_tokens=(150, 159))
    assert (await reading.reads.requests(some, order="ended_at", descending=False, limit=1)).total == 10


async def test_a_trace_is_shown_with_its_parts(reading: Reading) -> None:
    found = await reading.reads.trace(f"{7:032x}")
    assert found is not None
    assert (found.facts.height, found.parts.height, found.scores.height) == (1, 1, 0)
    assert await reading.reads.trace("f" * 32) is None


async def test_cost_says_why_there_is_none(reading: Reading) -> None:
    cost = await reading.reads.cost(reading.day, "tenant")
    assert cost.usd.absence is Absence.NOT_MEASURABLE
    assert {line.key: line.requests for line in cost.lines} == {"patient": COUNT / 4, "hasty": COUNT * 3 / 4}


async def test_choices_are_what_occurs(reading: Reading) -> None:
    choices = await reading.reads.choices("chat", START, START + DAY_S)
    assert choices["tenant"] == ["hasty", "patient"]
    assert choices["adapter"] == [None]


async def test_more_requests_than_memory_should_hold_are_refused_with_what_to_do(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goodwatch.app.request_reads.MOST_REQUESTS", COUNT - 1)
    with pytest.raises(StoreError, match=r"480 requests ended in this range.*choose a shorter range"):
        await reading.reads.requests(reading.day, order="ended_at", descending=True, limit=1)
    assert (await reading.reads.heatmap(reading.day, Ask(Measure.REQUESTS))).made_of == "rollups"


async def test_a_filter_of_rollups_keeps_what_it_says(reading: Reading) -> None:
    for ask in (Ask(Measure.LATENCY, 0.9, "engine_ttft_s"), Ask(Measure.ATTAINMENT)):
        one = await reading.reads.heatmap(Slice("chat", START, START + DAY_S, {"tenant": "hasty"}), ask)
        other = await reading.reads.heatmap(Slice("chat", START, START + DAY_S, {"tenant": "hasty", "form": None}), ask)
        assert (one.made_of, other.made_of) == ("rollups", "requests")
        assert sum(c.requests for c in one.map.cells) == COUNT * 3 / 4  # three of four are hasty
        for rolled, exact in zip(one.map.cells, other.map.cells, strict=True):
            assert rolled.requests == exact.requests
            if exact.number.value is not None:
                assert rolled.number.value == pytest.approx(exact.number.value, rel=0.011)
    of_slo = await reading.reads.heatmap(Slice("chat", START, START + DAY_S, {"slo": "chat#1"}), Ask(Measure.REQUESTS))
    assert (of_slo.made_of, sum(c.requests for c in of_slo.map.cells)) == ("rollups", COUNT / 4)

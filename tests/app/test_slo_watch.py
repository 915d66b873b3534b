"""The loop over real stores: minutes become budgets and alerts, a restart changes nothing, who pages is a setting."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from alerts.values import FiringAlert
from collector.stores.memory import MemoryStore
from collector.stores.memory_requests import MemoryRequestStore
from collector.stores.sqlite_records import SqliteRecords
from exporters.slo import slo_families
from goodwatch.app.keeper import Keeper
from goodwatch.app.request_watch import RequestLoop, RequestTerms
from goodwatch.app.slo_events import SloSources
from goodwatch.app.slo_view import series_now
from goodwatch.app.slo_watch import ALERT_STATE, SloLoop
from goodwatch.core.drift import Drift
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Limits
from goodwatch.core.slo import DAY_S, Custom, JointGoodput, Period, Quality, Scope, Slo
from goodwatch.signals.attainment_limits import LimitsRow, LimitsTable
from goodwatch.signals.request_frames import SCORES
from tests.alerts.scenarios import BEGIN_S, Phase, length_min, minutes
from tests.alerts.services import OPTIONS, first_token
from tests.signals.request_parts import engine, parts

PAGE = "LlmErrorBudgetBurnFast"


@dataclass
class Hand:
    """A clock that is moved by hand."""

    now: float = BEGIN_S

    def now_s(self) -> float:
        return self.now

    def monotonic_s(self) -> float:
        return self.now


@dataclass
class Told:
    """A notifier and a listener that remember."""

    alerts: list[tuple[float, list[FiringAlert]]] = field(default_factory=list)
    drifts: list[Drift] = field(default_factory=list)

    def tell(self, alerts: Sequence[FiringAlert], now_s: float) -> None:
        self.alerts.append((now_s, list(alerts)))

    def drifted(self, drift: Drift) -> None:
        self.drifts.append(drift)

    def changes(self) -> list[str]:
        """What was new at each call: "+name" and "-name"."""
        said: list[str] = []
        before: set[str] = set()
        for _, alerts in self.alerts:
            firing = {one.name for one in alerts if not one.resolved}
            said += [f"+{name}" for name in sorted(firing - before)]
            said += [f"-{one.name}" for one in alerts if one.resolved]
            before = firing
        return said


class World:
    """A loop over the reference store, whose minutes are there from the beginning and seen as the clock moves."""

    def __init__(self, folder: Path, slos: Sequence[Slo], phases: Sequence[Phase] = (), **more: Any) -> None:
        self.clock, self.told, self.folder = Hand(), Told(), folder
        self.store = MemoryStore()
        if phases:
            self.store.append_minutes(minutes("chat", phases))
        self.requests: RequestLoop | None = more.pop("requests", None)
        self.up: Mapping[str, bool | None] = {"a": True}
        self.slos = slos
        self.more = more
        self.loop = self.started()

    def started(self) -> SloLoop:
        """goodwatch as it starts: what was in memory is gone."""
        sources = SloSources(self.store, OPTIONS, self.requests)
        keeper, records = Keeper(self.store, self.clock), SqliteRecords(self.folder / "records.sqlite")
        loop = SloLoop(
            sources, keeper, records, self.clock, lambda: {"chat": self.up}, self.told, (self.told,), **self.more
        )
        loop.use(self.slos)
        self.loop = loop
        return loop

    async def until(self, minute: int, *, every_s: float = 60.0, each: Callable[[], None] = lambda: None) -> None:
        """Run rounds until so many minutes after the beginning."""
        while self.clock.now + every_s <= BEGIN_S + 60 * minute + 30:
            self.clock.now += every_s
            await self.loop.evaluate()
            each()


async def history(world: World, minute: int) -> None:
    """Start late: everything before is history that is read in the first rounds."""
    world.clock.now = BEGIN_S + 60 * minute + 30
    for _ in range(4):
        await world.loop.evaluate()


OUTAGE = (Phase(360, 1000), Phase(15, 1000, 1000), Phase(60, 1000))


async def test_an_outage_pages_once_and_resolves_once(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE)
    await history(world, 355)
    await world.until(length_min(OUTAGE) - 5)
    assert [one for one in world.told.changes() if PAGE in one] == [f"+{PAGE}", f"-{PAGE}"]
    (first,) = [alert for _, alerts in world.told.alerts for alert in alerts if alert.name == PAGE][:1]
    # 60 x 0.144 = 8.64 minutes of outage: the window that ends at minute 369, seen when half of the next one is over
    assert first.starts_at_s == BEGIN_S + 60 * 369 + 30
    assert dict(first.labels)["severity"] == "critical"


async def test_a_round_within_the_same_minute_tells_the_same_again(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE)
    await history(world, 372)
    await world.until(374, every_s=15.0)
    names = [[one.name for one in alerts] for _, alerts in world.told.alerts]
    assert names[-1].count(PAGE) == 1
    assert sum(PAGE in some for some in names) > 4


async def test_a_restart_in_an_outage_neither_pages_again_nor_resolves(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE)
    await history(world, 355)
    await world.until(372)
    before = {one.fingerprint: one.starts_at_s for one in world.loop.alerts()}
    assert before
    world.started()
    await world.until(374)
    assert {one.fingerprint: one.starts_at_s for one in world.loop.alerts()} == before
    assert [one for one in world.told.changes() if PAGE in one] == [f"+{PAGE}"]


async def test_what_let_go_while_goodwatch_was_away_resolves_after_it_is_seen(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], (*OUTAGE, Phase(400, 1000)))
    await history(world, 355)
    await world.until(372)
    world.started()
    world.clock.now = BEGIN_S + 60 * 600 + 30  # over three hours later, all is well
    await world.until(620)
    assert [one for one in world.told.changes() if PAGE in one] == [f"+{PAGE}", f"-{PAGE}"]
    ended = [one for _, alerts in world.told.alerts for one in alerts if one.resolved and one.name == PAGE]
    assert ended[0].ends_at_s == BEGIN_S + 60 * 616 + 30  # held for 15 minutes from the first look on


async def test_nobody_is_told_where_prometheus_pages_and_all_can_be_seen(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE, pages="prometheus")
    await history(world, 372)
    assert world.told.alerts == []
    assert [one.name for one in world.loop.reads.alerts()][:1] == [PAGE]
    (view,) = world.loop.reads.slos()
    assert view.firing
    assert world.loop.reads.pages_from == "prometheus"


async def test_who_pages_can_change_and_the_old_way_lets_go(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE)
    await history(world, 372)
    assert world.told.alerts[-1][1]
    world.loop.use(world.slos, pages="prometheus")
    assert world.told.alerts[-1][1] == []
    told = len(world.told.alerts)
    await world.until(374)
    assert len(world.told.alerts) == told
    assert world.loop.alerts()  # the same history is kept, and judged on


async def test_a_service_that_cannot_be_read_is_not_judged_and_others_are(tmp_path: Path) -> None:
    other = replace(first_token(30), service="other", name="other")
    world = World(tmp_path, [first_token(30), other], OUTAGE)
    await history(world, 372)
    works = world.store.minutes

    def broken(*args: Any, **more: Any) -> pl.DataFrame:
        if more["service"] == "chat":
            raise StoreError("a page of the file cannot be read")
        return works(*args, **more)

    world.store.minutes = broken  # type: ignore[method-assign]
    await world.until(400)  # the outage is over since minute 375, which nobody can see
    assert PAGE in [one.name for one in world.loop.alerts()]
    view = world.loop.reads.slo("ttft-0.99")
    assert view is not None
    assert (view.status, view.note) == (None, "a page of the file cannot be read")
    assert "other" in world.loop.statuses


async def test_history_is_read_before_long_windows_are_judged(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE)
    world.clock.now = BEGIN_S + 60 * 400 + 30
    world.loop.use(world.slos)
    await world.loop._renew(world.loop.books["chat"], BEGIN_S + 60 * 400)
    assert not world.loop.books["chat"].knows(3 * DAY_S)
    view = world.loop.reads.slo("ttft-0.99")
    assert view is not None
    assert (view.status, view.note) == (None, "its history is being read")


async def test_a_store_that_breaks_leaves_alerts_as_they_are(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE)
    await history(world, 372)
    firing = {one.fingerprint for one in world.loop.alerts()}

    def broken(*_: object, **__: object) -> pl.DataFrame:
        raise StoreError("the disk is full; make room")

    works = world.store.minutes
    world.store.minutes = broken  # type: ignore[method-assign]
    await world.until(375)
    assert world.loop.problem == "the disk is full; make room"
    assert {one.fingerprint for one in world.loop.alerts()} == firing
    world.store.minutes = works  # type: ignore[method-assign]
    await world.until(377)
    assert world.loop.problem == ""


async def test_an_outage_is_a_drift_with_a_beginning_and_an_end(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], (*OUTAGE, Phase(400, 1000)))
    await history(world, 355)
    await world.until(371)
    (burn,) = [one for one in world.told.drifts if one.kind == "burn"]
    assert (burn.slo, burn.ended_s) == ("ttft-0.99", None)
    assert world.loop.drifts.known["chat/burn/ttft-0.99/burn_rate"].severity == "page"
    world.started()
    await world.until(760)
    ends = [one for one in world.told.drifts if one.kind == "burn"]
    assert [(one.id, one.ended_s is None) for one in ends] == [(burn.id, True), (burn.id, False)]


async def test_a_query_slo_has_no_number_and_says_why(tmp_path: Path) -> None:
    own = Slo("own", "chat", 0.99, Custom("a_total", bad="b_total"))
    quality = Slo("q", "chat", 0.9, Quality(0.7))
    world = World(tmp_path, [own, quality, first_token(30)], OUTAGE)
    await history(world, 355)
    notes = {view.slo.name: view.note for view in world.loop.reads.slos()}
    odd = [
        replace(GOODPUT, name="zone", period=Period(DAY_S, "day", zone="Mars/Base")),
        replace(GOODPUT, name="by", scope=Scope(by=("colour",))),
    ]
    world.loop.use([*world.slos, *odd])
    assert "time zone" in world.loop.why_none["zone"]
    assert "split by colour" in world.loop.why_none["by"]
    assert "PromQL" in notes["own"]
    assert notes["q"] == "it needs traces of requests; none are kept"
    assert notes["ttft-0.99"] == ""
    found = {s.labels["slo"] for f in slo_families(series_now(world.loop.now())) for s in f.samples
             if f.name == "goodwatch_slo_burn_rate"}  # fmt: skip
    assert found == {"ttft-0.99"}


async def test_a_service_without_any_target_left_pages(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE)
    await history(world, 100)
    world.up = {}
    await world.until(110)
    assert "+LlmServiceDown" in world.told.changes()  # three minutes after the last of them went


async def test_an_alert_is_kept_once_when_it_begins_and_once_when_it_ends(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE)
    await history(world, 355)
    await world.until(length_min(OUTAGE) - 5)
    (page,) = [one for one in world.loop.records.latest(ALERT_STATE) if one.body["name"] == PAGE]
    assert [one.body["phase"] for one in world.loop.records.history(ALERT_STATE, page.id)] == ["firing", "resolved"]


async def test_a_curve_and_what_ate_the_budget(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(1)], OUTAGE)
    await history(world, 420)
    curve = await world.loop.reads.curve("ttft-0.99", BEGIN_S, BEGIN_S + 60 * 420, points=10)
    assert next(p.left_ratio for p in curve if p.left_ratio is not None) == 1.0
    assert curve[-1].left_ratio == pytest.approx(1 - 15 / 4.2, abs=0.02)  # 15 of 420 minutes at 1 %
    (eaten,) = await world.loop.reads.eaters("ttft-0.99", "target")
    assert (eaten.key, eaten.share_ratio) == ("ttft", 1.0)
    assert await world.loop.reads.eaters("ttft-0.99", "tenant") == ()
    assert await world.loop.reads.curve("unknown", 0, 1) == ()


# --- counted from requests --------------------------------------------------------------------------------------------

GOODPUT = Slo("chat", "chat", 0.9, JointGoodput(Limits(ttft_s=0.5)), Period(DAY_S), engines=("vllm",), min_failures=1)
OF_A = Slo("of-a", "chat", 0.9, JointGoodput(Limits(ttft_s=0.5)), Period(DAY_S), Scope(tenant="a"), min_failures=1)
SCORED = Slo("scored", "chat", 0.9, Quality(0.7), Period(DAY_S), min_failures=1)


async def test_requests_and_scores_are_counted_for_every_slo_that_needs_them(tmp_path: Path) -> None:
    clock = Hand()
    store = MemoryRequestStore(clock=clock)
    limits = {"chat": LimitsTable((LimitsRow(Limits(ttft_s=0.5), "chat"),))}
    requests = RequestLoop(store, clock, RequestTerms(settle_s=60.0, limits=limits))
    world = World(tmp_path, [GOODPUT, OF_A, SCORED], requests=requests)
    world.clock = requests.clock = clock
    world.started()
    rows = [
        engine(f"s{n}", trace_id=f"t{n}", started_s=BEGIN_S + 1, ended_s=BEGIN_S + 2, received_s=BEGIN_S + 3, service="chat",
               tenant="a" if n % 2 else "b", ttft_s=0.9 if n < 4 else 0.1, e2e_s=1.0, output_tokens=5, input_tokens=300,
               status="ok", parent_id="caller")
        for n in range(20)
    ]  # fmt: skip
    store.append_parts([parts(*rows)])
    base = dict.fromkeys(SCORES) | {"ts": BEGIN_S, "received_s": BEGIN_S + 5, "evaluator": "e", "service": "chat"}
    store.append_scores(pl.DataFrame([base | {"trace_id": f"t{n}", "score": n / 10} for n in range(10)], schema=SCORES))
    clock.now = BEGIN_S + 200
    await requests.settle()
    await requests.roll()
    for _ in range(10):
        clock.now += 60
        await world.loop.evaluate()
    held = {
        view.slo.name: [
            (t.period.total, t.period.bad) for t in view.status.targets if t.target == "counted" and t.period
        ]
        for view in world.loop.reads.slos()
        if view.status is not None
    }
    assert held == {"chat": [(20, 4)], "of-a": [(10, 2)], "scored": [(10, 7)]}
    # the service's own SLO is counted by the series of requests already
    assert {one.slo for one in world.loop.now().counted} == {"of-a", "scored"}
    store.append_scores(pl.DataFrame(
        [base | {"trace_id": f"t{n}", "evaluator": "f", "score": n / 10, "received_s": clock.now} for n in range(10)],
        schema=SCORES,
    ))  # fmt: skip
    for _ in range(10):
        clock.now += 60
        await world.loop.evaluate()
    (scored,) = [one for one in world.loop.now().counted if one.slo == "scored"]
    assert (scored.valid, scored.good) == (20, 6)  # two evaluators, ten scores each, of which 0.7, 0.8 and 0.9 pass
    eaten = await world.loop.reads.eaters("chat", "tenant")
    assert [(one.key, one.bad, one.total) for one in eaten] == [("a", 2, 10), ("b", 2, 10)]
    (cause,) = await world.loop.reads.eaters("chat", "cause")
    assert (cause.key, cause.share_ratio) == ("ttft", 1.0)


async def test_a_clock_that_was_wrong_for_a_while_does_not_blind(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE)
    await history(world, 355)
    right = world.clock.now
    world.clock.now += 3 * DAY_S
    await world.loop.evaluate()
    world.clock.now = right
    await world.until(372)
    assert [one.name for one in world.loop.alerts() if one.name == PAGE] == [PAGE]


async def test_a_change_that_could_not_be_kept_is_kept_later_and_a_restart_pages_nobody_again(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE)
    await history(world, 355)
    works = world.loop.records.put

    def full(*_: object) -> None:
        raise StoreError("the disk is full; make room")

    world.loop.records.put = full  # type: ignore[method-assign,assignment]
    await world.until(370)  # it begins at 369
    world.loop.records.put = works  # type: ignore[method-assign]
    await world.until(371)
    world.started()
    await world.until(374)
    assert [one for one in world.told.changes() if PAGE in one] == [f"+{PAGE}"]


async def test_numbers_of_an_slo_before_it_was_changed_are_not_shown_under_the_new_one(tmp_path: Path) -> None:
    world = World(tmp_path, [first_token(30)], OUTAGE)
    await history(world, 355)
    other = replace(first_token(30), objective=0.9)
    world.loop.use([other])
    view = world.loop.reads.slo(other.name)
    assert view is not None
    assert (view.status, view.note) == (None, "its history is being read")
    # beside another SLO the same one keeps its number; its events are still to be read
    world.loop.use([first_token(30)])
    await history(world, 356)
    world.loop.use([first_token(30), replace(other, name="other")])
    view = world.loop.reads.slo("ttft-0.99")
    assert view is not None
    assert view.status is not None
    curve = await world.loop.reads.curve("ttft-0.99", BEGIN_S, BEGIN_S + 3_600, points=2)
    assert {point.left_ratio for point in curve} == {None}

"""Sources beside the scraper: targets come and go, nothing is lost at a restart, an outage is told."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from collector.pull import PullOptions
from collector.stores.memory import MemoryStore
from collector.targets import TargetSpec
from goodwatch.app.config import Settings, load, warnings
from goodwatch.app.engines import known_engines
from goodwatch.app.keeper import Keeper
from goodwatch.app.pulling import Pulling, probe_sources, pull_options_of, source_options
from goodwatch.app.watch import Terms, Watch
from goodwatch.core.clock import SystemClock
from goodwatch.core.model import Scrape, Target
from tests.support.prometheus_answers import pages
from tests.support.prometheus_double import PrometheusDouble, prometheus_double

pytestmark = pytest.mark.integration


@dataclass
class Rig:
    """A watch with sources, and what it was told."""

    store: MemoryStore = field(default_factory=MemoryStore)
    scraped: list[Scrape] = field(default_factory=list)
    own: list[TargetSpec] = field(default_factory=list)
    seen: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self.clock = SystemClock()
        self.keeper = Keeper(self.store, self.clock)
        self.watch = Watch(known_engines(), self.store, self.keeper, self.clock, Terms({}, {}))
        self.pulling = Pulling(self.watch, retarget=self.retarget, scraped=self.took)
        self.telling: set[asyncio.Task[None]] = set()

    def took(self, scrape: Scrape) -> None:
        self.scraped.append(scrape)
        task = asyncio.create_task(self.tell())
        self.telling.add(task)
        task.add_done_callback(self.telling.discard)

    async def tell(self) -> None:
        async with self.seen:
            self.seen.notify_all()

    def retarget(self) -> None:
        self.watch.update([*self.own, *self.pulling.beside(self.own)])

    @asynccontextmanager
    async def running(self, *options: PullOptions) -> AsyncIterator["Rig"]:
        self.pulling.use(options)
        self.retarget()
        task = asyncio.create_task(self.pulling.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.keeper.flush()

    async def until(self, what: Callable[[], object]) -> None:
        """Until it is true, asked after every scrape that was handed on."""
        async with asyncio.timeout(10), self.seen:
            await self.seen.wait_for(lambda: bool(what()))

    def rows(self, signal: str) -> list[dict[str, Any]]:
        steps = (step for state in self.watch.states.values() for step in state.steps)
        return [row for _, rows in steps for row in rows if row["signal"] == signal]

    @property
    def good(self) -> list[Scrape]:
        return [scrape for scrape in self.scraped if scrape.up]

    def up(self, name: str = "gpu-1:8000") -> bool | None:
        last = self.last(name)
        return None if last is None else last.up

    def last(self, name: str = "gpu-1:8000") -> Scrape | None:
        state = self.watch.states.get(name)
        return state.last if state else None


def options(double: PrometheusDouble, **more: Any) -> PullOptions:
    return PullOptions(**{
        "url": double.url, "selector": '{job="vllm"}', "service": "chat", "step_s": 0.1, "settle_s": 0.01, **more
    })  # fmt: skip


def stored(*, until_s: float = 0.0, **labels: str) -> list[dict[str, Any]]:
    """Scrapes of the last two minutes, one in ten seconds."""
    now_s = SystemClock().now_s()
    return pages({round(now_s - 120 + 10 * i, 3): (10.0 * i, 1.0) for i in range(12)}, **labels)


async def test_targets_of_a_source_are_watched_as_if_they_were_scraped() -> None:
    async with (
        prometheus_double([*stored(), *stored(instance="gpu-2:8000")]) as double,
        Rig().running(options(double)) as rig,
    ):
        await rig.until(lambda: len(rig.watch.states) == 2 and rig.last("gpu-2:8000"))
        await rig.watch.refresh()
        view = rig.watch.service("chat")
        assert view is not None
        assert [t.name for t in view.targets] == ["gpu-1:8000", "gpu-2:8000"]
        assert view.derived.numbers["request_rate_per_s"].value is not None
        finished = [row["increase"] for row in rig.rows("requests_finished_total")]
        assert finished == [10.0] * 22, "twelve scrapes of each, the first of them is the baseline"
        assert all(t.up for t in view.targets)
        assert {t.engine for t in view.targets} == {"vllm"}
    assert rig.store.scrapes(0, rig.clock.now_s()).height == 24
    assert len(rig.scraped) == 24


async def test_a_restarted_goodwatch_goes_on_where_it_stopped() -> None:
    rows = stored()
    async with prometheus_double([{**s, "values": s["values"][:6]} for s in rows]) as double:
        async with Rig().running(options(double)) as rig:
            await rig.until(lambda: len(rig.good) == 6)
        double.stored = rows
        async with Rig(store=rig.store).running(options(double)) as again:
            await again.until(lambda: len(again.good) == 6)
            found = again.rows("requests_finished_total")
    assert [row["increase"] for row in found] == [10.0] * 11, "one baseline, and every increase once"
    assert rig.store.scrapes(0, rig.clock.now_s())["up"].sum() == 12


async def test_an_outage_is_told_and_a_recovery_too() -> None:
    async with prometheus_double(stored()) as double, Rig().running(options(double, lookback_s=300.0)) as rig:
        await rig.until(rig.up)
        double.status = 403
        await rig.until(lambda: rig.up() is False)
        last = rig.last()
        assert last is not None
        assert last.reason == "prometheus_unauthorized"
        assert last.error.startswith(f"{double.place} answers 403: not today; check authorization")
        assert last.error.endswith("nothing is known of gpu-1:8000 meanwhile")
        double.status = 200
        at_s = SystemClock().now_s() - 0.02
        double.stored = pages({at_s: (200.0, 1.0)})
        await rig.until(rig.up)


async def test_before_its_first_answer_a_source_is_shown_by_a_stand_in() -> None:
    async with prometheus_double(stored(), status=503) as double, Rig().running(options(double)) as rig:
        name = f"prometheus {double.place}"
        await rig.until(lambda: rig.last(name))
        assert list(rig.watch.states) == [name]
        double.status = 200
        await rig.until(lambda: "gpu-1:8000" in rig.watch.states)


async def test_what_is_scraped_already_is_not_read_a_second_time() -> None:
    rig = Rig(own=[TargetSpec(Target("gpu-1:8000", "http://gpu-1:8000/metrics", "chat"))])
    async with prometheus_double([*stored(), *stored(instance="gpu-2:8000")]) as double, rig.running(options(double)):
        await rig.until(lambda: rig.last("gpu-2:8000"))
        assert rig.last("gpu-1:8000") is None
        assert rig.watch.states["gpu-1:8000"].spec.target.url == "http://gpu-1:8000/metrics"


async def test_a_source_whose_options_stay_goes_on_through_a_reload() -> None:
    async with prometheus_double(stored()) as double, Rig().running(options(double)) as rig:
        await rig.until(rig.last)
        (before,) = rig.pulling._sources
        rig.pulling.use([options(double), options(double, group_by=("job",))])
        assert rig.pulling._sources[0] is before
        rig.retarget()
        await rig.until(lambda: rig.last("vllm"))
        rig.pulling.use([options(double, group_by=("job",))])
        rig.retarget()
        assert [t.target.name for t in rig.pulling.specs] == ["vllm"]


async def test_a_probe_says_what_each_target_of_a_source_is() -> None:
    async with prometheus_double(
        [*stored(), *pages({SystemClock().now_s() - 30: (1.0, 0.0)}, instance="gpu-3:1")[:1]]
    ) as double:
        double.stored[-1]["values"][0][1] = "0"
        settings = Settings.model_validate({"prometheus": [{"url": double.url, "selector": '{job="vllm"}'}]})
        found = await probe_sources(settings, known_engines())
        double.status = 429
        refused = await probe_sources(settings, known_engines())
    assert found[0][0]
    assert found[0][1].startswith(f"{double.place}: gpu-1:8000: vllm ")
    assert found[1] == (False, f"{double.place}: gpu-3:1: {double.place} could not scrape gpu-3:1")
    assert refused[0][0] is False
    assert "answers 429: not today" in refused[0][1]


def test_settings_become_options_with_secrets_opened() -> None:
    settings = Settings.model_validate({
        "prometheus": [{
            "url": "https://mimir/prometheus/", "selector": '{namespace="prod"}', "service": "chat", "group_by": ["pod"],
            "step": "30s", "lookback": "10m", "rate_limit_per_s": 2, "headers": {"X-Scope-OrgID": "team-a"},
            "authorization": {"credentials": "s3cret-token"}, "gpu": "H100", "gpus": 4,
        }]
    })  # fmt: skip
    made = pull_options_of(settings.prometheus[0])
    assert (made.url, made.step_s, made.lookback_s, made.group_by) == (
        "https://mimir/prometheus",
        30.0,
        600.0,
        ("pod",),
    )
    assert (made.bearer, made.headers) == ("s3cret-token", (("X-Scope-OrgID", "team-a"),))
    assert (made.rate_limit_per_s, made.gpus, made.labels) == (2.0, 4.0, {"gpu": "H100"})
    assert source_options(settings) == [made]


def test_the_example_of_the_documentation_is_a_valid_configuration(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "prometheus-source.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "goodwatch.yaml").write_text(example)
    settings = load(tmp_path / "goodwatch.yaml", engines=known_engines(), environ={})
    assert warnings(settings) == []
    assert settings.prometheus[0].selector == '{job="vllm", namespace="prod"}'


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"selector": "vllm"}, "is not a list of label matchers"),
        ({"url": "http://p:9090/api/v1"}, "is not the root of the API"),
        ({"lookback": "20s"}, "shorter than two steps"),
        ({"group_by": []}, "at least 1 item"),
        ({"interval": "15s"}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_work_are_refused(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Settings.model_validate({"prometheus": [{"url": "http://p:9090", "selector": '{job="a"}', **entry}]})

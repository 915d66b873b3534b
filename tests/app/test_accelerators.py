"""Devices in the running watch: read over HTTP, joined to their targets, and energy per token by hand."""

import functools
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web

from collector.scrape import Fetched, Session, fetch
from collector.stores.memory import MemoryStore
from collector.targets import TargetSpec
from goodwatch.app.accelerators import Holding
from goodwatch.app.engines import known_engines
from goodwatch.app.keeper import Keeper
from goodwatch.app.recording import RecordedScrape, Recording
from goodwatch.app.watch import Terms, Watch
from goodwatch.core.model import Absence, Number, Target
from goodwatch.signals.energy import NO_EXPORTER
from tests.app.test_keeper import SetClock
from tests.app.test_watch import CHAT
from tests.collector.accelerators.pages import Gpu, dcgm
from tests.support.engine_server import EngineServer, engine_server
from tests.support.views import DATA

ENERGY = "energy_joules_per_million_output_tokens"
START_S = 1_700_000_000.0 // 60 * 60
EVERY_S = 15.0


class Exporter:
    """A DCGM exporter that draws a constant power, each device its own."""

    def __init__(self, **watts: float) -> None:
        self.watts = watts
        self.at_s = START_S
        self.pod: dict[str, str] = {}
        self.counts = True

    def page(self) -> str:
        spent_s = 1_000.0 + self.at_s - START_S  # the counter runs since boot
        return dcgm(
            *(
                Gpu(
                    f"GPU-{name}", i, pod=self.pod.get(name, ""), watts=w,
                    millijoules=w * spent_s * 1e3 if self.counts else None,
                )
                for i, (name, w) in enumerate(self.watts.items())
            )
        )  # fmt: skip


class Bench:
    """A watch over recorded engines and one exporter, each behind a real HTTP server, scraped at set times."""

    def __init__(self, engine: EngineServer, exporter: EngineServer, devices: Exporter) -> None:
        self.store, self.clock = MemoryStore(), SetClock(START_S)
        self.keeper = Keeper(self.store, self.clock)
        self.engine, self.exporter, self.devices = engine, exporter, devices
        self.position = 0

    def watch(self, *targets: Target, window_s: float = 300.0, **holding: Holding) -> Watch:
        terms = Terms({"chat": CHAT}, {}, window_s, holding=holding)
        made = Watch(known_engines(), self.store, self.keeper, self.clock, terms)
        made.update([*map(TargetSpec, targets), TargetSpec(self.gpus)])
        return made

    @property
    def gpus(self) -> Target:
        return Target("gpus", self.exporter.url(), "", kind="accelerator")

    def target(self, name: str = "one", **more: object) -> Target:
        return replace(Target(name, self.engine.url(), "chat", "vllm", "0.32.0"), **more)  # type: ignore[arg-type]

    async def play(self, watch: Watch, scrapes: int, *, devices_from: int = 0) -> None:
        """Scrape every target ``scrapes`` times, 15 s apart; the exporter right after the engines."""
        async with Session() as session:
            for i in range(scrapes):
                for name in sorted(watch.states):
                    state = watch.states[name]
                    if state.spec.target.kind == "accelerator" and i < devices_from:
                        continue
                    self.devices.at_s = self.clock.at_s
                    fetched = await fetch(session, state.spec, self.clock)
                    assert fetched.up, fetched.error
                    await watch.take(state.spec, fetched)
                self.position += 1
                self.clock.at_s += EVERY_S
        self.clock.at_s -= EVERY_S
        await self.keeper.flush()
        await watch.refresh()


@functools.cache
def recorded() -> tuple[RecordedScrape, ...]:
    """Pages of an engine under load, one second of it apart; played here fifteen seconds apart."""
    every = [s for s in Recording.open(DATA / "vllm-0.32.0").scrapes() if s.body and "openmetrics" not in s.accept]
    return tuple(every[90:150])


def output_tokens(one: RecordedScrape) -> float:
    """The engine's counter of generated tokens, by eye: one line a rank and model."""
    lines = (one.body or "").splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:generation_tokens_total{"))


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    devices = Exporter(a=400.0, b=250.0)
    scrapes = recorded()
    made: list[Bench] = []

    async def engine_page(_: web.Request) -> web.StreamResponse:
        one = scrapes[min(made[0].position, len(scrapes) - 1)]
        return web.Response(text=one.body, headers={"Content-Type": one.content_type or "text/plain"})

    async def device_page(_: web.Request) -> web.StreamResponse:
        return web.Response(text=devices.page(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async with engine_server({"/metrics": engine_page}) as engine, engine_server({"/metrics": device_page}) as exporter:
        made.append(Bench(engine, exporter, devices))
        yield made[0]


def numbers(watch: Watch, target: str = "") -> dict[str, Number]:
    view = watch.service("chat")
    assert view is not None
    derived = next(t.derived for t in view.targets if t.name == target) if target else view.derived
    assert derived is not None
    return dict(derived.numbers)


pytestmark = pytest.mark.integration


@pytest.mark.parametrize("counts", [True, False], ids=["energy counter", "power only"])
async def test_joules_per_million_tokens_are_those_of_a_hand_calculation(bench: Bench, counts: bool) -> None:
    bench.devices.counts = counts
    watch = bench.watch(bench.target())
    await bench.play(watch, 20)
    first, last = recorded()[0], recorded()[19]
    tokens = output_tokens(last) - output_tokens(first)
    assert tokens > 0
    found = numbers(watch)
    # Two devices of 400 W and 250 W over the 19 intervals of 15 s between 20 scrapes.
    assert found[ENERGY].value == pytest.approx((400 + 250) * 19 * 15 / tokens * 1e6)
    assert found["gpu_power_watts"].value == pytest.approx(650.0)
    assert found["gpu_utilisation_ratio"].value == pytest.approx(0.5)
    assert found["gpu_memory_used_ratio"].value == pytest.approx(20_000 / 81_559)
    assert ("derived" in found[ENERGY].note) is not counts


async def test_without_an_exporter_the_numbers_say_what_to_add(bench: Bench) -> None:
    watch = bench.watch(bench.target())
    watch.update([TargetSpec(bench.target())])
    await bench.play(watch, 3)
    assert (numbers(watch)[ENERGY].absence, numbers(watch)[ENERGY].note) == (Absence.NOT_MEASURABLE, NO_EXPORTER)


async def test_devices_are_a_target_of_their_own_kind_and_no_service(bench: Bench) -> None:
    watch = bench.watch(bench.target())
    await bench.play(watch, 3)
    assert [v.name for v in watch.services()] == ["chat"]
    assert [(t.name, t.kind, t.up) for t in watch.targets()] == [("gpus", "accelerator", True), ("one", "engine", True)]
    held, exporter = watch.target("one"), watch.target("gpus")
    assert held is not None
    assert exporter is not None
    assert [(d.key, d.basis, d.shared) for d in held.devices] == [
        ("GPU-a", "by its host", ""), ("GPU-b", "by its host", ""),
    ]  # fmt: skip
    assert held.devices[0].values["gpu_power_watts"] == 400.0
    assert [d.shared for d in exporter.devices] == ["one", "one"]
    assert exporter.device_numbers["gpu_power_watts"].value == pytest.approx(650.0)
    assert exporter.capability is not None
    assert exporter.capability.engine == "dcgm"
    assert exporter.deployment is None
    assert bench.store.samples(0.0, 1e11, target="gpus")["signal"].n_unique() >= 4
    assert [e for e in await watch.events(0.0, 1e11) if e.target == "gpus"] == []


async def test_an_exporter_that_is_removed_takes_its_devices_with_it(bench: Bench) -> None:
    watch = bench.watch(bench.target())
    await bench.play(watch, 3)
    watch.update([TargetSpec(bench.target())])
    view = watch.target("one")
    assert view is not None
    assert (view.devices, view.devices_note) == ((), NO_EXPORTER)


async def test_an_exporter_that_does_not_answer_is_not_the_same_as_none(bench: Bench) -> None:
    watch = bench.watch(bench.target())
    down = Fetched(START_S, False, 0.1, reason="refused", error="connection refused")
    await watch.take(TargetSpec(bench.gpus), down)
    view = watch.target("one")
    assert view is not None
    assert view.devices_note == "no accelerator exporter was read yet"


async def test_a_configured_device_alone_is_counted(bench: Bench) -> None:
    watch = bench.watch(bench.target(), one=Holding(devices=("GPU-b",)))
    await bench.play(watch, 5)
    assert numbers(watch)["gpu_power_watts"].value == pytest.approx(250.0)


async def test_targets_that_share_their_host_share_the_energy_and_none_is_told_apart(bench: Bench) -> None:
    watch = bench.watch(bench.target("one"), bench.target("two"))
    await bench.play(watch, 20)
    tokens = 2 * (output_tokens(recorded()[19]) - output_tokens(recorded()[0]))
    assert numbers(watch)[ENERGY].value == pytest.approx(650 * 19 * 15 / tokens * 1e6)
    apart = numbers(watch, "one")[ENERGY]
    assert (apart.absence, apart.note) == (
        Absence.NOT_MEASURABLE, "the devices are shared with target two: their energy is not split by guess",
    )  # fmt: skip


async def test_services_that_share_a_host_find_their_energy_at_the_exporter(bench: Bench) -> None:
    watch = bench.watch(bench.target("one"), bench.target("two", service="batch"))
    await bench.play(watch, 10)
    assert "shared with target two" in numbers(watch)[ENERGY].note
    tokens = 2 * (output_tokens(recorded()[9]) - output_tokens(recorded()[0]))
    exporter = watch.target("gpus")
    assert exporter is not None
    assert exporter.device_numbers[ENERGY].value == pytest.approx(650 * 9 * 15 / tokens * 1e6)


async def test_a_device_that_moves_to_another_pod_is_its_from_then_on(bench: Bench) -> None:
    labels = {"namespace": "ai"}
    one = bench.target("one", labels={**labels, "pod": "chat-0"})
    two = bench.target("two", labels={**labels, "pod": "chat-1"})
    watch = bench.watch(one, two, window_s=100.0)
    bench.devices.pod = {"a": "ai/chat-0", "b": "ai/chat-1"}
    await bench.play(watch, 4)
    assert numbers(watch, "one")["gpu_power_watts"].value == pytest.approx(400.0)
    assert numbers(watch, "two")["gpu_power_watts"].value == pytest.approx(250.0)
    bench.devices.pod = {"a": "ai/chat-1", "b": "ai/chat-1"}
    bench.clock.at_s += EVERY_S
    await bench.play(watch, 8)
    assert numbers(watch, "one")["gpu_power_watts"].absence is Absence.NOT_MEASURABLE
    assert "no device names the pod ai/chat-0" in numbers(watch, "one")["gpu_power_watts"].note
    assert numbers(watch, "two")["gpu_power_watts"].value == pytest.approx(650.0)


async def test_an_exporter_that_is_added_later_gives_no_number_until_it_was_read_long_enough(bench: Bench) -> None:
    watch = bench.watch(bench.target())
    await bench.play(watch, 20, devices_from=17)
    late = numbers(watch)[ENERGY]
    assert (late.absence, late.note) == (Absence.NO_DATA, "the devices were read for 30 s, the tokens for 285 s")


async def test_history_and_the_live_window_tell_the_same_energy(bench: Bench) -> None:
    watch = bench.watch(bench.target())
    await bench.play(watch, 40)
    end_s = bench.clock.at_s // 60 * 60
    fresh = await watch.series("chat", end_s - 300, end_s, step_s=60.0)
    bench.clock.at_s += 120
    await watch.fold_minutes()
    kept = await watch.series("chat", end_s - 300, end_s, step_s=60.0)
    for frame in (fresh, kept):
        power = frame.filter(frame["name"] == "gpu_power_watts")["value"].to_list()
        assert power == [pytest.approx(650.0)] * 5
    assert (
        fresh.filter(fresh["name"] == ENERGY)["value"].to_list()
        == kept.filter(kept["name"] == ENERGY)["value"].to_list()
    )


async def test_a_restart_of_goodwatch_finds_the_devices_of_its_window_again(bench: Bench) -> None:
    watch = bench.watch(bench.target())
    await bench.play(watch, 10)
    before = numbers(watch)
    again = bench.watch(bench.target())
    await again.recover()
    bench.position, bench.clock.at_s = bench.position, bench.clock.at_s + EVERY_S
    await bench.play(again, 1)
    after = numbers(again)
    assert before["gpu_power_watts"].value == after["gpu_power_watts"].value == pytest.approx(650.0)
    tokens = output_tokens(recorded()[10]) - output_tokens(recorded()[0])
    assert after[ENERGY].value == pytest.approx(650 * 10 * 15 / tokens * 1e6)


async def test_a_device_that_comes_back_brings_no_energy_of_its_absence(bench: Bench) -> None:
    watch = bench.watch(bench.target())
    await bench.play(watch, 4)
    gone = bench.devices.watts.pop("b")
    bench.clock.at_s += EVERY_S
    await bench.play(watch, 4)
    bench.devices.watts["b"] = gone
    bench.clock.at_s += EVERY_S
    await bench.play(watch, 4)
    assert numbers(watch)["gpu_power_watts"].value == pytest.approx(650.0)

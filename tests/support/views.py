"""Read sides of the service for tests: one that plays a recording, one of plain values, and odd ones.

``RecordedViews("vllm-0.32.0")`` has one service with one target; ``together`` puts several on one page.
"""

import functools
import importlib
import math
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import polars as pl

import collector.engines
from collector.capability import Capability, capability
from collector.pipeline import TargetReader
from goodwatch.app.recording import Recording
from goodwatch.app.replay import Replayed, replay
from goodwatch.app.view import Event, Health, Reloaded, ServiceView, State, StoreView, TargetView
from goodwatch.core.engine import Engine
from goodwatch.core.model import Absence, Deployment, Limits, Number, Target
from goodwatch.signals.cost import Price
from goodwatch.signals.derive import MEANINGS, Derived, derive
from goodwatch.signals.frames import DERIVED
from goodwatch.signals.increments import fold
from goodwatch.signals.saturation import binding_limits, stalls
from goodwatch.signals.windows import TargetWindow, target_windows

DATA: Final = Path(__file__).resolve().parents[1] / "truth" / "data"
LIMITS: Final = Limits(ttft_s=0.5, tpot_s=0.05)
PRICE: Final = Price(gpus=1, gpu_hour_usd=2.5, source="gpu_hour_usd of the target")
HEALTHY: Final = Health(ok=True, ready=True, message="", store=StoreView(True, "", 0.4, 12_400_000))
#: The clock of every recording's end unless a test says otherwise: 2026-03-04 03:12:00 UTC, a whole minute.
AT_S: Final = 1772593920.0


@functools.cache
def known_engines() -> dict[str, Engine]:
    """Every engine table that ships."""
    names = [m.name for m in pkgutil.iter_modules(collector.engines.__path__) if not m.name.startswith("_")]
    tables = [importlib.import_module(f"collector.engines.{name}").ENGINE for name in names]
    return {engine.name: engine for engine in tables}


@functools.cache
def replayed(name: str) -> Replayed:
    """A recording through the pipeline, once a test run."""
    return replay(Recording.open(DATA / name), known_engines())


@functools.cache
def page_of(name: str, end_s: float) -> tuple[Capability, Deployment] | None:
    """Capability and deployment of the last good scrape up to ``end_s``; None without one."""
    good = [s for s in Recording.open(DATA / name).scrapes() if s.body is not None and s.done_s <= end_s]
    if not good:
        return None
    last = good[-1]
    reader = TargetReader(Target("recording", "file://recording", "recording"), known_engines())
    understood = reader.understand(last.body or "", last.content_type)
    deployment = reader.deployment(understood, last.done_s)
    found = deployment or Deployment(last.done_s, "", "", "", "", "")
    return capability(understood, LIMITS, now_s=last.done_s), found


class RecordedViews:
    """One service and one target, from a recording whose chosen end is "now".

    Parameters
    ----------
    name
        Folder under ``tests/truth/data``.
    limits, objective
        The SLO.
    phase
        Phase at whose end "now" is; its length is the window of the current numbers.
    end_s, window_s
        Set both to choose the window in the recording's own time instead of by phase.
    prices
        By target name; empty for no price.
    service, target
        What they are called.
    at_s
        The clock that the recording's end is moved to; times of all rows move along.
    repeats
        How often the recording is played before, so that long ranges are filled.
    """

    def __init__(
        self,
        name: str = "vllm-0.32.0",
        *,
        limits: Limits = LIMITS,
        objective: float | None = 0.99,
        phase: str = "overload",
        end_s: float | None = None,
        window_s: float | None = None,
        prices: Mapping[str, Price] | None = None,
        service: str = "chat",
        target: str = "chat-0",
        at_s: float = AT_S,
        repeats: int = 0,
        demo_note: str = "",
        external_url: str = "http://127.0.0.1:9470",
        health: Health = HEALTHY,
    ) -> None:
        self.external_url, self.demo_note = external_url, demo_note
        self.recording, self.limits, self.objective = name, limits, objective
        self.service_name, self.target_name = service, target
        self.prices = {target: PRICE} if prices is None else dict(prices)
        self._health, self._at_s = health, at_s
        source = replayed(name)
        chosen = next((p for p in Recording.open(DATA / name).phases() if p.name == phase), None)
        self._end_s = end_s or (chosen.end_s if chosen else source.scrape_times[-1])
        self._window_s = window_s or (chosen.end_s - chosen.start_s if chosen else 60.0)
        self._rows = self._moved(source.rows, repeats)
        self._minutes = fold(self._rows)
        self._now = self._service()

    def _moved(self, rows: pl.DataFrame, repeats: int) -> pl.DataFrame:
        """The rows in this view's time and names, with earlier plays of the same recording before them."""
        named = rows.with_columns(
            pl.lit(self.target_name).alias("target"),
            pl.lit(self.service_name).alias("service"),
            pl.col("minute_s") + (self._at_s - self._end_s),
        )
        first, last = named["minute_s"].min(), named["minute_s"].max()
        assert isinstance(first, float)
        assert isinstance(last, float)
        period = math.ceil((last - first) / 60) * 60.0
        earlier = [named.with_columns(pl.col("minute_s") - k * period) for k in range(repeats, 0, -1)]
        return pl.concat([*earlier, named]).filter(pl.col("minute_s") <= self._at_s)

    def now_s(self) -> float:
        return self._at_s

    def services(self) -> list[ServiceView]:
        return [self._now]

    def service(self, name: str) -> ServiceView | None:
        return self._now if name == self.service_name else None

    def targets(self) -> list[TargetView]:
        return list(self._now.targets)

    def target(self, name: str) -> TargetView | None:
        return next((t for t in self._now.targets if t.name == name), None)

    async def series(
        self, service: str, start_s: float, end_s: float, *, step_s: float | None = None, target: str | None = None
    ) -> pl.DataFrame:
        step = step_s or max(60.0, math.ceil((end_s - start_s) / 120 / 60) * 60.0)
        if service != self.service_name or target not in (None, self.target_name):
            return pl.DataFrame(schema=DERIVED)
        rows: list[dict[str, object]] = []
        first = math.floor(start_s / step) * step + step
        for i in range(max(0, math.floor((end_s - first) / step + 1))):
            at = first + i * step
            rows += derived_rows(self._derived(at - step, at), service, target or "")
        return pl.DataFrame(rows, schema=DERIVED, orient="row")

    async def events(self, start_s: float, end_s: float, *, service: str | None = None) -> list[Event]:
        if service not in (None, self.service_name):
            return []
        found = self._rows.filter(
            (pl.col("signal") == "restarts_total")
            & (pl.col("increase") > 0)
            & pl.col("minute_s").is_between(start_s, end_s, closed="left")
        )
        events = [self._event(at, "restart", "all counters began again") for at in found["minute_s"]]
        deployment = self._now.targets[0].deployment
        if deployment is not None and start_s <= deployment.ts < end_s:
            events.append(self._event(deployment.ts, "deployment", f"runs {deployment.engine} now"))
        return sorted(events, key=lambda e: e.ts)

    def _event(self, at: float, kind: str, text: str) -> Event:
        return Event(at, self.service_name, self.target_name, kind, f"{self.target_name}: {text}")

    def health(self) -> Health:
        return self._health

    async def reload(self) -> Reloaded:
        return Reloaded(True)

    def _windows(self, start_s: float, end_s: float) -> list[TargetWindow]:
        at = pl.col("minute_s")
        if end_s - start_s >= 60 and start_s % 60 == end_s % 60 == 0:
            rows, inside = self._minutes, (at >= start_s) & (at < end_s)
            before = rows.filter((at < start_s) & (at >= start_s - 120))
        else:
            rows, inside = self._rows, (at > start_s) & (at <= end_s)
            before = rows.filter((at <= start_s) & (at >= start_s - 120))
        return target_windows(rows.filter(inside), before, start_s, end_s)

    def _derived(self, start_s: float, end_s: float, model: str | None = None) -> Derived:
        windows = [w for w in self._windows(start_s, end_s) if model in (None, w.model)]
        return derive(windows, known_engines(), self.limits, self.prices, start_s=start_s, end_s=end_s)

    def _service(self) -> ServiceView:
        start = self._at_s - self._window_s
        now = self._derived(start, self._at_s)
        models = sorted({w.model for w in now.windows if w.model})
        state, headline = verdict(now, self.objective, self.limits)
        recent = self._rows.filter(pl.col("minute_s") > start)
        return ServiceView(
            self.service_name, "Chat in the web app", state, headline, self.limits, self.objective, now,
            {m: self._derived(start, self._at_s, m) for m in models}, (self._target(now),),
            tuple(binding_limits(now.windows)), tuple(stalls(recent)),
        )  # fmt: skip

    def _target(self, now: Derived) -> TargetView:
        source, moved = replayed(self.recording), self._at_s - self._end_s
        good = [t for t in source.scrape_times if t <= self._end_s]
        failed = [t for t in source.failed_times if t <= self._end_s]
        up = bool(good) and (not failed or good[-1] > failed[-1])
        report = page_of(self.recording, self._end_s)
        deployment = report and replace(
            report[1], ts=report[1].ts + moved, target=self.target_name, service=self.service_name
        )
        error = "" if up else "connection refused: nothing listens there; is the engine running?"
        return TargetView(
            self.target_name, "http://127.0.0.1:8000/metrics", self.service_name, up,
            (good[-1] if good else failed[-1]) + moved, 0.012, error, source.engine, source.version,
            report[0].models if report else (), now, report[0] if report else None, deployment,
            {"team": "assistants"}, "2.50 USD a GPU-hour: gpu_hour_usd of the target",
        )  # fmt: skip


def derived_rows(derived: Derived, service: str, target: str = "", model: str = "") -> list[dict[str, object]]:
    """One window's numbers as rows of ``frames.DERIVED``."""
    return [
        {
            "ts": derived.end_s,
            "window_s": derived.end_s - derived.start_s,
            "service": service,
            "target": target,
            "model": model,
            "name": name,
            "value": n.value,
            "low": n.bounds.low if n.bounds else None,
            "high": n.bounds.high if n.bounds else None,
            "basis": n.basis.value if n.basis else None,
            "note": n.note or (n.absence.value if n.absence else ""),
        }
        for name, n in derived.numbers.items()
    ]


def verdict(now: Derived, objective: float | None, limits: Limits) -> tuple[State, str]:
    """A plain state and headline; the service has a better one."""
    attainment = now.numbers["attainment_ratio"]
    if attainment.absence is Absence.NO_DATA:
        return "no data", attainment.note
    if attainment.absence is Absence.NO_TRAFFIC:
        return "no traffic", "no request ended in the window"
    if attainment.bounds is None or objective is None:
        return "good", "no objective is set"
    bounds = attainment.bounds
    if bounds.high is not None and bounds.high < objective:
        ttft = now.numbers["ttft_p90_seconds"].bounds
        slow = ttft is not None and limits.ttft_s is not None and ttft.low >= limits.ttft_s
        why = f"TTFT p90 is above its target of {limits.ttft_s} s" if slow else "too few requests meet their targets"
        return "bad", f"{why}: at most {bounds.high:.1%} of the requests are good, {objective:.0%} were promised"
    return ("good", "meets its objective") if bounds.low >= objective else ("warning", "may miss its objective")


@dataclass(slots=True)
class PlainViews:
    """Views of values that a test makes up; ``frame`` is answered to every range."""

    shown: Sequence[ServiceView] = ()
    frame: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=DERIVED))
    happened: Sequence[Event] = ()
    state: Health = HEALTHY
    clock_s: float = AT_S
    external_url: str = "http://127.0.0.1:9470"
    demo_note: str = ""
    reloaded: Reloaded = field(default_factory=lambda: Reloaded(True))

    def now_s(self) -> float:
        return self.clock_s

    def services(self) -> list[ServiceView]:
        return list(self.shown)

    def service(self, name: str) -> ServiceView | None:
        return next((s for s in self.shown if s.name == name), None)

    def targets(self) -> list[TargetView]:
        return sorted((t for s in self.shown for t in s.targets), key=lambda t: t.name)

    def target(self, name: str) -> TargetView | None:
        return next((t for t in self.targets() if t.name == name), None)

    async def series(
        self, service: str, start_s: float, end_s: float, *, step_s: float | None = None, target: str | None = None
    ) -> pl.DataFrame:
        wanted = pl.col("ts").is_between(start_s, end_s, closed="right") & (pl.col("service") == service)
        return self.frame.filter(wanted & (pl.col("target") == (target or "")))

    async def events(self, start_s: float, end_s: float, *, service: str | None = None) -> list[Event]:
        return [e for e in self.happened if start_s <= e.ts < end_s and service in (None, e.service)]

    def health(self) -> Health:
        return self.state

    async def reload(self) -> Reloaded:
        return self.reloaded


class Together(PlainViews):
    """Several recordings side by side, in the order given."""

    parts: tuple[RecordedViews, ...]

    def __init__(self, *parts: RecordedViews, demo_note: str = "", state: Health = HEALTHY) -> None:
        super().__init__(
            [s for p in parts for s in p.services()], state=state, clock_s=parts[0].now_s(), demo_note=demo_note
        )
        self.parts = parts

    async def series(
        self, service: str, start_s: float, end_s: float, *, step_s: float | None = None, target: str | None = None
    ) -> pl.DataFrame:
        part = next((p for p in self.parts if p.service_name == service), None)
        if part is None:
            return pl.DataFrame(schema=DERIVED)
        return await part.series(service, start_s, end_s, step_s=step_s, target=target)

    async def events(self, start_s: float, end_s: float, *, service: str | None = None) -> list[Event]:
        every = [e for p in self.parts for e in await p.events(start_s, end_s, service=service)]
        return sorted(every, key=lambda e: e.ts)


def nothing(absence: Absence, note: str = "", *, at_s: float = AT_S, window_s: float = 300.0) -> Derived:
    """Every number absent for one reason."""
    none = {name: Number.none(m.unit, absence, note) for name, m in MEANINGS.items()}
    return Derived(at_s - window_s, at_s, none, None, ())


def silent_service(
    name: str = "chat", state: State = "no data", absence: Absence = Absence.NO_DATA, note: str = ""
) -> ServiceView:
    """A service of one target of which nothing is known yet."""
    target = TargetView(
        f"{name}-0", "http://127.0.0.1:8000/metrics", name, None, None, None, "", "", "", (), None, None, None
    )
    return ServiceView(name, "", state, note or state, LIMITS, 0.99, nothing(absence, note), {}, (target,))


def empty_views() -> PlainViews:
    """No service at all: a configuration without targets."""
    return PlainViews()


def no_data_views() -> PlainViews:
    """Started a moment ago: services, and nothing was scraped yet."""
    services = [silent_service("chat", note="waits for the first scrape")]
    return PlainViews(services, state=replace(HEALTHY, ready=False, message="the first scrapes are under way"))


HOSTILE: Final = "<script>alert('x')</script>\"'`{{7*7}}</style>&lt;"


def hostile_views() -> PlainViews:
    """Every text that comes from outside tries to break out of the page."""
    good = RecordedViews("vllm-0.32.0")
    (service,) = good.services()
    (target,) = service.targets
    report = target.capability
    assert report is not None
    bad_target = replace(
        target, error=HOSTILE, up=False, models=(HOSTILE,), engine_version=HOSTILE, labels={HOSTILE: HOSTILE},
        capability=replace(report, models=(HOSTILE,), facts={HOSTILE: HOSTILE}, title=HOSTILE), price_note=HOSTILE,
    )  # fmt: skip
    derived = replace(service.derived, numbers={**service.derived.numbers, "idle_ratio": hostile_number()})
    views = PlainViews(
        [replace(service, headline=HOSTILE, description=HOSTILE, by_model={HOSTILE: derived}, targets=(bad_target,))],
        happened=[Event(AT_S - 60, "chat", HOSTILE, "restart", HOSTILE)],
        demo_note=HOSTILE,
        state=Health(False, True, HOSTILE, StoreView(False, HOSTILE, 99.0, 0)),
    )
    at = [AT_S - 120, AT_S - 60, AT_S]
    rows = [r for end in at for r in derived_rows(replace(derived, start_s=end - 60, end_s=end), "chat")]
    views.frame = pl.DataFrame([{**r, "note": HOSTILE} for r in rows], schema=DERIVED, orient="row")
    return views


def hostile_number() -> Number:
    """A number that is not there, with a reason that tries to break out."""
    return Number.none("ratio", Absence.NOT_MEASURABLE, HOSTILE)

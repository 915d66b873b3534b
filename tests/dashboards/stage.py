"""Series for boards: recordings of real engines, goodwatch's own page over them, and, marked as such, made-up ones.

Everything ends at ``AT_S``. Real are the pages of vLLM (old and new), SGLang and llama.cpp, what goodwatch's exporter
writes of them, and the requests of a recording's spans. Made up from the tables (``made_up``) are engines that nobody
recorded and exporters of accelerators; recorded rules, alerts, SLO numbers, the planner's, scores and tenants are stand-ins
(``stand_ins``). What is made up shows that names and labels fit, not that numbers are right.
"""

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import polars as pl
from prometheus_client import Metric

from collector.exposition import Parser
from dashboards.natives import Natives
from dashboards.values import Options, Promise
from exporters.prometheus import Exporter, SelfMetrics, Snapshot
from exporters.requests import RequestSeries
from goodwatch.app.engines import known_accelerators, known_engines
from goodwatch.app.facts_replay import facts_report
from goodwatch.app.recording import Recording
from goodwatch.app.telemetry import snapshot
from goodwatch.core.engine import Engine
from goodwatch.core.model import Limits
from goodwatch.signals.heatmap import Ask, Measure, heatmap_of_facts
from tests.dashboards import stand_ins
from tests.support.views import AT_S, DATA, LIMITS, RecordedViews

STEP_S: Final = 15.0
LENGTH_S: Final = 600.0
#: window of goodwatch's own numbers
WINDOW_S: Final = 120.0
#: recording → job under which a Prometheus has it
RECORDED: Final = {
    "vllm-0.32.0": "vllm",
    "vllm-0.8.5": "vllm-old",
    "sglang-0.5.23": "sglang",
    "llama-cpp-11434": "llamacpp",
}
#: engine → jobs of its recordings
JOBS: Final = {"vllm": "vllm|vllm-old", "sglang": "sglang", "llamacpp": "llamacpp"}
SERVICES: Final = {"chat": "vllm-0.32.0", "batch": "sglang-0.5.23"}
OPTIONS: Final = Options(
    known_engines(), known_accelerators(), {},
    {"chat": Promise(0.99, Limits(0.5, 0.05)), "batch": Promise(0.95, Limits(e2e_s=120.0))},
)  # fmt: skip
#: values that labels take in made-up series, tried in this order
_CANDIDATES: Final = (
    "stop", "error", "200", "500", "503", "429", "completions", "/v1/completions", "/v1/chat/completions", "/generate", "prefill_forward",
    "true", "vram", "POST", "generate", "BACKEND",
)  # fmt: skip
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def line(name: str, labels: Mapping[str, str], value: float, at_s: float) -> str:
    """One sample with its time, as OpenMetrics writes it."""
    inner = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {'NaN' if math.isnan(value) else repr(float(value))} {at_s:.3f}"


def openmetrics(lines: Iterable[str]) -> str:
    """A body for ``promtool tsdb create-blocks-from openmetrics``."""
    return "\n".join([*lines, "# EOF", ""])


def everything() -> Iterator[str]:
    """All series of the stage."""
    for name, job in RECORDED.items():
        yield from recorded(name, job)
    yield from exported()
    yield from requests()
    yield from (
        line(name, {"job": "made-up-goodwatch", "instance": "g:9470", **labels}, value, at_s)
        for name, labels, value, at_s in stand_ins.everything()
    )
    for name, table in {**known_engines(), **known_accelerators()}.items():
        if name not in JOBS:
            yield from made_up(table)


def end_of(name: str) -> float:
    """End of the recording's busiest phase, in its own time."""
    recording = Recording.open(DATA / name)
    phases = {phase.name: phase for phase in recording.phases()}
    return phases["overload"].end_s if "overload" in phases else [s.done_s for s in recording.scrapes() if s.body][-1]


def _begin_of(name: str) -> float:
    """When the recording's engine first answered, in its own time."""
    return next(scrape.done_s for scrape in Recording.open(DATA / name).scrapes() if scrape.body is not None)


def recorded(name: str, job: str) -> Iterator[str]:
    """A recording as a Prometheus that scrapes every 15 s has it, its busiest phase ending at ``AT_S``."""
    end, parser, before = end_of(name), Parser(), 0.0
    target = {"job": job, "instance": f"{job}:8000"}
    for scrape in Recording.open(DATA / name).scrapes():
        if scrape.body is None or "openmetrics" in scrape.accept or not end - LENGTH_S <= scrape.done_s <= end:
            continue
        if scrape.done_s - before < STEP_S and scrape.done_s + 2 < end:
            continue
        before = scrape.done_s
        for sample in parser.parse(scrape.body, content_type=scrape.content_type).samples:
            own = {("exported_instance" if key == "instance" else key): text for key, text in sample.labels.items()}
            yield line(sample.name, {**target, **own}, sample.value, scrape.done_s + AT_S - end)


@functools.cache
def views(service: str, at_s: float) -> RecordedViews:
    """goodwatch's view of a service's recording at one moment."""
    name = SERVICES[service]
    return RecordedViews(
        name, service=service, target=f"{service}-0", end_s=end_of(name) - (AT_S - at_s), window_s=WINDOW_S, at_s=at_s,
        limits=LIMITS, objective=0.99,
    )  # fmt: skip


def exported() -> Iterator[str]:
    """goodwatch's own page every ten seconds, as far back as every recording has a few scrapes."""
    room_s = min(end_of(name) - _begin_of(name) for name in SERVICES.values()) - 20
    for at_s in (AT_S - 10.0 * i for i in range(int(room_s // 10), -1, -1)):
        exporter = Exporter(lambda at_s=at_s: _page(at_s), SelfMetrics("1.2.3"))
        yield from _lines(exporter.collect(), at_s)


def _page(at_s: float) -> Snapshot:
    """What goodwatch knows of all services at one moment."""
    each = [snapshot(views(service, at_s)) for service in SERVICES]
    return Snapshot(
        tuple(one for page in each for one in page.scopes), tuple(one for page in each for one in page.services),
        tuple(one for page in each for one in page.targets), each[0].store_lag_s, each[0].store_bytes,
    )  # fmt: skip


def _lines(families: Iterable[Metric], at_s: float) -> Iterator[str]:
    for family in families:
        for sample in family.samples:
            yield line(sample.name, {"job": "goodwatch", "instance": "g:9470", **sample.labels}, sample.value, at_s)


@functools.cache
def judged() -> pl.DataFrame:
    """The requests of a recording's spans, judged."""
    caught: list[pl.DataFrame] = []
    facts_report(DATA / SERVICES["chat"], [], LIMITS, heatmap=lambda frame: caught.append(frame) or {})
    return caught[0].with_columns(service=pl.lit("chat"), model=pl.lit("m"), slo=pl.lit("chat"))


def requests() -> Iterator[str]:
    """Series of single requests while they settle, and the map of the last moment."""
    series, beside, frame, steps = RequestSeries(), stand_ins.Beside(), judged(), int(LENGTH_S // STEP_S)
    size = frame.height // steps + 1
    asks = {f"{name} p99": Ask(Measure.LATENCY, 0.99, f"engine_{name}_s") for name in ("ttft", "tpot", "e2e")}
    asks |= {"attainment": Ask(Measure.ATTAINMENT), "requests": Ask(Measure.REQUESTS)}
    series.show([("chat", name, heatmap_of_facts(frame, ask)) for name, ask in asks.items()])
    for i in range(steps):
        part, at_s = frame[i * size : (i + 1) * size], AT_S - (steps - 1 - i) * STEP_S
        series.add(part)
        beside.add(part, at_s)
        yield from _lines((*series.families(), *beside.families()), at_s)


def made_up(table: Engine) -> Iterator[str]:
    """Made up from a table: every series that its board may ask for, counters that grow and gauges that stand."""
    natives, seen = Natives(table), set[tuple[str, tuple[tuple[str, str], ...]]]()
    target = {"job": f"made-up-{table.name}", "instance": f"{table.name}:1"}
    for signal in table.signals:
        for source in natives.sources(signal, scaled=False):
            labels = {**target, **_labels(table, source)}
            for family in (source.metric, *source.plus, *source.needs):
                for name, extra, growth in _series(family, source.type):
                    key = (name, tuple(sorted({**labels, **extra}.items())))
                    if key not in seen:
                        seen.add(key)
                        yield from _grown(name, {**labels, **extra}, growth)


def _grown(name: str, labels: Mapping[str, str], growth: float) -> Iterator[str]:
    for i in range(41):
        yield line(name, labels, 0.5 if growth == 0 else growth * i, AT_S - (40 - i) * STEP_S)


def _series(family: str, kind: str) -> Iterator[tuple[str, dict[str, str], float]]:
    if kind == "histogram":
        yield from (
            (f"{family}_bucket", {"le": le}, growth) for le, growth in (("0.1", 1.0), ("1.0", 3.0), ("+Inf", 4.0))
        )
        yield f"{family}_count", {}, 4.0
        yield f"{family}_sum", {}, 2.0
    else:
        yield (f"{family}_total", {}, 2.0) if kind == "counter" else (family, {}, 0.0)


def _labels(table: Engine, source: Any) -> dict[str, str]:
    found = dict.fromkeys(table.sum_labels, "0")
    if table.model_labels and source.metric.startswith(table.prefixes):
        found[table.model_labels[0]] = "m"
    if source.part:
        found[source.part] = "true" if "stream" in source.part else "200"
    for label, pattern in source.where.items():
        if pattern == "":
            found.pop(label, None)
            continue
        fitting = [c for c in (*_CANDIDATES, *pattern.split("|")) if re.fullmatch(pattern, c)]
        assert fitting, f"{table.name}: {source.metric}: no value for {label}=~{pattern}; add one to the candidates"
        found[label] = fitting[0]
    return found

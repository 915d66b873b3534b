"""Series of single requests: counters and histograms that a fact enters once, when it settles, with exemplars.

Bands of input and output lengths are few, and so are services and models: what does not fit is added to ``other`` and
counted, so that the page stays bounded whatever senders make up.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
from prometheus_client import Metric
from prometheus_client.samples import Exemplar

from exporters._families import label_text
from goodwatch.core.request import Verdict
from goodwatch.signals._bands import PageBand, page_bands
from goodwatch.signals.heatmap import Heatmap

#: upper ends of the length bands of these series, in tokens; a length that nobody told is "unknown"
BAND_EDGES: Final = (0, 256, 1024, 4096, 16384, 65536)
#: seconds; OpenTelemetry GenAI v1.41 advises these for gen_ai.server.* (time to first token, per output token)
BOUNDS_S: Final[Mapping[str, tuple[float, ...]]] = {
    "ttft": (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0),
    "tpot": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
    "e2e": (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84),
}
#: pairs of service and model with series of their own
MAX_SCOPES: Final = 20
OTHER: Final = "other"

_BANDS: Final = page_bands(BAND_EDGES)

_VALID: Final = (Verdict.GOOD.value, Verdict.BAD.value)
_COLUMNS: Final = {"ttft": "engine_ttft_s", "tpot": "engine_tpot_s", "e2e": "engine_e2e_s"}
_TEXTS: Final = {
    "ttft": "time to first token of requests that settled, engine's clock",
    "tpot": "time per output token after the first of requests that settled, engine's clock",
    "e2e": "time from arrival to the last token of requests that settled, engine's clock",
}
_REQUESTS: Final = "goodwatch_requests"
_TOKENS: Final = "goodwatch_request_output_tokens"

#: what is exported of requests: name, type, labels, meaning
REQUEST_SERIES: Final[tuple[tuple[str, str, str, str], ...]] = (
    (f"{_REQUESTS}_total", "counter", "service, model, verdict", "requests that settled, by what their SLO says; weighted by 1 / sampling probability"),
    (f"{_TOKENS}_total", "counter", "service, model, verdict", "output tokens of requests that settled"),
    ("goodwatch_slo_valid_events_total", "counter", "service, slo", "valid requests that settled, judged by this SLO"),
    ("goodwatch_slo_good_events_total", "counter", "service, slo", "those of them that met every target"),
    *(
        (f"goodwatch_request_{name}_seconds", "histogram", "service, model, input_band, output_band", text)
        for name, text in _TEXTS.items()
    ),
    ("goodwatch_requests_scopes_folded_total", "counter", "", "requests counted under service and model other: too many of them"),
    ("goodwatch_heatmap_seconds", "gauge", "service, signal, quantile, input_band, output_band", "cell of the heatmap page over its default range, engine's clock"),
    ("goodwatch_heatmap_attainment_ratio", "gauge", "service, input_band, output_band", "good over valid requests of the same cell"),
    ("goodwatch_heatmap_requests", "gauge", "service, input_band, output_band", "requests of the same cell"),
)  # fmt: skip


@dataclass(slots=True)
class _Histogram:
    counts: list[float]
    sum: float = 0.0
    exemplars: list[tuple[str, float, float] | None] = field(default_factory=list)  # trace id, value, Unix seconds


@dataclass(slots=True)
class RequestSeries:
    """The series; ``add`` may run in another thread than ``families``."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _scopes: set[tuple[str, str]] = field(default_factory=set)
    _counts: defaultdict[tuple[str, str, str], list[float]] = field(
        default_factory=lambda: defaultdict(lambda: [0.0, 0.0])
    )
    _events: defaultdict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))
    _histograms: dict[tuple[str, ...], _Histogram] = field(default_factory=dict)
    _folded: float = 0.0
    _maps: tuple[tuple[str, str, Heatmap], ...] = ()  # service, measure, map

    def add(self, judged: pl.DataFrame) -> None:
        """Count requests that settled: ``FACTS`` with ``verdict``."""
        rows = judged.select(
            pl.col("service").fill_null(""), pl.col("model").fill_null(""), "verdict", "slo", "trace_id", "ended_at",
            "input_tokens", "output_tokens", *_COLUMNS.values(), w=pl.col("weight").fill_null(1.0),
        )  # fmt: skip
        with self._lock:
            for row in rows.iter_rows(named=True):
                self._one(row)

    def _one(self, row: Mapping[str, Any]) -> None:
        scope = self._scope(row["service"], row["model"])
        counted = self._counts[(*scope, row["verdict"])]
        counted[0] += row["w"]
        counted[1] += row["w"] * (row["output_tokens"] or 0)
        if row["slo"] and row["verdict"] in _VALID:
            # An override is part of the SLO that it is written in: "chat#1" counts for "chat".
            events = self._events[(scope[0], label_text(row["slo"].partition("#")[0]))]
            events[0] += row["w"]
            events[1] += row["w"] * (row["verdict"] == Verdict.GOOD.value)
        bands = (_band(row["input_tokens"]), _band(row["output_tokens"]))
        for name, column in _COLUMNS.items():
            value = row[column]
            if value is not None:
                self._observe(name, (*scope, *bands), float(value), row)

    def _scope(self, service: str, model: str) -> tuple[str, str]:
        scope = (label_text(service), label_text(model))
        if scope in self._scopes:
            return scope
        if len(self._scopes) < MAX_SCOPES:
            self._scopes.add(scope)
            return scope
        self._folded += 1
        return (OTHER, OTHER)

    def _observe(self, name: str, labels: tuple[str, ...], value: float, row: Mapping[str, Any]) -> None:
        bounds = BOUNDS_S[name]
        one = self._histograms.get((name, *labels))
        if one is None:
            size = len(bounds) + 1
            one = self._histograms[(name, *labels)] = _Histogram([0.0] * size, 0.0, [None] * size)
        place = next((i for i, bound in enumerate(bounds) if value <= bound), len(bounds))
        one.counts[place] += row["w"]
        one.sum += row["w"] * value
        held = one.exemplars[place]
        if held is None or held[2] <= row["ended_at"]:  # requests settle out of order; Prometheus refuses older ones
            one.exemplars[place] = (row["trace_id"], value, row["ended_at"])

    def show(self, maps: Sequence[tuple[str, str, Heatmap]]) -> None:
        """The maps whose cells are exported: (service, "ttft p99" | "attainment" | "requests", map)."""
        with self._lock:
            self._maps = tuple(maps)

    def families(self) -> Iterator[Metric]:
        """All families now."""
        with self._lock:
            counts = {key: tuple(value) for key, value in self._counts.items()}
            histograms = {key: _Histogram([*h.counts], h.sum, [*h.exemplars]) for key, h in self._histograms.items()}
            folded, maps = self._folded, self._maps
            events = {key: tuple(value) for key, value in self._events.items()}
        texts = {name: text for name, _, _, text in REQUEST_SERIES}
        yield from _counters(counts, texts, folded)
        yield from _events(events, texts)
        for name in BOUNDS_S:
            yield _histogram_family(name, {k[1:]: h for k, h in histograms.items() if k[0] == name})
        yield from _cells(maps, texts)


def _band(tokens: int | None) -> str:
    if tokens is None:
        return _ascii(_BANDS[-1])
    return next(_ascii(b) for b in _BANDS if b.low is not None and (b.high is None or tokens < b.high))


def _ascii(band: PageBand) -> str:
    """A band as a label that can be typed: "256-1023", "65536+"."""
    return band.text.replace("–", "-").replace(" and more", "+")


def _counters(
    counts: Mapping[tuple[str, str, str], tuple[float, ...]], texts: Mapping[str, str], folded: float
) -> Iterator[Metric]:
    for place, name in enumerate((_REQUESTS, _TOKENS)):
        family = Metric(name, texts[f"{name}_total"], "counter")
        for service, model in sorted({key[:2] for key in counts}):
            for verdict in Verdict:  # all of them from the first request on: a rate needs a zero to start from
                value = counts.get((service, model, verdict.value), (0.0, 0.0))[place]
                family.add_sample(
                    f"{name}_total", {"service": service, "model": model, "verdict": verdict.value}, value
                )
        yield family
    name = "goodwatch_requests_scopes_folded"
    family = Metric(name, texts[f"{name}_total"], "counter")
    family.add_sample(f"{name}_total", {}, folded)
    yield family


def _events(events: Mapping[tuple[str, str], tuple[float, ...]], texts: Mapping[str, str]) -> Iterator[Metric]:
    for place, name in enumerate(("goodwatch_slo_valid_events", "goodwatch_slo_good_events")):
        family = Metric(name, texts[f"{name}_total"], "counter")
        for (service, slo), values in sorted(events.items()):
            family.add_sample(f"{name}_total", {"service": service, "slo": slo}, values[place])
        yield family


def _histogram_family(name: str, histograms: Mapping[tuple[str, ...], _Histogram]) -> Metric:
    series = f"goodwatch_request_{name}_seconds"
    family = Metric(series, _TEXTS[name], "histogram")
    for key, one in sorted(histograms.items()):
        labels = dict(zip(("service", "model", "input_band", "output_band"), key, strict=True))
        total = 0.0
        for place, count in enumerate(one.counts):
            total += count
            bound = BOUNDS_S[name][place] if place < len(BOUNDS_S[name]) else None
            told = one.exemplars[place]
            exemplar = None if told is None else Exemplar({"trace_id": told[0]}, told[1], told[2])
            le = "+Inf" if bound is None else str(bound)
            family.add_sample(f"{series}_bucket", {**labels, "le": le}, total, exemplar=exemplar)
        family.add_sample(f"{series}_count", labels, total)
        family.add_sample(f"{series}_sum", labels, one.sum)
    return family


def _cells(maps: Sequence[tuple[str, str, Heatmap]], texts: Mapping[str, str]) -> Iterator[Metric]:
    """Cells that have a number; one that has none gives no sample, never 0."""
    found: dict[str, Metric] = {}
    for service, measure, made in maps:
        signal, _, quantile = measure.partition(" p")
        name = (
            f"goodwatch_heatmap_{'seconds' if quantile else {'attainment': 'attainment_ratio'}.get(measure, measure)}"
        )
        family = found.setdefault(name, Metric(name, texts[name], "gauge"))
        for cell in made.cells:
            value = cell.number.value
            if value is None or not cell.requests:
                continue
            labels = {"service": label_text(service)}
            if quantile:
                labels |= {"signal": signal, "quantile": f"0.{quantile}"}
            labels |= {"input_band": _ascii(made.inputs[cell.input]), "output_band": _ascii(made.outputs[cell.output])}
            family.add_sample(name, labels, value)
    yield from found.values()

"""Series of requests: each enters once, the page stays bounded, exemplars lead to a trace."""

import polars as pl
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from exporters.requests import MAX_SCOPES, OTHER, RequestSeries
from goodwatch.signals.heatmap import Ask, Measure, heatmap_of_facts
from tests.signals.request_parts import fact, facts

TRACE = "0af7651916cd43dd8448eb211c80319c"


def judged(*rows: dict[str, object]) -> pl.DataFrame:
    made = [
        {"service": "chat", "model": "llama", "input_tokens": 300, "output_tokens": 20, "verdict": "good", **r}
        for r in rows
    ]
    verdicts = [str(r.pop("verdict")) for r in made]
    return facts(*(fact(**r) for r in made)).with_columns(verdict=pl.Series(verdicts), slo=pl.lit("chat"))


def samples(series: RequestSeries) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in series.families() for s in family.samples}


def value(series: RequestSeries, name: str, **labels: str) -> float | None:
    return samples(series).get((name, tuple(sorted(labels.items()))))


def test_a_request_enters_its_verdict_and_its_histograms() -> None:
    series = RequestSeries()
    series.add(judged({"engine_ttft_s": 0.3, "trace_id": TRACE}, {"verdict": "bad", "engine_ttft_s": 3.0}))
    assert value(series, "goodwatch_requests_total", service="chat", model="llama", verdict="good") == 1
    assert value(series, "goodwatch_requests_total", service="chat", model="llama", verdict="undetermined") == 0
    bands = {"service": "chat", "model": "llama", "input_band": "256-1023", "output_band": "0-255"}
    assert value(series, "goodwatch_request_ttft_seconds_bucket", **bands, le="0.25") == 0
    assert value(series, "goodwatch_request_ttft_seconds_bucket", **bands, le="0.5") == 1
    assert value(series, "goodwatch_request_ttft_seconds_count", **bands) == 2
    assert value(series, "goodwatch_request_ttft_seconds_sum", **bands) == 3.3


def test_a_sampled_request_counts_for_those_that_were_not_kept() -> None:
    series = RequestSeries()
    series.add(judged({"weight": 10.0}))
    assert value(series, "goodwatch_requests_total", service="chat", model="llama", verdict="good") == 10
    assert value(series, "goodwatch_request_output_tokens_total", service="chat", model="llama", verdict="good") == 200


def test_an_slo_counts_its_valid_and_its_good_requests_overrides_included() -> None:
    series = RequestSeries()
    rows = judged({}, {"verdict": "bad"}, {"verdict": "not_valid"}, {"verdict": "undetermined"})
    series.add(pl.concat([rows, rows.with_columns(slo=pl.lit("chat#1"))]))
    assert value(series, "goodwatch_slo_valid_events_total", service="chat", slo="chat") == 4
    assert value(series, "goodwatch_slo_good_events_total", service="chat", slo="chat") == 2


def test_exemplars_name_the_trace_and_the_page_is_openmetrics() -> None:
    series = RequestSeries()
    series.add(judged({"engine_ttft_s": 0.3, "trace_id": TRACE}))

    class Source:
        def collect(self) -> list[Metric]:
            return list(series.families())

    registry = CollectorRegistry()
    registry.register(Source())  # type: ignore[arg-type]
    text = generate_latest(registry).decode()
    found = [
        s.exemplar for f in text_string_to_metric_families(text) for s in f.samples
        if s.name == "goodwatch_request_ttft_seconds_bucket" and s.exemplar
    ]  # fmt: skip
    assert [(e.labels, e.value) for e in found] == [({"trace_id": TRACE}, 0.3)]


def test_services_that_somebody_makes_up_are_folded_into_one() -> None:
    series = RequestSeries()
    series.add(judged(*({"service": f"s{n}"} for n in range(MAX_SCOPES + 5))))
    assert value(series, "goodwatch_requests_total", service=OTHER, model=OTHER, verdict="good") == 5
    assert value(series, "goodwatch_requests_scopes_folded_total") == 5
    assert (
        len({labels for name, labels in samples(series) if name == "goodwatch_requests_total"}) == (MAX_SCOPES + 1) * 4
    )


def test_a_cell_of_the_map_is_the_same_number_and_an_empty_one_is_no_sample() -> None:
    rows = judged(*({"engine_ttft_s": 0.1 + n / 1000} for n in range(200)))
    made = heatmap_of_facts(rows, Ask(Measure.LATENCY, 0.99, "engine_ttft_s"))
    series = RequestSeries()
    series.show([("chat", "ttft p99", made)])
    cells = {k: v for k, v in samples(series).items() if k[0] == "goodwatch_heatmap_seconds"}
    labels = {"service": "chat", "signal": "ttft", "quantile": "0.99", "input_band": "256-1023", "output_band": "0-63"}
    assert cells == {
        ("goodwatch_heatmap_seconds", tuple(sorted(labels.items()))): 0.1 + 197 / 1000
    }  # ⌈0.99 · 200⌉ = 198th


def test_a_length_that_nobody_told_has_a_band_of_its_own() -> None:
    series = RequestSeries()
    series.add(judged({"input_tokens": None, "output_tokens": None, "engine_ttft_s": 0.1}))
    bands = {"service": "chat", "model": "llama", "input_band": "unknown", "output_band": "unknown"}
    assert value(series, "goodwatch_request_ttft_seconds_count", **bands) == 1

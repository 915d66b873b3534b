"""Boards of an engine's or an accelerator exporter's own series: they work without goodwatch running.

One builder for all: what a board shows follows from the table of the engine, and so do names of old and new versions,
what to say where there is no data, and the list of what the engine does not tell.
"""

from collections.abc import Iterator
from typing import Any, Final

from dashboards.natives import TARGET, Natives
from dashboards.promql import ratio
from dashboards.values import GREEN, ORANGE, RED, Board, Options, Panel, Query, Row, Step, Variable
from goodwatch.core.catalogue import ACCELERATOR_SIGNALS, CATALOGUE, OWN
from goodwatch.core.engine import Engine

_INSTANCE: Final = "{{instance}}"
_LATENCIES: Final = {
    "ttft_seconds": "Time to first token", "tpot_seconds": "Time per output token", "itl_seconds": "Time between tokens",
    "e2e_seconds": "End to end", "queue_seconds": "Queue time", "prefill_seconds": "Prefill time", "decode_seconds": "Decode time",
}  # fmt: skip
_QUANTILE_NOTE: Final = (
    "Buckets of all picked targets are added up and the quantile is interpolated inside one: in the lowest bucket it is made up, "
    "and it never passes the top bound. Requests that were aborted, refused or timed out are not in it."
)


def engine_board(options: Options, name: str) -> Board:
    """The board of one engine kind."""
    table = options.engines[name]
    natives = Natives(table, options.versions.get(name, ""))
    made = (
        Row(f"Do the {table.title} engines keep up?", tuple(_now(natives))),
        Row("Latency", tuple(_latency(natives))),
        Row("Tokens", tuple(_tokens(natives))),
        Row("Requests", tuple(_requests(natives))),
        Row("Cache", tuple(_cache(natives))),
        Row("Speculative decoding", tuple(_speculation(natives))),
        Row("What this engine does not tell", (_untold(natives),), collapsed=True),
    )
    return Board(
        f"goodwatch-engine-{name}", f"{table.title} engine", f"Do the {table.title} engines keep up, and what holds them back? "
        "Read from the engine's own series.",
        tuple(row for row in made if row.panels), _pickers(natives), tags=("engine", name), range_from="now-1h",
    )  # fmt: skip


def accelerator_board(options: Options, name: str) -> Board:
    """The board of one exporter of accelerators."""
    table = options.accelerators[name]
    natives = Natives(table, options.versions.get(name, ""))
    rows = (
        Row("Do the devices work, and are they healthy?", tuple(_devices(natives))),
        Row("What this exporter does not tell", (_untold(natives),), collapsed=True),
    )
    return Board(
        f"goodwatch-gpu-{name}", f"GPU: {table.title}", "Do the devices work, and are they healthy? Busy is not useful: compare with tokens a second.",
        rows, _pickers(natives), tags=("gpu", name), range_from="now-1h",
    )  # fmt: skip


def _pickers(natives: Natives) -> tuple[Variable, ...]:
    names = "|".join(natives.names(natives.table.signals)[:12])
    anything = f'{{__name__=~"{names}"}}'
    of_job = f'{{__name__=~"{names}",job=~"$job"}}'
    pickers = (
        Variable("job", "Job", f"label_values({anything}, job)"),
        Variable("instance", "Instance", f"label_values({of_job}, instance)"),
    )
    more = (("model", "Model", natives.model_label), ("engine", "Engine (rank)", natives.rank_label))
    return (
        *pickers,
        *(
            Variable(name, title, f"label_values({of_job}, {label})", everything=".*")
            for name, title, label in more
            if label
        ),
    )


def _panel(natives: Natives, signal: str, title: str, queries: tuple[Query, ...], unit: str, **more: Any) -> Panel:
    """A panel of one signal: definition, series and remarks, and the reason when there is no data."""
    definition = CATALOGUE[signal].definition
    absent = natives.table.absent.get(signal)
    why = absent.why if absent else ""
    text = f"{definition[0].upper()}{definition[1:]}. {more.pop('note', '')} {natives.notes(signal)}".replace("  ", " ")
    return Panel(
        more.pop("kind", "timeseries"), title, text, queries, unit, no_data=f"No data: {why}"[:120] if why else "No data",
        why_empty=why, **{"low": 0, **more},
    )  # fmt: skip


def _level(
    natives: Natives, signal: str, title: str, unit: str = "short", combine: str = "sum", **more: Any
) -> Iterator[Panel]:
    if natives.has(signal):
        yield _panel(natives, signal, title, (Query(natives.level(signal, combine=combine), _INSTANCE),), unit, **more)


def _rate(natives: Natives, signal: str, title: str, unit: str = "short", **more: Any) -> Iterator[Panel]:
    if natives.has(signal):
        yield _panel(natives, signal, title, (Query(natives.rate(signal), _INSTANCE),), unit, **more)


def _now(natives: Natives) -> Iterator[Panel]:
    def stat(signal: str, title: str, expr: str, unit: str, **more: Any) -> Iterator[Panel]:
        if natives.has(signal):
            yield _panel(
                natives, signal, title, (Query(expr, "", "now"),), unit, kind="stat", width=4, height=5, **more
            )

    yield from stat("requests_running", "Running now", natives.level("requests_running", ()), "short", decimals=0)
    yield from stat("requests_waiting", "Waiting now", natives.level("requests_waiting", ()), "short", decimals=0)
    yield from stat(
        "kv_cache_used_ratio", "KV cache, fullest now", natives.level("kv_cache_used_ratio", (), combine="max"), "percentunit", high=1,
        note="A full cache is normal under load: look at preemptions and waiting requests.",
    )  # fmt: skip
    yield from stat(
        "requests_finished_total", "Requests finished a second", natives.rate("requests_finished_total", ()), "reqps"
    )
    yield from stat(
        "output_tokens_total", "Output tokens a second now", natives.rate("output_tokens_total", ()), "short"
    )
    if natives.has("ttft_seconds"):
        yield from stat(
            "ttft_seconds",
            "Time to first token, P99 now",
            natives.quantile("ttft_seconds", 0.99),
            "s",
            note=_QUANTILE_NOTE,
        )


def _latency(natives: Natives) -> Iterator[Panel]:
    for signal, title in _LATENCIES.items():
        if not natives.has(signal):
            continue
        quantiles = tuple(Query(natives.quantile(signal, q), f"p{q * 100:.0f}") for q in (0.5, 0.9, 0.99))
        yield _panel(natives, signal, title, quantiles, "s", note=_QUANTILE_NOTE, width=8)
        yield _panel(
            natives, signal, f"{title}, mean by instance", (Query(natives.mean(signal), _INSTANCE),), "s", width=8,
            note="Sum over count of the range.",
        )  # fmt: skip
        yield _panel(
            natives, signal, f"{title}, distribution", (Query(natives.buckets(signal, "increase"), "{{le}}", "buckets"),), "s",
            kind="heatmap", width=8, note="Observations by bucket, nothing interpolated.",
        )  # fmt: skip


def _tokens(natives: Natives) -> Iterator[Panel]:
    late = "They move when a request ends, so the rate comes in steps." if natives.table.tokens_step_at_finish else ""
    yield from _rate(natives, "input_tokens_total", "Input tokens a second", note=late)
    yield from _rate(natives, "output_tokens_total", "Output tokens a second", note=late)
    yield from _rate(natives, "cached_input_tokens_total", "Cached input tokens a second", note=late)
    yield from _split(natives, "realtime_tokens_total", "Tokens as they are processed", "short")
    for signal, title in (("input_length_tokens", "Input lengths"), ("output_length_tokens", "Output lengths")):
        if natives.has(signal):
            yield _panel(
                natives, signal, title, (Query(natives.buckets(signal, "increase"), "{{le}}", "buckets"),), "short", kind="heatmap", width=12,
                options={"yAxis": {"axisPlacement": "left", "reverse": False, "unit": "short"}},
            )  # fmt: skip


def _split(natives: Natives, signal: str, title: str, unit: str, **more: Any) -> Iterator[Panel]:
    """A counter by the label that the engine splits it by."""
    parts = natives.parts(signal)
    if natives.has(signal) and parts:
        legend = " ".join(f"{{{{{part}}}}}" for part in parts)
        query = Query(natives.rate(signal, parts), legend)
        yield _panel(
            natives,
            signal,
            title,
            (query,),
            unit,
            custom={"stacking": {"group": "A", "mode": "normal"}, "fillOpacity": 30},
            **more,
        )


def _requests(natives: Natives) -> Iterator[Panel]:
    yield from _level(natives, "requests_running", "Running requests")
    yield from _level(natives, "requests_waiting", "Waiting requests")
    parts = natives.parts("requests_waiting_by_reason")
    if parts:
        levels = Query(
            natives.level("requests_waiting_by_reason", parts), " ".join(f"{{{{{part}}}}}" for part in parts)
        )
        yield _panel(natives, "requests_waiting_by_reason", "Waiting requests by reason", (levels,), "short")
    if natives.parts("requests_finished_total"):
        yield from _split(natives, "requests_finished_total", "Finished requests by reason", "reqps")
    else:
        yield from _rate(natives, "requests_finished_total", "Finished requests", "reqps")
    yield from _split(natives, "http_requests_total", "HTTP answers by status", "reqps")
    yield from _rate(natives, "requests_failed_total", "Failed requests", "reqps")
    yield from _rate(natives, "requests_rejected_total", "Rejected requests", "reqps")
    yield from _rate(natives, "requests_aborted_total", "Aborts", "reqps")
    yield from _level(natives, "requests_paused", "Paused requests")
    yield from _level(natives, "requests_swapped", "Swapped requests")
    yield from _level(natives, "requests_in_flight", "Open HTTP requests")


def _cache(natives: Natives) -> Iterator[Panel]:
    yield from _level(
        natives, "kv_cache_used_ratio", "KV cache in use", "percentunit", "max", high=1,
        note="A full cache is normal under load: look at preemptions and waiting requests.",
    )  # fmt: skip
    if natives.has("prefix_cache_hits_total", "prefix_cache_queries_total", scaled=False):
        share = natives.share("prefix_cache_hits_total", "prefix_cache_queries_total")
        yield _panel(
            natives, "prefix_cache_hits_total", "Prefix cache hits", (Query(share, _INSTANCE),), "percentunit", high=1,
            note="Shown over what was looked up.",
        )  # fmt: skip
    else:
        yield from _level(
            natives, "prefix_cache_hit_ratio", "Prefix cache hits, as the engine says", "percentunit", "max", high=1
        )
    yield from _rate(natives, "preemptions_total", "Preemptions a second")
    yield from _level(natives, "kv_cache_capacity_tokens", "KV cache size, tokens")


def _speculation(natives: Natives) -> Iterator[Panel]:
    if natives.has("spec_accepted_tokens_total", "spec_draft_tokens_total"):
        share = natives.share("spec_accepted_tokens_total", "spec_draft_tokens_total")
        yield _panel(natives, "spec_accepted_tokens_total", "Accepted draft tokens", (Query(share, _INSTANCE),), "percentunit", high=1,
                     note="Shown over what was proposed.")  # fmt: skip
    yield from _rate(natives, "spec_drafts_total", "Verify steps a second")
    yield from _level(natives, "spec_accept_length", "Accepted length, as the engine says", combine="max")


_DEVICE_PANELS: Final = (
    ("gpu_utilisation_ratio", "Busy", "percentunit", 1.0),
    ("gpu_sm_active_ratio", "Multiprocessors active", "percentunit", 1.0),
    ("gpu_tensor_active_ratio", "Tensor units active", "percentunit", 1.0),
    ("gpu_memory_bandwidth_ratio", "Memory moves data", "percentunit", 1.0),
    ("gpu_memory_used_bytes", "Memory in use", "bytes", None),
    ("gpu_power_watts", "Power", "watt", None),
    ("gpu_temperature_celsius", "Temperature", "celsius", None),
    ("gpu_clock_hertz", "Clock", "hertz", None),
    ("gpu_throttled_ratio", "Clock held down", "percentunit", 1.0),
)


def _devices(natives: Natives) -> Iterator[Panel]:
    labels = tuple(label for label in natives.table.sum_labels if label not in TARGET)
    by, legend = (*TARGET, *labels), " ".join(f"{{{{{label}}}}}" for label in ("instance", *labels))

    def level(signal: str) -> str:
        return natives.level(signal, by, combine="max")

    if natives.has("gpu_healthy"):
        yield _panel(natives, "gpu_healthy", "Devices that call themselves healthy", (Query(level("gpu_healthy"), legend),), "short",
                     kind="state-timeline", width=24, height=5, steps=(Step(None, RED), Step(1.0, GREEN)))  # fmt: skip
    if natives.has("gpu_error_code"):
        yield _panel(natives, "gpu_error_code", "Last error code", (Query(level("gpu_error_code"), legend),), "short", kind="state-timeline",
                     width=24, height=5, steps=(Step(None, GREEN), Step(1.0, ORANGE)))  # fmt: skip
    for signal, title, unit, high in _DEVICE_PANELS:
        if natives.has(signal):
            yield _panel(natives, signal, title, (Query(level(signal), legend),), unit, high=high)
    if natives.has("gpu_memory_used_bytes", "gpu_memory_total_bytes"):
        share = ratio(level("gpu_memory_used_bytes"), level("gpu_memory_total_bytes"))
        yield _panel(
            natives, "gpu_memory_total_bytes", "Memory in use, share", (Query(share, legend),), "percentunit", high=1
        )
    for signal, title, unit in (
        ("gpu_energy_joules_total", "Energy a second", "watt"),
        ("gpu_errors_total", "Errors a second", "short"),
    ):
        if natives.has(signal):
            yield _panel(natives, signal, title, (Query(natives.rate(signal, by), legend),), unit)


def _untold(natives: Natives) -> Panel:
    table: Engine = natives.table
    wanted = ACCELERATOR_SIGNALS if table.role == "accelerator" else [
        name for name, signal in CATALOGUE.items() if name not in OWN and signal.group != "accelerator"
    ]  # fmt: skip
    lines = []
    for name in sorted(wanted):
        absent = table.absent.get(name)
        if not natives.has(name) and not natives.has(name, scaled=False) and absent:
            lines.append(
                f"- **{CATALOGUE[name].definition}**: {absent.why}"
                + (f". Instead: {absent.instead}" if absent.instead else "")
            )
    hints = [f"- {hint}" for hint in table.hints.values()]
    content = "\n".join((*lines, "", "Good to know:", "", *hints))
    return Panel(
        "text",
        "Not told, and why",
        "What goodwatch knows of this engine's gaps.",
        (),
        "",
        24,
        10,
        options={"content": content},
    )

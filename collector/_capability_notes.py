"""What to watch out for on a page: warnings and facts, each one sentence for a person. Pure."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from collector.families import family_key
from collector.neighbours import is_only_router, is_router, neighbour_of
from collector.normalise import Resolved
from collector.pipeline import Understood
from goodwatch.core.engine import Engine
from goodwatch.core.histogram import INF, merged, neighbours
from goodwatch.core.model import Histogram, Limits

#: With fewer requests than this, a difference between replicas or ranks is chance.
_FEW: Final = 30
_YEAR_10000_S: Final = 253_402_300_800.0
_SIGNAL_TITLES: Final = {"ttft_seconds": "TTFT", "tpot_seconds": "TPOT", "e2e_seconds": "E2E"}


@dataclass(frozen=True, slots=True)
class Remark:
    """Something on the page that trips a monitor ("warning"), or a fact worth knowing ("note")."""

    code: str
    level: Literal["note", "warning"]
    text: str


def remarks(understood: Understood, limits: Limits, now_s: float | None) -> tuple[Remark, ...]:
    """All remarks on one page, warnings first."""
    engine, reading = understood.engine, understood.reading
    if engine is None or reading is None:
        return (*_problems(understood), *_router(understood), *_stranger(understood))
    if engine.role == "accelerator":  # collector.accelerators says the rest
        return tuple(_problems(understood))
    found = reading.resolved
    every = [
        *_problems(understood), *_router(understood), *_switched_off(understood, engine), *_targets(found, limits),
        *_ranks(found, engine), *_names(found), *_roles(understood, engine), *_semantics(found, engine),
        *_completeness(understood, found), *_capacity(found), *_start(found, now_s), *_layer(engine),
    ]  # fmt: skip
    return tuple(sorted(every, key=lambda r: r.level != "warning"))


def _problems(understood: Understood) -> Iterable[Remark]:
    problems = understood.page.problems
    if problems:
        first = problems[0]
        more = f" ({len(problems) - 1} more lines like it or otherwise odd)" if len(problems) > 1 else ""
        yield Remark("page_problems", "warning", f"line {first.line}: {first.text}; the rest was read{more}")


def _stranger(understood: Understood) -> Iterable[Remark]:
    neighbour = neighbour_of(understood.families)
    if is_only_router(understood.families):
        return
    if neighbour is not None:
        yield Remark("neighbour", "note", f"This is a page of {neighbour.title}. {neighbour.advice}")
    elif not understood.page.samples:
        yield Remark(
            "empty", "warning", "There is no sample on this page. Is this the metrics path, and are metrics on?"
        )
    elif all(f.name.startswith(("http_", "process_", "python_")) for f in understood.families):
        yield Remark(
            "metrics_off", "warning",
            "Only process and HTTP series are here: metrics are off (vLLM: --disable-log-stats is set), "
            "or this is a router's port. Scrape the engine's own port.",
        )  # fmt: skip
    else:
        yield Remark(
            "unknown_engine", "warning",
            "No engine that goodwatch knows wrote this page (`goodwatch version` lists them). TensorRT-LLM 1.1 and 1.2 "
            "name their series without a prefix: they are read once the engine is set to trtllm.",
        )  # fmt: skip


def _router(understood: Understood) -> Iterable[Remark]:
    if is_router(understood.families):
        yield Remark(
            "router", "warning",
            "A router re-exports engine names here (label server) and is no engine: scrape the engines for engine "
            "health, and leave this page out of sums, or every request counts twice.",
        )  # fmt: skip


def _switched_off(understood: Understood, engine: Engine) -> Iterable[Remark]:
    """Nothing under the engine's prefix has a value: the wrong engine was set, or its metrics are off."""
    prefixes = tuple(family_key(p) for p in engine.prefixes)
    reading = understood.reading
    if any(family_key(f.name).startswith(prefixes) and f.series for f in understood.families):
        return
    if reading is not None and any(r.source.declared_only for r in reading.resolved.values()):
        return
    other = understood.detected
    if other is not None and other.name != engine.name:
        yield Remark(
            "other_engine", "warning",
            f"The target is set to {engine.title}, and the names here are {other.title}'s: nothing of it is read. "
            f"Set the engine to {other.name}, or leave it out.",
        )  # fmt: skip
    else:
        named = any(family_key(f.name).startswith(prefixes) for f in understood.families)
        text = f"{engine.title}'s series are named here, but none has a value yet: nothing happened, or a flag is off."
        yield Remark("no_values", "warning", text if named or "off" not in engine.hints else engine.hints["off"])


def _targets(found: Mapping[str, Resolved], limits: Limits) -> Iterable[Remark]:
    for signal, limit in limits.items():
        if signal not in found:
            continue
        title, whole = _SIGNAL_TITLES[signal], _whole(found[signal])
        if whole is None:
            continue
        below, above = neighbours(whole.le, limit)
        if above is None:
            top = f"{below:g} s" if below is not None else "none"
            yield Remark(
                "target_above_top_bucket", "warning",
                f"{title} target {limit:g} s lies above the top bucket ({top}): a slower request cannot be told from "
                "one that just made it. Use another series for this SLO, or a target at a bound.",
            )  # fmt: skip
        elif below != above:
            near = f"{below:g} s and {above:g} s" if below is not None else f"{above:g} s (the lowest bound)"
            yield Remark(
                "target_not_a_bound", "warning",
                f"{title} target {limit:g} s is not a bucket bound; the nearest are {near}. Attainment will be an "
                "interval. Move the target to a bound for an exact answer.",
            )  # fmt: skip


def _ranks(found: Mapping[str, Resolved], engine: Engine) -> Iterable[Remark]:
    repeated = max((r.repeated for r in found.values()), default=1)
    if repeated > 1:
        labels = ", ".join((*engine.repeat_labels, "pid"))
        yield Remark(
            "repeated_ranks", "warning",
            f"Up to {repeated} series repeat one value ({labels}): one is taken. A plain sum would be {repeated} times off.",
        )  # fmt: skip
    if any(r.unlike_bounds for r in found.values()):
        yield Remark("unlike_bounds", "warning", "Histograms with unlike bounds are merged on the bounds they share.")
    ranks = {v.rank for r in found.values() for v in r.values if v.rank}
    if len(ranks) > 1:
        finished = found.get("requests_finished_total") or found.get("input_length_tokens")
        seen = sum((v.value or (v.histogram.total if v.histogram else 0.0)) for v in finished.values) if finished else 0
        few = " Too few requests to say whether the load is even." if seen < _FEW else ""
        yield Remark(
            "ranks", "note",
            f"{len(ranks)} engines are on this page ({', '.join(sorted(ranks)[:4])}{', …' if len(ranks) > 4 else ''}); "
            f"their counters are added.{few}",
        )  # fmt: skip


def _names(found: Mapping[str, Resolved]) -> Iterable[Remark]:
    ratio = [
        r.wire for r in found.values() if r.signal.unit == "ratio" and r.wire.lower().endswith(("perc", "percent"))
    ]
    if ratio:
        yield Remark(
            "percent_named_ratio", "note", f"{ratio[0]} is named per cent but is a ratio 0..1; it is read as one."
        )
    old = [r for r in found.values() if r.source.until and r.signal.kernel]
    if old:
        last = ", ".join(sorted({r.source.until for r in old if r.source.until}))
        pairs = ", ".join(f"{r.wire} as {r.signal.name}" for r in old)
        yield Remark("old_name", "note", f"Old names (last in {last}) are read as what they mean now: {pairs}.")


def _roles(understood: Understood, engine: Engine) -> Iterable[Remark]:
    if engine.role_label is None:
        return
    roles = {s.labels.get(engine.role_label, "") for f in understood.families for s in f.series}
    for role in sorted(roles & {"prefill", "decode"}):
        yield Remark(
            "disaggregated", "warning",
            f"This is a {role} worker of a disaggregated deployment: each request appears on both roles with part of "
            "its latency. Neither role's TTFT is the client's; count prompt tokens on prefill, finished requests on decode.",
        )  # fmt: skip


def _semantics(found: Mapping[str, Resolved], engine: Engine) -> Iterable[Remark]:
    if engine.tokens_step_at_finish and "output_tokens_total" in found:
        yield Remark(
            "tokens_step_at_finish", "note",
            "Token counters step when a request ends: rates over short windows jump, and a long generation shows no "
            "tokens until it is done.",
        )  # fmt: skip
    if engine.finished_counts_aborts and found.keys() & {"requests_finished_total", "e2e_seconds"}:
        yield Remark(
            "finished_counts_aborts", "note", "Aborted requests are in the finished counter and the E2E histogram."
        )
    elif "e2e_seconds" in found and not engine.finished_counts_aborts and engine.role == "engine":
        yield Remark(
            "survivors", "note",
            "Requests that the client dropped leave no entry in the finished counter and the latency histograms: "
            "those show survivors. goodwatch counts the missing from HTTP responses where the page has them.",
        )  # fmt: skip


def _layer(engine: Engine) -> Iterable[Remark]:
    if engine.role not in ("worker", "router", "gateway"):
        return
    what = "is the process around an engine" if engine.role == "worker" else f"is a {engine.role}, not an engine"
    yield Remark(
        "layer", "note",
        f"{engine.title} {what}: it sees the same requests as the engines behind it. A service that has both is summed "
        "from the engines; this page's numbers stay with this target.",
    )  # fmt: skip


def _completeness(understood: Understood, found: Mapping[str, Resolved]) -> Iterable[Remark]:
    cut = sorted(r.wire for r in found.values() if any(not v.closed for v in r.values))
    if cut:
        yield Remark(
            "histogram_cut", "warning",
            f"{', '.join(cut[:3])}: neither _count nor the +Inf bucket is on the page, so the number of observations "
            "is not known; no quantile is given.",
        )  # fmt: skip
    if understood.families.nan_count:
        count = understood.families.nan_count
        yield Remark(
            "nan", "note", f"{count} series {'holds' if count == 1 else 'hold'} NaN, which is read as no value."
        )
    few = [r for r in found.values() if (w := _whole(r)) is not None and 0 < w.total < 10 and r.signal.unit == "s"]
    if few:
        means = ", ".join(
            f"{r.signal.name} mean {w.sum / w.total * 1e3:.3g} ms"
            for r in few[:4]
            if (w := _whole(r)) and w.sum is not None
        )
        if means:
            yield Remark(
                "few_observations", "note", f"Too few observations for quantiles; the means are exact: {means}."
            )


def _capacity(found: Mapping[str, Resolved]) -> Iterable[Remark]:
    capacity, longest = _highest(found, "kv_cache_capacity_tokens"), _highest(found, "max_model_len_tokens")
    slots = _highest(found, "max_running_requests")
    if capacity and longest:
        yield Remark(
            "kv_capacity", "note",
            f"The KV pool of {capacity:,.0f} tokens holds {capacity / longest:.2f} requests of the full {longest:,.0f} tokens.",
        )  # fmt: skip
    if capacity and slots and longest and capacity / slots < longest / 4:
        yield Remark(
            "kv_per_slot", "warning",
            f"{slots:,.0f} requests may run at once, which leaves {capacity / slots:.1f} tokens of KV each: only short "
            "requests can use all slots.",
        )  # fmt: skip


def _start(found: Mapping[str, Resolved], now_s: float | None) -> Iterable[Remark]:
    start = _highest(found, "process_start_seconds")
    if start is None:
        yield Remark(
            "no_process_start", "note",
            "The page does not tell when the process started: a restart is only seen when counters fall.",
        )  # fmt: skip
        return
    up = "" if now_s is None or now_s < start else f", up {_span(now_s - start)}"
    yield Remark("process_start", "note", f"The process started at {moment(start)}{up}.")


def moment(unix_s: float) -> str:
    """A time in UTC for a person; the bare number when no calendar has it."""
    if not 0 <= unix_s < _YEAR_10000_S:
        return f"{unix_s:g} s since 1970"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_s))


def _span(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    return (
        f"{days} d {hours} h" if days else f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
    )


def _highest(found: Mapping[str, Resolved], name: str) -> float | None:
    """The highest of a gauge's values: what one engine has, not the sum of several."""
    values = [v.value for v in found[name].values if v.value is not None] if name in found else []
    return max(values, default=None)


def _whole(resolved: Resolved) -> Histogram | None:
    if any(not v.closed for v in resolved.values):
        return None
    whole = merged(v.histogram for v in resolved.values if v.histogram is not None)
    return whole if whole is not None and any(b != INF for b in whole.le) else None

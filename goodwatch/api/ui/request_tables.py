"""Requests as tables, and one request taken apart: its stages, targets, spans and scores. Pure.

Each vantage point has a line of its own. Their clocks are others, so nothing is added or taken off between them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from goodwatch.api.ui.format import digits, seconds
from goodwatch.core.request import Vantage
from goodwatch.signals.attainment_limits import LimitsTable

UNKNOWN: Final = "–"
WIDTH: Final = 600.0
#: a stage that is there can be seen
_LEAST: Final = 1.5
#: stages that the clocks of one engine put slightly beyond its end are rounding, not a fault
_SLACK_RATIO: Final = 0.01
_ROUNDING_RATIO: Final = 1e-6
_SHORTEST_S: Final = 1e-9  # what no clock can tell from nothing
VERDICT_TONES: Final = {"good": "good", "bad": "bad", "undetermined": "warning", "not_valid": ""}
STATUS_TONES: Final = {"error": "bad", "timeout": "bad", "refused": "bad", "aborted": "warning"}
_STAGES: Final = (("queue", "engine_queue_s"), ("prefill", "engine_prefill_s"), ("decode", "engine_decode_s"))
_TARGETS: Final = (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E"))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the list: title, field, and how it is written."""

    title: str
    field: str
    kind: str  # "text", "tokens", "s"


_FIRST: Final = (
    Column("Model", "model", "model"), Column("Tenant", "tenant", "text"), Column("Adapter", "adapter", "text"),
    Column("Route", "route", "text"), Column("Target", "target", "text"), Column("In", "input_tokens", "tokens"),
    Column("Out", "output_tokens", "tokens"), Column("Queue", "engine_queue_s", "s"),
)  # fmt: skip
_LATENCIES: Final = {
    Vantage.ENGINE: (("TTFT", "engine_ttft_s"), ("TPOT", "engine_tpot_s"), ("E2E", "engine_e2e_s")),
    Vantage.GATEWAY: (("TTFT", "gateway_ttft_s"), ("E2E", "gateway_e2e_s")),
    Vantage.CLIENT: (("TTFT", "client_ttft_s"), ("E2E", "client_e2e_s")),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One request of the list."""

    trace_id: str
    ended_at: float
    verdict: str
    tone: str
    missed: str
    status: str
    status_tone: str
    cells: tuple[tuple[str, str, bool], ...]  # text, full text for the pointer, whether it is a number


def columns_of(rows: pl.DataFrame) -> tuple[Column, ...]:
    """The columns that any of these requests has a value in; latencies say their vantage point."""
    timed = [
        Column(f"{title} {vantage.value}", field, "s") for vantage in Vantage for title, field in _LATENCIES[vantage]
    ]
    told = (c for c in (*_FIRST, *timed) if rows[c.field].null_count() < rows.height)
    return tuple(c for c in told if not _same(rows, c))


def same_texts(rows: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """What is the same in all of several requests, said once."""
    return tuple((c.title, str(rows[c.field][0])) for c in _FIRST if _same(rows, c))


def _same(rows: pl.DataFrame, column: Column) -> bool:
    wordy = column.kind in ("text", "model") and rows.height > 1
    return wordy and rows[column.field].n_unique() == 1 and rows[column.field][0] is not None


def list_rows(rows: pl.DataFrame, columns: Sequence[Column], short: Mapping[str, str]) -> tuple[Row, ...]:
    """Requests in the order given; ``short`` has the short names of models."""
    return tuple(_row(one, columns, short) for one in rows.rows(named=True))


def _row(one: Mapping[str, Any], columns: Sequence[Column], short: Mapping[str, str]) -> Row:
    cells = tuple(
        (
            _text(one[c.field], c.kind, short),
            "" if one[c.field] is None else str(one[c.field]),
            c.kind in ("tokens", "s"),
        )
        for c in columns
    )
    return Row(
        one["trace_id"], one["ended_at"], verdict_text(one["verdict"]), VERDICT_TONES.get(one["verdict"], ""),
        missed_text(one["missed"]), one["status"] or "unknown", STATUS_TONES.get(one["status"] or "", ""), cells,
    )  # fmt: skip


def verdict_text(verdict: str) -> str:
    """A verdict in words."""
    return verdict.replace("_", " ")


def missed_text(missed: Iterable[str] | None) -> str:
    """Targets that were missed, in words."""
    return ", ".join(name.upper() for name in missed or ())


def _text(value: Any, kind: str, short: Mapping[str, str]) -> str:
    if value is None:
        return UNKNOWN
    if kind == "s":
        return seconds(value)
    if kind == "tokens":
        return f"{value:,}"
    return short.get(value, str(value)) if kind == "model" else str(value)


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a line: where it lies on ``WIDTH``, and in words. ``name`` is also its colour."""

    name: str
    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """One vantage point's view of one request."""

    vantage: str
    total: str
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]


def lines_of(fact: Mapping[str, Any]) -> tuple[Line, ...]:
    """The engine's stages, then what gateway and client saw, on one scale."""
    told = [fact[f"{v.value}_{name}_s"] or 0.0 for v in Vantage for name in ("ttft", "e2e")]
    longest = max(*told, sum(fact[field] or 0.0 for _, field in _STAGES))
    scale = WIDTH / longest if longest > _SHORTEST_S else 0.0
    found = [_engine_line(fact, scale)] + [_outer_line(fact, v, scale) for v in (Vantage.GATEWAY, Vantage.CLIENT)]
    return tuple(line for line in found if line is not None)


def _engine_line(fact: Mapping[str, Any], scale: float) -> Line | None:
    e2e, ttft = fact["engine_e2e_s"], fact["engine_ttft_s"]
    told = [(name, fact[field]) for name, field in _STAGES if fact[field] is not None]
    if e2e is None and ttft is None and not told:
        return None
    notes = []
    missing = [name for name, field in _STAGES if fact[field] is None]
    if not told and e2e is not None and ttft is not None:
        told = [("until first token", ttft), ("after it", e2e - ttft)]
    elif e2e is not None and told:
        rest = e2e - sum(length for _, length in told)
        if rest >= e2e * _ROUNDING_RATIO:
            told.append(("rest", rest))
        elif -rest > e2e * _SLACK_RATIO:
            notes.append(
                f"the stages add up to {seconds(e2e - rest)}, more than the E2E: they overlap or clocks differ"
            )
    if missing:
        notes.append(f"not told: {', '.join(missing)}")
    return Line("engine", _total(e2e), _laid(told, scale), tuple(notes))


def _outer_line(fact: Mapping[str, Any], vantage: Vantage, scale: float) -> Line | None:
    e2e, ttft = fact[f"{vantage.value}_e2e_s"], fact[f"{vantage.value}_ttft_s"]
    if e2e is None and ttft is None:
        return None
    if e2e is None:
        return Line(vantage.value, _total(None), _laid([("until first token", ttft)], scale), ())
    if ttft is None:
        return Line(vantage.value, _total(e2e), _laid([("whole request", e2e)], scale), ("TTFT not told",))
    return Line(vantage.value, _total(e2e), _laid([("until first token", ttft), ("after it", e2e - ttft)], scale), ())


def _total(e2e: float | None) -> str:
    return "E2E not told" if e2e is None else f"E2E {seconds(e2e)}"


def _laid(told: Iterable[tuple[str, float]], scale: float) -> tuple[Stage, ...]:
    stages, at = [], 0.0
    for name, length in told:
        width = max(0.0, length) * scale
        stages.append(
            Stage(name, round(min(at, WIDTH - _LEAST), 2), round(max(_LEAST, width), 2), f"{name} {seconds(length)}")
        )
        at += width
    return tuple(stages)


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A target of the request's SLO and what it was held against."""

    name: str
    limit: str
    seen: str
    verdict: str
    tone: str


def target_rows(
    fact: pl.DataFrame, limits: LimitsTable, vantage: Vantage, seen_s: Mapping[str, float | None]
) -> tuple[TargetRow, ...]:
    """The targets of the one request of a frame; ``seen_s`` by ttft, tpot, e2e at the SLO's vantage point."""
    row = fact.select(*limits.columns()).row(0, named=True)
    missed = set(fact["missed"][0].to_list()) if fact["missed"][0] is not None else set()
    rows = []
    for name, title in _TARGETS:
        limit, seen = row[f"{name}_limit"], seen_s.get(name)
        if limit is None:
            continue
        word = (
            "missed" if name in missed else "not told" if seen is None else "met" if seen <= limit else "not held to it"
        )
        tone = {"missed": "bad", "met": "good"}.get(word, "")
        shown = UNKNOWN if seen is None else seconds(seen)
        rows.append(TargetRow(f"{title} at the {vantage.value}", seconds(limit), shown, word, tone))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One span that the request was made of, and where it lies in the trace."""

    kind: str
    name: str
    source: str
    vantage: str
    begins: str  # after the trace's first span
    lasts: str
    x: float
    width: float
    status: str
    tone: str
    span_id: str


def span_rows(parts: pl.DataFrame) -> tuple[SpanRow, ...]:
    """Spans by their start, on a line of ``WIDTH``."""
    rows = parts.sort("started_s", nulls_last=True).rows(named=True)
    starts = [r["started_s"] for r in rows if r["started_s"] is not None]
    first = min(starts, default=0.0)
    last = max((r["ended_s"] for r in rows if r["ended_s"] is not None), default=first)
    scale = WIDTH / (last - first) if last > first else 0.0
    return tuple(_span(r, first, scale) for r in rows)


def _span(row: Mapping[str, Any], first: float, scale: float) -> SpanRow:
    start, end = row["started_s"], row["ended_s"]
    length = None if start is None or end is None else end - start
    x = 0.0 if start is None else (start - first) * scale
    http = "" if row["http_status"] is None else f" HTTP {row['http_status']}"
    bad = row["status"] == "error" or (row["http_status"] or 0) >= 400
    return SpanRow(
        (row["kind"] or "").replace("_", " "), row["name"] or "", row["source"] or "", row["vantage"] or "",
        UNKNOWN if start is None else f"+{seconds(start - first)}", UNKNOWN if length is None else seconds(length),
        round(min(x, WIDTH - _LEAST), 2), round(max(_LEAST, (length or 0.0) * scale), 2),
        f"{row['error_type'] or row['status'] or UNKNOWN}{http}", "bad" if bad else "", row["span_id"],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """A score that the request got."""

    evaluator: str
    annotator: str
    score: str
    label: str
    at_s: float
    explanation: str


def score_rows(scores: pl.DataFrame) -> tuple[ScoreRow, ...]:
    """Scores, newest first."""
    return tuple(
        ScoreRow(
            r["evaluator"] or UNKNOWN, r["annotator"] or UNKNOWN,
            UNKNOWN if r["score"] is None else digits(r["score"]), r["label"] or "", r["ts"],
            r["explanation_ref"] or "",
        )
        for r in scores.sort("ts", descending=True).rows(named=True)
    )  # fmt: skip


#: facts of a request in the order of its page: title → column
_FACTS: Final = (
    ("Service", "service"), ("Model", "model"), ("Tenant", "tenant"), ("Adapter", "adapter"), ("Route", "route"),
    ("Form", "form"), ("Session", "session_id"), ("Operation", "operation"), ("Engine", "engine"),
    ("Target", "target"), ("Instance", "instance"), ("Ran", "deployment"), ("Finished by", "finish_reason"),
    ("Error", "error_type"), ("Request id", "request_id"), ("Response id", "response_id"),
)  # fmt: skip


def fact_texts(fact: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What is known of a request beside its numbers."""
    return tuple((title, str(fact[column])) for title, column in _FACTS if fact[column] is not None)


def token_texts(fact: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Tokens of a request; what is part of another number says so."""
    cached, reasoning = fact["cached_tokens"], fact["reasoning_tokens"]
    return (
        ("Input tokens", _count(fact["input_tokens"]) + ("" if cached is None else f", {cached:,} of them cached")),
        ("Output tokens", _count(fact["output_tokens"]) + ("" if reasoning is None else f", {reasoning:,} reasoning")),
        ("Most allowed", _count(fact["max_tokens"])),
        ("Streamed", UNKNOWN if fact["stream"] is None else "yes" if fact["stream"] else "no"),
        ("Stands for", _weight(fact["weight"])),
    )


def _count(value: int | None) -> str:
    return "not told" if value is None else f"{value:,}"


def _weight(weight: float | None) -> str:
    if weight is None:
        return "nobody told how it was sampled"
    return "itself" if weight == 1 else f"{digits(weight)} requests: it was sampled"

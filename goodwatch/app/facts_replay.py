"""Request facts of a recording: its spans through the mapper and assembly, held against its metrics and its clients.

Spans lie beside the metrics, as ``spans.jsonl`` (``.gz``, ``.xz``: one OTLP/JSON request a line, as the OpenTelemetry
Collector's file exporter writes it) or as ``otlp/*.pb`` (the bodies as they were sent, with ``NAME.headers.json``).
"""

import gzip
import json
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

import polars as pl

from collector.otlp.answers import JSON, RefusedError
from collector.otlp.decoding import Body, decoded
from collector.otlp.kinds import TRACES, Message
from collector.spans.known import known_tables
from collector.spans.mapper import Mapper
from goodwatch.app.recording import Recording
from goodwatch.core.engine import Engine
from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Bounds, Limits, Number
from goodwatch.core.request import Origin, Vantage
from goodwatch.signals.assemble import assemble
from goodwatch.signals.attainment import Attained, attainment, sums
from goodwatch.signals.attainment_gap import gap
from goodwatch.signals.attainment_limits import LimitsTable
from goodwatch.signals.attainment_verdicts import judge
from goodwatch.signals.goodput import service_goodput
from goodwatch.signals.reconcile import EngineCounts, Stops, engine_counts, explain, reconcile
from goodwatch.signals.request_frames import PARTS
from goodwatch.signals.windows import TargetWindow

_BODY_BYTES: Final = 64 * 1024 * 1024
_PROTOBUF: Final = "application/x-protobuf"
_OPEN: Final[dict[str, Callable[..., IO[str]]]] = {"": open, ".gz": gzip.open, ".xz": lzma.open}


@dataclass(frozen=True, slots=True)
class PhaseCounts:
    """What metrics say of one phase, ``(start_s, end_s]``: counters, and attainment bounded from histograms."""

    name: str
    start_s: float
    end_s: float
    counts: EngineCounts | None
    bounded: Bounds | None


def phase_counts(
    name: str,
    windows: Sequence[TargetWindow],
    edges: tuple[float, float],
    engines: Mapping[str, Engine],
    limits: Limits,
) -> PhaseCounts:
    """A phase's windows (``replay.phase_windows``) as the other side of its facts."""
    goodput = service_goodput(windows, engines, limits)
    bounded = goodput.attainment if goodput and limits.items() else None
    return PhaseCounts(name, *edges, engine_counts(windows, engines), bounded)


def recorded_parts(folder: Path, origins: Sequence[Origin] = ()) -> pl.DataFrame | None:
    """Every part of a recording as ``PARTS``; None when the folder has no spans. Raises ConfigError on a broken file."""
    bodies = list(_bodies(folder))
    if not bodies:
        return None
    mapper = Mapper(known_tables().values(), origins)
    frames = []
    for where, body, received_s in bodies:
        try:
            request = decoded(body, _BODY_BYTES).request
        except RefusedError as error:
            raise ConfigError(f"{where}: {error}") from error
        frames.append(mapper.parts(request, _latest_end_s(request) if received_s is None else received_s).frame)
    return pl.concat([pl.DataFrame(schema=PARTS), *frames])


def _bodies(folder: Path) -> Iterator[tuple[str, Body, float | None]]:
    """Where each request is, its body, and when it was received (None: the file does not say)."""
    for where, line in _lines(folder, "spans.jsonl"):
        yield where, Body(TRACES, "http", JSON, "", line.encode()), None
    for path in sorted(folder.glob("otlp/*.pb")):
        headers = path.with_suffix(".headers.json")
        try:
            told = json.loads(headers.read_text("utf-8")) if headers.is_file() else {}
            sent = {k.lower(): str(v) for k, v in dict(told.get("headers", {})).items()}
            received_s = float(told["ts"]) if "ts" in told else None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"{headers}: not the headers of a request: {error}") from error
        media = sent.get("content-type", _PROTOBUF).partition(";")[0].strip()
        yield str(path), Body(TRACES, "http", media, sent.get("content-encoding", ""), path.read_bytes()), received_s


def _lines(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """The lines of a file that may be there and may be compressed, each with where it is."""
    for suffix, opened in _OPEN.items():
        path = folder / f"{name}{suffix}"
        if not path.is_file():
            continue
        try:
            with opened(path, "rt", encoding="utf-8") as lines:
                yield from ((f"{path}:{n}", line) for n, line in enumerate(lines, 1) if line.strip())
        except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from error
        return


def _stops(folder: Path) -> Stops:
    events = []
    for where, line in _lines(folder, "events.jsonl"):
        try:
            event = json.loads(line)
            events.append({"ts": float(event["ts"]), "event": str(event["event"])})
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{where}: expected an event with ts and event: {error}") from error
    return Stops.of(events)


def _latest_end_s(request: Message) -> float:
    ends = [s.end_time_unix_nano for r in request.resource_spans for c in r.scope_spans for s in c.spans]
    return max(ends, default=0) / 1e9


def facts_report(
    folder: Path,
    phases: Sequence[PhaseCounts],
    limits: Limits,
    *,
    heatmap: Callable[[pl.DataFrame], Any] | None = None,
) -> dict[str, Any]:
    """The ``facts``, ``attainment``, ``gap``, ``facts_by_phase`` and ``heatmap`` of ``goodwatch replay --json``.

    Empty when the recording has no spans. ``heatmap`` makes JSON values of judged facts.
    """
    parts = recorded_parts(folder)
    if parts is None:
        return {}
    last_s = parts["received_s"].max()
    facts = assemble(parts, float(last_s) if isinstance(last_s, float) else 0.0)
    table = LimitsTable.of(limits) if limits.items() else LimitsTable()
    judged = judge(facts, table, vantage=Vantage.ENGINE)
    rows = Recording(folder).client()
    out: dict[str, Any] = {"facts": {"requests": len(facts), "parts": len(parts)}}
    if rows:
        explained = explain(facts, rows, _stops(folder))
        out["facts"] |= {
            "joined": explained.joined,
            "unexplained": len(explained.unexplained),
            "by_class": dict(explained.by_class),
            "unequal_tokens": len(explained.unequal_tokens),
            "alone": explained.facts_alone,
        }
        if limits.items():
            out["gap"] = asdict(gap(facts, rows, explained, table))
    out["attainment"] = _attained(judged, _whole(phases), limits)
    out["facts_by_phase"] = [_attained(_within(judged, p), p, limits) | {"name": p.name} for p in phases]
    out["heatmap"] = heatmap(judged) if heatmap is not None else None
    return out


def _within(judged: pl.DataFrame, phase: PhaseCounts) -> pl.DataFrame:
    return judged.filter((pl.col("ended_at") > phase.start_s) & (pl.col("ended_at") <= phase.end_s))


def _whole(phases: Sequence[PhaseCounts]) -> PhaseCounts:
    """All phases as one; the counters are added, since phases follow each other from scrape to scrape."""
    counts = [p.counts for p in phases if p.counts is not None]
    total = sum(counts[1:], counts[0]) if counts else None
    start_s, end_s = (phases[0].start_s, phases[-1].end_s) if phases else (0.0, 0.0)
    return PhaseCounts("all", start_s, end_s, total, None)


def _attained(judged: pl.DataFrame, phase: PhaseCounts, limits: Limits) -> dict[str, Any]:
    """Attainment of facts beside what histograms bound it to; ``counted`` or ``estimated`` by its basis."""
    counts = phase.counts
    reconciled = reconcile(judged, counts)
    found = attainment(
        sums(judged),
        phase.end_s - phase.start_s,
        reconciled=reconciled if counts is not None else None,
        unaccounted=None if counts is None or counts.broken else counts.unaccounted,
        finished_tokens=None if counts is None else counts.output_tokens,
    )
    out: dict[str, Any] = {
        "bounded": None if phase.bounded is None else [phase.bounded.low, phase.bounded.high],
        "finished": reconciled.finished,
        "facts": reconciled.facts,
        "gap_ratio": reconciled.gap_ratio,
        "by_class": dict(reconciled.by_class),
        "note": reconciled.note,
    }
    return _numbers(found) | out if limits.items() else out


def _numbers(found: Attained) -> dict[str, Any]:
    basis = found.attainment.basis
    return {
        "estimated" if basis is None else basis.value: _number(found.attainment),
        "with_unaccounted": _number(found.with_unaccounted),
        "goodput_per_s": _number(found.goodput_per_s),
        "good_tokens_per_s": _number(found.good_tokens_per_s),
        "unaccounted": found.unaccounted.value,
    }


def _number(number: Number) -> dict[str, Any] | None:
    if number.absence is not None:
        return None
    bounds = number.bounds
    return {"value": number.value, "low": bounds.low if bounds else None, "high": bounds.high if bounds else None}

"""A recording through the real pipeline: parse, normalise, count increases, derive per phase."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from collector.pipeline import TargetReader
from goodwatch.app.client_log import client_phase
from goodwatch.app.facts_replay import PhaseCounts, facts_report, phase_counts
from goodwatch.app.recording import Phase, RecordedScrape, Recording
from goodwatch.core.counter import Tracker
from goodwatch.core.engine import Engine
from goodwatch.core.model import Bounds, Limits, Scrape, Target
from goodwatch.signals.derive import prefix_hit_ratio, total
from goodwatch.signals.goodput import Goodput, service_goodput
from goodwatch.signals.heatmap import Ask, Cell, Heatmap, Measure, heatmap_of_facts
from goodwatch.signals.increments import rows_frame, step_rows
from goodwatch.signals.latency import QUANTILES, of_ended
from goodwatch.signals.windows import TargetWindow, target_windows


@dataclass(slots=True)
class Replayed:
    """All steps of a recording as one frame, and what engine it was."""

    rows: pl.DataFrame
    engine: str = ""
    version: str = ""
    version_basis: str = ""
    scrapes: int = 0
    failed: int = 0
    scrape_times: list[float] = field(default_factory=list)  # of good scrapes
    failed_times: list[float] = field(default_factory=list)


def replay(recording: Recording, engines: Mapping[str, Engine], *, engine: str | None = None) -> Replayed:
    """Feed every scrape of a recording to the pipeline, in order of time."""
    target = Target("recording", "file://recording", "recording", engine=engine)
    reader, tracker = TargetReader(target, engines), Tracker()
    rows: list[dict[str, Any]] = []
    out = Replayed(rows_frame([]))
    for recorded in recording.scrapes():
        scrape = _scrape(reader, recorded, out)
        step = tracker.advance(scrape)
        rows += step_rows(step, tracker, engines.get(step.engine or out.engine))
        out.scrapes += 1
        out.failed += not scrape.up
        (out.scrape_times if scrape.up else out.failed_times).append(scrape.ts)
    out.rows = rows_frame(rows)
    return out


def _scrape(reader: TargetReader, recorded: RecordedScrape, out: Replayed) -> Scrape:
    if recorded.body is None:
        reason = "http_status" if recorded.status else "refused"
        return Scrape(
            recorded.done_s, reader.target.name, reader.target.service, up=False, duration_s=recorded.elapsed_s,
            error=recorded.error, reason=reason,
        )  # fmt: skip
    understood = reader.understand(recorded.body, recorded.content_type)
    if understood.engine is not None:
        out.engine, out.version, out.version_basis = (
            understood.engine.name, str(understood.version), understood.version.basis,
        )  # fmt: skip
    return reader.scrape(understood, recorded.done_s, recorded.elapsed_s, len(recorded.body))


def report(folder: Path, engines: Mapping[str, Engine], limits: Limits, *, engine: str | None = None) -> dict[str, Any]:
    """Derived signals per phase of a recording, as the JSON of ``goodwatch replay --json``."""
    recording = Recording.open(folder)
    replayed = replay(recording, engines, engine=engine)
    phases = recording.phases() or _whole(replayed)
    client = recording.client()
    return {
        "engine": replayed.engine or None,
        "version": replayed.version or None,
        "version_basis": replayed.version_basis or None,
        "scrapes": replayed.scrapes,
        "failed_scrapes": replayed.failed,
        "limits": {"ttft_s": limits.ttft_s, "tpot_s": limits.tpot_s, "e2e_s": limits.e2e_s},
        "phases": [phase_report(replayed, p, engines, limits, client) for p in phases],
        **facts_report(folder, [_counted(replayed, p, engines, limits) for p in phases], limits, heatmap=map_report),
    }


def _counted(replayed: Replayed, phase: Phase, engines: Mapping[str, Engine], limits: Limits) -> PhaseCounts:
    windows, start, end = phase_windows(replayed, phase)
    return phase_counts(phase.name, windows, (start, end), engines, limits)


def map_report(judged: pl.DataFrame) -> dict[str, Any]:
    """The P99 map of TTFT, TPOT and E2E, and the attainment of each cell, as plain JSON values; null with its reason."""
    asks = {
        **{name: Ask(Measure.LATENCY, 0.99, f"engine_{name}_s") for name in ("ttft", "tpot", "e2e")},
        "attainment": Ask(Measure.ATTAINMENT),
    }
    maps = {name: heatmap_of_facts(judged, ask) for name, ask in asks.items()}
    first = maps["ttft"]
    return {
        "input_bands": [b.text for b in first.inputs],
        "output_bands": [b.text for b in first.outputs],
        **{
            ("attainment" if name == "attainment" else f"{name}_p99_s"): [
                _cell(made, cell) for cell in made.cells if cell.requests
            ]
            for name, made in maps.items()
        },
    }


def _cell(made: Heatmap, cell: Cell) -> dict[str, Any]:
    number = cell.number
    return {
        "input": made.inputs[cell.input].text,
        "output": made.outputs[cell.output].text,
        "requests": cell.requests,
        "value": number.value,
        "bounds": _pair(number.bounds),
        "why": number.note if number.absence is not None else "",
    }


def _whole(replayed: Replayed) -> list[Phase]:
    times = replayed.scrape_times
    return [Phase("all", times[0], times[-1])] if len(times) > 1 else []


def phase_windows(replayed: Replayed, phase: Phase) -> tuple[list[TargetWindow], float, float]:
    """The windows of a phase, and its edges snapped to the scrapes that count it."""
    at = pl.col("minute_s")
    good_before = [t for t in replayed.scrape_times if t <= phase.start_s]
    failed_before = [t for t in replayed.failed_times if t <= phase.start_s]
    start = max((*good_before[-1:], *failed_before[-1:]), default=phase.start_s)
    inside = replayed.rows.filter((at > start) & (at <= phase.end_s))
    if start in failed_before:
        # Dead when the phase began: a restart inside brings a process that served nothing before this window.
        first = inside.filter(pl.col("signal") == "restarts_total")["minute_s"].min()
        inside = inside.filter((pl.col("signal") != "restarts_total") | (at > (first or 0.0)))
    ends = [t for t in replayed.scrape_times if start < t <= phase.end_s]
    end = ends[-1] if ends else phase.end_s
    before = replayed.rows.filter(at <= start)
    return target_windows(inside, before, start, end), start, end


def phase_report(
    replayed: Replayed,
    phase: Phase,
    engines: Mapping[str, Engine],
    limits: Limits,
    client: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """One phase as plain JSON values; null is "not measurable"."""
    windows, start, end = phase_windows(replayed, phase)
    out: dict[str, Any] = {"name": phase.name, "start": round(start, 3), "end": round(end, 3)}
    goodput = service_goodput(windows, engines, limits)
    seconds = end - start
    requests = goodput.ended if goodput else None
    tokens = {kind: total(windows, f"{kind}_tokens_total") for kind in ("input", "output")}
    out |= {
        "requests": requests,
        "request_rate_per_s": _per(requests, seconds),
        "input_tokens": tokens["input"],
        "output_tokens": tokens["output"],
        "output_tokens_per_s": _per(tokens["output"], seconds),
    }
    for name in ("ttft", "tpot", "e2e", "queue"):
        out[f"{name}_s"] = {
            f"p{q * 100:.0f}": _pair(of_ended(windows, engines, f"{name}_seconds", q)) if windows else None
            for q in QUANTILES
        }
    out |= _attained(goodput, limits)
    used = [g.max for w in windows if (g := w.gauge("kv_cache_used_ratio"))]
    out |= {
        "preemptions": total(windows, "preemptions_total"),
        "prefix_hit_ratio": prefix_hit_ratio(windows).value,
        "kv_cache_used_ratio_max": max(used) if used else None,
    }
    if client:
        seen = client_phase(client, windows, limits, start, end)
        out["client"] = {**asdict(seen), "attainment": _pair(seen.attainment)}
    return out


def _attained(goodput: Goodput | None, limits: Limits) -> dict[str, Any]:
    if goodput is None:
        return {"attainment": None, "good": None, "valid": None, "unaccounted": None, "notes": []}
    judged = bool(limits.items())
    return {
        "attainment": _pair(goodput.attainment) if judged else None,
        "good": _pair(goodput.good) if judged else None,
        "valid": _pair(goodput.valid),
        "unaccounted": goodput.unaccounted,
        "notes": [*goodput.broken, *goodput.notes],
    }


def _per(count: float | None, seconds: float) -> float | None:
    return None if count is None or seconds <= 0 else count / seconds


def _pair(bounds: Bounds | None) -> list[float | None] | None:
    return None if bounds is None else [bounds.low, bounds.high]

"""Facts against what others counted: the engine's finished counter, and the clients of a recording. Pure.

Engine spans see only survivors: a request that its client aborted, that timed out, was refused or not sampled leaves no
span (measured on vLLM 0.8.5 to 0.33). So facts are ``counted`` only while they agree with the engine's own counter.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from goodwatch.core.engine import Engine
from goodwatch.core.model import Basis
from goodwatch.core.request import Outcome
from goodwatch.signals.goodput import ended
from goodwatch.signals.windows import TargetWindow

#: facts that differ from the counter by no more than this are counted (design §4)
TOLERANCE_RATIO: Final = 0.005
#: a process that is killed loses the spans of its last seconds: the SDK's batch processor sends every 5 s
EXPORT_DELAY_S: Final = 5.0

#: how the engines put the caller's X-Request-Id into theirs: ``chatcmpl-<id>``, ``cmpl-<id>-<prompt>``, ``<choice>_…``
_OURS: Final = re.compile(r"^(?:\d+_)?(?:chat)?cmpl-(.+?)(?:-\d+)?$")


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """What the engines' counters say of a window; adds up over targets.

    ``finished``: requests in the finished counter, one for each choice. ``unaccounted``: arrivals that are not in it;
    None when arrivals are not counted. ``broken``: why the counter may miss requests, for a person; "" if not.
    """

    finished: float
    unaccounted: float | None = None
    output_tokens: float | None = None
    broken: str = ""

    def __add__(self, other: "EngineCounts") -> "EngineCounts":
        return EngineCounts(
            self.finished + other.finished,
            _both(self.unaccounted, other.unaccounted),
            _both(self.output_tokens, other.output_tokens),
            self.broken or other.broken,
        )


def _both(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Facts against the finished counter.

    ``facts`` are weighted and count each choice of a request, as the counter does. ``gap_ratio`` = (finished - facts) /
    finished; None when there is no counter to trust. ``scale``: requests for one weighted fact, None without a counter
    or without facts. ``by_class``: weighted facts by outcome, ``no_engine_span`` for those that only a gateway or client
    saw, ``dropped_waiting`` for those that the engine never began, and ``missing`` (finished without a fact) or
    ``surplus`` (facts that the counter does not have). ``unfinished``: weighted facts of clients and gateways that an
    engine may have begun and never finished: they are among its arrivals without an end.
    """

    basis: Basis
    facts: float
    finished: float | None = None
    gap_ratio: float | None = None
    scale: float | None = None
    by_class: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    unfinished: float = 0.0


def engine_counts(windows: Iterable[TargetWindow], engines: Mapping[str, Engine]) -> EngineCounts | None:
    """Counters of all targets of a service in one window; None when none of them counts finished requests."""
    total: EngineCounts | None = None
    for window in windows:
        count = ended(window, engines.get(window.engine))
        if count is None:
            continue
        tokens = window.counter("output_tokens_total")
        one = EngineCounts(count.all, count.unaccounted, tokens, window.broken)
        total = one if total is None else total + one
    return total


def reconcile(facts: pl.DataFrame, counters: EngineCounts | None) -> Reconciled:
    """Compare the facts of a window with the engine's finished counter over the same window.

    Parameters
    ----------
    facts
        ``request_frames.FACTS`` that ended between the two scrapes which bound the counters.
    counters
        None where there are no metrics.
    """
    classes, unfinished = _by_outcome(facts), _weighted(facts.filter(_unfinished()))
    seen = _weighted(facts.filter(_finished()))
    if counters is None:
        return Reconciled(Basis.ESTIMATED, seen, by_class=classes, note="no counter to compare with")
    if counters.broken:
        return Reconciled(
            Basis.ESTIMATED, seen, counters.finished, by_class=classes, note=counters.broken, unfinished=unfinished
        )
    if counters.finished <= 0:
        basis = Basis.ESTIMATED if seen else Basis.COUNTED
        gap = None if seen else 0.0
        return Reconciled(
            basis, seen, counters.finished, gap, 1.0 if not seen else None, classes, unfinished=unfinished
        )
    missing = counters.finished - seen
    gap = missing / counters.finished
    if missing:
        classes["missing" if missing > 0 else "surplus"] = abs(missing)
    basis = Basis.COUNTED if abs(gap) <= TOLERANCE_RATIO else Basis.ESTIMATED
    scale = counters.finished / seen if seen else None
    scale = 1.0 if basis is Basis.COUNTED else scale
    return Reconciled(basis, seen, counters.finished, gap, scale, classes, unfinished=unfinished)


def _weighted(facts: pl.DataFrame) -> float:
    if facts.is_empty():
        return 0.0
    choices = pl.max_horizontal(pl.col("choices").fill_null(1), pl.lit(1))
    return float(facts.select((pl.col("weight").fill_null(1.0) * choices).sum()).item())


def _finished() -> pl.Expr:
    """Whether the engine's finished counter has a request: not one that was dropped before its first token.

    SGLang 0.5.23 sends a span for those as well, and counts only the aborted ones that it had begun.
    """
    waiting = (pl.col("status") == Outcome.ABORTED.value) & pl.col("engine_ttft_s").is_null()
    return pl.col("engine").is_not_null() & ~waiting


def _unfinished() -> pl.Expr:
    """Whether an engine may have begun a request that only others saw: not one that was refused at the door."""
    given_up = pl.col("status").is_in([o.value for o in (Outcome.ABORTED, Outcome.TIMEOUT, Outcome.ERROR)])
    return pl.col("engine").is_null() & given_up


def _by_outcome(facts: pl.DataFrame) -> dict[str, float]:
    seen = facts.filter(_finished())
    counted = {str(key[0]): _weighted(part) for key, part in sorted(seen.group_by("status"))}
    dropped = _weighted(facts.filter(pl.col("engine").is_not_null() & ~_finished()))
    outside = _weighted(facts.filter(pl.col("engine").is_null()))
    others = {"dropped_waiting": dropped, "no_engine_span": outside}
    return counted | {name: count for name, count in others.items() if count}


# --- the clients of a recording ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stops:
    """When the engine's processes ended, Unix seconds: ``killed_s`` at once, ``stopped_s`` by a signal."""

    killed_s: tuple[float, ...] = ()
    stopped_s: tuple[float, ...] = ()

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> "Stops":
        """From the ``events.jsonl`` of a recording: ``ts`` and ``event``, a short text."""
        told = [(float(e["ts"]), str(e["event"]).lower()) for e in events]
        return cls(
            tuple(ts for ts, text in told if text.startswith("kill")),
            tuple(ts for ts, text in told if text.startswith(("sigterm", "server gone"))),
        )


@dataclass(frozen=True, slots=True)
class Explained:
    """Every client's request with its fact, or with the reason why there is none.

    ``joined`` rows have a fact; ``unequal_tokens`` of them with other token counts than the client's. ``facts_alone``
    are facts that no client row asked for (warm-up, health checks). ``by_class`` counts the rows without a fact;
    ``unexplained`` names those for which there is no reason. ``row_fact`` and ``row_class`` are in the order of the rows:
    the number of the fact in the frame, or the class.
    """

    joined: int
    unexplained: tuple[str, ...]
    by_class: Mapping[str, int]
    unequal_tokens: tuple[str, ...] = ()
    facts_alone: int = 0
    row_fact: tuple[int | None, ...] = ()
    row_class: tuple[str, ...] = ()


def explain(facts: pl.DataFrame, rows: Sequence[Mapping[str, Any]], stops: Stops) -> Explained:
    """Join clients' rows with facts and say of every row without one why.

    A row joins by its trace id (``traceparent``), the ``response_id`` that it was answered, or its ``request_id`` inside
    the engine's. Classes: ``aborted``, ``timed_out``, ``refused`` (4xx, or nobody listened), ``failed`` (5xx, or an
    error inside the stream), ``unsampled`` (the parent's flag said so), ``killed_process`` (in flight, or ended within
    the exporter's delay before a kill), ``lost_export`` (the same before an orderly stop).
    """
    index = _index(facts)
    told = facts.select("input_tokens", "output_tokens").rows()
    found = [_fact_of(row, index) for row in rows]
    classes = ["" if f is not None else _class_of(row, stops) for row, f in zip(rows, found, strict=True)]
    unequal = [
        str(row.get("request_id"))
        for row, f in zip(rows, found, strict=True)
        if f is not None
        and row.get("status") == "ok"
        and told[f] != (row.get("prompt_tokens"), row.get("output_tokens"))
    ]
    counts: dict[str, int] = {}
    for name in classes:
        if name and name != "unexplained":
            counts[name] = counts.get(name, 0) + 1
    used = {f for f in found if f is not None}
    return Explained(
        sum(f is not None for f in found),
        tuple(str(r.get("request_id")) for r, c in zip(rows, classes, strict=True) if c == "unexplained"),
        dict(sorted(counts.items())), tuple(unequal), len(facts) - len(used), tuple(found), tuple(classes),
    )  # fmt: skip


def _index(facts: pl.DataFrame) -> dict[str, int | None]:
    """Every name of a fact → its number; None where two facts have the same name."""
    index: dict[str, int | None] = {}
    for number, names in enumerate(facts.select("trace_id", "request_id", "response_id").rows()):
        inner = [m.group(1) for n in names[1:] if n is not None and (m := _OURS.match(n))]
        for name in {n for n in (*names, *inner) if n is not None}:
            index[name] = None if name in index else number
    return index


def _fact_of(row: Mapping[str, Any], index: Mapping[str, int | None]) -> int | None:
    trace = str(row.get("traceparent") or "--").split("-")[1]
    names = (row.get("response_id"), row.get("request_id"), trace)
    return next((number for n in names if n and (number := index.get(str(n))) is not None), None)


def _class_of(row: Mapping[str, Any], stops: Stops) -> str:
    status, http = str(row.get("status")), int(row.get("http_status") or 0)
    start = float(row["start"])
    end = start + float(row["e2e_s"])
    in_flight = any(start <= at <= end for at in stops.killed_s)
    by_status = {
        "client_abort": "aborted",
        "timeout": "timed_out",
        "http_error": "failed" if http >= 500 else "refused",
        "disconnect": "killed_process" if in_flight else "refused",
        "stream_error": "killed_process" if in_flight else "failed",
        "truncated": "killed_process" if in_flight else "failed",
    }
    if status in by_status:
        return by_status[status]
    if str(row.get("traceparent") or "").endswith("-00"):
        return "unsampled"
    if in_flight or any(0 <= at - end <= EXPORT_DELAY_S for at in stops.killed_s):
        return "killed_process"
    return "lost_export" if any(0 <= at - end <= EXPORT_DELAY_S for at in stops.stopped_s) else "unexplained"

"""Good and valid requests of a window, bounded from histograms (design §4). Pure.

Requests that **ended** in the window are counted. From metrics alone each is judged by the engine's own clock, and
where the engine does not say which requests were streamed, all are judged as if they were. Of the requests whose
first token came in the window, some end later or never; of those that ended in it, some had their first token
before: so counts of the TTFT histogram bound those of ended requests only within what was in flight at both edges.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from goodwatch.core.engine import Engine
from goodwatch.core.histogram import count_within
from goodwatch.core.model import Basis, Bounds, Limits
from goodwatch.signals.windows import TargetWindow

#: HTTP statuses of requests that the service failed to serve though the caller did nothing wrong (design §4).
_NO_ARRIVALS = "arrivals are not counted by this engine: attainment is of the requests that ended"
_FAILED_STATUS = ("status=5", "status=408", "status=429")


@dataclass(frozen=True, slots=True)
class Ended:
    """Requests that ended in a window.

    ``all`` is the engine's own count; ``done`` bounds those of them that were served to the end; ``errors`` of them
    ended with an engine error. ``outside`` were answered with an error or refused, and are not in the finished
    counter. ``unaccounted`` reached the server and left no trace in that counter (client aborts, time-outs); None when
    the server does not count arrivals.
    """

    all: float
    done: Bounds
    errors: float
    outside: Bounds
    unaccounted: float | None
    cancelled: float  # ended by a cancel that the engine counted (at most)

    @property
    def lost(self) -> float:
        """At most so many of ``all`` were not served to the end, though they may be in its histograms."""
        return self.all - self.done.low


@dataclass(frozen=True, slots=True)
class Goodput:
    """Good and valid requests of a window, as bounds; adds up over targets."""

    ended: float
    good: Bounds
    valid: Bounds
    unaccounted: float | None
    failed: float
    basis: Basis = Basis.BOUNDED
    broken: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def attainment(self) -> Bounds | None:
        """Good over valid requests; None without valid requests or when the window may miss requests."""
        if self.broken or not self.valid.high or self.good.high is None:
            return None
        return self.seen

    @property
    def seen(self) -> Bounds | None:
        """Good over valid among the requests that were seen, also in a window that may miss some."""
        if not self.valid.high or self.good.high is None:
            return None
        high = 1.0 if self.valid.low <= 0 else min(1.0, self.good.high / self.valid.low)
        return Bounds(self.good.low / self.valid.high, high)


def ended(window: TargetWindow, engine: Engine | None) -> Ended | None:
    """Requests that ended in the window; None when the engine counts none."""
    e2e = window.histogram("e2e_seconds")
    counted = window.counter("requests_finished_total")
    if e2e is None and counted is None:
        return None
    total = max(e2e.total if e2e else 0.0, counted or 0.0)
    aborted = window.counter("requests_finished_total", "finished_reason=abort") or 0.0
    errors = window.counter("requests_finished_total", "finished_reason=error") or 0.0
    counts_aborts = engine is not None and engine.finished_counts_aborts
    if counts_aborts:
        cancelled = min(total, window.counter("requests_aborted_total") or 0.0)
        tpot = window.histogram("tpot_seconds")
        done = Bounds(max(total - cancelled, tpot.total if tpot else 0.0), total)
    else:
        cancelled = aborted
        done = Bounds(total - aborted - errors, total - aborted - errors)
    unaccounted = _unaccounted(window, total - errors)
    if unaccounted is None and counts_aborts:
        unaccounted = 0.0
    return Ended(total, done, errors, _outside(window, errors), unaccounted, cancelled)


def _unaccounted(window: TargetWindow, served_to_the_end: float) -> float | None:
    """Requests that were answered and are not in the finished counter; None when the server does not count answers."""
    served = window.counter("http_requests_total", "status=2")
    if served is None:
        return 0.0 if window.counter("http_requests_total") is not None and served_to_the_end == 0 else None
    return max(0.0, served - served_to_the_end)


def _outside(window: TargetWindow, errors: float) -> Bounds:
    """Requests that failed or were refused and are not in the finished counter.

    An engine error is in the finished counter and may be an HTTP 5xx too, or an event inside a 200 stream. A server
    that tells status classes (vLLM: "5xx") counts refusals apart, as 4xx or 5xx; one that tells codes has them there.
    """
    rejected = window.counter("requests_rejected_total") or 0.0
    if window.counter("http_requests_total") is None:
        apart = max(0.0, (window.counter("requests_failed_total") or 0.0) - errors) + rejected
        return Bounds(apart, apart)
    answered = sum(window.counter("http_requests_total", s) or 0.0 for s in _FAILED_STATUS)
    codes = any(p.removeprefix("status=").isdigit() for p in window.parts("http_requests_total"))
    low = max(0.0, max(answered, rejected) - errors)
    return Bounds(low, max(answered, rejected) if codes else answered + rejected)


@dataclass(frozen=True, slots=True)
class _Case:
    """One window with what its engine's counters mean."""

    window: TargetWindow
    engine: Engine | None
    count: Ended

    @property
    def counts_aborts(self) -> bool:
        return self.engine is not None and self.engine.finished_counts_aborts


def goodput(window: TargetWindow, engine: Engine | None, limits: Limits) -> Goodput | None:
    """Bounds of good and valid requests of one target; None when the engine counts no ended requests."""
    count = ended(window, engine)
    if count is None:
        return None
    case = _Case(window, engine, count)
    notes: list[str] = []
    split = {"is_streaming=true", "is_streaming=false"} & window.parts("e2e_seconds")
    if split:
        streamed = _joint(case, limits, "is_streaming=true", notes)
        whole = _joint(case, Limits(e2e_s=limits.e2e_s), "is_streaming=false", notes)
        if limits.e2e_s is None:  # nothing that the SLO asks of them: undetermined, so inside the bounds
            whole = Bounds(0.0, whole.high)
        good = Bounds(streamed.low + whole.low, (streamed.high or 0.0) + (whole.high or 0.0))
    else:
        good = _joint(case, limits, None, notes)
    done_high = count.done.high or 0.0
    good = Bounds(min(good.low, done_high), min(good.high or 0.0, done_high))
    if count.unaccounted is None:
        notes.append(_NO_ARRIVALS)
    valid_low = count.all - count.cancelled + count.outside.low
    valid = Bounds(
        max(valid_low, good.low), count.all + (count.unaccounted or 0.0) + (count.outside.high or count.outside.low)
    )
    broken = (f"{window.target}: {window.broken}",) if window.broken else ()
    return Goodput(
        count.all, good, valid, count.unaccounted, count.errors + count.outside.low, broken=broken, notes=tuple(notes)
    )


def total(parts: Iterable[Goodput]) -> Goodput | None:
    """The sum over targets; sums of bounds are tighter than bounds of sums. None without parts."""
    items = list(parts)
    if not items:
        return None
    unaccounted = [p.unaccounted for p in items]
    return Goodput(
        sum(p.ended for p in items),
        _sum(p.good for p in items),
        _sum(p.valid for p in items),
        None if any(u is None for u in unaccounted) else sum(u for u in unaccounted if u is not None),
        sum(p.failed for p in items),
        broken=tuple(b for p in items for b in p.broken),
        notes=tuple(dict.fromkeys(n for p in items for n in p.notes)),
    )


def service_goodput(windows: Iterable[TargetWindow], engines: Mapping[str, Engine], limits: Limits) -> Goodput | None:
    """Goodput of all targets of a service; None when none counts ended requests."""
    by_target: dict[str, list[TargetWindow]] = {}
    for window in windows:
        by_target.setdefault(window.target, []).append(window)
    found = [_target_goodput(members, engines, limits) for members in by_target.values()]
    return total(g for g in found if g is not None)


def _target_goodput(windows: list[TargetWindow], engines: Mapping[str, Engine], limits: Limits) -> Goodput | None:
    """Goodput of one target. Several models share its HTTP counters, which name no model: those count once."""
    if len(windows) == 1 or windows[0].counter("http_requests_total") is None:
        return total(g for w in windows if (g := goodput(w, engines.get(w.engine), limits)) is not None)
    bare = [_without_answers(w) for w in windows]
    summed = total(g for w in bare if (g := goodput(w, engines.get(w.engine), limits)) is not None)
    if summed is None:
        return None
    counts = [c for w in bare if (c := ended(w, engines.get(w.engine))) is not None]
    errors = sum(c.errors for c in counts)
    rejected = sum(w.counter("requests_rejected_total") or 0.0 for w in windows)
    shared = replace(windows[0], counters={**windows[0].counters, ("requests_rejected_total", ""): rejected})
    outside, unaccounted = _outside(shared, errors), _unaccounted(shared, summed.ended - errors)
    valid = Bounds(
        summed.valid.low + outside.low,
        (summed.valid.high or 0.0) + (unaccounted or 0.0) + (outside.high or outside.low),
    )
    notes = tuple(n for n in summed.notes if n != _NO_ARRIVALS)
    return replace(summed, valid=valid, unaccounted=unaccounted, failed=errors + outside.low, notes=notes)


def _without_answers(window: TargetWindow) -> TargetWindow:
    shared = ("http_requests_total", "requests_rejected_total", "requests_failed_total")
    return replace(window, counters={k: v for k, v in window.counters.items() if k[0] not in shared})


def in_flight_slack(window: TargetWindow, engine: Engine | None, count: Ended) -> tuple[float | None, float | None]:
    """How far TTFT counts of the window can be from those of the requests that ended in it.

    Returns
    -------
    tuple[float | None, float | None]
        (early, late): at most ``early`` ended requests had their first token before the window; at most ``late``
        first tokens of the window belong to requests that did not end well in it. None is unknown.
    """
    if engine is not None and engine.ttft_at_finish:
        return 0.0, 0.0
    decoding = window.gauge("requests_decoding_max")
    if decoding is None:
        return None, None
    counts_aborts = engine is not None and engine.finished_counts_aborts
    if counts_aborts:  # its gauges lag, so the edge may have been as full as the fullest moment
        early = late_running = max(decoding.max, decoding.before or 0.0)
        late = late_running + count.cancelled
    else:
        early = decoding.max if decoding.before is None else decoding.before
        first = window.histogram("ttft_seconds")
        late = max(0.0, (first.total if first else 0.0) - count.done.low + early)
        if count.unaccounted is not None and not window.counter("restarts_total"):
            # A crash takes requests that had their first token: those are neither in flight nor answered.
            late = min(late, decoding.last + count.unaccounted + count.lost)
    if engine is not None and engine.ttft_repeats_until and window.histogram("tpot_seconds") is None:
        late += window.counter("preemptions_total") or 0.0  # an old engine, which may observe those again
    return early, late


def _joint(case: _Case, limits: Limits, part: str | None, notes: list[str]) -> Bounds:
    """Requests that were done and met every target, of one part: the inclusion-exclusion bounds of design §4."""
    count = case.count
    e2e = case.window.histogram("e2e_seconds", part)
    whole = count.all if part is None else (e2e.total if e2e else 0.0)
    lost = count.all - count.done.low if part is None else min(whole, count.all - count.done.low)
    done = Bounds(whole - lost, min(whole, count.done.high or whole))
    done_high = done.high or 0.0
    lows, highs = [done.low], [done_high]
    for signal, limit in limits.items():
        found = _within(case, signal, limit, part, done_high)
        if found is None:
            lows.append(0.0)
            if signal == "tpot_seconds":
                notes.append("no TPOT histogram: the share that met its target is not known")
            continue
        lows.append(max(0.0, min(found.low, done_high)))
        highs.append(done_high if found.high is None else min(found.high, done_high))
    low = max(0.0, sum(lows) - (len(lows) - 1) * done_high)
    return Bounds(low, max(low, min(highs)))


def _within(case: _Case, signal: str, limit: float, part: str | None, done: float) -> Bounds | None:
    """Bounds of the done requests of one part that met one target; None when the engine does not tell."""
    histogram = case.window.histogram(signal, part)
    if histogram is None:
        return None
    within = count_within(histogram, limit)
    high = done if within.high is None else within.high
    if signal == "ttft_seconds":
        early, late = in_flight_slack(case.window, case.engine, case.count)
        low = 0.0 if late is None else within.low - late
        if case.engine is not None and case.engine.ttft_streamed_only:  # the rest may have met any target on it
            high += max(0.0, done - histogram.total)
        return Bounds(low, done if early is None else high + early)
    if signal == "tpot_seconds" and case.engine is not None and case.engine.tpot_skips_single:
        # One output token meets any TPOT target and leaves no observation.
        return Bounds(within.low, high + max(0.0, done - histogram.total))
    if signal == "tpot_seconds" and case.counts_aborts:  # which observe TPOT of finished requests only
        return Bounds(within.low, high)
    return Bounds(within.low - case.count.lost, high)


def _sum(bounds: Iterable[Bounds]) -> Bounds:
    items = list(bounds)
    highs = [b.high for b in items]
    return Bounds(
        sum(b.low for b in items), None if any(h is None for h in highs) else sum(h for h in highs if h is not None)
    )

"""Latency quantiles of a window as intervals. Pure; counts decide, nothing is interpolated or averaged.

Two populations answer two questions. ``observed``: what the histogram saw in the window (for TTFT, the first tokens
of the window). ``ended``: the requests that ended in it, which a client's log cut by end time also holds; the two
differ by what was in flight at the edges, so the second has wider intervals.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from goodwatch.core.engine import Engine
from goodwatch.core.histogram import INF, mean, merged, quantile, rank_bounds
from goodwatch.core.model import Absence, Basis, Bounds, Histogram, Number
from goodwatch.signals.goodput import Ended, ended, in_flight_slack
from goodwatch.signals.windows import TargetWindow

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class _Envelope:
    """The most and the fewest done requests at or below each bound, and how many requests there are."""

    at_most: Histogram
    at_least: Histogram
    fewest: float
    most: float


def enough(count: float, q: float) -> bool:
    """Whether ``count`` values support the q-quantile (design §3: n ≥ 1/(1-q)).

    Examples
    --------
    >>> enough(13, 0.99), enough(100, 0.99)
    (False, True)
    """
    return count >= round(1 / (1 - q), 6)


def observed(windows: Iterable[TargetWindow], signal: str, q: float) -> Number:
    """The q-quantile of what was observed in the window, over all targets."""
    histograms = [h for w in windows if (h := w.histogram(signal, _streamed(w, signal))) is not None]
    whole = merged(histograms)
    if whole is None:
        return Number.none("s", Absence.NOT_MEASURABLE)
    if whole.total <= 0:
        return Number.none("s", Absence.NO_TRAFFIC)
    if not enough(whole.total, q):
        return Number.none("s", Absence.NO_DATA, f"{whole.total:.0f} requests do not support a p{q * 100:g}")
    note = "" if all(h.le == whole.le for h in histograms) else "targets have unlike buckets: read on the shared ones"
    return Number("s", Basis.BOUNDED, bounds=quantile(whole, q), note=note)


def observed_mean(windows: Iterable[TargetWindow], signal: str) -> Number:
    """The mean of what was observed: exact where the engine sums it."""
    whole = merged(h for w in windows if (h := w.histogram(signal, _streamed(w, signal))) is not None)
    if whole is None:
        return Number.none("s", Absence.NOT_MEASURABLE)
    value = mean(whole)
    if value is None:
        return Number.none("s", Absence.NO_TRAFFIC if whole.total <= 0 else Absence.NOT_MEASURABLE)
    return Number("s", Basis.MEASURED, value=value)


def of_ended(windows: Iterable[TargetWindow], engines: Mapping[str, Engine], signal: str, q: float) -> Bounds | None:
    """Where the q-quantile of the requests that ended in the window lies; None when it cannot be told."""
    envelopes: list[_Envelope] = []
    for window in windows:
        envelope = _envelope(window, engines.get(window.engine), signal)
        if envelope is None:
            return None
        envelopes.append(envelope)
    at_most, at_least = merged(e.at_most for e in envelopes), merged(e.at_least for e in envelopes)
    if at_most is None or at_least is None:
        return None
    fewest, most = sum(e.fewest for e in envelopes), sum(e.most for e in envelopes)
    if not enough(fewest, q):
        return None
    low = rank_bounds(at_most, at_most, _rank(q * fewest))
    high = rank_bounds(at_most, at_least, _rank(q * most))
    return None if low is None else Bounds(low.low, None if high is None else high.high)


def _rank(position: float) -> int:
    return max(1, math.ceil(round(position, 9)))


def _streamed(window: TargetWindow, signal: str) -> str | None:
    """TTFT and TPOT speak of streamed requests where the engine tells which those are (SGLang 0.5.17)."""
    if signal not in ("ttft_seconds", "tpot_seconds"):
        return None
    told = any(p.startswith("is_streaming=") for p in window.parts(signal))
    return "is_streaming=true" if told else None


def _envelope(window: TargetWindow, engine: Engine | None, signal: str) -> _Envelope | None:
    part = _streamed(window, signal)
    histogram, count = window.histogram(signal, part), ended(window, engine)
    if histogram is None or count is None:
        return None
    if signal == "ttft_seconds":
        return _ttft(window, engine, histogram, count)
    if signal == "tpot_seconds":
        return _tpot(window, engine, histogram, count)
    lost, total = min(count.lost, histogram.total), histogram.total
    return _Envelope(histogram, _less(histogram, lost), total - lost, total)


def _ttft(window: TargetWindow, engine: Engine | None, histogram: Histogram, count: Ended) -> _Envelope | None:
    """Ended requests: some had their first token before the window, some first tokens of it belong to others."""
    early, late = in_flight_slack(window, engine, count)
    if early is None or late is None:
        return None
    part = _streamed(window, "ttft_seconds")
    e2e = window.histogram("e2e_seconds", part)
    most = count.done.high or 0.0
    fewest = count.done.low
    if part is not None:  # no E2E series of streamed requests yet: none has ended
        streamed = e2e.total if e2e else 0.0
        most, fewest = min(most, streamed), max(0.0, streamed - count.cancelled)
    at_most = Histogram(histogram.le, tuple(min(most, c + early) for c in histogram.count))
    if at_most.total < most:  # those of whom no first token was seen are somewhere: at worst above every bound
        at_most = Histogram(at_most.le, (*at_most.count[:-1], most))
    return _Envelope(at_most, _with_carried(_less(histogram, late), window, engine, count), fewest, most)


def _with_carried(at_least: Histogram, window: TargetWindow, engine: Engine | None, count: Ended) -> Histogram:
    """Add ended requests whose first token came before the window where even the slowest of those is counted.

    More ended well than had a first token in the window: the rest had theirs before, none later than the highest bucket
    that was in use by then.
    """
    top, first = window.gauge("ttft_top_seconds"), window.histogram("ttft_seconds")
    if top is None or top.before is None or first is None or (engine is not None and engine.finished_counts_aborts):
        return at_least
    carried = max(0.0, count.done.low - first.total)
    counts = (c + carried if b >= top.before else c for b, c in zip(at_least.le, at_least.count, strict=True))
    return Histogram(at_least.le, tuple(counts))


def _tpot(window: TargetWindow, engine: Engine | None, histogram: Histogram, count: Ended) -> _Envelope:
    """Requests of two tokens or more: an engine that observes 0 for one token has those in its first bucket."""
    if engine is not None and engine.tpot_skips_single:
        return _Envelope(histogram, histogram, histogram.total, histogram.total)
    lengths = window.histogram("output_length_tokens")
    single = dict(zip(lengths.le, lengths.count, strict=True)).get(1.0) if lengths else None
    most_single = min(histogram.count[0], histogram.count[0] if single is None else single)
    if single is not None:
        exact = _less(histogram, most_single)
        lost = min(count.lost, exact.total)
        return _Envelope(exact, _less(exact, lost), exact.total - lost, exact.total)
    lost = min(most_single + count.lost, histogram.total)
    return _Envelope(histogram, _less(histogram, lost), histogram.total - lost, histogram.total)


def _less(histogram: Histogram, lost: float) -> Histogram:
    return Histogram(histogram.le, tuple(max(0.0, c - lost) for c in histogram.count)) if lost else histogram


def open_above(bounds: Bounds) -> bool:
    """True when only the lower end is known: the quantile is in the +Inf bucket."""
    return bounds.high is None or bounds.high == INF

"""Counters to increases: reset detection per series, before anything is summed (design §3).

A counter that fell began again at zero. When most of a target's counters fell at once, or its process start moved,
the whole target restarted: then every counter began again, those too that have already passed their old value.
A series that is born on a page of a target already known began at zero in between (engines create label sets at
their first event), so its first value is its increase.
"""

from dataclasses import dataclass, field

from goodwatch.core.catalogue import CATALOGUE, SINCE_BOOT
from goodwatch.core.model import Histogram, Sample, Scrape, SignalKind

#: process_start_time_seconds is computed from ticks and can move by rounding; a restart moves it by more.
_START_SLACK_S = 1.0

Key = tuple[str, str, str, str]  # model, rank, signal, part


@dataclass(frozen=True, slots=True)
class Increase:
    """What one series gained between two scrapes; counters in ``value``, histograms as an increase histogram."""

    model: str
    rank: str
    signal: str
    part: str
    value: float
    histogram: Histogram | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What changed on one target between its last good scrape and this one.

    ``start_s`` is None on the first scrape ever seen, which only sets the baseline. ``failed`` counts the scrapes
    that failed in between.
    """

    target: str
    service: str
    engine: str
    ts: float
    start_s: float | None
    up: bool
    restarted: bool = False
    failed: int = 0
    increases: tuple[Increase, ...] = ()
    gauges: tuple[Sample, ...] = ()


@dataclass(slots=True)
class Tracker:
    """The last value of every series of one target; feed it scrapes in order of time."""

    values: dict[Key, float | Histogram] = field(default_factory=dict)
    process_start_s: float | None = None
    last_s: float | None = None
    failed: int = 0

    def advance(self, scrape: Scrape) -> Step:
        """Take the next scrape and tell what it added. A failed scrape adds nothing and is counted."""
        if not scrape.up:
            self.failed += 1
            return Step(scrape.target, scrape.service, "", scrape.ts, self.last_s, up=False, failed=self.failed)
        counters, gauges = _split(scrape.samples)
        restarted = self.last_s is not None and self._restarted(counters, gauges)
        if restarted:
            self.values = {}
        increases: list[Increase] = []
        if self.last_s is not None:
            known = ((k, v) for k, v in counters.items() if k in self.values or k[2] not in SINCE_BOOT)
            increases = [self._increase(key, value) for key, value in known]
        self.values.update(counters)
        for key in [k for k in self.values if k[2] in SINCE_BOOT and k not in counters]:
            del self.values[key]  # a device that comes back was not watched meanwhile
        start, failed = self.last_s, self.failed
        self.last_s, self.failed = scrape.ts, 0
        self.process_start_s = _process_start(gauges) or self.process_start_s
        engine = scrape.samples[0].engine if scrape.samples else ""
        return Step(
            scrape.target, scrape.service, engine, scrape.ts, start, up=True, restarted=restarted, failed=failed,
            increases=tuple(increases), gauges=tuple(gauges),
        )  # fmt: skip

    def _restarted(self, counters: dict[Key, float | Histogram], gauges: list[Sample]) -> bool:
        start = _process_start(gauges)
        if start is not None and self.process_start_s is not None:
            return abs(start - self.process_start_s) > _START_SLACK_S
        before = {k: _count(v) for k, v in self.values.items() if _count(v) > 0}
        common = [k for k in before if k in counters]
        if not common:
            return self.failed > 0 and bool(before)
        fell = sum(_count(counters[k]) < before[k] for k in common)
        return fell * 2 > len(common)

    def _increase(self, key: Key, value: float | Histogram) -> Increase:
        before = self.values.get(key)
        if isinstance(value, Histogram):
            gained = histogram_increase(before if isinstance(before, Histogram) else None, value)
            return Increase(*key, gained.total, gained)
        return Increase(*key, counter_increase(before if isinstance(before, float) else None, value))


def counter_increase(before: float | None, now: float) -> float:
    """Gain of a counter; one that fell, or was born, began at zero.

    Examples
    --------
    >>> counter_increase(5.0, 8.0), counter_increase(5.0, 2.0), counter_increase(None, 3.0)
    (3.0, 2.0, 3.0)
    """
    return now if before is None or now < before else now - before


def histogram_increase(before: Histogram | None, now: Histogram) -> Histogram:
    """Gain of a cumulative histogram, itself cumulative; on the shared bounds when the bounds changed.

    A page read while the engine writes can have an observation in its total that its buckets lack: it was counted with
    the total then, and is not counted again when it reaches its bucket.
    """
    if before is None or now.total < before.total:
        return now
    total = None if now.sum is None or before.sum is None else max(0.0, now.sum - before.sum)
    if now.le == before.le:
        plain = [count - was for count, was in zip(now.count, before.count, strict=True)]
        if plain and plain[0] >= 0 and sorted(plain) == plain:  # whole pages: what each bucket gained is what it shows
            return Histogram(now.le, tuple(plain), total)
    old = dict(zip(before.le, before.count, strict=True))
    shared = [(bound, count - old[bound]) for bound, count in zip(now.le, now.count, strict=True) if bound in old]
    gained = [0.0] * len(shared)
    most = now.total - before.total
    for i in range(len(shared) - 1, -1, -1):
        most = min(most, max(0.0, shared[i][1]))
        gained[i] = most
    return Histogram(tuple(bound for bound, _ in shared), tuple(gained), total)


def _split(samples: tuple[Sample, ...]) -> tuple[dict[Key, float | Histogram], list[Sample]]:
    counters: dict[Key, float | Histogram] = {}
    gauges: list[Sample] = []
    for s in samples:
        value: float | Histogram | None = s.histogram if s.histogram is not None else s.value
        if CATALOGUE[s.signal].kind is SignalKind.GAUGE:
            gauges.append(s)
        elif value is not None:
            counters[(s.model, s.rank, s.signal, s.part)] = value
    return counters, gauges


def _process_start(gauges: list[Sample]) -> float | None:
    return next((g.value for g in gauges if g.signal == "process_start_seconds"), None)


def _count(value: float | Histogram) -> float:
    return value.total if isinstance(value, Histogram) else value

"""Series of quality scores: each score enters once, when the request that it is about is known.

Counters and sums only, so that Prometheus computes shares and means over any range and over any services. A score is one
opinion of one evaluator: shares are of scores, not of requests (goodwatch's own page joins the opinions of a request).
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl
from prometheus_client import Metric

from exporters._families import label_text
from goodwatch.core.quality import QualityRules
from goodwatch.signals.quality import joined

#: upper ends of the histogram of scores; scores are 0..1
BOUNDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
#: pairs of service and evaluator with series of their own; the rest is added to ``other``
MAX_PAIRS: Final = 100
OTHER: Final = "other"
#: a score is looked at again and again for so long: it may come before its request has settled
LOOK_BACK_S: Final = 600.0
#: scores that are remembered as counted: those of ``LOOK_BACK_S`` at 500 scores a second
MAX_KNOWN: Final = 300_000

_VERDICTS: Final = ("passed", "failed", "untold")
_SCORES: Final = "goodwatch_quality_scores"
_SCORE: Final = "goodwatch_quality_score"
_FOLDED: Final = "goodwatch_quality_pairs_folded"
_IDENTITY: Final = ("trace_id", "fact_id", "evaluator", "annotator", "identifier")

#: what is exported of quality: name, type, labels, meaning
QUALITY_SERIES: Final[tuple[tuple[str, str, str, str], ...]] = (
    (f"{_SCORES}_total", "counter", "service, evaluator, verdict", "scores whose request is known and ended in the last two hours, by what the evaluator's rule says of them: passed, failed or untold"),
    (_SCORE, "histogram", "service, evaluator", "the same scores from 0 to 1; those that are a label only are left out"),
    (f"{_FOLDED}_total", "counter", "", "scores counted under service and evaluator other: too many of them"),
)  # fmt: skip


def told_of(facts: pl.DataFrame, scores: pl.DataFrame, rules: QualityRules) -> pl.DataFrame:
    """Scores beside the service of their request: what ``QualitySeries.add`` takes.

    Parameters
    ----------
    facts
        Columns trace_id, fact_id, span_id, response_id, service (``request_frames.FACTS``).
    scores
        ``request_frames.SCORES``.
    rules
        What passes.
    """
    services = facts.select("trace_id", "fact_id", "service").unique(("trace_id", "fact_id"), keep="last")
    return joined(facts, scores, rules).join(services, on=["trace_id", "fact_id"], how="left", maintain_order="left")


@dataclass(slots=True)
class _Histogram:
    counts: list[float] = field(default_factory=lambda: [0.0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def add(self, score: float) -> None:
        place = next((i for i, bound in enumerate(BOUNDS) if score <= bound), len(BOUNDS))
        self.counts[place] += 1
        self.sum += score


@dataclass(slots=True)
class QualitySeries:
    """The series; ``add`` may run in another thread than ``families``."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[int, float] = field(default_factory=dict)  # hash of the identity → when it was counted
    _counts: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    _histograms: dict[tuple[str, str], _Histogram] = field(default_factory=dict)
    _folded: float = 0.0

    def add(self, told: pl.DataFrame, now_s: float) -> int:
        """Count the scores that were not counted in the last ``LOOK_BACK_S``; returns how many.

        ``told`` is what ``told_of`` gives. A score that is corrected within that time is counted as it first came.
        """
        rows = told.select(*_IDENTITY, "service", "score", "passed")
        with self._lock:
            self._forget(now_s)
            return sum(self._one(row, now_s) for row in rows.iter_rows(named=True))

    def _forget(self, now_s: float) -> None:
        """Drop what is too old to be shown again; the oldest come first, because each is put in when it is counted."""
        while self._known:
            key, counted_s = next(iter(self._known.items()))
            if counted_s > now_s - 2 * LOOK_BACK_S and len(self._known) <= MAX_KNOWN:
                break
            del self._known[key]

    def _one(self, row: Mapping[str, object], now_s: float) -> bool:
        key = hash(tuple(row[name] for name in _IDENTITY))
        if key in self._known:
            return False
        self._known[key] = now_s
        pair = self._pair(label_text(str(row["service"] or "")), label_text(str(row["evaluator"] or "")))
        passed = row["passed"]
        self._counts[pair]["untold" if passed is None else "passed" if passed else "failed"] += 1
        score = row["score"]
        if isinstance(score, int | float):
            self._histograms[pair].add(float(score))
        return True

    def _pair(self, service: str, evaluator: str) -> tuple[str, str]:
        pair = (service, evaluator)
        if pair not in self._counts and len(self._counts) >= MAX_PAIRS:
            self._folded += 1
            pair = (OTHER, OTHER)
        if pair not in self._counts:
            self._counts[pair] = dict.fromkeys(
                _VERDICTS, 0.0
            )  # all from the first on: a rate needs a zero to start from
            self._histograms[pair] = _Histogram()
        return pair

    def families(self) -> Iterator[Metric]:
        """All families now."""
        with self._lock:
            counts = {pair: dict(by) for pair, by in self._counts.items()}
            histograms = {pair: _Histogram([*one.counts], one.sum) for pair, one in self._histograms.items()}
            folded = self._folded
        texts = {name: text for name, _, _, text in QUALITY_SERIES}
        family = Metric(_SCORES, texts[f"{_SCORES}_total"], "counter")
        for (service, evaluator), by in sorted(counts.items()):
            for verdict, value in by.items():
                labels = {"service": service, "evaluator": evaluator, "verdict": verdict}
                family.add_sample(f"{_SCORES}_total", labels, value)
        yield family
        yield _histogram_family(histograms, texts[_SCORE])
        family = Metric(_FOLDED, texts[f"{_FOLDED}_total"], "counter")
        family.add_sample(f"{_FOLDED}_total", {}, folded)
        yield family


def _histogram_family(histograms: Mapping[tuple[str, str], _Histogram], text: str) -> Metric:
    family = Metric(_SCORE, text, "histogram")
    for (service, evaluator), one in sorted(histograms.items()):
        labels, total = {"service": service, "evaluator": evaluator}, 0.0
        for bound, count in zip((*BOUNDS, None), one.counts, strict=True):
            total += count
            family.add_sample(f"{_SCORE}_bucket", {**labels, "le": "+Inf" if bound is None else str(bound)}, total)
        family.add_sample(f"{_SCORE}_count", labels, total)
        family.add_sample(f"{_SCORE}_sum", labels, one.sum)
    return family

"""Series that nobody recorded, made up so that names and labels can be seen to fit: no number in here proves anything.

Recorded rules and alerts (they are evaluated by a real Prometheus in ``tests/alerts``), goodwatch's own SLO numbers, the
planner's, and scores and tenants for the requests of a recording. The series of scores and tenants are written by
goodwatch's own exporters.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl
from prometheus_client import Metric

from alerts.rules import burn
from alerts.rules.build import build
from alerts.rules.values import Recording
from exporters.quality import QualitySeries, told_of
from exporters.recommendations import AdviceNow, RecommendationSeries, recommendation_families
from exporters.slo import SloSeries, SlosNow, TargetSeries, slo_families
from exporters.tenants import TenantSeries
from goodwatch.core.quality import QualityRules
from goodwatch.signals.request_frames import SCORES
from tests.alerts.services import BATCH, CHAT
from tests.alerts.services import OPTIONS as RULE_OPTIONS
from tests.support.views import AT_S

STEP_S: Final = 15.0
STEPS: Final = 41
Sample = tuple[str, dict[str, str], float, float]

#: window → burn rate that is shown of it: a fast burn that began an hour ago
_BURNS: Final = {"5m": 16.0, "15m": 15.5, "30m": 15.0, "1h": 14.8, "2h": 8.0, "6h": 3.2, "1d": 1.3, "3d": 0.8}
_HOURS: Final = {"5m": 1 / 12, "15m": 1 / 4, "30m": 0.5, "1h": 1, "2h": 2, "6h": 6, "1d": 24, "3d": 72, "_period": 720}
_REQUESTS_PER_HOUR: Final = 12_000.0
_OBJECTIVES: Final = {"chat": 0.99, "batch": 0.9}
_LEFT: Final = {"chat": 0.31, "batch": 0.84}
#: of the targets of a joint SLO one is the worst
_SHARES: Final = {"ttft": 1.0, "tpot": 0.3, "served": 0.05, "counted": 0.95, "e2e": 0.1}


def everything() -> Iterator[Sample]:
    """Samples as (name, labels, value, Unix seconds), but for those of requests."""
    for i in range(STEPS):
        at_s, grown = AT_S - (STEPS - 1 - i) * STEP_S, i / (STEPS - 1)
        now = [*_rules(grown), *_alert(grown), *_slos(grown), *_planner(i)]
        yield from ((name, labels, value, at_s) for name, labels, value in now)


def _rules(grown: float) -> Iterator[tuple[str, dict[str, str], float]]:
    """Every recorded rule of two SLOs with its labels."""
    for group in build([CHAT, BATCH], RULE_OPTIONS).groups:
        for rule in group.rules:
            if isinstance(rule, Recording):
                yield rule.name, dict(rule.labels), _value(rule.name, rule.labels, grown)


def _value(name: str, labels: Mapping[str, str], grown: float) -> float:
    budget = 1 - _OBJECTIVES[labels["slo"]]
    share = _SHARES.get(labels.get("target", ""), 1.0)
    for start, of in ((burn.RATIO, 1.0), (burn.TOTAL, 0.0), (burn.BAD, 0.0)):
        window = name.removeprefix(start)
        if window == name:
            continue
        error = budget * share * (0.69 if window == "_period" else _BURNS[window] * (0.4 + 0.6 * grown))
        total = _HOURS[window] * _REQUESTS_PER_HOUR
        return error if of else total * (error if start == burn.BAD else 1.0)
    left = 1 - (1 - _LEFT[labels["slo"]]) * share - 0.02 * grown
    return {burn.OBJECTIVE: 1 - budget, burn.BUDGET: budget, burn.BUDGET_LEFT: left}.get(name, 1.0)


def _alert(grown: float) -> Iterator[tuple[str, dict[str, str], float]]:
    labels = {"alertname": "LlmErrorBudgetBurnFast", "service": "chat", "slo": "chat", "severity": "critical"}
    if grown > 0.4:
        yield "ALERTS", {**labels, "alertstate": "firing"}, 1.0


def _slos(grown: float) -> Iterator[tuple[str, dict[str, str], float]]:
    """goodwatch's own numbers: of the SLOs that rules watch as well, and of a calendar month that no rule can watch."""
    shown = [
        _slo("chat", "chat", "30d", grown),
        _slo("batch", "batch", "30d", grown),
        _slo("batch", "batch-month", "month", grown),
    ]
    drifts = [("chat", "burn", "chat")] if grown > 0.2 else []
    for family in slo_families(SlosNow(shown, drifts)):
        yield from ((one.name, dict(one.labels), float(one.value)) for one in family.samples)


def _slo(service: str, slo: str, period: str, grown: float) -> SloSeries:
    pace = (0.4 + 0.6 * grown) * (1.0 if service == "chat" else 0.1)
    worst = TargetSeries(
        "ttft", _LEFT[service] - 0.02 * grown, {window: rate * pace for window, rate in _BURNS.items()}
    )
    other = TargetSeries("tpot", 0.99, {window: rate * pace * 0.1 for window, rate in _BURNS.items()})
    ends: tuple[float | None, ...] = (
        tuple(days * 86_400 * (1.2 - grown) for days in (0.6, 0.4, 1.1)) if slo == "chat" else (None,) * 3
    )
    firing = {name: service == "chat" and grown > since for name, since in (("critical", 0.4), ("warning", 0.3))}
    return SloSeries(service, slo, _OBJECTIVES[service], period, (worst, other), (ends[0], ends[1], ends[2]), firing)


#: recommendation → service, strategy, state, confidence, expected saving a week
_RECOMMENDED: Final = {
    "chat-kv-fp8": ("chat", "kv-cache", "proposed", "medium", 840.0),
    "chat-tp2-to-tp1": ("chat", "parallelism", "verified", "high", 1260.0),
    "chat-speculative": ("chat", "speculation", "refuted", "low", 310.0),
    "batch-more-seqs": ("batch", "batching", "accepted", "high", 420.0),
}
_EXPECTED: Final = {
    "attainment_ratio": 0.991, "ttft_p99_seconds": 0.43, "tpot_p99_seconds": 0.041, "usd_per_million_good_tokens": 1.9,
    "vram_headroom_ratio": 0.18,
}  # fmt: skip
_HIGHER_IS_BETTER: Final = ("attainment_ratio", "vram_headroom_ratio")
#: measured over expected, by state
_CAME: Final = {"verified": 1.03, "refuted": 1.4}


def _planner(step: int) -> Iterator[tuple[str, dict[str, str], float]]:
    """As goodwatch's own exporter writes them."""
    counted = [(one.service, one.strategy, one.state, 1 + step // 10) for one in _recommended()]
    verdicts = {
        name: step // every
        for name, every in (("better", 8), ("worse", 30), ("no_difference", 12), ("inconclusive", 40))
    }
    now = AdviceNow(_recommended(), counted, {True: 2 + step // 4, False: step // 20}, verdicts)
    for family in recommendation_families(now):
        yield from ((one.name, dict(one.labels), float(one.value)) for one in family.samples)


def _recommended() -> list[RecommendationSeries]:
    found = []
    for name, (service, strategy, state, confidence, usd) in _RECOMMENDED.items():
        predicted = {metric: _ends(metric, value) for metric, value in _EXPECTED.items()}
        off = _CAME.get(state)
        measured = (
            {}
            if off is None
            else {
                metric: min(1.0, value / off) if metric in _HIGHER_IS_BETTER else value * off
                for metric, value in _EXPECTED.items()
            }
        )
        inside = dict.fromkeys(measured, state == "verified")
        found.append(RecommendationSeries(
            service, name, strategy, state, confidence, predicted, measured, inside, (usd, usd * 0.7, usd * 1.3)
        ))  # fmt: skip
    return found


def _ends(metric: str, value: float) -> tuple[float, float, float]:
    """Point, low and high: a tenth to either side, a hundredth for shares."""
    width = 0.01 if metric in _HIGHER_IS_BETTER else 0.1
    high = value * (1 + width)
    return value, value * (1 - width), min(1.0, high) if metric in _HIGHER_IS_BETTER else high


# --- beside the requests of a recording ---------------------------------------------------------------------------------


class Beside:
    """Scores and tenants of requests that really were, counted by goodwatch's own exporters."""

    def __init__(self) -> None:
        self._quality, self._tenants = QualitySeries(), TenantSeries()

    def add(self, judged: pl.DataFrame, now_s: float) -> None:
        """Count some requests: every third is scored, and tenants take turns."""
        turns = judged.with_row_index("nth").with_columns(
            tenant=pl.when(pl.col("nth") % 5 == 0).then(pl.lit(None)).when(pl.col("nth") % 3 == 0)
            .then(pl.lit("globex")).otherwise(pl.lit("acme"))
        )  # fmt: skip
        self._tenants.add(turns)
        scored = [_score(row, now_s) for row in judged[::3].iter_rows(named=True)]
        self._quality.add(told_of(judged, pl.DataFrame(scored, schema=SCORES), QualityRules()), now_s)

    def families(self) -> Iterator[Metric]:
        """What the exporters write now."""
        yield from self._quality.families()
        yield from self._tenants.families()


def _score(row: Mapping[str, Any], now_s: float) -> dict[str, Any]:
    """A score that follows from the length of the answer, so that it is the same each time."""
    score = ((row["output_tokens"] or 0) * 37 % 100) / 100
    return {
        **dict.fromkeys(SCORES), "ts": now_s, "received_s": now_s, "trace_id": row["trace_id"], "span_id": row["span_id"],
        "evaluator": "helpful" if row["output_tokens"] and row["output_tokens"] % 2 else "faithfulness", "annotator": "llm",
        "identifier": "judge", "score": math.sqrt(score),
    }  # fmt: skip

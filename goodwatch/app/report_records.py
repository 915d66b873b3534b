"""What the records of a week say for the report: advice, experiments on cost, and drifts. Blocking reads, else pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from goodwatch.app.slo_drifts import DRIFT, drift_of
from goodwatch.core.drift import Drift
from goodwatch.core.errors import ConfigError
from goodwatch.core.ports import RecordStore
from goodwatch.core.record import Record
from planner.experiments.values import KIND, Effect, Experiment, Outcome, Verdict, from_record
from planner.report.facts import NONE, Advised, Anomaly, Figure, Verified, week_worth
from planner.report.weeks import Week

RECOMMENDATION: Final = "recommendation"
_COST: Final = ("usd_per_million_good_tokens", "cost_per_million_good_tokens")
#: who withdraws what newer evidence no longer says: nobody declined it
_OURSELVES: Final = "goodwatch"


@dataclass(frozen=True, slots=True)
class WeekRecords:
    """What was kept of a week; ``bad``: records that cannot be read."""

    advised: tuple[Advised, ...]
    verified: tuple[Verified, ...]
    anomalies: tuple[Anomaly, ...]
    bad: int


def records_of(
    records: RecordStore, week: Week, spent: Mapping[str, Figure], drifts: Iterable[Drift] = ()
) -> WeekRecords:
    """Advice that was open at the end of a week or declined in it, experiments on cost that ended in it, and its drifts.

    ``spent``: what each service cost in the week; ``drifts``: those that go on. Raises ``StoreError``.
    """
    advised, verified, bad = [], [], 0
    for record in _at_the_end(records, week):
        one = advised_of(record)
        if one is None:
            bad += 1
        elif one.state in ("proposed", "accepted") or (one.state == "declined" and _is_declined(record, week)):
            advised.append(one)
    for record in records.latest(KIND, start_s=week.start_s):
        try:
            experiment = from_record(record)
        except ConfigError:
            bad += 1
            continue
        at_s = experiment.verdict.at_s if experiment.verdict is not None else None
        if at_s is not None and week.start_s <= at_s < week.end_s:
            found = verified_of(experiment, spent.get(experiment.service, NONE))
            verified += [] if found is None else [found]
    kept = [drift for record in records.latest(DRIFT) if (drift := drift_of(record.body)) is not None]
    return WeekRecords(tuple(advised), tuple(verified), _anomalies([*kept, *drifts], week), bad)


def _at_the_end(records: RecordStore, week: Week) -> Iterator[Record]:
    """Recommendations as they were when the week ended: a report that is made later must not tell what came after."""
    for record in records.latest(RECOMMENDATION):
        if record.at_s < week.end_s:
            yield record
            continue
        before = [one for one in records.history(RECOMMENDATION, record.id) if one.at_s < week.end_s]
        if before:
            yield before[-1]


def _is_declined(record: Record, week: Week) -> bool:
    """Whether somebody declined it in the week."""
    return record.at_s >= week.start_s and _last_step(record.body).get("by") != _OURSELVES


def _anomalies(drifts: Iterable[Drift], week: Week) -> tuple[Anomaly, ...]:
    inside = {d.id: d for d in drifts if d.began_s < week.end_s and (d.ended_s is None or d.ended_s >= week.start_s)}
    return tuple(
        Anomaly(
            d.service, d.kind, d.began_s, d.ended_s if d.ended_s is None or d.ended_s < week.end_s else None, d.signal, d.value,
            d.expected,
        )
        for d in inside.values()
    )  # fmt: skip


def advised_of(record: Record) -> Advised | None:
    """What the record of a recommendation says for the report; None where it cannot be read."""
    body: Mapping[str, Any] = record.body
    try:
        changes = {str(k): str(v) for k, v in (body.get("changes") or {}).items()}
        restart = body.get("restart")
        return Advised(
            record.id, str(body["service"]), str(body["strategy"]), str(body["state"]),
            _figure(body.get("saving_usd_per_week")), str(body.get("confidence") or ""), changes,
            restart if isinstance(restart, bool) else None, bool(body.get("gate")), str(_last_step(body).get("note") or ""),
            str(body.get("mode") or "save"),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _figure(told: Any) -> Figure:
    """An estimate as it is kept: point, low and high."""
    if told is None:
        return NONE
    return Figure(float(told["point"]), float(told["low"]), float(told["high"]), "predicted")


def verified_of(experiment: Experiment, usd: Figure) -> Verified | None:
    """An experiment with a verdict on cost, in money at this week's spend; None when it is not about cost."""
    verdict = experiment.verdict
    effect = next((e for e in verdict.effects if e.metric in _COST), None) if verdict is not None else None
    if verdict is None or effect is None:
        return None
    predicted = next((p for p in experiment.predictions if p.metric == effect.metric), None)
    ratio = Figure(effect.value, effect.low, effect.high, "estimated")
    told = NONE
    if predicted is not None:
        middle = predicted.value if predicted.value is not None else math.sqrt(max(0.0, predicted.low * predicted.high))
        told = week_worth(Figure(middle, predicted.low, predicted.high), usd)
        told = replace(told, basis="predicted" if told.value is not None else None)
    inside = None if predicted is None or effect.value is None else predicted.holds(effect.value)
    return Verified(
        experiment.id, experiment.service, experiment.factor.name if experiment.factor else "", _outcome(verdict, effect), ratio,
        told, week_worth(ratio, usd), inside, verdict.gate == "vetoed",
    )  # fmt: skip


def _outcome(verdict: Verdict, effect: Effect) -> Outcome:
    """Better only where it is shown that answers are no worse."""
    return "inconclusive" if verdict.gate == "not_shown" and effect.outcome == "better" else effect.outcome


def _last_step(body: Mapping[str, Any]) -> Mapping[str, Any]:
    steps = body.get("steps") or [{}]
    return steps[-1]  # type: ignore[no-any-return]

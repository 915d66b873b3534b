"""What the API answers about SLOs and drifts. Pure."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, Field

from goodwatch.app.slo_view import SloView
from goodwatch.core.drift import Drift
from goodwatch.core.slo import JointGoodput, Slo
from goodwatch.signals.budget import CurvePoint, Eater, SloStatus, TargetStatus


class WindowShape(BaseModel):
    """Events of one count in one window that ends at the SLO's at_s."""

    length_s: float = Field(description="Length in seconds.")
    total: float | None = Field(description="Valid events; null: no data. 0: no traffic.")
    bad: float | None = Field(description="Bad events; null: no data.")
    burn: float | None = Field(description="Burn rate: 1 spends the budget over just the period; null: no events.")


class ForecastShape(BaseModel):
    """Seconds until the budget is used up if the last day's burn goes on; null: not within sight."""

    expected_s: float | None
    soonest_s: float | None = Field(description="With latest_s it holds the truth with 95 % probability.")
    latest_s: float | None


class CountShape(BaseModel):
    """One count of events: of one target (ttft, tpot, e2e, served, counted, …) and one value of what splits the SLO."""

    target: str
    group: dict[str, str] = Field(description="Values of the labels that split the SLO.")
    budget_left_ratio: float | None = Field(description="1 untouched, 0 used up, below 0 overdrawn; null: not known.")
    total: float | None = Field(description="Valid events of the period so far; null: no data.")
    bad: float | None = Field(description="Bad events of the period so far.")
    windows: list[WindowShape]
    forecast: ForecastShape | None = Field(description="null: no events in the last day, or no budget to go by.")


class PairShape(BaseModel):
    """Two windows that must both burn for an alert."""

    tier: str
    severity: str = Field(description="page or ticket.")
    long_s: float
    short_s: float
    factor: float = Field(description="Burn rate above which it fires.")
    threshold_ratio: float = Field(description="Error ratio above which it fires: factor × budget.")
    fitted: bool = Field(description="The usual factor was lowered, or a total outage would not reach it in time.")
    fires: bool


class DriftShape(BaseModel):
    """A service leaves what was promised, or where it was."""

    id: str
    service: str
    slo: str = Field(description="Empty: it is about a number of the service and no SLO.")
    kind: str = Field(description="burn, forecast, attainment, latency, cost or quality.")
    severity: str = Field(description="page or ticket.")
    signal: str = Field(description="The number that drifts; value, expected, low and high are in its unit.")
    text: str
    began_s: float = Field(description="Unix time.")
    seen_s: float = Field(description="Unix time at which it was last looked at.")
    value: float | None
    expected: float | None = Field(description="What was promised, or where the number was.")
    low: float | None = Field(description="With high it holds the value with 95 % probability.")
    high: float | None


class SloShape(BaseModel):
    """One SLO and its state now."""

    name: str
    service: str
    description: str
    owner: str
    objective: float = Field(description="Share of good events, 0..1.")
    period_s: float = Field(description="Seconds; of a calendar unit nominal.")
    calendar: str = Field(description="day, week, month, quarter or year; empty: rolling.")
    at_s: float | None = Field(
        description="End of all windows, Unix time; null: there is no number, and note says why."
    )
    starts_s: float | None = Field(description="Beginning of the period, Unix time.")
    ends_s: float | None = Field(description="End of the period; of a rolling one at_s.")
    since_s: float | None = Field(description="When the data begin, Unix time.")
    budget_left_ratio: float | None = Field(
        description="Of the count with the least left; null: not known, or a part of the period only (note says which)."
    )
    at_most: bool = Field(
        description="The budget is an upper end: no series counts what misses several limits at once."
    )
    counts: list[CountShape]
    pairs: list[PairShape]
    firing: list[str] = Field(description="Names of its alerts that fire.")
    drifts: list[DriftShape]
    note: str = Field(description="Why there are no numbers, or what they leave out.")


class SlosShape(BaseModel):
    """All SLOs: those that fire first, then by what is left."""

    slos: list[SloShape]
    left_out: list[str] = Field(description="What is not judged without Prometheus, and why.")


class PointShape(BaseModel):
    """The budget at one time."""

    at_s: float = Field(description="Unix time.")
    budget_left_ratio: float | None = Field(description="null: no data yet.")
    burn: float | None = Field(description="Since the point before; null: no events.")


class EaterShape(BaseModel):
    """Bad events with one value of a column."""

    key: str | None = Field(description="null: not told.")
    bad: float
    total: float
    share_ratio: float = Field(description="Part of all bad events.")
    budget_ratio: float = Field(description="Part of the period's budget that it took; above 1: more than all of it.")
    error_ratio: float | None = Field(description="Bad share of its own events.")


class SloDetail(SloShape):
    """One SLO with its budget over the period, and what ate it."""

    curve: list[PointShape] = Field(description="Of the count with the least left; empty where nothing is known.")
    eaters: dict[str, list[EaterShape]] = Field(
        description="By target, cause, band, tenant, route, replica, model; empty lists where nothing is known."
    )
    eaters_notes: dict[str, str] = Field(description="Why one of them is not there.")


class DriftsShape(BaseModel):
    """Drifts that go on, newest first."""

    drifts: list[DriftShape]


def at_most(slo: Slo, worst: TargetStatus | None) -> bool:
    """Whether a budget is an upper end: a joint SLO of which only single targets are counted."""
    return isinstance(slo.indicator, JointGoodput) and worst is not None and worst.target != "counted"


def left_of(view: SloView, count: TargetStatus | None) -> float | None:
    """What may be said of a budget: None for counts that do not fit together or hold a part of the period only."""
    if count is None or count.budget is None or count.budget.broken or view.note:
        return None
    return count.budget.left_ratio


def slo_shape(view: SloView) -> SloShape:
    """One SLO now."""
    return SloShape.model_validate(_fields(view))


def slo_detail(
    view: SloView, curve: Sequence[CurvePoint], eaters: Mapping[str, Sequence[Eater]], notes: Mapping[str, str]
) -> SloDetail:
    """One SLO with its curve and what ate the budget."""
    points = [PointShape(at_s=p.at_s, budget_left_ratio=p.left_ratio, burn=p.burn) for p in curve]
    ate = {by: [_eater_shape(one) for one in found] for by, found in eaters.items()}
    more = {"curve": points, "eaters": ate, "eaters_notes": dict(notes)}
    return SloDetail.model_validate(_fields(view) | more)


def _fields(view: SloView) -> dict[str, object]:
    slo, status = view.slo, view.status
    worst = status.worst if status is not None else None
    return {
        "name": slo.name, "service": slo.service, "description": slo.description, "owner": slo.owner,
        "objective": slo.objective, "period_s": slo.period.length_s, "calendar": slo.period.calendar,
        "at_s": status.at_s if status else None, "starts_s": status.starts_s if status else None,
        "ends_s": status.ends_s if status else None, "since_s": status.since_s if status else None,
        "budget_left_ratio": left_of(view, worst), "at_most": at_most(slo, worst),
        "counts": [_count_shape(view, one) for one in status.targets] if status else [],
        "pairs": _pair_shapes(status) if status else [],
        "firing": [one.name for one in view.firing], "drifts": [drift_shape(one) for one in view.drifts],
        "note": view.note,
    }  # fmt: skip


def _count_shape(view: SloView, one: TargetStatus) -> CountShape:
    slo, ends = view.slo, None if view.note else one.forecast
    return CountShape(
        target=one.target, group=dict(zip(slo.scope.by, one.group, strict=False)),
        budget_left_ratio=left_of(view, one),
        total=one.period.total if one.period else None, bad=one.period.bad if one.period else None,
        windows=[
            WindowShape(
                length_s=length_s, total=events.total if events else None, bad=events.bad if events else None,
                burn=one.burn(length_s, slo.objective),
            )
            for length_s, events in sorted(one.windows.items())
        ],
        forecast=None if ends is None else ForecastShape(
            expected_s=ends.expected_s, soonest_s=ends.soonest_s, latest_s=ends.latest_s
        ),
    )  # fmt: skip


def _pair_shapes(status: SloStatus) -> list[PairShape]:
    least = status.slo.min_failures
    return [
        PairShape(
            tier=pair.tier, severity=pair.severity, long_s=pair.long_s, short_s=pair.short_s, factor=pair.factor,
            threshold_ratio=pair.threshold_ratio, fitted=pair.fitted,
            fires=any(one.fires(pair, least) for one in status.targets),
        )
        for pair in status.pairs
    ]  # fmt: skip


def drift_shape(one: Drift) -> DriftShape:
    """One drift."""
    return DriftShape(
        id=one.id, service=one.service, slo=one.slo, kind=one.kind, severity=one.severity, signal=one.signal,
        text=one.text, began_s=one.began_s, seen_s=one.seen_s, value=one.value, expected=one.expected, low=one.low,
        high=one.high,
    )  # fmt: skip


def _eater_shape(one: Eater) -> EaterShape:
    return EaterShape(
        key=one.key, bad=one.bad, total=one.total, share_ratio=one.share_ratio, budget_ratio=one.budget_ratio,
        error_ratio=one.error_ratio,
    )  # fmt: skip

"""What the API answers, and how it is made from the service's values. Pure.

A number that is not there is null and says why; NaN and infinities never leave: an end without limit is null with
``open`` true.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from pydantic import BaseModel, Field

from goodwatch.api.device_shapes import DeviceShape, device_shape
from goodwatch.app.view import Event, Reloaded, ServiceView, TargetView
from goodwatch.core.model import Absence, Basis, Bounds, Deployment, Number
from goodwatch.signals.derive import MEANINGS, Derived
from goodwatch.signals.goodput import Goodput
from goodwatch.signals.saturation import Limit, Saturation, Stall

BASES: Final[dict[Basis, str]] = {
    Basis.COUNTED: "counted request by request, and reconciled with the engine's own counter",
    Basis.ESTIMATED: "estimated from a sample of the requests",
    Basis.BOUNDED: "an interval that holds the true value, from histograms",
    Basis.MEASURED: "read from the engine's own counters and gauges",
}
ABSENCES: Final[dict[Absence, str]] = {
    Absence.NO_TRAFFIC: "the engine was seen and nothing happened",
    Absence.NO_DATA: "nothing was seen",
    Absence.NOT_MEASURABLE: "this engine, version or setting does not tell",
}


class NumberShape(BaseModel):
    """A point (value), an interval (low, high), or the reason why there is none (absence)."""

    unit: str
    value: float | None = Field(description="The point; null when there is none.")
    low: float | None = Field(description="Lower end of the interval that holds the true value.")
    high: float | None = Field(description="Upper end; null beside a low means without limit.")
    open: bool = Field(description="Whether the interval has no upper end.")
    basis: str | None = Field(description="How it is known: counted, estimated, bounded, measured.")
    absence: str | None = Field(description="Why there is no number: no traffic, no data, not measurable.")
    note: str = Field(description="A sentence for a person; often empty.")


class IntervalShape(BaseModel):
    """Two ends; ``high`` null means without limit."""

    low: float | None
    high: float | None


class CountsShape(BaseModel):
    """The counts behind the attainment. Counts add up over services; ratios do not."""

    ended: float | None
    good: IntervalShape
    valid: IntervalShape
    failed: float | None
    unaccounted: float | None = Field(description="null: the engine does not count arrivals.")


class LimitsShape(BaseModel):
    """Latency targets in seconds; null is no target."""

    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None


class TargetShape(BaseModel):
    """One scraped target now."""

    name: str
    kind: str = Field(description="engine, or accelerator for an exporter of accelerators, which has no service.")
    url: str
    service: str
    up: bool | None = Field(description="null: not scraped yet.")
    error: str = Field(description="Sentence of the last failed scrape; empty when up.")
    last_scrape_s: float | None = Field(description="Unix time.")
    duration_s: float | None
    engine: str
    engine_version: str
    models: list[str]
    labels: dict[str, str]


class DeploymentShape(BaseModel):
    """What a target says it runs, since ``since_s`` (Unix time)."""

    since_s: float
    engine: str
    engine_version: str
    model: str
    facts: dict[str, str]


class TargetDetail(TargetShape):
    """One target with its numbers and what it runs."""

    numbers: dict[str, NumberShape] | None = Field(description="null: nothing was derived yet.")
    deployment: DeploymentShape | None
    price_note: str
    devices: list[DeviceShape] = Field(description="Accelerators that it holds, or that an exporter tells of.")
    devices_note: str = Field(description="Why there are none.")
    device_numbers: dict[str, NumberShape] = Field(
        description="Of an exporter: its devices' numbers, over all targets that hold them together."
    )


class ServiceShape(BaseModel):
    """One service now; numbers are over ``[start_s, end_s)`` (Unix time)."""

    name: str
    description: str
    state: str = Field(description="good, warning, bad, no traffic, no data.")
    headline: str = Field(description="What is wrong, in one line.")
    objective: float | None = Field(description="Share of requests that must be good, 0..1; null without one.")
    limits: LimitsShape
    start_s: float
    end_s: float
    numbers: dict[str, NumberShape]
    targets_up: int
    targets_total: int


class LimitShape(BaseModel):
    """A limit and how near it is; 1 is at the limit, null unknown."""

    name: str
    used_ratio: float | None
    reason: str


class SaturationShape(BaseModel):
    """Limits of a target, fullest first, and the one that binds."""

    target: str
    limits: list[LimitShape]
    binding: LimitShape | None


class StallShape(BaseModel):
    """Work is there and nothing moves since ``since_s`` (Unix time)."""

    target: str
    since_s: float
    running: float | None
    waiting: float | None


class ServiceDetail(ServiceShape):
    """One service with its models, targets, and what holds it back."""

    counts: CountsShape | None = Field(description="null: no counter of ended requests.")
    by_model: dict[str, dict[str, NumberShape]]
    targets: list[TargetShape]
    saturations: list[SaturationShape]
    stalls: list[StallShape]


class ServicesShape(BaseModel):
    """All services, worst first."""

    now_s: float
    services: list[ServiceShape]


class TargetsShape(BaseModel):
    """All targets by name."""

    now_s: float
    targets: list[TargetShape]


class EventShape(BaseModel):
    """Something that happened."""

    at_s: float
    at: str = Field(description="The same time as RFC 3339, UTC.")
    service: str
    target: str
    kind: str
    text: str


class EventsShape(BaseModel):
    """What happened in ``[start_s, end_s)``, oldest first; ``truncated`` when older ones were left out."""

    start_s: float
    end_s: float
    truncated: bool
    events: list[EventShape]


class MeaningShape(BaseModel):
    """What a number says: its name here, its exported series, its unit."""

    name: str
    series: str
    unit: str
    text: str


class MeaningsShape(BaseModel):
    """Definitions of numbers, bases and absences."""

    numbers: list[MeaningShape]
    bases: dict[str, str]
    absences: dict[str, str]


class VersionShape(BaseModel):
    """What runs."""

    version: str
    api: str


class ReloadedShape(BaseModel):
    """A configuration that was taken: ``changed`` names the parts that differ."""

    ok: bool
    changed: list[str]


class HealthShape(BaseModel):
    """Whether goodwatch itself works."""

    status: str
    message: str


def number_shape(number: Number) -> NumberShape:
    """A number; one that is not finite counts as not there."""
    value, bounds = finite(number.value), number.bounds
    low, high = (finite(bounds.low), finite(bounds.high)) if bounds else (None, None)
    missing = value is None and low is None and high is None
    absence = number.absence or (Absence.NO_DATA if missing else None)
    return NumberShape(
        unit=number.unit, value=value, low=low, high=high, open=low is not None and high is None,
        basis=number.basis.value if number.basis else None, absence=absence.value if absence else None,
        note=number.note,
    )  # fmt: skip


def finite(value: float | None) -> float | None:
    """The value, or None when it is NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def rfc3339(at_s: float) -> str:
    """Unix time as RFC 3339 in UTC, to the millisecond.

    Examples
    --------
    >>> rfc3339(0.0), rfc3339(1772593920.25)
    ('1970-01-01T00:00:00Z', '2026-03-04T03:12:00.250Z')
    """
    at = datetime.fromtimestamp(at_s, UTC)
    return at.isoformat(timespec="milliseconds" if at.microsecond >= 1000 else "seconds")[:-6] + "Z"


def numbers_shape(numbers: Mapping[str, Number]) -> dict[str, NumberShape]:
    """Numbers by name, in the order of ``MEANINGS``."""
    return {name: number_shape(number) for name, number in numbers.items()}


def service_shape(view: ServiceView) -> ServiceShape:
    """A service for the list."""
    return ServiceShape(
        name=view.name, description=view.description, state=view.state, headline=view.headline,
        objective=view.objective,
        limits=LimitsShape(ttft_s=view.limits.ttft_s, tpot_s=view.limits.tpot_s, e2e_s=view.limits.e2e_s),
        start_s=view.derived.start_s, end_s=view.derived.end_s, numbers=numbers_shape(view.derived.numbers),
        targets_up=sum(t.up is True for t in view.targets), targets_total=len(view.targets),
    )  # fmt: skip


def service_detail(view: ServiceView) -> ServiceDetail:
    """A service with everything that is known of it."""
    return ServiceDetail(
        **dict(service_shape(view)),
        counts=_counts(view.derived.goodput),
        by_model={model: numbers_shape(derived.numbers) for model, derived in view.by_model.items()},
        targets=[target_shape(target) for target in view.targets],
        saturations=[_saturation(one) for one in view.saturations],
        stalls=[_stall(one) for one in view.stalls],
    )


def target_shape(view: TargetView) -> TargetShape:
    """A target for the list."""
    return TargetShape(
        name=view.name, kind=view.kind, url=view.url, service=view.service, up=view.up, error=view.error,
        last_scrape_s=finite(view.last_scrape_s), duration_s=finite(view.duration_s), engine=view.engine,
        engine_version=view.engine_version, models=list(view.models), labels=dict(view.labels),
    )  # fmt: skip


def target_detail(view: TargetView) -> TargetDetail:
    """A target with its numbers and what it runs."""
    return TargetDetail(
        **dict(target_shape(view)),
        numbers=_numbers_or_none(view.derived),
        deployment=_deployment(view.deployment),
        price_note=view.price_note,
        devices=[device_shape(device) for device in view.devices],
        devices_note=view.devices_note,
        device_numbers=numbers_shape(view.device_numbers),
    )


def event_shape(event: Event) -> EventShape:
    """An event."""
    return EventShape(
        at_s=event.ts, at=rfc3339(event.ts), service=event.service, target=event.target, kind=event.kind,
        text=event.text,
    )  # fmt: skip


def meanings_shape(series: Mapping[str, str]) -> MeaningsShape:
    """All definitions; ``series`` gives the exported name of each number."""
    return MeaningsShape(
        numbers=[MeaningShape(name=n, series=series[n], unit=m.unit, text=m.text) for n, m in MEANINGS.items()],
        bases={basis.value: text for basis, text in BASES.items()},
        absences={absence.value: text for absence, text in ABSENCES.items()},
    )


def reloaded_shape(outcome: Reloaded) -> ReloadedShape:
    """A reload that was taken."""
    return ReloadedShape(ok=outcome.ok, changed=list(outcome.changed))


def targets_shape(targets: Iterable[TargetView], now_s: float) -> TargetsShape:
    """The list of targets."""
    return TargetsShape(now_s=now_s, targets=[target_shape(target) for target in targets])


def _numbers_or_none(derived: Derived | None) -> dict[str, NumberShape] | None:
    return None if derived is None else numbers_shape(derived.numbers)


def _interval(bounds: Bounds) -> IntervalShape:
    return IntervalShape(low=finite(bounds.low), high=finite(bounds.high))


def _counts(goodput: Goodput | None) -> CountsShape | None:
    if goodput is None:
        return None
    return CountsShape(
        ended=finite(goodput.ended), good=_interval(goodput.good), valid=_interval(goodput.valid),
        failed=finite(goodput.failed), unaccounted=finite(goodput.unaccounted),
    )  # fmt: skip


def _deployment(deployment: Deployment | None) -> DeploymentShape | None:
    if deployment is None:
        return None
    return DeploymentShape(
        since_s=deployment.ts, engine=deployment.engine, engine_version=deployment.engine_version,
        model=deployment.model, facts=dict(deployment.facts),
    )  # fmt: skip


def _saturation(one: Saturation) -> SaturationShape:
    binding = None if one.binding is None else _limit(one.binding)
    return SaturationShape(target=one.target, limits=[_limit(limit) for limit in one.limits], binding=binding)


def _limit(limit: Limit) -> LimitShape:
    return LimitShape(name=limit.name, used_ratio=finite(limit.used_ratio), reason=limit.reason)


def _stall(one: Stall) -> StallShape:
    return StallShape(target=one.target, since_s=one.since_s, running=finite(one.running), waiting=finite(one.waiting))

"""An SLO as it is written in YAML, and back: the entries of ``slos`` in a file of their own or in the configuration."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from goodwatch.core.duration import duration_s, duration_text
from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Limits
from goodwatch.core.section import Count, Duration, Positive, Section, Share
from goodwatch.core.slo import (
    DAY_S,
    Availability,
    Cost,
    Custom,
    Indicator,
    JointGoodput,
    Latency,
    Period,
    Quality,
    Scope,
    Slo,
    Tokens,
)

CALENDAR_DAYS: Final[Mapping[str, float]] = {"day": 1, "week": 7, "month": 30, "quarter": 91, "year": 365}
_SIGNALS: Final = {"ttft": "ttft_seconds", "tpot": "tpot_seconds", "e2e": "e2e_seconds"}
_INDICATORS: Final = ("availability", "latency", "goodput", "quality", "cost", "custom")
_WRONG_NAME: Final = "is not a name; write letters, digits, '-', '_' and '.'"

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]


class LimitsEntry(Section):
    """Latency limits of a request."""

    ttft_s: Duration | None = Field(default=None, description="Longest time to first token.")
    tpot_s: Duration | None = Field(default=None, description="Longest time per output token after the first.")
    e2e_s: Duration | None = Field(default=None, description="Longest time from arrival to the last token.")

    @model_validator(mode="after")
    def _some(self) -> "LimitsEntry":
        if self.limits == Limits():
            raise ValueError("has no limit; write at least one of ttft, tpot, e2e")
        return self

    @property
    def limits(self) -> Limits:
        """As a value."""
        return Limits(self.ttft_s, self.tpot_s, self.e2e_s)


class QualityEntry(Section):
    """Quality scores."""

    score: float = Field(ge=0, le=1, description="Least score (0..1) of a good answer.")
    evaluator: str = Field(default="", description="Who judges; all evaluators without it.")


class CostEntry(Section):
    """Cost of tokens."""

    usd_per_million: Positive = Field(description="Most that a million tokens may cost, in USD.")
    tokens: Tokens = Field(default="good", description="Which tokens: of good requests, output, or input and output.")


class CustomEntry(Section):
    """Events that queries count; ``$window`` stands for the range."""

    total: str = Field(min_length=1, description="PromQL of all events.")
    good: str = Field(default="", description="PromQL of good events; or write bad.")
    bad: str = Field(default="", description="PromQL of bad events; or write good.")
    slice_s: Duration | None = Field(default=None, description="Count slices of this length instead of events.")
    slice_target: Share | None = Field(default=None, description="Share of good events that makes a slice good.")

    @model_validator(mode="after")
    def _one_side(self) -> "CustomEntry":
        if bool(self.good) == bool(self.bad):
            raise ValueError("has both good and bad, or neither; write one of them")
        if (self.slice_s is None) != (self.slice_target is None):
            raise ValueError("has one of slice and slice_target; write both or none")
        return self


class PeriodEntry(Section):
    """Rolling time, or a unit of the calendar."""

    rolling_s: Duration | None = Field(default=None, description="Rolling time: a plain duration under period.")
    calendar: Literal["day", "week", "month", "quarter", "year"] | None = Field(
        default=None, description="Unit of the calendar, instead of rolling time."
    )
    starts: str = Field(default="", description="A moment at which one began; midnight UTC without it.")
    zone: str = Field(default="", description="Time zone of the calendar, as Europe/Berlin.")

    @model_validator(mode="after")
    def _one_kind(self) -> "PeriodEntry":
        if (self.rolling_s is None) == (self.calendar is None):
            raise ValueError("is neither a duration nor a unit of the calendar; write 30d, or {calendar: month}")
        if self.rolling_s is not None and (self.starts or self.zone):
            raise ValueError("has starts or zone, which rolling time has not; write calendar, or remove them")
        return self


def _period(value: object) -> object:
    if isinstance(value, dict | Section):
        return value
    duration_s(value)  # what is wrong is said of what was written
    return {"rolling": value}


class SloEntry(Section):
    """One SLO: a service, an objective over a period, and exactly one of the indicators."""

    name: Name = Field(description="Name, unique over all services.")
    service: Name = Field(description="Service that it is of.")
    objective: Share = Field(description="Share of events that must be good.")
    period: Annotated[PeriodEntry, BeforeValidator(_period)] = Field(
        default=PeriodEntry(rolling_s=30 * DAY_S), description="Rolling duration (30d), or {calendar: month}."
    )
    description: str = Field(default="", description="What it promises, for a person.")
    owner: str = Field(default="", description="Who cares for it.")
    availability: dict[str, Any] | None = Field(default=None, max_length=0, description="Served requests: {}.")
    latency: LimitsEntry | None = Field(default=None, description="One latency limit.")
    goodput: LimitsEntry | None = Field(default=None, description="Limits that a request must meet jointly.")
    quality: QualityEntry | None = Field(default=None, description="Scores of answers.")
    cost: CostEntry | None = Field(default=None, description="Cost of tokens.")
    custom: CustomEntry | None = Field(default=None, description="Events that queries count.")
    model: str = Field(default="", description="Only requests of this model.")
    tenant: str = Field(default="", description="Only requests of this tenant; needs request facts.")
    route: str = Field(default="", description="Only requests of this route; needs request facts.")
    input_band: str = Field(default="", description="Only prompts of this band; needs request facts.")
    by: tuple[str, ...] = Field(default=(), description="One budget for each value of these labels.")
    engines: tuple[str, ...] = Field(default=(), description="Engines whose names are met.")
    select: dict[str, str] = Field(default={}, description="Labels of the series in Prometheus; ~ before a pattern.")
    labels: dict[str, str] = Field(default={}, description="Labels for its alerts.")
    min_failures: Count = Field(default=5, description="Fewest bad events in the long window before anyone is told.")
    requests_per_day: Positive | None = Field(default=None, description="Expected traffic, for the check.")
    page: bool = Field(default=True, description="Whether it may wake someone.")
    ticket: bool = Field(default=True, description="Whether it may open a ticket.")

    @model_validator(mode="after")
    def _one_indicator(self) -> "SloEntry":
        given = [name for name in _INDICATORS if getattr(self, name) is not None]
        if len(given) != 1:
            has = f"has {', '.join(given)}" if given else "has no indicator"
            raise ValueError(f"{has}; write exactly one of {', '.join(_INDICATORS)}")
        if self.latency is not None and len(self.latency.limits.items()) != 1:
            raise ValueError("has several limits under latency; write one, or goodput for all at once")
        return self

    def slo(self) -> Slo:
        """The entry as a value."""
        return Slo(
            self.name, self.service, self.objective, self._indicator(), self._period_value(),
            Scope(self.model, self.tenant, self.route, self.input_band, self.by),
            description=self.description, owner=self.owner, engines=self.engines, select=self.select,
            labels=self.labels, min_failures=self.min_failures, requests_per_day=self.requests_per_day,
            pages=self.page, tickets=self.ticket,
        )  # fmt: skip

    def _period_value(self) -> Period:
        entry = self.period
        if entry.calendar is None:
            return Period(entry.rolling_s or 0.0)
        return Period(CALENDAR_DAYS[entry.calendar] * DAY_S, entry.calendar, entry.starts, entry.zone)

    def _indicator(self) -> Indicator:
        if self.latency is not None:
            ((signal, limit_s),) = self.latency.limits.items()
            return Latency(signal, limit_s)
        if self.goodput is not None:
            return JointGoodput(self.goodput.limits)
        if self.quality is not None:
            return Quality(self.quality.score, self.quality.evaluator)
        if self.cost is not None:
            return Cost(self.cost.usd_per_million, self.cost.tokens)
        if self.custom is not None:
            own = self.custom
            return Custom(own.total, own.good, own.bad, own.slice_s, own.slice_target or 1.0)
        return Availability()


class SloFile(Section):
    """A file of SLOs."""

    slos: tuple[SloEntry, ...] = Field(min_length=1, description="SLOs.")


def read(data: object, where: str, line: Callable[[tuple[int | str, ...]], int] | None = None) -> tuple[Slo, ...]:
    """The SLOs of a document in goodwatch's own form; ``line`` finds the line of a key.

    Raises ``ConfigError`` with one line for each thing that is wrong: place, key, what, and what would be right.
    """
    try:
        return tuple(entry.slo() for entry in SloFile.model_validate(data, by_alias=True, by_name=False).slos)
    except ValidationError as error:
        said = error.errors(include_url=False)
    # An entry that is wrong is missing from the list: that the list is then empty is no second fault.
    real = [one for one in said if one["type"] != "too_short"] or said
    places = [f"{where}:{line(one['loc'])}" if line else where for one in real]
    raise ConfigError(
        "\n".join(f"{at}: {_place(one['loc'])}: {_said(one)}" for at, one in zip(places, real, strict=True))
    )


def _place(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the file"


def _said(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        return "unknown key; remove it or correct it"
    if error["type"] == "string_pattern_mismatch":
        return _WRONG_NAME
    if error["type"] == "missing":
        return "missing; write it"
    return message


# --- and back ---------------------------------------------------------------------------------------------------------


def written(slo: Slo) -> dict[str, Any]:
    """An SLO as an entry of a file; defaults are left out."""
    scope = slo.scope
    entry: dict[str, Any] = {
        "name": slo.name, "service": slo.service, "objective": slo.objective, "period": _period_text(slo.period),
        **indicator(slo.indicator), "description": slo.description, "owner": slo.owner, "model": scope.model,
        "tenant": scope.tenant, "route": scope.route, "input_band": scope.input_band, "by": list(scope.by),
        "engines": list(slo.engines), "select": dict(slo.select), "labels": dict(slo.labels),
        "requests_per_day": slo.requests_per_day,
    }  # fmt: skip
    entry |= {"min_failures": slo.min_failures} if slo.min_failures != 5 else {}
    entry |= {} if slo.pages else {"page": False}
    entry |= {} if slo.tickets else {"ticket": False}
    return {key: value for key, value in entry.items() if value not in ("", [], {}, None) or key == "availability"}


def _period_text(period: Period) -> Any:
    if not period.calendar:
        return duration_text(period.length_s)
    more = {"starts": period.starts, "zone": period.zone}
    return {"calendar": period.calendar, **{key: value for key, value in more.items() if value}}


def indicator(kind: Indicator) -> dict[str, Any]:
    """An indicator as its key and what stands under it."""
    if isinstance(kind, Latency):
        short = next((name for name, signal in _SIGNALS.items() if signal == kind.signal), kind.signal)
        return {"latency": {short: duration_text(kind.limit_s)}}
    if isinstance(kind, JointGoodput):
        return {"goodput": {signal.removesuffix("_seconds"): duration_text(s) for signal, s in kind.limits.items()}}
    if isinstance(kind, Quality):
        return {"quality": {"score": kind.min_score, **({"evaluator": kind.evaluator} if kind.evaluator else {})}}
    if isinstance(kind, Cost):
        return {"cost": {"usd_per_million": kind.usd_per_million, "tokens": kind.tokens}}
    if isinstance(kind, Custom):
        side = {"bad": kind.bad} if kind.bad else {"good": kind.good}
        sliced = (
            {} if kind.slice_s is None else {"slice": duration_text(kind.slice_s), "slice_target": kind.slice_target}
        )
        return {"custom": {"total": kind.total, **side, **sliced}}
    return {"availability": {}}

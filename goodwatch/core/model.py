"""The nouns: what is scraped, what was read, what is running. Times are Unix seconds UTC, ratios 0..1."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class SignalKind(StrEnum):
    """How a canonical signal may be combined over time and over series."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


class SignalStatus(StrEnum):
    """What is known of a signal on one target; never a silent zero."""

    MEASURED = "measured"
    DERIVED = "derived"
    ABSENT = "absent"


class Basis(StrEnum):
    """Where a derived number comes from (design: words that must mean one thing)."""

    COUNTED = "counted"
    ESTIMATED = "estimated"
    BOUNDED = "bounded"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class Bounds:
    """An interval that holds the true value; ``high`` None is open above ("more than low")."""

    low: float
    high: float | None

    @property
    def width(self) -> float | None:
        """Distance of the ends; None when open."""
        return None if self.high is None else self.high - self.low


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative histogram: counts of observations at or below each bound.

    ``le`` ascends and ends with +Inf; ``count`` has the same length and never falls.
    As an increase over a window the same shape holds, with counts of that window.
    """

    le: tuple[float, ...]
    count: tuple[float, ...]
    sum: float | None = None

    @property
    def total(self) -> float:
        """Number of observations."""
        return self.count[-1] if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One canonical engine signal at one scrape (design §3).

    ``rank`` names the data-parallel engine that the value belongs to ("" when there is one).
    ``part`` is the canonical split of a signal, as ``key=value`` ("finished_reason=stop", "is_streaming=true",
    "status=5xx"), "" when the signal has none. Gauges and counters use ``value``; histograms use ``histogram``.
    """

    ts: float
    target: str
    service: str
    model: str
    engine: str
    engine_version: str
    rank: str
    signal: str
    part: str = ""
    value: float | None = None
    histogram: Histogram | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One URL that is scraped. ``name`` is its identity: two targets never share history."""

    name: str
    url: str
    service: str
    engine: str | None = None  # pinned by config; None: detect
    engine_version: str | None = None  # pinned by config; None: detect
    gpus: float | None = None  # GPUs held by this target; None: not configured
    gpu_hour_usd: float | None = None  # price of one GPU-hour; None: cost is not measurable
    labels: dict[str, str] = field(default_factory=dict)
    kind: Literal["engine", "accelerator"] = "engine"  # an accelerator exporter belongs to no service
    args: str = ""  # the engine's command line as configured; "": not told


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one scrape of one target brought; samples is empty when it failed."""

    ts: float
    target: str
    service: str
    up: bool
    duration_s: float
    samples: tuple[Sample, ...] = ()
    error: str = ""  # for a person; "" when up
    reason: str = ""  # stable counter label: "timeout", "refused", "http_status", "body_limit", ...
    body_bytes: int = 0
    page_samples: int = 0  # series on the page before normalising


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a target says it runs. A change of ``facts`` is an event."""

    ts: float
    target: str
    service: str
    engine: str
    engine_version: str
    model: str
    facts: dict[str, str] = field(default_factory=dict)  # "kv_block_size": "32", "max_model_len": "2048", ...


class Absence(StrEnum):
    """Why a number is not there: three different answers everywhere."""

    NO_TRAFFIC = "no traffic"  # the engine was seen, nothing happened
    NO_DATA = "no data"  # nothing was seen
    NOT_MEASURABLE = "not measurable"  # this engine, version or setting does not tell


@dataclass(frozen=True, slots=True)
class Number:
    """One derived number as it is shown: a point, an interval, or the reason why there is none.

    ``value`` for a point, ``bounds`` for an interval (both may be there: a mean inside its interval).
    ``absence`` is set exactly when both are None; ``note`` is a short sentence for a person.
    """

    unit: str
    basis: Basis | None = None
    value: float | None = None
    bounds: Bounds | None = None
    absence: Absence | None = None
    note: str = ""

    @classmethod
    def none(cls, unit: str, absence: Absence, note: str = "") -> "Number":
        """A number that is not there, and why."""
        return cls(unit, absence=absence, note=note)


@dataclass(frozen=True, slots=True)
class Limits:
    """Latency targets of an SLO; None is no target on that signal."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    def items(self) -> tuple[tuple[str, float], ...]:
        """The targets that are set, as (signal, seconds)."""
        pairs = (("ttft_seconds", self.ttft_s), ("tpot_seconds", self.tpot_s), ("e2e_seconds", self.e2e_s))
        return tuple((name, limit) for name, limit in pairs if limit is not None)

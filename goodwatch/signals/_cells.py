"""What the requests of one cell of the map add up to, and the number that it shows. Pure."""

import math
from dataclasses import dataclass
from typing import Final

from goodwatch.core.exponential import enough
from goodwatch.core.model import Absence, Basis, Bounds, Number

_TWO_SIDED_95: Final = 1.959963984540054  # the normal quantile of 0.975

COST_SHARE: Final = "share of the window's cost by seconds on the engine (E2E less queue)"


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the requests of a cell, weighted as in ``ROLLUPS``; ``requests`` and ``unweighted`` count facts."""

    requests: float = 0.0
    weighted: float = 0.0
    weighted_sq: float = 0.0
    unweighted: float = 0.0
    valid: float = 0.0
    valid_sq: float = 0.0
    good: float = 0.0
    good_sq: float = 0.0
    undetermined: float = 0.0
    output_tokens: float = 0.0
    good_output_tokens: float = 0.0
    scored: float = 0.0
    passed: float = 0.0

    @property
    def basis(self) -> Basis:
        """Counted when every request is there and is known to be; else an estimate from a sample."""
        return Basis.COUNTED if self.unweighted == 0 and self.weighted == self.requests else Basis.ESTIMATED

    @property
    def note(self) -> str:
        """What a person must know of the sample."""
        if self.unweighted == 0:
            return ""
        return (
            f"{self.unweighted:.0f} of {self.requests:.0f} requests do not tell how they were sampled: each counts as 1"
        )


@dataclass(frozen=True, slots=True)
class Latency:
    """A quantile of the requests of a cell that have the latency; seconds; a None end is open."""

    observations: float
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class EngineTime:
    """Seconds on the engine in a cell and over all traffic of the window, and how many requests told theirs."""

    seconds: float
    all_seconds: float
    told: float


def latency_number(totals: Totals, latency: Latency | None, q: float, field: str) -> Number:
    """The quantile with its order-statistic interval, or the count that does not support it (design §3)."""
    if latency is None:
        return Number.none("s", Absence.NOT_MEASURABLE, f"none of {totals.requests:.0f} requests has {field}")
    if not enough(latency.observations, q):
        return Number.none("s", Absence.NO_DATA, f"{latency.observations:.0f} requests do not support a p{q * 100:g}")
    return Number("s", totals.basis, latency.value, Bounds(latency.low or 0.0, latency.high), note=totals.note)


def requests_number(totals: Totals) -> Number:
    """How many requests there were; of a sample with 95 % confidence."""
    if totals.basis is Basis.COUNTED:
        return Number("requests", Basis.COUNTED, totals.requests)
    reach = _TWO_SIDED_95 * math.sqrt(max(0.0, totals.weighted_sq - totals.weighted))
    low = max(totals.requests, totals.weighted - reach)  # these were seen
    return Number("requests", Basis.ESTIMATED, totals.weighted, Bounds(low, totals.weighted + reach), note=totals.note)


def attainment_number(totals: Totals) -> Number:
    """Good of valid requests. Bounds say what undetermined ones, and the sample, leave open.

    Notes
    -----
    Source of the variance: C. E. Särndal et al., Model Assisted Survey Sampling, section 5.6 (ratio of two
    Horvitz-Thompson totals, Poisson sampling).
    """
    if totals.valid <= 0:
        if totals.undetermined > 0:
            note = f"{totals.undetermined:.0f} requests lack a field that the SLO needs"
            return Number.none("ratio", Absence.NOT_MEASURABLE, note)
        return Number.none("ratio", Absence.NO_TRAFFIC, "no valid request")
    ratio = totals.good / totals.valid
    bad, bad_sq = totals.valid - totals.good, totals.valid_sq - totals.good_sq
    variance = ((totals.good_sq - totals.good) * (1 - ratio) ** 2 + (bad_sq - bad) * ratio**2) / totals.valid**2
    reach = _TWO_SIDED_95 * math.sqrt(max(0.0, variance))
    whole = totals.valid + totals.undetermined
    low = max(0.0, totals.good / whole - reach)
    high = min(1.0, (totals.good + totals.undetermined) / whole + reach)
    bounds = None if low == high else Bounds(low, high)
    return Number("ratio", totals.basis, ratio, bounds, note=totals.note)


def quality_number(totals: Totals) -> Number:
    """The share of scored requests that pass, with its 95 % score interval.

    Notes
    -----
    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    if totals.scored <= 0:
        note = f"none of {totals.requests:.0f} requests has a score"
        return Number.none("ratio", Absence.NOT_MEASURABLE, note)
    facts = totals.scored * totals.requests / totals.weighted  # about as many were looked at
    ratio, z = totals.passed / totals.scored, _TWO_SIDED_95
    centre = (ratio + z * z / (2 * facts)) / (1 + z * z / facts)
    reach = z / (1 + z * z / facts) * math.sqrt(ratio * (1 - ratio) / facts + z * z / (4 * facts * facts))
    bounds = Bounds(max(0.0, min(ratio, centre - reach)), min(1.0, max(ratio, centre + reach)))
    return Number("ratio", Basis.ESTIMATED, ratio, bounds, note=f"{facts:.0f} scored requests")


def cost_number(totals: Totals, time: EngineTime, window_usd: float | None, *, good_only: bool) -> Number:
    """USD per million output tokens of the cell: its share of the window's cost over its tokens.

    The share is that of the seconds for which the cell's requests held a place on the engine, among those of all
    requests of the window: E2E less queue, at the engine. So idle time is paid for by everyone in proportion. Requests
    run in one batch, so that no finer share can be observed.
    """
    unit = "USD"
    if window_usd is None:
        return Number.none(unit, Absence.NOT_MEASURABLE, "no price; set gpus and gpu_hour_usd, or prices")
    if time.told <= 0 or time.all_seconds <= 0:
        return Number.none(unit, Absence.NOT_MEASURABLE, "no engine tells how long these requests ran")
    tokens = totals.good_output_tokens if good_only else totals.output_tokens
    if tokens <= 0:
        what = "output tokens of good requests" if good_only else "output tokens"
        return Number.none(unit, Absence.NO_TRAFFIC, f"no {what}, though time was spent on these requests")
    usd = window_usd * time.seconds / time.all_seconds
    silent = totals.requests - time.told
    missing = f"; {silent:.0f} of {totals.requests:.0f} requests do not tell their time" if silent > 0 else ""
    return Number(unit, Basis.ESTIMATED, usd / tokens * 1e6, note=COST_SHARE + missing)

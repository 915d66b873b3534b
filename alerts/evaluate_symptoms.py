"""What usually comes before users feel it, from goodwatch's own minutes: the conditions of the rules beside a budget.

Each function tells the alert's value where its condition holds, False where not, and None where it cannot be judged.
Pure. A minute counts whole, so that a window of Prometheus and one of these differ by less than a minute of samples.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

import polars as pl

from goodwatch.core.slo import DAY_S, Events

#: how far back ``ServiceNow.minutes`` has to reach
REACH_S: Final = 35 * 60.0
#: signals that it has to hold
SYMPTOM_SIGNALS: Final = (
    "up", "requests_running", "requests_waiting", "output_tokens_total", "realtime_tokens_total", "preemptions_total",
    "requests_finished_total", "kv_cache_used_ratio", "itl_seconds", "tpot_seconds",
)  # fmt: skip
#: windows of what is counted for longer, by name of the count
LONG_WINDOWS_S: Final[Mapping[str, tuple[float, ...]]] = {"prefix": (1_800.0, DAY_S), "spend": (DAY_S, 7 * DAY_S)}
Answer = float | Literal[False] | None

_ENOUGH_LOOKUPS: Final = 100_000.0
_STALL_COVERED: Final = 0.8


@dataclass(frozen=True, slots=True)
class ServiceNow:
    """A service as its symptoms are looked for.

    ``up`` is whether the last scrape of each target worked (None: none yet); ``lost`` that it had targets and has none
    now. ``minutes`` are ``frames.MINUTES`` of ``SYMPTOM_SIGNALS`` in the ``REACH_S`` before ``at_s``, of engines that
    the SLOs meet. ``long`` are windows of prefix lookups (total: looked up, bad: not found) and of spending (total:
    output tokens, bad: USD), by name and length.
    """

    name: str
    at_s: float
    up: Mapping[str, bool | None]
    minutes: pl.DataFrame
    lost: bool = False
    late_tokens: bool = False  # engines count tokens when a request ends
    zeros_from_start: bool = False  # engines have their series before the first event
    long: Mapping[str, Mapping[float, Events | None]] = field(default_factory=dict)

    def of(self, signal: str, window_s: float, *, offset_s: float = 0.0) -> pl.DataFrame:
        """Minutes of one signal in ``[at - offset - window, at - offset)``."""
        end = self.at_s - offset_s
        at = pl.col("minute_s")
        return self.minutes.filter(pl.col("signal") == signal, at >= end - window_s, at < end)

    def gained(self, signal: str, window_s: float) -> dict[str, float]:
        """What a counter gained, by target."""
        rows = self.of(signal, window_s).group_by("target").agg(pl.col("increase").sum())
        return dict(rows.iter_rows())

    def level(self, signal: str, window_s: float, *, offset_s: float = 0.0) -> float | None:
        """The mean of a gauge, added over series; None where no engine tells it."""
        rows = self.of(signal, window_s, offset_s=offset_s)
        if rows.is_empty():
            return None
        return float(rows.group_by("target", "model", "part").agg(pl.col("mean").mean())["mean"].sum())

    @property
    def busy(self) -> bool:
        """Whether requests ran in the last ten minutes."""
        return bool(self.level("requests_running", 600.0))


def service_down(now: ServiceNow) -> Answer:
    """No target can be scraped, or there is none any more."""
    if now.lost:
        return 1.0
    if any(now.up.values()):
        return False
    return None if not now.up or None in now.up.values() else 0.0


def target_down(now: ServiceNow) -> Answer:
    """Some targets cannot be scraped, others can."""
    down = sum(up is False for up in now.up.values())
    if down and any(now.up.values()):
        return float(down)
    return None if None in now.up.values() else False  # just started: what was down may still be


def stalled(now: ServiceNow) -> Answer:
    """Targets with requests in the batch all the time, and no token."""
    live = not now.minutes.filter(pl.col("signal") == "realtime_tokens_total").is_empty()
    window_s = 300.0 if not now.late_tokens else 900.0 if live else 1_800.0
    running = now.of("requests_running", window_s)
    if running.is_empty():
        return None
    held = running.group_by("target", "model", "part").agg(pl.col("min").min(), minutes=pl.len())
    covered = held.filter(pl.col("minutes") * 60 >= _STALL_COVERED * window_s)
    busy = covered.group_by("target").agg(pl.col("min").sum()).filter(pl.col("min") > 0)["target"].to_list()
    tokens = now.gained("output_tokens_total", window_s)
    moving = now.gained("realtime_tokens_total", window_s)
    stuck = [t for t in busy if tokens.get(t) == 0 and not moving.get(t)]
    return float(len(stuck)) if stuck else False


def thrash(now: ServiceNow) -> Answer:
    """Running requests that lost their KV space for each one that ended, while a pool was full."""
    thrown = sum(now.gained("preemptions_total", 900.0).values())
    ended = sum(now.gained("requests_finished_total", 900.0).values())
    used = now.of("kv_cache_used_ratio", 900.0)["max"].max()
    if ended <= 0 or thrown < 10 or thrown / ended <= 0.1 or (isinstance(used, int | float) and used <= 0.9):
        return False
    return thrown / ended


def queue(now: ServiceNow) -> Answer:
    """Requests that wait: many, twice as many as before, and half as many as run."""
    waiting, running = now.level("requests_waiting", 600.0), now.level("requests_running", 600.0)
    before = now.level("requests_waiting", 600.0, offset_s=900.0)
    if waiting is None or running is None or before is None:
        return False
    return waiting if waiting > 10 and waiting > 2 * before and waiting > 0.5 * running else False


def prefix(now: ServiceNow) -> Answer:
    """The share of prompt tokens found in the prefix cache is under half of the day's."""
    counted = now.long.get("prefix", {})
    short, day = (counted.get(length) for length in LONG_WINDOWS_S["prefix"])
    if short is None or day is None or min(short.total, day.total) <= _ENOUGH_LOOKUPS:
        return False
    now_ratio, day_ratio = short.good / short.total, day.good / day.total
    return now_ratio if now_ratio < 0.5 * day_ratio and day_ratio > 0.2 else False


def outlier(now: ServiceNow) -> Answer:
    """Targets that take more than twice as long for a token as the middle one, of at least three."""
    for signal in ("itl_seconds", "tpot_seconds"):
        rows = now.of(signal, 900.0).filter(pl.col("kind") == "histogram")
        if rows.is_empty():
            continue
        sums = rows.group_by("target").agg(pl.col("increase").sum(), pl.col("sum").sum())
        means = [total / count for _, count, total in sums.iter_rows() if count > 1_000 and total is not None]
        if len(means) < 3:
            return False
        slow = sum(mean > 2 * median(means) for mean in means)
        return float(slow) if slow else False
    return False


def cost_drift(now: ServiceNow) -> Answer:
    """A token costs over 1.3 times what it cost over the week."""
    counted = now.long.get("spend", {})
    day, week = (counted.get(length) for length in LONG_WINDOWS_S["spend"])
    if day is None or week is None or day.total <= 0 or week.total <= 0 or week.bad <= 0:
        return False
    times = (day.bad / day.total) / (week.bad / week.total)
    return times if times > 1.3 else False


#: by kind of the alert
SYMPTOMS: Final[Mapping[str, Callable[[ServiceNow], Answer]]] = {
    "service-down": service_down,
    "target-down": target_down,
    "engine-stalled": stalled,
    "kv-cache-thrash": thrash,
    "queue-growing": queue,
    "prefix-cache-collapse": prefix,
    "replica-outlier": outlier,
    "cost-drift": cost_drift,
}

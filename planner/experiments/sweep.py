"""A sweep over load: which levels, how many requests at each, where the knee is, and whether the client was the limit.

The knee is where the time per output token grows half as fast as the number of requests at once: below it more
requests are nearly free, above it they mostly wait for each other (dTPOT/dB × B/TPOT = 1/2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Limits
from planner.experiments.benchmark import Statistic, counted, present

#: ``closed``: so many requests at once, the next when one ends; the others: so many a second, whatever comes back
Arrival = Literal["closed", "poisson", "constant"]
_KNEE: Final = 0.5
#: a P99 needs a hundred requests; in a closed loop every user should also come round several times
_LEAST_REQUESTS, _ROUNDS = 100, 8
#: of its one core that a client process may use before its stopwatch is late
_BUSY: Final = 0.8
#: the client's own delay, as a share of what it measures, from which it shows in the numbers
_SHARE: Final = 0.1
_LEAST_LAG_S: Final = 0.002
_SIGNS: Final = {
    "busy": "a client process used up to {:.0%} of its core: use more --processes",
    "late": "the client's event loop was up to {:.1f} ms late (P99): use more --processes",
    "crowded": "the client's event loop was up to {:.1f} ms late (P99) though it had little to do: its machine is busy"
    " with other work; latencies hold that as well",
    "delayed": "requests were sent up to {:.1f} ms late on average",
    "untold": "the load tool does not tell its own load: the client cannot be ruled out as the limit",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: ``levels`` are requests at once (closed) or a second, each ``repeats`` times, from ``processes``."""

    levels: tuple[float, ...]
    arrival: Arrival = "closed"
    repeats: int = 3
    processes: int = 2
    input_tokens: int = 256
    output_tokens: int = 128
    requests: int | None = None  # at each level; None: ``requests_at``
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as the client saw it. ``delay_s`` is how much later than due it was sent; ``error`` "" is ok."""

    started_s: float
    delay_s: float
    e2e_s: float
    ttft_s: float | None = None
    output_tokens: int | None = None
    chunks: int = 0
    error: str = ""

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None below two tokens."""
        if self.ttft_s is None or self.output_tokens is None or self.output_tokens < 2 or self.error:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Client:
    """One client process: share of a core that it used, and how late its event loop was (P99, s). None: not told."""

    cpu_ratio: float | None
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class Level:
    """One repeat at one level."""

    level: float
    repeat: int
    requests: tuple[Sent, ...]
    clients: tuple[Client, ...] = ()
    cold: bool = False

    @property
    def ok(self) -> tuple[Sent, ...]:
        """Requests without an error."""
        return tuple(one for one in self.requests if not one.error)

    @property
    def duration_s(self) -> float | None:
        """From the first start to the last end; None without requests."""
        if not self.requests:
            return None
        begin = min(one.started_s for one in self.requests)
        return max(one.started_s + one.e2e_s for one in self.requests) - begin

    @property
    def running(self) -> float | None:
        """Requests at once, on average (Little: time in the system over time); None without requests."""
        whole = self.duration_s
        return math.fsum(one.e2e_s for one in self.ok) / whole if whole else None

    @property
    def output_tokens_per_s(self) -> float | None:
        """Tokens of the requests that ended well; None when the server did not count them."""
        tokens, whole = [one.output_tokens for one in self.ok], self.duration_s
        return sum(t or 0 for t in tokens) / whole if whole and tokens and None not in tokens else None

    def statistics(self) -> tuple[Statistic, ...]:
        """TTFT, TPOT, E2E and the delay of sending, of requests that ended well."""
        fine = self.ok
        return present(
            counted("ttft_s", "request", [one.ttft_s for one in fine]),
            counted("tpot_s", "request", [one.tpot_s for one in fine]),
            counted("e2e_s", "request", [one.e2e_s for one in fine]),
            counted("client_queue_s", "request", [one.delay_s for one in self.requests]),
            counted("output_tokens", "request", [one.output_tokens for one in fine], unit="tokens"),
        )

    def attainment_ratio(self, limits: Limits) -> float | None:
        """Good requests of all; failed ones are not good; None without requests, or with a target nobody measured."""
        if not self.requests:
            return None
        good = 0
        for one in self.ok:
            seen = {"ttft_seconds": one.ttft_s, "tpot_seconds": one.tpot_s, "e2e_seconds": one.e2e_s}
            if one.output_tokens == 1:
                seen["tpot_seconds"] = 0.0
            held = [(seen[name], limit) for name, limit in limits.items()]
            if any(value is None for value, _ in held):
                return None
            good += all((value or 0.0) <= limit for value, limit in held)
        return good / len(self.requests)


@dataclass(frozen=True, slots=True)
class Knee:
    """Where more load begins to cost: requests at once, None when the sweep did not reach it; ``text`` says which."""

    running: float | None
    level: float | None
    text: str
    slopes: tuple[tuple[float, float], ...] = ()  # (requests at once, elasticity of TPOT) between levels


def levels(lowest: float, highest: float, per_doubling: int = 1) -> tuple[float, ...]:
    """Levels from lowest to highest, evenly on a log scale.

    Raises ``ConfigError`` unless 0 < lowest ≤ highest and there are at most 64.

    Examples
    --------
    >>> levels(1, 16)
    (1, 2, 4, 8, 16)
    """
    if not 0 < lowest <= highest < math.inf or per_doubling < 1:
        raise ConfigError(f"levels {lowest:g} to {highest:g}: the first must be above 0 and not above the last")
    steps = max(1, round(math.log2(highest / lowest) * per_doubling)) if highest > lowest else 0
    if steps > 63:
        raise ConfigError(f"levels {lowest:g} to {highest:g}: {steps + 1} are too many; 64 at most")
    whole = float(lowest).is_integer() and float(highest).is_integer()
    found = [lowest * (highest / lowest) ** (step / steps) if steps else lowest for step in range(steps + 1)]
    return tuple(dict.fromkeys(round(one) if whole else one for one in found))


def requests_at(plan: Plan, level: float) -> int:
    """How many requests one repeat at this level sends: enough for a P99, and for a loop to come round."""
    if plan.requests is not None:
        return plan.requests
    return (
        max(_LEAST_REQUESTS, math.ceil(_ROUNDS * level))
        if plan.arrival == "closed"
        else max(_LEAST_REQUESTS, math.ceil(30 * level))
    )


def shares(total: int, processes: int) -> tuple[int, ...]:
    """So many things over so many processes, as evenly as can be, without empty ones.

    Examples
    --------
    >>> shares(7, 3), shares(1, 4)
    ((3, 2, 2), (1,))
    """
    each, over = divmod(total, max(1, min(processes, total)))
    return tuple(each + (place < over) for place in range(max(1, min(processes, total))))


def knee(measured: Sequence[Level]) -> Knee:
    """The knee of the warm repeats, from the median TPOT and the mean number of requests at once of each level."""
    points = _points(measured)
    if len(points) < 3:
        return Knee(None, None, "three levels with a TPOT are needed to see a knee")
    slopes = []
    for (low, first), (high, second) in pairwise(points):
        if high > low * 1.05:
            slopes.append((math.sqrt(low * high), math.log(second / first) / math.log(high / low)))
    if not slopes:
        return Knee(None, None, "requests at once did not grow from level to level: is something else the limit?")
    crossing = next((place for place in range(len(slopes)) if all(s >= _KNEE for _, s in slopes[place:])), None)
    if crossing is None:
        return Knee(None, None, f"no knee up to {points[-1][0]:.0f} requests at once: go higher", tuple(slopes))
    if crossing == 0:
        return Knee(
            None, None, f"past the knee from {points[0][0]:.1f} requests at once on: begin lower", tuple(slopes)
        )
    (x0, y0), (x1, y1) = slopes[crossing - 1], slopes[crossing]
    share = (_KNEE - y0) / (y1 - y0) if y1 > y0 else 0.5
    at = x0 * (x1 / x0) ** share
    level = max(
        (one.level for one in measured if not one.cold and (one.running or math.inf) <= at * 1.05), default=None
    )
    return Knee(at, level, f"knee at about {at:.0f} requests at once", tuple(slopes))


def _points(measured: Sequence[Level]) -> list[tuple[float, float]]:
    """(requests at once, TPOT) by level, ascending; the median over its warm repeats."""
    found: dict[float, list[tuple[float, float]]] = {}
    for one in measured:
        tpots, running = [t for r in one.ok if (t := r.tpot_s) is not None], one.running
        if tpots and running and not one.cold:
            found.setdefault(one.level, []).append((running, math.fsum(tpots) / len(tpots)))
    middles = []
    for pairs in found.values():
        columns = [sorted(column) for column in zip(*pairs, strict=True)]
        middles.append((columns[0][len(pairs) // 2], columns[1][len(pairs) // 2]))
    return sorted(middles)


def client_limits(measured: Sequence[Level]) -> tuple[str, ...]:
    """Why the client, and not the server, may have set the numbers of some levels; empty when nothing says so.

    Its own signs: a process near a full core, an event loop that is late by more than a tenth of the TPOT (and 2 ms),
    requests that were sent late by more than a tenth of the TTFT. Cold repeats are left out.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for one in measured:
        for kind, value in () if one.cold else _signs(one):
            found.setdefault(kind, []).append((one.level, value))
    said = []
    for kind, text in _SIGNS.items():
        if kind in found:
            at = ", ".join(f"{level:g}" for level in sorted({level for level, _ in found[kind]}))
            said.append(f"level {at}: {text.format(max(value for _, value in found[kind]))}")
    return tuple(said)


def _signs(one: Level) -> Iterator[tuple[str, float]]:
    """Each sign of a limit by its key in ``_SIGNS``, with its size."""
    named = {s.name: s for s in one.statistics()}
    busiest = max((c.cpu_ratio for c in one.clients if c.cpu_ratio is not None), default=None)
    if busiest is not None and busiest >= _BUSY:
        yield "busy", busiest
    late = max((c.lag_s for c in one.clients if c.lag_s is not None), default=None)
    tpot = named["tpot_s"].mean if "tpot_s" in named else None
    if late is not None and late > max(_LEAST_LAG_S, _SHARE * (tpot or 0.0)):
        # a loop that is late though its process has time is one that does not get the core
        yield ("late" if (busiest or 0.0) >= _BUSY / 2 else "crowded"), late * 1000
    delay, ttft = named.get("client_queue_s"), named.get("ttft_s")
    if delay and ttft and delay.mean is not None and ttft.mean and delay.mean > max(_LEAST_LAG_S, _SHARE * ttft.mean):
        yield "delayed", delay.mean * 1000
    if one.clients and all(c.cpu_ratio is None for c in one.clients):
        yield "untold", 0.0


def scaling_limit(few: Level, many: Level) -> str | None:
    """Whether more client processes got more out of the same server at the same level: then the client was the limit."""
    a, b = few.output_tokens_per_s, many.output_tokens_per_s
    if a is None or b is None or b <= a * (1 + _SHARE):
        return None
    return (
        f"level {few.level:g}: {len(many.clients)} client processes got {b / a - 1:.0%} more than {len(few.clients)}:"
        " the client was the limit"
    )

"""Hold a replay's numbers against the clients' truth; every comparison is one line with its allowance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.engine.truth import Count, Page, Row, Window, count, engine_mean_s, output_tokens, quantile

# A client's stopwatch starts before the engine's and stops after it. A streamed answer shows some of that: its headers
# come just before the engine takes the request in, and token events that come together were kept back on the way. The
# rest is the means' distance, and never taken to be less than this.
LEAST_OFFSET_S: Final = 0.05
STEPS: Final = "vllm:inter_token_latency_seconds"
FEW_REQUESTS: Final = 20  # a quantile of fewer says little
TTFT_LIMIT_S, TPOT_LIMIT_S = 0.5, 0.05
HISTOGRAMS: Final = {"ttft_s": "vllm:time_to_first_token_seconds", "e2e_s": "vllm:e2e_request_latency_seconds"}


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison: what the client saw, what the replay said, what they may differ by."""

    phase: str
    what: str
    client: str
    replay: str
    allowance: str
    ok: bool


def compare_totals(phases: Sequence[dict[str, Any]], rows: Sequence[Row]) -> list[Line]:
    """Over the whole recording, which begins and ends in quiet, nothing may be lost or counted twice."""
    good = [row for row in rows if row.status == "ok"]
    sums = {"requests": len(good), "output_tokens": sum(row.output_tokens or 0 for row in good)}
    return [_total_line(phases, what, known) for what, known in sums.items()]


def _total_line(phases: Sequence[dict[str, Any]], what: str, known: float) -> Line:
    parts = [phase[what] for phase in phases]
    said = None if None in parts else sum(parts)
    ok = said is not None and abs(said - known) < 0.5
    return Line("all", what, _text(known), _text(said), "±0", ok)


def compare_counts(phase: dict[str, Any], rows: Sequence[Row], cut: Window) -> list[Line]:
    """Requests that ended and output tokens."""
    ended = count((row.end_s for row in rows if row.status == "ok"), cut)
    return [
        _count_line(phase, "requests", ended),
        # Shares of an event are not whole: half a token of rounding.
        _count_line(phase, "output_tokens", output_tokens(rows, cut), rounding=0.5),
    ]


def _count_line(phase: dict[str, Any], what: str, truth: Count, *, rounding: float = 0.0) -> Line:
    said = phase[what]
    ok = said is not None and abs(said - truth.inside) <= truth.near + rounding
    return Line(phase["name"], what, f"{truth.inside:.0f}", _text(said), f"±{truth.near:.0f}", ok)


@dataclass(frozen=True, slots=True)
class Seen:
    """A latency as the client can vouch for it: the engine's lies between ``low_s`` and ``high_s``, offset aside."""

    observed_at_s: float  # when the engine would have observed it
    ended_at_s: float
    low_s: float
    high_s: float


def seen_ttft(row: Row, step_s: float) -> Seen:
    """TTFT without what passed before the engine; lower by a step for each event that the first one waited for."""
    ttft_s = row.ttft_s or 0.0
    high_s = ttft_s - (row.headers_s or 0.0)
    return Seen(row.start_s + ttft_s, row.end_s, high_s - row.events_with_the_first * step_s, high_s)


def seen_e2e(row: Row) -> Seen:
    """E2E without what passed before the engine."""
    high_s = row.e2e_s - (row.headers_s or 0.0)
    return Seen(row.end_s, row.end_s, high_s, high_s)


def compare_latency(
    phase: dict[str, Any], what: str, rows: Sequence[Row], pages: Sequence[Page], cut: Window
) -> list[Line]:
    """p50 and p90 of "ttft_s" or "e2e_s" of the requests that ended in the phase.

    What the client vouches for, less the offset, must meet the replay's interval. Only streamed requests are looked
    at, so the window must hold no others; without enough of them there is no line.
    """
    good = [row for row in rows if row.status == "ok" and row.ttft_s is not None]
    step_s = engine_mean_s(pages, STEPS, cut) or 0.0
    seen = [seen_ttft(row, step_s) if what == "ttft_s" else seen_e2e(row) for row in good]
    ended = [one for one in seen if cut.holds(one.ended_at_s)]
    near = count((one.ended_at_s for one in seen), cut).near
    if len(ended) - near < FEW_REQUESTS:
        return []
    observed = [one.low_s for one in seen if cut.holds(one.observed_at_s)]
    offset_s = offset(observed, engine_mean_s(pages, HISTOGRAMS[what], cut))
    return [_quantile_line(phase, what, ended, near, offset_s=offset_s, q=q) for q in (0.5, 0.9)]


def offset(values: Sequence[float], engine_mean: float | None) -> float:
    """What the client's stopwatch may still show above the engine's, in seconds."""
    if engine_mean is None or not values:
        return LEAST_OFFSET_S
    return max(LEAST_OFFSET_S, sum(values) / len(values) - engine_mean)


def _quantile_line(
    phase: dict[str, Any], what: str, values: Sequence[Seen], near: float, *, offset_s: float, q: float
) -> Line:
    key = f"p{q * 100:.0f}"
    lows, highs = [one.low_s for one in values], [one.high_s for one in values]
    # Requests near an edge may be on either side: each moves the quantile by at most one rank.
    low_s, high_s = quantile(lows, q, shift=-near) - offset_s, quantile(highs, q, shift=near)
    said = (phase[what] or {}).get(key)
    ok = said is not None and high_s >= said[0] and (said[1] is None or low_s <= said[1])
    client = f"{max(quantile(lows, q), 0.0):.3f}–{quantile(highs, q):.3f}"
    allowance = f"-{offset_s * 1000:.0f} ms, ±{near:.0f} ranks"
    return Line(phase["name"], f"{what} {key}", client, _text(said), allowance, ok)


def compare_attainment(phase: dict[str, Any], rows: Sequence[Row], pages: Sequence[Page], cut: Window) -> list[Line]:
    """Share of ended requests within both limits: the client's, with and without the offset, meets the bounds."""
    ended = [row for row in rows if row.status == "ok" and cut.holds(row.end_s)]
    near = count((row.end_s for row in rows if row.status == "ok"), cut).near
    if len(ended) - near < FEW_REQUESTS:
        return []
    step_s = engine_mean_s(pages, STEPS, cut) or 0.0
    strict = sum(is_good(row, row.ttft_s) for row in ended)
    loose = sum(is_good(row, seen_ttft(row, step_s).low_s - LEAST_OFFSET_S) for row in ended)
    said = phase["attainment"]
    low, high = (strict - near) / len(ended), (loose + near) / len(ended)
    ok = said is not None and high >= said[0] and (said[1] is None or low <= said[1])
    client = f"{strict / len(ended):.3f}–{loose / len(ended):.3f}"
    return [Line(phase["name"], "attainment", client, _text(said), f"±{near:.0f} requests", ok)]


def is_good(row: Row, ttft_s: float | None) -> bool:
    """Whether a streamed request met both limits with this TTFT; one output token meets any TPOT limit."""
    in_time = ttft_s is not None and ttft_s <= TTFT_LIMIT_S
    return in_time and (row.tpot_s is None or row.tpot_s <= TPOT_LIMIT_S)


def table(lines: Sequence[Line]) -> str:
    """The lines as aligned text, faults marked."""
    head = ("phase", "number", "client", "replay", "allowed", "")
    cells = [(one.phase, one.what, one.client, one.replay, one.allowance, "" if one.ok else "<< off") for one in lines]
    widths = [max(len(row[column]) for row in [head, *cells]) for column in range(len(head))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in [head, *cells])


def _text(said: Any) -> str:
    if said is None:
        return "no data"
    if isinstance(said, list):
        low, high = said
        return f"> {low:.3f}" if high is None else f"{low:.3f}–{high:.3f}"
    return f"{said:.0f}" if isinstance(said, int | float) else str(said)

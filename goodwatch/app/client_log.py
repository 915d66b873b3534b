"""What the clients of a recording saw, cut like the phases: the outside source that the derived numbers are held to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from goodwatch.core.histogram import mean
from goodwatch.core.model import Bounds, Limits
from goodwatch.signals.latency import QUANTILES, enough
from goodwatch.signals.windows import TargetWindow

#: Statuses of requests that the client gave up; a hang-up counts as bad only after a target was missed (design §4).
_HUNG_UP: Final = ("client_abort", "timeout")
#: HTTP statuses below 500 that are the service's failure all the same.
_VALID_4XX: Final = (408, 429)


@dataclass(frozen=True, slots=True)
class ClientPhase:
    """The client's view of one phase; ``offset_s`` is how much later than the engine it saw requests end, on average."""

    requests: int
    ended_otherwise: int
    offset_s: float | None
    quantiles: dict[str, dict[str, float | None]]
    attainment: Bounds | None


def ended_in(rows: Sequence[dict[str, Any]], start_s: float, end_s: float) -> list[dict[str, Any]]:
    """Rows of requests that ended in ``(start_s, end_s]`` on the client's clock."""
    return [r for r in rows if start_s < float(r["start"]) + float(r["e2e_s"]) <= end_s]


def client_phase(
    rows: Sequence[dict[str, Any]], windows: Sequence[TargetWindow], limits: Limits, start_s: float, end_s: float
) -> ClientPhase:
    """One phase as the clients saw it, and its offset to the engine's clock."""
    cut = ended_in(rows, start_s, end_s)
    done = [r for r in cut if r["status"] == "ok"]
    offset = _offset(done, windows)
    quantiles = {
        name: {f"p{q * 100:.0f}": _quantile([float(r[name]) for r in done if name in r], q) for q in QUANTILES}
        for name in ("ttft_s", "tpot_s", "e2e_s")
    }
    attained = attainment(cut, limits, offset or 0.0) if limits.items() else None
    return ClientPhase(len(done), len(cut) - len(done), offset, quantiles, attained)


def attainment(cut: Sequence[dict[str, Any]], limits: Limits, offset_s: float) -> Bounds | None:
    """Good over valid requests by design §4, on the client's latencies less the offset; None without valid requests.

    A request that was not streamed has an end-to-end target only; without one it is undetermined and lies inside
    the bounds.
    """
    good = undetermined = valid = 0
    for row in cut:
        judged = _judged(row, limits, offset_s)
        if judged == "invalid":
            continue
        valid += 1
        good += judged == "good"
        undetermined += judged == "undetermined"
    return Bounds(good / valid, (good + undetermined) / valid) if valid else None


def _judged(row: dict[str, Any], limits: Limits, offset_s: float) -> str:
    status, streamed = row["status"], bool(row.get("stream"))
    http = int(row.get("http_status") or 0)
    if status == "http_error":
        return "bad" if http >= 500 or http in _VALID_4XX else "invalid"
    if status in _HUNG_UP:
        return "bad" if _missed_already(row, limits, streamed=streamed) else "invalid"
    if status != "ok":
        return "bad"
    if not streamed and limits.e2e_s is None:
        return "undetermined"
    return "good" if _met(row, limits, offset_s, streamed=streamed) else "bad"


def _met(row: dict[str, Any], limits: Limits, offset_s: float, *, streamed: bool) -> bool:
    if limits.e2e_s is not None and float(row["e2e_s"]) - offset_s > limits.e2e_s:
        return False
    if not streamed:
        return True
    if limits.ttft_s is not None and float(row.get("ttft_s", math.inf)) - offset_s > limits.ttft_s:
        return False
    single = int(row.get("output_tokens") or 0) < 2
    return limits.tpot_s is None or single or float(row.get("tpot_s", math.inf)) <= limits.tpot_s


def _missed_already(row: dict[str, Any], limits: Limits, *, streamed: bool) -> bool:
    waited = float(row["e2e_s"])
    if limits.e2e_s is not None and waited > limits.e2e_s:
        return True
    return streamed and limits.ttft_s is not None and float(row.get("ttft_s", waited)) > limits.ttft_s


def _offset(done: Sequence[dict[str, Any]], windows: Sequence[TargetWindow]) -> float | None:
    """Mean end-to-end time of the client less the engine's: the same requests, so the means may be subtracted."""
    histograms = [h for w in windows if (h := w.histogram("e2e_seconds")) is not None]
    means = [(m, h.total) for h in histograms if (m := mean(h)) is not None]
    total = sum(n for _, n in means)
    if not done or total != len(done):  # not the same requests: a slow scrape at an edge, or aborts in the histogram
        return None
    engine = sum(m * n for m, n in means) / total
    return max(0.0, sum(float(r["e2e_s"]) for r in done) / len(done) - engine)


def _quantile(values: list[float], q: float) -> float | None:
    if not enough(len(values), q):
        return None
    return sorted(values)[math.ceil(round(q * len(values), 9)) - 1]

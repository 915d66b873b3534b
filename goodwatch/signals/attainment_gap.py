"""Why the engine's spans and the clients disagree about attainment: the difference taken apart step by step. Pure.

Each step changes one thing and is the change of attainment that it brings, so the steps add up to the whole
difference. In another order the same steps would be of other size; the order here is from inside out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from goodwatch.core.request import Outcome, Vantage, Verdict
from goodwatch.signals.assemble_outcome import of_http
from goodwatch.signals.attainment_limits import LimitsTable
from goodwatch.signals.attainment_verdicts import judge
from goodwatch.signals.reconcile import Explained
from goodwatch.signals.request_frames import FACTS

#: how a client log says that a request ended; an HTTP error is as its status says
_STATUS: Final[dict[str, str]] = {
    "ok": Outcome.OK,
    "client_abort": Outcome.ABORTED,
    "timeout": Outcome.TIMEOUT,
    "disconnect": Outcome.ERROR,
    "stream_error": Outcome.ERROR,
    "truncated": Outcome.ERROR,
}


@dataclass(frozen=True, slots=True)
class Gap:
    """``engine``: attainment by engine spans alone; ``client``: over all valid requests by the clients' clock.

    ``steps`` lead from the one to the other: ``unasked`` (spans that no client asked for), ``stream`` (which requests
    were streamed, where spans do not tell), ``offset`` (the clients' clock on the same requests), then each class of
    requests without a fact. None where there was no valid request.
    """

    engine: float | None
    client: float | None
    steps: Mapping[str, float]


def client_facts(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows of a client log as ``FACTS`` of the client's vantage point, in order."""
    out = [
        {
            "fact_id": str(number),
            "trace_id": str(number),
            "arrived_at": float(row["start"]),
            "ended_at": float(row["start"]) + float(row["e2e_s"]),
            "client_ttft_s": row.get("ttft_s"),
            "client_e2e_s": float(row["e2e_s"]),
            "input_tokens": row.get("prompt_tokens"),
            "output_tokens": row.get("output_tokens"),
            "stream": bool(row.get("stream")),
            "status": _STATUS.get(str(row.get("status"))),
            "_http": row.get("http_status"),
        }
        for number, row in enumerate(rows)
    ]
    frame = pl.DataFrame(
        out, schema={**{k: FACTS[k] for k in out[0] if k in FACTS}, "_http": pl.Int64} if out else FACTS
    )
    if not out:
        return frame
    unknown = pl.lit(Outcome.UNKNOWN.value)
    return frame.with_columns(pl.coalesce("status", of_http(pl.col("_http")), unknown).alias("status")).select(
        pl.col(name) if name in out[0] else pl.lit(None, kind).alias(name) for name, kind in FACTS.items()
    )


def gap(facts: pl.DataFrame, rows: Sequence[Mapping[str, Any]], explained: Explained, limits: LimitsTable) -> Gap:
    """Take the difference between the engine's and the clients' attainment apart."""
    clients = judge(client_facts(rows), limits, vantage=Vantage.CLIENT)["verdict"].to_list()
    pairs = [(i, f) for i, f in enumerate(explained.row_fact) if f is not None]
    ours = facts[[f for _, f in pairs]]
    streamed = pl.Series("stream", [bool(rows[i].get("stream")) for i, _ in pairs], pl.Boolean)
    states = [
        ("", _verdicts(facts, limits)),
        ("unasked", _verdicts(ours, limits)),
        ("stream", _verdicts(ours.with_columns(streamed), limits)),
        ("offset", joined := [clients[i] for i, _ in pairs]),
    ]
    for name in sorted({c for c in explained.row_class if c}):
        joined = joined + [v for v, c in zip(clients, explained.row_class, strict=True) if c == name]
        states.append((name, joined))
    values = [(name, _attained(verdicts)) for name, verdicts in states]
    steps: dict[str, float] = {}
    last = values[0][1]
    for name, value in values[1:]:
        if value is not None:
            steps[name] = value - (last or 0.0)
            last = value
    return Gap(values[0][1], values[-1][1], steps)


def _verdicts(facts: pl.DataFrame, limits: LimitsTable) -> list[str]:
    return judge(facts, limits, vantage=Vantage.ENGINE)["verdict"].to_list()


def _attained(verdicts: Sequence[str]) -> float | None:
    good = sum(v == Verdict.GOOD for v in verdicts)
    bad = sum(v == Verdict.BAD for v in verdicts)
    return good / (good + bad) if good + bad else None

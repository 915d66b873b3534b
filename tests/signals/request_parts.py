"""Parts of traces for tests: one engine span of one second unless said otherwise."""

from typing import Any

import polars as pl

from goodwatch.signals.request_frames import FACTS, PARTS

PLAIN: dict[str, Any] = {
    "received_s": 1000.0,
    "trace_id": "t",
    "span_id": "s",
    "kind": "engine_request",
    "source": "vllm",
    "vantage": "engine",
    "started_s": 100.0,
    "ended_s": 101.0,
    "status": "unset",
}
ENGINE: dict[str, Any] = {"ttft_s": 0.25, "e2e_s": 1.0, "input_tokens": 5, "output_tokens": 4, "parent_id": "caller"}
KINDS = {"client": "client_call", "gateway": "gateway_request", "call": "gateway_call", "stage": "gateway_stage"}


def part(**fields: Any) -> dict[str, Any]:
    return dict.fromkeys(PARTS) | PLAIN | fields


def engine(span_id: str = "e", **fields: Any) -> dict[str, Any]:
    return part(**{"span_id": span_id, **ENGINE, **fields})


def outer(kind: str, span_id: str, start_s: float, end_s: float, **fields: Any) -> dict[str, Any]:
    """A client's or gateway's span; its parent is one that nobody kept."""
    plain = {"source": kind, "parent_id": "unkept", "e2e_s": end_s - start_s}
    return part(**{"kind": KINDS[kind], "span_id": span_id, "started_s": start_s, "ended_s": end_s, **plain, **fields})


def parts(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=PARTS)


def fact(**fields: Any) -> dict[str, Any]:
    """A request that the engine served: TTFT 0.1 s, E2E 1 s, 10 output tokens."""
    plain = {
        "fact_id": "f", "trace_id": "t", "status": "ok", "engine": "vllm", "ended_at": 1.0, "output_tokens": 10,
        "engine_ttft_s": 0.1, "engine_tpot_s": 0.1, "engine_e2e_s": 1.0,
    }  # fmt: skip
    return dict.fromkeys(FACTS) | plain | fields


def facts(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=FACTS)

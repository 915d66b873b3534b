"""Requests made up for tests: facts as ``assemble`` and ``judge`` leave them."""

from typing import Any

import polars as pl
from hypothesis import strategies as st

from goodwatch.core.request import Verdict
from goodwatch.signals.request_frames import FACTS, SCORES

JUDGED = {**FACTS, "verdict": pl.String, "slo": pl.String}


def fact(number: int, **more: Any) -> dict[str, Any]:
    """One good request that took a second; ``number`` makes its ids."""
    usual = {
        "fact_id": f"{number:016x}", "span_id": f"{number:016x}", "trace_id": f"{number:032x}", "ended_at": 120.0,
        "arrived_at": 119.0, "service": "chat", "model": "llama", "input_tokens": 100, "output_tokens": 10,
        "engine_ttft_s": 0.5, "engine_e2e_s": 1.0, "status": "ok", "weight": 1.0, "parts": 1, "late": False,
        "settled_at": 180.0, "verdict": Verdict.GOOD, "slo": "",
    }  # fmt: skip
    return {**usual, **more}


def judged(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame([{name: row.get(name) for name in JUDGED} for row in rows], schema=JUDGED)


def scores(rows: list[dict[str, Any]]) -> pl.DataFrame:
    named = [{"evaluator": "faithfulness", **row} for row in rows]
    return pl.DataFrame([{name: row.get(name) for name in SCORES} for row in named], schema=SCORES)


LATENCY_S = st.one_of(st.none(), st.just(0.0), st.floats(1e-6, 1e4))
TOKENS = st.one_of(st.none(), st.integers(0, 5000))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "ended_at": st.floats(0, 3 * 86400),
            "service": st.sampled_from(["chat", "code"]),
            "tenant": st.sampled_from([None, "a", "b"]),
            "input_tokens": TOKENS,
            "output_tokens": TOKENS,
            "engine_ttft_s": LATENCY_S,
            "client_e2e_s": LATENCY_S,
            "status": st.sampled_from(["ok", "error", "aborted", "refused"]),
            "weight": st.sampled_from([None, 1.0, 4.0]),
            "verdict": st.sampled_from([*Verdict]),
        }
    ),
    max_size=15,
).map(lambda rows: judged([fact(number, **row) for number, row in enumerate(rows)]))

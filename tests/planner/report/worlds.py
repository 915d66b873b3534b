"""Weeks for tests of the report, with every part filled in, and with nothing known."""

from __future__ import annotations

from typing import Final

from planner.report.facts import (
    Advised,
    Anomaly,
    Figure,
    Note,
    ServiceWeek,
    SloState,
    Spend,
    TenantWeek,
    Verified,
    WeekFacts,
)
from planner.report.weeks import Week

WEEK: Final = Week(2026, 48, "Europe/Berlin")


def spend(usd: float, per: float, idle: float, wasted: float, *, days: int = 7) -> Spend:
    """A week that is known in all parts."""
    return Spend(
        Figure(usd, basis="measured", days=days), Figure(per, basis="estimated", days=days),
        Figure(idle, basis="measured", days=days), Figure(wasted, basis="estimated", days=days),
    )  # fmt: skip


CHAT: Final = ServiceWeek(
    "chat", spend(1680.0, 4.2, 420.0, 84.0), spend(1500.0, 4.8, 300.0, 90.0),
    (
        TenantWeek("acme", spend(900.0, 4.0, 0.0, 40.0), spend(800.0, 4.5, 0.0, 45.0)),
        TenantWeek(None, spend(276.0, 4.9, 0.0, 44.0)),
    ),
    Figure(0.962, 0.958, 0.966, "estimated"), 0.95,
)  # fmt: skip
BATCH: Final = ServiceWeek(
    "batch", Spend(Figure(840.0, basis="measured"), Figure(missing="no_facts")), Spend(Figure(840.0, basis="measured")),
    (), Figure(0.88, basis="counted"), 0.9,
)  # fmt: skip
SAVING: Final = Advised(
    "rec-1",
    "chat",
    "concurrency",
    "proposed",
    Figure(310.0, 120.0, 420.0, "predicted"),
    "high",
    {"max_num_seqs": "64"},
    True,
)
DECLINED: Final = Advised(
    "rec-2", "chat", "kv_dtype", "declined", Figure(90.0, 10.0, 150.0, "predicted"), "medium", {"kv_cache_dtype": "fp8"}, True,
    True, "quality first",
)  # fmt: skip
UNSURE: Final = Advised("rec-3", "batch", "replicas", "proposed", Figure(50.0, -60.0, 140.0, "predicted"), "low")
RESTORES: Final = Advised(
    "rec-4", "batch", "admission", "proposed", Figure(0.0, 0.0, 0.0, "predicted"), "medium", {"admitted_ratio": "0.7"}, False,
    mode="restore",
)  # fmt: skip
BROUGHT: Final = Verified(
    "exp-1", "chat", "enable_prefix_caching", "better", Figure(0.8, 0.75, 0.86), Figure(380.0, 200.0, 560.0, "predicted"),
    Figure(420.0, 273.5, 560.0, "estimated"), True,
)  # fmt: skip
WORSE: Final = Verified(
    "exp-2", "batch", "tensor_parallel_size", "worse", Figure(1.2, 1.1, 1.3), Figure(missing="no_data"),
    Figure(-140.0, -194.0, -76.0, "estimated"),
)  # fmt: skip
FULL: Final = WeekFacts(
    WEEK, WEEK.end_s + 8 * 3600, (CHAT, BATCH),
    (
        SloState("chat", "chat", 0.95, Figure(0.62, basis="counted")),
        SloState("batch", "batch", 0.9, Figure(-0.2, basis="counted"), 1),
    ),
    (SAVING, DECLINED, UNSURE, RESTORES), (BROUGHT, WORSE),
    (Anomaly("batch", "latency", WEEK.start_s + 90_000, None, "tpot_p99_seconds", 0.061, 0.044),),
    (Note("no_facts", {"service": "batch"}), Note("price_now")),
)  # fmt: skip
EMPTY: Final = WeekFacts(WEEK, WEEK.end_s)

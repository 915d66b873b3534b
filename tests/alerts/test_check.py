"""The check of SLOs: what cannot work is refused with what would."""

from dataclasses import replace
from typing import Final

import pytest

from alerts.check import Verdict, check
from alerts.lint.names import names
from alerts.rules.fit import fit
from alerts.rules.sources import natives
from alerts.rules.values import Options
from goodwatch.core.model import Limits
from goodwatch.core.slo import DAY_S, Availability, Custom, JointGoodput, Latency, Period, Slo
from tests.alerts.services import CHAT, OPTIONS

NAMES: Final = names([*OPTIONS.engines.values(), *OPTIONS.accelerators.values()])


def verdict(slo: Slo, per_day: float | None = 100_000, options: Options = OPTIONS) -> Verdict:
    (found,) = check([replace(slo, requests_per_day=per_day)], options, NAMES)
    return found


def test_what_can_work_is_not_refused() -> None:
    assert verdict(CHAT).refused == ()


@pytest.mark.parametrize(
    ("engine", "kind", "near"),
    [
        # Bounds as the packages set them: vLLM 0.8.5+ first token …, 0.1, 0.25, 0.5, 0.75; SGLang 0.4, 0.6.
        ("vllm", Latency("ttft_seconds", 0.3), "0.1, 0.25, 0.5"),
        ("sglang", Latency("ttft_seconds", 0.5), "0.4, 0.6"),
        ("vllm", JointGoodput(Limits(0.5, 0.04)), "0.025, 0.05"),
        ("triton_trtllm", Latency("ttft_seconds", 1.0), "500, 2000"),  # its bounds are milliseconds
    ],
)
def test_a_limit_off_the_buckets_is_refused_and_the_bounds_are_named(
    engine: str, kind: Latency | JointGoodput, near: str
) -> None:
    (said,) = verdict(replace(CHAT, indicator=kind, engines=(engine,))).refused
    assert "is no bucket bound of" in said
    assert near in said


def test_a_bound_that_older_versions_lack_is_warned_about() -> None:
    slo = Slo("e2e", "chat", 0.99, Latency("e2e_seconds", 120.0), engines=("vllm",))
    said = " ".join(verdict(slo).warnings)
    assert "no bucket at 120 s up to vLLM 0.8.0" in said
    pinned = replace(OPTIONS, versions={"vllm": "0.33.0"})
    assert "no bucket" not in " ".join(verdict(slo, options=pinned).warnings)


def test_bounds_of_live_series_go_over_the_table() -> None:
    own = replace(OPTIONS, bounds={"vllm:time_to_first_token_seconds": (0.2, 0.3, 0.4)})
    assert verdict(replace(CHAT, indicator=Latency("ttft_seconds", 0.3)), options=own).refused == ()


def test_the_rules_count_at_the_next_bound_so_that_they_never_page_falsely() -> None:
    (native,) = natives(OPTIONS, ("vllm",), "ttft_seconds")
    assert fit(native, 0.3, OPTIONS).bound == 0.5
    assert fit(native, 5000.0, OPTIONS).bound is None  # above the top bound nothing is known


@pytest.mark.parametrize(
    ("objective", "days", "per_day", "said"),
    [
        (0.999, 30, 30, "one failure ends it"),  # 0.001 x 900 = 0.9 requests
        (0.999, 30, 300, "too few to wake someone"),  # 0.001 x 9000 = 9 requests
        (0.999, 30, 1_000, "window holds 41.7 requests"),  # 41.7 x 1.44 % = 0.6 requests
        (0.99, 30, 150, "window holds 6.25 requests"),  # 6.25 x 14.4 % = 0.9 requests
    ],
)
def test_an_objective_that_the_traffic_cannot_carry_is_refused(
    objective: float, days: float, per_day: float, said: str
) -> None:
    slo = replace(CHAT, objective=objective, period=Period(days * DAY_S))
    assert said in " ".join(verdict(slo, per_day).refused)


def test_without_a_page_the_longer_windows_decide() -> None:
    assert verdict(replace(CHAT, pages=False), 150).refused == ()  # a day: 150 x 3 % = 4.5 requests


def test_seen_traffic_goes_over_what_was_written_and_unknown_traffic_is_said() -> None:
    (seen,) = check([replace(CHAT, requests_per_day=1e6)], OPTIONS, NAMES, {"chat": 100 / DAY_S})
    assert seen.refused
    assert "traffic is not known" in " ".join(verdict(CHAT, None).warnings)


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        (replace(CHAT, engines=("vlm",)), "unknown engine 'vlm'"),
        (Slo("a", "s", 0.99, Availability(), engines=("llamacpp",)), "has no series of served requests"),
        (
            Slo("a", "s", 0.99, Custom("increase(vllm:request_success[$window])", bad="x")),
            "write vllm:request_success_total",
        ),
        (Slo("a", "s", 0.99, Custom("vllm:no_such_total", bad="x")), "no version of vLLM has"),
        (Slo("a", "s", 0.99, Custom("sum(", bad="x")), "not PromQL"),
        (replace(CHAT, period=Period(600.0)), "fewer than two scrapes"),
    ],
)
def test_series_and_periods_that_are_not_there_are_refused(slo: Slo, said: str) -> None:
    assert said in " ".join(verdict(slo).refused)

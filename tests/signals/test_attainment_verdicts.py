"""Good, bad, undetermined, not valid: the words of design §4, one by one."""

import itertools
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.forms import FORMS, form_of
from goodwatch.core.model import Limits
from goodwatch.core.request import Outcome, Vantage, Verdict
from goodwatch.signals.attainment_limits import LimitsRow, LimitsTable
from goodwatch.signals.attainment_verdicts import judge
from tests.signals.request_parts import fact, facts

BOTH = Limits(ttft_s=0.5, tpot_s=0.2)


def verdict(limits: Limits, vantage: Vantage = Vantage.ENGINE, **fields: Any) -> tuple[str, list[str]]:
    judged = judge(facts(fact(**fields)), LimitsTable.of(limits), vantage=vantage)
    return judged["verdict"].item(), judged["missed"].to_list()[0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("good", [])),
        ({"engine_ttft_s": 0.5, "engine_tpot_s": 0.2}, ("good", [])),  # a target is met at its value
        ({"engine_ttft_s": 0.6}, ("bad", ["ttft"])),
        ({"engine_ttft_s": 0.6, "engine_tpot_s": 0.3}, ("bad", ["ttft", "tpot"])),
        ({"engine_tpot_s": None}, ("undetermined", [])),
        ({"engine_ttft_s": None}, ("undetermined", [])),
        ({"engine_ttft_s": None, "engine_tpot_s": 0.3}, ("bad", ["tpot"])),  # missed is missed, whatever else
        ({"engine_tpot_s": None, "output_tokens": 1}, ("good", [])),  # one output token meets any TPOT target
        ({"engine_tpot_s": None, "choices": 2}, ("undetermined", [])),
        ({"stream": True}, ("good", [])),
        ({"stream": False}, ("undetermined", [])),  # it has an E2E target only, and there is none
        ({"status": "client_error"}, ("not_valid", [])),
        ({"status": "refused"}, ("bad", [])),
        ({"status": "error", "engine_ttft_s": 0.6}, ("bad", [])),
        ({"status": "timeout"}, ("bad", [])),
        ({"status": "unknown"}, ("undetermined", [])),
        ({"status": "aborted"}, ("not_valid", [])),
        ({"status": "aborted", "engine_ttft_s": 0.6}, ("bad", ["ttft"])),
        ({"status": "aborted", "engine_ttft_s": None}, ("bad", ["ttft"])),  # it had waited for 1 s
        ({"status": "aborted", "engine_ttft_s": None, "engine_e2e_s": 0.4}, ("not_valid", [])),
        ({"status": "aborted", "engine_ttft_s": None, "engine_e2e_s": None}, ("undetermined", [])),
        ({"status": "aborted", "engine_tpot_s": 0.3}, ("not_valid", [])),  # the mean could have recovered
    ],
)
def test_words_of_the_design_with_ttft_and_tpot(fields: dict[str, Any], expected: tuple[str, list[str]]) -> None:
    assert verdict(BOTH, **fields) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"stream": False}, ("good", [])),
        ({"stream": False, "engine_ttft_s": 9.0, "engine_tpot_s": None}, ("good", [])),
        ({"stream": False, "engine_e2e_s": 2.1}, ("bad", ["e2e"])),
        ({"engine_e2e_s": None}, ("undetermined", [])),
        ({"status": "aborted", "stream": False}, ("not_valid", [])),
        ({"status": "aborted", "stream": False, "engine_e2e_s": 2.5}, ("bad", ["e2e"])),
    ],
)
def test_words_of_the_design_with_an_end_to_end_target(fields: dict[str, Any], expected: tuple[str, list[str]]) -> None:
    assert verdict(Limits(0.5, 0.2, 2.0), **fields) == expected


def test_each_vantage_point_is_judged_by_its_own_stopwatch() -> None:
    gateway = {"gateway_ttft_s": 0.7, "gateway_e2e_s": 2.5}
    assert verdict(BOTH, Vantage.GATEWAY, **gateway) == ("bad", ["ttft"])
    assert verdict(BOTH, Vantage.ENGINE, **gateway) == ("good", [])
    assert verdict(BOTH, Vantage.CLIENT, **gateway) == ("undetermined", [])
    # (2.5 - 0.7) / 9 = 0.2: of one vantage point, and null for merged choices
    assert verdict(Limits(tpot_s=0.19), Vantage.GATEWAY, **gateway) == ("bad", ["tpot"])
    assert verdict(Limits(tpot_s=0.19), Vantage.GATEWAY, **gateway, choices=2) == ("undetermined", [])


def test_the_first_row_that_matches_counts() -> None:
    table = LimitsTable(
        (
            LimitsRow(Limits(ttft_s=0.05), "blue", tenant="blue"),
            LimitsRow(Limits(e2e_s=0.5), "agents", form="agent", route="/v1"),
            LimitsRow(Limits(ttft_s=0.5), "rest", model="m"),
        )
    )
    rows = [
        fact(tenant="blue", model="m"),
        fact(form="agent", route="/v1", model="m"),
        fact(form="agent", model="m"),
        fact(tenant="green"),
    ]
    judged = judge(facts(*rows), table, vantage=Vantage.ENGINE)
    assert judged.select("slo", "verdict").rows() == [
        ("blue", "bad"),
        ("agents", "bad"),
        ("rest", "good"),
        ("", "good"),  # no SLO: it was served
    ]


def test_judging_adds_its_columns_and_nothing_else() -> None:
    judged = judge(facts(fact()), LimitsTable(), vantage=Vantage.ENGINE)
    assert judged.columns == [*facts().columns, "slo", "verdict", "missed"]
    assert judge(facts(), LimitsTable.of(BOTH), vantage=Vantage.CLIENT).is_empty()


LATENCY = st.one_of(st.none(), st.floats(0, 3))
LIMIT = st.one_of(st.none(), st.floats(0.001, 3))


@given(
    st.sampled_from(list(Outcome)), st.tuples(LATENCY, LATENCY, LATENCY), st.sampled_from([None, 0, 1, 2, 50]),
    st.sampled_from([None, True, False]), st.builds(Limits, LIMIT, LIMIT, LIMIT),
)  # fmt: skip
def test_one_verdict_as_a_slow_and_plain_reading_of_the_design_gives(
    status: Outcome, seen: tuple[Any, Any, Any], tokens: int | None, stream: bool | None, limits: Limits
) -> None:
    row = dict(zip(("engine_ttft_s", "engine_tpot_s", "engine_e2e_s"), seen, strict=True))
    found, missed = verdict(limits, **row, status=status.value, output_tokens=tokens, stream=stream)
    assert found == plain_verdict(status, needed(status, seen, tokens, stream, limits), stream, limits)
    assert not missed or found == Verdict.BAD


def needed(
    status: Outcome, seen: tuple[Any, Any, Any], tokens: int | None, stream: bool | None, limits: Limits
) -> list[tuple[Any, float]]:
    """What the targets of a request need, and their limits."""
    ttft, tpot, e2e = seen
    hung_up = status is Outcome.ABORTED
    found = [] if limits.e2e_s is None else [(e2e, limits.e2e_s)]
    if stream is not False and limits.ttft_s is not None:
        found.append((e2e if hung_up and ttft is None else ttft, limits.ttft_s))
    if stream is not False and limits.tpot_s is not None and not hung_up and (tokens is None or tokens > 1):
        found.append((tpot, limits.tpot_s))
    return found


def plain_verdict(status: Outcome, pairs: list[tuple[Any, float]], stream: bool | None, limits: Limits) -> Verdict:
    if status is Outcome.CLIENT_ERROR:
        return Verdict.NOT_VALID
    if status in (Outcome.REFUSED, Outcome.ERROR, Outcome.TIMEOUT):
        return Verdict.BAD
    if status is Outcome.UNKNOWN:
        return Verdict.UNDETERMINED
    if any(value is not None and value > limit for value, limit in pairs):
        return Verdict.BAD
    if any(value is None for value, _ in pairs):
        return Verdict.UNDETERMINED
    if status is Outcome.ABORTED:
        return Verdict.NOT_VALID
    return Verdict.UNDETERMINED if stream is False and limits.items() and limits.e2e_s is None else Verdict.GOOD


def test_every_form_says_where_its_limits_come_from() -> None:
    """The six forms that operators ask for; values as their sources have them (GuideLLM, MLPerf v5.0, OpenAI)."""
    assert {"chat", "code-completion", "agent", "rag", "batch", "voice"} <= {f.name for f in FORMS}
    assert all(f.source and f.limits.items() for f in FORMS)
    assert form_of("chat").limits == Limits(ttft_s=0.2, tpot_s=0.05)
    assert form_of("rag").limits == Limits(0.3, 0.1, 3.0)
    assert form_of("chat-large").limits == Limits(0.45, 0.04)
    with pytest.raises(ValueError, match="is no interaction form; known: agent, batch"):
        form_of("chatt")


def test_verdicts_of_many_facts_are_those_of_each() -> None:
    rows = [fact(status=s.value, engine_ttft_s=t) for s, t in itertools.product(Outcome, (None, 0.1, 0.9))]
    together = judge(facts(*rows), LimitsTable.of(BOTH), vantage=Vantage.ENGINE)["verdict"].to_list()
    assert together == [judge(facts(r), LimitsTable.of(BOTH), vantage=Vantage.ENGINE)["verdict"].item() for r in rows]
    assert pl.Series(together).n_unique() == 4

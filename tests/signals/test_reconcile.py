"""Facts against the engine's counter, and clients' rows against facts."""

from typing import Any

import pytest

from goodwatch.core.engine import Engine
from goodwatch.core.model import Basis, Limits
from goodwatch.signals.attainment_gap import client_facts, gap
from goodwatch.signals.attainment_limits import LimitsTable
from goodwatch.signals.reconcile import EngineCounts, Stops, engine_counts, explain, reconcile
from goodwatch.signals.windows import TargetWindow
from tests.signals.request_parts import fact, facts

FACTS_OF_4 = [fact(fact_id=str(i), trace_id=f"t{i}") for i in range(4)]


def test_facts_that_match_are_counted() -> None:
    found = reconcile(facts(*FACTS_OF_4), EngineCounts(4.0))
    assert (found.basis, found.gap_ratio, found.scale, dict(found.by_class)) == (Basis.COUNTED, 0.0, 1.0, {"ok": 4.0})


def test_what_is_missing_makes_an_estimate_and_says_of_how_much() -> None:
    found = reconcile(facts(*FACTS_OF_4), EngineCounts(5.0))
    assert (found.basis, found.gap_ratio, found.scale) == (Basis.ESTIMATED, 0.2, 1.25)
    assert dict(found.by_class) == {"ok": 4.0, "missing": 1.0}
    assert dict(reconcile(facts(*FACTS_OF_4), EngineCounts(2.0)).by_class) == {"ok": 4.0, "surplus": 2.0}


def test_weights_and_choices_count_as_the_engine_counts() -> None:
    """A request with n = 2 is two in the finished counter; one of ten kept stands for ten."""
    found = reconcile(facts(fact(choices=2, weight=10.0), fact(trace_id="x", weight=10.0)), EngineCounts(30.0))
    assert (found.facts, found.basis) == (30.0, Basis.COUNTED)


def test_requests_that_the_engine_did_not_finish_are_not_compared() -> None:
    """SGLang's aborts before the first token have a span and are not in its counter; a gateway's error never got there."""
    dropped = fact(trace_id="d", status="aborted", engine_ttft_s=None)
    outside = fact(trace_id="o", status="error", engine=None)
    found = reconcile(facts(*FACTS_OF_4, dropped, outside), EngineCounts(4.0))
    assert found.basis is Basis.COUNTED
    assert dict(found.by_class) == {"ok": 4.0, "dropped_waiting": 1.0, "no_engine_span": 1.0}


def test_without_a_counter_to_trust_there_is_no_gap() -> None:
    assert reconcile(facts(*FACTS_OF_4), None).gap_ratio is None
    broken = reconcile(facts(*FACTS_OF_4), EngineCounts(3.0, broken="the engine restarted"))
    assert (broken.gap_ratio, broken.basis, broken.note) == (None, Basis.ESTIMATED, "the engine restarted")


def test_nothing_on_either_side_agrees() -> None:
    assert reconcile(facts(), EngineCounts(0.0)).basis is Basis.COUNTED
    assert reconcile(facts(*FACTS_OF_4), EngineCounts(0.0)).scale is None


def test_counters_of_targets_add_up_and_unknown_stays_unknown() -> None:
    def window(target: str, answered: float | None = None) -> TargetWindow:
        counters = {("requests_finished_total", "finished_reason=stop"): 3.0, ("output_tokens_total", ""): 30.0}
        if answered is not None:
            counters["http_requests_total", "status=2xx"] = answered
        return TargetWindow(target, "s", "m", "vllm", 0.0, 60.0, counters=counters)

    engines: dict[str, Engine] = {}
    assert engine_counts([], engines) is None
    assert engine_counts([TargetWindow("a", "s", "m", "vllm", 0.0, 60.0)], engines) is None
    assert engine_counts([window("a", 5.0), window("b", 3.0)], engines) == EngineCounts(6.0, 2.0, 60.0)
    assert engine_counts([window("a", 5.0), window("b")], engines) == EngineCounts(6.0, None, 60.0)


def row(status: str = "ok", **fields: Any) -> dict[str, Any]:
    plain = {"request_id": "r", "start": 100.0, "e2e_s": 2.0, "prompt_tokens": 5, "output_tokens": 10, "stream": True}
    return {**plain, "status": status, **fields}


KILL = Stops(killed_s=(105.0,), stopped_s=(200.0,))
SAMPLED, UNSAMPLED = "00-abc-def-01", "00-abc-def-00"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": "client_abort"}, "aborted"),
        ({"status": "timeout"}, "timed_out"),
        ({"status": "http_error", "http_status": 400}, "refused"),
        ({"status": "http_error", "http_status": 503}, "failed"),
        ({"status": "stream_error", "http_status": 200}, "failed"),
        ({"status": "disconnect"}, "refused"),  # nobody listened
        ({"status": "disconnect", "start": 104.0}, "killed_process"),  # in flight at the kill
        ({"traceparent": UNSAMPLED}, "unsampled"),
        ({"traceparent": SAMPLED}, "killed_process"),  # ended 3 s before the kill; the SDK sends every 5 s
        ({"traceparent": SAMPLED, "start": 97.9}, "unexplained"),  # ended 5.1 s before it
        ({"start": 196.0}, "lost_export"),  # ended 2 s before an orderly stop
        ({"start": 150.0}, "unexplained"),
    ],
)
def test_a_row_without_a_fact_has_a_reason(fields: dict[str, Any], reason: str) -> None:
    found = explain(facts(), [row(**fields)], KILL)
    assert found.row_class == (reason,)
    assert found.unexplained == (("r",) if reason == "unexplained" else ())
    assert dict(found.by_class) == ({} if reason == "unexplained" else {reason: 1})


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ({"request_id": "chatcmpl-r"}, {}),
        ({"request_id": "cmpl-r-0"}, {}),
        ({"request_id": "hex"}, {"response_id": "hex"}),
        ({"response_id": "hex"}, {"response_id": "hex"}),
        ({"trace_id": "abc"}, {"traceparent": SAMPLED}),
    ],
)
def test_a_row_joins_by_any_of_its_names(ids: dict[str, Any], told: dict[str, Any]) -> None:
    found = explain(facts(fact(input_tokens=5, **ids)), [row(**told)], KILL)
    assert (found.joined, found.facts_alone, found.unequal_tokens) == (1, 0, ())


def test_other_tokens_than_the_client_s_are_told() -> None:
    found = explain(facts(fact(request_id="chatcmpl-r", input_tokens=5, output_tokens=9)), [row()], KILL)
    assert found.unequal_tokens == ("r",)


def test_a_name_that_two_facts_share_joins_nothing() -> None:
    two = [fact(fact_id=i, span_id=i, request_id=f"chatcmpl-{i}", trace_id="abc") for i in "xy"]
    assert explain(facts(*two), [row(traceparent=SAMPLED)], Stops()).joined == 0


def test_stops_are_read_from_events() -> None:
    events = [{"ts": 1, "event": "server ready"}, {"ts": 2, "event": "kill -9 of the API server"}]
    events += [{"ts": 3, "event": "SIGTERM"}, {"ts": 4, "event": "second calm under load, to be killed"}]
    assert Stops.of(events) == Stops((2.0,), (3.0,))


def test_the_steps_of_a_gap_add_up_to_it() -> None:
    """Engine: 3 of 4 good. Clients: a good one was late on their clock, one was streamed not at all, two were lost."""
    ours = [fact(fact_id=str(i), trace_id=f"t{i}", request_id=f"chatcmpl-r{i}") for i in range(3)]
    ours.append(fact(fact_id="w", trace_id="w", engine_ttft_s=0.9))  # a warm-up that no client asked for
    rows = [
        row(request_id="r0", ttft_s=0.1),
        row(request_id="r1", ttft_s=0.6),
        row(request_id="r2", stream=False),
        row("timeout", request_id="r3"),
        row(request_id="r4", ttft_s=0.1, traceparent=UNSAMPLED),
    ]
    limits = LimitsTable.of(Limits(ttft_s=0.5))
    found = gap(facts(*ours), rows, explain(facts(*ours), rows, Stops()), limits)
    # engine 3/4 → asked for 3/3 → streamed 2/2 → on the clients' clock 1/2 → with the time-out 1/3 → and the unsampled 2/4
    assert (found.engine, found.client) == (0.75, 0.5)
    assert found.steps == pytest.approx(
        {"unasked": 0.25, "stream": 0.0, "offset": -0.5, "timed_out": -1 / 6, "unsampled": 1 / 6}
    )


def test_a_client_log_is_facts_of_the_client() -> None:
    rows = [row("http_error", http_status=429, e2e_s=0.1), row("client_abort"), row("what")]
    found = client_facts(rows)
    assert found["status"].to_list() == ["refused", "aborted", "unknown"]
    assert found["client_e2e_s"].to_list() == [0.1, 2.0, 2.0]
    assert client_facts([]).columns == found.columns

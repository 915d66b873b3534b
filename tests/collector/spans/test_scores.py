"""Quality scores in events, attributes and log records; shapes after otel-traces 4."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.spans.scores import ScoresTaken, scores_of_logs, scores_of_spans, span_scores
from goodwatch.signals.request_frames import SCORES
from tests.collector.spans.build import RECEIVED_S, SPAN, START_NS, TRACE, any_value, key_values, request, span, told

EVENT = "gen_ai.evaluation.result"
RESULT = {
    "gen_ai.evaluation.name": "relevance",
    "gen_ai.evaluation.score.value": 0.75,
    "gen_ai.evaluation.score.label": "relevant",
    "gen_ai.evaluation.explanation": "quotes the answer",
}


def log(attributes: dict[str, Any], **fields: Any) -> ScoresTaken:
    usual: dict[str, Any] = {"event_name": EVENT, "trace_id": TRACE, "span_id": SPAN, "time_unix_nano": START_NS}
    made = ExportLogsServiceRequest()
    of_resource = made.resource_logs.add()
    of_resource.resource.attributes.extend(key_values({"service.name": "judge"}))
    record = LogRecord(attributes=key_values(attributes), **{**usual, **fields})
    of_resource.scope_logs.add().log_records.append(record)
    return scores_of_logs(made, RECEIVED_S)


def test_an_evaluation_event_is_a_log_record() -> None:
    taken = log(RESULT | {"gen_ai.response.id": "chatcmpl-1"})
    assert (dict(taken.refused), taken.ignored) == ({}, 0)
    assert taken.frame.schema == SCORES
    assert taken.frame.row(0, named=True) == {
        "ts": 1_790_000_000.0,
        "received_s": RECEIVED_S,
        "trace_id": TRACE.hex(),
        "span_id": SPAN.hex(),
        "response_id": "chatcmpl-1",
        "evaluator": "relevance",
        "annotator": None,
        "identifier": None,
        "score": 0.75,
        "label": "relevant",
        "explanation_ref": None,  # an explanation may quote the answer
        "service": "judge",
        "model": None,
    }


def test_without_a_span_the_response_id_is_the_target() -> None:
    taken = log(RESULT | {"gen_ai.response.id": "chatcmpl-1"}, trace_id=b"", span_id=b"")
    assert told(taken.frame.row(0, named=True), "trace_id", "span_id", "response_id") == {
        "trace_id": None,
        "span_id": None,
        "response_id": "chatcmpl-1",
    }


def test_an_older_sdk_puts_the_name_of_the_event_into_an_attribute_and_the_rest_into_the_body() -> None:
    taken = log({"event.name": EVENT}, event_name="", body=any_value(RESULT))
    assert taken.frame.select("evaluator", "score").rows() == [("relevance", 0.75)]


def test_other_log_records_are_counted_and_nothing_else() -> None:
    taken = log({"exception.type": "x"}, event_name="app.started")
    assert (taken.frame.height, dict(taken.refused), taken.ignored) == (0, {}, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gen_ai.evaluation.name": None}, "no_evaluator"),
        ({"gen_ai.evaluation.score.value": 4.0}, "score_out_of_range"),  # of five? nobody told
        ({"gen_ai.evaluation.score.value": -0.1}, "score_out_of_range"),
        ({"gen_ai.evaluation.score.value": "0.5"}, "wrong_type"),
        ({"gen_ai.evaluation.score.value": True}, "wrong_type"),
        ({"gen_ai.evaluation.score.value": float("nan")}, "not_finite"),
        ({"gen_ai.evaluation.score.value": None, "gen_ai.evaluation.score.label": ""}, "no_score"),
    ],
)
def test_a_score_that_cannot_be_read_is_refused(change: dict[str, Any], reason: str) -> None:
    taken = log({**RESULT, **change})
    assert (taken.frame.height, dict(taken.refused)) == (0, {reason: 1})


def test_an_evaluation_that_failed_is_no_score() -> None:
    assert dict(log({"gen_ai.evaluation.name": "x", "error.type": "timeout"}).refused) == {"failed_evaluation": 1}


def test_a_label_alone_has_no_score() -> None:
    taken = log({"gen_ai.evaluation.name": "x", "gen_ai.evaluation.score.label": "pass"})  # openlit: strings → label
    assert taken.frame.select("score", "label").rows() == [(None, "pass")]


def test_a_score_of_nothing_is_refused() -> None:
    assert dict(log(RESULT, trace_id=bytes(16)).refused) == {"no_target": 1}


@pytest.mark.parametrize("at_ns", [0, START_NS + 10**13])
def test_a_score_without_a_time_that_can_be_true_is_as_old_as_its_coming(at_ns: int) -> None:
    assert log(RESULT, time_unix_nano=at_ns).frame["ts"].to_list() == [RECEIVED_S]


def test_the_observed_time_stands_in_for_the_time() -> None:
    assert log(RESULT, time_unix_nano=0, observed_time_unix_nano=START_NS).frame["ts"].to_list() == [1_790_000_000.0]


# Spans


def test_an_evaluation_event_inside_a_span_is_of_that_span() -> None:
    event = Span.Event(name=EVENT, time_unix_nano=START_NS, attributes=key_values(RESULT))
    other = Span.Event(name="exception", attributes=key_values({"gen_ai.evaluation.name": "x"}))
    one = span("chat m", {"gen_ai.response.model": "m", "gen_ai.response.id": "r"}, events=[event, other])
    (found,) = scores_of_spans(request(one, resource={"service.name": "app"}), RECEIVED_S).rows(named=True)
    assert told(found, "trace_id", "span_id", "response_id", "evaluator", "score", "model", "service", "ts") == {
        "trace_id": TRACE.hex(),
        "span_id": SPAN.hex(),
        "response_id": "r",
        "evaluator": "relevance",
        "score": 0.75,
        "model": "m",
        "service": "app",
        "ts": 1_790_000_000.0,
    }


def test_openinference_flattens_evaluations_by_index() -> None:
    has = {
        "evaluations.0.evaluation.name": "toxicity",
        "evaluations.0.evaluation.score": 0.0,
        "evaluations.0.evaluation.annotator_kind": "LLM",
        "evaluations.1.evaluation.name": "tone",
        "evaluations.1.evaluation.label": "polite",
        "evaluations.1.evaluation.annotator_kind": "ALIEN",
        "annotations.0.annotation.name": "thumbs",
        "annotations.0.annotation.score": 1,
        "annotations.0.annotation.annotator_kind": "HUMAN",
        "annotations.0.annotation.identifier": "u-1",
        "trace.evaluations.0.evaluation.name": "whole",
        "trace.evaluations.0.evaluation.score": 0.5,
        "session.evaluations.0.evaluation.name": "talk",
        "session.evaluations.0.evaluation.score": 0.5,
    }
    taken = span_scores(request(span("x", has)), RECEIVED_S)
    columns = ("evaluator", "score", "label", "annotator", "identifier", "span_id")
    assert set(taken.frame.select(columns).rows()) == {
        ("toxicity", 0.0, None, "llm", None, SPAN.hex()),
        ("tone", None, "polite", None, None, SPAN.hex()),
        ("thumbs", 1.0, None, "human", "u-1", SPAN.hex()),
        ("whole", 0.5, None, None, None, None),
    }
    assert dict(taken.refused) == {"session_score": 1}


def test_a_guardrail_of_litellm_is_a_score_by_code() -> None:
    has = {
        "litellm.guardrail.name": "pii",
        "litellm.guardrail.confidence_score": 0.9,
        "litellm.guardrail.status": "success",
    }
    frame = scores_of_spans(request(span("guardrail", has)), RECEIVED_S)
    assert frame.select("evaluator", "score", "label", "annotator").rows() == [("pii", 0.9, "success", "code")]


def test_spans_without_scores_give_an_empty_frame() -> None:
    frame = scores_of_spans(request(span("chat m", {"gen_ai.request.model": "m"})), RECEIVED_S)
    assert (frame.height, frame.schema) == (0, SCORES)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *RESULT,
                "gen_ai.response.id",
                "evaluations.0.evaluation.score",
                "evaluations.0.evaluation.name",
                "annotations.1.annotation.score",
                "litellm.guardrail.confidence_score",
            ]
        ),
        st.one_of(
            st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=4), st.just([1])
        ),
    )
)
def test_a_kept_score_is_within_0_and_1(attributes: dict[str, Any]) -> None:
    event = Span.Event(name=EVENT, attributes=key_values(attributes))
    of_span = span_scores(request(span("x", attributes, events=[event])), RECEIVED_S)
    for taken in (of_span, log(attributes)):
        assert taken.frame.schema == SCORES
        assert all(score is None or 0 <= score <= 1 for score in taken.frame["score"])
        assert taken.frame["evaluator"].null_count() == 0

"""OTLP in JSON: the same messages as in protobuf, nothing bent into what it is not."""

import json
import math
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from collector.otlp.answers import Code, RefusedError
from collector.otlp.json_form import from_json
from collector.otlp.kinds import LOGS, METRICS, TRACES
from tests.collector.otlp.bodies import RECORDED, recorded, spans_of
from tests.support.otlp_json import otlp_json

ID = {"traceId": "5B8EFFF798038103D269B633813FC60C", "spanId": "EEE19B7EC3C1B174"}


def one_span(**fields: Any) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{**ID, **fields}]}]}]}).encode()


def with_value(value: Any) -> bytes:
    return one_span(attributes=[{"key": "a", "value": {"intValue": 1}}, {"key": "b", "value": value}])


def test_the_example_of_the_specification() -> None:
    # opentelemetry-proto, examples/trace.json: ids in hex of any case, times as text, kind as a number
    body = one_span(
        parentSpanId="eee19b7ec3c1b173", name="I'm a server span", kind=2,
        startTimeUnixNano="1544712660000000000", endTimeUnixNano=1544712661000000000,
        attributes=[{"key": "my.span.attr", "value": {"stringValue": "some value"}}], unknownField={"a": [1]},
    )  # fmt: skip
    found, tally = from_json(TRACES, body)
    (span,) = spans_of(found)
    assert span.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert (span.span_id.hex(), span.parent_span_id.hex()) == ("eee19b7ec3c1b174", "eee19b7ec3c1b173")
    assert (span.kind, span.start_time_unix_nano, span.end_time_unix_nano) == (
        2,
        1544712660 * 10**9,
        1544712661 * 10**9,
    )
    assert span.attributes[0].value.string_value == "some value"
    assert not tally.items
    assert not tally.parts


@pytest.mark.parametrize("name", RECORDED)
def test_a_real_body_says_the_same_in_json(name: str) -> None:
    request = TRACES.request.FromString(recorded(name))
    found, tally = from_json(TRACES, otlp_json(request))
    assert found == request
    assert not tally.parts


@pytest.mark.parametrize(
    ("value", "field", "expected"),
    [
        ({"intValue": "9007199254740993"}, "int_value", 9007199254740993),  # beyond what a double can tell apart
        ({"intValue": -1}, "int_value", -1),
        ({"intValue": 1e3}, "int_value", 1000),
        ({"doubleValue": "Infinity"}, "double_value", math.inf),
        ({"doubleValue": "-Infinity"}, "double_value", -math.inf),
        ({"doubleValue": 1}, "double_value", 1.0),
        ({"doubleValue": "0.25"}, "double_value", 0.25),
        ({"boolValue": False}, "bool_value", False),
        ({"bytesValue": "+/+="}, "bytes_value", b"\xfb\xff"),
        ({"bytesValue": "-_8"}, "bytes_value", b"\xfb\xff"),
        ({"stringValue": ""}, "string_value", ""),
        ({"stringValue": "日本"}, "string_value", "日本"),
    ],
)  # fmt: skip
def test_values_as_protojson_writes_them(value: Any, field: str, expected: object) -> None:
    found, _ = from_json(TRACES, with_value(value))
    given = spans_of(found)[0].attributes[1].value
    assert given.WhichOneof("value") == field
    assert getattr(given, field) == expected


def test_not_a_number_is_a_double() -> None:
    found, _ = from_json(TRACES, with_value({"doubleValue": "NaN"}))
    assert math.isnan(spans_of(found)[0].attributes[1].value.double_value)


@pytest.mark.parametrize(
    "value",
    [
        {"intValue": "12a"}, {"intValue": 1.5}, {"intValue": True}, {"intValue": str(2**63)}, {"intValue": "١"},
        {"boolValue": "true"}, {"boolValue": 1}, {"stringValue": 5}, {"doubleValue": "high"}, {"doubleValue": False},
        {"doubleValue": "1" * 400}, {"bytesValue": "???"}, {"arrayValue": {"values": {}}}, {"arrayValue": []},
        {"stringValue": "a", "intValue": 1}, "bare", 5,
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_costs_its_attribute(value: Any) -> None:
    found, tally = from_json(TRACES, with_value(value))
    assert [attribute.key for attribute in spans_of(found)[0].attributes] == ["a"]
    assert sum(tally.parts.values()) == 1
    assert set(tally.parts) <= {"wrong_type", "two_values"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"startTimeUnixNano": "yesterday"}, "wrong_type"),
        ({"startTimeUnixNano": -1}, "wrong_type"),
        ({"kind": "SPAN_KIND_SERVER"}, "wrong_type"),
        ({"traceId": "not hex"}, "bad_id"),
        ({"spanId": 5}, "bad_id"),
        ({"attributes": {"a": 1}}, "wrong_type"),
    ],
)
def test_a_span_that_is_wrong_is_left_out_alone(fields: dict[str, Any], reason: str) -> None:
    spans = [dict(ID), {**ID, **fields}]
    found, tally = from_json(TRACES, json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode())
    assert TRACES.count(found) == 1
    assert dict(tally.items) == {reason: 1}


@pytest.mark.parametrize("text", [b'"caf\xe9"', b'"\\ud800"'])
def test_a_text_that_is_no_utf8_costs_its_attribute(text: bytes) -> None:
    found, tally = from_json(TRACES, with_value({"stringValue": "X"}).replace(b'"X"', text))
    assert [attribute.key for attribute in spans_of(found)[0].attributes] == ["a"]
    assert dict(tally.parts) == {"invalid_utf8": 1}


def test_a_name_that_is_no_utf8_costs_the_name() -> None:
    found, tally = from_json(TRACES, one_span(name="X").replace(b'"X"', b'"caf\xe9"'))
    assert spans_of(found)[0].name == ""
    assert dict(tally.parts) == {"invalid_utf8": 1}


def test_a_value_nested_too_deep_costs_its_attribute() -> None:
    value: Any = {"stringValue": "x"}
    for _ in range(100):
        value = {"arrayValue": {"values": [value]}}
    found, tally = from_json(TRACES, with_value(value))
    assert len(spans_of(found)[0].attributes) == 1
    assert dict(tally.parts) == {"nested_too_deep": 1}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'{"resourceSpans": 5}', b'{"resourceSpans": [5]}', b"[" * 100_000, b"\x0a\x00"]
)
def test_what_is_no_request_is_refused_as_a_whole(data: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        from_json(TRACES, data)
    assert caught.value.answer.code is Code.BAD


def test_logs_and_metrics_are_read_the_same_way() -> None:
    log = {"eventName": "gen_ai.evaluation.result", "traceId": ID["traceId"], "body": {"stringValue": "x"}}
    found, _ = from_json(LOGS, json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}).encode())
    record = found.resource_logs[0].scope_logs[0].log_records[0]
    assert (record.event_name, record.trace_id.hex()) == ("gen_ai.evaluation.result", ID["traceId"].lower())
    point = {"asInt": "5", "timeUnixNano": "1"}
    metric = {"name": "gen_ai.client.token.usage", "sum": {"dataPoints": [point], "isMonotonic": True}}
    found, _ = from_json(METRICS, json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode())
    assert found.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points[0].as_int == 5


VALUES = st.recursive(
    st.one_of(
        st.fixed_dictionaries({"stringValue": st.text()}),
        st.fixed_dictionaries({"intValue": st.integers(-(2**63), 2**63 - 1).map(str)}),
        st.fixed_dictionaries({"doubleValue": st.floats(allow_nan=False, allow_infinity=False)}),
        st.fixed_dictionaries({"boolValue": st.booleans()}),
    ),
    lambda inner: st.fixed_dictionaries({"arrayValue": st.fixed_dictionaries({"values": st.lists(inner, max_size=3)})}),
    max_leaves=6,
)  # fmt: skip


@given(VALUES)
def test_values_agree_with_the_json_parser_of_protobuf(value: dict[str, Any]) -> None:
    # which differs from OTLP in ids and enums only
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": "a", "value": value}]}]}]}]}
    found, tally = from_json(TRACES, json.dumps(body).encode())
    assert found == json_format.ParseDict(body, TRACES.request())
    assert not tally.parts


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["key", "value", "stringValue", "arrayValue", "values", "traceId"]), inner
            )
        ),
    )
)
def test_no_json_at_all_is_a_fault(value: Any) -> None:
    for body in (
        value,
        {"resourceSpans": [{"scopeSpans": [{"spans": [value]}]}]},
        {"resourceSpans": [{"resource": {"attributes": [value]}}]},
    ):
        try:
            from_json(TRACES, json.dumps(body).encode())
        except RefusedError as refused:
            assert refused.answer.code is Code.BAD  # noqa: PT017

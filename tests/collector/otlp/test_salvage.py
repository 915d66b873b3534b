"""Damaged bodies: the rest is kept, what is left out is counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.otlp.answers import Code, RefusedError
from collector.otlp.kinds import TRACES
from collector.otlp.salvage import Tally, salvaged
from tests.collector.otlp.bodies import RECORDED, framed, member, recorded, spans_of
from tests.support.otlp_spans import REAL, numbered, span

BAD_TEXT = b"caf\xe9"


def with_bad_value(key: str = "prompt") -> bytes:
    """A KeyValue whose text is Latin-1: KeyValue.value = 2, AnyValue.string_value = 1 (common.proto)."""
    return member(1, key.encode()) + member(2, member(1, BAD_TEXT))


def attribute_of_span(attribute: bytes) -> bytes:
    """Span.attributes = 9 (trace.proto)."""
    return member(9, attribute)


def test_one_bad_byte_costs_one_attribute() -> None:
    good = span(1).SerializeToString()
    bad = span(2).SerializeToString() + attribute_of_span(with_bad_value())
    found, tally = salvaged(TRACES, framed(good, bad, span(3).SerializeToString()))
    assert [one.span_id[-1] for one in spans_of(found)] == [2, 3, 4]
    assert {len(one.attributes) for one in spans_of(found)} == {len(REAL)}
    assert (dict(tally.items), dict(tally.parts)) == ({}, {"invalid_utf8": 1})


def test_a_bad_byte_in_a_key_a_name_an_event_and_a_nested_value() -> None:
    whole = span(1).SerializeToString()
    key = attribute_of_span(member(1, BAD_TEXT) + member(2, member(1, b"x")))
    event = member(11, member(2, BAD_TEXT))  # Span.events = 11, Event.name = 2: the text goes, the event stays
    event_attribute = member(11, member(2, b"retract") + member(3, with_bad_value()))
    nested = attribute_of_span(member(1, b"list") + member(2, member(5, member(1, member(1, BAD_TEXT)))))
    found, tally = salvaged(TRACES, framed(whole + key + event + event_attribute + nested))
    (kept,) = spans_of(found)
    assert [attribute.key for attribute in kept.attributes] == list(REAL)
    assert [event.name for event in kept.events] == ["", "retract"]
    assert dict(tally.parts) == {"invalid_utf8": 4}
    nameless, _ = salvaged(TRACES, framed(span(1, name="").SerializeToString() + member(5, BAD_TEXT)))
    assert spans_of(nameless)[0].name == ""


def test_a_span_that_ends_in_the_middle_is_left_out_alone() -> None:
    cut = span(2).SerializeToString()[:-3]
    found, tally = salvaged(TRACES, framed(span(1).SerializeToString(), cut, span(3).SerializeToString()))
    assert [one.span_id[-1] for one in spans_of(found)] == [2, 4]
    assert (dict(tally.items), dict(tally.parts)) == ({"malformed": 1}, {})


def deep(levels: int) -> bytes:
    """An AnyValue that many arrays deep: AnyValue.array_value = 5, ArrayValue.values = 1 (common.proto)."""
    value = member(1, b"x")
    for _ in range(levels):
        value = member(5, member(1, value))
    return value


def test_a_value_nested_too_deep_costs_its_attribute() -> None:
    inner = member(1, b"inner") + member(2, deep(200))
    a = attribute_of_span(member(1, b"a") + member(2, deep(200)))
    b = attribute_of_span(member(1, b"b") + member(2, member(6, member(1, inner))))  # AnyValue.kvlist_value = 6
    found, tally = salvaged(TRACES, framed(span(1, {"kept": 1}).SerializeToString() + a + b))
    assert [attribute.key for attribute in spans_of(found)[0].attributes] == ["kept"]
    assert dict(tally.parts) == {"nested_too_deep": 2}


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", member(1, b"\x12\x7f"), b"\x0b", b"\x00\x01"])
def test_damage_in_the_frame_is_refused_as_a_whole(data: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        salvaged(TRACES, data)
    assert caught.value.answer.code is Code.BAD


def test_a_body_made_to_be_slow_is_given_up() -> None:
    value = member(1, BAD_TEXT * 300_000)
    for _ in range(50):  # as deep as is looked into, and large at every level
        value = member(5, member(1, value))
    bad = framed(span(1).SerializeToString() + attribute_of_span(member(1, b"k") + member(2, value)))
    with pytest.raises(RefusedError, match="too much"):
        salvaged(TRACES, bad)


@pytest.mark.parametrize("name", RECORDED)
def test_a_whole_body_comes_out_as_it_went_in(name: str) -> None:
    found, tally = salvaged(TRACES, recorded(name))
    assert found.SerializeToString() == TRACES.request.FromString(recorded(name)).SerializeToString()
    assert tally == Tally()


@given(st.integers(0, 2147), st.integers(0, 255))
def test_any_changed_byte_of_a_real_body_is_survived(at: int, byte: int) -> None:
    body = bytearray(recorded("vllm-0.32.0"))
    body[at] = byte
    try:
        found, tally = salvaged(TRACES, bytes(body))
    except RefusedError as refused:
        assert refused.answer.code is Code.BAD  # noqa: PT017
        return
    assert TRACES.count(found) + sum(tally.items.values()) <= 3


@given(st.lists(st.sampled_from(["whole", "bad text", "cut"]), max_size=6))
def test_every_span_is_there_or_counted(plan: list[str]) -> None:
    made = numbered(0, len(plan))
    pieces = []
    for one, how in zip(spans_of(made), plan, strict=True):
        data = one.SerializeToString()
        pieces.append(
            data[:-3] if how == "cut" else data + (attribute_of_span(with_bad_value()) if how == "bad text" else b"")
        )
    found, tally = salvaged(TRACES, framed(*pieces))
    assert TRACES.count(found) == len(plan) - plan.count("cut")
    assert tally.items.get("malformed", 0) == plan.count("cut")
    assert tally.parts.get("invalid_utf8", 0) == plan.count("bad text")

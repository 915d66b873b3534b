"""Scores as callers post them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.quality.posted import posted
from goodwatch.signals.request_frames import SCORES

NOW_S = 1_790_000_000.0
TRACE = "0af7651916cd43dd8448eb211c80319c"
GOOD = {"trace_id": TRACE, "evaluator": "helpful", "score": 0.5}


def faults(item: object) -> list[tuple[str, str]]:
    (refused,) = posted([item], NOW_S).refused
    return list(refused.faults)


def test_a_score_has_all_columns_and_what_is_not_told_is_null() -> None:
    found = posted([GOOD], NOW_S)
    assert found.refused == ()
    assert found.frame.schema == SCORES
    (row,) = found.frame.rows(named=True)
    told = {name: value for name, value in row.items() if value is not None}
    assert told == {"ts": NOW_S, "received_s": NOW_S, "trace_id": TRACE, "evaluator": "helpful", "score": 0.5}


@pytest.mark.parametrize(
    ("more", "column", "value"),
    [
        ({"trace_id": TRACE.upper()}, "trace_id", TRACE),
        ({"trace_id": "0af76519-16cd-43dd-8448-eb211c80319c"}, "trace_id", TRACE),
        ({"span_id": "B7AD6B7169203331"}, "span_id", "b7ad6b7169203331"),
        ({"ts": 1_789_000_000}, "ts", 1_789_000_000.0),
        ({"ts": "2026-09-21T01:00:00+01:00"}, "ts", 1_789_948_800.0),
        ({"score": 1}, "score", 1.0),
        ({"score": None, "label": "sehr gut 👍"}, "label", "sehr gut 👍"),
        ({"annotator": "human"}, "annotator", "human"),
    ],
)
def test_what_can_be_read_is_read(more: dict[str, Any], column: str, value: object) -> None:
    found = posted([GOOD | more], NOW_S)
    assert found.refused == ()
    assert found.frame[column].to_list() == [value]


@pytest.mark.parametrize(
    ("item", "where", "says"),
    [
        (GOOD | {"score": 1.01}, "score", "less than or equal to 1"),
        (GOOD | {"score": "0.5"}, "score", "valid number"),
        (GOOD | {"score": True}, "score", "valid number"),
        (GOOD | {"score": float("nan")}, "score", ""),
        (GOOD | {"trace_id": "xyz"}, "trace_id", "32 hexadecimal"),
        (GOOD | {"trace_id": "0" * 32}, "trace_id", "32 hexadecimal"),
        (GOOD | {"span_id": "0af7"}, "span_id", "16 hexadecimal"),
        (GOOD | {"evaluator": ""}, "evaluator", "at least 1"),
        (GOOD | {"evaluator": "x" * 129}, "evaluator", "at most 128"),
        (GOOD | {"label": "a\nb"}, "label", "control characters"),
        (GOOD | {"annotator": "robot"}, "annotator", "'human', 'llm' or 'code'"),
        (GOOD | {"ts": NOW_S * 1000}, "ts", "divided by 1000"),
        (GOOD | {"ts": NOW_S + 3600}, "ts", "in the future"),
        (GOOD | {"ts": "2026-09-21T01:00:00"}, "ts", "time zone"),
        (GOOD | {"ts": "yesterday"}, "ts", "RFC 3339"),
        (GOOD | {"colour": "red"}, "colour", "not a field"),
        ({"evaluator": "helpful", "score": 1}, "", "about nothing"),
        ({"response_id": "r", "span_id": "b7ad6b7169203331", "evaluator": "e", "score": 1}, "", "span_id without"),
        ({"trace_id": TRACE, "evaluator": "helpful"}, "", "no score and no label"),
        ({"trace_id": TRACE, "score": 1}, "evaluator", "required"),
        ("a text", "", "not a JSON object"),
        (None, "", "not a JSON object"),
    ],
)
def test_what_is_wrong_is_named(item: object, where: str, says: str) -> None:
    ((found, what),) = faults(item)
    assert found == where
    assert says in what


def test_one_bad_score_does_not_keep_the_others_out() -> None:
    found = posted([GOOD, GOOD | {"score": 2}, GOOD | {"identifier": "b"}], NOW_S)
    assert found.frame.height == 2
    assert [one.index for one in found.refused] == [1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SCORES, "x"]), inner, max_size=6),
    max_leaves=8,
)


@given(st.lists(JSON, max_size=5))
def test_every_item_is_taken_or_refused(items: list[object]) -> None:
    found = posted(items, NOW_S)
    assert found.frame.height + len(found.refused) == len(items)
    assert found.frame["score"].drop_nulls().is_between(0, 1).all()

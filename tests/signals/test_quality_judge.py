"""What the judge is asked and what is read from its answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.signals.quality_judge import Grades, UnreadableError, grades, questions, repair

GOOD = '{"faithfulness": 0.5, "factuality": 1, "reason": "half of it"}'


@pytest.mark.parametrize(
    "reply",
    [
        GOOD,
        f"\n {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"<think>Is {{}} right?\nYes.</think>\n{GOOD}",
        '{"faithfulness": 0.5, "factuality": 1}',
    ],
)
def test_grades_are_read(reply: str) -> None:
    assert grades(reply, documents=True) == Grades(0.5, 1.0)


def test_nothing_is_faithful_to_documents_that_were_not_there() -> None:
    assert grades(GOOD, documents=False) == Grades(None, 1.0)
    assert grades('{"faithfulness": null, "factuality": null}', documents=True).items() == ()


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("", "not JSON"),
        ("The answer is fine.", "not JSON"),
        (f"Here it is: {GOOD}", "text around"),
        (f"{GOOD} I hope this helps!", "text around"),
        ('{"faithfulness": 0.5}', "factuality"),
        ('{"faithfulness": 1.5, "factuality": 1}', "less than or equal to 1"),
        ('{"faithfulness": "0.5", "factuality": 1}', "valid number"),
        ('{"faithfulness": true, "factuality": 1}', "valid number"),
        ('{"faithfulness": NaN, "factuality": 1}', "faithfulness"),
        ('{"faithfulness": 1, "factuality": 1, "score": 5}', "Extra inputs"),
        ("[]", "object"),
        ("null", "object"),
    ],
)
def test_what_is_not_as_asked_is_unreadable_and_says_why(reply: str, says: str) -> None:
    with pytest.raises(UnreadableError, match=says):
        grades(reply, documents=True)


def test_the_fault_quotes_nothing() -> None:
    with pytest.raises(UnreadableError) as caught:
        grades('{"faithfulness": "hunter2", "factuality": 1}', documents=True)
    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=200), st.text(max_size=200), st.lists(st.text(max_size=50), max_size=3))
def test_the_material_arrives_as_it_is_and_as_data(question: str, answer: str, documents: list[str]) -> None:
    (system, _), (user, text) = questions(question, answer, documents)
    assert (system, user) == ("system", "user")
    assert json.loads(text) == {"question": question, "answer": answer} | (
        {"documents": documents} if documents else {}
    )


def test_long_texts_are_cut() -> None:
    _, (_, text) = questions("q" * 100_000, "a" * 100_000, ["d" * 100_000] * 100)
    assert len(text) < 23 * 12_100


def test_the_second_try_shows_what_was_wrong_with_the_first() -> None:
    asked = repair(questions("q", "a"), "Sure!", "it is not JSON")
    assert [role for role, _ in asked] == ["system", "user", "assistant", "user"]
    assert "it is not JSON" in asked[-1][1]


@given(st.text(max_size=300))
def test_any_reply_is_read_or_refused(reply: str) -> None:
    try:
        grades(reply, documents=True)
    except UnreadableError:
        return

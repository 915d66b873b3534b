"""Matchers as in Alertmanager, and what keeps alerts quiet."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.matchers import Matcher, matcher_of, matchers_of
from alerts.silences import Silence, inhibited, silence_of
from tests.alerts.dispatching import PAGE, START_S, TICKET, alert

LABELS = {"service": "chat", "alertname": "LlmTargetDown", "severity": "warning"}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('service="chat"', True),
        ("service=chat", True),
        (' service = "chat" ', True),
        ('service!="chat"', False),
        ('alertname=~"Llm.*"', True),
        ('alertname=~"Llm"', False),  # the whole value, as Alertmanager anchors it
        ('alertname=~"LlmQueueGrowing|LlmTargetDown"', True),
        ('alertname!~"Llm.*"', False),
        ('model=""', True),  # a label that is missing is empty
        ('model!=""', False),
        (r'service=~"ch[a-c]t"', True),
        (r'service=~"ch\\wt"', True),
    ],
)
def test_a_matcher_means_what_it_means_in_alertmanager(text: str, fits: bool) -> None:
    assert matcher_of(text).fits(LABELS) is fits


@pytest.mark.parametrize(
    "text",
    ["", "chat", "=chat", 'service=="chat"', 'service="chat', "9x=1", 'service=~"("', 'service=~"(a+)+"', 'a=~"(?=x)"',
     'a=~"x*y*z*w*"', r'a=~"(x)\\1"', 'a=~"(a|b){9}"', f'a=~"{"x" * 300}"', 'a="b" c'],
)  # fmt: skip
def test_what_is_no_matcher_or_could_run_for_ever_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(is no|has a pattern)"):
        matcher_of(text)


def test_a_silence_of_everything_is_refused() -> None:
    for texts in ([], ['service=~".*"'], ['model=""']):
        with pytest.raises(ValueError, match="silence everything"):
            matchers_of(texts)


@given(st.sampled_from(["=", "!=", "=~", "!~"]), st.text(max_size=40))
def test_a_matcher_comes_back_from_its_text(op: str, value: str) -> None:
    one = Matcher("service", op, re.escape(value) if op.endswith("~") else value)  # type: ignore[arg-type]
    assert matcher_of(str(one)) == one


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text("xyz", max_size=4)), st.text("xyz.*|", max_size=6))
def test_a_matcher_and_its_opposite_never_agree(labels: dict[str, str], pattern: str) -> None:
    for op, opposite in (("=", "!="), ("=~", "!~")):
        try:
            one, other = (matcher_of(f'a{sign}"{pattern}"') for sign in (op, opposite))
        except ValueError:
            continue
        assert one.fits(labels) is not other.fits(labels)


@given(st.text("ab.*+|[]()c", max_size=12))
def test_a_pattern_that_is_taken_answers_at_once(pattern: str) -> None:
    try:
        one = matcher_of(f'a=~"{pattern}"')
    except ValueError:
        return
    began_s = time.process_time()
    one.fits({"a": "ab" * 100 + "!"})
    assert time.process_time() - began_s < 1.0


def made(**more: float) -> Silence:
    times = {"starts_at_s": START_S, "ends_at_s": START_S + 60, "created_at_s": START_S, **more}
    return Silence("s1", matchers_of(['service="chat"']), author="ann", comment="move", **times)


def test_a_silence_holds_from_its_start_to_its_end() -> None:
    states = [made().state(START_S + at) for at in (-1, 0, 59, 60)]
    assert states == ["pending", "active", "active", "expired"]


def test_a_silence_that_is_ended_is_over_at_once_and_for_good() -> None:
    assert made().ended(START_S + 10).ends_at_s == START_S + 10
    assert made().ended(START_S + 90) == made()
    never = made(starts_at_s=START_S + 30).ended(START_S)
    assert (never.starts_at_s, never.state(START_S)) == (START_S, "expired")


def test_a_silence_comes_back_from_its_record() -> None:
    assert silence_of("s1", made().body()) == made()


def test_a_page_speaks_for_tickets_of_its_service_and_never_for_itself() -> None:
    page, ticket, other = alert(), alert(TICKET), alert(TICKET, "search")
    assert inhibited([page, ticket, other]) == {ticket.fingerprint: PAGE}
    assert inhibited([page, alert(severity="critical", slo="b")]) == {}
    assert inhibited([ticket, other]) == {}

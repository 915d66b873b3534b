"""What may follow what, what is repeated, and that a record comes back as it was kept."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from goodwatch.core.record import Record
from planner.configure.values import Configuration
from planner.recommendations import (
    KIND,
    MOVES,
    QUIET_S,
    Band,
    Predicted,
    Recommendation,
    State,
    Step,
    fresh,
    from_record,
    lines,
    moved,
    to_body,
)

NOW_S = 1_772_593_920.0


def predicted(low: float, high: float) -> Predicted:
    flat = Band(0.5, 0.5, 0.5)
    return Predicted("attainment_ratio", flat, flat, Band((low + high) / 2, low, high), "difference")


def recommendation(id: str = "r1", low: float = 0.2, high: float = 0.4, **more: object) -> Recommendation:
    one = Recommendation(
        id, "chat", "concurrency", "flags", "max num seqs 128 → 8", "restore", "proposed", {"max_num_seqs": 8}, (), "why",
        (predicted(low, high),), Band(1.0, 0.5, 2.0), "high", "fits", (NOW_S - 3600, NOW_S), 900, 300,
        steps=(Step(NOW_S, "proposed", "goodwatch"),),
    )  # fmt: skip
    return replace(one, **more)  # type: ignore[arg-type]


@given(st.sampled_from(sorted(MOVES)), st.sampled_from(sorted(MOVES)))
def test_only_what_may_follow_follows(state: State, to: State) -> None:
    one = recommendation(state=state)
    if to in MOVES[state]:
        found = moved(one, to, NOW_S + 1, "ann", "because")
        assert found.state == to
        assert found.steps[-1] == Step(NOW_S + 1, to, "ann", "because")
    else:
        with pytest.raises(ConfigError, match=f"is {state} and cannot become {to}"):
            moved(one, to, NOW_S + 1, "ann", "because")


def test_a_verdict_is_final() -> None:
    with pytest.raises(ConfigError, match="it is over"):
        moved(recommendation(state="verified"), "declined", NOW_S, "ann", "no")


def test_a_record_comes_back_as_it_was_kept() -> None:
    one = moved(recommendation(), "declined", NOW_S + 5, "ann", "not now")
    assert from_record(Record(KIND, one.id, NOW_S, to_body(one))) == one


def test_a_record_of_another_shape_is_refused_with_its_place() -> None:
    body = {**to_body(recommendation()), "later": 1}
    with pytest.raises(ConfigError, match=r"recommendation r1: later"):
        from_record(Record(KIND, "r1", NOW_S, body))


def test_the_diff_is_in_the_engines_own_words() -> None:
    (line,) = lines(Configuration(engine="vllm", model="m", max_num_seqs=128), {"max_num_seqs": 8})
    assert (line.flags_before, line.flags_after) == ("--max-num-seqs 128", "--max-num-seqs 8")


def test_what_is_no_flag_is_told_by_name() -> None:
    (line,) = lines(Configuration(engine="vllm", model="m"), {"admitted_ratio": 0.9})
    assert (line.setting, line.after, line.flags_after) == ("admitted_ratio", "0.9", "")


def test_open_advice_is_not_repeated() -> None:
    for state in ("proposed", "accepted", "applied", "inconclusive"):
        new, over = fresh([recommendation("r2")], [recommendation(state=state)], NOW_S + 1)
        assert (new, over) == ([], [])


def test_declined_advice_comes_again_after_a_month_or_when_more_is_to_be_gained() -> None:
    declined = moved(recommendation(), "declined", NOW_S, "ann", "not now")
    assert fresh([recommendation("r2")], [declined], NOW_S + QUIET_S - 1)[0] == []
    assert fresh([recommendation("r2")], [declined], NOW_S + QUIET_S + 1)[0] == [recommendation("r2")]
    better = recommendation("r2", low=0.5, high=0.6)
    assert fresh([better], [declined], NOW_S + 1)[0] == [better]


def test_what_goodwatch_withdrew_itself_may_come_again() -> None:
    over = moved(recommendation(), "declined", NOW_S, "goodwatch", "newer evidence no longer says so")
    assert fresh([recommendation("r2")], [over], NOW_S + 1)[0] == [recommendation("r2")]


def test_a_proposal_that_newer_evidence_does_not_make_is_over() -> None:
    other = recommendation("r2", changes={"max_num_seqs": 16})
    new, over = fresh([other], [recommendation()], NOW_S + 1)
    assert (new, over) == ([other], [recommendation()])
    assert fresh([], [recommendation(state="accepted")], NOW_S + 1)[1] == []  # somebody is at it


def test_the_same_advice_with_a_limit_that_moved_a_little_is_the_same_advice() -> None:
    declined = moved(recommendation(changes={"max_num_seqs": 64}), "declined", NOW_S, "ann", "not now")
    near = recommendation("r2", changes={"max_num_seqs": 60})
    assert fresh([near], [declined], NOW_S + 1) == ([], [])
    open_one = recommendation(changes={"max_num_seqs": 64})
    assert fresh([near], [open_one], NOW_S + 1) == ([], [])


def test_what_a_check_refuted_is_not_recommended_again_at_once() -> None:
    refuted = moved(recommendation(state="applied"), "refuted", NOW_S, "goodwatch", "worse")
    assert fresh([recommendation("r2")], [refuted], NOW_S + 1)[0] == []
    assert fresh([recommendation("r2")], [refuted], NOW_S + QUIET_S + 1)[0] == [recommendation("r2")]


def test_a_check_that_stays_open_does_not_silence_advice_for_ever() -> None:
    open_one = moved(recommendation(state="applied"), "inconclusive", NOW_S, "goodwatch", "too few")
    assert fresh([recommendation("r2")], [open_one], NOW_S + QUIET_S + 1)[0] == [recommendation("r2")]


def test_a_proposal_that_is_advised_still_but_no_longer_among_the_best_stays() -> None:
    fourth = recommendation()
    advised = [("replicas", {"replicas": 3}), (fourth.strategy, dict(fourth.changes))]
    assert fresh([], [fourth], NOW_S + 1, advised) == ([], [])


def test_nothing_was_applied_before_it_was_recommended() -> None:
    with pytest.raises(ConfigError, match="before it was recommended"):
        moved(recommendation(), "applied", NOW_S - 1, "ann")

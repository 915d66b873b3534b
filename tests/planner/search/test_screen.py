"""The closed form over columns: equal to the step model, and monotone in what it should be monotone in."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.search.memory import memory
from planner.search.pace import paced
from planner.search.question import Allowed, Question
from planner.search.screen import Closed, screened, step_s, switched
from planner.search.space import Instance, Space, enumerated
from planner.simulate.run import Limits
from planner.speed.steps import decode_s, prompt_s
from tests.planner.search.questions import asked


def frames(question: Question) -> tuple[tuple[Instance, ...], pl.DataFrame]:
    space = Space(tp=(2, 8), pp=(1,), max_num_seqs=(32, 256), batched_tokens=(2048, 8192))
    instances = enumerated(question, space).instances
    starts = memory(question.model, instances, lengths=[question.needed_tokens], sequences=space.max_num_seqs,
                    tokens=space.batched_tokens, context_tokens=question.context_tokens)  # fmt: skip
    return instances, switched(starts, question, instances)


def cheapest(question: Question) -> float:
    """USD a month of the cheapest row; infinite where none meets the targets."""
    least = screened(frames(question)[1], question)["usd_per_month"].min()
    return float("inf") if least is None else float(least)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3"])
@pytest.mark.parametrize("running", [1.0, 7.0, 120.0])
def test_a_step_over_columns_is_the_step_of_the_speed_model(name: str, running: float) -> None:
    question = asked(name)
    instances, frame = frames(question)
    column = frame.with_columns(step=step_s(pl.lit(running)))
    for row in column.unique("instance", maintain_order=True).iter_rows(named=True):
        _, one, by = paced(question, instances[row["instance"]])
        assert row["step"] == pytest.approx(decode_s(one, by, running, question.context_tokens))
        assert row["prompt"] == pytest.approx(prompt_s(one, by, 1200.0))


def test_more_load_is_never_cheaper() -> None:
    costs = [cheapest(asked(rate=rate)) for rate in (1.0, 5.0, 20.0, 80.0)]
    assert costs == sorted(costs)


def test_tighter_targets_are_never_cheaper() -> None:
    costs = [cheapest(asked(rate=20.0, limits=Limits(ttft_s=t, tpot_s=t / 10))) for t in (2.0, 0.6, 0.4, 0.3)]
    assert costs == sorted(costs)


def test_longer_prompts_are_never_cheaper() -> None:
    costs = [cheapest(asked(rate=20.0, tokens=(n, 300.0))) for n in (200.0, 1200.0, 4000.0)]
    assert costs == sorted(costs)


def test_a_shared_prefix_is_never_dearer() -> None:
    plain = asked(rate=20.0)
    shared = plain.relaxed(arrivals=type(plain.arrivals)(20.0, 1200.0, 300.0, shared_ratio=0.7))
    assert cheapest(shared) <= cheapest(plain)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 400.0), st.floats(1.05, 3.0))
def test_a_fuller_replica_is_slower_and_carries_more(running: float, times: float) -> None:
    question = asked()
    closed, (_, frame) = Closed(question), frames_once(question)
    low, high = pl.lit(running), pl.lit(running * times)
    row = frame.select(
        slower=(closed.ttft_s(high) >= closed.ttft_s(low) * (1 - 1e-9)).all(),
        more=(closed.rate(high) >= closed.rate(low) * (1 - 1e-9)).all(),
    ).row(0, named=True)
    assert row == {"slower": True, "more": True}


_KNOWN: dict[str, tuple[tuple[Instance, ...], pl.DataFrame]] = {}


def frames_once(question: Question) -> tuple[tuple[Instance, ...], pl.DataFrame]:
    return _KNOWN.setdefault(question.model.name, frames(question))


def test_a_number_of_cards_that_is_told_is_used_whole() -> None:
    question = asked(rate=1.0, allowed=Allowed(gpus=("H100",), gpu_count=8))
    rows = screened(frames(question)[1], question).filter(pl.col("replicas").is_not_null())
    assert set(rows["cards"]) == {8}

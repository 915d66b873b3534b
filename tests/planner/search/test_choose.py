"""The search: what it chooses holds, the same question has the same answer, and what lost has a reason."""

import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from planner.cost.prices import Overrides
from planner.estimate import Estimate
from planner.search.answer import Option, configuration, pareto
from planner.search.choose import search
from planner.search.near import nearest
from planner.search.question import Allowed, Arrivals, Question, arrivals_of
from planner.search.space import Space
from planner.search.trial import Figures, Setup, tried
from planner.simulate.run import Limits
from planner.simulate.trace import Trace, drawn, trace
from tests.planner.search.questions import asked

SMALL = Space(tp=(1, 2, 4), pp=(1,), max_num_seqs=(64, 256), batched_tokens=(2048, 8192))


def test_what_is_chosen_meets_the_objective_at_the_slow_end() -> None:
    answer = search(asked(rate=10.0), SMALL)
    assert answer.best is not None
    assert answer.best.holds
    assert answer.best.of("attained_ratio").low >= 0.95


def test_one_replica_less_does_not_hold() -> None:
    question = asked(rate=40.0)
    best = search(question, SMALL).best
    assert best is not None
    setup = best.setup
    assert setup.replicas > 1
    fewer = Setup(setup.instance, setup.max_model_len, setup.max_num_seqs, setup.batched_tokens, setup.prefix_caching,
                  setup.chunked_prefill, setup.replicas - 1, 0, setup.seats, setup.seats_low, setup.kv_tokens, setup.mixed)  # fmt: skip
    assert tried(question, fewer, "slow").attained_ratio < question.objective


def test_the_same_question_has_the_same_answer() -> None:
    first, second = search(asked(rate=10.0), SMALL), search(asked(rate=10.0), SMALL)
    assert first == second


def test_another_seed_draws_other_requests() -> None:
    one, two = (search(asked(rate=10.0, seed=seed), SMALL).best for seed in (0, 1))
    assert one is not None
    assert two is not None
    assert one.figures["point"] != two.figures["point"]


def test_simulating_far_more_finds_nothing_much_cheaper() -> None:
    question = asked(rate=20.0)
    few, many = search(question, SMALL, most=8), search(question, SMALL, most=500, prune=False)
    assert few.best is not None
    assert many.best is not None
    assert few.best.usd_per_month.point <= 1.05 * many.best.usd_per_month.point


def test_cards_that_are_not_allowed_are_not_chosen() -> None:
    answer = search(asked(rate=2.0, allowed=Allowed(vendors=("AMD",))), SMALL)
    assert answer.best is not None
    assert answer.best.setup.instance.gpu.vendor == "AMD"
    assert {one.reason for one in answer.lost if one.name == "H100-SXM-80GB"} == {"made by NVIDIA; allowed are AMD"}


def test_a_region_keeps_cards_that_are_offered_there() -> None:
    # AWS's g6 (L4) is listed in us-east-1; MI325X has no row with that region
    answer = search(
        asked("Qwen/Qwen3-8B", rate=0.5, limits=Limits(ttft_s=3.0), allowed=Allowed(regions=("us-east-1",))), SMALL
    )
    assert answer.best is not None
    assert any(one.name == "MI325X-256GB" and "no offer in us-east-1" in one.reason for one in answer.lost)


def test_four_bit_weights_are_chosen_only_when_asked() -> None:
    plain = search(asked(rate=2.0, allowed=Allowed(gpus=("L40S",))), SMALL)
    judged = search(asked(rate=2.0, allowed=Allowed(gpus=("L40S",), four_bit=True)), SMALL)
    for answer in (plain, judged):
        if answer.best is not None and "int4" in answer.best.setup.instance.scheme.name:
            assert answer is judged
    assert any(one.kind == "weights" and one.name == "awq-int4" for one in plain.lost)


def test_every_other_engine_lost_for_a_reason() -> None:
    lost = {one.name: one.reason for one in search(asked(rate=10.0), SMALL).lost if one.kind == "engine"}
    assert set(lost) == {"sglang", "tensorrt-llm"}
    assert all(lost.values())


def test_a_draft_is_proposed_only_with_a_measured_acceptance() -> None:
    without = search(asked(rate=2.0), SMALL)
    assert any(one.kind == "draft" and "--acceptance-ratio" in one.reason for one in without.lost)
    told = search(asked(rate=2.0, acceptance_ratio=0.8), SMALL)
    assert told.counted.space > without.counted.space


def test_a_budget_that_nothing_meets_is_answered_with_the_nearest() -> None:
    answer = nearest(search(asked(rate=40.0, budget_usd_per_month=9000.0), SMALL), SMALL)
    assert answer.best is None
    assert "$9,000 are allowed" in answer.reason
    given_up = [one.given_up for one in answer.near]
    assert given_up[0].startswith("the budget: $")
    carried = next(one for one in answer.near if one.given_up.startswith("the load"))
    assert carried.option is not None
    assert carried.option.usd_per_month.point <= 9000.0


def test_targets_that_no_card_meets_are_answered_with_looser_ones() -> None:
    answer = nearest(search(asked(rate=1.0, limits=Limits(ttft_s=0.09, tpot_s=0.05)), SMALL), SMALL)
    assert answer.best is None
    assert "TTFT of a long request that is alone may be" in answer.reason
    assert answer.near


def test_a_model_that_fits_nowhere_says_what_is_missing() -> None:
    answer = search(asked("deepseek-ai/DeepSeek-V3", allowed=Allowed(gpus=("L4",))), SMALL)
    assert answer.best is None
    assert "GiB a card" in answer.reason


def test_real_arrivals_are_simulated_as_they_came() -> None:
    one = drawn(3000, 6.0, input_tokens=900, output_tokens=150, seed=3)
    load = arrivals_of(one)
    assert load.rate_per_s == pytest.approx(6.0, rel=0.05)
    assert load.spread == pytest.approx(0.6, abs=0.08)  # as they were drawn
    answer = search(asked(arrivals=load, max_model_len=20_000), SMALL)
    assert answer.best is not None
    assert answer.best.holds


def test_a_bursty_trace_takes_more_than_its_mean() -> None:
    random.seed(5)
    even = drawn(4000, 20.0, input_tokens=1200, output_tokens=300, seed=1)
    # the same requests, half of them in a tenth of the time
    busy = array("d", [at * 0.2 if at < even.arrived_s[2000] else even.arrived_s[2000] * 0.2 + (at - even.arrived_s[2000]) * 1.8
                       for at in even.arrived_s])  # fmt: skip
    bursts = trace(busy, even.input_tokens, even.output_tokens)

    def usd(one: Trace) -> float:
        best = search(asked(arrivals=arrivals_of(one), max_model_len=20_000), SMALL).best
        assert best is not None
        return best.usd_per_month.point

    assert usd(bursts) > usd(even)


def test_a_price_of_ones_own_scales_the_answer() -> None:
    cheap, dear = (search(asked(rate=5.0, overrides=Overrides(usd_per_gpu_hour=usd)), SMALL).best for usd in (2.0, 4.0))
    assert cheap is not None
    assert dear is not None
    assert dear.usd_per_month.point == pytest.approx(2 * cheap.usd_per_month.point)
    assert cheap.usd_per_month.low == cheap.usd_per_month.high
    assert cheap.usd_per_month.point == pytest.approx(cheap.setup.gpus * 2.0 * 730.5)


def test_an_option_can_be_written_for_its_engine() -> None:
    question = asked(rate=10.0)
    best = search(question, SMALL).best
    assert best is not None
    written = configuration(question, best.setup, question.model.name)
    assert written.cards * written.copies == best.setup.gpus
    assert written.max_model_len == best.setup.max_model_len


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rate": -1.0}, "--requests-per-s -1: is not above 0"),
        ({"tokens": (0.0, 300.0)}, "--input-tokens 0: is not above 0"),
        ({"tokens": (1e8, 300.0)}, "--input-tokens 1e+08: is not above 0 and at most 10,000,000"),
        ({"tokens": (60_000.0, 300.0)}, "is made for 40,960 tokens in all"),
        ({"limits": Limits(ttft_s=-0.1)}, "TTFT target of -0.1 s"),
        ({"objective": 1.2}, "--objective 1.2: is not a share"),
        ({"budget_usd_per_month": 0.0}, "--budget 0: is no sum above 0"),
        ({"price_kind": "cheap"}, "--price cheap: unknown"),
        ({"max_model_len": 100}, "--max-model-len 100: is outside 1,500"),
        ({"acceptance_ratio": 1.0}, "--acceptance-ratio 1: is not a share"),
    ],
)
def test_what_cannot_be_is_told_with_its_flag(change: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        asked(**change)  # type: ignore[arg-type]
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (lambda: Allowed(gpus=("H1000X",)), "--gpu H1000X: unknown"),
        (lambda: Allowed(gpus=("T-Head-PPU",)), "has no bandwidth"),
        (lambda: Allowed(gpus=("H100",), engines=("vlm",)), "--engine vlm: unknown; known are"),
        (lambda: Allowed(gpus=("H100",), schemes=("fp9",)), "fp9: unknown"),
        (lambda: Allowed(gpu_count=4, tp=(8,)), "--tp 8: there are 4 cards"),
        (lambda: Allowed(gpu_count=8, most_gpus=4), "--gpus 8 contradicts --most-gpus 4"),
    ],
)
def test_what_is_not_known_or_contradicts_is_named(allowed: object, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        search(asked(allowed=allowed()), SMALL)  # type: ignore[operator]
    assert words in str(error.value)


def test_an_empty_trace_and_an_instant_have_no_rate() -> None:
    with pytest.raises(ConfigError, match="needs at least 100"):
        arrivals_of(drawn(10, 1.0, input_tokens=10, output_tokens=10))
    with pytest.raises(ConfigError, match="at one instant"):
        arrivals_of(trace([1.0] * 200, [10] * 200, [10] * 200))


def made(usd: float, attained: float, room: float) -> Option:
    """An option with these figures and no further meaning."""
    figure = Figures(attained, 0.1, 0.2, 0.01, 0.02)
    base = search(asked(rate=1.0), SMALL).best if not _BASE else _BASE[0]
    assert base is not None
    _BASE[:] = [base]
    price = Estimate(usd, usd, usd)

    class Priced(Option):
        """An option whose price is told."""

        __slots__ = ()

        @property
        def usd_per_month(self) -> Estimate:
            return price

    return Priced(base.setup, {"slow": figure, "point": figure, "fast": figure}, holds=True, headroom_ratio=room)


_BASE: list[Option] = []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([1.0, 2.0, 3.0]), st.sampled_from([0.9, 0.95, 1.0]), st.sampled_from([1.0, 1.5])),
        max_size=9,
    )
)
def test_the_front_is_all_that_nothing_beats(points: list[tuple[float, float, float]]) -> None:
    front = {
        (one.usd_per_month.point, one.of("attained_ratio").low, one.headroom_ratio)
        for one in pareto([made(*p) for p in points])
    }
    beaten = {
        p for p in points
        for q in points
        if q != p and q[0] <= p[0] and q[1] >= p[1] and q[2] >= p[2]
    }  # fmt: skip
    assert front == set(points) - beaten


def test_arrivals_know_their_longest_request() -> None:
    # log-normal, sigma 0.6: the 0.9999 quantile is exp(0.6 x 3.719 - 0.18) = 7.78 times the mean
    assert Arrivals(1.0, 1000.0, 100.0).longest_tokens == pytest.approx(7.78 * 1100, rel=0.002)
    question = Question(asked().model, Arrivals(1.0, 100.0, 100.0, spread=0.0), Limits())
    assert question.needed_tokens == 256

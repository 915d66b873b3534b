import random
import time
from array import array
from math import ceil

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from planner.simulate.replica import Replica
from planner.simulate.run import Limits, knee, simulate
from planner.simulate.setup import Fleet, Routing, Scheduler, StepCost
from planner.simulate.trace import Trace, drawn, faster, trace

COST = StepCost(0.05, 1e-3, 1e-6, 1e-4, 1e-3)


def step_by_step(requests: Trace, cost: StepCost, rules: Scheduler) -> list[tuple[float, float]]:
    """First and last token of each request, one step at a time, cache without end: the same rules, written plainly."""
    now = 0.0
    waiting: list[int] = []
    prefilling: list[list[int]] = []
    running: list[list[int]] = []
    left = list(range(len(requests)))
    seen: dict[int, list[float]] = {}
    while left or waiting or prefilling or running:
        waiting += [i for i in left if requests.arrived_s[i] <= now]
        left = [i for i in left if requests.arrived_s[i] > now]
        while waiting and len(prefilling) + len(running) < rules.max_num_seqs:
            one = waiting.pop(0)
            prefilling.append([one, requests.input_tokens[one]])
        if not prefilling and not running:
            now = requests.arrived_s[left[0]]
            continue
        tokens, ready = 0, []
        budget = rules.max_num_batched_tokens - (len(running) if rules.mixed else 0)
        for item in prefilling:
            taken = min(item[1], budget - tokens)
            item[1] -= taken
            tokens += taken
            ready += [item[0]] if item[1] == 0 and taken else []
        decoding = running if rules.mixed or not prefilling else []
        context = sum(c for _, _, c in decoding)
        now += cost.fixed_s + cost.running_s * len(decoding) + cost.context_s * context
        now += cost.prompt_token_s * tokens + cost.prompt_s * len(ready)
        for item in decoding:
            item[1] -= 1
            item[2] += 1
            if item[1] == 0:
                seen[item[0]].append(now)
        running = [item for item in running if item[1] > 0]
        prefilling = [item for item in prefilling if item[1] > 0]
        for one in ready:
            seen[one] = [now]
            more = requests.output_tokens[one] - 1
            if more:
                running.append([one, more, requests.input_tokens[one]])
            else:
                seen[one].append(now)
    return [(seen[i][0], seen[i][1]) for i in range(len(requests))]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.integers(1, 9))
def test_skipping_ahead_changes_nothing(seed: int, mixed: bool, seats: int) -> None:
    dice = random.Random(seed)
    requests = trace(
        [dice.uniform(0, 10) for _ in range(25)], [dice.randint(1, 300) for _ in range(25)],
        [dice.randint(1, 60) for _ in range(25)],
    )  # fmt: skip
    rules = Scheduler(seats, 128, 1_000_000, 1, mixed=mixed)
    found = simulate(requests, Fleet(COST, rules)).requests
    for plain, row in zip(step_by_step(requests, COST, rules), found.iter_rows(named=True), strict=True):
        assert row["arrived_s"] + row["ttft_s"] == pytest.approx(plain[0], abs=1e-6)
        assert row["arrived_s"] + row["e2e_s"] == pytest.approx(plain[1], abs=1e-6)


def test_one_server_waits_as_queueing_theory_says() -> None:
    # M/D/1, Pollaczek-Khinchine: mean wait = rho x service / (2 (1 - rho)); at rho 0.6 and 0.1 s: 0.075 s
    requests = drawn(60_000, 6.0, input_tokens=10, output_tokens=1, spread=0.0, seed=3)
    found = simulate(requests, Fleet(StepCost(0.1), Scheduler(1, 1000, 10_000)))
    assert found.requests["ttft_s"].mean() == pytest.approx(0.1 + 0.075, rel=0.05)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["round_robin", "least_loaded", "prefix_aware"]),
    st.integers(0, 2),
    st.booleans(),
)
def test_every_request_ends_and_the_cache_is_empty_again(seed: int, routing: Routing, apart: int, mixed: bool) -> None:
    dice = random.Random(seed)
    n = 40
    requests = trace(
        [dice.uniform(0, 20) for _ in range(n)], [dice.randint(20, 300) for _ in range(n)], [dice.randint(1, 120) for _ in range(n)],
        prefix=[dice.choice([-1, 0, 1, 2]) for _ in range(n)], prefix_tokens=[15] * n, priority=[dice.choice([0, 0, 1]) for _ in range(n)],
    )  # fmt: skip
    rules = Scheduler(dice.choice([2, 8]), 128, dice.choice([450, 2000]), 16, mixed=mixed)
    fleet = Fleet(COST, rules, dice.choice([1, 3]), routing, apart)
    found = simulate(requests, fleet)
    assert found.summary.ended == n
    assert found.summary.kv_peak_ratio <= 1.1
    assert found.requests.filter(pl.col("e2e_s") < pl.col("ttft_s") - 1e-9).is_empty()
    assert simulate(requests, fleet).requests.equals(found.requests)


def test_nothing_is_left_in_the_cache_of_an_idle_engine() -> None:
    dice = random.Random(1)
    requests = trace([0.0] * 30, [dice.randint(20, 300) for _ in range(30)], [dice.randint(1, 120) for _ in range(30)])
    times = [float("nan")] * 30
    one = Replica(requests, COST, Scheduler(8, 128, 600, 16), array("d", times), array("d", times))
    for request in range(30):
        one.push(request, 0.0)
    one.advance(float("inf"))
    assert one.preempted > 0
    assert one.used == pytest.approx(0, abs=1e-6)
    assert one.context == pytest.approx(0, abs=1e-6)


def test_a_full_cache_preempts_and_slows() -> None:
    requests = trace([0.0] * 8, [100] * 8, [200] * 8)
    roomy = simulate(requests, Fleet(COST, Scheduler(8, 2048, 100_000)))
    tight = simulate(requests, Fleet(COST, Scheduler(8, 2048, 1200)))
    assert (roomy.summary.preemptions_count, tight.summary.preemptions_count > 0) == (0, True)
    assert tight.summary.span_s > roomy.summary.span_s


def test_a_shared_prefix_is_computed_once() -> None:
    requests = trace([0.0, 10.0, 20.0], [1000] * 3, [5] * 3, prefix=[7] * 3, prefix_tokens=[900] * 3)
    cost = StepCost(0.01, prompt_token_s=1e-3)
    found = simulate(requests, Fleet(cost, Scheduler()))
    assert found.requests["ttft_s"].to_list() == pytest.approx([1.01, 0.11, 0.11])
    assert found.summary.cached_ratio == pytest.approx(1800 / 3000)
    cold = simulate(requests, Fleet(cost, Scheduler(prefix_cache=False)))
    assert cold.summary.cached_ratio == 0


def test_a_router_that_knows_prefixes_finds_more_of_them_cached() -> None:
    dice = random.Random(5)
    n = 600
    requests = trace(
        [i * 0.05 for i in range(n)],
        [1000] * n,
        [20] * n,
        prefix=[dice.randrange(60) for _ in range(n)],
        prefix_tokens=[900] * n,
    )
    cost, rules = StepCost(0.01, prompt_token_s=1e-4), Scheduler(kv_tokens=60_000)
    by = {r: simulate(requests, Fleet(cost, rules, 4, r)).summary for r in ("round_robin", "prefix_aware")}
    assert by["prefix_aware"].cached_ratio > by["round_robin"].cached_ratio + 0.1


def test_the_emptiest_replica_serves_uneven_work_sooner_than_turns_do() -> None:
    dice = random.Random(2)
    n = 400
    requests = trace([i * 0.4 for i in range(n)], [10] * n, [dice.choice([5, 5, 5, 300]) for _ in range(n)])
    rules = Scheduler(max_num_seqs=4)
    waits = {
        r: sorted(simulate(requests, Fleet(COST, rules, 4, r)).requests["ttft_s"].to_list())
        for r in ("round_robin", "least_loaded")
    }
    assert waits["least_loaded"][360] <= waits["round_robin"][360]


def test_an_urgent_request_goes_first() -> None:
    requests = trace([0.0, 0.01, 0.02], [10] * 3, [50] * 3, priority=[0, 1, 0])
    found = simulate(requests, Fleet(COST, Scheduler(max_num_seqs=1))).requests["ttft_s"]
    first = found.to_list()
    assert first[2] < first[1]


def test_a_draft_gives_the_tokens_that_leviathan_expects() -> None:
    rules = Scheduler(draft_tokens=3, acceptance_ratio=0.8)
    assert rules.tokens_per_step == pytest.approx((1 - 0.8**4) / (1 - 0.8))  # Leviathan et al. 2023, equation 1: 2.952
    requests = trace([0.0], [10], [296])
    plain = simulate(requests, Fleet(StepCost(0.1), Scheduler()))
    drafted = simulate(requests, Fleet(StepCost(0.1), rules))
    assert plain.requests["e2e_s"][0] == pytest.approx(29.6)
    assert drafted.requests["e2e_s"][0] == pytest.approx(0.1 * (1 + ceil(295 / 2.952)))


def test_prompts_on_their_own_workers_do_not_disturb_decoding() -> None:
    requests = trace([i * 0.42 for i in range(40)], [2000] * 40, [50] * 40)
    cost, rules = StepCost(0.01, prompt_token_s=2e-4), Scheduler(max_num_batched_tokens=2048)
    mixed = simulate(requests, Fleet(cost, rules, 2))
    apart = simulate(requests, Fleet(cost, rules, 1, prefill_replicas=1, transfer_s=0.02))
    assert max(apart.requests["tpot_s"].to_list()) < max(mixed.requests["tpot_s"].to_list())


def test_clients_that_went_are_counted_and_not_served() -> None:
    requests = trace([0.0] * 10, [10] * 10, [100] * 10, patience_s=6.0)
    found = simulate(requests, Fleet(StepCost(0.05), Scheduler(max_num_seqs=1)), Limits(ttft_s=1e9))
    assert found.summary.lost_count == 8  # one each 5 s; the third begins at 10 s
    assert found.summary.attained_ratio == pytest.approx(0.2)


def test_no_requests_are_neither_good_nor_bad() -> None:
    found = simulate(trace([], [], []), Fleet(COST, Scheduler()))
    assert found.summary.attained_ratio is None
    assert found.requests.is_empty()


def test_the_knee_is_where_attainment_is_lost() -> None:
    requests = drawn(2000, 5.0, input_tokens=200, output_tokens=40, seed=4)
    fleet, limits = Fleet(StepCost(0.01, 5e-4, 0.0, 2e-5), Scheduler(max_num_seqs=32)), Limits(ttft_s=0.5, tpot_s=0.05)
    found = knee(requests, fleet, limits)
    assert found is not None
    assert found.summary.attained_ratio is not None
    assert found.summary.attained_ratio >= 0.9
    beyond = simulate(faster(requests, 1.25 * found.rate_per_s / 5.0), fleet, limits).summary.attained_ratio
    assert beyond is not None
    assert beyond < 0.9


def test_a_million_requests_take_less_than_two_minutes() -> None:
    requests = drawn(30_000, 25, input_tokens=800, output_tokens=200)
    fleet = Fleet(StepCost(0.008, 5e-5, 1e-8, 2e-5), Scheduler(256, 8192, 600_000))
    start = time.process_time()
    simulate(requests, fleet, Limits(1.0, 0.05))
    assert (time.process_time() - start) / len(requests) < 120 / 1_000_000


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0.0], [5, 6], [1]), "input_tokens: 2 values for 1 requests"),
        (([0.0], [0], [1]), "input_tokens: 0 at request 0: must be at least 1"),
        (([float("inf")], [1], [1]), "holds a time that is not finite"),
    ],
)
def test_a_trace_that_cannot_be_is_refused(columns: tuple[list[float], list[int], list[int]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trace(*columns)


def test_a_request_larger_than_the_cache_is_refused() -> None:
    with pytest.raises(ConfigError, match="the longest request has 1,100 tokens and never fits"):
        simulate(trace([0.0], [1000], [100]), Fleet(COST, Scheduler(kv_tokens=1000)))

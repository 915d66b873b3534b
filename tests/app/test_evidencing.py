"""Evidence from a real engine's recording: with its traces, and from its metrics alone."""

from dataclasses import replace

import polars as pl
import pytest

from goodwatch.app.evidencing import Evidencing, Gathered
from goodwatch.app.view import TargetView
from goodwatch.core.errors import ConfigError, NoDataError
from goodwatch.core.model import Deployment
from tests.support.request_views import NOW_S, RequestWorld, fact, recorded_world

#: as the recorded engine was started: --max-num-seqs 16, 256 blocks of 32 tokens
FLAGS = "--max-num-seqs 16 --max-num-batched-tokens 2048"
TOLD = Deployment(
    NOW_S - 900, "chat-0", "chat", "vllm", "0.32.0", "tiny", {"block_size": "32", "num_gpu_blocks": "256"}
)


async def gathered(world: RequestWorld, *, told: Deployment | None = TOLD, window_s: float = 900.0) -> Gathered:
    await world.ready()
    view = TargetView(
        "chat-0", "http://x", "chat", True, NOW_S, 0.01, "", "vllm", "0.32.0", ("tiny",), None, None, told
    )
    world.watch.shown["chat"] = replace(world.watch.shown["chat"], targets=(view,))
    evidencing = Evidencing(world.reads, world.watch, lambda: {"chat-0": FLAGS})
    return await evidencing.gather("chat", NOW_S - window_s, NOW_S)


async def test_traces_give_the_traffic_and_the_step() -> None:
    found = (await gathered(recorded_world())).evidence
    scheduler = found.fleet.scheduler
    assert (scheduler.max_num_seqs, scheduler.kv_tokens, scheduler.block_tokens) == (16, 8192, 32)
    assert len(found.trace) == found.seen.requests > 100
    assert found.seen.running_peak is not None
    assert found.seen.running_peak <= 16
    # its page: 2.5 ms a token alone, 8 ms with sixteen
    step_s = found.fleet.cost.fixed_s + 16 * found.fleet.cost.running_s
    assert 0.003 < step_s < 0.03
    assert found.usd_per_gpu_hour is not None
    assert (found.usd_per_gpu_hour.point, found.gpus_per_replica) == (2.5, 2)


async def test_metrics_alone_give_drawn_traffic_a_wider_doubt_and_say_so() -> None:
    told = await gathered(recorded_world())
    world = recorded_world()
    bare = RequestWorld(minutes=world.watch.store.minutes(0.0, NOW_S + 60))
    found = (await gathered(bare)).evidence
    assert any("arrivals are drawn" in one for one in found.missing)
    assert found.sigma > max(0.29, told.evidence.sigma)
    # the engine's own counters saw the same requests as its traces
    assert found.seen.requests == pytest.approx(told.evidence.seen.requests, rel=0.2)


async def test_without_traffic_or_deployment_the_reason_is_said() -> None:
    with pytest.raises(NoDataError, match="no request ended in the window"):
        await gathered(RequestWorld())
    with pytest.raises(ConfigError, match="no target of the service tells what it runs"):
        await gathered(recorded_world(), told=None)


async def test_traces_without_a_latency_say_that_and_not_that_nothing_ended() -> None:
    silent = [fact(n, ended_at=NOW_S - 800 + n / 2, engine_ttft_s=None, engine_tpot_s=None) for n in range(1, 1000)]
    with pytest.raises(NoDataError, match="fewer than 30 of them succeeded and tell both lengths and a TTFT"):
        await gathered(RequestWorld(silent))


async def test_a_request_that_stands_for_many_counts_as_many_in_a_p99() -> None:
    # 950 of 0.2 s that stand for ten each, 49 slow ones that were all kept: 49 of 9549 are no hundredth
    rows = [fact(n, ended_at=NOW_S - 800 + n / 2, weight=10.0) for n in range(1, 951)]
    rows += [
        fact(n, ended_at=NOW_S - 800 + n / 2, weight=1.0, engine_ttft_s=5.0, engine_e2e_s=6.0) for n in range(951, 1000)
    ]
    found = (await gathered(RequestWorld(rows))).evidence
    assert found.seen.ttft_p99_s == pytest.approx(0.2)


async def test_targets_on_different_cards_are_taken_for_none_of_them() -> None:
    world = await recorded_world().ready()
    views = tuple(
        TargetView(f"chat-{n}", "http://x", "chat", True, NOW_S, 0.01, "", "vllm", "0.32.0", ("tiny",), None, None, TOLD, {"gpu": gpu})
        for n, gpu in enumerate(("A100-80GB", "H100-80GB"))
    )  # fmt: skip
    world.watch.shown["chat"] = replace(world.watch.shown["chat"], targets=views)
    found = await Evidencing(world.reads, world.watch, lambda: {"chat-0": FLAGS}).gather("chat", NOW_S - 900, NOW_S)
    assert found.evidence.vram is None
    assert any("A100-80GB and H100-80GB" in said for said in found.evidence.missing)


async def test_of_more_requests_than_can_be_read_the_newest_are_taken() -> None:
    world = await RequestWorld([fact(n, ended_at=NOW_S - 1000 + n) for n in range(1, 1000)]).ready()
    evidencing = Evidencing(world.reads, world.watch, most_read=100)
    since_s = evidencing.readable_since("chat", NOW_S - 1000, NOW_S)
    # one a second: a hundred are the last hundred seconds, to a 4096th of the thousand
    assert NOW_S - 102 <= since_s <= NOW_S - 98
    assert NOW_S - 902 <= evidencing.readable_until("chat", NOW_S - 1000, NOW_S) <= NOW_S - 898


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("tokens", "input_tokens_total and output_tokens_total: lengths are not known"),
        ("ttft|tpot", "no minute has running requests and a TPOT"),
        ("requests_running", "no minute has running requests and a TPOT"),
    ],
)
async def test_a_series_that_is_missing_is_named(missing: str, reason: str) -> None:
    minutes = recorded_world().watch.store.minutes(0.0, NOW_S + 60)
    bare = RequestWorld(minutes=minutes.filter(~pl.col("signal").str.contains(missing)))
    with pytest.raises(NoDataError, match=reason):
        await gathered(bare)

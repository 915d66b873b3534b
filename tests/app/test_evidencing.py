"""Evidence from a real engine's recording: with its traces, and from its metrics alone."""

from dataclasses import replace

import pytest

from goodwatch.app.evidencing import Evidencing, Gathered
from goodwatch.app.view import TargetView
from goodwatch.core.errors import ConfigError, NoDataError
from goodwatch.core.model import Deployment
from tests.support.request_views import NOW_S, RequestWorld, recorded_world

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

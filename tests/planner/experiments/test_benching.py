"""The driver against a real server on loopback; AIPerf's command line and records without it."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from goodwatch.app.bench_client import Job, drive
from goodwatch.app.benching import (
    AIPerf,
    Endpoint,
    OwnClient,
    aiperf_command,
    aiperf_records,
    experiment_of,
    level_rows,
    sweep,
)
from goodwatch.core.errors import ConfigError, TransientError
from planner.experiments.sweep import Plan
from planner.experiments.values import from_body, to_body
from tests.planner.experiments.chat_server import ChatServer, serving

TOKENS = 8


async def test_a_request_is_timed_from_its_sending_to_its_last_token() -> None:
    async with serving(ChatServer(base_s=0.02, per_request_s=0.0)) as server:
        sent, client = await drive(Job(server.url, "m", 1, 3, output_tokens=TOKENS))
    assert [one.error for one in sent] == ["", "", ""]
    for one in sent:
        assert one.output_tokens == TOKENS
        assert one.chunks == TOKENS
        assert one.ttft_s is not None
        assert one.ttft_s >= 0.02  # the empty first event names a role and is no token
        assert one.tpot_s is not None
        assert one.tpot_s >= 0.018
        assert one.e2e_s >= 0.15
    assert client.cpu_ratio is not None
    assert client.lag_s is not None


async def test_a_closed_loop_keeps_so_many_requests_running() -> None:
    async with serving(ChatServer()) as server:
        await drive(Job(server.url, "m", 4, 20, output_tokens=TOKENS))
    assert server.most == 4
    assert len({json.dumps(body["messages"]) for body in server.bodies}) == 20  # no two prompts alike: no cache hit


async def test_an_open_loop_does_not_wait_for_answers() -> None:
    async with serving(ChatServer(base_s=0.05)) as server:
        sent, _ = await drive(Job(server.url, "m", 200.0, 20, "constant", output_tokens=TOKENS))
    assert server.most > 10
    assert all(one.delay_s >= 0 for one in sent)


async def test_failures_are_in_the_result_and_not_good() -> None:
    async with serving(ChatServer(refuse_every=2)) as server:
        sent, _ = await drive(Job(server.url, "m", 1, 4, output_tokens=2))
    assert sorted(one.error for one in sent) == ["", "", "HTTP 503", "HTTP 503"]


async def test_a_server_that_is_not_there_is_an_error_of_each_request(free_port: int) -> None:
    sent, _ = await drive(Job(f"http://127.0.0.1:{free_port}", "m", 1, 2, output_tokens=2))
    assert [one.error for one in sent] == ["ClientConnectorError"] * 2


async def test_an_answer_that_does_not_end_in_time_failed() -> None:
    async with serving(ChatServer(base_s=0.2)) as server:
        sent, _ = await drive(Job(server.url, "m", 1, 1, output_tokens=50, timeout_s=0.3))
    assert sent[0].error == "no end within 0.3 s"


async def test_tokens_that_the_server_does_not_count_are_unknown() -> None:
    async with serving(ChatServer(usage=False)) as server:
        sent, _ = await drive(Job(server.url, "m", 1, 1, output_tokens=4))
    assert sent[0].output_tokens is None
    assert sent[0].tpot_s is None


async def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "k1")
    async with serving(ChatServer()) as server:
        await drive(Job(server.url, "m", 1, 1, output_tokens=1, key_variable="MY_KEY"))
    assert server.keys == {"Bearer k1"}


@pytest.mark.integration
async def test_a_sweep_in_several_processes_is_kept_with_its_knee() -> None:
    plan = Plan((1, 2, 4), repeats=1, processes=2, output_tokens=TOKENS, input_tokens=4, requests=12)
    async with serving(ChatServer()) as server:
        endpoint = Endpoint(server.url, "m")
        said: list[str] = []
        measured = await sweep(OwnClient(), endpoint, plan, said.append)
    assert [one.cold for one in measured] == [True, False, False, False]
    assert all(len(one.ok) == 12 for one in measured[1:])
    assert [len(one.clients) for one in measured[1:]] == [1, 2, 2]
    assert len(said) == 3
    entry, _ = experiment_of("s1", endpoint, plan, measured, driver="goodwatch", at_s=1.0, gpus=2.0)
    assert from_body(json.loads(json.dumps(to_body(entry)))) == entry
    assert [run.warm for run in entry.baseline.runs] == [False, True, True, True]
    rows = level_rows(measured)
    assert [row["level"] for row in rows] == [1, 2, 4]
    assert "p99" not in rows[0]["e2e_s"]  # type: ignore[operator]  # of twelve


@pytest.mark.integration
async def test_a_sweep_of_a_server_that_answers_nothing_says_why(free_port: int) -> None:
    plan = Plan((1.0,), repeats=1, processes=1, requests=2)
    with pytest.raises(TransientError, match="not one request of the warm-up was answered: ClientConnectorError"):
        await sweep(OwnClient(), Endpoint(f"http://127.0.0.1:{free_port}", "m"), plan)


def record(phase: str = "profiling", error: object = None, ttft: float = 45.5) -> str:
    return json.dumps({
        "metadata": {"request_start_ns": 1_000_000_000_000, "request_end_ns": 1_001_000_000_000, "benchmark_phase": phase},
        "metrics": {"time_to_first_token": {"value": ttft, "unit": "ms"}, "request_latency": {"value": 900.0, "unit": "ms"},
                    "output_sequence_length": {"value": 100, "unit": "tokens"}},
        "error": error,
    })  # fmt: skip


def test_aiperfs_records_are_requests_without_its_warm_up() -> None:
    found = aiperf_records("\n".join((record("warmup"), record(), record(error={"type": "Timeout"}))))
    assert [one.error for one in found] == ["", "Timeout"]
    assert (found[0].ttft_s, found[0].e2e_s, found[0].output_tokens) == pytest.approx((0.0455, 0.9, 100))


def test_aiperf_is_told_the_arrival_process(tmp_path: Path) -> None:
    endpoint = Endpoint("http://h:8000", "m")
    closed = aiperf_command(endpoint, Plan((4,)), 4, 100, seed=1, out=tmp_path)
    assert closed[closed.index("--concurrency") + 1] == "4"
    poisson = aiperf_command(endpoint, Plan((4,), "poisson"), 2.5, 100, seed=1, out=tmp_path)
    assert poisson[poisson.index("--request-rate") + 1] == "2.5"
    assert poisson[poisson.index("--arrival-pattern") + 1] == "poisson"
    assert "--concurrency" not in poisson


@pytest.mark.integration
async def test_aiperf_runs_as_several_processes_and_their_requests_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "aiperf"
    script = (
        f"#!{sys.executable}\nimport sys, pathlib\n"
        "out = pathlib.Path(sys.argv[sys.argv.index('--output-artifact-dir') + 1]); out.mkdir(parents=True)\n"
        "n = int(sys.argv[sys.argv.index('--request-count') + 1])\n"
        f"(out / 'profile_export.jsonl').write_text({record()!r} * 0 + '\\n'.join([{record()!r}] * n))\n"
    )
    fake.write_text(script)
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    one = await AIPerf().run(Endpoint("http://h", "m"), Plan((4,), processes=2), 4, 0, 101)
    assert len(one.requests) == 101
    assert len(one.clients) == 2


async def test_aiperf_that_is_not_there_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="pip install aiperf"):
        await AIPerf().run(Endpoint("http://h", "m"), Plan((4,)), 4, 0, 10)

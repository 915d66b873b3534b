"""Every query of every board is asked of a real Prometheus, and a dozen answers are held against the replay."""

import json
import math
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dashboards.build import boards
from dashboards.values import Board, Panel, Query
from goodwatch.core.model import Number
from tests.dashboards.stage import JOBS, OPTIONS, end_of, everything, openmetrics, views
from tests.support.prometheus_server import (
    fill_prometheus,
    fill_victoria,
    needs_prometheus,
    needs_victoria,
    prometheus_server,
    victoria_server,
)
from tests.support.views import AT_S, LIMITS, RecordedViews

pytestmark = [pytest.mark.integration, needs_prometheus]

BOARDS: Final = {board.uid: board for board in boards(OPTIONS)}
VARIABLES: Final = {
    "$__rate_interval": "1m", "$service": ".+", "$model": "^$", "$target": ".+", "$slo": ".+", "$alert": ".*", "$tenant": ".+", "$state": ".+", "$strategy": ".+", "$engine": ".*", "$__range": "10m", "$job": ".+", "$instance": ".+",
}  # fmt: skip
#: what has no data on the recordings, one line a query with the reason: written with GOLDEN=update
EMPTY: Final = Path(__file__).parent / "data" / "empty.txt"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that holds the stage; its URL."""
    folder = tmp_path_factory.mktemp("stage")
    fill_prometheus(folder, openmetrics(everything()))
    with prometheus_server(folder) as server:
        yield server.url


def asked(url: str, query: Query, board: Board, *, at_s: float = AT_S, **more: str) -> list[dict[str, Any]]:
    """What Prometheus answers, with every variable at All."""
    expr = query.expr
    values = {**VARIABLES, **({} if board.uid in OWN else {"$model": ".*", "$job": jobs_of(board)}), **more}
    for name, value in sorted(values.items(), reverse=True):
        expr = expr.replace(name, value)
    now = query.form in ("table", "now")
    when = {"time": at_s} if now else {"start": at_s - 300, "end": at_s, "step": 15}
    body = urllib.parse.urlencode({"query": expr, **when}).encode()
    with urllib.request.urlopen(f"{url}/api/v1/query{'' if now else '_range'}", data=body, timeout=30) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())["data"]["result"]
    return found


OWN: Final = frozenset(uid for uid, board in BOARDS.items() if not {"engine", "gpu"} & set(board.tags))


def numbers(result: list[dict[str, Any]]) -> list[float]:
    pairs = [pair for one in result for pair in (one.get("values") or [one["value"]])]
    return [float(value) for _, value in pairs if not math.isnan(float(value))]


def jobs_of(board: Board) -> str:
    """The jobs that the board's engine was recorded under, or its made-up one."""
    engine = board.uid.removeprefix("goodwatch-engine-").removeprefix("goodwatch-gpu-")
    return JOBS.get(engine, f"made-up-{engine}")


def test_every_query_of_every_board_has_data_or_a_reason_why_not(prometheus: str) -> None:
    found = []
    for board in BOARDS.values():
        for shown in board.panels:
            for query in shown.queries:
                if not numbers(asked(prometheus, query, board)):
                    found.append(f"{board.uid} | {shown.title} | {query.legend} | {shown.why_empty or 'NO REASON'}")
    if os.environ.get("GOLDEN") == "update":
        EMPTY.write_text("\n".join([*found, ""]))
    assert [line for line in found if line.endswith("NO REASON")] == []
    assert found == EMPTY.read_text().splitlines()


def panel(uid: str, title: str) -> Panel:
    return next(panel for panel in BOARDS[uid].panels if panel.title == title)


def last(result: list[dict[str, Any]]) -> float:
    """The one value of the last moment."""
    assert len(result) == 1
    pair = result[0]["value"] if "value" in result[0] else result[0]["values"][-1]
    return float(pair[1])


@pytest.mark.parametrize(
    ("title", "legend", "name", "end"),
    [
        ("Attainment", "{{service}} at least", "attainment_ratio", "low"),
        ("Attainment", "{{service}} at most", "attainment_ratio", "high"),
        ("Goodput", "{{service}} at least", "goodput_per_s", "low"),
        ("Time to first token", "{{service}} p99 at least", "ttft_p99_seconds", "low"),
        ("Time to first token", "{{service}} p99 at most", "ttft_p99_seconds", "high"),
        ("Time per output token", "{{service}} p99 at least", "tpot_p99_seconds", "low"),
        ("End to end", "{{service}} p50 at most", "e2e_p50_seconds", "high"),
        ("Requests", "{{service}} ended", "request_rate_per_s", "value"),
        ("Tokens", "{{service}} output", "output_tokens_per_s", "value"),
        ("KV cache in use", "{{service}} fullest", "kv_cache_used_max_ratio", "value"),
        ("Prefix cache hits", "{{service}}", "prefix_hit_ratio", "value"),
        ("Preemptions", "{{service}}", "preemptions_per_s", "value"),
        ("Cost of a million tokens", "{{service}} output tokens", "usd_per_million_output_tokens", "value"),
    ],
)  # fmt: skip
def test_the_service_board_shows_what_the_replay_gives(
    title: str, legend: str, name: str, end: str, prometheus: str
) -> None:
    number = views("chat", AT_S).services()[0].derived.numbers[name]
    shown = next(query for query in panel("goodwatch-service", title).queries if query.legend == legend)
    got = last(asked(prometheus, shown, BOARDS["goodwatch-service"], **{"$service": "chat"}))
    expected = number.value if end == "value" or number.bounds is None else getattr(number.bounds, end)
    assert expected is not None
    assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("title", "name", "allowed"),
    [
        # rate() stretches what it sees to the edges of the range; the replay counts from scrape to scrape.
        ("Requests finished a second", "request_rate_per_s", 0.1),
        ("Output tokens a second now", "output_tokens_per_s", 0.1),
        ("Input tokens a second", "input_tokens_per_s", 0.1),
        ("Prefix cache hits", "prefix_hit_ratio", 0.05),
        ("Time to first token, mean by instance", "ttft_mean_seconds", 0.05),
        ("End to end, mean by instance", "e2e_mean_seconds", 0.05),
        ("Preemptions a second", "preemptions_per_s", 0.15),
    ],
)  # fmt: skip
def test_the_engine_s_own_board_agrees_with_the_replay(title: str, name: str, allowed: float, prometheus: str) -> None:
    expected = views("chat", AT_S).services()[0].derived.numbers[name].value
    (query,) = panel("goodwatch-engine-vllm", title).queries
    got = last(asked(prometheus, query, BOARDS["goodwatch-engine-vllm"], **{"$job": "vllm", "$__rate_interval": "2m"}))
    assert expected is not None
    assert got == pytest.approx(expected, rel=allowed)


def test_without_a_service_picked_out_several_models_are_never_added_up(prometheus: str) -> None:
    """A whole service, its model and its target are views of the same requests: All shows the service once."""
    query = panel("goodwatch-service", "Requests").queries[0]
    result = asked(prometheus, query, BOARDS["goodwatch-service"], **{"$service": "chat|batch"})
    assert sorted(one["metric"]["service"] for one in result) == ["batch", "chat"]


def test_parts_of_a_whole_are_added_before_the_largest_device_is_taken(prometheus: str) -> None:
    """Made up: used, free and reserved memory are 0.5 MiB each, so a third of the memory is in use."""
    board = BOARDS["goodwatch-gpu-dcgm"]
    (query,) = panel("goodwatch-gpu-dcgm", "Memory in use, share").queries
    assert last(asked(prometheus, query, board)) == pytest.approx(1 / 3)


def replayed(name: str, window_s: float) -> dict[str, Number]:
    """What ``goodwatch replay`` derives of a recording at the same moment."""
    end_s = end_of(name)
    view = RecordedViews(name, end_s=end_s, window_s=window_s, at_s=AT_S, limits=LIMITS, objective=0.99)
    return dict(view.services()[0].derived.numbers)


@pytest.mark.parametrize(
    ("engine", "job", "name", "title", "number", "window_s", "allowed"),
    [
        # Means and shares are quotients, in which the stretching of rate() cancels out; rates are held to what 45 s show.
        ("vllm", "vllm-old", "vllm-0.8.5", "Time to first token, mean by instance", "ttft_mean_seconds", 120, 0.005),
        ("vllm", "vllm-old", "vllm-0.8.5", "Time between tokens, mean by instance", "itl_mean_seconds", 120, 0.005),
        ("vllm", "vllm-old", "vllm-0.8.5", "End to end, mean by instance", "e2e_mean_seconds", 120, 0.005),
        ("vllm", "vllm-old", "vllm-0.8.5", "Queue time, mean by instance", "queue_mean_seconds", 120, 0.005),
        ("vllm", "vllm-old", "vllm-0.8.5", "Requests finished a second", "request_rate_per_s", 45, 0.1),
        ("vllm", "vllm-old", "vllm-0.8.5", "Output tokens a second now", "output_tokens_per_s", 45, 0.1),
        ("sglang", "sglang", "sglang-0.5.23", "Time to first token, mean by instance", "ttft_mean_seconds", 120, 0.005),
        ("sglang", "sglang", "sglang-0.5.23", "Time between tokens, mean by instance", "itl_mean_seconds", 120, 0.005),
        ("sglang", "sglang", "sglang-0.5.23", "End to end, mean by instance", "e2e_mean_seconds", 120, 0.005),
        ("sglang", "sglang", "sglang-0.5.23", "Prefix cache hits", "prefix_hit_ratio", 120, 0.005),
        ("sglang", "sglang", "sglang-0.5.23", "Requests finished a second", "request_rate_per_s", 45, 0.1),
        ("llamacpp", "llamacpp", "llama-cpp-11434", "Prefix cache hits", "prefix_hit_ratio", 120, 0.005),
        ("llamacpp", "llamacpp", "llama-cpp-11434", "Input tokens a second", "input_tokens_per_s", 45, 0.1),
        ("llamacpp", "llamacpp", "llama-cpp-11434", "Output tokens a second now", "output_tokens_per_s", 45, 0.15),
    ],
)  # fmt: skip
def test_boards_of_other_engines_and_of_an_old_version_agree_with_the_replay_too(
    *, engine: str, job: str, name: str, title: str, number: str, window_s: float, allowed: float, prometheus: str
) -> None:
    expected = replayed(name, window_s)[number].value
    (query,) = panel(f"goodwatch-engine-{engine}", title).queries
    board, picked = BOARDS[f"goodwatch-engine-{engine}"], {"$job": job, "$__rate_interval": f"{window_s}s"}
    assert expected is not None
    assert last(asked(prometheus, query, board, **picked)) == pytest.approx(expected, rel=allowed)


def test_shares_of_scores_and_tenants_are_those_of_the_counters(prometheus: str) -> None:
    """The stage gives every third request a score and two of three tenants' turns; the parts add up to the whole."""
    (passed,) = panel("goodwatch-service", "Scores that pass").queries
    shares = numbers(asked(prometheus, passed, BOARDS["goodwatch-service"], **{"$__rate_interval": "5m"}))
    assert shares
    assert all(0 <= share <= 1 for share in shares)
    (by_tenant,) = panel("goodwatch-service", "Requests by tenant").queries
    (by_verdict,) = panel("goodwatch-service", "Requests by verdict").queries
    tenants, verdicts = (
        sum(float(one["values"][-1][1]) for one in asked(prometheus, query, BOARDS["goodwatch-service"]))
        for query in (by_tenant, by_verdict)
    )
    assert tenants == pytest.approx(verdicts)


def test_where_no_rule_watches_an_slo_goodwatch_s_own_number_is_shown(prometheus: str) -> None:
    """Made up: a calendar month's budget, which only goodwatch itself has."""
    for title in ("Error budget left", "Burn rate, 1 h"):
        (query,) = panel("goodwatch-budget", title).queries
        shown = asked(prometheus, query, BOARDS["goodwatch-budget"])
        assert sorted(one["metric"]["slo"] for one in shown) == ["batch", "batch-month", "chat"]


def test_a_forecast_is_inside_only_when_the_measured_value_is_between_its_ends(prometheus: str) -> None:
    """Made up: what was measured of the verified change lay in its interval, of the refuted one it did not."""
    inside = panel("goodwatch-planner", "Time to first token, P99").queries[-1]
    shown = asked(prometheus, inside, BOARDS["goodwatch-planner"])
    assert {one["metric"]["recommendation"]: float(one["value"][1]) for one in shown} == {
        "chat-tp2-to-tp1": 1.0, "chat-speculative": 0.0,
    }  # fmt: skip


@needs_victoria
def test_a_victoriametrics_has_data_for_just_the_same_queries(prometheus: str, tmp_path: Path) -> None:
    with victoria_server(tmp_path) as server:
        fill_victoria(server, openmetrics(everything()))
        found = [
            f"{board.uid} | {shown.title} | {query.legend}"
            for board in BOARDS.values() for shown in board.panels for query in shown.queries
            if bool(numbers(asked(server.url, query, board))) != bool(numbers(asked(prometheus, query, board)))
        ]  # fmt: skip
    assert found == []

"""Asking a Prometheus over HTTP: what is sent, what is understood, and every way in which it can fail."""

import asyncio
import base64
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from collector._pull_client import Client
from collector._pull_options import Answer, PullError, PullOptions, PullRefusedError
from goodwatch.core.clock import SystemClock
from goodwatch.core.errors import ConfigError, TransientError
from tests.support.engine_server import EngineServer, dead_port, engine_server, make_certificates
from tests.support.prometheus_answers import HandClock, PreparedAsker, matrix, page, series

pytestmark = pytest.mark.integration

QUERY = 'up{job="vllm"}[30s]'
AT_S = 1_700_000_000.25
Reply = Callable[[web.Request], web.StreamResponse]


@asynccontextmanager
async def asked(*replies: Reply, **options: Any) -> AsyncIterator[tuple[Client, EngineServer, list[float]]]:
    """A client of a server that gives these replies in turn, the last one for good; and what it slept."""
    left, slept = list(replies), []

    async def query(request: web.Request) -> web.StreamResponse:
        return (left.pop(0) if len(left) > 1 else left[0])(request)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with engine_server({"/api/v1/query": query}) as server:
        client = client_of(server.url(""), sleep, **options)
        try:
            yield client, server, slept
        finally:
            await client.close()


def client_of(url: str, sleep: Any = asyncio.sleep, **options: Any) -> Client:
    return Client(PullOptions(**{"url": url, "selector": '{job="vllm"}', **options}), SystemClock(), sleep=sleep)


def gives(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    text = body if isinstance(body, str) else json.dumps(body)
    return lambda _: web.Response(text=text, status=status, headers=headers, content_type="application/json")


FINE = gives(matrix([series("up", [(AT_S, 1.0)])]))


async def test_raw_samples_come_back_as_they_were_stored() -> None:
    async with asked(gives(matrix(page(AT_S, 5.0)))) as (client, server, _):
        assert await client.ask(QUERY, AT_S) == Answer(page(AT_S, 5.0))
    (request,) = server.seen
    assert dict(request.query) == {"query": QUERY, "time": "1700000000.250"}


async def test_the_tenant_and_the_token_are_sent_with_each_query() -> None:
    options = {"headers": (("X-Scope-OrgID", "team-a"),), "bearer": "s3cret-token"}
    async with asked(FINE, **options) as (client, server, _):
        await client.ask(QUERY, AT_S)
        await client.ask(QUERY, AT_S)
    assert [r.headers["X-Scope-OrgID"] for r in server.seen] == ["team-a", "team-a"]
    assert {r.headers["Authorization"] for r in server.seen} == {"Bearer s3cret-token"}
    assert "s3cret" not in repr(client.options)
    assert "team-a" not in repr(client.options)


async def test_basic_authentication_is_sent() -> None:
    async with asked(FINE, basic=("léser", "pass:word")) as (client, server, _):
        await client.ask(QUERY, AT_S)
    encoded = server.seen[0].headers["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(encoded).decode() == "léser:pass:word"


async def test_a_netrc_file_does_not_replace_what_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with asked(FINE, bearer="s3cret-token") as (client, server, _):
        await client.ask(QUERY, AT_S)
    assert server.seen[0].headers["Authorization"] == "Bearer s3cret-token"


async def test_an_overloaded_server_is_asked_again_when_it_says() -> None:
    busy = gives({"status": "error", "error": "too many requests"}, 429, {"Retry-After": "7"})
    async with asked(busy, gives("", 503), FINE) as (client, server, slept):
        answer = await client.ask(QUERY, AT_S, attempts=5)
    assert len(answer.series) == 1
    assert len(server.seen) == 3
    assert slept[0] == 7.0
    assert 1.5 <= slept[1] <= 2.5, "a growing pause where the server names none"


async def test_a_server_that_stays_overloaded_is_told_in_the_end() -> None:
    async with asked(gives({"error": "busy"}, 503)) as (client, server, slept):
        with pytest.raises(PullError, match=r"answers 503: busy") as raised:
            await client.ask(QUERY, AT_S, attempts=3)
    assert raised.value.reason == "overloaded"
    assert isinstance(raised.value, TransientError)
    assert (len(server.seen), len(slept)) == (3, 2)


async def test_a_wait_of_minutes_is_an_outage() -> None:
    async with asked(gives("", 503, {"Retry-After": "3600"})) as (client, server, slept):
        with pytest.raises(PullError):
            await client.ask(QUERY, AT_S, attempts=3)
    assert (len(server.seen), slept) == (1, [])


@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_wants_other_credentials_is_not_asked_again(status: int) -> None:
    async with asked(gives("no org id", status), bearer="s3cret-token") as (client, server, _):
        with pytest.raises(PullRefusedError, match=rf"answers {status}: no org id; check authorization") as raised:
            await client.ask(QUERY, AT_S, attempts=3)
    assert raised.value.reason == "unauthorized"
    assert isinstance(raised.value, ConfigError)
    assert "s3cret" not in str(raised.value)
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("reply", "kind", "reason", "words"),
    [
        (gives("<html>", 200), PullError, "malformed", "not JSON"),
        (gives('{"status": "success", "data": {"resultType": "matrix", "resu', 200), PullError, "malformed", "not JSON"),
        (gives([1, 2]), PullError, "malformed", "not that of a Prometheus"),
        (gives({"status": "success"}), PullError, "malformed", "not that of a Prometheus"),
        (gives({"data": {"resultType": "scalar", "result": [1, "2"]}}), PullError, "malformed", "'scalar' instead of series"),
        (gives({"data": {"resultType": "matrix", "result": {}}}), PullError, "malformed", "instead of series"),
        (gives("x", 404), PullRefusedError, "not_prometheus", "write what comes before /api/v1"),
        (gives("", 302, {"Location": "http://login.example/"}), PullRefusedError, "not_prometheus", "points to http://login"),
        (gives({"error": "1:5: parse error"}, 400), PullRefusedError, "bad_query", "refuses the query: 1:5: parse error"),
        (gives({"error": "cannot expand WITH expressions"}, 422), PullRefusedError, "bad_query", "check selector"),
        (
            gives({"error": "query processing would load too many samples into memory"}, 422),
            PullError, "too_large", "narrow the selector",
        ),
        (gives("body", 413), PullError, "too_large", "so much at once"),
        (gives("", 504), PullError, "timeout", "answers 504"),
        (gives("oops\nat line 5", 500), PullError, "server_error", "answers 500: oops at line 5"),
        (gives("", 500), PullError, "server_error", "without a word"),
    ],
)  # fmt: skip
async def test_every_answer_but_series_is_told_apart(
    reply: Reply, kind: type[PullError | PullRefusedError], reason: str, words: str
) -> None:
    async with asked(reply, FINE) as (client, _, _):
        with pytest.raises(kind) as raised:
            await client.ask(QUERY, AT_S)
        assert isinstance(raised.value, PullError | PullRefusedError)
        assert raised.value.reason == reason
        assert words in str(raised.value)
        assert str(raised.value).startswith("127.0.0.1:")
        assert len((await client.ask(QUERY, AT_S)).series) == 1, "the next query works"


async def test_a_partial_answer_is_kept_and_marked() -> None:
    series_of = page(AT_S, 5.0)
    thanos = gives(matrix(series_of, warnings=["store-3: connection refused"]))
    victoria = gives(matrix(series_of, isPartial=True))
    async with asked(thanos, victoria, gives(matrix(series_of, isPartial=False, warnings=None))) as (client, _, _):
        assert await client.ask(QUERY, AT_S) == Answer(series_of, ("store-3: connection refused",), partial=True)
        assert await client.ask(QUERY, AT_S) == Answer(series_of, partial=True)
        assert await client.ask(QUERY, AT_S) == Answer(series_of)


async def test_a_vector_is_read_as_series_of_one_sample() -> None:
    vector = {"data": {"resultType": "vector", "result": [{"metric": {"instance": "a"}, "value": [1.0, "3"]}]}}
    async with asked(gives(vector)) as (client, _, _):
        (one,) = (await client.ask(QUERY, AT_S)).series
    assert (one["metric"], one["values"]) == ({"instance": "a"}, [[1.0, "3"]])


async def test_an_answer_beyond_the_limit_is_not_read() -> None:
    async with asked(gives("x" * 100_000), FINE, body_limit_bytes=10_000) as (client, server, _):
        with pytest.raises(
            PullError, match="more than 10000 bytes; narrow the selector, or raise body_limit"
        ) as raised:
            await client.ask(QUERY, AT_S, attempts=3)
        assert raised.value.reason == "too_large"
        assert len(server.seen) == 1, "asking the same again mends nothing"
        assert len((await client.ask(QUERY, AT_S)).series) == 1


async def test_an_answer_that_trickles_ends_at_the_time_limit() -> None:
    over = asyncio.Event()

    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while not over.is_set():
            await response.write(b" " * 70_000)
            await asyncio.sleep(0.02)
        return response

    async with engine_server({"/api/v1/query": trickle}) as server:
        client = client_of(server.url(""), timeout_s=0.3)
        with pytest.raises(PullError, match=r"within 0\.3 s") as raised:
            await client.ask(QUERY, AT_S)
        over.set()
        await client.close()
    assert raised.value.reason == "timeout"


async def test_a_server_that_does_not_answer_is_a_timeout() -> None:
    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with engine_server({"/api/v1/query": silent}) as server:
        client = client_of(server.url(""), timeout_s=0.2)
        with pytest.raises(PullError, match="did not answer within") as raised:
            await client.ask(QUERY, AT_S)
        await client.close()
    assert raised.value.reason == "timeout"


async def test_a_port_that_nobody_listens_on_is_named() -> None:
    port = dead_port()
    client = client_of(f"http://127.0.0.1:{port}")
    with pytest.raises(PullError) as raised:
        await client.ask(QUERY, AT_S)
    await client.close()
    assert str(raised.value) == f"127.0.0.1:{port} cannot be reached: Connection refused"
    assert raised.value.reason == "unreachable"


async def test_a_certificate_is_checked_against_the_configured_authority_and_name(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)

    async def query(request: web.Request) -> web.StreamResponse:
        return FINE(request)

    async with engine_server({"/api/v1/query": query}, tls=made.server_context(wants_client=True)) as server:
        trusted = {
            "ca_file": str(made.ca), "server_name": "engine.test", "cert_file": str(made.client),
            "key_file": str(made.client_key),
        }  # fmt: skip
        client = client_of(server.url(""), **trusted)
        assert len((await client.ask(QUERY, AT_S)).series) == 1
        await client.close()
        for wrong in ({"ca_file": str(made.other_ca)}, {"server_name": "other.test"}):
            client = client_of(server.url(""), **{**trusted, **wrong})
            with pytest.raises(PullRefusedError, match="TLS") as raised:
                await client.ask(QUERY, AT_S)
            await client.close()
            assert raised.value.reason == "tls"


async def test_a_query_that_was_given_up_is_waited_for_before_the_next() -> None:
    begun, release, running, most = asyncio.Event(), threading.Event(), [], []
    loop = asyncio.get_running_loop()

    def answer(_: str, at_s: float) -> Answer:
        loop.call_soon_threadsafe(begun.set)
        running.append(at_s)
        most.append(len(running))
        if at_s == 1.0:
            release.wait(10)
        running.remove(at_s)
        return Answer([])

    asker = PreparedAsker(answer)
    client = Client(PullOptions("http://p", '{job="a"}'), SystemClock(), asker=asker)
    first = asyncio.create_task(client.ask(QUERY, 1.0))
    await begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(client.ask(QUERY, 2.0))
    await asyncio.sleep(0)
    assert [at for _, at in asker.asked] == [1.0], "the session is still in use"
    release.set()
    await second
    assert most == [1, 1]
    await client.close()
    assert asker.closed


async def test_queries_keep_to_the_rate_limit() -> None:
    clock, times = HandClock(0.0), []

    def answer(_: str, __: float) -> Answer:
        times.append(clock.at_s)
        return Answer([])

    client = Client(
        PullOptions("http://p", '{job="a"}', rate_limit_per_s=2.0),
        clock,
        asker=PreparedAsker(answer),
        sleep=clock.sleep,
    )
    for _ in range(4):
        await client.ask(QUERY, 1.0)
    clock.at_s = 100.0
    await client.ask(QUERY, 1.0)
    await client.close()
    assert times == [0.0, 0.5, 1.0, 1.5, 100.0]


def test_without_the_package_the_command_that_installs_it_is_named() -> None:
    program = (
        "import sys; sys.modules['prometheus_api_client'] = None\n"
        "from collector.pull import PullOptions, open_http\n"
        "from goodwatch.core.errors import ConfigError\n"
        "try:\n    open_http(PullOptions('http://prom:9090', '{job=\"a\"}'))\n"
        "except ConfigError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "prometheus: reading from prom:9090 needs the package prometheus_api_client, which is not installed; "
        "install it with: pip install 'goodwatch[prometheus]'"
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"step_s": 0.0}, "step_s is 0.0; it must be more than 0"),
        ({"lookback_s": 10.0}, "lookback is shorter"),
        ({"group_by": ()}, "group_by is empty"),
    ],
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        PullOptions(**{"url": "http://p", "selector": "{}", **wrong})

import asyncio
import gzip
import itertools
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from collector.scrape import REASONS, Fetched, Scraper, Session, fetch, next_tick, phase_s
from collector.targets import ScrapeOptions, TargetSpec
from goodwatch import __version__
from goodwatch.core.clock import SystemClock
from goodwatch.core.errors import StoreError
from goodwatch.core.model import Target
from tests.support.engine_server import (
    PAGE,
    TEXT,
    Certificates,
    Handler,
    dead_port,
    engine_server,
    hang,
    make_certificates,
    raw_server,
    refusing_server,
)

pytestmark = pytest.mark.integration

FAST = ScrapeOptions(interval_s=0.3, timeout_s=0.3)


def to_loopback(host: str, *_: Any, **__: Any) -> list[Any]:
    """Names under ``.test`` are on this machine, others do not exist."""
    if not host.endswith(".test"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with Session(lookup=to_loopback) as opened:
        yield opened


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def target(
    url: str, options: ScrapeOptions | None = None, *, name: str = "replica", engine: str | None = None
) -> TargetSpec:
    return TargetSpec(Target(name, url, "chat", engine=engine), options or ScrapeOptions())


async def scrape(session: Session, url: str, **options: Any) -> Fetched:
    fetched = await fetch(session, target(url, ScrapeOptions(**options)), SystemClock())
    assert fetched.reason in REASONS
    assert fetched.up == (not fetched.reason) == (not fetched.error)
    assert fetched.up or fetched.body == b""
    return fetched


def answering(**response: Any) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(**response)

    return handler


def moved(to: str, status: int = 302) -> Handler:
    return answering(status=status, headers={"Location": to})


# one scrape that works


async def test_a_page_comes_back_as_sent_with_its_type(session: Session) -> None:
    async with engine_server() as server:
        before_s = time.time()
        fetched = await scrape(session, server.url())
    assert (fetched.up, fetched.status, fetched.body, fetched.content_type) == (True, 200, PAGE, TEXT)
    assert before_s <= fetched.ts <= time.time()
    assert 0 < fetched.duration_s < 5


async def test_the_request_is_what_prometheus_would_send_with_plain_text_preferred(session: Session) -> None:
    async with engine_server() as server:
        await scrape(session, server.url("/metrics?a=1"), interval_s=15, timeout_s=10)
    (request,) = server.seen
    assert request.path_qs == "/metrics?a=1"
    expected = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=1.0,*/*;q=0.1"
    assert request.headers["Accept"] == expected
    assert request.headers["Accept-Encoding"] == "gzip"
    assert request.headers["User-Agent"] == f"goodwatch/{__version__}"
    assert request.headers["X-Prometheus-Scrape-Timeout-Seconds"] == "10"
    assert "Authorization" not in request.headers


@pytest.mark.parametrize(
    ("options", "user", "sent"),
    [
        ({"bearer": "t0ken"}, "", {"Authorization": "Bearer t0ken"}),
        ({"basic": ("me", "pw")}, "", {"Authorization": "Basic bWU6cHc="}),
        ({}, "me:pw@", {"Authorization": "Basic bWU6cHc="}),
        ({"bearer": "t0ken"}, "me:pw@", {"Authorization": "Bearer t0ken"}),
        ({"headers": (("X-Scope", "a"), ("accept", "text/plain"))}, "", {"X-Scope": "a", "Accept": "text/plain"}),
        ({"json_stats": True}, "", {"Accept": "application/json"}),
    ],
)
async def test_credentials_and_headers_are_sent(
    session: Session, options: dict[str, Any], user: str, sent: dict[str, str]
) -> None:
    async with engine_server() as server:
        assert (await scrape(session, server.url(host=f"{user}127.0.0.1"), **options)).up
    assert {name: server.seen[0].headers.getall(name) for name in sent} == {name: [v] for name, v in sent.items()}


async def test_a_connection_is_used_again(session: Session) -> None:
    async with engine_server() as server:
        for _ in range(3):
            assert (await scrape(session, server.url())).up
        assert len({request.transport for request in server.seen}) == 1


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip"])
async def test_a_gzip_body_is_decompressed(session: Session, encoding: str) -> None:
    members = gzip.compress(PAGE) + gzip.compress(PAGE)
    async with engine_server({"/z": answering(body=members, headers={"Content-Encoding": encoding})}) as server:
        assert (await scrape(session, server.url("/z"))).body == PAGE + PAGE


@pytest.mark.parametrize("status", [307, 308])
async def test_a_mounted_apps_slash_redirect_is_followed_without_being_asked(session: Session, status: int) -> None:
    routes = {"/vllm/metrics": moved("/vllm/metrics/", status), "/vllm/metrics/": answering(body=PAGE)}
    async with engine_server(routes) as server:
        assert (await scrape(session, server.url("/vllm/metrics"), bearer="t")).body == PAGE
    assert [request.headers.get("Authorization") for request in server.seen] == ["Bearer t", "Bearer t"]


# scrapes that fail


@pytest.mark.parametrize(
    ("engine", "status", "says"),
    [
        ("sglang", 404, "/metrics: SGLang serves metrics only with --enable-metrics"),
        ("trtllm", 404, "/prometheus/metrics"),
        (None, 404, "--enable-metrics"),
        (None, 401, "wants other credentials"),
        (None, 500, "not proof that it is down"),
        (None, 204, "metrics come with 200"),
    ],
)
async def test_a_status_other_than_200_fails_and_says_what_to_do(
    session: Session, engine: str | None, status: int, says: str
) -> None:
    async with engine_server({"/metrics": answering(status=status)}) as server:
        fetched = await fetch(session, target(server.url(), engine=engine), SystemClock())
    assert (fetched.up, fetched.reason, fetched.status) == (False, "http_status", status)
    assert fetched.error.startswith(f"HTTP {status} from http://127.0.0.1:")
    assert says in fetched.error


async def test_wrong_credentials_fail_and_are_not_repeated(session: Session) -> None:
    async def guarded(request: web.Request) -> web.StreamResponse:
        right = request.headers.get("Authorization") == "Bearer right"
        return web.Response(status=200 if right else 401)

    async with engine_server({"/metrics": guarded}) as server:
        assert (await scrape(session, server.url(), bearer="right")).up
        fetched = await scrape(session, server.url("/metrics?token=hush", host="me:hush@127.0.0.1"))
    assert fetched.status == 401
    assert "hush" not in fetched.error


async def test_a_dead_port_is_refused(session: Session) -> None:
    fetched = await scrape(session, f"http://127.0.0.1:{dead_port()}/metrics")
    assert (fetched.reason, fetched.status) == ("refused", None)
    assert "nothing listens there" in fetched.error


@pytest.mark.parametrize("host", ["nowhere.invalid", "x" * 64 + ".invalid"])
async def test_a_name_that_does_not_resolve_is_a_dns_failure(session: Session, host: str) -> None:
    fetched = await scrape(session, f"http://{host}:8000/metrics")
    assert fetched.reason == "dns"
    assert f"the name {host} cannot be resolved" in fetched.error
    async with Session() as real:
        assert (await scrape(real, f"http://{host}:8000/metrics")).reason in ("dns", "timeout")


@pytest.mark.parametrize("url", ["http://h:99999/", "ftp://h/metrics", "/metrics", "http://", "http://127.1/metrics"])
async def test_a_url_that_is_none_is_a_failed_scrape(session: Session, url: str) -> None:
    assert (await scrape(session, url)).reason == "protocol"


async def drip(writer: Any, text: bytes) -> None:
    """Write one byte now and then, and never end."""
    while True:
        for byte in text:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)


async def drip_headers(writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    await drip(writer, b"x")


async def drip_body(writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    await drip(writer, b"a 1\n")


@pytest.mark.parametrize(
    ("answer", "says"),
    [(drip_headers, "no answer came"), (drip_body, "HTTP 200 came, its body did not end")],
)
async def test_a_slow_loris_ends_at_the_timeout(
    session: Session, answer: Callable[[Any], Awaitable[None]], says: str
) -> None:
    async with raw_server(answer) as server:
        fetched = await scrape(session, server.url(), timeout_s=0.3)
    assert fetched.reason == "timeout"
    assert 0.25 < fetched.duration_s < 2
    assert "within 0.3 s" in fetched.error
    assert says in fetched.error


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "protocol"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\na 1\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\na 1\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 4\r\n\r\na 1\n", "decode"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\na 1\n", "decode"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(PAGE)[:-5], "decode"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", "decode"),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "redirect"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n", "redirect"),
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", "redirect"),
    ],
)
async def test_an_answer_that_breaks_the_protocol_is_named(session: Session, sent: bytes, reason: str) -> None:
    async def answer(writer: Any) -> None:
        writer.write(sent)
        await writer.drain()

    async with raw_server(answer) as server:
        fetched = await scrape(session, server.url(), timeout_s=5, follow_redirects=True)
    assert fetched.reason == reason, fetched.error


async def test_a_gzip_bomb_stops_at_the_limit(session: Session) -> None:
    bomb = gzip.compress(bytes(200_000_000), 1)
    async with engine_server({"/z": answering(body=bomb, headers={"Content-Encoding": "gzip"})}) as server:
        fetched = await scrape(session, server.url("/z"), body_limit_bytes=1_000_000)
    assert fetched.reason == "body_limit"
    assert fetched.duration_s < 1
    assert "over 1000000 bytes" in fetched.error


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_of_100_mb_is_cut_off_at_the_limit(session: Session, announced: bool) -> None:
    sent_bytes = 0

    async def large(request: web.Request) -> web.StreamResponse:
        nonlocal sent_bytes
        response = web.StreamResponse()
        if announced:
            response.content_length = 100_000_000
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"a" * 1_000_000)
            sent_bytes += 1_000_000
        return response

    async with engine_server({"/metrics": large}) as server:
        fetched = await scrape(session, server.url(), body_limit_bytes=5_000_000)
    assert fetched.reason == "body_limit"
    assert sent_bytes < 50_000_000


async def test_a_body_of_exactly_the_limit_is_read(session: Session) -> None:
    async with engine_server() as server:
        assert (await scrape(session, server.url(), body_limit_bytes=len(PAGE))).up
        assert (await scrape(session, server.url(), body_limit_bytes=len(PAGE) - 1)).reason == "body_limit"


# redirects


async def test_a_redirect_is_a_failed_scrape_that_says_where_and_how_to_allow_it(session: Session) -> None:
    async with engine_server({"/metrics": moved("/login?next=hush")}) as server:
        fetched = await scrape(session, server.url())
    assert (fetched.reason, fetched.status, len(server.seen)) == ("redirect", 302, 1)
    assert f"points to {server.url('/login')}" in fetched.error
    assert "follow_redirects: true" in fetched.error
    assert "hush" not in fetched.error


async def test_five_redirects_are_followed_when_asked_and_no_more(session: Session) -> None:
    routes = {f"/{n}": moved(f"/{n - 1}") for n in range(1, 7)} | {"/0": answering(body=PAGE), "/loop": moved("/loop")}
    async with engine_server(routes) as server:
        assert (await scrape(session, server.url("/5"), follow_redirects=True)).body == PAGE
        assert (await scrape(session, server.url("/6"), follow_redirects=True)).reason == "redirect"
        loop = await scrape(session, server.url("/loop"), follow_redirects=True)
    assert loop.reason == "redirect"
    assert "more than 5 redirects" in loop.error


async def test_the_slash_redirect_is_followed_once_and_only_on_the_same_host(session: Session) -> None:
    routes = {"/metrics": moved("/metrics/", 307), "/metrics/": moved("/metrics", 307)}
    async with engine_server() as other, engine_server(routes) as server:
        assert (await scrape(session, server.url())).reason == "redirect"
        assert len(server.seen) == 2
        async with engine_server({"/metrics": moved(other.url("/metrics/"), 307)}) as away:
            assert (await scrape(session, away.url())).reason == "redirect"
    assert other.seen == []


@pytest.mark.parametrize(
    ("user", "options"),
    [("", {"bearer": "t"}), ("", {"basic": ("a", "b")}), ("a:b@", {}), ("", {"headers": (("X-Api-Key", "k"),)})],
)
async def test_credentials_never_go_to_another_host_nor_come_back_from_it(
    session: Session, user: str, options: dict[str, Any]
) -> None:
    routes: dict[str, Handler] = {"/back": answering(status=401)}
    async with engine_server(routes) as home, engine_server({"/away": moved(home.url("/back"))}) as away:

        async def leave(_: web.Request) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": away.url("/away", host="x:y@localhost.test")})

        async with engine_server({"/metrics": leave}) as start:
            url = start.url(host=f"{user}127.0.0.1")
            fetched = await scrape(session, url, follow_redirects=True, **options)
    sent = {"Authorization", "X-Api-Key"}
    assert sent & set(start.seen[0].headers)
    assert not sent & {*away.seen[0].headers, *home.seen[0].headers}
    assert "not sent, because a redirect led to another host" in fetched.error


# TLS


async def test_an_unknown_authority_is_a_tls_failure(session: Session, certificates: Certificates) -> None:
    async with engine_server(tls=certificates.server_context()) as server:
        url = server.url(host="engine.test")
        for options in ({}, {"ca_file": str(certificates.other_ca)}):
            fetched = await scrape(session, url, **options)
            assert fetched.reason == "tls"
            assert "in ca_file" in fetched.error
        assert (await scrape(session, url, ca_file=str(certificates.ca))).body == PAGE
        assert (await scrape(session, url, insecure_skip_verify=True)).body == PAGE


async def test_a_certificate_for_another_name_needs_server_name(session: Session, certificates: Certificates) -> None:
    async with engine_server(tls=certificates.server_context()) as server:
        fetched = await scrape(session, server.url(), ca_file=str(certificates.ca))
        assert fetched.reason == "tls"
        assert "server_name" in fetched.error
        assert (await scrape(session, server.url(), ca_file=str(certificates.ca), server_name="engine.test")).up


async def test_a_client_certificate_is_shown_when_there_is_one(session: Session, certificates: Certificates) -> None:
    c = certificates
    async with engine_server(tls=c.server_context(wants_client=True)) as server:
        url = server.url(host="engine.test")
        without = await scrape(session, url, ca_file=str(c.ca))
        assert not without.up
        assert "client certificate" in without.error
        pair = {"cert_file": str(c.client), "key_file": str(c.client_key)}
        assert (await scrape(session, url, ca_file=str(c.ca), **pair)).body == PAGE


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_missing_client_certificate_is_a_tls_failure(
    session: Session, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    context = certificates.server_context(wants_client=True)
    context.minimum_version = context.maximum_version = version
    with refusing_server(context) as server:
        fetched = await scrape(session, server.url(host="engine.test"), ca_file=str(certificates.ca))
    assert fetched.reason == "tls"
    assert "client certificate" in fetched.error


async def test_a_client_certificate_is_not_shown_to_another_host(session: Session, certificates: Certificates) -> None:
    c = certificates
    async with (
        engine_server(tls=c.server_context(wants_client=True)) as other,
        engine_server({"/metrics": moved(other.url(host="engine.test"))}, tls=c.server_context()) as server,
    ):
        pair = {"cert_file": str(c.client), "key_file": str(c.client_key), "ca_file": str(c.ca)}
        fetched = await scrape(session, server.url(host="engine.test"), follow_redirects=True, **pair)
    assert not fetched.up
    assert other.seen == []


async def test_plain_http_behind_an_https_url_is_told(session: Session) -> None:
    async with engine_server() as server:
        fetched = await scrape(session, server.url().replace("http:", "https:"))
    assert fetched.reason == "tls"
    assert "plain HTTP" in fetched.error


async def test_a_certificate_file_at_fault_is_named(
    session: Session, certificates: Certificates, tmp_path: Path
) -> None:
    broken, missing = tmp_path / "broken.pem", tmp_path / "missing.pem"
    broken.write_text("nothing")
    locked = tmp_path / "locked.key"
    locked.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
        "MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjX\n"
        "-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    for options, says in (
        ({"ca_file": str(missing)}, f"ca_file {missing}: No such file"),
        ({"ca_file": str(broken)}, f"ca_file {broken}: OpenSSL cannot use it"),
        ({"cert_file": str(missing)}, f"cert_file {missing}: No such file"),
        ({"cert_file": str(certificates.client), "key_file": str(certificates.server_key)}, "KEY_VALUES_MISMATCH"),
        ({"cert_file": str(certificates.client), "key_file": str(locked)}, "unencrypted key"),
    ):
        fetched = await scrape(session, "https://127.0.0.1:1/metrics", **options)
        assert fetched.reason == "tls"
        assert says in fetched.error


async def test_a_rotated_authority_is_read_again(session: Session, certificates: Certificates, tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_bytes(certificates.other_ca.read_bytes())
    async with engine_server(tls=certificates.server_context()) as server:
        url = server.url(host="engine.test")
        assert (await scrape(session, url, ca_file=str(authority))).reason == "tls"
        authority.write_bytes(certificates.ca.read_bytes())
        assert (await scrape(session, url, ca_file=str(authority))).up


# the schedule


@given(st.text(), st.floats(0.01, 3600))
def test_a_phase_lies_within_its_interval_and_is_stable(name: str, interval_s: float) -> None:
    assert 0 <= phase_s(name, interval_s) < interval_s
    assert phase_s(name, interval_s) == phase_s(name, interval_s)


def test_phases_spread_over_the_interval() -> None:
    phases = [phase_s(f"10.0.0.{n}:8000", 15) for n in range(200)]
    per_tenth = [sum(int(p / 1.5) == tenth for p in phases) for tenth in range(10)]
    assert min(per_tenth) > 5
    assert phases[0] == pytest.approx(phase_s("10.0.0.0:8000", 30) / 2)


@given(st.floats(0, 1e7), st.integers(0, 10**6), st.floats(0, 1), st.floats(0.05, 300))
def test_the_next_tick_is_after_the_last_and_not_long_gone(
    now_s: float, back: int, share: float, interval_s: float
) -> None:
    phase = share * interval_s
    last = next_tick(now_s, None, phase_s=phase, interval_s=interval_s) - back
    tick = next_tick(now_s, last, phase_s=phase, interval_s=interval_s)
    due_s = phase + tick * interval_s
    assert tick > last
    assert tick == last + 1 or now_s - 0.11 * interval_s <= due_s <= now_s + 0.91 * interval_s


class SteppedClock:
    """Time that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def now_s(self) -> float:
        return 1.7e9 + self.at_s

    def monotonic_s(self) -> float:
        return self.at_s

    async def sleep(self, duration_s: float) -> None:
        self.at_s += duration_s
        await asyncio.sleep(0)


async def test_scrapes_stay_on_the_grid_and_missed_ticks_are_skipped_and_counted() -> None:
    clock = SteppedClock()
    at_s: list[float] = []
    took_s = iter([0.0, 0.0, 36.0, 10.5, 0.0, 0.0])
    stopping: list[asyncio.Task[None]] = []

    async def page(_: TargetSpec, fetched: Fetched) -> None:
        at_s.append(fetched.ts - 1.7e9)
        clock.at_s += next(took_s)
        if len(at_s) == 6:
            stopping.append(asyncio.create_task(scraper.stop()))

    options = ScrapeOptions(interval_s=10, timeout_s=10)
    scraper = Scraper(page, clock=clock, sleep=clock.sleep)
    scraper.update([target(f"http://127.0.0.1:{dead_port()}/metrics", options)])
    await scraper.run()
    await stopping[0]
    phase = phase_s("replica", 10)
    ticks = [(at - phase) / 10 for at in at_s]
    first = round(ticks[0])
    # 36 s late: three ticks are gone; 0.5 s late: the tick is still run, late, and the next is on the grid again
    assert [tick - first for tick in ticks] == pytest.approx([0, 1, 2, 6, 7.05, 8], abs=0.001)
    assert scraper.skipped_ticks_total == 3


# the scraper


class Pages:
    """Collects what is handed on, and lets a test wait for it."""

    def __init__(self) -> None:
        self.by_target: dict[str, list[Fetched]] = defaultdict(list)
        self._news = asyncio.Condition()

    async def __call__(self, spec: TargetSpec, fetched: Fetched) -> None:
        async with self._news:
            self.by_target[spec.target.name].append(fetched)
            self._news.notify_all()

    async def wait_until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(seen)

    async def wait_for(self, name: str, count: int) -> list[Fetched]:
        await self.wait_until(lambda: len(self.by_target[name]) >= count)
        return self.by_target[name]


async def stopped(scraper: Scraper, run: asyncio.Task[None]) -> float:
    """Seconds that stopping took."""
    began_s = time.monotonic()
    await scraper.stop()
    await run
    return time.monotonic() - began_s


def due_soon(count: int, interval_s: float) -> list[str]:
    """Names whose next tick comes within a second, in spite of a long interval."""
    in_a_second = (time.monotonic() + 1) % interval_s
    names = (f"hanging-{n}" for n in itertools.count())
    soon = (name for name in names if (in_a_second - phase_s(name, interval_s)) % interval_s < 0.7)
    return list(itertools.islice(soon, count))


async def test_hanging_targets_delay_no_other() -> None:
    pages = Pages()
    slow, steady = ScrapeOptions(interval_s=60, timeout_s=60), ScrapeOptions(interval_s=1, timeout_s=1)
    async with engine_server({"/hang": hang}) as server:
        scraper = Scraper(pages)
        hanging = [target(server.url("/hang"), slow, name=name) for name in due_soon(150, 60)]
        scraper.update([*hanging, target(server.url(), steady, name="good")])
        run = asyncio.create_task(scraper.run())
        before = len(await pages.wait_for("good", 2))
        good = await pages.wait_for("good", before + 2)
        assert sum(request.path == "/hang" for request in server.seen) == 150
        assert await stopped(scraper, run) < 1
    assert list(pages.by_target) == ["good"]
    assert all(fetched.up for fetched in good)
    assert good[3].ts - good[0].ts == pytest.approx(3, abs=0.5)


async def test_name_lookups_that_hang_delay_no_other() -> None:
    held = threading.Event()

    def lookup(host: str, *_: Any, **__: Any) -> list[Any]:
        if host.startswith("dead"):
            held.wait(30)
        return to_loopback(host)

    pages = Pages()
    async with engine_server() as server:
        scraper = Scraper(pages, session=Session(lookup=lookup))
        dead = [target(f"http://dead{n}.test:1/metrics", FAST, name=f"dead{n}") for n in range(50)]
        fair = ScrapeOptions(interval_s=1, timeout_s=1)
        scraper.update([*dead, target(server.url(host="good.test"), fair, name="good")])
        run = asyncio.create_task(scraper.run())
        try:
            good = await pages.wait_for("good", 2)
            assert (await pages.wait_for("dead7", 2))[0].reason == "timeout"
            assert await stopped(scraper, run) < 1
        finally:
            held.set()
    assert all(fetched.up for fetched in good)


async def test_update_adds_and_removes_targets_and_leaves_the_others_alone() -> None:
    pages = Pages()
    async with engine_server() as server:
        a, b, c = (target(server.url(f"/metrics?{n}"), FAST, name=n) for n in "abc")
        scraper = Scraper(pages)
        scraper.update([a, b])
        run = asyncio.create_task(scraper.run())
        await pages.wait_for("a", 2)
        task_of_a = {task for task in asyncio.all_tasks() if task.get_name() == "scrape a"}
        scraper.update([a, c])
        assert scraper.targets == 2
        seen_b = len(pages.by_target["b"])
        await pages.wait_for("c", 2)
        await pages.wait_for("a", len(pages.by_target["a"]) + 2)
        assert len(pages.by_target["b"]) <= seen_b + 1  # one may have been on its way to on_page
        assert {task for task in asyncio.all_tasks() if task.get_name() == "scrape a"} == task_of_a
        await stopped(scraper, run)
    assert scraper.scrapes_total.total() == sum(len(found) for found in pages.by_target.values())


async def test_a_changed_target_is_scraped_in_its_new_way() -> None:
    pages = Pages()
    async with engine_server() as server:
        scraper = Scraper(pages)
        scraper.update([target(server.url(), FAST)])
        run = asyncio.create_task(scraper.run())
        await pages.wait_for("replica", 1)
        scraper.update([target(server.url("/nothing"), FAST)])
        await pages.wait_until(lambda: any(fetched.status == 404 for fetched in pages.by_target["replica"]))
        await stopped(scraper, run)


async def test_two_targets_of_one_name_are_refused() -> None:
    scraper = Scraper(Pages())
    with pytest.raises(ValueError, match="two targets are named 'replica'"):
        scraper.update([target("http://a/metrics"), target("http://b/metrics")])


async def test_stopping_lets_a_page_arrive_that_is_being_handed_on() -> None:
    taking, arrived = asyncio.Event(), asyncio.Event()

    async def page(_: TargetSpec, __: Fetched) -> None:
        taking.set()
        await asyncio.sleep(0.1)
        arrived.set()

    scraper = Scraper(page)
    scraper.update([target(f"http://127.0.0.1:{dead_port()}/metrics", FAST)])
    run = asyncio.create_task(scraper.run())
    await taking.wait()
    assert await stopped(scraper, run) < 1
    assert arrived.is_set()


async def test_stopping_does_not_wait_for_a_page_that_is_never_taken() -> None:
    taking = asyncio.Event()

    async def page(_: TargetSpec, __: Fetched) -> None:
        taking.set()
        await asyncio.Event().wait()

    scraper = Scraper(page)
    scraper.update([target(f"http://127.0.0.1:{dead_port()}/metrics", FAST)])
    run = asyncio.create_task(scraper.run())
    await taking.wait()
    assert await stopped(scraper, run) < 1


async def test_stopping_before_the_start_or_twice_is_fine() -> None:
    scraper = Scraper(Pages())
    await scraper.stop()
    await scraper.stop()
    await scraper.run()


async def test_a_page_that_cannot_be_kept_is_counted_and_scraping_goes_on() -> None:
    pages = Pages()

    async def page(spec: TargetSpec, fetched: Fetched) -> None:
        await pages(spec, fetched)
        raise StoreError("the disk is full")

    scraper = Scraper(page)
    scraper.update([target(f"http://127.0.0.1:{dead_port()}/metrics", FAST)])
    run = asyncio.create_task(scraper.run())
    await pages.wait_for("replica", 2)
    await stopped(scraper, run)
    assert scraper.page_failures_total >= 2
    assert scraper.last_page_failure == "replica: the disk is full"


async def test_a_bug_in_the_callback_comes_out_of_run() -> None:
    async def page(_: TargetSpec, __: Fetched) -> None:
        raise KeyError("bug")

    scraper = Scraper(page)
    scraper.update([target(f"http://127.0.0.1:{dead_port()}/metrics", FAST)])
    with pytest.raises(KeyError, match="bug"):
        await scraper.run()

"""Bad targets of every kind at once, beside a good one, over the whole service: each is named, none costs the others.

One run of ``goodwatch serve`` on real sockets is looked at by all tests here. What a single scrape makes of each fault
is in ``test_scrape.py``.
"""

import asyncio
import contextlib
import gzip
import itertools
import re
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from aiohttp import web

from collector.scrape import Fetched, Scraper, Session
from collector.stores.duckdb import DuckDBStore
from collector.stores.memory import MemoryStore
from collector.targets import ScrapeOptions, TargetSpec
from goodwatch.app.engines import known_engines
from goodwatch.app.keeper import Keeper
from goodwatch.app.watch import Terms, Watch
from goodwatch.core.clock import SystemClock
from goodwatch.core.model import Target
from tests.bench.soak import missed
from tests.collector.engines.pages import body
from tests.collector.test_scrape import answering, drip_body, drip_headers, moved, to_loopback
from tests.support.engine_server import (
    TEXT,
    Certificates,
    EngineServer,
    Handler,
    dead_port,
    engine_server,
    hang,
    make_certificates,
    raw_server,
)
from tests.support.process import Running, running, wait_for

pytestmark = pytest.mark.integration

INTERVAL_S, TIMEOUT_S, ROUNDS = 2.0, 1.5, 4
#: tens of megabytes at each look: they take their time, so that each ends at its own fault and not at the timeout
HEAVY = frozenset({"gzip-bomb", "100-mb", "million-series", "million-families", "one-line-of-10-mb", "a-line-of-10-mb"})
HEAVY_S = 6.0
PAGE = body("vllm_0_32_0")


@dataclass(frozen=True, slots=True)
class Bad:
    """One kind of bad target and what is to be said of it."""

    name: str
    reason: str  # of its failed scrapes; "" when it is up all the same
    says: str  # in the sentence on its page, or among its remarks when it is up
    refused: str = ""  # what goodwatch_refused_input_total counts it under


TABLE = (
    Bad("headers-drip", "timeout", "no answer came"),
    Bad("body-drips", "timeout", "its body did not end"),
    Bad("hangs", "timeout", "was not read within 1.5 s"),
    Bad("redirects-in-a-circle", "redirect", "more than 5 redirects"),
    Bad("redirects-away", "redirect", "redirects are off"),
    Bad("gzip-bomb", "body_limit", "over 5000000 bytes"),
    Bad("100-mb", "body_limit", "over 5000000 bytes"),
    Bad("million-series", "sample_limit", "over 200000 samples"),
    Bad("million-families", "sample_limit", "over 200000 samples"),
    Bad("one-line-of-10-mb", "not_metrics", "no line of the body could be read"),
    Bad("a-line-of-10-mb", "", "is over 1000000 bytes", "too_long"),
    Bad("label-explosion", "", "labels", "too_many_labels"),
    Bad("twice-the-same", "", "was given before", "duplicate_series"),
    Bad("html", "not_metrics", "answered, but not with metrics"),
    Bad("noise", "not_metrics", "answered, but not with metrics"),
    Bad("empty", "not_metrics", "the page is empty"),
    Bad("broken-gzip", "decode", "gzip"),
    Bad("not-http", "protocol", "is not proper HTTP"),
    Bad("hangs-up", "protocol", "closed the connection without an answer"),
    Bad("status-500", "http_status", "not proof that it is down"),
    Bad("nothing-listens", "refused", "nothing listens there"),
    Bad("no-such-name", "dns", "cannot be resolved"),
    Bad("certificate-expired", "tls", "certificate has expired"),
    Bad("certificate-of-another", "tls", "server_name"),
    Bad("certificate-self-signed", "tls", "self-signed certificate"),
    Bad("authority-unknown", "tls", "in ca_file"),
)
#: up in one round, something else in the next
FLAPS, CHURNS, HEALTHY = "flaps", "new-labels-each-time", "healthy"


@dataclass(frozen=True, slots=True)
class Observed:
    """What the service said at the end, and what it had kept."""

    targets: dict[str, dict[str, Any]]
    remarks: dict[str, str]
    metrics: str
    kept: pl.DataFrame  # frames.SCRAPES
    lines: list[str]  # of its log

    def counted(self, family: str, reason: str) -> float:
        """A counter of goodwatch's own, by reason."""
        found = re.search(rf'^{family}\{{reason="{reason}"\}} (\S+)', self.metrics, re.M)
        return float(found[1]) if found else 0.0

    def scrapes(self, name: str) -> pl.DataFrame:
        return self.kept.filter(pl.col("target") == name)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def observed(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    folder = tmp_path_factory.mktemp("service")
    return asyncio.run(observe(folder, certificates))


async def observe(folder: Path, certificates: Certificates) -> Observed:
    async with contextlib.AsyncExitStack() as stack:
        urls = await served(stack, folder, certificates)
        slow = {"interval": f"{HEAVY_S:g}s", "timeout": f"{HEAVY_S:g}s"}
        entries = [
            {
                "name": n,
                "url": url,
                "service": "good" if n == HEALTHY else "bad",
                **(slow if n in HEAVY else {}),
                **more,
            }
            for n, (url, more) in urls.items()
        ]
        settings = {
            "listen": "127.0.0.1:0", "data_dir": str(folder / "data"), "targets": entries,
            "scrape": {"interval": f"{INTERVAL_S:g}s", "timeout": f"{TIMEOUT_S:g}s"}, "derive": {"every": "2s"},
        }  # fmt: skip
        file = folder / "goodwatch.yaml"
        file.write_text(yaml.safe_dump(settings))
        process = stack.enter_context(running("serve", "-c", str(file)))
        await asyncio.to_thread(process.url, 60)
        began_s = time.time()
        await asyncio.to_thread(wait_for, lambda: all_seen(process, began_s + INTERVAL_S * ROUNDS), 90)
        ended_s = time.time()
        asked = await asyncio.to_thread(ask, process)
        assert await asyncio.to_thread(process.end) == 0, process.output
    store = DuckDBStore(folder / "data" / "goodwatch.duckdb")
    kept = store.scrapes(began_s, ended_s)
    store.close()
    return Observed(*asked, kept, process.lines)


def all_seen(process: Running, until_s: float) -> bool:
    """Whether the pages tell of a scrape of every target, and of one after these rounds where that is quick."""
    last = {t["name"]: t["last_scrape_s"] or 0.0 for t in process.get("/api/v1/targets")["targets"]}
    return all(at_s > 0 if name in HEAVY else at_s >= until_s for name, at_s in last.items())


def ask(process: Running) -> tuple[dict[str, dict[str, Any]], dict[str, str], str]:
    targets = {t["name"]: t for t in process.get("/api/v1/targets")["targets"]}
    up = [n for n, t in targets.items() if t["up"]]
    remarks = {n: " ".join(r["text"] for r in process.get(f"/api/v1/targets/{n}/capability")["remarks"]) for n in up}
    return targets, remarks, process.get("/metrics")


# -- servers ---------------------------------------------------------------------------------------------------------


def page(text: str | bytes, **headers: str) -> Handler:
    return answering(body=text.encode() if isinstance(text, str) else text, headers={"Content-Type": TEXT, **headers})


async def hundred_mb(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):  # the scraper hangs up
        for _ in range(100):
            await response.write(b"a" * 999_999 + b"\n")
    return response


def flapping() -> Handler:
    rounds = itertools.count()

    async def handler(request: web.Request) -> web.StreamResponse:
        number = next(rounds) % 3
        if number == 1:
            return web.Response(status=503)
        if number == 2 and request.transport is not None:
            request.transport.abort()
        return web.Response(body=PAGE.encode(), headers={"Content-Type": TEXT})

    return handler


def churning() -> Handler:
    rounds = itertools.count()

    async def handler(_: web.Request) -> web.StreamResponse:
        number = next(rounds)
        lines = (f'vllm:num_requests_running{{pod="{number}-{i}"}} 1\n' for i in range(5_000))
        return web.Response(body="".join(lines).encode(), headers={"Content-Type": TEXT})

    return handler


def routes() -> dict[str, Handler]:
    long_line = f'x{{y="{"z" * 10_000_000}"}} 1\n'
    labels = ",".join(f'l{i}="v"' for i in range(5_000))
    again = 'vllm:num_requests_running{engine="0",model_name="tiny"} 7\n'
    return {
        f"/{HEALTHY}": page(PAGE), f"/{FLAPS}": flapping(), f"/{CHURNS}": churning(), "/hangs": hang,
        "/redirects-in-a-circle": moved("/redirects-in-a-circle"), "/redirects-away": moved("/elsewhere"),
        "/gzip-bomb": page(gzip.compress(bytes(200_000_000), 1), **{"Content-Encoding": "gzip"}),
        "/100-mb": hundred_mb, "/million-series": page("".join(f'a{{n="{i}"}} 1\n' for i in range(1_000_000))),
        "/million-families": page("".join(f"# TYPE a{i} gauge\n" for i in range(1_000_000))),
        "/one-line-of-10-mb": page(long_line), "/a-line-of-10-mb": page(PAGE + long_line),
        "/label-explosion": page(f"{PAGE}x{{{labels}}} 1\n"), "/twice-the-same": page(PAGE + again),
        "/html": page("<html><body>Sign in</body></html>"), "/noise": page(bytes(range(256)) * 1_000), "/empty": page(""),
        "/broken-gzip": page(gzip.compress(PAGE.encode())[:-9], **{"Content-Encoding": "gzip"}),
        "/status-500": answering(status=500),
    }  # fmt: skip


async def served(
    stack: contextlib.AsyncExitStack, folder: Path, certificates: Certificates
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Every target's URL and its own settings."""
    plain = await stack.enter_async_context(engine_server(routes()))
    found: dict[str, tuple[str, dict[str, Any]]] = {path[1:]: (plain.url(path), {}) for path in routes_of(plain)}
    found["redirects-in-a-circle"][1]["follow_redirects"] = True
    for name in ("gzip-bomb", "100-mb"):  # the default of 50 MB is in test_scrape.py
        found[name][1]["body_limit"] = "5MB"
    for name, answer in (("headers-drip", drip_headers), ("body-drips", drip_body)):
        found[name] = ((await stack.enter_async_context(raw_server(answer))).url(), {})
    for name, sent in (("not-http", b"SSH-2.0-OpenSSH_9.2\r\n"), ("hangs-up", b"")):
        found[name] = ((await stack.enter_async_context(raw_server(saying(sent)))).url(), {})
    found["nothing-listens"] = (f"http://127.0.0.1:{dead_port()}/metrics", {})
    found["no-such-name"] = ("http://nowhere.invalid:8000/metrics", {})
    ca = {"tls": {"ca_file": str(certificates.ca)}}
    for name, made, more in (
        ("certificate-expired", certificate(folder, "expired", certificates, days=-1), ca),
        ("certificate-self-signed", certificate(folder, "own", None), {}),
        ("certificate-of-another", (certificates.server, certificates.server_key), ca),
        ("authority-unknown", (certificates.server, certificates.server_key), {}),
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*made)
        found[name] = ((await stack.enter_async_context(engine_server(tls=context))).url(), more)
    return found


def routes_of(server: EngineServer) -> list[str]:
    assert server.port
    return list(routes())


def saying(sent: bytes) -> Any:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()

    return answer


def certificate(folder: Path, name: str, signed_by: Certificates | None, *, days: int = 2) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key; without ``signed_by`` it is its own authority."""
    made, key = folder / f"{name}.pem", folder / f"{name}.key"
    new = (
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        str(key),
        "-subj",
        f"/CN={name}",
    )
    if signed_by is None:
        openssl("req", "-x509", *new, "-out", str(made), "-days", str(days), "-addext", "subjectAltName=IP:127.0.0.1")
        return made, key
    request, names = folder / f"{name}.csr", folder / f"{name}.ext"
    names.write_text("subjectAltName=IP:127.0.0.1\n")
    openssl("req", *new, "-out", str(request))
    openssl(
        "x509", "-req", "-in", str(request), "-CA", str(signed_by.ca), "-CAkey", str(signed_by.ca.with_suffix(".key")),
        "-CAcreateserial", "-out", str(made), "-days", str(days), "-extfile", str(names),
    )  # fmt: skip
    return made, key


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


# -- what was seen ---------------------------------------------------------------------------------------------------


def test_the_healthy_target_never_misses_an_interval_beside_all_of_them(observed: Observed) -> None:
    mine = observed.scrapes(HEALTHY)
    assert mine["up"].all()
    assert mine.height >= ROUNDS
    assert missed(mine, INTERVAL_S) == 0
    assert observed.targets[HEALTHY]["up"]


@pytest.mark.parametrize("bad", TABLE, ids=lambda b: b.name)
def test_each_bad_target_says_what_is_wrong_with_it(observed: Observed, bad: Bad) -> None:
    shown, mine = observed.targets[bad.name], observed.scrapes(bad.name)
    assert mine.height >= (1 if bad.name in HEAVY else ROUNDS - 1), "it is tried again and again"
    assert set(mine["reason"]) == {bad.reason}
    if bad.reason:
        assert (shown["up"], bad.says in shown["error"]) == (False, True), shown["error"]
        assert observed.counted("goodwatch_scrapes_total", bad.reason) >= mine.height
    else:
        assert (shown["up"], bad.says in observed.remarks[bad.name]) == (True, True), observed.remarks[bad.name]
        assert observed.counted("goodwatch_refused_input_total", bad.refused) >= mine.height


def test_no_sentence_is_longer_than_a_person_reads(observed: Observed) -> None:
    assert {n for n, t in observed.targets.items() if len(t["error"]) > 500} == set()
    assert {n for n, text in observed.remarks.items() if len(text) > 5_000} == set()


def test_a_flapping_target_is_up_and_down_by_turns_and_each_is_counted(observed: Observed) -> None:
    reasons = list(observed.scrapes(FLAPS)["reason"])
    assert {"", "http_status"} <= set(reasons)
    assert all(a != b for a, b in itertools.pairwise(reasons))


def test_labels_that_change_each_time_cost_only_their_own_target(observed: Observed) -> None:
    mine = observed.scrapes(CHURNS)
    assert mine["up"].all()
    assert set(mine["page_samples"]) == {5_000}


def test_nothing_was_taken_for_a_bug(observed: Observed) -> None:
    assert observed.counted("goodwatch_refused_input_total", "page_bug") == 0
    assert [line for line in observed.lines if "Traceback" in line or "bug" in line] == []


# -- a name that is lost and found again -----------------------------------------------------------------------------


@pytest.fixture
async def named() -> AsyncIterator[tuple[Watch, Scraper, dict[str, bool]]]:
    """Two targets on one server, one by a name; ``known`` says whether names resolve. Connections are not kept."""
    known = {"names": True}

    def lookup(host: str, *more: Any, **options: Any) -> list[Any]:
        return to_loopback(host if known["names"] else "gone.invalid", *more, **options)

    clock, store = SystemClock(), MemoryStore()
    watch = Watch(known_engines(), store, Keeper(store, clock), clock, Terms({}, {}))

    async def take(spec: TargetSpec, fetched: Fetched) -> None:
        await watch.take(spec, fetched)

    scraper = Scraper(take, session=Session(lookup=lookup))
    async with engine_server({"/metrics": page(PAGE, Connection="close")}) as server:
        options = ScrapeOptions(interval_s=0.2, timeout_s=0.2)
        specs = [
            TargetSpec(Target("by-name", server.url(host="engine.test"), "chat"), options),
            TargetSpec(Target("by-address", server.url(), "chat"), options),
        ]
        watch.update(specs)
        scraper.update(specs)
        running_ = asyncio.create_task(scraper.run())
        yield watch, scraper, known
        await scraper.stop()
        await running_


async def until(watch: Watch, name: str, *, up: bool) -> None:
    for _ in range(1_000):
        if (last := watch.states[name].last) is not None and last.up == up:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{name} never was {'up' if up else 'down'}")


async def test_a_name_that_is_lost_is_told_and_found_again_without_a_restart(
    named: tuple[Watch, Scraper, dict[str, bool]],
) -> None:
    watch, scraper, known = named
    await until(watch, "by-name", up=True)
    known["names"] = False
    await until(watch, "by-name", up=False)
    await watch.refresh()
    lost = watch.target("by-name")
    assert lost is not None
    assert "the name engine.test cannot be resolved" in lost.error
    assert lost.models == ("tiny",), "what was known of it stays"
    assert scraper.scrapes_total["dns"] >= 1
    known["names"] = True
    await until(watch, "by-name", up=True)
    assert watch.states["by-name"].restarts == 0
    other = watch.states["by-address"].last
    assert other is not None
    assert other.up

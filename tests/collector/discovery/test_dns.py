"""DNS discovery against a real DNS server on loopback."""

import asyncio
from collections.abc import Iterator
from typing import Literal

import pytest

from collector.discovery.dns import DnsSD, Question
from collector.discovery.port import Discovery
from collector.targets import Defaults, ScrapeOptions
from tests.app.test_keeper import SetClock
from tests.support.dns_server import DnsServer, dns_server, silent_port
from tests.support.engine_server import dead_port
from tests.support.process import wait_for

pytestmark = pytest.mark.integration
ENGINE = "engine.default.svc"


@pytest.fixture
def server() -> Iterator[DnsServer]:
    with dns_server() as one:
        yield one


def discovery(
    *servers: DnsServer | int,
    names: tuple[str, ...] = (ENGINE,),
    kind: Literal["A", "AAAA", "SRV"] = "A",
    timeout_s: float = 2.0,
    clock: SetClock | None = None,
    counted: list[tuple[str, str]] | None = None,
    refresh_s: float = 30.0,
) -> DnsSD:
    ports = [one.port if isinstance(one, DnsServer) else one for one in servers]
    question = Question(names, kind, None if kind == "SRV" else 8000, tuple(("127.0.0.1", p) for p in ports), timeout_s)
    noted = counted if counted is not None else []
    return DnsSD(
        "dns_sd[0]", question, defaults=Defaults(service="chat", gpus=2, options=ScrapeOptions(interval_s=5)),
        keep_s=300, clock=clock, on_failure=lambda *failure: noted.append(failure), refresh_s=refresh_s,
    )  # fmt: skip


def names(found: Discovery) -> list[str]:
    return [spec.target.name for spec in found.targets]


async def test_addresses_become_targets_with_what_the_entry_says(server: DnsServer) -> None:
    server.put(ENGINE, "A", "10.0.0.2", "10.0.0.1")
    found = discovery(server)
    assert await found.refresh()
    assert names(found) == ["10.0.0.1:8000", "10.0.0.2:8000"]
    spec = found.targets[0]
    assert (spec.target.url, spec.target.service, spec.target.gpus) == ("http://10.0.0.1:8000/metrics", "chat", 2)
    assert spec.target.labels == {"dns_name": ENGINE}
    assert spec.options.interval_s == 5
    assert found.problems == {}


async def test_an_address_of_ip_version_6_is_put_in_brackets(server: DnsServer) -> None:
    server.put(ENGINE, "AAAA", "2001:db8::7")
    found = discovery(server, kind="AAAA")
    await found.refresh()
    assert [s.target.url for s in found.targets] == ["http://[2001:db8::7]:8000/metrics"]


async def test_a_service_record_gives_host_and_port(server: DnsServer) -> None:
    name = f"_http._tcp.{ENGINE}"
    server.put(name, "SRV", "0 50 8000 pod-0.engine.default.svc.", "0 50 8001 pod-1.engine.default.svc.")
    found = discovery(server, names=(name,), kind="SRV")
    await found.refresh()
    assert [s.target.url for s in found.targets] == [
        "http://pod-0.engine.default.svc:8000/metrics",
        "http://pod-1.engine.default.svc:8001/metrics",
    ]


async def test_a_service_that_says_it_is_not_there_has_no_targets(server: DnsServer) -> None:
    server.put(ENGINE, "SRV", "0 0 0 .")
    found = discovery(server, kind="SRV")
    assert not await found.refresh()
    assert "not available" in found.problems[ENGINE]


async def test_records_that_come_and_go_change_the_targets(server: DnsServer) -> None:
    server.put(ENGINE, "A", "10.0.0.1")
    found = discovery(server)
    await found.refresh()
    server.put(ENGINE, "A", "10.0.0.2")
    assert await found.refresh()
    assert names(found) == ["10.0.0.2:8000"]


async def test_another_order_or_time_to_live_is_no_change(server: DnsServer) -> None:
    server.put(ENGINE, "A", "10.0.0.1", "10.0.0.2")
    found = discovery(server)
    await found.refresh()
    server.put(ENGINE, "A", "10.0.0.2", "10.0.0.1")
    server.ttl_s = 86_400
    assert not await found.refresh()
    server.put(ENGINE, "A", "10.0.0.3")
    assert await found.refresh(), "a long time to live does not hide a change"


async def test_an_answer_that_does_not_fit_a_packet_comes_over_tcp(server: DnsServer) -> None:
    server.put(ENGINE, "A", *(f"10.0.{i // 250}.{i % 250 + 1}" for i in range(400)))
    found = discovery(server)
    await found.refresh()
    assert len(found.targets) == 400
    assert [transport for _, _, transport in server.asked] == ["udp", "tcp"]


async def test_a_target_that_two_names_lead_to_is_there_once(server: DnsServer) -> None:
    server.put("a.test", "A", "10.0.0.1", "10.0.0.2")
    server.put("b.test", "A", "10.0.0.2")
    found = discovery(server, names=("a.test", "b.test"))
    await found.refresh()
    assert names(found) == ["10.0.0.1:8000", "10.0.0.2:8000"]
    assert found.targets[1].target.labels == {"dns_name": "a.test"}


@pytest.mark.parametrize(
    ("rcode", "reason", "says"),
    [
        ("NXDOMAIN", "nxdomain", "does not exist (NXDOMAIN)"),
        ("SERVFAIL", "refused_or_failed", "SERVFAIL"),
        ("REFUSED", "refused_or_failed", "REFUSED"),
    ],
)
async def test_a_bad_answer_keeps_the_last_targets_for_five_minutes_and_then_drops_them(
    server: DnsServer, rcode: str, reason: str, says: str
) -> None:
    server.put(ENGINE, "A", "10.0.0.1")
    clock, counted = SetClock(1_000.0), list[tuple[str, str]]()
    found = discovery(server, clock=clock, counted=counted)
    await found.refresh()
    server.rcode = rcode
    clock.at_s += 299
    assert not await found.refresh()
    assert names(found) == ["10.0.0.1:8000"]
    assert says in found.problems[ENGINE]
    assert "stay for another 1 s" in found.problems[ENGINE]
    clock.at_s += 1
    assert await found.refresh()
    assert names(found) == []
    assert "dropped after 300 s" in found.problems[ENGINE]
    assert counted == [("dns_sd[0]", reason)] * 2
    assert found.failures_total == {reason: 2}
    server.rcode = "NOERROR"
    assert await found.refresh()
    assert found.problems == {}


async def test_a_name_without_records_of_the_kind_says_so(server: DnsServer) -> None:
    server.put(ENGINE, "AAAA", "2001:db8::7")
    found = discovery(server)
    await found.refresh()
    assert found.problems[ENGINE] == f"{ENGINE} exists and has no A records"


async def test_a_server_that_does_not_answer_costs_no_more_than_the_time_out(server: DnsServer) -> None:
    server.put(ENGINE, "A", "10.0.0.1")
    found = discovery(server, timeout_s=0.4)
    await found.refresh()
    server.silent = True
    async with asyncio.timeout(3):
        assert not await found.refresh()
    assert names(found) == ["10.0.0.1:8000"]
    assert "within 0.4 s" in found.problems[ENGINE]
    assert found.failures_total == {"timeout": 1}


async def test_one_dead_name_does_not_hold_up_the_others(server: DnsServer) -> None:
    server.put("good.test", "A", "10.0.0.1")
    found = discovery(server, names=("bad.test", "good.test"))
    await found.refresh()
    assert names(found) == ["10.0.0.1:8000"]
    assert list(found.problems) == ["bad.test"]


async def test_a_second_server_answers_where_the_first_is_silent_or_not_there(server: DnsServer) -> None:
    server.put(ENGINE, "A", "10.0.0.1")
    held, silent = silent_port()
    with held:
        found = discovery(silent, server, timeout_s=2)
        await found.refresh()
        assert names(found) == ["10.0.0.1:8000"], found.problems
    found = discovery(dead_port(), server, timeout_s=2)
    await found.refresh()
    assert names(found) == ["10.0.0.1:8000"], found.problems


async def test_running_tells_of_changes_only(server: DnsServer) -> None:
    server.put(ENGINE, "A", "10.0.0.1")
    told: asyncio.Queue[list[str]] = asyncio.Queue()
    found = discovery(server, refresh_s=0.01)
    run = asyncio.create_task(found.run(lambda specs: told.put_nowait([s.target.name for s in specs])))
    try:
        async with asyncio.timeout(10):
            assert await told.get() == ["10.0.0.1:8000"]
            seen = len(server.asked)
            await asyncio.to_thread(wait_for, lambda: len(server.asked) >= seen + 3, 5)
            assert told.empty()
            server.put(ENGINE, "A", "10.0.0.1", "10.0.0.2")
            assert await told.get() == ["10.0.0.1:8000", "10.0.0.2:8000"]
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

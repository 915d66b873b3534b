"""What is acknowledged is committed; what cannot be kept is refused so that it comes again."""

import asyncio

import pytest

from collector.otlp.answers import PROTOBUF
from collector.otlp.kinds import TRACES
from collector.otlp.seams import Limits
from goodwatch.core.errors import StoreError
from tests.collector.otlp.bodies import framed, member, spans_of
from tests.support.otlp_receiver import calling, posting, receiving, until
from tests.support.otlp_spans import PlainMapper, numbered, request, span
from tests.support.otlp_store import MemoryParts

pytestmark = pytest.mark.integration


class HandClock:
    """Time that moves when the test says so."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def now_s(self) -> float:
        return 1796037435.0

    def monotonic_s(self) -> float:
        return self.at_s


async def test_no_answer_before_the_commit() -> None:
    store = MemoryParts()
    store.pause()
    async with receiving(store) as receiver:
        sent = asyncio.create_task(status_of(receiver, numbered(0, 3)))
        await asyncio.to_thread(store.entered.wait, 10)
        assert not sent.done()
        assert receiver.counts.held_bodies == 1
        store.resume()
        assert await sent == 200
        assert len(store.identities()) == 3


async def status_of(receiver: object, sent: object) -> int:
    async with posting(receiver, sent.SerializeToString()) as response:
        return response.status


async def test_requests_that_come_during_a_commit_share_the_next_one() -> None:
    store = MemoryParts()
    store.pause()
    async with receiving(store) as receiver:
        first = asyncio.create_task(status_of(receiver, numbered(0, 2)))
        await asyncio.to_thread(store.entered.wait, 10)
        others = [asyncio.create_task(status_of(receiver, numbered(10 * k, 2))) for k in range(1, 6)]
        await until(lambda: receiver.counts.held_bodies == 6)
        store.resume()
        assert await asyncio.gather(first, *others) == [200] * 6
        assert sum(store.groups) == 6
        assert len(store.groups) < 6
        counts = receiver.counts
        assert (counts.rows, counts.accepted_spans, counts.commits) == (12, 12, len(store.groups))


async def test_a_repeated_request_is_acknowledged_and_counted_as_repeated() -> None:
    store = MemoryParts()
    async with receiving(store) as receiver:
        assert [await status_of(receiver, numbered(0, 3)) for _ in range(2)] == [200, 200]
        assert len(store.identities()) == 3
        assert receiver.counts.repeated_rows == 3


async def test_a_store_that_fails_acknowledges_nothing_and_asks_for_another_try() -> None:
    store = MemoryParts()
    store.fault = StoreError("requests.db: the disk is full; make room")
    async with receiving(store) as receiver:
        async with posting(receiver, numbered(0, 3).SerializeToString()) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "2")
            assert b"the disk is full" in await response.read()
        assert receiver.counts.accepted_spans == 0
        store.fault = None
        assert await status_of(receiver, numbered(0, 3)) == 200
        assert receiver.counts.accepted_spans == 3


async def test_a_fault_of_ours_is_told_apart_and_harms_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(PlainMapper):
        def parts(self, sent: object, received_s: float) -> object:
            if spans_of(sent)[0].name == "bad luck":
                raise ZeroDivisionError
            return super().parts(sent, received_s)

    async with receiving(mapper=Faulty()) as receiver:
        assert await status_of(receiver, request([span(1, name="bad luck")])) == 500
        assert await status_of(receiver, numbered(0, 3)) == 200
    assert "ZeroDivisionError" in caplog.text


async def test_too_many_bytes_in_work_are_refused_at_once_and_later_taken() -> None:
    store = MemoryParts()
    store.pause()
    body = numbered(0, 10)
    size = len(body.SerializeToString())
    async with receiving(store, limits=Limits(queue_bytes=size * 3 // 2)) as receiver:
        first = asyncio.create_task(status_of(receiver, body))
        await until(lambda: receiver.counts.held_bodies == 1)
        assert receiver.counts.held_bytes == size
        async with posting(receiver, numbered(20, 10).SerializeToString()) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert receiver.counts.held_bytes == size
        store.resume()
        assert await first == 200
        assert await status_of(receiver, numbered(20, 10)) == 200
        assert receiver.counts.held_bytes == 0


async def test_many_senders_never_hold_more_than_the_limit_and_all_get_through_in_the_end() -> None:
    store = MemoryParts()
    store.pause()
    limit = 20_000
    most = 0

    async def deliver(k: int) -> int:
        nonlocal most
        tries = 0
        while True:
            tries += 1
            status = await status_of(receiver, numbered(10 * k, 10))  # of some 6,500 bytes
            most = max(most, receiver.counts.held_bytes)
            if status == 200:
                return tries
            assert status == 429
            await asyncio.sleep(0.02)

    async with receiving(store, limits=Limits(queue_bytes=limit)) as receiver:
        sending = [asyncio.create_task(deliver(k)) for k in range(12)]
        await until(lambda: receiver.counts.requests.get(("traces", "http", PROTOBUF, "overloaded"), 0) >= 12)
        store.resume()
        tries = await asyncio.gather(*sending)
    assert max(tries) > 1
    assert 0 < most <= limit
    assert len(store.identities()) == 120


async def test_a_body_of_unknown_length_is_counted_from_its_first_byte() -> None:
    async def pieces() -> object:
        for _ in range(50):
            yield bytes(1000)

    async with receiving(limits=Limits(queue_bytes=20_000)) as receiver:
        async with posting(receiver, pieces()) as response:
            assert response.status == 429
        assert receiver.counts.held_bytes == 0


async def test_when_the_oldest_waits_too_long_new_ones_are_refused() -> None:
    store, clock = MemoryParts(), HandClock()
    store.pause()
    async with receiving(store, clock=clock) as receiver:
        first = asyncio.create_task(status_of(receiver, numbered(0, 1)))
        await until(lambda: receiver.counts.held_bodies == 1)
        clock.at_s += 6
        assert receiver.counts.oldest_s == 6
        assert await status_of(receiver, numbered(1, 1)) == 429
        store.resume()
        assert await first == 200


@pytest.mark.parametrize(
    ("agent", "status"),
    [
        ("OTel-OTLP-Exporter-Python/1.26.0", 503),  # what vLLM 0.8.5 uses: drops its data at 429
        ("OTel-OTLP-Exporter-Python/1.44.0", 503),
        ("OTel-OTLP-Exporter-Python/1.45.2", 429),
        ("OpenTelemetry Collector Contrib/0.139.0 (linux/amd64)", 429),
    ],
)
async def test_a_sender_that_drops_data_at_429_is_told_503(agent: str, status: int) -> None:
    async with (
        receiving(limits=Limits(queue_bytes=10)) as receiver,
        posting(receiver, numbered(0, 1).SerializeToString(), User_Agent=agent) as response,
    ):
        assert (response.status, response.headers["Retry-After"]) == (status, "1")


async def test_what_is_wrong_in_a_batch_is_counted_and_the_rest_is_kept() -> None:
    store = MemoryParts()
    bad = [span(1, trace_id=bytes(16)), span(2, span_id=b"short"), span(3, trace_id=b"")]
    pieces = [one.SerializeToString() for one in (span(0), *bad)]
    pieces += [
        span(4).SerializeToString()[:-2],
        span(5).SerializeToString() + member(9, member(1, b"k") + b"\x12\x02\x0a"),
    ]
    async with receiving(store) as receiver:
        async with posting(receiver, framed(*pieces)) as response:
            assert response.status == 200
            said = TRACES.response.FromString(await response.read()).partial_success
        counts = receiver.counts
    # two ids of zeros or none, one short one, one span that ends in the middle; one value that does
    assert counts.refused == {("traces", "bad_trace_id"): 2, ("traces", "bad_span_id"): 1, ("traces", "malformed"): 1}
    assert counts.omitted == {("traces", "malformed"): 1}
    assert said.rejected_spans == 4
    assert said.error_message == "refused 1 × bad_span_id, 2 × bad_trace_id, 1 × malformed; kept without 1 × malformed"
    assert counts.accepted_spans == 6
    assert [identity[1][-1] for identity in sorted(store.identities())] == ["1", "6"]


async def test_logs_on_the_path_of_traces_are_refused_as_a_whole() -> None:
    # a LogRecord parses as a Span without ids: their field numbers coincide (langfuse issue 15707)
    async with receiving() as receiver:
        async with posting(receiver, framed(b"\x0b\x0c", b"\x2a\x03\x0a\x01x")) as response:
            assert response.status == 400
            assert b"logs or metrics" in await response.read()
        assert receiver.counts.accepted_spans == 0


async def test_what_comes_beside_the_spans_is_kept_before_the_answer() -> None:
    seen: list[int] = []

    def keep() -> None:
        raise StoreError("scores cannot be kept")

    def look(sent: object, _: float) -> object:
        seen.append(len(spans_of(sent)))
        return keep if len(spans_of(sent)) == 2 else None

    store = MemoryParts()
    async with receiving(store, beside=look) as receiver:
        assert await status_of(receiver, numbered(0, 2)) == 503
        assert store.identities() == set()
        assert await status_of(receiver, numbered(0, 1)) == 200
    assert seen == [2, 1]


async def test_a_caller_that_hangs_up_leaves_nothing_behind() -> None:
    store = MemoryParts()
    store.pause()
    async with receiving(store) as receiver, calling(receiver) as export:
        call = export(numbered(0, 3).SerializeToString(), timeout=20)
        await until(lambda: receiver.counts.held_bodies == 1)
        call.cancel()
        await until(lambda: receiver.counts.held_bodies == 0)
        store.resume()
        await export(numbered(10, 3).SerializeToString(), timeout=20)
        assert receiver.counts.held_bytes == 0
        assert len(store.identities()) == 6


async def test_stopping_finishes_what_was_begun() -> None:
    store = MemoryParts()
    store.pause()
    async with receiving(store) as receiver:
        sent = asyncio.create_task(status_of(receiver, numbered(0, 3)))
        await until(lambda: receiver.counts.held_bodies == 1)
        asyncio.get_running_loop().call_later(0.1, store.resume)
    assert await sent == 200

"""Everything goes on to one more place, untouched, and its outage is nobody's trouble."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from collector.otlp.answers import JSON, PROTOBUF
from collector.otlp.forward import ForwardTo
from tests.support.otlp_receiver import calling, posting, receiving, until
from tests.support.otlp_spans import numbered

pytestmark = pytest.mark.integration

BODY = numbered(0, 3).SerializeToString()


class Downstream:
    """An OTLP/HTTP endpoint that answers with the statuses it is told, the last one for ever."""

    def __init__(self, statuses: Sequence[int] = (200,)) -> None:
        self.statuses = list(statuses)
        self.came: list[tuple[str, str, str | None, str | None, bytes]] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        given = request.headers
        seen = (request.path, given["Content-Type"], given.get("Content-Encoding"), given.get("X-Key"))
        self.came.append((*seen, await request.read()))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return web.Response(status=status, headers={"Retry-After": "0"} if status == 503 else {})

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[ForwardTo]:
        server = web.Server(self.answer, auto_decompress=False)
        sockets = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
        port = sockets.sockets[0].getsockname()[1]
        try:
            yield ForwardTo(f"http://127.0.0.1:{port}/", headers=(("X-Key", "secret"),), timeout_s=5)
        finally:
            sockets.close()
            await server.shutdown(1)


async def test_bodies_go_on_byte_for_byte() -> None:
    there = Downstream()
    packed = gzip.compress(BODY)
    async with there.listening() as to, receiving(forward=to) as receiver:
        async with posting(receiver, packed, Content_Encoding="gzip"):
            pass
        async with posting(receiver, b'{"resourceLogs": []}', path="/v1/logs", media=JSON):
            pass
        async with calling(receiver) as export:
            await export(BODY, timeout=10)
        await until(lambda: receiver.forwarded is not None and receiver.forwarded.sent == 3)
    assert sorted(there.came, key=str) == sorted(
        [
            ("/v1/traces", PROTOBUF, "gzip", "secret", packed),
            ("/v1/logs", JSON, None, "secret", b'{"resourceLogs": []}'),
            ("/v1/traces", PROTOBUF, None, "secret", BODY),
        ],
        key=str,
    )


async def test_what_was_refused_here_does_not_go_on() -> None:
    there = Downstream()
    async with there.listening() as to, receiving(forward=to) as receiver:
        async with posting(receiver, b"\xff"):
            pass
        async with posting(receiver, BODY):
            pass
        await until(lambda: len(there.came) == 1)
    assert there.came[0][4] == BODY


async def test_what_can_be_sent_again_is() -> None:
    there = Downstream([503, 503, 200])
    async with there.listening() as to, receiving(forward=to) as receiver:
        async with posting(receiver, BODY) as response:
            assert response.status == 200
        await until(lambda: receiver.forwarded is not None and receiver.forwarded.sent == 1)
        assert receiver.forwarded is not None
        assert (receiver.forwarded.retries, receiver.forwarded.lost) == (2, {})
    assert len(there.came) == 3


async def test_a_no_is_counted_and_not_repeated() -> None:
    there = Downstream([404])
    async with there.listening() as to, receiving(forward=to) as receiver:
        async with posting(receiver, BODY):
            pass
        await until(lambda: receiver.forwarded is not None and receiver.forwarded.lost == {"refused_404": 1})


async def test_an_outage_fills_the_queue_to_its_limit_and_harms_nobody(free_port: int) -> None:
    to = ForwardTo(f"http://127.0.0.1:{free_port}", queue_bytes=3 * len(BODY), senders=1)
    async with receiving(forward=to) as receiver:
        for k in range(6):
            async with posting(receiver, numbered(10 * k, 3).SerializeToString()) as response:
                assert response.status == 200
        counts = receiver.forwarded
        assert counts is not None
        assert counts.lost["queue_full"] >= 3
        assert counts.queued_bytes <= to.queue_bytes
        assert receiver.counts.rows == 18
    assert receiver.forwarded is not None
    assert sum(receiver.forwarded.lost.values()) == 6  # stopping counts what still waited

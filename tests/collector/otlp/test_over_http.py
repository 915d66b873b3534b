"""OTLP over HTTP, as the specification lists it: types, encodings, errors, limits, connections."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from collector.otlp.answers import JSON, PROTOBUF
from collector.otlp.receiver import OtlpReceiver
from collector.otlp.seams import Limits
from tests.collector.otlp.bodies import RECORDED, recorded
from tests.support.otlp_json import otlp_json
from tests.support.otlp_receiver import posting, receiving, until
from tests.support.otlp_spans import numbered
from tests.support.otlp_store import MemoryParts

pytestmark = pytest.mark.integration

BODY = numbered(0, 3).SerializeToString()


@asynccontextmanager
async def connected(receiver: OtlpReceiver) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", receiver.http_port)
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


def head(length: int, *more: str) -> bytes:
    lines = ["POST /v1/traces HTTP/1.1", "Host: x", f"Content-Type: {PROTOBUF}", f"Content-Length: {length}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


async def answered(reader: asyncio.StreamReader) -> int:
    """Status of the next response; its body is read and dropped."""
    lines = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode().split("\r\n")
    length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length")), 0)
    await reader.readexactly(length)
    return int(lines[0].split()[1])


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("media", [PROTOBUF, JSON])
async def test_what_real_engines_sent_is_kept(name: str, media: str) -> None:
    store = MemoryParts()
    spans, trace_id = RECORDED[name]
    body = recorded(name)
    if media == JSON:
        from collector.otlp.kinds import TRACES

        body = otlp_json(TRACES.request.FromString(body))
    async with receiving(store) as receiver, posting(receiver, body, media=media) as response:
        assert (response.status, response.content_type) == (200, media)
        assert await response.read() == (b"{}" if media == JSON else b"")  # all kept: partial_success stays unset
    assert len(store.identities()) == spans
    assert store.frames[0]["trace_id"][0] == trace_id


@pytest.mark.parametrize("media", [PROTOBUF, JSON, "application/json; charset=utf-8"])
async def test_an_empty_request_is_fine(media: str) -> None:
    body = b"" if media == PROTOBUF else b"{}"
    async with receiving() as receiver, posting(receiver, body, media=media) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", gzip.compress(BODY)), ("deflate", zlib.compress(BODY)), ("identity", BODY), ("GZIP", gzip.compress(BODY))],
)  # fmt: skip
async def test_compressed_bodies(encoding: str, body: bytes) -> None:
    store = MemoryParts()
    async with receiving(store) as receiver, posting(receiver, body, Content_Encoding=encoding) as response:
        assert response.status == 200
    assert len(store.identities()) == 3


REFUSALS: list[tuple[int, dict[str, Any]]] = [
    (400, {"data": b"\xff\xff"}),
    (400, {"data": b"{", "media": JSON}),
    (400, {"data": b"no gzip", "Content_Encoding": "gzip"}),
    (401, {"data": BODY, "Authorization": "Bearer wrong"}),
    (404, {"data": BODY, "path": "/v1/profiles"}),
    (413, {"data": bytes(20_001)}),
    (413, {"data": gzip.compress(bytes(2_000_000)), "Content_Encoding": "gzip"}),
    (415, {"data": BODY, "media": "text/plain"}),
    (415, {"data": BODY, "Content_Encoding": "zstd"}),
    (400, {"data": b"[]", "media": JSON}),
    (415, {"data": b"{}", "media": JSON, "Content_Encoding": "br"}),
    (404, {"data": b"{}", "media": JSON, "path": "/"}),
]


@pytest.mark.parametrize(("status", "sent"), REFUSALS)
async def test_every_error_is_a_status_in_the_encoding_of_the_request(status: int, sent: dict[str, Any]) -> None:
    limits = Limits(body_bytes=20_000)
    token = {"Authorization": "Bearer right"}
    async with (
        receiving(limits=limits, authorised="right".__eq__) as receiver,
        posting(receiver, **{**token, **sent}) as response,
    ):
        assert response.status == status
        body = await response.read()
        if sent.get("media", PROTOBUF) == PROTOBUF:
            assert response.content_type == PROTOBUF
            told = Status.FromString(body)
            code, message = told.code, told.message
        else:
            assert response.content_type == JSON
            code, message = json.loads(body)["code"], json.loads(body)["message"]
        assert code != 0
        assert len(message) > 20
        assert "Retry-After" not in response.headers
        assert "Python" not in response.headers["Server"]


async def test_overload_carries_the_delay_in_header_and_body() -> None:
    async with receiving(limits=Limits(queue_bytes=10)) as receiver, posting(receiver, BODY) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
        (detail,) = Status.FromString(await response.read()).details
        retry = RetryInfo()
        assert detail.Unpack(retry)
        assert retry.retry_delay.seconds == 1


async def test_partial_success_in_json_writes_counts_as_text() -> None:
    sent = {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz"}, *_json_spans(2)]}]}]}
    async with receiving() as receiver, posting(receiver, json.dumps(sent), media=JSON) as response:
        said = json.loads(await response.read())["partialSuccess"]
    assert said == {"rejectedSpans": "1", "errorMessage": "refused 1 × bad_id"}  # ProtoJSON: int64 is text


def _json_spans(count: int) -> list[dict[str, str]]:
    return [{"traceId": f"{k + 1:032x}", "spanId": f"{k + 1:016X}"} for k in range(count)]


async def test_only_post_is_for_these_paths() -> None:
    async with receiving() as receiver, connected(receiver) as (reader, writer):
        writer.write(b"GET /v1/traces HTTP/1.1\r\nHost: x\r\n\r\n")
        text = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert text.startswith("HTTP/1.1 405")
        assert "Allow: POST" in text


async def test_without_a_token_nothing_is_read() -> None:
    async with receiving(authorised="right".__eq__) as receiver:
        async with posting(receiver, BODY) as response:
            assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
        async with posting(receiver, BODY, Authorization="Basic right") as response:
            assert response.status == 401
        async with posting(receiver, BODY, Authorization="bearer right") as response:
            assert response.status == 200
        assert receiver.counts.bytes == {"http": len(BODY)}


async def test_a_connection_serves_many_requests() -> None:
    store = MemoryParts()
    async with receiving(store) as receiver, connected(receiver) as (reader, writer):
        for k in range(5):
            body = numbered(10 * k, 2).SerializeToString()
            writer.write(head(len(body)) + body)
            assert await answered(reader) == 200
        writer.write(head(3) + b"\xff\xff\xff")  # an error does not end it either
        assert await answered(reader) == 400
        writer.write(head(len(BODY)) + BODY)
        assert await answered(reader) == 200
    assert len(store.identities()) == 11  # 5 × 2, and 3 of which 2 were known


async def test_many_senders_at_once() -> None:
    store = MemoryParts()

    async def send(k: int) -> int:
        async with posting(receiver, numbered(10 * k, 10).SerializeToString()) as response:
            return response.status

    async with receiving(store) as receiver:
        assert set(await asyncio.gather(*(send(k) for k in range(40)))) == {200}
    assert len(store.identities()) == 400


async def test_a_sender_that_asks_first_is_told_to_go_on_or_not() -> None:
    async with receiving(limits=Limits(body_bytes=10_000)) as receiver:
        async with connected(receiver) as (reader, writer):
            writer.write(head(len(BODY), "Expect: 100-continue"))
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(BODY)
            assert await answered(reader) == 200
        async with connected(receiver) as (reader, writer):
            writer.write(head(10_001, "Expect: 100-continue"))
            assert await answered(reader) == 413


async def test_a_body_that_never_ends_is_given_up_and_gives_its_room_back() -> None:
    limits = Limits(body_timeout_s=0.3)
    async with receiving(limits=limits) as receiver, connected(receiver) as (reader, writer):
        writer.write(head(1000) + b"x" * 10)
        await until(lambda: receiver.counts.held_bytes == 10)
        assert await answered(reader) == 408
        assert receiver.counts.held_bytes == 0


async def test_a_sender_that_hangs_up_in_the_middle_leaves_nothing_behind() -> None:
    async with receiving() as receiver:
        async with connected(receiver) as (_, writer):
            writer.write(head(1000) + b"x" * 10)
            await until(lambda: receiver.counts.held_bytes == 10)
        await until(lambda: receiver.counts.held_bytes == 0)
        assert receiver.counts.rows == 0


async def test_what_is_no_http_is_not_logged_with_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    async with receiving() as receiver, connected(receiver) as (reader, writer):
        writer.write(b"POST /v1/traces HTTP/1.1\r\nsecret prompt \x00\x01\r\n\r\n")
        assert await answered(reader) == 400
    assert "secret" not in caplog.text


async def test_requests_are_counted_by_kind_transport_type_and_answer() -> None:
    async with receiving() as receiver:
        for sent in ({"data": BODY}, {"data": b"{}", "media": JSON, "path": "/v1/logs"}, {"data": b"\xff"}):
            async with posting(receiver, **sent):
                pass
        assert receiver.counts.requests == {
            ("traces", "http", PROTOBUF, "ok"): 1,
            ("logs", "http", JSON, "ok"): 1,
            ("traces", "http", PROTOBUF, "bad"): 1,
        }
        assert receiver.counts.bytes == {"http": len(BODY) + 3}

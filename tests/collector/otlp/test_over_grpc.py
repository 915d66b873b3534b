"""OTLP over gRPC: codes, retry delays, limits."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from collector.otlp.kinds import LOGS, METRICS, TRACES
from collector.otlp.seams import Limits
from goodwatch.core.errors import StoreError
from tests.collector.otlp.bodies import RECORDED, framed, member, recorded
from tests.support.otlp_receiver import calling, receiving, until
from tests.support.otlp_spans import numbered, span
from tests.support.otlp_store import MemoryParts

pytestmark = pytest.mark.integration

BODY = numbered(0, 3).SerializeToString()


async def failure(call: Any) -> tuple[grpc.StatusCode, int | None, str]:
    """Code, seconds of RetryInfo (None without one) and message of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = caught.value
    trailer = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    retry = RetryInfo()
    details = Status.FromString(trailer).details if trailer else ()
    told = any(detail.Unpack(retry) for detail in details)
    return error.code(), retry.retry_delay.seconds if told else None, error.details() or ""


@pytest.mark.parametrize("name", RECORDED)
async def test_what_real_engines_sent_is_kept(name: str) -> None:
    store = MemoryParts()
    async with receiving(store) as receiver, calling(receiver) as export:
        assert await export(recorded(name), timeout=10) == b""
    assert len(store.identities()) == RECORDED[name][0]


async def test_gzip_and_an_empty_request() -> None:
    store = MemoryParts()
    async with receiving(store) as receiver, calling(receiver) as export:
        await export(BODY, timeout=10, compression=grpc.Compression.Gzip)
        await export(b"", timeout=10)
    assert len(store.identities()) == 3


async def test_a_damaged_message_is_salvaged_and_told_of() -> None:
    bad = span(1).SerializeToString() + member(9, member(1, b"k") + member(2, member(1, b"caf\xe9")))
    store = MemoryParts()
    async with receiving(store) as receiver, calling(receiver) as export:
        answer = await export(framed(bad, span(2, span_id=b"").SerializeToString()), timeout=10)
    said = TRACES.response.FromString(answer).partial_success
    assert said.rejected_spans == 1
    assert said.error_message == "refused 1 × bad_span_id; kept without 1 × invalid_utf8"
    assert len(store.identities()) == 1


async def test_bad_data_is_never_sent_again() -> None:
    async with receiving() as receiver, calling(receiver) as export:
        assert (await failure(export(b"\xff\xff", timeout=10)))[:2] == (grpc.StatusCode.INVALID_ARGUMENT, None)


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
async def test_an_oversize_message_is_exhausted_without_retry_info(compression: grpc.Compression | None) -> None:
    async with receiving(limits=Limits(body_bytes=10_000)) as receiver, calling(receiver) as export:
        for _ in range(2):
            found = await failure(export(bytes(300_000), timeout=10, compression=compression))
            assert found[:2] == (grpc.StatusCode.RESOURCE_EXHAUSTED, None)
        await export(BODY, timeout=10)
        await until(lambda: sum(receiver.counts.requests.values()) == 3)
        assert receiver.counts.requests["traces", "grpc", "application/x-protobuf", "too_large"] == 2


async def test_overload_is_exhausted_with_retry_info() -> None:
    store = MemoryParts()
    store.pause()
    async with receiving(store, limits=Limits(queue_bytes=len(BODY))) as receiver, calling(receiver) as export:
        first = asyncio.ensure_future(export(BODY, timeout=10))
        await until(lambda: receiver.counts.held_bodies == 1)
        assert (await failure(export(BODY, timeout=10)))[:2] == (grpc.StatusCode.RESOURCE_EXHAUSTED, 1)
        store.resume()
        await first


async def test_messages_that_find_no_reader_are_asked_to_come_again() -> None:
    limits = Limits(grpc_readers=1, queue_age_s=0.2)
    async with receiving(limits=limits) as receiver, calling(receiver) as export:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{receiver.grpc_port}")
        slow = channel.stream_unary(f"/{TRACES.service}/Export", request_serializer=None, response_deserializer=None)()
        await slow.wait_for_connection()
        await asyncio.sleep(0.05)  # nothing tells when the call has reached the server
        code, retry_s, text = await failure(export(BODY, timeout=10))
        assert (code, retry_s) == (grpc.StatusCode.RESOURCE_EXHAUSTED, 1)
        assert "being read" in text
        slow.cancel()
        await channel.close()
        await export(BODY, timeout=10)


async def test_a_message_that_does_not_come_is_given_up() -> None:
    async with receiving(limits=Limits(body_timeout_s=0.2)) as receiver:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{receiver.grpc_port}")
        call = channel.stream_unary(f"/{TRACES.service}/Export", request_serializer=None, response_deserializer=None)()
        assert (await failure(call))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        await channel.close()


async def test_a_store_that_fails_is_unavailable_with_a_delay() -> None:
    store = MemoryParts()
    store.fault = StoreError("the disk is full")
    async with receiving(store) as receiver, calling(receiver) as export:
        code, retry_s, text = await failure(export(BODY, timeout=10))
        assert (code, retry_s) == (grpc.StatusCode.UNAVAILABLE, 2)
        assert "the disk is full" in text


async def test_a_token_is_asked_for() -> None:
    async with receiving(authorised="right".__eq__) as receiver, calling(receiver) as export:
        assert (await failure(export(BODY, timeout=10)))[0] is grpc.StatusCode.UNAUTHENTICATED
        assert await export(BODY, timeout=10, metadata=(("authorization", "Bearer right"),)) == b""


async def test_logs_and_metrics_have_their_services() -> None:
    async with receiving() as receiver:
        for kind in (LOGS, METRICS):
            async with calling(receiver, kind.service) as export:
                assert await export(b"", timeout=10) == b""
        async with calling(receiver, "opentelemetry.proto.collector.profiles.v1.ProfilesService") as export:
            assert (await failure(export(b"", timeout=10)))[0] is grpc.StatusCode.UNIMPLEMENTED


async def test_many_calls_on_one_connection() -> None:
    store = MemoryParts()
    async with receiving(store) as receiver, calling(receiver) as export:
        await asyncio.gather(*(export(numbered(10 * k, 10).SerializeToString(), timeout=20) for k in range(60)))
    assert len(store.identities()) == 600

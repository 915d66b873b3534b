"""A receiver as a test needs it: on loopback, on free ports, over a store in memory; or as a process over a file.

``python -m tests.support.otlp_receiver FILE HTTP_PORT GRPC_PORT`` listens until it is killed and
prints "ready HTTP_PORT GRPC_PORT" (0 takes a free one).
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import duckdb
import grpc
import grpc.aio

from collector.otlp.answers import PROTOBUF
from collector.otlp.kinds import TRACES
from collector.otlp.receiver import Listening, OtlpReceiver
from collector.otlp.seams import Limits, Seams
from tests.support.otlp_spans import PlainMapper
from tests.support.otlp_store import MemoryParts

LOOPBACK = Listening(("127.0.0.1", 0), ("127.0.0.1", 0))


@asynccontextmanager
async def receiving(store: Any = None, *, limits: Limits = Limits(), **more: Any) -> AsyncIterator[OtlpReceiver]:  # noqa: B008
    """A receiver; ``more`` goes to its seams, but for ``clock`` and ``forward``."""
    rest = {name: more.pop(name) for name in ("clock", "forward", "listening") if name in more}
    seams = Seams(more.pop("mapper", PlainMapper()), store if store is not None else MemoryParts(), **more)
    async with OtlpReceiver(seams, rest.pop("listening", LOOPBACK), limits=limits, **rest) as receiver:
        yield receiver


@asynccontextmanager
async def posting(
    receiver: OtlpReceiver, data: Any, *, path: str = "/v1/traces", media: str = PROTOBUF, **headers: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """One POST; headers are given with underscores."""
    sent = {"Content-Type": media} | {name.replace("_", "-"): text for name, text in headers.items()}
    url = f"http://127.0.0.1:{receiver.http_port}{path}"
    async with aiohttp.ClientSession() as session, session.post(url, data=data, headers=sent) as response:
        yield response


@asynccontextmanager
async def calling(receiver: OtlpReceiver, service: str = TRACES.service) -> AsyncIterator[Any]:
    """Export over gRPC: bytes in, bytes out."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{receiver.grpc_port}") as channel:
        yield channel.unary_unary(f"/{service}/Export", request_serializer=None, response_deserializer=None)


async def until(ask: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(timeout_s):
        while not ask():  # noqa: ASYNC110 (what is waited for has no event of its own)
            await asyncio.sleep(0.005)


def identities(path: Path) -> list[tuple[str, str]]:
    """Trace and span ids of all rows in the store of a process that is gone, as they lie in the file."""
    with duckdb.connect(str(path)) as connection:
        return connection.execute("select trace_id, span_id from parts").fetchall()


async def serve(path: Path, http_port: int, grpc_port: int) -> None:
    """Listen, with the mapper and the store of the product, until the process is killed."""
    from collector.spans.known import known_tables
    from collector.spans.mapper import Mapper
    from collector.stores.duckdb_requests import DuckDBRequestStore

    listening = Listening(("127.0.0.1", http_port), ("127.0.0.1", grpc_port))
    seams = Seams(Mapper(known_tables().values()), DuckDBRequestStore(path))
    async with OtlpReceiver(seams, listening) as receiver:
        print(f"ready {receiver.http_port} {receiver.grpc_port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))

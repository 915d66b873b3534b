"""OTLP over gRPC: the Export methods of the three services, over bytes, so that damaged messages can be salvaged.

The methods are served as if the sender streamed (on the wire that is the same): the message is read when there is
room for it, and not before the method is called.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from collector.otlp.answers import PROTOBUF, Answer, Code, RefusedError, grpc_body, status_of
from collector.otlp.decoding import Body
from collector.otlp.inflate import over
from collector.otlp.intake import Intake
from collector.otlp.kinds import KINDS, Kind
from collector.otlp.room import Place
from goodwatch.core.errors import ConfigError

#: answers by their number, as grpc wants them
_STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}

#: a connection is closed politely after this long, so that load balancers can spread senders anew
_CONNECTION_AGE_S: Final = 1800
_CONNECTION_GRACE_S: Final = 30
#: how often a sender may ask whether the connection is alive
_PING_INTERVAL_S: Final = 10

Export = Callable[[object, Any], Awaitable[bytes]]


def grpc_server(intake: Intake, host: str, port: int) -> tuple[Any, int]:
    """A ``grpc.aio`` server that is not started yet, and its port. Raises ``ConfigError`` when the address is taken."""
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),  # else a second goodwatch would quietly share the port
            ("grpc.max_receive_message_length", intake.limits.body_bytes),
            ("grpc.max_connection_age_ms", _CONNECTION_AGE_S * 1000),
            ("grpc.max_connection_age_grace_ms", _CONNECTION_GRACE_S * 1000),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_INTERVAL_S * 1000),
            ("grpc.keepalive_permit_without_calls", 1),
        ]
    )
    door = _Door(intake)
    for kind in KINDS:
        method = grpc.stream_unary_rpc_method_handler(door.export(kind))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(kind.service, {"Export": method}),))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        return server, server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(
            f"otlp.grpc: {address}: cannot be listened on; choose another address, or stop what holds the port"
        ) from error


class _Door:
    """Answers calls one by one."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._readers = asyncio.Semaphore(intake.limits.grpc_readers)

    def export(self, kind: Kind) -> Export:
        """The method of one service."""

        async def export(_: object, context: Any) -> bytes:
            body, answer = await self._taken(kind, context)
            self._intake.seen(body, answer)
            if answer.ok:
                return grpc_body(kind, answer)
            trailer = (("grpc-status-details-bin", status_of(answer)),)
            await context.abort(_STATUS[answer.code.grpc], answer.message, trailer)
            return b""  # never reached: abort raises

        return export

    async def _taken(self, kind: Kind, context: Any) -> tuple[Body, Answer]:
        body = Body(kind, "grpc", PROTOBUF, "", b"")
        try:
            sent = {str(key): value for key, value in context.invocation_metadata() or ()}
            self._intake.admit(str(sent.get("authorization", "")))
            with self._intake.room.place() as place:
                body = Body(kind, "grpc", PROTOBUF, "", await self._read(context, place))
                return body, await self._intake.take(body, place)
        except RefusedError as error:
            return body, error.answer

    async def _read(self, context: Any, place: Place) -> bytes:
        """The message. Raises ``RefusedError`` when it is too large, too slow or there is no room."""
        limits = self._intake.limits
        try:
            async with asyncio.timeout(limits.queue_age_s):
                await self._readers.acquire()
        except TimeoutError:
            text = f"{limits.grpc_readers} messages are being read already; send it again later"
            raise RefusedError(Code.OVERLOADED, text, limits.retry_after_s) from None
        try:
            async with asyncio.timeout(limits.body_timeout_s):
                data = await context.read()
        except TimeoutError:
            text = f"the message did not come within {limits.body_timeout_s:g} s; send it again"
            raise RefusedError(Code.SLOW, text) from None
        finally:
            self._readers.release()
        if data is grpc.aio.EOF:  # the library has answered an oversize message itself, with this code
            raise RefusedError(Code.TOO_LARGE, f"no message could be read: {over(limits.body_bytes)}")
        place.hold(len(data))
        return bytes(data)

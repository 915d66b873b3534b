"""The receiver as one thing that starts and stops: both doors, the intake behind them, and the way onward."""

import asyncio
import contextlib
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, Self

from aiohttp import web

from collector.otlp.counts import OtlpCounts
from collector.otlp.forward import Forward, ForwardCounts, ForwardTo
from collector.otlp.intake import Intake
from collector.otlp.over_grpc import grpc_server
from collector.otlp.over_http import http_server
from collector.otlp.seams import Limits, Seams
from goodwatch.core.clock import Clock, SystemClock
from goodwatch.core.errors import ConfigError

#: how long requests that are being answered may take when the receiver stops
_GRACE_S: Final = 5.0

_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Listening:
    """Addresses as (host, port); port 0 takes a free one, None does not listen."""

    http: tuple[str, int] | None = ("127.0.0.1", 4318)
    grpc: tuple[str, int] | None = ("127.0.0.1", 4317)


class OtlpReceiver:
    """Listens while it is entered: ``async with OtlpReceiver(...) as receiver``. Everything runs on the caller's loop.

    ``thread`` is the one in which the store is used, where others use the store as well. Entering raises
    ``ConfigError`` when an address cannot be listened on.
    """

    def __init__(
        self,
        seams: Seams,
        listening: Listening,
        *,
        limits: Limits = _LIMITS,
        clock: Clock | None = None,
        forward: ForwardTo | None = None,
        thread: Executor | None = None,
    ) -> None:
        self._seams = seams
        self._listening = listening
        self._limits = limits
        self._clock = clock or SystemClock()
        self._forward = Forward(forward) if forward is not None else None
        self._thread = thread
        self._stack = contextlib.AsyncExitStack()
        self._intake: Intake | None = None
        self.http_port: int | None = None
        self.grpc_port: int | None = None

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            onward = (await stack.enter_async_context(self._forward)).offer if self._forward is not None else None
            intake = Intake(self._seams, self._limits, self._clock, thread=self._thread, onward=onward)
            stack.push_async_callback(intake.close)
            if self._listening.http is not None:
                self.http_port = await self._listen_http(stack, intake, *self._listening.http)
            if self._listening.grpc is not None:
                server, self.grpc_port = grpc_server(intake, *self._listening.grpc)
                await server.start()
                stack.push_async_callback(server.stop, _GRACE_S)
            stack.callback(self._close_room, intake)  # first of all: new requests are refused
            self._intake = intake
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def counts(self) -> OtlpCounts:
        """What was received until now."""
        if self._intake is None:
            raise RuntimeError("the receiver was not started: use it in an `async with` block")
        return self._intake.snapshot()

    @property
    def forwarded(self) -> ForwardCounts | None:
        """What went on to the other place; None when there is none."""
        return None if self._forward is None else self._forward.counts

    @staticmethod
    def _close_room(intake: Intake) -> None:
        intake.room.open = False

    @staticmethod
    async def _listen_http(stack: contextlib.AsyncExitStack, intake: Intake, host: str, port: int) -> int:
        door = http_server(intake)
        try:
            server: Any = await asyncio.get_running_loop().create_server(door, host, port, backlog=512)
        except OSError as error:
            text = f"otlp.http: {host}:{port}: {error.strerror or error}; choose another address, or stop what holds it"
            raise ConfigError(text) from error
        stack.push_async_callback(_stop_http, server, door)
        return int(server.sockets[0].getsockname()[1])


async def _stop_http(server: asyncio.Server, door: web.Server) -> None:
    server.close()
    door.pre_shutdown()
    await door.shutdown(_GRACE_S)

"""Receivers of alerts on loopback: an HTTP server that keeps what it gets and answers as told, and a mail server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Got:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Receiver:
    """Where it is, what it got, and how it answers: a status, or with ``hangs`` not at all."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    text: str = "ok"
    hangs: bool = False

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    async def _take(self, request: web.Request) -> web.StreamResponse:
        self.got.append(Got(request.path_qs, dict(request.headers), await request.read()))
        if self.hangs:
            await asyncio.sleep(30)
        return web.Response(status=self.status, headers=self.headers, text=self.text)


@contextlib.asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver on a free port."""
    made = Receiver()
    app = web.Application(client_max_size=16 * 1024**2)
    app.router.add_route("*", "/{path:.*}", made._take)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def mail_server(mails: list[str]) -> AsyncIterator[int]:
    """A server that speaks as much SMTP as it takes to hand over a mail (RFC 5321); yields its port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 test\r\n")
        while line := await reader.readline():
            word = line[:4].upper()
            if word == b"DATA":
                writer.write(b"354 go on\r\n")
                mail = await reader.readuntil(b"\r\n.\r\n")
                mails.append(mail.decode())
            writer.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            await writer.drain()
            if word == b"QUIT":
                break
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]

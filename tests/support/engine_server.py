"""Servers on loopback that behave and misbehave like engines, and certificates for them."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

PAGE = b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} 3\n'
TEXT = "text/plain; version=1.0.0; charset=utf-8"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class EngineServer:
    """A running server: where it is and which requests it saw."""

    port: int
    scheme: str = "http"
    seen: list[web.Request] = field(default_factory=list)

    def url(self, path: str = "/metrics", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"


async def metrics(_: web.Request) -> web.StreamResponse:
    return web.Response(body=PAGE, headers={"Content-Type": TEXT})


async def hang(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


@contextlib.asynccontextmanager
async def engine_server(
    routes: Mapping[str, Handler] | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[EngineServer]:
    """Serve these paths; ``/metrics`` is a small page unless it is among them."""
    server = EngineServer(port=0, scheme="https" if tls else "http")

    @web.middleware
    async def remember(request: web.Request, handler: Handler) -> web.StreamResponse:
        server.seen.append(request)
        return await handler(request)

    app = web.Application(middlewares=[remember])
    for path, handler in ({"/metrics": metrics} | dict(routes or {})).items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def raw_server(answer: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[EngineServer]:
    """Write whatever ``answer`` writes once a request's headers came, then close the connection."""
    tasks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        writer.close()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(task := asyncio.create_task(talk(reader, writer)))
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield EngineServer(port=server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@contextlib.contextmanager
def refusing_server(tls: ssl.SSLContext) -> Iterator[EngineServer]:
    """Take TLS handshakes in a thread, with alerts sent before the connection ends (asyncio's servers just close)."""
    listening = socket.create_server(("127.0.0.1", 0))

    def greet(connection: socket.socket) -> None:
        with tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as wrapped:
            try:
                wrapped.do_handshake()
            except ssl.SSLError:
                wrapped.shutdown(socket.SHUT_WR)  # the alert went out; reading on keeps a reset from overtaking it
                while wrapped.recv(4096):
                    pass

    def accept() -> None:
        with contextlib.suppress(OSError):  # the socket was closed: the test is over
            while True:
                greet(listening.accept()[0])

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield EngineServer(port=listening.getsockname()[1], scheme="https")
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def dead_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: an authority, a foreign one, and certificates for ``engine.test`` of a server and a client."""

    ca: Path
    other_ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path

    def server_context(self, *, wants_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server, self.server_key)
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.ca)
        return context


def make_certificates(folder: Path) -> Certificates:
    """Make all of them with the ``openssl`` command."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "other-ca"):
        openssl(
            "req", "-x509", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2",
            "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:engine.test\n")
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext",
        )  # fmt: skip
    names = ("ca.pem", "other-ca.pem", "server.pem", "server.key", "client.pem", "client.key")
    return Certificates(*(folder / name for name in names))

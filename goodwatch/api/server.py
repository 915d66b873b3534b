"""The web server of the service: its socket, and a uvicorn that leaves signals alone and tells when it answers."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from goodwatch.app._fields import split_listen
from goodwatch.core.errors import ConfigError


class Server(uvicorn.Server):
    """Leaves signals to the service, and tells when it answers."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5, server_header=False)
        )
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers."""
        yield


def listener(key: str, address: str) -> socket.socket:
    """A listening socket. Raises ``ConfigError`` that names the setting ``key`` when the address cannot be used."""
    host, port = split_listen(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise ConfigError(
            f"{key}: {address}: {error.strerror or error}; choose another address, or stop what holds the port"
        ) from error


def url_of(listening: socket.socket) -> str:
    """URL under which a listening socket is reached."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host."""
    return host in ("localhost", "::1") or host.startswith("127.")

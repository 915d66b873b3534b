"""The HTTP side of a scrape: one shared session, name lookups, TLS contexts, and bodies read within a limit.

Nothing here is shared in a way that one target could hold up another: connections are not limited in number (a
target has one scrape in flight at most), and every name lookup has a thread of its own.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from collector.targets import ScrapeOptions
from goodwatch import __version__

#: as Prometheus asks, with one change on purpose: plain text first. SGLang renames its series when asked for
#: OpenMetrics; vLLM's Rust front end answers OpenMetrics whatever is asked.
ACCEPT: Final = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=1.0,*/*;q=0.1"
ACCEPT_JSON: Final = "application/json"

#: Prometheus keeps idle scrape connections five minutes
KEEP_ALIVE_S: Final = 300.0

#: output of one decompression step: bounds what a gzip bomb can take, and the time for which the loop is held
INFLATE_STEP_BYTES: Final = 256 * 1024

Lookup = Callable[..., list[Any]]


class FetchError(Exception):
    """A scrape that failed for a known reason: ``reason`` is a stable label, the text is for a person."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def shown(url: URL) -> str:
    """A URL as it may be logged: without user, password and the values of its query."""
    bare = (url.with_user(None) if url.raw_host else url).with_fragment(None)
    return f"{bare.with_query(None)}?…" if url.query_string else str(bare)


class Session:
    """What all scrapes share: the connection pool, name lookups and TLS contexts. An async context manager.

    ``lookup`` is ``socket.getaddrinfo`` or something with its signature.
    """

    def __init__(self, *, lookup: Lookup = socket.getaddrinfo) -> None:
        self._lookup = lookup
        self._tls = _TlsContexts()
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, resolver=_Resolver(self._lookup))
        self._http = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,  # decompressed in read_body, where the limit is
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # one deadline around everything: fetch
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    @contextlib.asynccontextmanager
    async def get(self, url: URL, options: ScrapeOptions, *, trusted: bool) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request without following redirects; ``trusted``: the credentials may go there."""
        if self._http is None:
            raise RuntimeError("the session is not open: use it in an `async with` block")
        context = await self._tls.context(options, with_certificate=trusted) if url.scheme == "https" else True
        async with self._http.get(
            url.with_user(None),
            headers=_headers(url, options, trusted=trusted),
            ssl=context,
            server_hostname=options.server_name if trusted and url.scheme == "https" else None,
            allow_redirects=False,
        ) as response:
            yield response


def _headers(url: URL, options: ScrapeOptions, *, trusted: bool) -> dict[str, str]:
    headers = {
        "Accept": ACCEPT_JSON if options.json_stats else ACCEPT,
        "Accept-Encoding": "gzip",
        "User-Agent": f"goodwatch/{__version__}",
        "X-Prometheus-Scrape-Timeout-Seconds": f"{options.budget_s:g}",
    }
    if not trusted:
        return headers
    basic = options.basic or ((url.user or "", url.password or "") if url.user or url.password else None)
    if options.bearer is not None:
        headers["Authorization"] = f"Bearer {options.bearer}"
    elif basic is not None:
        headers["Authorization"] = aiohttp.encode_basic_auth(*basic)
    configured = {name.lower() for name, _ in options.headers}
    return {name: value for name, value in headers.items() if name.lower() not in configured} | dict(options.headers)


async def read_body(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """The body, decompressed; ``FetchError`` when it is over the limit (decompressed) or cannot be decompressed."""
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise FetchError("decode", f"{shown(response.url)} sent Content-Encoding {encoding!r}; only gzip was asked for")
    inflater = _Gunzip() if encoding in ("gzip", "x-gzip") else None
    if inflater is None and (response.content_length or 0) > limit_bytes:
        raise _over_limit(response, limit_bytes)
    pieces: list[bytes] = []
    size_bytes = held_bytes = 0
    async for chunk in response.content.iter_any():
        for piece in (chunk,) if inflater is None else inflater.feed(chunk):
            size_bytes += len(piece)
            if size_bytes > limit_bytes:
                raise _over_limit(response, limit_bytes)
            pieces.append(piece)
            held_bytes += len(piece)
            if held_bytes >= INFLATE_STEP_BYTES:  # a large body must not hold up the other targets
                held_bytes = 0
                await asyncio.sleep(0)
    if inflater is not None and not inflater.finished:
        raise FetchError("decode", f"the gzip body of {shown(response.url)} was cut short")
    return b"".join(pieces)


def _over_limit(response: aiohttp.ClientResponse, limit_bytes: int) -> FetchError:
    text = f"the body of {shown(response.url)} is over {limit_bytes} bytes; raise body_limit if that is expected"
    return FetchError("body_limit", text)


class _Gunzip:
    """A gzip stream, several members included, in pieces of bounded size."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def finished(self) -> bool:
        """True when the last member is complete, checksum included."""
        return self._member.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Pieces that ``data`` decompresses to."""
        while True:
            if self._member.eof:
                if not data:
                    return
                self._member = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
            try:
                piece = self._member.decompress(data, INFLATE_STEP_BYTES)
            except zlib.error as error:
                raise FetchError("decode", f"the body is said to be gzip and is not: {error}") from error
            if piece:
                yield piece
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if not data and len(piece) < INFLATE_STEP_BYTES:
                return


class _Resolver(AbstractResolver):
    """``getaddrinfo`` in a thread per lookup.

    The event loop's own pool has few threads, and a lookup that hangs cannot be cancelled: a handful of dead names
    would stop every lookup (and everything else that uses the pool). The threads are daemons, so they do not hold
    up the end of the process either. Lookups of one name at the same time share one thread.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._pending: dict[tuple[str, int], asyncio.Future[list[Any]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Addresses of a name; ``OSError`` when it has none."""
        key = (host, int(family))
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = self._start(host, family)
            pending.add_done_callback(lambda _: self._pending.pop(key))
        return [
            ResolveResult(
                hostname=host, host=address[0], port=port, family=found, proto=proto, flags=socket.AI_NUMERICHOST
            )
            for found, _, proto, _, address in await asyncio.shield(pending)
        ]

    def _start(self, host: str, family: int) -> asyncio.Future[list[Any]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Any]] = loop.create_future()
        answer.add_done_callback(lambda future: future.cancelled() or future.exception())  # may outlive all who wait

        def look_up() -> None:
            result: list[Any] = []
            failure: OSError | None = None
            try:
                result = self._lookup(host, 0, family=family, type=socket.SOCK_STREAM)
            except OSError as error:
                failure = error
            except UnicodeError as error:  # a label of the name is empty or too long
                failure = socket.gaierror(socket.EAI_NONAME, f"not a host name: {error}")
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_settle, answer, result, failure)

        threading.Thread(target=look_up, name=f"lookup {host}", daemon=True).start()
        return answer

    async def close(self) -> None:
        """Nothing to release: pending lookups end by themselves."""


def _settle(answer: asyncio.Future[list[Any]], result: list[Any], failure: OSError | None) -> None:
    if answer.done():
        return
    if failure is None:
        answer.set_result(result)
    else:
        answer.set_exception(failure)


@dataclass(frozen=True, slots=True)
class _TlsFiles:
    """What a TLS context is made from."""

    ca: str | None
    cert: str | None
    key: str | None
    insecure: bool

    def stamps(self) -> tuple[int, ...]:
        """Modification times (ns) of the files, 0 where there is none to read."""
        stamps = []
        for path in (self.ca, self.cert, self.key):
            try:
                stamps.append(os.stat(path).st_mtime_ns if path else 0)  # noqa: PTH116
            except OSError:
                stamps.append(0)
        return tuple(stamps)


class _TlsContexts:
    """TLS contexts by their files, made again when a file changes (certificates are rotated while we run)."""

    def __init__(self) -> None:
        self._made: dict[_TlsFiles, tuple[tuple[int, ...], ssl.SSLContext]] = {}
        self._locks: dict[_TlsFiles, asyncio.Lock] = {}

    async def context(self, options: ScrapeOptions, *, with_certificate: bool) -> ssl.SSLContext | bool:
        """The context for these options; True is the client's default. ``FetchError`` names the file at fault."""
        files = _TlsFiles(
            options.ca_file,
            options.cert_file if with_certificate else None,
            options.key_file if with_certificate else None,
            options.insecure_skip_verify,
        )
        if files == _TlsFiles(None, None, None, insecure=False):
            return True
        async with self._locks.setdefault(files, asyncio.Lock()):
            self._made[files] = await asyncio.to_thread(_current, files, self._made.get(files))
            return self._made[files][1]


def _current(
    files: _TlsFiles, made: tuple[tuple[int, ...], ssl.SSLContext] | None
) -> tuple[tuple[int, ...], ssl.SSLContext]:
    """The context that was made, or a new one when its files changed. Blocking."""
    stamps = files.stamps()
    return made if made is not None and made[0] == stamps else (stamps, _context(files))


def _context(files: _TlsFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.ca)
    except OSError as error:
        raise FetchError("tls", f"ca_file {files.ca}: {_file_fault(error, 'PEM certificates')}") from error
    context.set_alpn_protocols(["http/1.1"])
    if files.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if files.cert is not None:
        try:
            # Without a password OpenSSL would ask the terminal for one and wait.
            context.load_cert_chain(files.cert, files.key, password="")
        except OSError as error:
            where = f"cert_file {files.cert}" + (f" with key_file {files.key}" if files.key else "")
            what = "a PEM certificate and its unencrypted key"
            raise FetchError("tls", f"{where}: {_file_fault(error, what)}") from error
    return context


def _file_fault(error: OSError, wanted: str) -> str:
    if isinstance(error, ssl.SSLError):
        return f"OpenSSL cannot use it ({error.reason or error}); it must hold {wanted}"
    return f"{error.strerror or error}; it must hold {wanted}"

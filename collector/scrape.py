"""Scraping: one task a target, on its own phase of the interval, as Prometheus does it.

A scrape that fails is a result like any other: it is handed on with a stable reason and a sentence for a person.
Bodies are not read here; see ``collector.exposition``.
"""

import asyncio
import errno
import hashlib
import math
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from collector._http import FetchError, Session, read_body, shown
from collector.targets import ScrapeOptions, TargetSpec
from goodwatch.core.clock import Clock, SystemClock
from goodwatch.core.errors import GoodwatchError

__all__ = ["REASONS", "Fetched", "Scraper", "Session", "fetch", "next_tick", "phase_s"]

#: every value of ``Fetched.reason``; "" is a scrape that worked
REASONS: Final = (
    "",
    "timeout",
    "refused",
    "dns",
    "tls",
    "http_status",
    "redirect",
    "body_limit",
    "decode",
    "protocol",
    "other_os",
)

MAX_REDIRECTS: Final = 5

#: a tick is still worth running this late, as a share of the interval: a scrape that used its whole time-out
#: must not cost the next one
LATE_RATIO: Final = 0.1

#: a page that is being handed on when the scraper stops may take this long to arrive
GRACE_S: Final = 0.7

_MOVED: Final = frozenset({301, 302, 303, 307, 308})

_NOT_FOUND: Final = {
    "vllm": "vLLM serves /metrics on its API port; a gateway or --root-path may add a prefix",
    "sglang": "SGLang serves metrics only with --enable-metrics",
    "trtllm": "TensorRT-LLM serves Prometheus metrics at /prometheus/metrics, and only with return_perf_metrics",
    "accelerator": "DCGM's exporter serves /metrics on port 9400, AMD's on 5000, Ascend's on 8082",
    "triton_trtllm": "Triton serves metrics on a port of its own, 8002 unless --metrics-port says otherwise",
}
_NOT_FOUND_ANY: Final = f"{_NOT_FOUND['sglang']}; {_NOT_FOUND['trtllm']}"
_FAULT: Final = "the engine may serve traffic all the same; this is a telemetry fault, not proof that it is down"
_CERTIFICATE: Final = "does it ask for a client certificate (cert_file, key_file)?"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one scrape brought; ``body`` is empty when it failed."""

    ts: float  # start of the scrape, Unix seconds
    up: bool
    duration_s: float
    body: bytes = field(default=b"", repr=False)
    content_type: str = ""
    status: int | None = None  # of the answer to the last request; None: there was none
    reason: str = ""  # one of REASONS
    error: str = ""  # for a person; "" when up


@dataclass(slots=True)
class _Progress:
    """How far a scrape got, for the sentence when it fails."""

    url: URL
    status: int | None = None
    trusted: bool = True  # the credentials were sent


async def fetch(session: Session, spec: TargetSpec, clock: Clock) -> Fetched:
    """Scrape one target once, within ``spec.options.budget_s`` seconds. A failure is a value, not an exception."""
    ts, began_s = clock.now_s(), clock.monotonic_s()
    body, content_type, reason, text = b"", "", "", ""
    progress = _Progress(URL())
    try:
        progress.url = URL(spec.target.url)
        if progress.url.scheme not in ("http", "https") or not progress.url.host:
            raise ValueError("it does not begin with http:// or https:// and a host")
        async with asyncio.timeout(spec.options.budget_s):
            body, content_type = await _get(session, spec, progress)
    except (FetchError, aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
        reason, text = _reason(error, progress, spec.options)
    return Fetched(
        ts=ts,
        up=not reason,
        duration_s=clock.monotonic_s() - began_s,
        body=body,
        content_type=content_type,
        status=progress.status,
        reason=reason,
        error=text,
    )


async def _get(session: Session, spec: TargetSpec, progress: _Progress) -> tuple[bytes, str]:
    """Body and content type, over the redirects that are allowed."""
    options, home = spec.options, _origin(progress.url)
    for hop in range(MAX_REDIRECTS + 1):
        progress.status = None
        async with session.get(progress.url, options, trusted=progress.trusted) as response:
            progress.status = response.status
            if response.status == 200:  # as Prometheus: any other status has no metrics
                return await read_body(response, options.body_limit_bytes), response.headers.get("Content-Type", "")
            if response.status not in _MOVED:
                raise FetchError("http_status", _status_text(progress, spec.target.engine or spec.target.kind))
            new = _moved_to(progress.url, response, follow=options.follow_redirects, hop=hop)
        # Once elsewhere the credentials stay home, even when the way leads back.
        progress.trusted = progress.trusted and _origin(new) == home
        progress.url = new if progress.trusted else new.with_user(None)
    raise FetchError("redirect", f"more than {MAX_REDIRECTS} redirects, the last to {shown(progress.url)}")


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    return url.scheme, url.host, url.port


def _moved_to(url: URL, response: aiohttp.ClientResponse, *, follow: bool, hop: int) -> URL:
    """Where a redirect leads; ``FetchError`` when it is not to be followed."""
    said = f"HTTP {response.status} from {shown(url)}"
    location = response.headers.get("Location", "")
    try:
        new = url.join(URL(location))
    except ValueError as error:
        raise FetchError("redirect", f"{said} has a Location that is not a URL: {error}") from error
    if not location or new.scheme not in ("http", "https") or not new.host:
        raise FetchError("redirect", f"{said} does not say where to go (Location: {location[:200]!r})")
    # A mounted app answers /metrics with a redirect to /metrics/: the same page, so followed without being asked.
    mounted = (
        hop == 0
        and response.status in (307, 308)
        and url.path.endswith("/metrics")
        and (_origin(new), new.path, new.query) == (_origin(url), f"{url.path}/", url.query)
    )
    if not (follow or mounted):
        raise FetchError(
            "redirect",
            f"{said} points to {shown(new)}: redirects are off; scrape that URL itself or set follow_redirects: true",
        )
    if _origin(new) == _origin(url) and new.user is None and url.user is not None:
        new = new.with_user(url.user).with_password(url.password)
    return new


def _status_text(progress: _Progress, engine: str | None) -> str:
    said = f"HTTP {progress.status} from {shown(progress.url)}"
    if progress.status in (401, 403) and not progress.trusted:
        return f"{said}: the credentials were not sent, because a redirect led to another host"
    if progress.status in (401, 403):
        return f"{said}: the target wants other credentials; check authorization, basic_auth or headers"
    if progress.status == 404:
        return f"{said}: {_NOT_FOUND.get(engine or '', _NOT_FOUND_ANY)}"
    if progress.status is not None and progress.status >= 500:
        return f"{said}: {_FAULT}"
    return f"{said}: metrics come with 200"


def _reason(error: Exception, progress: _Progress, options: ScrapeOptions) -> tuple[str, str]:
    """The stable label of a failure and its sentence. The order matters: the narrow kinds come first."""
    url = progress.url
    where = f"{url.host_subcomponent}:{url.port}"
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    if isinstance(error, FetchError):
        return error.reason, str(error)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns", f"the name {url.host} cannot be resolved: {error.strerror or error.os_error}"
    connecting = isinstance(error, aiohttp.ClientConnectorError)
    hung_up = url.scheme == "https" and connecting and isinstance(cause, ConnectionResetError)
    if isinstance(error, aiohttp.ClientSSLError) or isinstance(cause, ssl.SSLError) or hung_up:
        return "tls", _tls_text(where, cause)
    if isinstance(error, TimeoutError) or (isinstance(error, OSError) and error.errno == errno.ETIMEDOUT):
        stage = "no answer came" if progress.status is None else f"HTTP {progress.status} came, its body did not end"
        return "timeout", f"{shown(url)} was not read within {options.budget_s:g} s: {stage}"
    if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        return "refused", f"{where} refused the connection: nothing listens there; is the engine up, the port right?"
    # A server that wants a client certificate may hang up after the handshake, its alert lost on the way.
    hint = f"; {_CERTIFICATE}" if url.scheme == "https" and options.cert_file is None else ""
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "protocol", f"{where} closed the connection without an answer{hint}"
    if isinstance(error, OSError) and error.errno == errno.ECONNRESET:
        return "other_os", f"{where} reset the connection{hint}"
    if isinstance(error, ValueError):  # aiohttp's too; its text repeats the URL, which may hold secrets
        fault = error.description if isinstance(error, aiohttp.InvalidURL) else error
        return "protocol", f"the URL of the target cannot be used: {fault}; write http://host:port/metrics"
    if isinstance(error, OSError):
        return "other_os", f"{where}: {error.strerror or error}"
    what = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return "protocol", f"the answer of {shown(url)} is not proper HTTP: {' '.join(what.split())[:300]}"


#: what mends a certificate that is refused, by OpenSSL's verify code (openssl-verification-options, X509_V_ERR_*)
_MENDS: Final = {
    9: "it is not valid yet: check the clocks of both machines",
    10: "renew the certificate of the target",
    18: "name the file of that certificate in ca_file",
    19: "name the file of its authority in ca_file",
    20: "name the file of its authority in ca_file",
    62: "write the name that it is issued for in server_name",
    64: "write the name that it is issued for in server_name",
}


def _tls_text(where: str, error: Exception) -> str:
    what = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    said = f"TLS with {where} failed: {what or 'the connection was closed'}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{said}; {_MENDS.get(error.verify_code, 'check ca_file and server_name')}"
    if getattr(error, "reason", "") in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return f"{said}; does it speak plain HTTP? then the URL starts with http://"
    return f"{said}; {_CERTIFICATE}"


def phase_s(name: str, interval_s: float) -> float:
    """Offset of a target within its interval, ``[0, interval_s)``: the same after every restart, spread by name."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48 * interval_s


def next_tick(now_s: float, last: int | None, *, phase_s: float, interval_s: float) -> int:
    """Number of the tick to run next; tick k is due at ``phase_s + k * interval_s`` on the monotonic clock.

    Ticks between ``last`` and the result were missed: they are not made up for, so scrapes never bunch.
    """
    elapsed = (now_s - phase_s) / interval_s
    if last is None:
        return math.ceil(elapsed)
    return max(last + 1, math.ceil(elapsed - LATE_RATIO))


OnPage = Callable[[TargetSpec, Fetched], Awaitable[None]]


@dataclass(slots=True, eq=False)
class _Loop:
    """The task of one target."""

    spec: TargetSpec
    delivering: bool = False  # a page is being handed on: not to be cancelled midway
    ending: bool = False
    task: asyncio.Task[None] | None = None


class Scraper:
    """Scrapes targets until stopped; targets come and go through ``update``.

    ``on_page`` is awaited for every scrape, failed ones too, in the task of that target: a slow one delays its own
    target only. A ``GoodwatchError`` from it is counted and scraping goes on; any other exception is a bug and comes
    out of ``run``. Use one scraper once: after ``stop`` it stays stopped.
    """

    def __init__(
        self,
        on_page: OnPage,
        *,
        clock: Clock | None = None,
        session: Session | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.scrapes_total: Counter[str] = Counter()  # by reason; "" for those that worked
        self.skipped_ticks_total = 0
        self.page_failures_total = 0  # pages that on_page could not take
        self.last_page_failure = ""
        self._on_page = on_page
        self._clock = clock or SystemClock()
        self._session = session or Session()
        self._sleep = sleep
        self._specs: dict[str, TargetSpec] = {}
        self._loops: dict[str, _Loop] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # those of targets that left included
        self._running = False
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()
        self._bug: BaseException | None = None

    @property
    def targets(self) -> int:
        """Number of targets."""
        return len(self._specs)

    def update(self, specs: Sequence[TargetSpec]) -> None:
        """Scrape exactly these from now on; targets that did not change are left undisturbed.

        ``ValueError`` when two have one name (see ``collector.targets.merge``). Called in the event loop.
        """
        wanted = {spec.target.name: spec for spec in specs}
        if len(wanted) != len(specs):
            twice = [name for name, count in Counter(spec.target.name for spec in specs).items() if count > 1]
            raise ValueError(f"two targets are named {twice[0]!r}; names are unique")
        self._specs = wanted
        if self._running:
            self._adjust()

    async def run(self) -> None:
        """Scrape until ``stop`` is called or the task is cancelled."""
        if self._running:
            raise RuntimeError("the scraper runs already")
        self._running = True
        try:
            async with self._session:
                try:
                    if not self._stop.is_set():
                        self._adjust()
                    await self._stop.wait()
                finally:
                    await self._end_all()
        finally:
            self._running = False
            self._ended.set()
        if self._bug is not None:
            raise self._bug

    async def stop(self) -> None:
        """End all scrapes, those in flight included, within a second; safe to call twice."""
        self._stop.set()
        if self._running:
            await self._ended.wait()

    def _adjust(self) -> None:
        """Start and end loops so that they match the wanted targets."""
        for name, loop in list(self._loops.items()):
            if self._specs.get(name) != loop.spec:
                del self._loops[name]
                self._end(loop)
                if name in self._specs:
                    self._start(self._specs[name], after=loop.task)
        for name, spec in self._specs.items():
            if name not in self._loops:
                self._start(spec, after=None)

    def _start(self, spec: TargetSpec, after: asyncio.Task[None] | None) -> None:
        loop = self._loops[spec.target.name] = _Loop(spec)
        loop.task = asyncio.create_task(self._scrape_on(loop, after), name=f"scrape {spec.target.name}")
        self._tasks.add(loop.task)
        loop.task.add_done_callback(self._left)

    @staticmethod
    def _end(loop: _Loop) -> None:
        loop.ending = True
        if loop.task is not None and not loop.delivering:
            loop.task.cancel()

    def _left(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bug = self._bug or bug
            self._stop.set()

    async def _end_all(self) -> None:
        for loop in self._loops.values():
            self._end(loop)
        self._loops.clear()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE_S)
        for task in (late := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _scrape_on(self, loop: _Loop, after: asyncio.Task[None] | None) -> None:
        """Scrape one target on its grid of ticks until ended."""
        spec, interval_s = loop.spec, loop.spec.options.interval_s
        own_phase_s = phase_s(spec.target.name, interval_s)
        if after is not None:
            await asyncio.wait([after])  # pages of one target are handed on one at a time
        last: int | None = None
        while not loop.ending:
            tick = next_tick(self._clock.monotonic_s(), last, phase_s=own_phase_s, interval_s=interval_s)
            self.skipped_ticks_total += 0 if last is None else tick - last - 1
            last = tick
            await self._sleep(max(0.0, own_phase_s + tick * interval_s - self._clock.monotonic_s()))
            fetched = await fetch(self._session, spec, self._clock)
            self.scrapes_total[fetched.reason] += 1
            loop.delivering = True
            try:
                await self._on_page(spec, fetched)
            except GoodwatchError as error:
                self.page_failures_total += 1
                self.last_page_failure = f"{spec.target.name}: {error}"
            finally:
                loop.delivering = False

"""What the discoveries share: how a find becomes a target, how failures are counted and told, how an API is asked."""

import asyncio
import json
import logging
import ssl
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from collector._http import FetchError, Session, read_body, shown
from collector.discovery.port import OnFailure, ignore
from collector.targets import Defaults, ScrapeOptions, TargetSpec
from goodwatch.core.model import Target

log = logging.getLogger(__name__)

#: an error's own words are shown up to this length: they come from outside
TEXT_LIMIT: Final = 300
SERVICE_UNKNOWN: Final = "default"


@dataclass(frozen=True, slots=True)
class Found:
    """One place where metrics are said to be. Empty texts are unknown; what the configuration says comes first."""

    name: str  # identity of the target
    host: str  # a name or an address; IPv6 without brackets
    port: int
    scheme: str = ""
    path: str = ""
    service: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: float | None = None


def place(host: str, port: int) -> str:
    """``host:port`` as it stands in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def spec_of(found: Found, defaults: Defaults) -> TargetSpec:
    """The target of a find."""
    scheme, path = found.scheme or defaults.scheme, found.path or defaults.metrics_path
    return target_at(f"{scheme}://{place(found.host, found.port)}{path}", found, defaults)


def target_at(url: str, found: Found, defaults: Defaults) -> TargetSpec:
    """The target of a find that has a URL of its own."""
    target = Target(
        name=found.name,
        url=url,
        service=defaults.service or found.service or SERVICE_UNKNOWN,
        engine=defaults.engine,
        engine_version=defaults.engine_version,
        gpus=defaults.gpus if defaults.gpus is not None else found.gpus,
        gpu_hour_usd=defaults.gpu_hour_usd,
        labels={**found.labels, **defaults.labels},
        args=defaults.args,
    )
    return TargetSpec(target, defaults.options)


class Failures:
    """What is wrong with a discovery now; each failure is counted, and a new one is logged once."""

    def __init__(self, name: str, on_failure: OnFailure = ignore) -> None:
        self.total: Counter[str] = Counter()  # by reason
        self.now: dict[str, str] = {}
        self.notes: dict[str, str] = {}
        self._name = name
        self._on_failure = on_failure
        self._logged: dict[str, str] = {}  # where → reason: a sentence may hold a time and differ at each look

    def failed(self, where: str, reason: str, text: str) -> None:
        """Looking at ``where`` failed; ``reason`` is a stable label, ``text`` is for a person."""
        self.total[reason] += 1
        self._on_failure(self._name, reason)
        self.now[where] = text
        if self._logged.get(where) != reason:
            self._logged[where] = reason
            log.warning("discovery", extra={"discovery": self._name, "at": where, "problem": text})

    def fine(self, where: str) -> None:
        """Looking at ``where`` worked."""
        self.now.pop(where, None)
        if self._logged.pop(where, None) is not None:
            log.info("discovery works again", extra={"discovery": self._name, "at": where})

    def note(self, notes: Mapping[str, str]) -> None:
        """What was found and left out now, and why, by where it is: no failure of the look; each is logged once."""
        for where, text in notes.items():
            if self.notes.get(where) != text:
                log.warning("discovery", extra={"discovery": self._name, "at": where, "problem": text})
        self.notes = dict(notes)

    @property
    def problems(self) -> dict[str, str]:
        """Failures and notes of this moment."""
        return {**self.now, **self.notes}


class ApiError(Exception):
    """An API did not give what was asked: ``reason`` is a stable label, the text is for a person."""

    def __init__(self, reason: str, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.status = status  # of the HTTP answer; None: there was none


def transport_error(error: Exception, url: URL, timeout_s: float) -> ApiError:
    """What stood between us and an answer, sorted as scrapes sort it."""
    where = f"{url.host_subcomponent}:{url.port}"
    if isinstance(error, FetchError):
        return ApiError(error.reason, str(error))
    if isinstance(error, TimeoutError):
        return ApiError("timeout", f"{shown(url)} did not answer within {timeout_s:g} s")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return ApiError("dns", f"the name {url.host} cannot be resolved: {error.strerror or error.os_error}")
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError):
        cause = error.__cause__ or error
        what = getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or str(cause)
        return ApiError("tls", f"TLS with {where} failed: {what}; check ca_file, or the authority of kubeconfig")
    if isinstance(error, OSError):
        return ApiError("connection", f"{where} cannot be reached: {error.strerror or error}")
    return ApiError("protocol", f"the answer of {shown(url)} is not proper HTTP: {clipped(str(error))}")


#: what a request can raise besides what is a bug of ours
TRANSPORT_ERRORS: Final = (FetchError, aiohttp.ClientError, HttpProcessingError, OSError, ValueError)


def clipped(text: str) -> str:
    """Words from outside on one line, not too many."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_LIMIT else f"{line[:TEXT_LIMIT]}…"


async def json_from(session: Session, url: URL, options: ScrapeOptions, limit_bytes: int) -> Any:
    """The JSON that a URL answers with, within ``options.timeout_s``. Raises ``ApiError``."""
    try:
        async with asyncio.timeout(options.timeout_s), session.get(url, options, trusted=True) as response:
            if response.status == 200:
                body = await read_body(response, limit_bytes)
            else:
                raise await refused(response, url)
    except TRANSPORT_ERRORS as error:
        raise transport_error(error, url, options.timeout_s) from error
    # In a thread it would hold up the loop as long: the parser does not let go of the interpreter.
    return parsed(body, url)


def parsed(body: bytes, url: URL) -> Any:
    """JSON of a body. Raises ``ApiError``."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError("not_json", f"{shown(url)} did not answer with JSON: {clipped(str(error))}", 200) from error


async def refused(response: aiohttp.ClientResponse, url: URL) -> ApiError:
    """The error of an answer with another status than 200, with what its body says."""
    said = f"HTTP {response.status} from {shown(url)}"
    if 300 <= response.status < 400:
        return ApiError(
            f"http_{response.status}", f"{said}: a redirect is not followed; write the final URL", response.status
        )
    body = await read_body(response, 1_000_000)
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    says = (answer.get("message") or answer.get("error")) if isinstance(answer, dict) else None
    text = f"{said}: {clipped(says)}" if isinstance(says, str) and says else said
    return ApiError(f"http_{response.status}", text, response.status)

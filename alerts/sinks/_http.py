"""POST over HTTP for sinks: which answers are worth another try, and what to say of those that are not."""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from alerts.sinks._port import BusyError
from goodwatch.core.errors import ConfigError, TransientError

#: what is read of an answer, for the note of a refusal
_ANSWER_BYTES: Final = 2048
#: shorter words of a URL or a header are no tokens
_SECRET_FROM: Final = 8
_VALUES: Final = re.compile("[&=]")
_LATER: Final = frozenset({408, 425, 429})
_LONGEST_WAIT_S: Final = 900.0


class Poster:
    """Posts bodies to one URL; the connection is opened at the first."""

    def __init__(self, name: str, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(f"sink {name}: its url is not http(s)://host:port/path; correct it")
        self._name = name
        self._url = url
        self._headers = dict(headers)
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    def _bare(self, note: str) -> str:
        """What a receiver says without what is secret: some tell the token that they refuse."""
        parts = urlsplit(self._url)
        told = [*parts.path.split("/"), *_VALUES.split(parts.query), parts.password or "", *self._headers.values()]
        told += [word for value in self._headers.values() for word in value.split()]
        for secret in sorted({one for one in told if len(one) >= _SECRET_FROM}, key=len, reverse=True):
            note = note.replace(secret, "***")
        return note

    async def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send one body. Raises ``TransientError`` or ``ConfigError``; neither names the URL, which may hold a token."""
        sent = {"Content-Type": "application/json", "User-Agent": "goodwatch", **self._headers, **(headers or {})}
        try:
            async with self._opened().post(self._url, data=body, headers=sent, allow_redirects=False) as answer:
                said = await answer.content.read(_ANSWER_BYTES)
                self._judge(answer.status, answer.headers.get("Retry-After", ""), said)
        except TimeoutError as error:
            raise TransientError(f"no answer within {self._timeout_s:g} s") from error
        except aiohttp.InvalidURL as error:
            raise ConfigError("its url is not http(s)://host:port/path; correct it") from error
        except aiohttp.ClientError as error:
            raise TransientError(f"cannot be reached: {type(error).__name__}") from error

    async def close(self) -> None:
        """Close the connection."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._timeout_s)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        return self._session

    def _judge(self, status: int, retry_after: str, said: bytes) -> None:
        if 200 <= status < 300:
            return
        if status in _LATER or status >= 500:
            if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 6:
                after_s = min(float(retry_after), _LONGEST_WAIT_S)
                raise BusyError(f"answered {status} and asks to wait {after_s:g} s", after_s)
            raise TransientError(f"answered {status}")
        note = " ".join(said.decode("utf-8", "replace").split())[:200]
        note = self._bare("".join(char for char in note if char.isprintable()))
        raise ConfigError(f"answered {status}{f': {note}' if note else ''}; check its url, headers and rights")

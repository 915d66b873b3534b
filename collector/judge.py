"""A judge behind an OpenAI-compatible endpoint: one question, one answer, one try. Retries and budgets are its caller's."""

import email.utils
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from yarl import URL

from goodwatch import __version__
from goodwatch.core.quality import JudgeBusyError, JudgeRefusedError, JudgeReply

#: no answer of a judge is as long; a longer body is not what was asked for
_BODY_BYTES: Final = 1024 * 1024
#: which statuses a later try may mend; all others will be the same again
_LATER: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
#: the request itself is at fault, which another text may not be
_THIS_TEXT: Final = frozenset({400, 413, 422})


@dataclass(frozen=True, slots=True)
class JudgeEndpoint:
    """Where the judge is. ``url`` ends before ``/chat/completions``; ``key`` None: none is sent.

    ``json_mode`` asks the endpoint for a JSON object; some do not know it.
    """

    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    timeout_s: float = 60.0
    max_output_tokens: int = 300
    json_mode: bool = True


class OpenAiJudge:
    """A ``Judge`` over HTTP. An async context manager."""

    def __init__(self, endpoint: JudgeEndpoint) -> None:
        self._endpoint = endpoint
        base = URL(endpoint.url.rstrip("/"))
        self._url = base if base.path.endswith("/chat/completions") else base / "chat/completions"
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {"User-Agent": f"goodwatch/{__version__}", "Accept": "application/json"}
        if self._endpoint.key:
            headers["Authorization"] = f"Bearer {self._endpoint.key}"
        self._http = aiohttp.ClientSession(
            headers=headers, cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._endpoint.timeout_s),
        )  # fmt: skip
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()

    async def ask(self, messages: Sequence[tuple[str, str]]) -> JudgeReply:
        """The answer to (role, text) messages.

        Raises ``JudgeBusyError`` for what time may mend (no connection, no time, 429, 5xx), ``JudgeRefusedError`` for
        the rest. Neither quotes the texts.
        """
        if self._http is None:
            raise RuntimeError("the judge is not open: use it in an `async with` block")
        where = str(self._url.with_query(None).with_user(None))
        try:
            async with self._http.post(self._url, json=self._body(messages), allow_redirects=False) as response:
                body = await _limited(response)
                if response.status != 200:
                    raise _refusal(response, where)
        except TimeoutError as error:
            raise JudgeBusyError(f"{where}: no answer within {self._endpoint.timeout_s:g} s", begun=True) from error
        except aiohttp.ClientConnectorError as error:
            raise JudgeBusyError(f"{where}: cannot be reached: {error}") from error
        except aiohttp.ClientError as error:
            raise JudgeBusyError(f"{where}: {type(error).__name__}: {error}", begun=True) from error
        return _reply(body, where)

    def _body(self, messages: Sequence[tuple[str, str]]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._endpoint.model,
            "messages": [{"role": role, "content": text} for role, text in messages],
            "temperature": 0,
            "max_tokens": self._endpoint.max_output_tokens,
        }
        if self._endpoint.json_mode:
            body["response_format"] = {"type": "json_object"}
        return body


async def _limited(response: aiohttp.ClientResponse) -> bytes:
    pieces = bytearray()
    async for piece in response.content.iter_any():
        pieces += piece
        if len(pieces) > _BODY_BYTES:
            raise JudgeRefusedError("the judge's answer is over 1 MiB; is this an OpenAI-compatible endpoint?")
    return bytes(pieces)


def _refusal(response: aiohttp.ClientResponse, where: str) -> JudgeBusyError | JudgeRefusedError:
    status = response.status
    if status in _LATER:
        wait_s = _retry_after_s(response.headers.get("Retry-After", ""), time.time())
        return JudgeBusyError(f"{where}: status {status}", wait_s)
    mend = {
        401: "correct quality.judge.key", 403: "the key may not use this model", 404: "correct endpoint or model",
        400: "the endpoint refuses what it was asked; if it knows no JSON mode, set json_mode: false",
    }.get(status, "see what the endpoint's log says")  # fmt: skip
    return JudgeRefusedError(f"{where}: status {status}; {mend}", of_text=status in _THIS_TEXT)


def _retry_after_s(text: str, now_s: float) -> float | None:
    """Seconds of a Retry-After header: a number or a date (RFC 9110); None when it says nothing."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - now_s
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _reply(body: bytes, where: str) -> JudgeReply:
    """The first choice and the usage; a refusal and an empty answer are texts as well."""
    try:
        found = json.loads(body)
        message = found["choices"][0]["message"]
        text = message.get("content") or message.get("refusal") or ""
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise JudgeRefusedError(
            f"{where}: the answer is no chat completion; is this an OpenAI-compatible endpoint?"
        ) from error
    usage = found.get("usage") if isinstance(found.get("usage"), dict) else {}
    model = found.get("model")
    return JudgeReply(
        text if isinstance(text, str) else "", model if isinstance(model, str) else None,
        _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")),
    )  # fmt: skip


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

"""OTLP over HTTP: reads a body within its limits while it comes in, and answers in the encoding of the request."""

import asyncio
import logging
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from collector.otlp.answers import JSON, PROTOBUF, Answer, Code, RefusedError, http_body, http_status
from collector.otlp.decoding import Body
from collector.otlp.inflate import ENCODINGS, over
from collector.otlp.intake import Intake
from collector.otlp.kinds import BY_PATH, Kind
from collector.otlp.room import Place

#: between two requests of a sender; SDKs send every 5 s, the Collector keeps idle connections for a minute
KEEP_ALIVE_S: Final = 90.0

#: a body comes in pieces of this size: one of 512 spans is some 600 kB
_READ_BYTES: Final = 256 * 1024


def _is_ours(record: logging.LogRecord) -> bool:
    """False for requests that are no HTTP: aiohttp answers them, and would log each with what was sent in it."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


log = logging.getLogger(__name__)
log.addFilter(_is_ours)


def http_server(intake: Intake) -> web.Server:
    """A protocol factory for ``loop.create_server``."""
    return web.Server(
        _Door(intake).answer,
        auto_decompress=False,  # undone by inflate, where the limit is
        keepalive_timeout=KEEP_ALIVE_S,
        read_bufsize=_READ_BYTES,
        access_log=None,
        logger=log,
    )


class _Door:
    """Answers requests one by one."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """The response to any request."""
        kind = BY_PATH.get(request.path)
        media = request.content_type if request.content_type in (PROTOBUF, JSON) else JSON
        body: Body | None = Body(kind, "http", media, "", b"") if kind is not None else None
        try:
            body_media, encoding = self._wanted(request, kind)
            self._intake.admit(request.headers.get("Authorization", ""), request.content_length or 0)
            assert kind is not None
            with self._intake.room.place() as place:
                data = await self._read(request, place)
                body = Body(kind, "http", body_media, encoding, data)
                answer = await self._intake.take(body, place)
        except RefusedError as error:
            answer = error.answer
        if body is not None:
            self._intake.seen(body, answer)
        return _response(request, kind, answer, media)

    def _wanted(self, request: web.BaseRequest, kind: Kind | None) -> tuple[str, str]:
        """Media type and encoding of a request. Raises ``RefusedError`` when it is none that can be read."""
        if kind is None:
            text = f"there is nothing at {request.path}; send to {', '.join(sorted(BY_PATH))}"
            raise RefusedError(Code.UNKNOWN_PATH, text)
        if request.method != "POST":
            raise RefusedError(Code.METHOD, f"{request.method} is not for this path; send with POST")
        if request.content_type not in (PROTOBUF, JSON):
            text = f"the Content-Type is {request.content_type}; send {PROTOBUF} or {JSON}"
            raise RefusedError(Code.UNSUPPORTED, text)
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in ENCODINGS:
            text = f"the Content-Encoding is {encoding}; send gzip, deflate or none"
            raise RefusedError(Code.UNSUPPORTED, text)
        if (request.content_length or 0) > self._intake.limits.body_bytes:
            raise RefusedError(Code.TOO_LARGE, over(self._intake.limits.body_bytes))
        return request.content_type, encoding

    async def _read(self, request: web.BaseRequest, place: Place) -> bytes:
        """The body as sent. Raises ``RefusedError`` when it is too large, too slow, cut short, or there is no room."""
        limits = self._intake.limits
        pieces: list[bytes] = []
        try:
            async with asyncio.timeout(limits.body_timeout_s):
                if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
                    request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                async for piece in request.content.iter_any():
                    place.add(len(piece))
                    pieces.append(piece)
                    if place.bytes > limits.body_bytes:
                        raise RefusedError(Code.TOO_LARGE, over(limits.body_bytes))
        except TimeoutError:
            text = f"the body did not come within {limits.body_timeout_s:g} s; send it again"
            raise RefusedError(Code.SLOW, text) from None
        except (web.RequestPayloadError, ConnectionError) as error:
            raise RefusedError(Code.BAD, f"the body was cut short: {error}") from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _response(request: web.BaseRequest, kind: Kind | None, answer: Answer, media: str) -> web.Response:
    status = http_status(answer, request.headers.get("User-Agent", ""))
    response = web.Response(body=http_body(kind, answer, media), status=status, content_type=media)
    response.headers["Server"] = "goodwatch"  # else aiohttp tells its version
    if answer.retry_after_s is not None:
        response.headers["Retry-After"] = str(answer.retry_after_s)
    if answer.code is Code.METHOD:
        response.headers["Allow"] = "POST"
    if answer.code is Code.UNAUTHENTICATED:
        response.headers["WWW-Authenticate"] = "Bearer"
    if answer.code is Code.SLOW:
        response.force_close()
    return response

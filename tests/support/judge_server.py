"""A server on loopback that behaves and misbehaves like an OpenAI-compatible endpoint."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[dict[str, Any]], Awaitable[web.StreamResponse]]

GRADES = {"faithfulness": 1.0, "factuality": 0.75, "reason": "as the document says"}


@dataclass(slots=True)
class JudgeServer:
    """Where it is, and what it was asked. ``answers`` are given in order, the last one again and again."""

    port: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


def says(text: str, *, usage: dict[str, Any] | None = None, status: int = 200, **headers: str) -> Answer:
    """A completion with this text."""
    told = {"prompt_tokens": 400, "completion_tokens": 40, "total_tokens": 440} if usage is None else usage

    async def answer(body: dict[str, Any]) -> web.StreamResponse:
        message = {"role": "assistant", "content": text}
        found = {
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": f"{body['model']}-2026",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": told,
        }  # fmt: skip
        return web.json_response(found, status=status, headers=headers)

    return answer


def grades(**more: Any) -> Answer:
    return says(json.dumps(GRADES | more))


def fails(status: int, **headers: str) -> Answer:
    async def answer(_: dict[str, Any]) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response({"error": {"message": "no", "type": "server_error"}}, status=status, headers=named)

    return answer


def sends(body: bytes) -> Answer:
    async def answer(_: dict[str, Any]) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    return answer


async def hangs(_: dict[str, Any]) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


@contextlib.asynccontextmanager
async def judge_server(*answers: Answer) -> AsyncIterator[JudgeServer]:
    server = JudgeServer(answers=list(answers))

    async def completions(request: web.Request) -> web.StreamResponse:
        server.headers.append(dict(request.headers))
        server.asked.append(await request.json())
        server.came.set()
        answer = server.answers[min(len(server.asked), len(server.answers)) - 1]
        return await answer(server.asked[-1])

    app = web.Application(client_max_size=4 * 1024**2)
    app.router.add_post("/v1/chat/completions", completions)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()

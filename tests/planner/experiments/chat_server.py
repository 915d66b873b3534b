"""An OpenAI-compatible server on loopback: streams tokens at a pace that grows with the requests it is answering."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class ChatServer:
    """``step_s(running)`` is the time of one token; ``refuse`` of every so many requests is answered with 503."""

    base_s: float = 0.002
    per_request_s: float = 0.0005
    refuse_every: int = 0
    usage: bool = True
    url: str = ""
    bodies: list[dict[str, object]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    running: int = 0
    most: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.keys.add(request.headers.get("Authorization", ""))
        if self.refuse_every and len(self.bodies) % self.refuse_every == 0:
            return web.Response(status=503)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._stream(request, int(body["max_tokens"]))
        finally:
            self.running -= 1

    async def _stream(self, request: web.Request, tokens: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)

        async def event(content: object) -> None:
            await response.write(f"data: {json.dumps(content)}\n\n".encode())

        await event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for _ in range(tokens):
            await asyncio.sleep(self.base_s + self.per_request_s * self.running)
            await event({"choices": [{"delta": {"content": "a"}}]})
        if self.usage:
            await event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}})
        await response.write(b"data: [DONE]\n\n")
        return response


@asynccontextmanager
async def serving(server: ChatServer) -> AsyncIterator[ChatServer]:
    """Serve it on a free loopback port."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = str(runner.addresses[0][0]) and f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()

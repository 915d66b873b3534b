"""Three engines to look at: pages and spans recorded from real ones, played in a loop on fixed ports.

It runs in goodwatch's own image. ``python engine.py [--host 0.0.0.0] [--otlp URL] [--port NAME=PORT ...]``
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from goodwatch.app.demo import Play
from goodwatch.app.demo_spans import SpanPlay

SEND_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Part:
    """One engine: the recording that it plays, its version, its port, where in the loop it begins."""

    recording: str
    version: str
    port: int
    at_s: float


#: target → what it plays
PARTS: Final = {
    "chat-0": Part("vllm-0.32.0", "0.32.0", 8000, 60.0),
    "chat-1": Part("vllm-0.12.0", "0.12.0", 8001, 30.0),
    "batch-0": Part("sglang-0.5.23", "0.5.23", 30000, 90.0),
}


def application(play: Play) -> web.Application:
    """One engine's HTTP side: its metrics, and the version that it tells."""

    async def metrics(_: web.Request) -> web.StreamResponse:
        page = play.at(time.time())
        if page.body is None:
            raise web.HTTPServiceUnavailable(text="the recorded engine was away at this moment")
        return web.Response(body=page.body.encode(), headers={"Content-Type": page.content_type})

    async def version(_: web.Request) -> web.StreamResponse:
        return web.json_response({"version": play.version})

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/version", version), web.get("/server_info", version)])
    return app


async def send(plays: list[Play], otlp: str) -> None:
    """Send the spans of the plays as their engines did, over OTLP/HTTP; what is not taken is lost, as theirs would be."""
    sending = await asyncio.to_thread(lambda: [SpanPlay.of(play) for play in plays])
    until = time.time()
    headers = {"Content-Type": "application/x-protobuf"}
    async with ClientSession(timeout=ClientTimeout(total=10)) as session:
        while True:
            await asyncio.sleep(SEND_EVERY_S)
            since, until = until, time.time()
            for body in [r.SerializeToString() for one in sending for r in one.requests(since, until)]:
                with suppress(ClientError, TimeoutError):
                    async with session.post(f"{otlp}/v1/traces", data=body, headers=headers) as answer:
                        await answer.read()


async def main(host: str, otlp: str, ports: dict[str, int]) -> None:
    """Serve until stopped."""
    now = time.time()
    plays = {
        name: Play.load(part.recording, name, part.version, now_s=now, at_s=part.at_s) for name, part in PARTS.items()
    }
    async with AsyncExitStack() as stack:
        for name, play in plays.items():
            runner = web.AppRunner(application(play), access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, host, ports.get(name, PARTS[name].port)).start()
        print("serving", flush=True)  # noqa: T201
        await (send(list(plays.values()), otlp.rstrip("/")) if otlp else asyncio.Event().wait())


def _ports(given: list[str]) -> Iterator[tuple[str, int]]:
    for one in given:
        name, _, port = one.partition("=")
        if name not in PARTS or not port.isdecimal():
            raise SystemExit(f"--port {one}: write NAME=PORT; names: {', '.join(PARTS)}")
        yield name, int(port)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Recorded engines, played in a loop.")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--otlp", default="", help="goodwatch's OTLP/HTTP address; no spans without it")
    options.add_argument("--port", action="append", default=[], metavar="NAME=PORT", help="another port for one engine")
    told = options.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(main(told.host, told.otlp, dict(_ports(told.port))))

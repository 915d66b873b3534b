"""``goodwatch demo``: recorded engines behind real HTTP ports, and the real service on them."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from aiohttp import web

from goodwatch.api.service import Prepare, Service, serve
from goodwatch.app import demo

#: History that is filled in: long enough for every phase of every play to be in it several times.
HISTORY_S: Final = 3600.0
#: How often a play's port is opened or closed as the recorded engine came and went.
_DOOR_S: Final = 0.5


async def run_demo(listen: str, data_dir: Path | None, *, say: Callable[[str], None]) -> None:
    """Serve the plays, fill in the history, run the service until stopped.

    Raises ``ConfigError`` or ``StoreError`` when it cannot start.
    """
    say("goodwatch demo: a replay of recorded vLLM and SGLang engines; nothing leaves this machine.")
    plays = demo.loaded(time.time())
    async with AsyncExitStack() as stack:
        folder = data_dir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="goodwatch-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        urls = {play.name: await _serve_play(stack, play) for play in plays}
        file = folder / "goodwatch.yaml"
        file.write_text(demo.config_text(listen, str(folder.resolve()), urls))
        say("Filling in an hour of history ...")
        await serve(
            file,
            prepare=_backfiller(plays),
            note=demo.NOTE,
            ready=lambda url: say(f"\n  Open {url}\n\n  Configuration: {file}\n  Ctrl-C stops it.\n"),
        )


def _backfiller(plays: tuple[demo.Play, ...]) -> Prepare:
    async def prepare(service: Service) -> None:
        now = service.clock.now_s()
        for play in plays:
            state = service.watch.states[play.name]
            known = state.last.ts if state.last is not None else 0.0
            start = max(now - HISTORY_S, known)  # a kept data folder goes on where it ended
            await asyncio.to_thread(demo.backfill, state, play, service.store, start_s=start, end_s=now)

    return prepare


async def _serve_play(stack: AsyncExitStack, play: demo.Play) -> str:
    """One recorded engine on a free loopback port, closed while it was away; returns the URL of its metrics."""

    async def metrics(_: web.Request) -> web.StreamResponse:
        page = play.at(time.time())
        if page.body is None:
            raise web.HTTPServiceUnavailable(text="the recorded engine was away at this moment")
        return web.Response(body=page.body.encode(), headers={"Content-Type": page.content_type})

    async def version(_: web.Request) -> web.StreamResponse:
        return web.json_response({"version": play.version})

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/version", version), web.get("/server_info", version)])
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = int(runner.addresses[0][1])
    doors = asyncio.create_task(_open_and_close(runner, site, play, port))
    stack.callback(doors.cancel)
    return f"http://127.0.0.1:{port}/metrics"


async def _open_and_close(runner: web.AppRunner, site: web.TCPSite | None, play: demo.Play, port: int) -> None:
    """Listen while the recorded engine answered, refuse connections while it did not."""
    while True:
        answers = play.at(time.time()).body is not None
        if answers and site is None:
            site = web.TCPSite(runner, "127.0.0.1", port)
            await site.start()
        elif not answers and site is not None:
            await site.stop()
            site = None
        await asyncio.sleep(_DOOR_S)

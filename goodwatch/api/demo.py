"""``goodwatch demo``: recorded engines behind real HTTP ports, and the real service on them."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from goodwatch.api.service import Prepare, Service, serve
from goodwatch.app import demo
from goodwatch.app.demo_spans import SpanPlay
from goodwatch.app.request_wiring import mapper_of

#: History that is filled in: long enough for every phase of every play to be in it several times.
HISTORY_S: Final = 3600.0
#: How often a play's port is opened or closed as the recorded engine came and went.
_DOOR_S: Final = 0.5
#: how often spans are sent
_SEND_EVERY_S: Final = 1.0


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
            beside=partial(_send_spans, plays),
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
        await asyncio.to_thread(_fill_requests, plays, service, now - HISTORY_S, now)
        await service.intake.loop.recover()
        await service.intake.loop.roll()

    return prepare


def _fill_requests(plays: tuple[demo.Play, ...], service: Service, start_s: float, end_s: float) -> None:
    otlp = service.settings.otlp
    if otlp is None:
        return
    known = service.intake.store.facts(start_s, end_s, columns=("ended_at",))["ended_at"].max()
    start_s = max(start_s, float(known)) if isinstance(known, int | float) else start_s
    for play in plays:
        SpanPlay.of(play).fill(service.intake.store, mapper_of(otlp), start_s, end_s)


async def _send_spans(plays: tuple[demo.Play, ...], service: Service) -> None:
    """Send the spans of the plays as their engines did, over OTLP/HTTP."""
    url = next((a for a in service.intake.reads.intake().listening if a.startswith("http://")), None)
    if url is None:
        await asyncio.Event().wait()
    sending = await asyncio.to_thread(lambda: [SpanPlay.of(play) for play in plays])
    until = time.time()
    async with ClientSession(timeout=ClientTimeout(total=10)) as session:
        while True:
            await asyncio.sleep(_SEND_EVERY_S)
            since, until = until, time.time()
            for request in [r for one in sending for r in one.requests(since, until)]:
                with suppress(ClientError, TimeoutError):  # the next ones may get through
                    body, headers = request.SerializeToString(), {"Content-Type": "application/x-protobuf"}
                    async with session.post(f"{url}/v1/traces", data=body, headers=headers) as answer:
                        await answer.read()


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

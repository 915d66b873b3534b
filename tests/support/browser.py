"""The real application on a loopback port, and Chromium driven over its DevTools protocol."""

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvicorn
from fastapi import APIRouter

from exporters.prometheus import Exporter, SelfMetrics
from goodwatch.api.app import create_app, external_prefix
from goodwatch.api.auth import Auth
from goodwatch.api.ui.pages import pages
from goodwatch.app.telemetry import snapshot
from goodwatch.app.view import Views

CHROMIUM: Final = shutil.which("chromium")
_FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-extensions",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0", "--force-color-profile=srgb",
)  # fmt: skip
_PATIENCE_S: Final = 60.0


@contextlib.contextmanager
def served(views: Views, *more: APIRouter) -> Iterator[str]:
    """The application with its pages and ``more``, in a thread of its own; yields its URL, prefix included."""
    app = create_app(
        views, auth=Auth.of([], loopback=True, insecure=False),
        exporter=Exporter(lambda: snapshot(views), SelfMetrics("1.2.3")), routers=(pages(views, requests=bool(more)), *more),
    )  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}{external_prefix(views.external_url)}"
        finally:
            server.should_exit = True
            thread.join(_PATIENCE_S)


@dataclass(slots=True)
class Tab:
    """One page: what it asked for and what it complained about since it was opened."""

    socket: aiohttp.ClientWebSocketResponse
    requested: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)

    async def listen(self) -> None:
        """Sort what the browser says, until it closes."""
        async for message in self.socket:
            said = json.loads(message.data)
            if "id" in said:
                self._waiting.pop(said["id"]).set_result(said)
            else:
                self._heard(said["method"], said.get("params", {}))

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol."""
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        await self.socket.send_json({"id": number, "method": method, "params": params})
        said = await asyncio.wait_for(answer, _PATIENCE_S)
        assert "error" not in said, f"{method}: {said['error']}"
        result: dict[str, Any] = said["result"]
        return result

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        said = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait in the page until an expression is true; fails after a minute."""
        done = await self.evaluate(
            "new Promise(resolve => { const end = Date.now() + 55000; const look = () => "
            f"({condition}) ? resolve(true) : Date.now() > end ? resolve(false) : setTimeout(look, 20); look(); }})"
        )
        assert done, f"never became true: {condition}; complaints: {self.complaints}"

    async def open(self, url: str, *, width: int = 1440, height: int = 900, dark: bool = True) -> None:
        """Load a page at a size, in dark or light, and wait until it is complete with its charts."""
        self.requested.clear()
        self.complaints.clear()
        scheme = "dark" if dark else "light"
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        await self.call("Page.navigate", url=url)
        await self.until(f"location.href !== 'about:blank' && document.readyState === 'complete' && {_CHARTS_DRAWN}")

    async def hover(self, selector: str, x_ratio: float = 0.5, y_ratio: float = 0.5) -> None:
        """Put the pointer over a place of an element, after scrolling to it."""
        box = await self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            " const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
        )
        x, y = box[0] + box[2] * x_ratio, box[1] + box[3] * y_ratio
        for shift in (0, 1):
            await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + shift, y=y)

    async def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen as PNG; ``whole`` takes the page's full height."""
        said = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(said["data"]))


_CHARTS_DRAWN: Final = (
    "(!document.getElementById('charts-data') || document.documentElement.dataset.charts === 'drawn')"
)


@contextlib.asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Tab]:
    """A headless Chromium with one tab, which is closed at the end; ``profile`` is an empty folder."""
    assert CHROMIUM, "chromium is not installed; on Debian and Ubuntu: apt-get install chromium"
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank", stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr
        port = await asyncio.wait_for(_port(process.stderr), _PATIENCE_S)
        drain = asyncio.create_task(process.stderr.read())
        async with aiohttp.ClientSession() as session, _tab(session, port) as tab:
            yield tab
        drain.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _port(output: asyncio.StreamReader) -> int:
    async for line in output:
        if line.startswith(b"DevTools listening on ws://"):
            return int(line.split(b"/devtools")[0].rpartition(b":")[2])
    raise AssertionError("chromium ended before it listened")


@contextlib.asynccontextmanager
async def _tab(session: aiohttp.ClientSession, port: int) -> AsyncIterator[Tab]:
    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
        found = await answer.json()
    address = next(one["webSocketDebuggerUrl"] for one in found if one["type"] == "page")
    async with session.ws_connect(address, max_msg_size=0) as socket_:
        tab = Tab(socket_)
        listening = asyncio.create_task(tab.listen())
        for domain in ("Page", "Runtime", "Network", "Log"):
            await tab.call(f"{domain}.enable")
        yield tab
    await listening

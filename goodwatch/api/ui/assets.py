"""Style sheet, script, icon, and the chart library that ships inside vl-convert: served with names that change."""

import asyncio
import contextlib
import gzip
import hashlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from typing import Final

import fastapi
from fastapi import Request, Response

from goodwatch.api.ui import charts
from goodwatch.api.ui.theme import palette_css

#: Making the bundle holds Python's lock for seconds, so another process does it while this one serves.
_BUNDLE_PROGRAM: Final = "import sys, vl_convert; sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())"
_BUNDLE_TIMEOUT_S: Final = 120.0
_FOREVER: Final = "public, max-age=31536000, immutable"
_BRIEFLY: Final = "public, max-age=300"
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_OWN: Final = ("goodwatch.css", "goodwatch.js", "icon.svg")


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent; ``tag`` changes with its content."""

    body: bytes
    packed: bytes
    kind: str
    tag: str

    @classmethod
    def of(cls, name: str, body: bytes) -> "Asset":
        """The asset of a file; compresses it, which takes some tens of milliseconds for the largest."""
        tag = hashlib.sha256(body).hexdigest()[:16]
        return cls(body, gzip.compress(body, 9, mtime=0), _TYPES[name.rpartition(".")[2]], tag)


@dataclass(slots=True)
class Assets:
    """Everything under ``/static``; the chart library is made once, at start or when first asked for."""

    own: dict[str, Asset] = field(default_factory=lambda: {name: Asset.of(name, own_file(name)) for name in _OWN})
    chart_tag: str = field(default_factory=lambda: version("vl-convert-python"))
    _library: "asyncio.Task[Asset] | None" = None

    def path(self, name: str) -> str:
        """Path below the root of the pages, with what makes it new when the content is."""
        tag = self.chart_tag if name == "vega.js" else self.own[name].tag
        return f"/static/{name}?v={tag}"

    async def library(self) -> Asset:
        """Vega, Vega-Lite and Vega-Embed as one script. Raises OSError when it cannot be made."""
        task = self._library
        failed = task is not None and task.done() and (task.cancelled() or task.exception() is not None)
        if task is None or failed or task.get_loop() is not asyncio.get_running_loop():
            task = self._library = asyncio.create_task(_bundle())
        return await asyncio.shield(task)

    async def _warm(self) -> None:
        await self.library()
        await asyncio.to_thread(charts.warm)

    @contextlib.asynccontextmanager
    async def warmed(self, _: object) -> AsyncIterator[None]:
        """Make library and charts while the service starts, without making the start wait for them."""
        warming = asyncio.create_task(self._warm())
        try:
            yield
        finally:
            for task in (warming, self._library):
                if task is not None:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, OSError):
                        await task


async def _bundle() -> Asset:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _BUNDLE_PROGRAM, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        body, trouble = await asyncio.wait_for(process.communicate(), _BUNDLE_TIMEOUT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode or not body:
        last = trouble.decode(errors="replace").strip().rpartition("\n")[2]
        raise OSError(f"static/vega.js: the chart library could not be made: {last or process.returncode}")
    return await asyncio.to_thread(Asset.of, "vega.js", body)


def own_file(name: str) -> bytes:
    """Content of one of our own files; the style sheet begins with the palettes."""
    body = (files("goodwatch.api.ui") / "static" / name).read_bytes()
    return palette_css().encode() + body if name.endswith(".css") else body


def static_routes(assets: Assets) -> fastapi.APIRouter:
    """``/static/NAME``: cached for ever where the URL names the version, else for five minutes."""
    router = fastapi.APIRouter(include_in_schema=False)

    @router.api_route("/static/vega.js", methods=["GET", "HEAD"])
    async def vega(request: Request) -> Response:
        try:
            return _sent(request, await assets.library(), assets.chart_tag)
        except (OSError, TimeoutError) as error:
            return Response(f"// {error}\n", status_code=503, media_type=_TYPES["js"], headers={"Retry-After": "10"})

    @router.api_route("/static/{name}", methods=["GET", "HEAD"])
    async def own(request: Request, name: str) -> Response:
        asset = assets.own.get(name)
        if asset is None:
            return Response(f"there is no static/{name[:64]}\n", status_code=404, media_type="text/plain")
        return _sent(request, asset, asset.tag)

    return router


def _sent(request: Request, asset: Asset, tag: str) -> Response:
    etag = f'"{asset.tag}"'
    headers = {
        "Cache-Control": _FOREVER if request.query_params.get("v") == tag else _BRIEFLY,
        "ETag": etag,
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return packed_response(request, asset.body, asset.kind, headers, packed=asset.packed)


def packed_response(
    request: Request,
    body: bytes,
    kind: str,
    headers: dict[str, str],
    *,
    status: int = 200,
    packed: bytes | None = None,
) -> Response:
    """A response that is compressed where the browser takes gzip."""
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers = headers | {"Content-Encoding": "gzip"}
        body = packed if packed is not None else gzip.compress(body, 4, mtime=0)
    return Response(body, status_code=status, headers=headers, media_type=kind)

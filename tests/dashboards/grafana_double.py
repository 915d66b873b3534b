"""A Grafana on loopback as far as boards go, after its HTTP API: folders, search, boards, versions, and its refusals."""

import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

TOKEN, VIEWER = "editor-token", "viewer-token"


@dataclass(slots=True)
class GrafanaDouble:
    """Boards by uid with their versions; ``fail`` maps "METHOD uid" to a status that is answered instead."""

    bare_versions: bool = False  # Grafana 10 answers a list, later ones an object
    folders: dict[str, str] = field(default_factory=dict)
    boards: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    provisioned: set[str] = field(default_factory=set)
    fail: dict[str, int] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)

    def save(
        self, document: dict[str, Any], *, folder: str = "goodwatch", message: str = "", by: str = "alice"
    ) -> None:
        """Store a version, as a person who edits does."""
        kept = self.boards.setdefault(document["uid"], [])
        stored = {**copy.deepcopy(document), "id": hash(document["uid"]) % 1000, "version": len(kept) + 1}
        kept.append({"dashboard": stored, "folder": folder, "message": message, "by": by})

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=10_000_000)
        app.router.add_get("/api/folders/{uid}", self._folder)
        app.router.add_post("/api/folders", self._make_folder)
        app.router.add_get("/api/search", self._search)
        app.router.add_get("/api/dashboards/uid/{uid}", self._read)
        app.router.add_delete("/api/dashboards/uid/{uid}", self._delete)
        app.router.add_get("/api/dashboards/uid/{uid}/versions", self._versions)
        app.router.add_post("/api/dashboards/db", self._write)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in (TOKEN, VIEWER):
            return _said(401, "Invalid API key")
        if request.method != "GET" and token == VIEWER:
            return _said(
                403, "You'll need additional permissions to perform this action. Permissions needed: dashboards:write"
            )
        uid = (
            request.match_info.get("uid") or (json.loads(await request.text()).get("dashboard") or {}).get("uid", "")
            if request.can_read_body or request.match_info.get("uid")
            else ""
        )
        status = self.fail.get(f"{request.method} {uid}")
        if status is not None:
            return _said(status, "Internal Server Error" if status >= 500 else "refused")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _folder(self, request: web.Request) -> web.Response:
        uid = request.match_info["uid"]
        return (
            web.json_response({"uid": uid, "title": self.folders[uid]})
            if uid in self.folders
            else _said(404, "folder not found")
        )

    async def _make_folder(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["title"] in self.folders.values():
            return _said(412, "A folder with that name already exists in the current location", "name-exists")
        self.folders[body["uid"]] = body["title"]
        return web.json_response({"uid": body["uid"], "title": body["title"]})

    async def _search(self, request: web.Request) -> web.Response:
        size, page = int(request.query["limit"]), int(request.query["page"])
        hits = [
            {"uid": uid, "folderUid": kept[-1]["folder"], "type": "dash-db"}
            for uid, kept in sorted(self.boards.items())
            if request.query["tag"] in kept[-1]["dashboard"].get("tags", ())
        ]
        return web.json_response(hits[(page - 1) * size : page * size])

    async def _read(self, request: web.Request) -> web.Response:
        kept = self.boards.get(request.match_info["uid"])
        if not kept:
            return _said(404, "Dashboard not found")
        meta = {
            "folderUid": kept[-1]["folder"],
            "provisioned": request.match_info["uid"] in self.provisioned,
            "updatedBy": kept[-1]["by"],
        }
        return web.json_response({"dashboard": kept[-1]["dashboard"], "meta": meta})

    async def _versions(self, request: web.Request) -> web.Response:
        kept = self.boards.get(request.match_info["uid"], [])
        found = [
            {"version": one["dashboard"]["version"], "message": one["message"], "createdBy": one["by"]} for one in reversed(kept)
        ][: int(request.query["limit"])]  # fmt: skip
        return web.json_response(found if self.bare_versions else {"continueToken": "", "versions": found})

    async def _write(self, request: web.Request) -> web.Response:
        body = await request.json()
        document, uid = body["dashboard"], body["dashboard"]["uid"]
        if body["folderUid"] not in self.folders:
            return _said(400, "folder not found", "not-found")
        if uid in self.provisioned:
            return _said(400, "Cannot save provisioned dashboard")
        kept = self.boards.get(uid, [])
        if kept and not body["overwrite"] and document["version"] != kept[-1]["dashboard"]["version"]:
            return _said(412, "The dashboard has been changed by someone else", "version-mismatch")
        self.save(document, folder=body["folderUid"], message=body["message"], by="sa-goodwatch")
        self.writes.append(uid)
        return web.json_response({"uid": uid, "status": "success", "version": len(self.boards[uid])})

    async def _delete(self, request: web.Request) -> web.Response:
        uid = request.match_info["uid"]
        if uid not in self.boards:
            return _said(404, "Dashboard not found")
        del self.boards[uid]
        self.writes.append(f"-{uid}")
        return web.json_response({"message": f"Dashboard {uid} deleted"})


def _said(status: int, message: str, kind: str = "") -> web.Response:
    return web.json_response({"message": message, **({"status": kind} if kind else {})}, status=status)


@asynccontextmanager
async def running(grafana: GrafanaDouble) -> AsyncIterator[str]:
    """The double on a loopback port; its URL."""
    async with TestServer(grafana.app()) as server:
        yield str(server.make_url("")).rstrip("/")

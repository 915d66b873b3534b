"""Grafana's HTTP API (10 to 13): read, write and delete boards of one folder.

Every answer that is not a success becomes a sentence that says what was asked, what Grafana said, and how to mend it.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from dashboards.sync import Held, message_of
from goodwatch.core.errors import ConfigError, GoodwatchError, TransientError

_TAG: Final = "goodwatch"
_PAGE: Final = 500
_TIMEOUT: Final = aiohttp.ClientTimeout(total=30.0, connect=10.0)
#: largest answer that is read: a board has some 100 kB
_BODY_LIMIT: Final = 20_000_000


class ChangedMeanwhileError(GoodwatchError):
    """Somebody wrote the board between our look and our write."""


@dataclass(slots=True)
class Grafana:
    """One Grafana. ``token`` is a service account's; ``folder`` the uid of the folder that holds our boards."""

    url: str
    token: str = field(repr=False)
    folder: str
    session: aiohttp.ClientSession = field(repr=False)

    async def boards(self, uids: list[str]) -> list[Held]:
        """Boards with our tag in the folder, and those of ``uids`` wherever they are."""
        found = dict.fromkeys(uids)
        page = 1
        while True:
            query = {"type": "dash-db", "tag": _TAG, "limit": str(_PAGE), "page": str(page)}
            hits = await self._ask("GET", "/api/search", query=query, doing="list boards")
            found |= dict.fromkeys(hit["uid"] for hit in hits if hit.get("folderUid", "") == self.folder)
            if len(hits) < _PAGE:
                break
            page += 1
        read = [await self._board(uid) for uid in found]
        return [one for one in read if one is not None]

    async def _board(self, uid: str) -> Held | None:
        answer = await self._ask("GET", f"/api/dashboards/uid/{quote(uid)}", doing=f"read {uid}", absent=True)
        if answer is None:
            return None
        meta = answer["meta"]
        path = f"/api/dashboards/uid/{quote(uid)}/versions"
        told = await self._ask("GET", path, query={"limit": "1"}, doing=f"read the versions of {uid}", absent=True)
        versions = told.get("versions", []) if isinstance(told, dict) else told or []  # a bare list up to Grafana 10
        newest: dict[str, Any] = max(versions, key=lambda version: int(version.get("version", 0)), default={})
        version = int(answer["dashboard"].get("version", 0))
        # A message speaks for the version that it was written with, not for a later one.
        message = str(newest.get("message", "")) if int(newest.get("version", version)) == version else ""
        return Held(
            uid, answer["dashboard"], version, str(meta.get("folderUid", "")), message, bool(meta.get("provisioned")),
            str(newest.get("createdBy") or meta.get("updatedBy") or ""),
        )  # fmt: skip

    async def ensure_folder(self, title: str) -> None:
        """Make the folder if it is not there."""
        path = f"/api/folders/{quote(self.folder)}"
        if await self._ask("GET", path, doing=f"look for the folder {self.folder}", absent=True) is None:
            body = {"uid": self.folder, "title": title}
            await self._ask("POST", "/api/folders", body=body, doing=f"make the folder {self.folder}")

    async def write(self, board: Mapping[str, Any], held: Held | None) -> None:
        """Write one board over the version that was seen; raises ``ChangedMeanwhileError`` if it is no longer that."""
        document = {**board, "id": None, "version": held.version if held else 0}
        if held is not None:
            document["id"] = held.document.get("id")
        body = {"dashboard": document, "folderUid": self.folder, "message": message_of(board), "overwrite": False}
        await self._ask("POST", "/api/dashboards/db", body=body, doing=f"write {board['uid']}")

    async def delete(self, uid: str) -> None:
        """Delete one board; one that is gone already is fine."""
        await self._ask("DELETE", f"/api/dashboards/uid/{quote(uid)}", doing=f"delete {uid}", absent=True)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        doing: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        absent: bool = False,
    ) -> Any:
        """The answer's JSON; None for a 404 where ``absent`` allows it."""
        try:
            async with self.session.request(
                method, f"{self.url}{path}", params=query, json=body, timeout=_TIMEOUT, allow_redirects=False,
                headers={"Authorization": f"Bearer {self.token}"} if self.token else None,
            ) as response:  # fmt: skip
                text = (await response.content.read(_BODY_LIMIT)).decode("utf-8", "replace")
                while not response.content.at_eof() and len(text) < _BODY_LIMIT:
                    text += (await response.content.read(_BODY_LIMIT)).decode("utf-8", "replace")
                status = response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TransientError(
                f"cannot {doing}: {self.url} does not answer ({error or 'timed out'}); is Grafana there?"
            ) from error
        if status == 404 and absent:
            return None
        if not 200 <= status < 300:
            raise _refusal(status, text, f"{self.url}: cannot {doing}")
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(
                f"{self.url}: cannot {doing}: the answer is not JSON; is this the address of a Grafana?"
            ) from error


def _refusal(status: int, text: str, where: str) -> GoodwatchError:
    try:
        said = json.loads(text)
    except ValueError:
        said = {}
    kind, message = (str(said.get(key, "")) for key in ("status", "message")) if isinstance(said, dict) else ("", "")
    told = f"{where}: {status} {message or text[:120].strip() or 'no reason given'}"
    if status in (409, 412):
        mend = "somebody wrote it meanwhile; look at goodwatch dashboards diff" if kind == "version-mismatch" else (
            "a board or folder of this name is there; rename it, or push into another folder"
        )  # fmt: skip
        return ChangedMeanwhileError(f"{told}; {mend}")
    if 300 <= status < 400:
        return ConfigError(f"{told}; Grafana redirects: write its address as Grafana serves it, sub-path included")
    if status == 429 or status >= 500:
        return TransientError(f"{told}; try again")
    mends = {
        401: "the token is missing, wrong or expired: set GRAFANA_TOKEN to a service account's token",
        403: "the token may not do this: give its service account the role Editor, or rights on the folder",
        404: "it is not there: does the folder exist, and is this the right Grafana?",
    }
    return ConfigError(f"{told}; {mends.get(status, 'Grafana refused it')}")


@asynccontextmanager
async def connected(url: str, token: str, folder: str) -> AsyncIterator[Grafana]:
    """A Grafana by its URL, for as long as the block lasts."""
    async with aiohttp.ClientSession() as session:
        yield Grafana(url.rstrip("/"), token, folder, session)

"""Targets that run in Kubernetes: pods, or the endpoints of services, listed once and then watched.

Written on the HTTP session that scrapes use: list and watch are two GET requests, and the official client would bring
a blocking HTTP stack and a dozen distributions for them. What is followed is the API's contract ("Kubernetes API
Concepts: efficient detection of changes"): a list in pages gives a resourceVersion, a watch from there gives one JSON
object a line, bookmarks move the version on, and 410 Gone means to list again.

While the API does not answer its last targets stay: its silence says nothing of the engines.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import aiohttp
from yarl import URL

from collector._http import Session
from collector.discovery._common import (
    TRANSPORT_ERRORS,
    ApiError,
    Failures,
    clipped,
    json_from,
    refused,
    transport_error,
)
from collector.discovery._kube_access import Access, Accessor, InCluster, Kubeconfig
from collector.discovery._kube_objects import Object, Seen, Wanted, seen
from collector.discovery.port import OnChange, OnFailure, ignore
from collector.targets import Defaults, TargetSpec
from goodwatch.core.errors import ConfigError

__all__ = ["InCluster", "Kubeconfig", "KubernetesSD", "Selection", "Wanted"]

#: objects of one page of a list, as client-go asks for them
PAGE_OBJECTS: Final = 500
PAGE_LIMIT_BYTES: Final = 256_000_000
#: one object is at most 1.5 MiB in etcd; JSON with managed fields is larger
LINE_LIMIT_BYTES: Final = 8_000_000
#: client-go's reflector lets a watch live 5 to 10 minutes; a connection that died silently is noticed by then
WATCH_S: Final = 300
_GRACE_S: Final = 15.0
_BACKOFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
_NOTES: Final = 20
_GONE: Final = 410

_RESOURCES: Final = {
    "pod": ("/api/v1", "pods"),
    "endpoints": ("/apis/discovery.k8s.io/v1", "endpointslices"),
}


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects are looked at, and what of them is scraped. Without namespaces all of them."""

    role: Literal["pod", "endpoints"] = "pod"
    namespaces: tuple[str, ...] = ()
    selector: str = ""
    wanted: Wanted = field(default_factory=Wanted)
    page_objects: int = PAGE_OBJECTS

    def url(self, access: Access, namespace: str) -> URL:
        """Where the objects of one namespace ("" for all) are listed and watched."""
        group, resource = _RESOURCES[self.role]
        scope = f"/namespaces/{namespace}" if namespace else ""
        query = {"labelSelector": self.selector} if self.selector else {}
        return URL(f"{access.server}{group}{scope}/{resource}").with_query(query)


@dataclass(slots=True)
class _Scope:
    """One namespace ("" for all): what is there, and up to which version that is known (None: list anew)."""

    namespace: str
    objects: dict[tuple[str, str], Seen] = field(default_factory=dict)
    version: str | None = None
    events: int = 0  # heard from watches

    @property
    def where(self) -> str:
        return f"namespace {self.namespace}" if self.namespace else "all namespaces"


class KubernetesSD:
    """Implements ``collector.discovery.port.Discovery`` with list and watch of the Kubernetes API.

    ``access`` is asked before every request, so that a token that was replaced is taken up. ``sleep`` waits between
    attempts after a failure; ``watch_s`` is how long one watch lives.
    """

    def __init__(
        self,
        name: str,
        access: Accessor,
        *,
        session: Session,
        selection: Selection | None = None,
        defaults: Defaults | None = None,
        watch_s: int = WATCH_S,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_failure: OnFailure = ignore,
    ) -> None:
        self.name = name
        self._access = access
        self._session = session
        self._selection = selection or Selection()
        self._defaults = defaults or Defaults()
        self._watch_s = watch_s
        self._sleep = sleep
        self._failures = Failures(name, on_failure)
        self._scopes = [_Scope(namespace) for namespace in dict.fromkeys(self._selection.namespaces or ("",))]
        self._watching = False

    @property
    def targets(self) -> tuple[TargetSpec, ...]:
        """Targets by name. A pod that two slices name (while one is rewritten, or two IP families) is there once."""
        found: dict[str, TargetSpec] = {}
        for scope in self._scopes:
            for key in sorted(scope.objects):
                for spec in scope.objects[key].specs:
                    found.setdefault(spec.target.name, spec)
        return tuple(found[name] for name in sorted(found))

    @property
    def problems(self) -> dict[str, str]:
        """Why a namespace cannot be read, and objects that have no target though one would expect it."""
        return self._failures.problems

    @property
    def failures_total(self) -> Counter[str]:
        """Requests that failed, by reason; 410 Gone is none, it is how a watch ends that fell behind."""
        return self._failures.total

    async def refresh(self) -> bool:
        """List everything; True when the targets differ from before. While ``run`` watches there is nothing to do."""
        if self._watching:
            return False
        before = self.targets
        async with asyncio.TaskGroup() as group:
            for scope in self._scopes:
                group.create_task(self._try_list(scope))
        self._tell()
        return self.targets != before

    def _tell(self) -> None:
        """Tell of objects that were left out: some, a cluster without a selector has thousands."""
        notes = [
            (f"{namespace}/{name}", known.note)
            for scope in self._scopes
            for (namespace, name), known in scope.objects.items()
            if known.note
        ]
        self._failures.note(dict(sorted(notes)[:_NOTES]))

    async def run(self, on_change: OnChange) -> None:
        """Watch until cancelled; what ``refresh`` has listed is not listed again."""
        self._watching = True
        told = self.targets

        def changed() -> None:
            nonlocal told
            self._tell()
            now = self.targets
            if now != told:
                told = now
                on_change(now)

        try:
            async with asyncio.TaskGroup() as group:
                for scope in self._scopes:
                    group.create_task(self._follow(scope, changed))
        finally:
            self._watching = False

    # -- one namespace ----------------------------------------------------------------------------------------------

    async def _follow(self, scope: _Scope, changed: Callable[[], None]) -> None:
        failures = 0
        while True:
            heard, began_s = scope.events, asyncio.get_running_loop().time()
            try:
                if scope.version is None:
                    await self._list(scope)
                    changed()
                await self._watch(scope, changed)
            except (ApiError, ConfigError) as error:
                self._note(scope, error)
            else:
                if scope.events > heard or asyncio.get_running_loop().time() - began_s >= _BACKOFF_S[0]:
                    failures = 0
                    continue
            # A watch that fails, or ends at once without a word, is not begun again at once: that would be a loop.
            await self._sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
            failures += 1

    async def _try_list(self, scope: _Scope) -> None:
        try:
            await self._list(scope)
        except (ApiError, ConfigError) as error:
            self._note(scope, error)

    def _note(self, scope: _Scope, error: ApiError | ConfigError) -> None:
        if isinstance(error, ApiError) and error.status == _GONE:
            scope.version = None
            return
        reason = error.reason if isinstance(error, ApiError) else "access"
        stay = f"; the {len(scope.objects)} objects known before stay" if scope.objects else ""
        self._failures.failed(scope.where, reason, f"{error}{_hint(error, self._selection)}{stay}")

    async def _list(self, scope: _Scope) -> None:
        """All objects of a namespace, page by page. A list that takes too long for its snapshot is begun again."""
        objects, version = await self._pages(scope, self._selection.page_objects)
        if version is None:  # the snapshot of the first page is gone: once more, in one piece
            objects, version = await self._pages(scope, None)
        scope.objects, scope.version = objects, version
        self._failures.fine(scope.where)

    async def _pages(self, scope: _Scope, size: int | None) -> tuple[dict[tuple[str, str], Seen], str | None]:
        """Objects and the version of the list; the version is None when the API forgot it halfway."""
        objects: dict[tuple[str, str], Seen] = {}
        going_on = ""
        while True:
            access = await asyncio.to_thread(self._access)
            query = {"limit": str(size)} if size else {}
            url = self._selection.url(access, scope.namespace)
            url = url.update_query({**query, **({"continue": going_on} if going_on else {})})
            try:
                page = await json_from(self._session, url, access.options, PAGE_LIMIT_BYTES)
            except ApiError as error:
                if error.status == _GONE and going_on:
                    return {}, None
                raise
            items, version, going_on = _page(page, url)
            for one in items:
                key, known = self._seen(one)
                objects[key] = known
            if not going_on:
                return objects, version

    def _seen(self, one: Object) -> tuple[tuple[str, str], Seen]:
        meta = one.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        key = (str(meta.get("namespace", "")), str(meta.get("name", "")))
        return key, seen(self._selection.role, one, self._selection.wanted, self._defaults)

    async def _watch(self, scope: _Scope, changed: Callable[[], None]) -> None:
        """Follow changes until the stream ends, in whatever way. Raises ``ApiError`` when it cannot begin."""
        access = await asyncio.to_thread(self._access)
        url = self._selection.url(access, scope.namespace).update_query(
            watch="1",
            resourceVersion=scope.version or "",
            allowWatchBookmarks="true",
            timeoutSeconds=str(self._watch_s),
        )
        begun = False
        try:
            async with (
                asyncio.timeout(access.options.timeout_s) as deadline,
                self._session.get(url, access.options, trusted=True) as response,
            ):
                if response.status != 200:
                    raise await refused(response, url)
                begun = True
                deadline.reschedule(asyncio.get_running_loop().time() + self._watch_s + _GRACE_S)
                self._failures.fine(scope.where)
                async with contextlib.aclosing(_lines(response, url)) as pieces:
                    async for lines in pieces:
                        for line in lines:
                            self._take(scope, line, url)
                        changed()
        except TRANSPORT_ERRORS as error:
            if not begun:  # one that breaks off is followed up from where it was
                raise transport_error(error, url, access.options.timeout_s) from error

    def _take(self, scope: _Scope, line: bytes, url: URL) -> None:
        """One event of a watch. Raises ``ApiError``."""
        scope.events += 1
        kind, one = _event(line, url)
        if kind == "ERROR":
            code = one.get("code")
            text = f"the watch of {url.with_query(None)} ended: {clipped(str(one.get('message') or one.get('reason')))}"
            raise ApiError("watch", text, code if isinstance(code, int) else None)
        meta = one.get("metadata")
        version = meta.get("resourceVersion") if isinstance(meta, dict) else None
        if kind in ("ADDED", "MODIFIED"):
            key, known = self._seen(one)
            scope.objects[key] = known
        elif kind == "DELETED":
            scope.objects.pop(self._seen(one)[0], None)
        if isinstance(version, str) and version:
            scope.version = version


def _page(page: Any, url: URL) -> tuple[list[Object], str, str]:
    """Objects, version and the token of the next page ("" at the end). Raises ``ApiError``."""
    meta = page.get("metadata") if isinstance(page, dict) else None
    items = page.get("items") if isinstance(page, dict) else None
    version = meta.get("resourceVersion") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(items, list | None) or not isinstance(version, str):
        text = f"{url.with_query(None)} answered, but not with a list; is the server a Kubernetes API?"
        raise ApiError("not_a_list", text, 200)
    return [one for one in items or () if isinstance(one, dict)], version, str(meta.get("continue") or "")


def _event(line: bytes, url: URL) -> tuple[str, Object]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        text = f"the watch of {url.with_query(None)} sent a line that is not JSON: {clipped(str(error))}"
        raise ApiError("not_json", text, 200) from error
    one = event.get("object") if isinstance(event, dict) else None
    return (str(event.get("type")), one) if isinstance(one, dict) else ("", {})


async def _lines(response: aiohttp.ClientResponse, url: URL) -> AsyncGenerator[list[bytes], None]:
    """Whole lines as they come, those of one chunk together. Raises ``ApiError`` for one that has no end."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_LIMIT_BYTES:
            raise ApiError("line_limit", f"the watch of {url.with_query(None)} sent a line without an end", 200)
        if lines := [line for line in lines if line.strip()]:
            yield lines


def _hint(error: ApiError | ConfigError, selection: Selection) -> str:
    status = error.status if isinstance(error, ApiError) else None
    if status == 401:
        return "; the token or certificate is not accepted"
    if status == 403:
        return f"; allow the account list and watch of {_RESOURCES[selection.role][1]} (docs/discovery.md has the role)"
    return ""

"""A double of the Kubernetes API on loopback that follows its contract for lists and watches.

Lists come in pages with a continue token and a resourceVersion; watches are chunked streams of one JSON object a line,
begin after a resourceVersion, translate an object that leaves the selector into DELETED, send bookmarks when asked to,
end after timeoutSeconds and answer 410 for a version that is forgotten: as a status or as an ERROR event, both occur.
"""

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiohttp import web

T = TypeVar("T")
Object = dict[str, Any]
KINDS = {"pods": ("v1", "Pod"), "endpointslices": ("discovery.k8s.io/v1", "EndpointSlice")}


@dataclass(eq=False)
class Watcher:
    """One open watch."""

    resource: str
    namespace: str
    selector: str
    bookmarks: bool
    queue: asyncio.Queue[tuple[str, Object] | None] = field(default_factory=asyncio.Queue)
    request: web.Request | None = None


@dataclass
class KubernetesApi:
    """What is in the cluster, and how the API behaves. All methods may be called from the test's thread."""

    url: str = ""
    token: str | None = None  # None: everyone is let in
    forbidden: bool = False
    down: bool = False  # every request gets 503
    gone_as_status: bool = False  # 410 as HTTP status instead of an ERROR event
    cut_every_bytes: int | None = None  # the stream's chunks; None: a line a chunk
    page_hook: Callable[[], None] = lambda: None  # called after the first page of a list
    version: int = 100
    oldest: int = 0  # watches from before this version get 410
    requests: list[str] = field(default_factory=list)  # "list pods" or "watch pods VERSION"
    selectors: list[str] = field(default_factory=list)
    objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    history: list[tuple[int, str, str, Object, Object | None]] = field(default_factory=list)
    snapshots: dict[int, list[Object]] = field(default_factory=dict)
    watchers: list[Watcher] = field(default_factory=list)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def call(self, work: Callable[[], T]) -> T:
        """Run in the server's loop and wait."""
        if threading.current_thread() is not threading.main_thread():
            return work()

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def put(self, one: Object, resource: str = "pods") -> None:
        """Make or change an object."""
        self.call(lambda: self._change(resource, one, gone=False))

    def delete(self, name: str, namespace: str = "default", resource: str = "pods") -> None:
        self.call(lambda: self._change(resource, self.objects[resource, namespace, name], gone=True))

    def bookmark(self) -> None:
        """Tell all watches that ask for it how far they are, as the API does about once a minute."""

        def send() -> None:
            self.version += 1
            for watcher in self.watchers:
                api, kind = KINDS[watcher.resource]
                meta = {"resourceVersion": str(self.version), "creationTimestamp": None}
                if watcher.bookmarks:
                    watcher.queue.put_nowait(("BOOKMARK", {"kind": kind, "apiVersion": api, "metadata": meta}))

        self.call(send)

    def forget(self) -> None:
        """Compact: every version up to now is too old, and so are lists that were begun."""

        def work() -> None:
            self.version += 1
            self.oldest = self.version
            self.history.clear()
            self.snapshots.clear()

        self.call(work)

    def drop(self) -> None:
        """Break all open watches off, as a proxy or a dying API server does."""

        def work() -> None:
            for watcher in self.watchers:
                if watcher.request is not None and watcher.request.transport is not None:
                    watcher.request.transport.abort()

        self.call(work)

    def _change(self, resource: str, one: Object, *, gone: bool) -> None:
        meta = one["metadata"]
        key = (resource, meta["namespace"], meta["name"])
        before = self.objects.get(key)
        self.version += 1
        one = json.loads(json.dumps(one))
        one["metadata"]["resourceVersion"] = str(self.version)
        if gone:
            del self.objects[key]
        else:
            self.objects[key] = one
        kind = "DELETED" if gone else "MODIFIED" if before else "ADDED"
        self.history.append((self.version, kind, resource, one, before))
        for watcher in self.watchers:
            if (event := _event_for(watcher, kind, resource, one, before)) is not None:
                watcher.queue.put_nowait(event)

    # -- what is served ---------------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        resource, namespace = request.match_info["resource"], request.match_info.get("namespace", "")
        if self.down:
            return web.Response(status=503, text="upstream connect error")
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized", "Unauthorized")
        if self.forbidden:
            who = "system:serviceaccount:monitoring:goodwatch"
            text = f'{resource} is forbidden: User "{who}" cannot list resource "{resource}" in API group ""'
            return _status(403, "Forbidden", text)
        self.selectors.append(request.query.get("labelSelector", ""))
        if request.query.get("watch"):
            return await self._watch(request, resource, namespace)
        return self._list(request, resource, namespace)

    def _list(self, request: web.Request, resource: str, namespace: str) -> web.Response:
        self.requests.append(f"list {resource}")
        limit, token = int(request.query.get("limit", "0")), request.query.get("continue")
        selector = request.query.get("labelSelector", "")
        start, at = 0, self.version
        if token:
            start, at = json.loads(base64.b64decode(token))
            if at not in self.snapshots:
                return _status(410, "Expired", "The provided continue parameter is too old")
            found = self.snapshots[at]
        else:
            found = [
                one
                for (kind, ns, _), one in sorted(self.objects.items())
                if kind == resource and namespace in ("", ns) and _matches(selector, one)
            ]
            self.snapshots[at] = found
        end = start + limit if limit else len(found)
        meta: Object = {"resourceVersion": str(at)}
        if end < len(found):
            meta |= {"continue": base64.b64encode(json.dumps([end, at]).encode()).decode()}
            meta |= {"remainingItemCount": len(found) - end}
        api, kind = KINDS[resource]
        answer = {"kind": f"{kind}List", "apiVersion": api, "metadata": meta, "items": found[start:end]}
        response = web.json_response(answer)
        response.enable_compression(web.ContentCoding.gzip)  # as the API does for large answers
        if start == 0:
            self.page_hook()
        return response

    async def _watch(self, request: web.Request, resource: str, namespace: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        self.requests.append(f"watch {resource} {since}")
        if since < self.oldest and self.gone_as_status:
            return _status(410, "Expired", f"too old resource version: {since} ({self.oldest})")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        selector = request.query.get("labelSelector", "")
        bookmarks = request.query.get("allowWatchBookmarks") == "true"
        watcher = Watcher(resource, namespace, selector, bookmarks, request=request)
        if since < self.oldest:
            text = f"too old resource version: {since} ({self.oldest})"
            await self._send(response, "ERROR", _failure(410, "Expired", text))
            return response
        for version, kind, changed, one, before in self.history:
            if version > since and (event := _event_for(watcher, kind, changed, one, before)) is not None:
                watcher.queue.put_nowait(event)
        self.watchers.append(watcher)
        try:
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(float(request.query["timeoutSeconds"])):
                    while (event := await watcher.queue.get()) is not None:
                        await self._send(response, *event)
        finally:
            self.watchers.remove(watcher)
        return response

    async def _send(self, response: web.StreamResponse, kind: str, one: Object) -> None:
        line = json.dumps({"type": kind, "object": one}).encode() + b"\n"
        size = self.cut_every_bytes or len(line)
        for start in range(0, len(line), size):
            await response.write(line[start : start + size])
            await asyncio.sleep(0)


def _failure(code: int, reason: str, message: str) -> Object:
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code,
    }  # fmt: skip


def _status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response(_failure(code, reason, message), status=code)


def _matches(selector: str, one: Object) -> bool:
    labels = one["metadata"].get("labels", {})
    pairs = (term.split("=", 1) for term in selector.split(",") if term)
    return all(labels.get(key) == value for key, value in pairs)


def _event_for(
    watcher: Watcher, kind: str, resource: str, one: Object, before: Object | None
) -> tuple[str, Object] | None:
    if resource != watcher.resource or watcher.namespace not in ("", one["metadata"]["namespace"]):
        return None
    was, now = before is not None and _matches(watcher.selector, before), _matches(watcher.selector, one)
    if kind == "DELETED":
        return ("DELETED", one) if was else None
    if now:
        return ("MODIFIED" if was else "ADDED", one)
    return ("DELETED", one) if was else None


@contextmanager
def kubernetes_api(*, tls: ssl.SSLContext | None = None) -> Iterator[KubernetesApi]:
    """Serve an empty cluster on a free loopback port, in a thread of its own."""
    api = KubernetesApi()
    started = threading.Event()

    async def serve(stop: asyncio.Event) -> None:
        app = web.Application()
        for group in ("/api/v1", "/apis/discovery.k8s.io/v1"):
            app.router.add_get(group + "/namespaces/{namespace}/{resource}", api.handle)
            app.router.add_get(group + "/{resource}", api.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        api.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await stop.wait()
        for watcher in list(api.watchers):
            watcher.queue.put_nowait(None)
        await runner.cleanup()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: api.loop.run_until_complete(serve(stop)), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield api
    finally:
        api.loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        api.loop.close()


def pod(
    name: str,
    *,
    uid: str = "3f8a1c20-0000-4000-8000-000000000000",
    namespace: str = "default",
    ip: str = "127.0.0.1",
    ports: tuple[tuple[str, int], ...] = (("http", 8000),),
    phase: str = "Running",
    ready: bool = True,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
) -> Object:
    """A pod with one container, as the API shows it."""
    container = {
        "name": "engine",
        "image": "vllm/vllm-openai:v0.32.0",
        "ports": [{"name": port, "containerPort": number, "protocol": "TCP"} for port, number in ports],
        "resources": {"limits": limits or {}},
    }
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid, "labels": labels or {"app": "vllm"},
            "annotations": annotations or {}, "managedFields": [{"manager": "kubelet", "operation": "Update"}],
        },
        "spec": {"nodeName": "node-1", "containers": [container]},
        "status": {
            "phase": phase, "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }  # fmt: skip


def endpoint_slice(name: str, service: str, *endpoints: Object, port: int = 8000, namespace: str = "default") -> Object:
    """An EndpointSlice of a service, as its controller writes it."""
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": f"uid-of-{name}",
            "labels": {"kubernetes.io/service-name": service, "app": "vllm"},
        },
        "addressType": "IPv4",
        "endpoints": list(endpoints),
        "ports": [{"name": "http", "protocol": "TCP", "port": port}],
    }  # fmt: skip


def endpoint(name: str, ip: str, *, uid: str = "3f8a1c20-0000", ready: bool | None = True) -> Object:
    return {
        "addresses": [ip], "conditions": {"ready": ready, "serving": ready, "terminating": False}, "nodeName": "node-1",
        "targetRef": {"kind": "Pod", "namespace": "default", "name": name, "uid": uid},
    }  # fmt: skip

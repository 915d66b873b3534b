"""Kubernetes discovery against a double of the API that follows its contract for lists and watches."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from collector._http import Session
from collector.discovery._kube_access import Access
from collector.discovery._kube_objects import Wanted
from collector.discovery.kubernetes import KubernetesSD, Selection
from collector.targets import Defaults, ScrapeOptions
from tests.support.kubernetes_api import KubernetesApi, endpoint, endpoint_slice, kubernetes_api, pod
from tests.support.process import wait_for

pytestmark = pytest.mark.integration
OTHER_UID = "77777777-0000-4000-8000-000000000000"


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with kubernetes_api() as one:
        yield one


class Found:
    """A discovery on an open session, with what it told and how long it wanted to sleep."""

    def __init__(self, api: KubernetesApi, session: Session, watch_s: int = 60, **selection: Any) -> None:
        self.api = api
        self.token: str | None = None
        self.told: list[list[str]] = []
        self.slept_s: list[float] = []
        self.counted: list[str] = []
        self.sd = KubernetesSD(
            "kubernetes_sd[0]", self._access, session=session, selection=Selection(**selection),
            defaults=Defaults(service="chat"), watch_s=watch_s, sleep=self._sleep,
            on_failure=lambda _, reason: self.counted.append(reason),
        )  # fmt: skip

    def _access(self) -> Access:
        return Access(self.api.url, ScrapeOptions(timeout_s=5, bearer=self.token))

    async def _sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        await asyncio.sleep(0.01)

    @property
    def names(self) -> list[str]:
        return [spec.target.name for spec in self.sd.targets]

    async def until(self, ask: Callable[[], object]) -> None:
        await asyncio.to_thread(wait_for, lambda: bool(ask()), 10, lambda: f"{self.names} {self.sd.problems}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.sd.refresh()
        task = asyncio.create_task(self.sd.run(lambda specs: self.told.append([s.target.name for s in specs])))
        await self.until(lambda: self.api.watchers or self.slept_s)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with Session() as one:
        yield one


async def test_running_pods_become_targets_with_where_they_run(api: KubernetesApi, session: Session) -> None:
    labels = {"app": "vllm", "app.kubernetes.io/version": "0.32", "pod-template-hash": "abc", "tier": "gold"}
    api.put(pod("vllm-0", ip="10.0.0.7", labels=labels, limits={"nvidia.com/gpu": "2", "memory": "64Gi"}))
    api.put(pod("starting", uid=OTHER_UID, phase="Pending", ip=""))
    found = Found(api, session, wanted=Wanted(extra_labels=("tier",)))
    assert await found.sd.refresh()
    (spec,) = found.sd.targets
    assert spec.target.name == "default/vllm-0/3f8a1c20"
    assert spec.target.url == "http://10.0.0.7:8000/metrics"
    assert spec.target.gpus == 2
    assert spec.target.labels == {
        "app": "vllm", "app_kubernetes_io_version": "0.32", "tier": "gold", "namespace": "default", "pod": "vllm-0",
        "node": "node-1", "container": "engine",
    }  # fmt: skip
    assert found.sd.problems == {}


async def test_a_pod_appears_changes_and_vanishes_while_watched(api: KubernetesApi, session: Session) -> None:
    found = Found(api, session)
    async with found.running():
        api.put(pod("vllm-0", phase="Pending", ip=""))
        api.put(pod("vllm-0"))
        await found.until(lambda: found.told)
        api.put(pod("vllm-0", phase="Succeeded"))
        await found.until(lambda: len(found.told) == 2)
        api.put(pod("vllm-1"))
        await found.until(lambda: len(found.told) == 3)
        api.delete("vllm-1")
        await found.until(lambda: len(found.told) == 4)
    assert found.told == [["default/vllm-0/3f8a1c20"], [], ["default/vllm-1/3f8a1c20"], []]
    assert api.requests == ["list pods", "watch pods 100"], "what was listed at start is not listed again"


async def test_a_pod_that_is_made_again_under_its_name_is_another_target(api: KubernetesApi, session: Session) -> None:
    api.put(pod("vllm-0"))
    found = Found(api, session)
    async with found.running():
        api.delete("vllm-0")
        api.put(pod("vllm-0", uid=OTHER_UID))
        await found.until(lambda: found.names == ["default/vllm-0/77777777"])


async def test_a_pod_that_leaves_the_selector_is_gone(api: KubernetesApi, session: Session) -> None:
    api.put(pod("vllm-0"))
    api.put(pod("other", labels={"app": "redis"}))
    found = Found(api, session, selector="app=vllm")
    async with found.running():
        assert found.names == ["default/vllm-0/3f8a1c20"]
        api.put(pod("vllm-0", labels={"app": "parked"}))
        await found.until(lambda: found.told == [[]])
    assert set(api.selectors) == {"app=vllm"}


async def test_only_the_wanted_namespaces_are_asked_for(api: KubernetesApi, session: Session) -> None:
    for namespace in ("a", "b", "c"):
        api.put(pod("vllm-0", namespace=namespace))
    found = Found(api, session, namespaces=("a", "b"))
    async with found.running():
        await found.until(lambda: len(api.watchers) == 2)
        api.put(pod("vllm-1", namespace="b"))
        api.put(pod("vllm-1", namespace="c"))
        await found.until(lambda: len(found.names) == 3)
    assert {name.split("/")[0] for name in found.names} == {"a", "b"}


async def test_a_long_list_comes_in_pages(api: KubernetesApi, session: Session) -> None:
    for number in range(35):
        api.put(pod(f"vllm-{number}"))
    found = Found(api, session, page_objects=10)
    await found.sd.refresh()
    assert len(found.names) == 35
    assert api.requests == ["list pods"] * 4


async def test_a_list_whose_snapshot_is_gone_is_begun_again_in_one_piece(api: KubernetesApi, session: Session) -> None:
    for number in range(5):
        api.put(pod(f"vllm-{number}"))
    api.page_hook = api.forget
    found = Found(api, session, page_objects=2)
    await found.sd.refresh()
    assert len(found.names) == 5
    assert api.requests == ["list pods"] * 3
    assert found.sd.problems == {}


@pytest.mark.parametrize("gone_as_status", [False, True])
async def test_a_version_that_is_too_old_leads_to_a_new_list(
    api: KubernetesApi, session: Session, gone_as_status: bool
) -> None:
    api.gone_as_status = gone_as_status
    api.put(pod("old"))
    found = Found(api, session)
    async with found.running():
        api.forget()
        api.call(api.objects.clear)  # deleted, and the event is compacted away
        api.put(pod("new"))
        await found.until(lambda: found.names == ["default/new/3f8a1c20", "default/old/3f8a1c20"])
        api.forget()
        api.drop()
        await found.until(lambda: found.names == ["default/new/3f8a1c20"])
        await found.until(lambda: api.watchers)
    assert api.requests.count("list pods") == 2
    assert found.counted == [], "falling behind is no failure"


async def test_bookmarks_move_the_version_on_so_that_no_new_list_is_needed(
    api: KubernetesApi, session: Session
) -> None:
    api.put(pod("vllm-0"))
    found = Found(api, session)
    async with found.running():
        api.forget()
        api.bookmark()
        watched = api.version
        await found.until(lambda: found.sd._scopes[0].version == str(watched))
        api.drop()
        await found.until(lambda: f"watch pods {watched}" in api.requests)
        api.put(pod("vllm-1"))
        await found.until(lambda: len(found.names) == 2)
    assert api.requests.count("list pods") == 1


async def test_a_connection_that_breaks_is_taken_up_where_it_was(api: KubernetesApi, session: Session) -> None:
    found = Found(api, session)
    async with found.running():
        api.put(pod("vllm-0"))
        await found.until(lambda: len(found.names) == 1)
        api.call(lambda: setattr(api, "down", True))
        api.drop()
        await found.until(lambda: found.counted)
        assert len(found.names) == 1, "its silence says nothing of the pods"
        assert "HTTP 503" in found.sd.problems["all namespaces"]
        assert "1 objects known before stay" in found.sd.problems["all namespaces"]
        api.delete("vllm-0")
        api.put(pod("vllm-1"))
        api.call(lambda: setattr(api, "down", False))
        await found.until(lambda: found.names == ["default/vllm-1/3f8a1c20"])
        assert found.sd.problems == {}
    assert api.requests.count("list pods") == 1
    assert set(found.counted) == {"http_503"}
    assert found.slept_s[:3] == sorted(found.slept_s[:3])
    assert max(found.slept_s) <= 30


async def test_a_watch_that_ends_in_time_begins_again(api: KubernetesApi, session: Session) -> None:
    found = Found(api, session, watch_s=1)
    async with found.running():
        await found.until(lambda: len([r for r in api.requests if r.startswith("watch")]) >= 3)
        api.put(pod("vllm-0"))
        await found.until(lambda: found.names)
    assert found.counted == []
    assert found.sd.problems == {}


async def test_lines_that_come_in_small_pieces_are_put_together(api: KubernetesApi, session: Session) -> None:
    api.cut_every_bytes = 7
    found = Found(api, session)
    async with found.running():
        api.put(pod("vllm-0", annotations={"note": "größer"}))
        await found.until(lambda: found.names)


async def test_a_token_that_was_replaced_is_taken_up(api: KubernetesApi, session: Session) -> None:
    api.token = "first"
    found = Found(api, session)
    found.token = "first"
    async with found.running():
        api.token = "second"
        api.drop()
        await found.until(lambda: "http_401" in found.counted)
        assert "Unauthorized; the token or certificate is not accepted" in found.sd.problems["all namespaces"]
        assert "first" not in str(found.sd.problems)
        found.token = "second"
        api.put(pod("vllm-0"))
        await found.until(lambda: found.names)
        assert found.sd.problems == {}


async def test_a_missing_right_is_told_with_what_would_be_right(api: KubernetesApi, session: Session) -> None:
    api.forbidden = True
    found = Found(api, session)
    assert not await found.sd.refresh()
    problem = found.sd.problems["all namespaces"]
    assert 'User "system:serviceaccount:monitoring:goodwatch" cannot list resource "pods"' in problem
    assert "allow the account list and watch of pods" in problem
    assert found.sd.failures_total == {"http_403": 1}


async def test_what_is_no_kubernetes_api_is_told(api: KubernetesApi, session: Session) -> None:
    found = Found(api, session)
    found.api = replace(api, url=f"{api.url}/elsewhere", loop=api.loop)
    await found.sd.refresh()
    assert "HTTP 404" in found.sd.problems["all namespaces"]


async def test_endpoints_of_a_service_are_its_pods(api: KubernetesApi, session: Session) -> None:
    ends = (endpoint("vllm-0", "10.0.0.1"), endpoint("vllm-1", "10.0.0.2", uid=OTHER_UID, ready=False))
    api.put(endpoint_slice("chat-abc", "chat", *ends), "endpointslices")
    found = Found(api, session, role="endpoints")
    await found.sd.refresh()
    assert found.names == ["default/vllm-0/3f8a1c20", "default/vllm-1/77777777"]
    assert found.sd.targets[0].target.url == "http://10.0.0.1:8000/metrics"
    assert found.sd.targets[0].target.labels == {
        "app": "vllm", "namespace": "default", "pod": "vllm-0", "node": "node-1", "kubernetes_service": "chat",
    }  # fmt: skip
    ready = Found(api, session, role="endpoints", wanted=Wanted(ready_only=True))
    await ready.sd.refresh()
    assert ready.names == ["default/vllm-0/3f8a1c20"]


async def test_a_pod_that_two_slices_name_is_there_once(api: KubernetesApi, session: Session) -> None:
    for name in ("chat-a", "chat-b"):
        api.put(endpoint_slice(name, "chat", endpoint("vllm-0", "10.0.0.1")), "endpointslices")
    found = Found(api, session, role="endpoints")
    async with found.running():
        assert found.names == ["default/vllm-0/3f8a1c20"]
        api.delete("chat-a", resource="endpointslices")
        api.delete("chat-b", resource="endpointslices")
        await found.until(lambda: found.told == [[]])


async def test_pods_without_a_clear_port_are_told_once_and_only_some_of_them(
    api: KubernetesApi, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(30):
        api.put(pod(f"sidecars-{number:02}", ports=(("http", 8000), ("metrics", 9000))))
    found = Found(api, session)
    async with found.running():
        assert found.names == []
        assert len(found.sd.problems) == 20
        assert "8000 (http), 9000 (metrics)" in found.sd.problems["default/sidecars-00"]
        api.put(pod("sidecars-00"))
        await found.until(lambda: found.names)
        assert "default/sidecars-00" not in found.sd.problems
    assert len([r for r in caplog.records if r.message == "discovery"]) == 21, "the one that moved up, too"

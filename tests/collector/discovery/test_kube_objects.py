"""What of a pod or an EndpointSlice becomes a target: pure, from objects as the API shows them."""

from typing import Any

import pytest

from collector.discovery._kube_objects import Wanted, of_pod, of_slice
from collector.targets import Defaults
from tests.support.kubernetes_api import endpoint, endpoint_slice, pod

TWO = (("http", 8000), ("metrics", 9000))


def urls(one: dict[str, Any], wanted: Wanted | None = None) -> list[str]:
    return [s.target.url for s in of_pod(one, wanted or Wanted(), Defaults()).specs]


@pytest.mark.parametrize(
    ("ports", "notes", "wanted", "url"),
    [
        ((("http", 8000),), {}, Wanted(), "http://127.0.0.1:8000/metrics"),
        (TWO, {}, Wanted(port="metrics"), "http://127.0.0.1:9000/metrics"),
        (TWO, {}, Wanted(port="8000"), "http://127.0.0.1:8000/metrics"),
        (TWO, {"prometheus.io/port": "9000"}, Wanted(), "http://127.0.0.1:9000/metrics"),
        ((), {"prometheus.io/port": "8080"}, Wanted(), "http://127.0.0.1:8080/metrics"),
        (TWO, {"prometheus.io/port": "9000"}, Wanted(port="http"), "http://127.0.0.1:8000/metrics"),
        ((("http", 8000),), {"prometheus.io/path": "prometheus/metrics"}, Wanted(), "http://127.0.0.1:8000/prometheus/metrics"),
        ((("http", 8000),), {"prometheus.io/path": "/x"}, Wanted(path="/y"), "http://127.0.0.1:8000/y"),
        ((("http", 8000),), {"prometheus.io/scheme": "https"}, Wanted(), "https://127.0.0.1:8000/metrics"),
        ((("http", 8000),), {"prometheus.io/scheme": "ftp"}, Wanted(), "http://127.0.0.1:8000/metrics"),
        ((("http", 8000),), {"prometheus.io/port": "1"}, Wanted(annotations=False), "http://127.0.0.1:8000/metrics"),
    ],
)  # fmt: skip
def test_port_path_and_scheme_come_from_the_entry_then_from_annotations(
    ports: tuple[tuple[str, int], ...], notes: dict[str, str], wanted: Wanted, url: str
) -> None:
    assert urls(pod("p", ports=ports, annotations=notes), wanted) == [url]


@pytest.mark.parametrize(
    ("ports", "wanted", "says"),
    [
        (TWO, Wanted(), "does not say which port has metrics, there are: 8000 (http), 9000 (metrics)"),
        ((), Wanted(), "there are: none; write port, or annotate it prometheus.io/port"),
        (TWO, Wanted(port="grpc"), "has no port 'grpc'; there are: 8000 (http), 9000 (metrics)"),
    ],
)
def test_a_pod_without_a_clear_port_is_left_out_and_says_why(
    ports: tuple[tuple[str, int], ...], wanted: Wanted, says: str
) -> None:
    seen = of_pod(pod("p", ports=ports), wanted, Defaults())
    assert seen.specs == ()
    assert says in seen.note


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (pod("p", phase="Pending"), Wanted()),
        (pod("p", phase="Succeeded"), Wanted()),
        (pod("p", ip=""), Wanted()),
        (pod("p", ready=False), Wanted(ready_only=True)),
        (pod("p", annotations={"prometheus.io/scrape": "false"}), Wanted()),
        ({}, Wanted()),
        ({"metadata": None, "spec": [], "status": "x"}, Wanted()),
    ],
)
def test_what_does_not_run_or_is_not_to_be_scraped_is_no_target_and_no_problem(
    one: dict[str, Any], wanted: Wanted
) -> None:
    seen = of_pod(one, wanted, Defaults())
    assert (seen.specs, seen.note) == ((), "")


def test_an_engine_that_is_not_ready_is_watched_unless_told_otherwise() -> None:
    assert len(urls(pod("p", ready=False))) == 1


def test_a_pod_that_terminates_is_watched_to_its_end() -> None:
    one = pod("p")
    one["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert len(urls(one)) == 1


def test_one_port_name_in_several_containers_is_a_target_each_with_its_own_gpus() -> None:
    one = pod("dp", limits={"nvidia.com/gpu": "1"})
    second = {**one["spec"]["containers"][0], "name": "engine-1"}
    second["ports"] = [{"name": "http", "containerPort": 8001, "protocol": "TCP"}]
    second["resources"] = {"limits": {"nvidia.com/gpu": "4"}}
    one["spec"]["containers"].append(second)
    specs = of_pod(one, Wanted(port="http"), Defaults()).specs
    assert [(s.target.name, s.target.gpus, s.target.labels["container"]) for s in specs] == [
        ("default/dp/3f8a1c20:8000", 1, "engine"),
        ("default/dp/3f8a1c20:8001", 4, "engine-1"),
    ]


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ({"nvidia.com/gpu": "8"}, 8),
        ({"amd.com/gpu": "2"}, 2),
        ({"nvidia.com/mig-1g.10gb": "1"}, None),
        ({"nvidia.com/gpu.shared": "1"}, None),
        ({"nvidia.com/gpu": "0"}, None),
        ({}, None),
    ],
)
def test_whole_gpus_are_counted_from_limits_and_shares_of_one_are_not(
    limits: dict[str, str], gpus: float | None
) -> None:
    (spec,) = of_pod(pod("p", limits=limits), Wanted(), Defaults()).specs
    assert spec.target.gpus == gpus


def test_what_the_entry_says_comes_before_what_the_pod_says() -> None:
    one = pod("p", limits={"nvidia.com/gpu": "8"}, labels={"app": "vllm", "app.kubernetes.io/name": "chat"})
    (found,) = of_pod(one, Wanted(), Defaults()).specs
    assert (found.target.service, found.target.gpus, found.target.labels["app"]) == ("chat", 8, "vllm")
    (told,) = of_pod(one, Wanted(), Defaults(service="search", gpus=4, labels={"app": "x", "gpu": "H100"})).specs
    assert (told.target.service, told.target.gpus, told.target.labels["app"]) == ("search", 4, "x")


def test_an_address_of_ip_version_6_is_put_in_brackets() -> None:
    assert urls(pod("p", ip="fd00::7")) == ["http://[fd00::7]:8000/metrics"]


def test_an_endpoint_that_is_no_pod_is_named_by_its_address() -> None:
    outside = {"addresses": ["192.0.2.1"], "conditions": {}}
    seen = of_slice(endpoint_slice("s", "chat", outside), Wanted(), Defaults())
    assert [(s.target.name, s.target.service) for s in seen.specs] == [("default/chat/192.0.2.1", "chat")]


def test_an_endpoint_whose_readiness_is_unknown_counts_as_ready() -> None:
    one = endpoint_slice("s", "chat", endpoint("p", "10.0.0.1", ready=None))
    assert len(of_slice(one, Wanted(ready_only=True), Defaults()).specs) == 1


def test_a_metrics_port_that_the_service_does_not_offer_can_be_named_by_number() -> None:
    one = endpoint_slice("s", "chat", endpoint("p", "10.0.0.1"), port=80)
    seen = of_slice(one, Wanted(port="8000", path="/m", scheme="https"), Defaults())
    assert [s.target.url for s in seen.specs] == ["https://10.0.0.1:8000/m"]
    named = of_slice(one, Wanted(port="metrics"), Defaults())
    assert named.note == "has no port 'metrics'; there are: 80 (http)"


def test_a_slice_with_several_ports_wants_one_to_be_named() -> None:
    one = endpoint_slice("s", "chat", endpoint("p", "10.0.0.1"))
    one["ports"].append({"name": "grpc", "protocol": "TCP", "port": 9000})
    seen = of_slice(one, Wanted(), Defaults())
    assert seen.specs == ()
    assert "there are: 8000 (http), 9000 (grpc)" in seen.note

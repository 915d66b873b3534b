"""Devices of a page: identity, labels in every spelling, pods."""

import pytest

from collector.accelerators._devices import Device, KubePod, Pod, devices, kube_pods, registry_of
from tests.collector.accelerators.pages import Gpu, dcgm, page, understood


def of(text: str, exporter: str = "exporter") -> tuple[Device, ...]:
    found = understood(text)
    assert found.reading is not None
    return devices(found.reading, found.families, exporter)


def test_a_device_is_known_by_its_uuid_with_what_its_labels_say() -> None:
    (one,) = of(dcgm(Gpu("GPU-a", index=2, host="gpu-7", pod="ai/chat-0")))
    assert (one.key, one.card, one.rank) == ("GPU-a", "GPU-a", "gpu=GPU-a")
    assert (one.index, one.host, one.product) == ("2", "gpu-7", "NVIDIA H100")
    assert one.pods == (Pod("ai", "chat-0"),)
    assert one.containers == ("engine",)
    assert "gpu_power_watts" in one.signals


def test_an_instance_knows_its_card() -> None:
    (one,) = of(dcgm(Gpu("GPU-a", instance="3")))
    assert (one.key, one.card, one.instance) == ("GPU-a/3", "GPU-a", "3")


def test_a_number_is_a_device_of_its_exporter_only() -> None:
    text = page([(("npu_chip_info_power", "gauge", 90.0), {"id": "3"})])
    (first,), (second,) = of(text, "npu-1"), of(text, "npu-2")
    assert (first.key, second.key) == ("npu-1:3", "npu-2:3")


@pytest.mark.parametrize(
    "labels",
    [
        {"pod": "chat-0", "namespace": "ai"},
        {"exported_pod": "chat-0", "exported_namespace": "ai", "pod": "dcgm-x", "namespace": "gpu-operator"},
        {"pod_name": "chat-0", "pod_namespace": "ai"},
    ],
)
def test_the_pod_is_found_in_every_spelling(labels: dict[str, str]) -> None:
    text = page([(("DCGM_FI_DEV_POWER_USAGE", "gauge", 90.0), {"UUID": "GPU-a", **labels})])
    (one,) = of(text)
    assert one.pods == (Pod("ai", "chat-0"),)


def test_a_time_sliced_device_names_every_pod() -> None:
    (one,) = of(dcgm(Gpu("GPU-a", pod="ai/one"), Gpu("GPU-a", pod="ai/two")))
    assert one.pods == (Pod("ai", "one"), Pod("ai", "two"))


def test_a_table_of_pods_beside_the_numbers_is_read() -> None:
    text = page([
        (("mlu_power_usage", "gauge", 70.0), {"uuid": "MLU-1", "mlu": "0", "model": "MLU370"}),
        (("mlu_container", "gauge", 1.0), {"uuid": "MLU-1", "namespace": "ai", "pod": "chat-0", "container": "c"}),
    ])  # fmt: skip
    (one,) = of(text)
    assert (one.pods, one.product) == ((Pod("ai", "chat-0"),), "MLU370")


def test_a_device_that_is_named_for_its_pods_alone_counts() -> None:
    labels = {"podname": "chat-0", "podnamespace": "ai", "deviceuuid": "GPU-a"}
    (one,) = of(page([(("hami_vgpu_memory_used_bytes", "gauge", 1.0), labels)]))
    assert (one.key, one.pods, one.signals) == ("GPU-a", (Pod("ai", "chat-0"),), frozenset())


def test_pods_of_the_cluster_are_read_with_their_addresses() -> None:
    labels = {
        "namespace": "ai", "pod": "chat-0", "uid": "u", "node": "gpu-1", "pod_ip": "10.0.0.7", "host_ip": "192.0.2.1",
    }  # fmt: skip
    found = understood(page([(("kube_pod_info", "gauge", 1.0), labels)]))
    assert found.engine is not None
    assert found.engine.name == "kube_state"
    assert kube_pods(found.families) == (KubePod("ai", "chat-0", "u", "gpu-1", "10.0.0.7", "192.0.2.1"),)
    assert registry_of(found, "ksm", "ksm").devices == ()


def test_a_page_of_somebody_else_tells_of_nothing() -> None:
    assert registry_of(understood("up 1\n"), "x", "h").devices == ()

"""What a page of an accelerator exporter is said to be: devices, values, and what to watch out for."""

import pytest

from collector.capability import Capability, capability
from goodwatch.core.catalogue import ACCELERATOR_SIGNALS
from goodwatch.core.model import SignalStatus
from tests.collector.accelerators.pages import Gpu, dcgm, page, understood


def report(text: str) -> Capability:
    return capability(understood(text))


def codes(found: Capability) -> set[str]:
    return {r.code for r in found.remarks}


def test_a_page_of_devices_is_reported_device_by_device() -> None:
    found = report(dcgm(Gpu("GPU-a", 0, pod="ai/chat-0", millijoules=5e6), Gpu("GPU-b", 1)))
    assert (found.engine, found.title) == ("dcgm", "NVIDIA DCGM exporter")
    first, second = found.devices
    assert (first.key, first.index, first.product, first.host) == ("GPU-a", "0", "NVIDIA H100", "gpu-1")
    assert first.pods == ("ai/chat-0",)
    assert first.values["gpu_energy_joules_total"] == 5_000.0
    assert "gpu_energy_joules_total" not in second.values
    assert found.models == ()


def test_only_what_accelerators_can_tell_is_listed() -> None:
    found = report(dcgm(Gpu("GPU-a")))
    assert {s.name for s in found.signals} == ACCELERATOR_SIGNALS
    assert all(s.why for s in found.signals if s.status is SignalStatus.ABSENT)
    assert next(s for s in found.signals if s.name == "gpu_memory_total_bytes").status is SignalStatus.DERIVED


def test_a_signal_of_several_devices_says_the_highest() -> None:
    found = report(dcgm(Gpu("GPU-a", watts=300.0), Gpu("GPU-b", watts=90.0)))
    assert next(s for s in found.signals if s.name == "gpu_power_watts").value == "highest 300 W of 2 devices"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (dcgm(Gpu("GPU-a", pod="a/x"), Gpu("GPU-a", pod="a/y")), "time_sliced"),
        (dcgm(Gpu("GPU-a", instance="1")), "instances"),
        (dcgm(Gpu("GPU-a")), "no_energy_counter"),
        (dcgm(Gpu("GPU-a", watts=None)), "no_power"),
        (page([(("DCGM_FI_DEV_XID_ERRORS", "gauge", 79.0), {"UUID": "GPU-a"})]), "error_code"),
        (page([(("npu_chip_info_health_status", "gauge", 0.0), {"id": "0"})]), "unhealthy"),
        (page([(("kube_pod_info", "gauge", 1.0), {"pod": "x", "namespace": "a"})]), "kube_pods"),
        (page([(("machine_npu_nums", "gauge", 0.0), {})]), "no_devices"),
    ],
)
def test_what_trips_a_reader_is_said(text: str, code: str) -> None:
    assert code in codes(report(text))


def test_a_healthy_page_has_nothing_to_say() -> None:
    assert codes(report(dcgm(Gpu("GPU-a", millijoules=1.0)))) == set()

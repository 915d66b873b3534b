"""Which target holds which devices: configured, by pod, by host; and never by guess."""

from collector.accelerators._devices import Device, KubePod, Pod, Registry
from collector.accelerators._join import Claim, Held, join


def device(key: str, *, exporter: str = "dcgm", host: str = "gpu-1", index: str = "", **more: object) -> Device:
    values = {
        "card": key,
        "rank": f"gpu={key.rsplit(':', maxsplit=1)[-1]}",
        "signals": frozenset({"gpu_power_watts"}),
        **more,
    }
    return Device(key=key, exporter=exporter, host=host, index=index, **values)  # type: ignore[arg-type]


def pods(*names: str) -> tuple[Pod, ...]:
    return tuple(Pod(*name.split("/")) for name in names)


def registry(*devices: Device, exporter: str = "dcgm", host: str = "gpu-1", kube: tuple[KubePod, ...] = ()) -> Registry:
    return Registry(exporter, host, devices=devices, pods=kube)


def keys(held: Held) -> list[str]:
    return [d.key for d in held.devices]


def test_configured_devices_win() -> None:
    there = registry(device("GPU-a"), device("GPU-b"))
    held = join([there], [Claim("one", "gpu-1", devices=("GPU-b",)), Claim("two", "gpu-1")])
    assert (keys(held["one"]), held["one"].basis) == (["GPU-b"], "config")
    assert (keys(held["two"]), held["two"].basis) == (["GPU-a"], "host")
    assert held["one"].parts["GPU-b"].holders == ()


def test_a_configured_device_that_nobody_tells_of_is_named() -> None:
    held = join([registry(device("GPU-a"))], [Claim("one", "gpu-1", devices=("GPU-x",))])
    assert keys(held["one"]) == []
    assert held["one"].note == "accelerators.devices: GPU-x is on no exporter's page; there are GPU-a"


def test_a_number_needs_a_host_where_several_have_it() -> None:
    there = [
        registry(device("GPU-a", index="0")),
        registry(device("GPU-b", index="0", host="gpu-2", exporter="dcgm-2"), exporter="dcgm-2", host="gpu-2"),
    ]
    alone = join(there, [Claim("one", "x", devices=("0",))])["one"]
    assert keys(alone) == []
    assert "is several devices" in alone.note
    assert keys(join(there, [Claim("one", "x", devices=("0",), device_host="gpu-2")])["one"]) == ["GPU-b"]


def test_a_configured_host_gives_all_its_devices() -> None:
    there = registry(device("GPU-a"), device("GPU-b"), device("GPU-c", host="gpu-2"))
    assert keys(join([there], [Claim("one", "lb.example", device_host="gpu-1")])["one"]) == ["GPU-a", "GPU-b"]
    nobody = join([there], [Claim("one", "lb.example", device_host="gpu-9")])["one"]
    assert nobody.note == "no exporter tells of devices of gpu-9"


def test_a_pod_holds_the_devices_that_name_it() -> None:
    there = registry(device("GPU-a", pods=pods("ai/chat-0")), device("GPU-b", pods=pods("ai/chat-1")), device("GPU-c"))
    held = join([there], [Claim("one", "10.0.0.7", namespace="ai", pod="chat-0")])["one"]
    assert (keys(held), held.basis) == (["GPU-a"], "pod")


def test_a_pod_of_another_namespace_is_another_pod() -> None:
    there = registry(device("GPU-a", pods=pods("other/chat-0")))
    held = join([there], [Claim("one", "10.0.0.7", namespace="ai", pod="chat-0")])["one"]
    assert (keys(held), held.note) == ([], "no device names the pod ai/chat-0")


def test_an_exporter_that_names_no_namespace_is_believed_where_one_pod_has_the_name() -> None:
    there = registry(device("GPU-a", pods=(Pod("", "chat-0"),)))
    assert keys(join([there], [Claim("one", "x", namespace="ai", pod="chat-0")])["one"]) == ["GPU-a"]
    two = registry(device("GPU-a", pods=pods("a/chat-0")), device("GPU-b", pods=pods("b/chat-0")))
    held = join([two], [Claim("one", "x", pod="chat-0")])["one"]
    assert (keys(held), held.note) == (
        [], "pod chat-0 is in several namespaces (a, b); add the label namespace to the target",
    )  # fmt: skip


def test_an_address_leads_to_the_pod_through_the_cluster() -> None:
    kube = (KubePod("ai", "chat-0", "u", "gpu-1", "10.0.0.7", "192.0.2.1"),)
    there = registry(device("GPU-a", pods=pods("ai/chat-0")), device("GPU-b", pods=pods("ai/chat-1")), kube=kube)
    assert keys(join([there], [Claim("one", "10.0.0.7")])["one"]) == ["GPU-a"]


def test_an_address_of_the_host_is_no_pod() -> None:
    kube = (KubePod("ai", "chat-0", "u", "gpu-1", "192.0.2.1", "192.0.2.1"),)
    there = registry(device("GPU-a", pods=pods("ai/chat-0")), device("GPU-b", pods=pods("ai/chat-1")), kube=kube)
    assert keys(join([there], [Claim("one", "192.0.2.1")])["one"]) == []


def test_a_pod_is_known_by_its_uid_where_only_that_is_told() -> None:
    kube = (KubePod("ai", "chat-0", "u-1", "gpu-1", "10.0.0.7", "192.0.2.1"),)
    there = registry(device("hygon:0", pods=(Pod("", "", "u-1"),)), kube=kube)
    assert keys(join([there], [Claim("one", "10.0.0.7")])["one"]) == ["hygon:0"]


def test_where_no_exporter_names_pods_the_node_of_the_pod_decides() -> None:
    kube = (KubePod("ai", "chat-0", "u", "gpu-1", "10.0.0.7", "192.0.2.1"),)
    there = registry(device("GPU-a"), kube=kube)
    held = join([there], [Claim("one", "10.0.0.7")])["one"]
    assert (keys(held), held.basis) == (["GPU-a"], "host")


def test_a_target_holds_the_devices_of_its_host() -> None:
    there = registry(device("GPU-a", host="gpu-1.example.org"), device("GPU-b", host="gpu-2.example.org"))
    assert keys(join([there], [Claim("one", "gpu-1")])["one"]) == ["GPU-a"]
    assert keys(join([there], [Claim("one", "GPU-1.example.org.")])["one"]) == ["GPU-a"]
    stranger = join([there], [Claim("one", "gpu-3")])["one"]
    assert "no exporter tells of devices of gpu-3" in stranger.note


def test_a_short_name_that_two_hosts_have_is_not_resolved_by_guess() -> None:
    there = registry(device("GPU-a", host="gpu-1.east"), device("GPU-b", host="gpu-1.west"))
    held = join([there], [Claim("one", "gpu-1")])["one"]
    assert (keys(held), held.note) == ([], "gpu-1 may be any of the hosts gpu-1.east, gpu-1.west")


def test_the_exporters_own_host_is_that_of_its_devices() -> None:
    there = registry(device("GPU-a", host="node-name"), host="127.0.0.1")
    assert keys(join([there], [Claim("one", "localhost")])["one"]) == ["GPU-a"]


def test_the_host_of_a_page_that_tells_of_many_hosts_is_none_of_them() -> None:
    there = registry(device("GPU-a", host="gpu-1"), device("GPU-b", host="gpu-2"), host="prometheus")
    assert keys(join([there], [Claim("one", "prometheus")])["one"]) == []


def test_a_configured_host_of_an_exporter_goes_over_its_labels() -> None:
    pinned = Registry("dcgm", "gpu-9", pinned=True, devices=(device("GPU-a", host="dcgm-pod-x"),))
    assert keys(join([pinned], [Claim("one", "gpu-9")])["one"]) == ["GPU-a"]
    assert keys(join([pinned], [Claim("one", "dcgm-pod-x")])["one"]) == []


def test_two_targets_of_one_host_share_its_devices_and_that_is_said() -> None:
    held = join([registry(device("GPU-a"), device("GPU-b"))], [Claim("one", "gpu-1"), Claim("two", "gpu-1")])
    assert keys(held["one"]) == keys(held["two"]) == ["GPU-a", "GPU-b"]
    assert held["one"].parts["GPU-a"].holders == ("one", "two")


def test_a_host_with_more_devices_than_its_targets_hold_is_not_split_by_guess() -> None:
    there = registry(*(device(f"GPU-{i}") for i in range(8)))
    held = join([there], [Claim("one", "gpu-1", gpus=2)])["one"]
    assert keys(held) == []
    assert (
        held.note == "gpu-1 has 8 devices and its targets hold 2; list them under accelerators.devices of each target"
    )
    both = join([there], [Claim("one", "gpu-1", gpus=2), Claim("two", "gpu-1", gpus=6)])
    assert len(both["one"].devices) == 8
    assert both["one"].parts["GPU-0"].holders == ("one", "two")


def test_devices_that_name_several_pods_are_nobodys_by_host() -> None:
    there = registry(device("GPU-a", pods=pods("ai/x")), device("GPU-b", pods=pods("ai/y")))
    held = join([there], [Claim("one", "gpu-1")])["one"]
    assert held.note == "the devices of gpu-1 name 2 pods; add the labels namespace and pod to the target"


def test_a_time_sliced_device_tells_who_else_holds_it() -> None:
    there = registry(device("GPU-a", pods=pods("ai/chat-0", "dev/notebook")))
    held = join([there], [Claim("one", "x", namespace="ai", pod="chat-0")])["one"]
    assert held.parts["GPU-a"].strangers == "pod dev/notebook"


def test_a_time_sliced_device_of_two_targets_has_no_stranger() -> None:
    there = registry(device("GPU-a", pods=pods("ai/chat-0", "ai/chat-1")))
    claims = [Claim(f"t{i}", "x", namespace="ai", pod=f"chat-{i}") for i in range(2)]
    part = join([there], claims)["t0"].parts["GPU-a"]
    assert (part.holders, part.strangers) == (("t0", "t1"), "")


def test_an_instance_shares_the_power_of_its_card_with_the_other_instances() -> None:
    there = registry(
        device("GPU-a/1", card="GPU-a", instance="1", pods=pods("ai/chat-0")),
        device("GPU-a/2", card="GPU-a", instance="2"),
    )
    one = join([there], [Claim("one", "x", namespace="ai", pod="chat-0")])["one"]
    assert one.parts["GPU-a/1"].strangers == "1 more instance of the card"
    whole = join([there], [Claim("one", "x", devices=("GPU-a",))])["one"]
    assert keys(whole) == ["GPU-a/1", "GPU-a/2"]
    assert whole.parts["GPU-a/1"].strangers == ""


def test_a_device_that_two_exporters_tell_of_is_one_with_the_pods_of_both() -> None:
    energy = device("GPU-a", signals=frozenset({"gpu_energy_joules_total"}))
    sharing = device("GPU-a", exporter="hami", pods=pods("ai/chat-0"), signals=frozenset())
    there = [registry(sharing, exporter="hami", host="hami"), registry(energy)]
    (one,) = join(there, [Claim("one", "x", namespace="ai", pod="chat-0")])["one"].devices
    assert (one.exporter, one.pods) == ("dcgm", pods("ai/chat-0"))


def test_without_an_exporter_nobody_holds_anything() -> None:
    held = join([], [Claim("one", "gpu-1")])["one"]
    assert (keys(held), held.note) == ([], "no exporter told of its devices yet")

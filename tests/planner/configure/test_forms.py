"""Forms parse, are what Compose and Kubernetes take, and look as they did (``GOLDEN=update`` rewrites them)."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from goodwatch.core.errors import ConfigError
from planner.configure.blocks import dumped
from planner.configure.containers import compose, kubernetes
from planner.configure.forms import command, own_file, short_name
from planner.configure.spelling import spelled
from planner.configure.values import Configuration
from tests.planner.configure.cases import GOLDEN, configurations

DATA = Path(__file__).parent / "data"
VENDOR = {"vllm-ascend": "Huawei"}


def written(engine: str, form: str) -> str:
    one, vendor = GOLDEN[engine], VENDOR.get(engine, "NVIDIA")
    if form == "command":
        return command(one)
    if form == "yaml":
        return own_file(one)
    if form == "compose":
        small = Configuration(**{**one.told(), "replicas": 1})  # type: ignore[arg-type]  # 16 cards are no one host
        return compose(small, vendor=vendor)
    return kubernetes(one, vendor=vendor)


CASES = [
    (engine, form)
    for engine in sorted(GOLDEN)
    for form in ("command", "yaml", "compose", "kubernetes")
    if form != "yaml" or engine not in ("llama.cpp", "lmdeploy")
]


@pytest.mark.parametrize(("engine", "form"), CASES)
def test_forms_look_as_they_did(engine: str, form: str) -> None:
    path = DATA / f"{engine}-{form}.{'sh' if form == 'command' else 'yaml'}"
    text = written(engine, form)
    if os.environ.get("GOLDEN") == "update":
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("engine", ["llama.cpp", "lmdeploy"])
def test_an_engine_without_a_file_of_its_own_says_so(engine: str) -> None:
    with pytest.raises(ConfigError, match="has no configuration file of its own; use command"):
        own_file(GOLDEN[engine])


def test_a_version_without_a_file_says_so() -> None:
    with pytest.raises(ConfigError, match=r"vllm 0\.5\.4 has no --config; it was first read in 0\.6\.6"):
        own_file(Configuration(engine="vllm", engine_version="0.5.4", model="m"))


# server_args_config_parser.py of SGLang 0.5.23 raises for arguments of several values and for deprecated switches
@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            Configuration(engine="sglang", engine_version="0.5.23", model="m", eager=True),
            "cannot hold --disable-cuda-graph",
        ),
        (
            Configuration(engine="sglang", engine_version="0.5.6", model="m", lora_adapters=("a=b",)),
            "cannot hold --lora-paths",
        ),
        (
            Configuration(engine="vllm", engine_version="0.8.5", model="m", lora_adapters=("a=b",)),
            "cannot hold --lora-modules",
        ),
    ],
)
def test_what_the_engines_file_cannot_hold_is_said(one: Configuration, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        own_file(one)


@settings(max_examples=50, deadline=None)
@given(configurations())
def test_kubernetes_manifests_are_whole(one: Configuration) -> None:
    if one.cards > 8:
        with pytest.raises(ConfigError, match="LeaderWorkerSet"):
            kubernetes(one, image="me/engine:1")
        return
    documents = [*yaml.safe_load_all(kubernetes(one, image="me/engine:1"))]
    kinds = [document["kind"] for document in documents]
    assert kinds[-2:] == ["Deployment", "Service"]
    deployment, service = documents[-2:]
    pod = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"] == service["spec"]["selector"]
    for document in documents:
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", document["metadata"]["name"])
    whole_pod(pod["spec"], one, documents)


def whole_pod(spec: dict[str, Any], one: Configuration, documents: list[dict[str, Any]]) -> None:
    """Probes, cards, shared memory; mounts name volumes; every argument is a text."""
    (container,) = spec["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": one.cards}
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": ports["http"]}
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] == 1800
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
    assert all(isinstance(word, str) for word in [*container["command"], *container["args"]])
    assert str(ports["http"]) in container["args"]
    for mount in container["volumeMounts"]:
        if "subPath" in mount:
            assert documents[0]["data"][mount["subPath"]]


@settings(max_examples=50, deadline=None)
@given(configurations(), st.integers(1, 4))
def test_a_compose_file_gives_each_replica_cards_and_a_port_of_its_own(one: Configuration, replicas: int) -> None:
    many = Configuration(**{**one.told(), "replicas": replicas})  # type: ignore[arg-type]
    if many.cards * replicas > 8:
        with pytest.raises(ConfigError, match="more than one host has"):
            compose(many, image="me/engine:1")
        return
    found = yaml.safe_load(compose(many, image="me/engine:1"))
    assert len(found["services"]) == replicas
    cards: list[str] = []
    ports: list[str] = []
    for service in found["services"].values():
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        cards += device["device_ids"]
        ports += service["ports"]
        assert {"image", "entrypoint", "command", "healthcheck", "shm_size", "restart"} <= set(service)
        assert {one["source"] for one in service.get("configs", [])} == set(found.get("configs", {}))
        assert {volume.split(":")[0] for volume in service["volumes"] if not volume.startswith("/")} == set(
            found["volumes"]
        )
    assert cards == [str(card) for card in range(many.cards * replicas)]
    assert len(set(ports)) == replicas
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("engine", sorted(GOLDEN))
def test_every_argument_of_a_command_has_a_reason_beside_it(engine: str) -> None:
    text = command(GOLDEN[engine])
    body = text[text.index("args=(") :].split("\n)")[0].splitlines()[1:]
    assert body
    assert all("  # " in line for line in body)
    words = shlex.split("\n".join(body), comments=True)
    table = spelled(GOLDEN[engine]).table
    if table.own_file is None or not table.own_file.holds_all:
        assert tuple(words) == spelled(GOLDEN[engine]).argv


def test_a_dollar_reaches_the_engine_through_compose() -> None:
    one = Configuration(engine="vllm", model="m", extra=(("--chat-template", "$x"),))
    assert "$$x" in yaml.safe_load(compose(one))["services"]["m"]["command"]


def run(script: str, names: list[str], folder: Path) -> list[str]:
    """The arguments that a script hands to the first of ``names``; every name is a stub that leaves its own in a file."""
    for name in names:
        stub = folder / name
        stub.write_text(f'#!/bin/bash\nprintf "%s\\0" "$@" > {folder}/{name}.seen\n')
        stub.chmod(0o755)
    bash = shutil.which("bash")
    assert bash, "bash is needed"
    subprocess.run([bash, "-c", script], check=True, cwd=folder, env={"PATH": f"{folder}:/usr/bin:/bin"}, timeout=30)
    return (folder / f"{names[0]}.seen").read_text().split("\0")[:-1]


@pytest.mark.parametrize("engine", sorted(GOLDEN))
def test_a_shell_hands_the_engine_what_was_meant(engine: str, tmp_path: Path) -> None:
    one = GOLDEN[engine]
    found = spelled(one)
    seen = run(command(one), [found.run[0]], tmp_path)
    argv = found.argv or ("--extra_llm_api_options", "trtllm.yaml")
    assert seen == [*found.run[1:], *argv]
    if found.keys:
        assert yaml.safe_load((tmp_path / "trtllm.yaml").read_text()) == yaml.safe_load(own_file(one))


# what an engine tells of itself can be anything: nothing of it may become a command
def test_nothing_that_is_told_becomes_a_command_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="control characters"):
        Configuration(engine="vllm", model="m\nreboot")
    evil = "x'; reboot\nreboot #\nEOF\nreboot $(reboot) `reboot`"
    one = Configuration(
        engine="tensorrt-llm", model="m$(reboot)", draft_model=evil, speculative_method="eagle", extra=(("--log_level", evil),),
    )  # fmt: skip
    seen = run(command(one, [evil]), ["trtllm-serve", "reboot"], tmp_path)
    assert seen[0] == "m$(reboot)"
    assert evil in seen
    assert not (tmp_path / "reboot.seen").exists()
    held = yaml.safe_load((tmp_path / "trtllm.yaml").read_text())
    assert held["speculative_config"]["speculative_model_dir"] == evil
    for text in (compose(one, remarks=[evil]), kubernetes(one, remarks=[evil])):
        assert "\nreboot" not in text
        assert [*yaml.safe_load_all(text)]


def test_cards_of_a_maker_without_an_image_ask_for_one() -> None:
    with pytest.raises(ConfigError, match="--image: none is known of vllm for AMD cards"):
        kubernetes(Configuration(engine="vllm", model="m"), vendor="AMD")
    assert "amd.com/gpu: 1" in kubernetes(Configuration(engine="vllm", model="m"), "me/rocm:1", "AMD")


@pytest.mark.parametrize(
    ("model", "name"),
    [("Qwen/Qwen3-32B", "qwen3-32b"), ("/models/My Model_v2/", "my-model-v2"), ("x/7B", "model-7b"), ("中文", "model")],
)
def test_names_are_what_kubernetes_takes(model: str, name: str) -> None:
    assert short_name(model) == name


_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_LEAF = st.none() | st.booleans() | st.integers(-9999, 9999) | _TEXT
_TREE = st.recursive(
    _LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3), max_leaves=12
)


@settings(max_examples=100, deadline=None)
@given(_TREE)
def test_blocks_parse_to_what_was_written(value: object) -> None:
    assert yaml.safe_load(dumped(value)) == value

import asyncio
import json
import os
from pathlib import Path

import pytest

from collector.targets import Defaults, FileSD, ScrapeOptions, TargetSpec, merge
from goodwatch.core.errors import ConfigError
from goodwatch.core.model import Target


def spec(name: str, url: str | None = None) -> TargetSpec:
    return TargetSpec(Target(name, url or f"http://{name}/metrics", "chat"))


def group(*targets: str, **labels: str) -> dict[str, object]:
    return {"targets": list(targets), "labels": labels}


async def read(folder: Path, *groups: object, defaults: Defaults | None = None) -> tuple[TargetSpec, ...]:
    (folder / "sd.json").write_text(json.dumps(groups))
    discovery = FileSD([str(folder / "*.json")], defaults=defaults)
    await discovery.refresh()
    assert discovery.problems == {}
    return discovery.targets


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"interval_s": 0}, "interval_s is 0"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"body_limit_bytes": -1}, "body_limit_bytes is -1"),
        ({"bearer": "a", "basic": ("b", "c")}, "both set"),
        ({"key_file": "k.pem"}, "without cert_file"),
        ({"bearer": "tok\n"}, "bearer has a line break"),
        ({"headers": (("X-Key", "a\r\nHost: b"),)}, "value of X-Key has a line break"),
        ({"headers": (("Accept-Encoding", "br"),)}, "'Accept-Encoding' cannot be set"),
        ({"headers": (("no colon:", "x"),)}, "cannot be set"),
        ({"headers": (("authorization", "x"),), "bearer": "y"}, "keep one"),
    ],
)
def test_options_that_cannot_work_are_refused_and_named(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ScrapeOptions(**options)  # type: ignore[arg-type]


def test_secrets_are_not_in_the_printed_options() -> None:
    printed = repr(ScrapeOptions(bearer="hush", headers=(("X-Key", "hush"),))) + repr(
        ScrapeOptions(basic=("a", "hush"))
    )
    assert "hush" not in printed


def test_a_scrape_never_takes_longer_than_its_interval() -> None:
    assert ScrapeOptions(interval_s=5, timeout_s=10).budget_s == 5


def test_merge_drops_a_name_that_is_there_twice_and_says_so() -> None:
    said: list[str] = []
    kept = merge([spec("a")], [spec("b"), spec("a", "http://elsewhere/metrics")], report=said.append)
    assert [s.target.name for s in kept] == ["a", "b"]
    assert kept[0].target.url == "http://a/metrics"
    assert len(said) == 1
    assert "'a' is there twice" in said[0]


def test_merge_drops_a_discovered_target_that_is_configured_under_another_name() -> None:
    said: list[str] = []
    kept = merge([spec("a", "http://h:1/metrics")], [spec("h:1", "http://h:1/metrics")], report=said.append)
    assert [s.target.name for s in kept] == ["a"]
    assert "counted twice" in said[0]


def test_two_configured_names_for_one_url_are_the_operators_wish() -> None:
    both = [spec("a", "http://h:1/metrics"), spec("b", "http://h:1/metrics")]
    assert merge(both, []) == both


@pytest.mark.parametrize(
    ("address", "labels", "url", "name"),
    [
        ("h:8000", {}, "http://h:8000/metrics", "h:8000"),
        ("h", {"__scheme__": "https"}, "https://h/metrics", "h"),
        ("[2001:db8::7]:8000", {}, "http://[2001:db8::7]:8000/metrics", "[2001:db8::7]:8000"),
        ("h:1", {"__metrics_path__": "/prometheus/metrics"}, "http://h:1/prometheus/metrics", "h:1/prometheus/metrics"),
        ("h:1", {"__param_b": "2 3", "__param_a": "1"}, "http://h:1/metrics?a=1&b=2+3", "h:1"),
        ("https://h:1/x/metrics?k=v", {"__param_a": "1"}, "https://h:1/x/metrics?k=v&a=1", "h:1/x/metrics"),
        ("https://h:1", {"__scheme__": "http"}, "https://h:1/metrics", "h:1"),
        ("http://h:1", {}, "http://h:1/metrics", "h:1"),
        ("http://user:pw@h:1/metrics", {}, "http://user:pw@h:1/metrics", "h:1"),
        ("h:1", {"instance": "replica-0"}, "http://h:1/metrics", "replica-0"),
    ],
)  # fmt: skip
async def test_the_url_and_the_name_come_from_address_and_labels(
    tmp_path: Path, address: str, labels: dict[str, str], url: str, name: str
) -> None:
    (found,) = await read(tmp_path, {"targets": [address], "labels": labels})
    assert (found.target.url, found.target.name) == (url, name)


@pytest.mark.parametrize(
    ("configured", "labels", "service"),
    [
        (None, {}, "default"),
        (None, {"job": "vllm"}, "vllm"),
        (None, {"job": "vllm", "service": "chat"}, "chat"),
        ("search", {"job": "vllm", "service": "chat"}, "search"),
        ("search", {"goodwatch_service": "rank", "service": "chat"}, "rank"),
    ],
)
async def test_the_service_is_named_by_the_strongest_source(
    tmp_path: Path, configured: str | None, labels: dict[str, str], service: str
) -> None:
    (found,) = await read(tmp_path, group("h:1", **labels), defaults=Defaults(service=configured))
    assert found.target.service == service


async def test_meta_labels_set_fields_and_other_labels_stay_labels(tmp_path: Path) -> None:
    options = ScrapeOptions(interval_s=5)
    defaults = Defaults(engine="vllm", gpus=8, labels={"region": "eu", "zone": "a"}, options=options)
    labels = {"goodwatch_engine": "sglang", "goodwatch_gpus": "2", "__meta_x": "y", "zone": "b"}
    first, second = await read(tmp_path, group("h:1", **labels), group("h:2"), defaults=defaults)
    assert (first.target.engine, first.target.gpus) == ("sglang", 2)
    assert first.target.labels == {"region": "eu", "zone": "b"}
    assert first.options is options
    assert (second.target.engine, second.target.gpus) == ("vllm", 8)


async def test_yaml_values_stay_as_written(tmp_path: Path) -> None:
    (tmp_path / "sd.yml").write_text(
        "- targets: ['h:1']\n  labels: {version: 1.10, canary: yes}\n- targets: ['h:2']\n  labels:\n"
    )
    discovery = FileSD([str(tmp_path / "sd.yml")])
    await discovery.refresh()
    assert [s.target.labels for s in discovery.targets] == [{"version": "1.10", "canary": "yes"}, {}]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("sd.json", "[{", "line 1"),
        ("sd.json", "", "empty; write []"),
        ("sd.json", '{"targets": []}', "expected a list of groups"),
        ("sd.json", '[{"targets": "h:1"}]', "group 0: expected"),
        ("sd.json", '[{"targets": ["h:1"], "label": {}}]', "unknown key 'label'"),
        ("sd.json", '[{"targets": [8000]}]', "targets: 8000 is not text"),
        ("sd.json", '[{"targets": ["h:1"], "labels": {"gpus": 2}}]', "labels.gpus: 2 is not text"),
        ("sd.json", "[" * 100_000, "nested too deeply"),
        ("sd.yml", "- targets: [h:1\n", "line 2"),
        ("sd.yml", "[" * 100_000, "nest"),
        ("sd.yml", "- targets: [h:1]\n  labels: {a: b\x00}\n", "control characters"),
        ("sd.yml", "- targets: [h:1]\n  labels: [a]\n", "labels: expected a mapping"),
        ("sd.yml", "- !!python/object/apply:os.abort []\n", "group 0: expected"),
    ],
)
async def test_a_broken_file_keeps_its_last_good_targets_and_is_named(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    path, other = tmp_path / name, tmp_path / "other.json"
    path.write_text('[{"targets": ["h:1"]}]')
    discovery = FileSD([str(path), str(other)])
    other.write_text('[{"targets": ["h:2"]}]')
    await discovery.refresh()

    path.write_text(text)
    other.write_text('[{"targets": ["h:2", "h:3"]}]')
    assert await discovery.refresh()
    assert sorted(s.target.name for s in discovery.targets) == ["h:1", "h:2", "h:3"]
    assert list(discovery.problems) == [str(path)]
    assert says in discovery.problems[str(path)]
    assert "1 targets read before stay" in discovery.problems[str(path)]

    path.write_text('[{"targets": ["h:4"]}]')
    assert await discovery.refresh()
    assert discovery.problems == {}
    assert sorted(s.target.name for s in discovery.targets) == ["h:2", "h:3", "h:4"]


async def test_a_file_that_is_not_utf8_or_not_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'[{"targets": ["\xff"]}]')
    (tmp_path / "b.json").mkdir()
    os.mkfifo(tmp_path / "c.json")
    discovery = FileSD([str(tmp_path / "*.json"), str(tmp_path / "none.yml")])
    await discovery.refresh()
    said = {Path(path).name: text for path, text in discovery.problems.items()}
    assert "not UTF-8" in said["a.json"]
    assert "not a regular file" in said["b.json"]
    assert "not a regular file" in said["c.json"]
    assert "no file matches" in said["none.yml"]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("", "expected host:port"),
        (":8000", "expected host:port"),
        ("h:", "expected host:port"),
        ("h:8000/metrics", "write a full URL"),
        ("::1", "ort"),
        ("h:99999", "ort out of range"),
        ("h:0", "port 0"),
        ("a b:1", "expected host:port"),
        ("ftp://h/metrics", "'ftp' is not http or https"),
        ("http://[::1/metrics", "IPv6"),
    ],
)
async def test_a_bad_target_is_left_out_and_the_rest_of_its_group_stays(
    tmp_path: Path, address: str, says: str
) -> None:
    (tmp_path / "sd.json").write_text(json.dumps([group("h:1", address, "h:2")]))
    discovery = FileSD([str(tmp_path / "sd.json")])
    await discovery.refresh()
    assert [s.target.name for s in discovery.targets] == ["h:1", "h:2"]
    assert says in discovery.problems[str(tmp_path / "sd.json")]


async def test_a_password_in_a_bad_target_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "sd.json").write_text(json.dumps([group("http://me:hush@h:99999/metrics")]))
    discovery = FileSD([str(tmp_path / "sd.json")])
    await discovery.refresh()
    assert "hush" not in str(discovery.problems)


async def test_labels_that_cannot_be_followed_are_named_and_the_target_stays(tmp_path: Path) -> None:
    labels = {"goodwatch_gpus": "two", "goodwatch_engine": "vlm", "goodwatch_engin": "x", "__scrape_interval__": "5s"}
    (tmp_path / "sd.json").write_text(json.dumps([group("h:1", **labels), group("h:1")]))
    discovery = FileSD([str(tmp_path / "sd.json")], engines=("vllm", "sglang"), defaults=Defaults(gpus=4))
    await discovery.refresh()
    target = discovery.targets[0].target
    assert (target.gpus, target.engine) == (None, None)
    problem = discovery.problems[str(tmp_path / "sd.json")]
    for says in ("'two' is not a number", "unknown engine 'vlm'; known: sglang, vllm", "unknown label goodwatch_engin",
                 "__scrape_interval__ is not supported", "'h:1' is named 2 times"):  # fmt: skip
        assert says in problem


async def test_files_that_appear_and_vanish_bring_and_take_their_targets(tmp_path: Path) -> None:
    discovery = FileSD([str(tmp_path / "*.json")])
    await discovery.refresh()
    assert discovery.targets == ()
    (tmp_path / "a.json").write_text('[{"targets": ["h:1"]}]')
    assert await discovery.refresh()
    assert not await discovery.refresh()
    (tmp_path / "a.json").unlink()
    assert await discovery.refresh()
    assert discovery.targets == ()


async def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"targets": ["h:1"]}]')
    facts = path.stat()
    discovery = FileSD([str(path)])
    await discovery.refresh()
    path.write_text('[{"targets": ["h:2"]}]')
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert not await discovery.refresh()


async def test_running_discovery_tells_of_changes_while_files_come_and_break(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"targets": ["h:1"]}]')
    told: asyncio.Queue[list[str]] = asyncio.Queue()
    discovery = FileSD([str(path)], refresh_s=0.01)
    run = asyncio.create_task(discovery.run(lambda specs: told.put_nowait([s.target.name for s in specs])))
    async with asyncio.timeout(10):
        assert await told.get() == ["h:1"]
        path.write_text("[")
        assert not await discovery.refresh()
        assert list(discovery.problems) == [str(path)]
        assert [s.target.name for s in discovery.targets] == ["h:1"]
        path.write_text('[{"targets": ["h:2", "h:3"]}]')
        assert await told.get() == ["h:2", "h:3"]
    run.cancel()
    await asyncio.wait([run])
    assert told.empty()

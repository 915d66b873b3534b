import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from goodwatch.app.config import Settings, SettingsError, load, warnings
from goodwatch.core.errors import ConfigError
from tests.app.config_files import ENGINES, Read, read_here, target, wrong


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.chdir(tmp_path)
    return read_here


BROKEN = [
    ("services:\n  - name: chat\n    slo:\n      ttft: 1s\n      objective: 99\n",
     "goodwatch.yaml:5: services[0].slo.objective: 99 is not between 0 and 1; write 0.99 for 99 %"),
    ("services: [{name: a, slo: {ttft: 1s, objective: 99.9%}}]", "'99.9%' is not between 0 and 1; write 0.999"),
    ("services: [{name: a, slo: {objective: 0.9}}]", ":1: services[0].slo: no latency target; write at least one of"),
    ("targets:\n  - url: http://a:1\n    engin: vllm\n",
     "goodwatch.yaml:3: targets[0].engin: unknown key; did you mean 'engine'?"),
    (target(engine="vlm"), "targets[0].engine: unknown engine 'vlm'; known: "),
    (target(url="gpu1:8000"), "targets[0].url: 'gpu1:8000' has no scheme; write http:// or https://"),
    (target(url="ftp://gpu1"), "another scheme than http or https"),
    (target(url="http://:8000"), "no host"),
    (target(url="http://a:99999"), "is not a URL"),
    (target(url="http://a:1/x y"), "white space"),
    ("targets: [{name: a}]", "targets[0].url: missing; required: where the metrics are"),
    ("targets: {url: x}", "targets: a mapping is not a list"),
    ("targets: [x]", "targets[0]: text is not a mapping"),
    ("targets:\n", "goodwatch.yaml:1: targets: empty; give it a value or remove the key"),
    (target(gpus=True), "targets[0].gpus: true is not a number"),
    (target(gpus=0), "targets[0].gpus: 0 is not above 0; leave the key out"),
    (target(gpus=float("nan")), "nan is not a number"),
    (target(gpus=10**400), "a very large number is not a number"),
    (target(engine_version=0.1), "targets[0].engine_version: 0.1 is not text; put it in quotes"),
    (target(labels={"1x": "y"}), "labels.1x: '1x' is not a label name"),
    (target(labels={"target": "y"}), "'target' is a label that goodwatch sets itself"),
    (target(interval="5 s"), "targets[0].interval: '5 s' is not a duration; write for example 500ms"),
    (target(interval="0s"), "'0s' is not above zero"),
    (target(body_limit="lots"), "targets[0].body_limit: 'lots' is not a size; write for example 50MB"),
    (target(sample_limit=1.5), "1.5 is not a whole number above 0"),
    (target(timeout="20s"), "targets[0].timeout: 20s is longer than the interval of 15s (scrape.interval)"),
    ("scrape:\n  timeout: 10s\n" + target(interval="5s"), "interval: 5s is shorter than the timeout of 10s"),
    ("scrape:\n  interval: 5s\n  timeout: 6s", ":3: scrape.timeout: '6s' is longer than the interval of 5s"),
    ("scrape: {interval_s: 5}", "scrape.interval_s: unknown key; did you mean 'interval'?"),
    ("targets: [{url: 'http://a:1'}, {url: 'http://a:1'}]", "targets[1]: the name 'a:1' is that of targets[0] already"),
    ("targets:\n- {url: 'http://a:1', oops: 1}\n- {url: 'http://b:1', name: x}\n- {url: 'http://c:1', name: x}",
     "goodwatch.yaml:4: targets[2].name: the name 'x' is that of targets[1]"),
    ("services: [{name: a}, {name: a}]", "services[1].name: the name 'a' is that of services[0] already"),
    ("listen: 0.0.0.0:9470", ":1: listen: '0.0.0.0:9470' is reachable from other machines; add auth.tokens"),
    ("listen: ':9470'", "':9470' is not host:port; write 127.0.0.1:9470"),
    ("listen: 127.0.0.1:99999", "is not host:port"),
    ("auth: {tokens: [{name: a, role: boss, token: x}]}", "'boss' is not one of 'ingest', 'read' or 'admin'"),
    ("auth: {tokens: [{name: a, role: read}]}", "auth.tokens[0].token: missing; write token, or token_file"),
    ("auth: {tokens: [{name: a, role: read, token_file: gone}]}", "gone does not exist; create it or correct the path"),
    ("auth: {tokens: [{name: a, role: read, token_file: .}]}", "token_file: "),
    ("auth: {tokens: [{name: a, role: read, token: x, token_file: y}]}", "token_file: written beside token; keep one"),
    (target(tls={"cert_file": "goodwatch.yaml"}), "tls.key_file: without the other half"),
    (target(tls={"ca_file": "gone.pem"}), "tls.ca_file: 'gone.pem' is not a file"),
    (target(authorization={"credentials": "a"}, basic_auth={"username": "u", "password": "p"}), "written beside"),
    (target(authorization={"credentials": "a"}, headers={"authorization": "b"}), "an Authorization header beside"),
    (target(basic_auth={"username": "u:x", "password": "p"}), "'u:x' has a ':' in it"),
    (target(headers={"x y": "b"}), "headers.'x y': 'x y' is not the name of an HTTP header"),
    ("prices: {gpu_hour_usd: {H100: 2, h100: 3}}", "prices.gpu_hour_usd: a GPU type is there twice"),
    ("file_sd: [{files: []}]", "file_sd[0].files: a list is empty; write at least one entry"),
    ("log: {level: loud}", "log.level: 'loud' is not one of 'debug', 'info', 'warning' or 'error'"),
    ("listen: ${NOPE}", ":1: listen: environment variable NOPE is not set; set it or write ${NOPE:-default}"),
    ("listen: ${1x}", "'${' without a variable name"),
    ("data_dir: a\nlog: {}\ndata_dir: b", "goodwatch.yaml:3: data_dir: written twice (first in line 1); keep one"),
    ("a:\n\tb: 1", "goodwatch.yaml:2: a tab; indent with spaces"),
    ("a: [1", "goodwatch.yaml:1: not valid YAML"),
    ("a: b: c", "a ': ' where no key can be"),
    ("listen: *hunter2", "text that starts with '*' is an alias in YAML; put it in quotes"),
    ("listen: !hunter2 x", "tags are not supported"),
    ("listen: !!int x", "tags are not supported"),
    ("listen: 2026-13-45", "not a valid date"),
    ("listen: " + "9" * 5000, "not a valid number"),
    ("listen: \"\\ud800\"", "not valid Unicode"),
    ("7: x", "goodwatch.yaml:1: a key is not text; put it in quotes"),
    ("targets: &a [*a]", "an alias to what it is part of"),
    ("log:\n  <<: 7", "log.'<<': not a mapping; merge an alias of a mapping"),
    ("[" * 2000, "nested too deeply"),
    ("a: 1\n---\nb: 1", "a second document"),
    ("a: \x07", "an unprintable character"),
    ("- a", "goodwatch.yaml:1: the file holds a list and not a mapping; write 'key: value' lines"),
    ("", "goodwatch.yaml:1: the file is empty; write 'key: value' lines, keys: listen, "),
    ("# only a comment\n", "the file is empty"),
    ("listen: ä".encode("latin-1"), "goodwatch.yaml: is not UTF-8 text (line 1); save it as UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_what_is_wrong_is_said_with_its_place_and_what_would_be_right(
    read: Read, text: str | bytes, message: str
) -> None:
    assert any(message in line for line in wrong(read, text)), wrong(read, text)


@pytest.mark.parametrize("text", [text for text, message in BROKEN if "targets[2].name" not in message])
def test_one_mistake_is_reported_once(read: Read, text: str) -> None:
    lines = wrong(read, text)
    assert len({line.split(": ")[1] for line in lines}) == len(lines), lines


def test_all_problems_come_at_once_in_the_order_of_the_file(read: Read) -> None:
    text = (
        "listen: nowhere\nscrape: {interval: soon}\ntargets:\n  - {url: gpu1, gpus: -1, x: y}\nlog: {format: '${F}'}\n"
    )
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert isinstance(caught.value, SettingsError)
    assert [(p.line, p.key) for p in caught.value.problems] == [
        (1, "listen"),
        (2, "scrape.interval"),
        (4, "targets[0].url"),
        (4, "targets[0].gpus"),
        (4, "targets[0].x"),
        (5, "log.format"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "targets: [{url: 'http://me:hunter2@a:1'}]",
        "targets: [{url: 'http://a:1', headers: {x: \"hunter2\\n\"}}]",
        "targets: [{url: 'http://a:1', authorization: {credentials: [hunter2]}}]",
        "targets: [{url: 'http://a:1', authorization: {credentials: 'hunter2ü'}}]",
        "targets: [{url: 'http://a:1', authorization: {credential: hunter2}}]",
        "targets: [{url: 'http://a:1', authorization: hunter2}]",
        "targets: [{url: 'http://a:1', basic_auth: {username: u, password: *hunter2}}]",
        "targets: [{url: 'http://a:1', basic_auth: {username: u, password: !hunter2 x}}]",
        "targets: [{url: 'http://a:1', gpus: '${SECRET}', bearer_token: '${SECRET}'}]",
        "listen: ${SECRET}",
    ],
)
def test_an_error_never_holds_a_secret(read: Read, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(text, {"SECRET": "hunter2"})
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


def schema_nodes(node: Any) -> Iterator[tuple[str, Any]]:
    yield from node.get("properties", {}).items()
    for below in node.get("$defs", {}).values():
        yield from schema_nodes(below)


KEYS = sorted({key for key, _ in schema_nodes(Settings.json_schema())})
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.datetimes() | st.binary(max_size=4)
    | st.text(max_size=8)
    | st.sampled_from(["15s", "50MB", "\0", "http://a:1", "${X}", "${X:-1}", "a:1", "vllm", "~", "0.9", ".", "\ud800"])
)  # fmt: skip
NAMES = st.sampled_from(KEYS) | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


def shaped(node: Any, schema: Any) -> st.SearchStrategy[Any]:
    """Values that nearly fit a schema, so that validation goes deep."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/")[-1]]
    if "anyOf" in node:
        node = next(option for option in node["anyOf"] if option.get("type") != "null")
        return shaped(node, schema)
    if "properties" in node:
        fields = {key: shaped(below, schema) for key, below in node["properties"].items()}
        return st.fixed_dictionaries({}, optional=fields) | VALUES
    if "items" in node:
        return st.lists(shaped(node["items"], schema), max_size=2) | SCALARS
    return VALUES if "additionalProperties" in node else SCALARS


@settings(max_examples=150, deadline=None)
@example({"targets": [{"url": "http://a:1", "labels": {"\ud800": "\ud800"}}], 7: None})
@given(
    st.dictionaries(NAMES | st.integers(), VALUES, max_size=4) | shaped(Settings.json_schema(), Settings.json_schema())
)
def test_any_mapping_loads_or_is_a_configuration_error(
    tmp_path_factory: pytest.TempPathFactory, mapping: dict[Any, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(mapping), encoding="utf-8")
    with contextlib.suppress(ConfigError):
        warnings(load(path, engines=ENGINES, environ={}))


def test_a_file_that_is_one_secret_does_not_show_it(read: Read) -> None:
    lines = wrong(read, "${SECRET}", {"SECRET": "hunter2-hunter2"})
    assert lines == [
        "goodwatch.yaml:1: the file holds a text and not a mapping; write 'key: value' lines, "
        + lines[0].partition("lines, ")[2]
    ]
    assert "hunter2" not in "".join(lines)

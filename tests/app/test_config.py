import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from goodwatch.app.config import ScrapeSettings, Settings, SettingsError, load, settings_table, warnings
from tests.app.config_files import ENGINES, Read, read_here, target, wrong

ROOT = Path(__file__).parents[2]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.chdir(tmp_path)
    return read_here


def test_a_url_is_all_that_must_be_written(read: Read, tmp_path: Path) -> None:
    loaded = read("targets:\n  - url: http://gpu1:8000\n")
    only = loaded.targets[0]
    assert (only.url, only.name, only.service, only.engine) == (
        "http://gpu1:8000/metrics", "gpu1:8000", "default", None,
    )  # fmt: skip
    assert (loaded.listen_host, loaded.listen_port) == ("127.0.0.1", 9470)
    assert loaded.scrape_of(only) == ScrapeSettings()
    assert loaded.data_dir == tmp_path / "goodwatch-data"
    assert loaded.retention.samples_s == 48 * 3600
    assert loaded.retention.deployments_s is None


def test_the_example_file_loads_without_any_warning() -> None:
    loaded = load(ROOT / "deploy" / "goodwatch.example.yaml", engines=ENGINES, environ={})
    assert [t.name for t in loaded.targets] == ["chat-0", "chat-1", "batch-0"]
    assert warnings(loaded) == []


def test_the_keys_that_the_example_comments_out_exist(read: Read, tmp_path: Path) -> None:
    lines = (ROOT / "deploy" / "goodwatch.example.yaml").read_text().split("\n")
    keys = {row.split("`")[1].rsplit(".")[-1] for row in settings_table().split("\n")[2:] if row}
    commented = [line.strip().removeprefix("# ") for line in lines if line.strip().startswith("# ")]
    written = [line.strip().removeprefix("- ").split(":")[0] for line in commented if ":" in line]
    assert {key for key in written if key.isidentifier() and key.islower()} <= keys | {"goodwatch"}


def test_a_loaded_value_cannot_be_changed(read: Read) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        read("listen: 127.0.0.1:1\n").listen = "x"


@pytest.mark.parametrize(
    ("url", "stored", "name"),
    [
        ("http://gpu1:8000", "http://gpu1:8000/metrics", "gpu1:8000"),
        ("http://gpu1:8000/", "http://gpu1:8000/metrics", "gpu1:8000"),
        ("https://gpu1/prometheus/metrics?x=1", "https://gpu1/prometheus/metrics?x=1", "gpu1:443"),
        ("http://gpu1", "http://gpu1/metrics", "gpu1:80"),
        ("http://[::1]:8000", "http://[::1]:8000/metrics", "[::1]:8000"),
    ],
)
def test_a_url_gets_its_path_and_gives_the_name(read: Read, url: str, stored: str, name: str) -> None:
    only = read(target(url=url)).targets[0]
    assert (only.url, only.name) == (stored, name)


def test_a_target_overrides_how_it_is_read(read: Read) -> None:
    loaded = read(
        "scrape: {interval: 30s, body_limit: 1MiB}\ntargets: [{url: 'http://a:1', interval: 5s}, {url: 'http://b:1'}]"
    )
    own, shared = (loaded.scrape_of(t) for t in loaded.targets)
    assert (own.interval_s, own.timeout_s, own.body_limit_bytes) == (5, 5, 1024**2)
    assert (shared.interval_s, shared.timeout_s) == (30, 10)


def test_targets_from_files_get_what_their_entry_says(read: Read, tmp_path: Path) -> None:
    files = read("file_sd: [{files: ['t/*.yaml'], gpus: 2, interval: 5s, labels: {a: x, b: y}}]").file_sd[0]
    assert files.files == (str(tmp_path / "t/*.yaml"),)
    found = files.target("http://gpu9:1", labels={"b": "z"}, service="chat")
    assert (found.name, found.gpus, found.interval_s, found.service) == ("gpu9:1", 2, 5, "chat")
    assert found.labels == {"a": "x", "b": "z"}


@pytest.mark.parametrize(("name", "message"), [("gone.yaml", "does not exist"), (".", "is a directory")])
def test_a_file_that_cannot_be_read_has_the_same_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=rf"^{name}: {message}; "):
        load(Path(name), engines=ENGINES, environ={})


def test_merge_keys_and_aliases_are_read_and_own_keys_win(read: Read) -> None:
    loaded = read("targets:\n- &a {url: 'http://a:1', gpus: 4, gpu: X}\n- {<<: *a, url: 'http://b:1', gpus: 8}\n")
    assert [(t.url, t.gpus, t.gpu) for t in loaded.targets][1] == ("http://b:1/metrics", 8, "X")


def test_a_page_of_nested_aliases_is_refused_quickly(read: Read) -> None:
    text = "a: &a0 [x]\n" + "".join(f"b{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 20)}]\n" for i in range(1, 20))
    assert len(wrong(read, text + "targets: *a19\n")) == 40


def test_variables_stand_in_text_and_may_have_defaults(read: Read) -> None:
    environ = {"HOST": "gpu1", "GPUS": "4", "EMPTY": ""}
    labels = {"a": "$${x}$"}
    text = target(url="http://${HOST}:${PORT:-8000}", gpus="${GPUS}", gpu="${EMPTY:-H100}", labels=labels)
    only = read(text, environ).targets[0]
    assert (only.url, only.gpus, only.gpu, only.labels) == ("http://gpu1:8000/metrics", 4, "H100", {"a": "${x}$"})


def test_what_a_variable_holds_is_not_read_again(read: Read) -> None:
    assert read(target(labels={"a": "${A}"}), {"A": "${B} {{x}}"}).targets[0].labels == {"a": "${B} {{x}}"}


def test_the_environment_goes_over_the_file(read: Read) -> None:
    environ = {
        "GOODWATCH_LISTEN": "localhost:1",
        "GOODWATCH_SCRAPE__INTERVAL": "30s",
        "GOODWATCH_TARGETS__0__GPUS": "2",
        "GOODWATCH_TARGETS__1__URL": "http://b:1",
        "GOODWATCH_PRICES__GPU_HOUR_USD": "{H100: 2}",
        "GOODWATCH_LOG__LEVEL": "",
        "GOODWATCH_PORT": "tcp://10.0.0.1:9470",
        "GOODWATCH_SERVICE_HOST": "10.0.0.1",
        "GOODWATCH_PORT_9470_TCP_ADDR": "10.0.0.1",
    }
    loaded = read("listen: ${NOT_NEEDED}\ntargets: [{url: 'http://a:1'}]\n", environ)
    assert (loaded.listen, loaded.scrape.interval_s, loaded.log.level) == ("localhost:1", 30, "info")
    assert [(t.url, t.gpus) for t in loaded.targets] == [("http://a:1/metrics", 2), ("http://b:1/metrics", None)]
    assert loaded.prices.gpu_hour_usd == {"H100": 2}


def test_a_variable_for_a_text_needs_no_quotes(read: Read) -> None:
    names = ("ENGINE_VERSION", "SERVICE", "AUTHORIZATION__CREDENTIALS")
    values = ("0.10", "007", "*!x")
    environ = {f"GOODWATCH_TARGETS__0__{name}": value for name, value in zip(names, values, strict=True)}
    loaded = read(target(), {**environ, "GOODWATCH_LISTEN": "[::1]:1", "GOODWATCH_DATA_DIR": "'/quoted'"})
    only = loaded.targets[0]
    assert (only.engine_version, only.service, loaded.listen_host) == ("0.10", "007", "::1")
    assert only.authorization is not None
    assert only.authorization.credentials.get_secret_value() == "*!x"
    assert loaded.data_dir == Path("/quoted")


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("GOODWATCH_SCRAPE__INTERVAL", "soon", "GOODWATCH_SCRAPE__INTERVAL: scrape.interval: 'soon' is not a duration"),
        ("GOODWATCH_LISTENN", "x:1", "GOODWATCH_LISTENN: no setting has this name; did you mean GOODWATCH_LISTEN?"),
        ("GOODWATCH_LOG_LEVEL", "debug", "did you mean GOODWATCH_LOG__LEVEL (two underscores)?"),
        ("GOODWATCH_LOGS__LEVEL", "debug", "the first part is one of: ACCELERATORS, ALERTING, AUTH, DATA_DIR"),
        ("GOODWATCH_LOG__LEVL", "debug", "GOODWATCH_LOG__LEVL: log.levl: unknown key; did you mean 'level'?"),
        ("GOODWATCH_TARGETS__7__URL", "http://a:1", "no entry 7 in a list of 1; count from 0"),
        ("GOODWATCH_TARGETS__URL", "http://a:1", "GOODWATCH_TARGETS__URL: targets.url: the setting is a list"),
        ("GOODWATCH_TARGETS", "[::1]:1", "GOODWATCH_TARGETS: not valid YAML"),
    ],
)
def test_a_wrong_variable_is_named(read: Read, variable: str, value: str, message: str) -> None:
    assert message in "\n".join(wrong(read, target(), {variable: value}))


def test_secrets_come_from_files_and_variables_and_are_never_shown(read: Read, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n hunter2-hunter2-x \n")
    text = (
        "auth: {tokens: [{name: a, role: read, token_file: token}]}\n"
        "targets: [{url: 'http://a:1', authorization: {credentials: '${KEY}'}, headers: {x-key: hunter2}}]\n"
    )
    loaded = read(text, {"KEY": "hunter2"})
    assert loaded.auth.tokens[0].token.get_secret_value() == "hunter2-hunter2-x"
    authorization = loaded.targets[0].authorization
    assert authorization is not None
    assert authorization.credentials.get_secret_value() == "hunter2"
    assert "hunter2" not in f"{loaded!r} {loaded.model_dump()} {loaded.model_dump_json()}"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("{}", "targets: none, and no file_sd"),
        (target(authorization={"credentials": "x"}), "credentials are sent unencrypted"),
        (target(timeout="15s"), "the timeout equals the interval (15s)"),
        (target(interval="4m"), "derive.window holds fewer than two scrapes"),
        (target(service="chat"), "services: 'chat' has targets and no slo"),
        (target() + "services: [{name: chat, slo: {ttft: 1s}}]", "services[0].slo: no target belongs to"),
        (target() + "services: [{name: default, slo: {ttft: 1s, period: 92d}}]", "retention.minutes: 92d is shorter"),
        (target() + "retention: {samples: 1m}", "derive.window: longer than retention.samples"),
        ("targets: [{url: 'http://a:1'}, {url: 'http://a:1', name: b}]", "scraped under 2 names"),
        (target(gpu="H100"), "a GPU is named without gpus"),
        (target(json_stats=True, engine="vllm"), "json_stats is for TensorRT-LLM"),
        (target(tls={"insecure_skip_verify": True}), "the certificate is not checked"),
        ("listen: 0.0.0.0:1\ninsecure: true", "everyone who reaches 0.0.0.0:1"),
        ("auth: {tokens: [{name: a, role: read, token: x}]}", "the token is shorter than 16 characters"),
        ("telemetry: {otlp_endpoint: 'http://c:4318', headers: {k: v}}", "telemetry.headers: they are sent un"),
    ],
)  # fmt: skip
def test_what_is_valid_but_hardly_meant_gets_advice(read: Read, text: str, advice: str) -> None:
    assert any(advice in line for line in warnings(read(text))), warnings(read(text))


@pytest.mark.parametrize(
    "text",
    [
        "listen: '[::1]:0'",
        "listen: localhost:9470",
        "listen: 0.0.0.0:9470\ninsecure: true",
        "listen: 0.0.0.0:9470\nauth: {tokens: [{name: a, role: admin, token: abcdefgh}]}",
    ],
)
def test_an_address_is_taken_when_strangers_cannot_use_it_or_that_is_meant(read: Read, text: str) -> None:
    assert read(text).listen


def schema_nodes(node: Any) -> Iterator[tuple[str, Any]]:
    yield from node.get("properties", {}).items()
    for below in node.get("$defs", {}).values():
        yield from schema_nodes(below)


def test_every_setting_has_a_description() -> None:
    schema = Settings.json_schema()
    for key, node in schema_nodes(schema):
        described = node.get("description") or schema["$defs"][node["$ref"].rsplit("/")[-1]].get("description")
        assert described, key
        assert key in settings_table()


def test_the_documentation_has_every_setting() -> None:
    path = ROOT / "docs" / "configuration.md"
    before, rest = path.read_text().split("<!-- settings: begin -->\n")
    shown, after = rest.split("<!-- settings: end -->")
    if os.environ.get("GOLDEN") == "update":
        path.write_text(f"{before}<!-- settings: begin -->\n{settings_table()}<!-- settings: end -->{after}")
        return
    assert shown == settings_table(), "run this test with GOLDEN=update and read the difference"


def test_traces_arrive_on_the_standard_ports_of_this_machine(read: Read) -> None:
    otlp = read("otlp: {}\n").otlp
    assert otlp is not None
    assert (otlp.http, otlp.grpc) == ("127.0.0.1:4318", "127.0.0.1:4317")  # OTLP 1.11, default ports
    assert otlp.body_limit_bytes == 64 * 1024**2  # OTLP 1.11 recommends 64 MiB


def test_nothing_listens_for_traces_unless_asked(read: Read) -> None:
    assert read("listen: 127.0.0.1:9470\n").otlp is None

"""The sections dns_sd, kubernetes_sd and prometheus_sd: what they accept, refuse and become."""

import sys
from pathlib import Path

import pytest

from collector.discovery.dns import DnsSD
from collector.discovery.kubernetes import KubernetesSD
from collector.discovery.prometheus import PrometheusSD
from collector.scrape import Session
from collector.targets import FileSD
from goodwatch.app.config import warnings
from goodwatch.app.wiring import discoveries_of
from goodwatch.core.errors import ConfigError
from tests.app.config_files import ENGINES, Read, read_here, wrong

ALL = """
file_sd: [{files: ['t/*.yaml']}]
dns_sd:
  - {names: [engine.default.svc, other.test], type: A, port: 8000, refresh: 10s, service: chat, gpus: 2}
  - {names: [_http._tcp.engine.test], type: SRV, resolvers: [10.0.0.1, '10.0.0.2:5353', '[fd00::1]:53', 'fd00::2']}
kubernetes_sd:
  - {namespaces: [llm], selector: app=vllm, port: http, kubeconfig: kubeconfig, interval: 5s}
prometheus_sd:
  - url: http://127.0.0.1:9090/
    api: {authorization: {credentials: hush}, headers: {X-Scope-OrgID: team}}
    jobs: [vllm-.*]
    match: {env: prod}
"""
KUBECONFIG = """
current-context: a
contexts: [{name: a, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443'}}]
"""


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    return read_here


def test_every_entry_becomes_a_discovery_named_by_its_place(read: Read) -> None:
    made = discoveries_of(read(ALL), ENGINES, Session())
    assert [(one.name, type(one)) for one in made] == [
        ("file_sd[0]", FileSD),
        ("dns_sd[0]", DnsSD),
        ("dns_sd[1]", DnsSD),
        ("kubernetes_sd[0]", KubernetesSD),
        ("prometheus_sd[0]", PrometheusSD),
    ]


def test_servers_are_addresses_and_port_53_is_the_usual(read: Read) -> None:
    assert read(ALL).dns_sd[1].resolvers == ("10.0.0.1:53", "10.0.0.2:5353", "[fd00::1]:53", "[fd00::2]:53")


def test_a_port_of_kubernetes_is_a_number_or_a_name(read: Read) -> None:
    text = "kubernetes_sd: [{port: 8000}, {port: '8000'}, {port: http-0}, {}]"
    assert [entry.port for entry in read(text).kubernetes_sd] == ["8000", "8000", "http-0", None]


def test_the_credentials_of_the_api_are_not_those_of_the_targets(read: Read) -> None:
    entry = read(ALL).prometheus_sd[0]
    assert entry.authorization is None
    assert entry.api.authorization is not None
    assert "hush" not in repr(entry)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dns_sd: [{names: [a.test]}]", "dns_sd[0].port: missing; records of type A have no port: write for example"),
        ("dns_sd: [{names: [a.test], type: SRV, port: 1}]", "dns_sd[0].port: written with type SRV"),
        ("dns_sd: [{names: [a.test], port: 0}]", "dns_sd[0].port: 0 is not a port"),
        ("dns_sd: [{names: ['a b'], port: 1}]", "dns_sd[0].names[0]: 'a b' is not a DNS name"),
        ("dns_sd: [{names: [a.test], type: MX, port: 1}]", "dns_sd[0].type: 'MX' is not one of"),
        ("dns_sd: [{names: [a.test], port: 1, resolvers: [dns.test]}]", "resolvers[0]: 'dns.test' is not the address"),
        ("dns_sd: [{names: [a.test], port: 1, path: metrics}]", "dns_sd[0].path: 'metrics' is not a path"),
        ("dns_sd: [{names: [a.test], port: 1, timeout: 1m}]", "dns_sd[0].timeout: 1m is longer than the interval"),
        (
            "kubernetes_sd: [{port: 'Http'}]",
            "kubernetes_sd[0].port: 'Http' is not a port; write its number or its name",
        ),
        ("kubernetes_sd: [{port: 70000}]", "kubernetes_sd[0].port: 70000 is not a port"),
        ("kubernetes_sd: [{namespaces: [A]}]", "kubernetes_sd[0].namespaces[0]: 'A' is not the name of a namespace"),
        ("kubernetes_sd: [{context: x}]", "kubernetes_sd[0].context: written without kubeconfig"),
        ("kubernetes_sd: [{kubeconfig: gone}]", "kubernetes_sd[0].kubeconfig: 'gone' is not a file"),
        ("prometheus_sd: [{url: 'http://p:9090', jobs: ['(']}]", "jobs[0]: '(' is not a regular expression"),
        ("prometheus_sd: [{jobs: [x]}]", "prometheus_sd[0].url: missing"),
        (
            "prometheus_sd: [{url: 'http://p', api: {basic_auth: {username: a, password: b}, authorization: {credentials: c}}}]",
            "prometheus_sd[0].api.basic_auth: written beside authorization",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(read: Read, text: str, message: str) -> None:
    assert message in "\n".join(wrong(read, text))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("prometheus_sd: [{url: 'http://127.0.0.1:9090'}]", "everything that http://127.0.0.1:9090 scrapes is scraped"),
        (
            "prometheus_sd: [{url: 'http://p:9090', jobs: [a], api: {authorization: {credentials: c}}}]",
            "prometheus_sd[0].api: credentials are sent unencrypted",
        ),
        ("dns_sd: [{names: [a.test], port: 1, gpu: H100}]", "dns_sd[0]: a GPU is named without gpus"),
    ],
)
def test_what_is_hardly_meant_gets_advice(read: Read, text: str, advice: str) -> None:
    assert any(advice in line for line in warnings(read(text))), warnings(read(text))


def test_a_service_that_discovery_may_name_itself_needs_no_targets_in_the_file(read: Read) -> None:
    text = "services: [{name: chat, slo: {ttft: 1s}}]\nkubernetes_sd: [{}]"
    assert warnings(read(text)) == []
    named = warnings(read(text.replace("{}", "{service: other}")))
    assert any("no target belongs to the service 'chat'" in line for line in named)


def test_a_discovery_that_cannot_work_here_is_one_sentence(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match=r"^kubernetes_sd\[0\]: not in a Kubernetes cluster"):
        discoveries_of(read("kubernetes_sd: [{}]"), ENGINES, Session())


def test_the_examples_of_the_documentation_can_be_loaded(read: Read) -> None:
    text = (Path(__file__).parents[2] / "docs" / "discovery.md").read_text()
    examples = [block.split("```")[0] for block in text.split("```yaml\n")[1:]]
    loaded = [read(example) for example in examples if "_sd:" in example]
    assert [len(settings.discoveries) for settings in loaded] == [2, 2, 1]
    assert {key for settings in loaded for key, _ in settings.discoveries} == {
        "dns_sd[0]", "dns_sd[1]", "kubernetes_sd[0]", "kubernetes_sd[1]", "prometheus_sd[0]",
    }  # fmt: skip


def test_a_missing_dnspython_is_one_sentence_with_the_command(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "collector.discovery.dns")
    for name in [name for name in sys.modules if name.partition(".")[0] == "dns"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"^dns_sd\[0\]: needs the Python package dnspython; run: pip install"):
        discoveries_of(read("dns_sd: [{names: [a.test], port: 1}]"), ENGINES, Session())

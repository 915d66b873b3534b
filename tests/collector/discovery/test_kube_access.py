"""How the Kubernetes API is reached: service accounts and kubeconfigs, over TLS to a real server."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector._http import Session
from collector.discovery.kubernetes import InCluster, Kubeconfig, KubernetesSD
from goodwatch.core.errors import ConfigError
from tests.support.engine_server import Certificates, make_certificates
from tests.support.kubernetes_api import kubernetes_api, pod

ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("pems"))


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any], **more: Any) -> Path:
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }  # fmt: skip
    path.write_text(yaml.safe_dump({**document, **more}))
    return path


def account(folder: Path, token: str = "first\n") -> Path:
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_text("PEM")
    return folder


def test_a_pod_of_the_cluster_uses_its_service_account_and_reads_its_token_each_time(tmp_path: Path) -> None:
    access = InCluster(ENVIRON, account(tmp_path))
    assert access().server == "https://10.96.0.1:443"
    assert access().options.bearer == "first"
    assert access().options.ca_file == str(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("second")
    assert access().options.bearer == "second"
    assert "second" not in repr(access())


def test_an_address_of_ip_version_6_is_put_in_brackets(tmp_path: Path) -> None:
    environ = {**ENVIRON, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert InCluster(environ, account(tmp_path))().server == "https://[fd00::1]:443"


def test_outside_of_a_cluster_a_kubeconfig_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"KUBERNETES_SERVICE_HOST is not set.*write kubeconfig"):
        InCluster({})


def test_a_pod_without_a_token_is_told_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"token: No such file.*automountServiceAccountToken"):
        InCluster(ENVIRON, tmp_path)
    with pytest.raises(ConfigError, match="the token is empty"):
        InCluster(ENVIRON, account(tmp_path, " \n"))


@pytest.mark.parametrize(
    ("cluster", "user", "says"),
    [
        ({}, {}, "cluster 'c' has no server; write https://host:6443"),
        ({"server": "https://h"}, {"exec": {"command": "aws"}}, "logs in with a program .exec.; goodwatch starts none"),
        ({"server": "https://h"}, {"auth-provider": {"name": "gcp"}}, "logs in with a program .auth-provider."),
        ({"server": "https://h", "certificate-authority-data": "?"}, {}, "certificate-authority-data is not base64"),
        ({"server": "https://h"}, {"tokenFile": "gone"}, "gone: No such file or directory; it is the tokenFile of"),
    ],
)
def test_a_kubeconfig_that_cannot_work_says_what_is_wrong(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        Kubeconfig(kubeconfig(tmp_path, cluster, user))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file"),
        ("{", "cannot be read"),
        ("[]", "no context named '' under contexts; there are: none"),
        ("current-context: x\ncontexts: [{name: y, context: {}}]", "no context named 'x' under contexts; there are: y"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        Kubeconfig(path)


def test_a_context_can_be_chosen_and_paths_start_at_the_kubeconfig(tmp_path: Path) -> None:
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("here", "there")]
    (tmp_path / "tok").write_text("secret")
    path = kubeconfig(tmp_path, {"server": "https://h/k8s/"}, {"tokenFile": "tok"}, contexts=contexts)
    access = Kubeconfig(path, "there")()
    assert (access.server, access.options.bearer) == ("https://h/k8s", "secret")
    with pytest.raises(ConfigError, match="no context named 'elsewhere' under contexts; there are: here, there"):
        Kubeconfig(path, "elsewhere")


def test_a_kubeconfig_that_changes_is_read_again(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "https://h"}, {"token": "first"})
    access = Kubeconfig(path)
    assert access().options.bearer == "first"
    path.write_text(path.read_text().replace("first", "second one"))
    assert access().options.bearer == "second one"


def test_keys_inside_a_kubeconfig_are_readable_by_us_only_and_do_not_stay(tmp_path: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    user = {"client-certificate-data": data, "client-key-data": data}
    access = Kubeconfig(kubeconfig(tmp_path, {"server": "https://h"}, user))
    key = Path(access().options.key_file or "")
    assert key.read_bytes() == b"PEM"
    assert key.stat().st_mode & 0o077 == 0
    assert key.parent.stat().st_mode & 0o077 == 0
    del access
    assert not key.exists()


@pytest.mark.integration
@pytest.mark.parametrize("inline", [True, False])
async def test_a_client_certificate_opens_a_real_server(tmp_path: Path, pems: Certificates, inline: bool) -> None:
    def pem(key: str, path: Path) -> dict[str, str]:
        return {f"{key}-data": base64.b64encode(path.read_bytes()).decode()} if inline else {key: str(path)}

    with kubernetes_api(tls=pems.server_context(wants_client=True)) as api:
        api.put(pod("vllm-0"))
        cluster = {"server": api.url, "tls-server-name": "engine.test", **pem("certificate-authority", pems.ca)}
        user = {**pem("client-certificate", pems.client), **pem("client-key", pems.client_key)}
        async with Session() as session:
            found = KubernetesSD("k", Kubeconfig(kubeconfig(tmp_path, cluster, user)), session=session)
            assert await found.refresh()
            assert found.problems == {}
            strange = {**cluster, **pem("certificate-authority", pems.other_ca)}
            found = KubernetesSD("k", Kubeconfig(kubeconfig(tmp_path, strange, user)), session=session)
            await found.refresh()
    assert "TLS with 127.0.0.1" in found.problems["all namespaces"]
    assert "check ca_file, or the authority of kubeconfig" in found.problems["all namespaces"]

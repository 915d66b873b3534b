"""How the Kubernetes API is reached: as a pod of the cluster, or with a kubeconfig. Blocking reads of small files."""

import base64
import binascii
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from collector.targets import ScrapeOptions
from goodwatch.core.errors import ConfigError

#: where Kubernetes puts a pod's token, authority and namespace; the token is replaced there about every hour
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S: Final = 10.0
_TOKEN_LIMIT_BYTES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Access:
    """An API server and what opens it; secrets are not printed."""

    server: str  # URL, without a slash at its end
    options: ScrapeOptions = field(repr=False)


#: how to reach the API now: tokens and certificates change while we run. Raises ``ConfigError``
Accessor = Callable[[], Access]


class InCluster:
    """The access of a pod, by its service account. Raises ``ConfigError`` when this is not a pod of a cluster."""

    def __init__(self, environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> None:
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise ConfigError(
                "not in a Kubernetes cluster (KUBERNETES_SERVICE_HOST is not set) and no kubeconfig; write kubeconfig "
                "with the path of one"
            )
        self._server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._folder = folder
        self()

    def __call__(self) -> Access:
        """Access with the token of this moment."""
        authority = self._folder / "ca.crt"
        options = ScrapeOptions(
            timeout_s=TIMEOUT_S,
            bearer=_token(self._folder / "token", "is automountServiceAccountToken off for this pod?"),
            headers=(("Accept", "application/json"),),
            ca_file=str(authority) if authority.exists() else None,
        )
        return Access(self._server, options)


class Kubeconfig:
    """The access that one context of a kubeconfig gives; read again when the file changes. Raises ``ConfigError``."""

    def __init__(self, path: Path, context: str | None = None) -> None:
        self._path = path
        self._context = context
        # Keys written inside the kubeconfig go to files that only we can read: OpenSSL takes no other form.
        self._scratch = Path(tempfile.mkdtemp(prefix="goodwatch-kube-"))
        weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self._made: tuple[tuple[int, int], Access, Path | None] | None = None
        self()

    def __call__(self) -> Access:
        """Access as the file says now."""
        try:
            facts = self._path.stat()
        except OSError as error:
            raise ConfigError(f"kubeconfig {self._path}: {error.strerror or error}") from error
        stamp = (facts.st_mtime_ns, facts.st_size)
        if self._made is None or self._made[0] != stamp:
            self._made = (stamp, *self._read())
        access, token_file = self._made[1], self._made[2]
        if token_file is None:
            return access
        bearer = _token(token_file, f"it is the tokenFile of {self._path}")
        return replace(access, options=replace(access.options, bearer=bearer))

    def _read(self) -> tuple[Access, Path | None]:
        try:
            document = yaml.safe_load(self._path.read_text())
        except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
            raise self._wrong("cannot be read", " ".join(str(error).split())[:200]) from error
        whole = document if isinstance(document, dict) else {}
        name = self._context or whole.get("current-context") or ""
        context = self._entry(whole, "contexts", "context", name)
        cluster = self._entry(whole, "clusters", "cluster", str(context.get("cluster", "")))
        user = self._entry(whole, "users", "user", str(context.get("user", ""))) if context.get("user") else {}
        server = str(cluster.get("server", "")).rstrip("/")
        if not server.startswith(("https://", "http://")):
            raise self._wrong(f"cluster {context.get('cluster')!r} has no server", "write https://host:6443")
        for tool in ("exec", "auth-provider"):
            if tool in user:
                raise self._wrong(
                    f"user {context.get('user')!r} logs in with a program ({tool})",
                    "goodwatch starts none; use the token of a service account, or run it in the cluster",
                )
        token_file = self._file(user.get("tokenFile"))
        options = self._options(cluster, user, has_token_file=token_file is not None)
        return Access(server, options), token_file

    def _options(self, cluster: Mapping[str, Any], user: Mapping[str, Any], *, has_token_file: bool) -> ScrapeOptions:
        token = user.get("token")
        basic = (str(user["username"]), str(user.get("password", ""))) if user.get("username") else None
        return ScrapeOptions(
            timeout_s=TIMEOUT_S,
            bearer=str(token).strip() if token and not has_token_file else None,
            basic=None if token or has_token_file else basic,
            headers=(("Accept", "application/json"),),
            ca_file=self._pem(cluster, "certificate-authority"),
            cert_file=self._pem(user, "client-certificate"),
            key_file=self._pem(user, "client-key"),
            server_name=cluster.get("tls-server-name") or None,
            insecure_skip_verify=cluster.get("insecure-skip-tls-verify") is True,
        )

    def _entry(self, whole: Mapping[str, Any], group: str, key: str, name: str) -> Mapping[str, Any]:
        entries = [e for e in whole.get(group) or [] if isinstance(e, dict)]
        for entry in entries:
            if entry.get("name") == name and isinstance(entry.get(key), dict):
                return entry[key]  # type: ignore[no-any-return]
        known = ", ".join(str(e.get("name")) for e in entries) or "none"
        raise self._wrong(f"no {key} named {name!r} under {group}", f"there are: {known}")

    def _file(self, path: object) -> Path | None:
        return self._path.absolute().parent / str(path) if path else None

    def _pem(self, section: Mapping[str, Any], key: str) -> str | None:
        """Path of a PEM file; what is written inside the kubeconfig is put into one."""
        inline = section.get(f"{key}-data")
        if not inline:
            path = self._file(section.get(key))
            return None if path is None else str(path)
        try:
            pem = base64.b64decode(str(inline), validate=True)
        except (binascii.Error, ValueError) as error:
            raise self._wrong(f"{key}-data is not base64", "copy it whole") from error
        held = self._scratch / key
        held.touch(mode=0o600)
        held.write_bytes(pem)
        return str(held)

    def _wrong(self, what: str, right: str) -> ConfigError:
        return ConfigError(f"kubeconfig {self._path}: {what}; {right}")


def _token(path: Path, hint: str) -> str:
    try:
        with path.open("rb") as stream:
            token = stream.read(_TOKEN_LIMIT_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "not a token"
        raise ConfigError(f"{path}: {what}; {hint}") from error
    if not token:
        raise ConfigError(f"{path}: the token is empty; {hint}")
    return token

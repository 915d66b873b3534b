"""Who may call: static tokens with roles, sessions for browsers, and a guard against foreign web pages. No I/O.

Without tokens everything is open, which is allowed on loopback (or with ``insecure: true``); then the Host header is
checked, because a web page elsewhere can make a browser call loopback under a name of its own (DNS rebinding).
"""

import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

from goodwatch.core.clock import Clock, SystemClock
from goodwatch.core.errors import ConfigError

Role = Literal["ingest", "read", "admin"]
Reason = Literal["missing", "token", "session", "role", "host", "cross_site"]

#: why a request is refused; label values of ``goodwatch_auth_failures_total``
REASONS: Final[tuple[Reason, ...]] = ("missing", "token", "session", "role", "host", "cross_site")
COOKIE: Final = "goodwatch_session"
SESSION_S: Final = 12 * 3600.0

#: what a token of a role may do: sending data is not reading, and only admin does both
_MAY: Final[Mapping[str, frozenset[str]]] = {
    "ingest": frozenset({"ingest"}),
    "read": frozenset({"read"}),
    "admin": frozenset({"ingest", "read", "admin"}),
}
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/login", "/logout"})
_INGEST_PATHS: Final = frozenset({"/v1/traces", "/v1/metrics", "/v1/logs"})
_INGEST_POSTS: Final = frozenset({"/api/v1/quality", "/api/v1/alerts/webhook"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls; ``name`` "" when the port is open to all."""

    name: str
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a request is not served; ``detail`` is for a person and names no secret."""

    status: int
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a request decides on it; headers by lower-case name, ``path`` without the external prefix."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Known:
    name: str
    role: str
    salt: bytes
    digest: bytes


def role_for(method: str, path: str) -> Role | None:
    """The role that a request needs; None for what is open to all."""
    if path in _OPEN_PATHS:
        return None
    if path in _INGEST_PATHS or (method == "POST" and path in _INGEST_POSTS):
        return "ingest"
    return "read" if method in _SAFE else "admin"


@dataclass(frozen=True, slots=True)
class Auth:
    """Decides on requests. Tokens are kept as salted hashes only; build it with ``Auth.of``."""

    known: tuple[_Known, ...] = ()
    loopback: bool = True
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    clock: Clock = field(default_factory=SystemClock)

    @classmethod
    def of(
        cls, tokens: Sequence[tuple[str, str, str]], *, loopback: bool, insecure: bool, clock: Clock | None = None
    ) -> "Auth":
        """Access rules from (name, role, secret) triples.

        Parameters
        ----------
        tokens
            Roles are ingest, read, admin. Without any, everyone who reaches the port may do everything.
        loopback
            Whether the listener is reached from this machine only.
        insecure
            Whether the operator allowed a reachable listener without tokens.

        Raises
        ------
        ConfigError
            A reachable listener without tokens; an unknown role; an empty secret; a name or secret that is there twice.
        """
        if not tokens and not loopback and not insecure:
            raise ConfigError("auth.tokens: none, and others can reach the port; add one, or set insecure: true")
        _check(tokens)
        known = []
        for name, role, secret in tokens:
            salt = secrets.token_bytes(16)
            known.append(_Known(name, role, salt, _digest(salt, secret)))
        return cls(tuple(known), loopback, clock=clock or SystemClock())

    @property
    def open(self) -> bool:
        """Whether requests need no token."""
        return not self.known

    def decide(self, asked: Asked, external_url: str = "") -> Caller | Refused:
        """Who asks, or why the request is refused."""
        needed = role_for(asked.method, asked.path)
        if self.open and self.loopback and asked.path not in _OPEN_PATHS:
            refused = _foreign_host(asked, external_url)
            if refused is not None:
                return refused
        if _cross_site(asked, external_url):
            return Refused(403, "cross_site", "another web site sent this request; send it from goodwatch's own pages")
        if self.open:
            return Caller("", _MAY["admin"])
        if needed is None:
            return Caller("", frozenset())
        caller = self._caller(asked)
        if isinstance(caller, Refused) or needed in caller.roles:
            return caller
        return Refused(403, "role", f"token {caller.name!r} may not do this; a token with the role {needed} is needed")

    def _caller(self, asked: Asked) -> Caller | Refused:
        scheme, _, credentials = asked.headers.get("authorization", "").partition(" ")
        if scheme:
            found = self._by_secret(credentials.strip()) if scheme.lower() == "bearer" else None
            return found or Refused(401, "token", "this token is not known; send Authorization: Bearer TOKEN")
        session = _cookie(asked.headers.get("cookie", ""))
        if session:
            return self._by_session(session) or Refused(401, "session", "the session is over; log in again")
        return Refused(401, "missing", "a token is needed; send Authorization: Bearer TOKEN, or log in at /login")

    def _by_secret(self, secret: str) -> Caller | None:
        found: Caller | None = None
        for one in self.known:  # no early end: the time must not tell which token nearly fitted
            if hmac.compare_digest(_digest(one.salt, secret), one.digest):
                found = Caller(one.name, _MAY[one.role])
        return found

    def may_send(self, secret: str) -> bool:
        """Whether a token may send data."""
        caller = self._by_secret(secret)
        return caller is not None and "ingest" in caller.roles

    def log_in(self, secret: str) -> str | None:
        """A session value for a token, good for ``SESSION_S``; None when the token is not known."""
        caller = self._by_secret(secret)
        if caller is None:
            return None
        payload = f"{caller.name.encode().hex()}.{int(self.clock.now_s() + SESSION_S)}"
        return f"{payload}.{self._seal(payload)}"

    def _by_session(self, session: str) -> Caller | None:
        payload, _, seal = session.rpartition(".")
        if not hmac.compare_digest(self._seal(payload).encode(), seal.encode("utf-8", "replace")):
            return None
        name, _, until = payload.partition(".")
        if self.clock.now_s() >= float(until):
            return None
        decoded = bytes.fromhex(name).decode()
        return next((Caller(k.name, _MAY[k.role]) for k in self.known if k.name == decoded), None)

    def _seal(self, payload: str) -> str:
        return hmac.digest(self.key, payload.encode("utf-8", "replace"), "sha256").hex()


def _check(tokens: Sequence[tuple[str, str, str]]) -> None:
    for i, (name, role, secret) in enumerate(tokens):
        if role not in _MAY:
            raise ConfigError(f"auth.tokens[{i}].role: unknown role {role!r}; known: {', '.join(_MAY)}")
        if not secret.strip():
            raise ConfigError(f"auth.tokens[{i}].token: empty; write a long random text")
        if any(name == other or hmac.compare_digest(secret.encode(), held.encode()) for other, _, held in tokens[:i]):
            raise ConfigError(f"auth.tokens[{i}]: its name or its token is there already; each must be unique")


def _digest(salt: bytes, secret: str) -> bytes:
    return hmac.digest(salt, secret.encode("utf-8", "replace"), "sha256")


def _cookie(header: str) -> str:
    """The session in a Cookie header, "" when there is none. The standard parser gives up on foreign odd cookies."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return next((value for name, _, value in pairs if name == COOKIE), "")


def _host_of(url: str) -> str:
    """Host name of a URL in lower case, without port; "" when it has none or cannot be read."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _foreign_host(asked: Asked, external_url: str) -> Refused | None:
    host = _host_of(f"//{asked.headers.get('host', '')}")
    if host in _LOCAL or (host and host == _host_of(external_url)):
        return None
    shown = asked.headers.get("host", "")[:100]
    return Refused(
        403, "host",
        f"Host {shown!r} is not this server's; call it as localhost, or set external_url to the URL in use",
    )  # fmt: skip


def _cross_site(asked: Asked, external_url: str) -> bool:
    """Whether a browser sent something that changes state from a page of another origin."""
    if asked.method in _SAFE:
        return False
    site, origin = asked.headers.get("sec-fetch-site"), asked.headers.get("origin")
    if site is not None:  # the browser's own word, which no page can forge
        return site not in ("none", "same-origin")
    if origin is None:
        return False
    own = {asked.headers.get("host", "").lower(), urlsplit(external_url).netloc.lower()}
    return origin.lower().partition("://")[2] not in own - {""}

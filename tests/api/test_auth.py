import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodwatch.api.auth import COOKIE, REASONS, SESSION_S, Asked, Auth, Caller, Refused, role_for
from goodwatch.core.errors import ConfigError

TOKENS = [("sender", "ingest", "in-secret"), ("grafana", "read", "read-secret"), ("ops", "admin", "admin-secret")]
HOST = {"host": "127.0.0.1:9470"}


class StillClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s


def closed(clock: StillClock | None = None) -> Auth:
    return Auth.of(TOKENS, loopback=False, insecure=False, clock=clock)


def decide(auth: Auth, method: str = "GET", path: str = "/api/v1/services", **headers: str) -> Caller | Refused:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return auth.decide(Asked(method, path, HOST | named), "https://watch.example/goodwatch")


def reason(decided: Caller | Refused) -> str:
    return decided.reason if isinstance(decided, Refused) else ""


def test_loopback_without_tokens_is_open() -> None:
    auth = Auth.of([], loopback=True, insecure=False)
    assert auth.open
    assert reason(decide(auth)) == reason(decide(auth, "POST", "/api/v1/reload")) == ""


def test_a_reachable_port_without_tokens_is_an_error_unless_it_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="set insecure: true"):
        Auth.of([], loopback=False, insecure=False)
    assert reason(decide(Auth.of([], loopback=False, insecure=True), host="anything.example")) == ""


@pytest.mark.parametrize("role", ["ingest", "read", "admin"])
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/v1/services", {"read", "admin"}),
        ("HEAD", "/metrics", {"read", "admin"}),
        ("POST", "/api/v1/reload", {"admin"}),
        ("DELETE", "/anything", {"admin"}),
        ("POST", "/v1/traces", {"ingest", "admin"}),
        ("GET", "/healthz", {"ingest", "read", "admin"}),
        ("GET", "/readyz", {"ingest", "read", "admin"}),
    ],
)
def test_a_role_may_do_what_it_is_for(role: str, method: str, path: str, allowed: set[str]) -> None:
    secret = next(secret for _, r, secret in TOKENS if r == role)
    decided = decide(closed(), method, path, authorization=f"Bearer {secret}")
    assert reason(decided) == ("" if role in allowed else "role")
    if isinstance(decided, Refused):
        assert decided.status == 403
        assert secret not in decided.detail


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, "missing"),
        ({"authorization": "Bearer wrong"}, "token"),
        ({"authorization": "Bearer "}, "token"),
        ({"authorization": "Basic read-secret"}, "token"),
        ({"authorization": "Bearer Read-Secret"}, "token"),
        ({"authorization": "Bearer \udcff"}, "token"),
        ({"cookie": f"{COOKIE}=made.up.seal"}, "session"),
        ({"cookie": f"{COOKIE}=ü"}, "session"),
        ({"cookie": f"{COOKIE}=; other=1"}, "missing"),
        ({"cookie": "read-secret"}, "missing"),
    ],
)
def test_what_is_no_token_is_401_with_a_reason(headers: dict[str, str], expected: str) -> None:
    decided = decide(closed(), **headers)
    assert isinstance(decided, Refused)
    assert (decided.status, decided.reason) == (401, expected)
    assert decided.reason in REASONS


def test_probes_need_no_token() -> None:
    assert reason(decide(closed(), path="/healthz")) == reason(decide(closed(), path="/readyz")) == ""
    assert role_for("GET", "/metrics") == "read"


def test_the_scheme_may_be_written_in_any_case() -> None:
    decided = decide(closed(), authorization="bearer read-secret")
    assert isinstance(decided, Caller)
    assert decided.name == "grafana"


@given(st.text())
def test_no_other_text_is_a_token(text: str) -> None:
    auth = Auth.of([("a", "admin", "the-secret")], loopback=True, insecure=False)
    assert (auth.log_in(text) is not None) == (text == "the-secret")


def test_a_session_stands_for_its_token_until_it_ends() -> None:
    clock = StillClock()
    auth = closed(clock)
    session = auth.log_in("read-secret")
    assert session is not None
    assert "read-secret" not in session
    cookie = f"theme=dark; {COOKIE}={session}; odd"
    decided = decide(auth, cookie=cookie)
    assert isinstance(decided, Caller)
    assert decided.name == "grafana"
    assert reason(decide(auth, "POST", "/api/v1/reload", cookie=cookie)) == "role"
    clock.at_s += SESSION_S
    assert reason(decide(auth, cookie=cookie)) == "session"


def test_a_session_cannot_be_made_longer_or_moved_to_another_caller() -> None:
    auth = closed()
    session = auth.log_in("read-secret")
    assert session is not None
    name, until, seal = session.split(".")
    other = closed().log_in("admin-secret")
    assert other is not None
    for forged in (
        f"{name}.{int(until) + 1}.{seal}",
        f"{other.split('.')[0]}.{until}.{seal}",
        f"{name}.{until}.",
        other,
    ):
        assert reason(decide(auth, cookie=f"{COOKIE}={forged}")) == "session"


def test_no_secret_is_kept_or_shown() -> None:
    auth = closed()
    assert "secret" not in repr(auth)
    digests = {known.digest for known in auth.known}
    assert digests.isdisjoint({known.digest for known in closed().known})  # salted: the same token hashes differently


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", ""),
        ("LOCALHOST:9470", ""),
        ("127.0.0.1:9470", ""),
        ("[::1]:9470", ""),
        ("watch.example", ""),
        ("evil.example", "host"),
        ("127.0.0.1.evil.example:9470", "host"),
        ("localhost@evil.example", "host"),
        ("[::1", "host"),
        ("", "host"),
    ],
)
def test_an_open_loopback_port_answers_only_to_its_own_names(host: str, expected: str) -> None:
    assert reason(decide(Auth.of([], loopback=True, insecure=False), host=host)) == expected


def test_with_tokens_any_host_name_is_served() -> None:
    assert reason(decide(closed(), host="gw.internal", authorization="Bearer read-secret")) == ""


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, ""),
        ({"origin": "http://127.0.0.1:9470"}, ""),
        ({"origin": "https://watch.example"}, ""),
        ({"origin": "https://evil.example"}, "cross_site"),
        ({"origin": "null"}, "cross_site"),
        ({"sec_fetch_site": "same-origin", "origin": "https://proxy.example"}, ""),
        ({"sec_fetch_site": "cross-site"}, "cross_site"),
        ({"sec_fetch_site": "same-site"}, "cross_site"),
    ],
)
def test_another_site_cannot_change_anything(headers: dict[str, str], expected: str) -> None:
    auth = Auth.of([], loopback=True, insecure=False)
    assert reason(decide(auth, "POST", "/api/v1/reload", **headers)) == expected
    assert reason(decide(auth, "GET", "/api/v1/services", **headers)) == ""


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([("a", "owner", "x")], r"tokens\[0\].role: unknown role 'owner'; known: ingest, read, admin"),
        ([("a", "read", "  ")], r"tokens\[0\].token: empty"),
        ([("a", "read", "x"), ("a", "admin", "y")], r"tokens\[1\]: its name or its token is there already"),
        ([("a", "read", "s3cret"), ("b", "admin", "s3cret")], r"tokens\[1\]: its name or its token"),
    ],
)
def test_wrong_tokens_are_configuration_errors(tokens: list[tuple[str, str, str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Auth.of(tokens, loopback=True, insecure=False)
    assert "s3cret" not in str(caught.value)

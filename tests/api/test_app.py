"""What holds for every route: one shape of errors, access, the prefix, headers."""

import asyncio
import base64
import hashlib
import html
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, HTTPException

from exporters.prometheus import Exporter, SelfMetrics
from goodwatch.api.app import create_app, external_prefix
from goodwatch.api.auth import COOKIE, Auth
from goodwatch.api.problem import Problem
from goodwatch.api.routes_docs import operations
from goodwatch.app.telemetry import snapshot
from goodwatch.app.view import Views
from goodwatch.core.errors import ConfigError, NoDataError, StoreError, TransientError
from tests.support.views import HEALTHY, PlainViews, RecordedViews, hostile_views, no_data_views

OPEN = Auth.of([], loopback=True, insecure=False)
CLOSED = Auth.of([("grafana", "read", "read-secret"), ("ops", "admin", "admin-secret")], loopback=False, insecure=False)
LOGIN = {"content-type": "application/x-www-form-urlencoded"}


def app_of(views: Views | None = None, auth: Auth = OPEN, *routers: APIRouter) -> FastAPI:
    shown = views or RecordedViews()
    return create_app(
        shown, auth=auth, exporter=Exporter(lambda: snapshot(shown), SelfMetrics("1.2.3")), routers=routers
    )


def client_of(app: FastAPI, **headers: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9470", headers=named)


def problem_of(response: httpx.Response) -> Problem:
    """The body as a problem; fails when it is not exactly one."""
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-content-type-options"] == "nosniff"
    found = Problem.model_validate_json(response.text, strict=True)
    assert set(response.json()) == set(Problem.model_fields)
    assert found.status == response.status_code
    assert found.detail
    assert found.instance == response.request.url.path
    return found


def paths_of(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path of every operation, with names that do not exist."""
    return [(one.method, re.sub(r"\{.*?\}", "none", one.path)) for one in operations(app.openapi())]


async def test_every_operation_exists_and_answers_json_or_a_problem() -> None:
    app = app_of()
    async with client_of(app) as client:
        for method, path in paths_of(app):
            response = await client.request(method, path)
            assert response.status_code in (200, 404), path
            if response.status_code == 404:
                assert "known: chat" in problem_of(response).detail


async def test_every_path_refuses_other_methods_in_one_shape() -> None:
    app = app_of()
    async with client_of(app) as client:
        for _, path in paths_of(app):
            response = await client.request("PATCH", path)
            assert response.status_code == 405
            assert response.headers["allow"] in problem_of(response).detail


async def test_every_path_but_the_probes_needs_a_token_once_there_are_tokens() -> None:
    app = app_of(auth=CLOSED)
    async with client_of(app) as client:
        for method, path in [*paths_of(app), ("GET", "/api/openapi.json"), ("GET", "/api/docs"), ("GET", "/none")]:
            response = await client.request(method, path)
            if path in ("/healthz", "/readyz"):
                assert response.status_code == 200
                continue
            assert response.status_code == 401, path
            assert response.headers["www-authenticate"] == 'Bearer realm="goodwatch"'
            assert "token is needed" in problem_of(response).detail


async def test_an_unknown_path_is_a_problem_that_names_the_list() -> None:
    async with client_of(app_of()) as client:
        found = problem_of(await client.get("/api/v2/services"))
    assert (found.status, found.title) == (404, "Not Found")
    assert "/api/docs" in found.detail


def failing(error: Exception) -> APIRouter:
    router = APIRouter()

    @router.get("/fails")
    async def fails(wanted: int = 0) -> str:
        raise error

    return router


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (ValueError("password is hunter2"), 500, "something is wrong inside goodwatch; the cause is in its log"),
        (ConfigError("password is hunter2"), 500, "something is wrong inside goodwatch; the cause is in its log"),
        (StoreError("disk full: free some space"), 503, "disk full: free some space"),
        (TransientError("busy"), 503, "busy"),
        (NoDataError("nothing kept"), 404, "nothing kept"),
        (HTTPException(404, "no such page"), 404, "no such page"),
        (HTTPException(418), 418, "I'm a Teapot"),
    ],
)
async def test_an_error_is_a_problem_and_never_a_traceback(error: Exception, status: int, detail: str) -> None:
    async with client_of(app_of(None, OPEN, failing(error))) as client:
        response = await client.get("/fails")
    assert (response.status_code, problem_of(response).detail) == (status, detail)
    assert "hunter2" not in response.text
    assert "Traceback" not in response.text


async def test_a_parameter_of_the_wrong_type_is_422_and_says_which() -> None:
    async with client_of(app_of(None, OPEN, failing(ValueError()))) as client:
        found = problem_of(await client.get("/fails", params={"wanted": "much"}))
    assert found.status == 422
    assert found.errors[0].where == "query.wanted"
    assert "integer" in found.errors[0].what


async def test_a_foreign_host_name_is_refused_on_an_open_port_and_counted() -> None:
    app = app_of()
    async with client_of(app, host="evil.example") as client:
        assert problem_of(await client.get("/api/v1/services")).status == 403
    async with client_of(app) as client:
        page = (await client.get("/metrics")).text
    assert 'goodwatch_auth_failures_total{reason="host"} 1.0' in page


@pytest.mark.parametrize("prefix", ["", "/goodwatch", "/team/goodwatch"])
@pytest.mark.parametrize("stripped", [True, False])
async def test_a_proxy_may_strip_the_prefix_or_leave_it(prefix: str, stripped: bool) -> None:
    views = PlainViews(external_url=f"https://watch.example{prefix}/")
    sent = "" if stripped else prefix
    async with client_of(app_of(views)) as client:
        for path in ("/api/v1/services", "/healthz", "/metrics", "/api/docs"):
            assert (await client.get(f"{sent}{path}")).status_code == 200, path
        found = (await client.get(f"{sent}/api/v1/none")).json()
        assert found["instance"] == f"{prefix}/api/v1/none"
        schema = (await client.get(f"{sent}/api/openapi.json")).json()
        assert schema.get("servers", [{"url": ""}])[0]["url"] == prefix
        assert f'href="{prefix}/api/openapi.json"' in (await client.get(f"{sent}/api/docs")).text


async def test_a_path_that_only_begins_like_the_prefix_is_not_below_it() -> None:
    async with client_of(app_of(PlainViews(external_url="https://watch.example/goodwatch"))) as client:
        assert (await client.get("/goodwatchful/healthz")).status_code == 404
        assert (await client.get("/goodwatch/goodwatch/healthz")).status_code == 404


def test_a_prefix_that_is_one_of_the_own_paths_is_refused() -> None:
    with pytest.raises(ConfigError, match="external_url: its path /api is also one of goodwatch's own"):
        external_prefix("https://watch.example/api/")


async def test_head_is_get_without_a_body() -> None:
    async with client_of(app_of()) as client:
        response = await client.head("/healthz")
    assert (response.status_code, response.content) == (200, b"")


async def test_every_answer_carries_the_security_headers() -> None:
    async with client_of(app_of()) as client:
        for path in ("/api/v1/services", "/none", "/api/docs", "/metrics"):
            headers = (await client.get(path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert headers["cache-control"] == "no-store"


async def test_the_docs_page_lists_every_operation_and_loads_nothing() -> None:
    app = app_of()
    async with client_of(app) as client:
        page = (await client.get("/api/docs")).text
    for one in operations(app.openapi()):
        assert f"<code>{one.method} {one.path}</code>" in page
        assert html.escape(one.summary, quote=False).replace("'", "&#39;") in page
    assert "<script" not in page
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", page)


def test_the_schema_names_tags_and_describes_everything() -> None:
    schema = app_of().openapi()
    tags = {tag["name"] for tag in schema["tags"]}
    for path, methods in schema["paths"].items():
        for method, one in methods.items():
            assert one["description"], f"{method} {path}"
            assert set(one["tags"]) <= tags, f"{method} {path}"


async def log_in(client: httpx.AsyncClient, token: str, **more: str) -> httpx.Response:
    return await client.post("/login", data={"token": token, **more}, headers=LOGIN)


async def test_a_browser_logs_in_with_a_form_and_gets_where_it_wanted() -> None:
    async with client_of(app_of(auth=CLOSED), accept="text/html") as client:
        refused = await client.get("/services/chat?from=-6h")
        assert refused.status_code == 401
        assert "www-authenticate" in refused.headers
        assert 'name="next" value="/services/chat?from=-6h"' in refused.text
        answer = await log_in(client, " read-secret ", next="/services/chat?from=-6h")
        assert (answer.status_code, answer.headers["location"]) == (303, "/services/chat?from=-6h")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "secure" not in cookie.split("; ")
        assert "read-secret" not in cookie
        assert (await client.get("/api/v1/services")).status_code == 200
        assert problem_of(await client.post("/api/v1/reload")).status == 403
        await client.post("/logout")
        assert COOKIE not in client.cookies
        assert (await client.get("/api/v1/services")).status_code == 401


async def test_a_wrong_token_at_the_form_is_401_and_counted() -> None:
    app = app_of(auth=CLOSED)
    async with client_of(app) as client:
        answer = await log_in(client, "guess")
        page = (await client.get("/metrics", headers={"authorization": "Bearer read-secret"})).text
    assert answer.status_code == 401
    assert "not known" in answer.text
    assert "guess" not in answer.text
    assert 'goodwatch_auth_failures_total{reason="token"} 1.0' in page


async def test_over_https_the_cookie_is_secure_and_bound_to_the_prefix() -> None:
    app = app_of(PlainViews(external_url="https://watch.example/goodwatch"), CLOSED)
    async with client_of(app) as client:
        answer = await log_in(client, "admin-secret", next="/about")
    assert answer.headers["location"] == "/goodwatch/about"
    cookie = answer.headers["set-cookie"].lower().split("; ")
    assert "secure" in cookie
    assert "path=/goodwatch" in cookie


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "/\r\nX: y", ""])
async def test_nobody_is_sent_elsewhere_after_a_login(target: str) -> None:
    async with client_of(app_of(auth=CLOSED)) as client:
        assert (await log_in(client, "read-secret", next=target)).headers["location"] == "/"


async def test_a_login_form_is_small_and_comes_from_here() -> None:
    async with client_of(app_of(auth=CLOSED)) as client:
        assert problem_of(await log_in(client, "x" * 9000)).status == 413
        crossed = await client.post("/login", data={"token": "read-secret"}, headers={"origin": "https://evil.example"})
        assert problem_of(crossed).status == 403


async def test_a_link_from_another_site_reloads_once_so_that_the_cookie_is_sent() -> None:
    async with client_of(app_of(auth=CLOSED), accept="text/html", sec_fetch_site="cross-site") as client:
        assert 'http-equiv="refresh"' in (await client.get("/")).text
    async with client_of(app_of(auth=CLOSED), accept="text/html", sec_fetch_site="same-origin") as client:
        assert 'http-equiv="refresh"' not in (await client.get("/")).text


async def test_the_login_page_shows_its_style_under_its_own_policy_and_escapes_the_path() -> None:
    async with client_of(app_of(auth=CLOSED), accept="text/html") as client:
        page = await client.get('/x"><script>alert(1)</script>')
    assert "<script" not in page.text
    style = page.text.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in page.headers["content-security-policy"]


async def test_where_no_token_is_needed_there_is_no_login() -> None:
    async with client_of(app_of()) as client:
        assert problem_of(await client.get("/login")).status == 404


async def test_there_are_no_websockets() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/api/v1/services", "headers": [], "query_string": b"", "subprotocols": []}
    await app_of()(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


BROKEN = replace(HEALTHY, ok=False, message="", store=replace(HEALTHY.store, ok=False, message="disk full"))


@pytest.mark.parametrize(
    ("views", "path", "status", "detail"),
    [
        (PlainViews, "/healthz", 200, ""),
        (lambda: PlainViews(state=BROKEN), "/healthz", 503, "disk full"),
        (lambda: PlainViews(state=replace(HEALTHY, ok=False, message="loop stuck")), "/healthz", 503, "loop stuck"),
        (PlainViews, "/readyz", 200, ""),
        (no_data_views, "/readyz", 503, "the first scrapes are under way"),
        (no_data_views, "/healthz", 200, ""),
        (hostile_views, "/healthz", 503, "<script>"),
    ],
)
async def test_the_probes_say_what_is_wrong(views: Callable[[], Views], path: str, status: int, detail: str) -> None:
    async with client_of(app_of(views())) as client:
        response = await client.get(path)
    assert response.status_code == status
    if status == 503:
        assert detail in problem_of(response).detail


async def test_metrics_are_negotiated_and_compressed() -> None:
    async with client_of(app_of()) as client:
        plain = await client.get("/metrics", headers={"accept-encoding": "identity"})
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "goodwatch_attainment_ratio_low" in plain.text
        packed = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.text.endswith("# EOF\n")


async def test_many_requests_at_once_are_answered() -> None:
    async with client_of(app_of()) as client:
        answers = await asyncio.gather(*(client.get("/metrics") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}

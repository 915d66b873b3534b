"""The HTTP application: routes, who may call them, errors in one shape, and what holds for every answer."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI
from opentelemetry.trace import SpanKind
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exporters.prometheus import Exporter, SelfMetrics
from goodwatch import __version__
from goodwatch.api.auth import Asked, Auth, Refused
from goodwatch.api.problem import install, problem
from goodwatch.api.routes_docs import docs_routes
from goodwatch.api.routes_login import login_page, login_routes
from goodwatch.api.routes_now import about_routes, event_routes, service_routes
from goodwatch.api.routes_series import series_routes
from goodwatch.api.routes_system import health_routes, metrics_routes
from goodwatch.api.routes_targets import target_routes
from goodwatch.app.telemetry import span
from goodwatch.app.view import Views
from goodwatch.core.errors import ConfigError

_TAGS: Final = [
    {"name": "services", "description": "Services: how much of the traffic meets its targets, and what it costs."},
    {"name": "targets", "description": "Scraped engines and what each can tell."},
    {"name": "events", "description": "Restarts, deployments, targets that went away."},
    {"name": "requests", "description": "Single requests from traces: heatmap, list, attainment, cost."},
    {"name": "quality", "description": "Scores of answers: in, and what they add up to."},
    {"name": "slos", "description": "Objectives: what is left of their error budgets, and how fast they burn."},
    {"name": "alerts", "description": "Alerts that fire or fired, who was told, silences; webhooks of others come in."},
    {"name": "recommendations", "description": "Changes that would help, what they are expected to do, what they did."},
    {"name": "experiments", "description": "Changes that were tried, what was measured, what was concluded."},
    {"name": "reports", "description": "Weekly cost-down reports."},
    {"name": "about", "description": "Definitions, version, configuration."},
    {"name": "system", "description": "Probes and metrics for other machines."},
]
_DESCRIPTION: Final = (
    "Goodput, latency and cost of LLM inference. A number that is not there is null and says why, never 0. "
    "Times are Unix seconds in answers; requests may also use RFC 3339 or -1h. Errors are RFC 9457 problems."
)
#: first steps of goodwatch's own paths: a prefix of the same name could not be told from them
_OWN_PATHS: Final = frozenset(
    {
        "api",
        "services",
        "targets",
        "heatmap",
        "requests",
        "costs",
        "quality",
        "slos",
        "alerts",
        "silences",
        "triage",
        "docs",
        "recommendations",
        "experiments",
        "reports",
        "about",
        "static",
        "metrics",
        "healthz",
        "readyz",
        "login",
        "logout",
        "v1",
    }
)
#: what every answer carries unless its route says otherwise
_HEADERS: Final = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}


def create_app(views: Views, *, auth: Auth, exporter: Exporter, routers: Sequence[APIRouter] = ()) -> FastAPI:
    """The application over a running service.

    Parameters
    ----------
    views
        The read side; the path of its ``external_url`` is the prefix that proxies may strip or leave.
    auth
        Who may call.
    exporter
        Renders /metrics and counts refused requests.
    routers
        Further routes at the root, such as the web pages.

    Raises
    ------
    ConfigError
        The prefix is also one of goodwatch's own paths.
    """
    prefix = external_prefix(views.external_url)
    app = FastAPI(
        title="goodwatch", version=__version__, description=_DESCRIPTION, openapi_tags=_TAGS,
        openapi_url="/api/openapi.json", docs_url=None, redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    install(app)
    own = [
        series_routes(views), service_routes(views), target_routes(views), event_routes(views), about_routes(views),
        health_routes(views), metrics_routes(exporter), login_routes(views, auth, exporter.own), docs_routes(app),
    ]  # fmt: skip
    for router in (*own, *routers):
        app.include_router(router)
    app.add_middleware(_Edge, auth=auth, prefix=prefix, external_url=views.external_url, own=exporter.own)
    return app


def external_prefix(external_url: str) -> str:
    """Path of the external URL without a slash at its end; "" when goodwatch is at the root. See ``create_app``."""
    prefix = urlsplit(external_url).path.rstrip("/")
    if prefix and prefix.split("/")[1] in _OWN_PATHS:
        raise ConfigError(f"external_url: its path {prefix} is also one of goodwatch's own; use one like /goodwatch")
    return prefix


class _Edge:
    """Around every request: the prefix, access, a span, and headers. HEAD is answered as GET without a body."""

    def __init__(self, app: ASGIApp, *, auth: Auth, prefix: str, external_url: str, own: SelfMetrics) -> None:
        self._app, self._auth, self._prefix, self._external_url, self._own = app, auth, prefix, external_url, own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there is none; one must not slip past the rules below
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = self._route_path(scope["path"])
        inner = {**scope, "root_path": self._prefix, "path": self._prefix + path}
        asked = Asked(scope["method"], path, _headers(scope))
        if asked.method == "HEAD":
            inner["method"] = "GET"
        with span(asked.method, {"http.request.method": asked.method}, kind=SpanKind.SERVER) as one:

            async def answer(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message = {**message, "headers": _completed(message.get("headers", []))}
                    one.set_attribute("http.response.status_code", message["status"])
                elif message["type"] == "http.response.body" and asked.method == "HEAD":
                    message = {**message, "body": b""}
                await send(message)

            await self._served(asked, inner)(inner, receive, answer)
            route = getattr(inner.get("route"), "path", None)
            if route:
                one.update_name(f"{asked.method} {route}")
                one.set_attribute("http.route", route)

    def _route_path(self, path: str) -> str:
        """The path below the prefix, whether or not a proxy has stripped it."""
        if self._prefix and (path == self._prefix or path.startswith(f"{self._prefix}/")):
            path = path[len(self._prefix) :]
        return path or "/"

    def _served(self, asked: Asked, scope: Scope) -> ASGIApp:
        """The application, or the answer to a request that is refused."""
        decided = self._auth.decide(asked, self._external_url)
        if not isinstance(decided, Refused):
            return self._app
        self._own.auth_failed(decided.reason)
        return self._refusal(asked, decided, scope)

    def _refusal(self, asked: Asked, refused: Refused, scope: Scope) -> Response:
        headers = {"WWW-Authenticate": 'Bearer realm="goodwatch"'} if refused.status == 401 else {}
        person = "text/html" in asked.headers.get("accept", "") and not asked.path.startswith("/api/")
        if refused.status != 401 or not person or asked.method not in ("GET", "HEAD"):
            return problem(refused.status, refused.detail, instance=scope["path"], headers=headers)
        query = scope.get("query_string", b"").decode("latin-1")
        # After a link on another site the browser holds a strict cookie back; a reload from here sends it.
        again = refused.reason == "missing" and asked.headers.get("sec-fetch-site") == "cross-site"
        page = login_page(
            self._prefix, status=401, target=f"{asked.path}?{query}" if query else asked.path, again=again,
            message="" if refused.reason == "missing" else "The session is over.",
        )  # fmt: skip
        page.headers.update(headers)
        return page


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _completed(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    held = {name.lower() for name, _ in headers}
    return [*headers, *((name, value) for name, value in _HEADERS.items() if name not in held)]

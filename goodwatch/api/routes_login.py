"""A login form for browsers: a token in, a session cookie out."""

import base64
import hashlib
from typing import Final
from urllib.parse import parse_qs, quote

import jinja2
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from exporters.prometheus import SelfMetrics
from goodwatch.api.auth import COOKIE, SESSION_S, Auth
from goodwatch.api.problem import ProblemError
from goodwatch.app.view import Views

#: a form with one token and one path; anything longer is no login
_FORM_BYTES: Final = 8192

#: nothing in it needs escaping, so that it reaches the browser as it was hashed
STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
form { max-width: 24rem; display: grid; gap: .75rem; }
input, button { font: inherit; padding: .5rem; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid #8884; }
code { white-space: nowrap; }
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
#: for the pages of this package: no script at all, and only this style
PAGE_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE: Final = jinja2.Environment(autoescape=True).from_string(
    """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
{% if again %}<meta http-equiv="refresh" content="0">{% endif %}
<title>goodwatch: log in</title><style>{{ style }}</style></head><body>
<h1>goodwatch</h1>
<form method="post" action="{{ prefix }}/login">
{% if message %}<p role="alert">{{ message }}</p>{% endif %}
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<input type="hidden" name="next" value="{{ next }}">
<button>Log in</button>
</form></body></html>
"""
)


def login_page(
    prefix: str, *, status: int = 200, target: str = "/", message: str = "", again: bool = False
) -> HTMLResponse:
    """The form. ``target`` is the local path to go to afterwards; ``again`` reloads the page at once."""
    html = _PAGE.render(prefix=prefix, message=message, next=local_path(target), again=again, style=STYLE)
    return HTMLResponse(html, status, {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-store"})


def login_routes(views: Views, auth: Auth, own: SelfMetrics) -> APIRouter:
    """Login and logout. Where no token is configured there is nothing to log in to: 404."""
    router = APIRouter(include_in_schema=False)
    secure = views.external_url.lower().startswith("https://")

    def needed() -> None:
        if auth.open:
            raise ProblemError(404, "no token is configured, so there is nothing to log in to")

    @router.get("/login")
    async def form(request: Request) -> Response:
        needed()
        return login_page(_prefix(request), target=request.query_params.get("next", "/"))

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        needed()
        fields = parse_qs((await _body(request)).decode("utf-8", "replace"), max_num_fields=10)
        token, target = fields.get("token", [""])[0].strip(), local_path(fields.get("next", ["/"])[0])
        session = auth.log_in(token)
        if session is None:
            own.auth_failed("token")
            page = login_page(_prefix(request), status=401, target=target, message="This token is not known.")
            page.headers["WWW-Authenticate"] = "Bearer"
            return page
        # quote keeps a hostile path from becoming a header of its own; % is there already
        answer = RedirectResponse(_prefix(request) + quote(target, safe="/?&=%:,+;@~!$'()*"), 303)
        answer.set_cookie(
            COOKIE, session, max_age=int(SESSION_S), path=_prefix(request) or "/", secure=secure, httponly=True,
            samesite="strict",
        )  # fmt: skip
        return answer

    @router.post("/logout")
    async def log_out(request: Request) -> Response:
        needed()
        answer = RedirectResponse(f"{_prefix(request)}/login", 303)
        answer.delete_cookie(COOKIE, path=_prefix(request) or "/", secure=secure, httponly=True, samesite="strict")
        return answer

    return router


def local_path(text: str) -> str:
    """The text when it is a path on this server, else "/": nobody is sent elsewhere after a login.

    Examples
    --------
    >>> local_path("/services/chat?from=-1h"), local_path("//evil.example"), local_path("https://evil.example")
    ('/services/chat?from=-1h', '/', '/')
    """
    foreign = not text.startswith("/") or text.startswith("//") or "\\" in text or any(ord(c) < 32 for c in text)
    return "/" if foreign else text


def _prefix(request: Request) -> str:
    prefix: str = request.scope.get("root_path", "")
    return prefix.rstrip("/")


async def _body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _FORM_BYTES:
            raise ProblemError(413, f"a login form has at most {_FORM_BYTES} bytes")
    return body

"""Templates to HTML, with the headers that keep a page to itself."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from fastapi import Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from collector.capability import display_model
from goodwatch.api.ui.assets import Assets, packed_response
from goodwatch.api.ui.format import digits, file_size, seconds, span, utc
from goodwatch.app.view import Health, Views

#: Everything from this server, no inline script or style. Charts are drawn by an interpreter, so no eval either.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Vary": "Accept-Encoding",
}
#: how often an open page is read again
REFRESH_S: Final = 15


@dataclass(frozen=True, slots=True)
class Banner:
    """A line over every page; ``kind`` is "bad" or "info"."""

    kind: str
    title: str
    text: str


def banners(health: Health) -> tuple[Banner, ...]:
    """What is wrong with goodwatch itself, most urgent first."""
    found = []
    if not health.store.ok:
        text = health.store.message or "nothing can be kept"
        found.append(Banner("bad", "Store", f"{text}. Numbers may be missing or old."))
    if not health.ok and health.message != health.store.message:
        found.append(Banner("bad", "goodwatch", health.message or "goodwatch does not work as it should."))
    elif health.ok and not health.ready:
        found.append(Banner("info", "Starting", health.message or "the first targets are being read"))
    return tuple(found)


def safe_json(value: Any) -> Markup:
    r"""JSON that may stand in a script element: no ``<``, ``>`` or ``&`` is left in it.

    Examples
    --------
    >>> safe_json({"a": "</script>"})
    Markup('{"a":"\\u003c/script\\u003e"}')
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704  # every character that could end the element was replaced


class Renderer:
    """The templates, and what every page shows around its own content."""

    def __init__(self, views: Views, assets: Assets, *, requests: bool = False) -> None:
        """``requests`` says that the pages of requests are there too, so that others link to them."""
        self._views, self._assets, self._requests = views, assets, requests
        self._environment = Environment(
            loader=PackageLoader("goodwatch.api.ui"), autoescape=select_autoescape(default=True),
            undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        self._environment.filters |= {
            "utc": utc, "span": span, "seconds": seconds, "count": digits, "file_size": file_size,
            "model": display_model, "urlpart": url_part,
        }  # fmt: skip

    def page(
        self, request: Request, template: str, values: Mapping[str, Any], *, status: int = 200, live: bool = True
    ) -> Response:
        """A page as the answer to a request; ``live`` has it read again by itself."""
        base = prefix(request)
        html = self._environment.get_template(f"{template}.html").render(
            base=base, page=template, now_s=self._views.now_s(), demo_note=self._views.demo_note,
            requests_there=self._requests, banners=banners(self._views.health()), refresh_s=REFRESH_S if live else 0,
            static=lambda name: base + self._assets.path(name), **values,
        )  # fmt: skip
        return packed_response(request, html.encode(), "text/html; charset=utf-8", dict(_HEADERS), status=status)


def prefix(request: Request) -> str:
    """The path under which goodwatch is reached, "" at the root."""
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


def url_part(name: str) -> str:
    """A name as one step of a URL's path.

    Examples
    --------
    >>> url_part("a/b ?"), url_part("..")
    ('a%2Fb%20%3F', '%2E%2E')
    """
    return name.replace(".", "%2E") if name in {".", ".."} else quote(name, safe="")

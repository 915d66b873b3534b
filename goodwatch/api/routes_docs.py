"""A page and a table that list the API's operations. The framework's own pages load scripts from elsewhere."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import jinja2
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse

from goodwatch.api.auth import role_for
from goodwatch.api.routes_login import PAGE_POLICY, STYLE

_PAGE: Final = jinja2.Environment(autoescape=True).from_string(
    """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>goodwatch: API</title><style>{{ style }}</style></head><body>
<h1>goodwatch API {{ version }}</h1>
<p>{{ description }} The same as a schema for tools: <a href="{{ prefix }}/api/openapi.json">OpenAPI</a>.</p>
<table><thead><tr><th>Operation</th><th>Role</th><th>What it does</th></tr></thead><tbody>
{% for one in operations %}<tr><td><code>{{ one.method }} {{ one.path }}</code></td><td>{{ one.role }}</td>
<td><b>{{ one.summary }}.</b> {{ one.description }}
{% for name, text in one.parameters %}<br><code>{{ name }}</code> {{ text }}{% endfor %}</td></tr>
{% endfor %}</tbody></table></body></html>
"""
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the API; ``parameters`` are (name, description) of the query."""

    method: str
    path: str
    role: str
    summary: str
    description: str
    parameters: tuple[tuple[str, str], ...]


def operations(schema: dict[str, Any]) -> Iterator[Operation]:
    """Operations of an OpenAPI document by path; the document has routes in the order in which they are tried."""
    for path, methods in sorted(schema["paths"].items()):
        for method, one in methods.items():
            query = [p for p in one.get("parameters", []) if p["in"] == "query"]
            yield Operation(
                method.upper(), path, role_for(method.upper(), path) or "none", one["summary"],
                " ".join(one.get("description", "").replace("``", "`").split()), tuple((p["name"], p.get("description", "")) for p in query),
            )  # fmt: skip


def operations_table(schema: dict[str, Any]) -> str:
    """The operations as a Markdown table."""
    rows = [
        f"| `{one.method} {one.path}` | {one.role} | {one.summary}. {one.description} | "
        f"{', '.join(f'`{name}`' for name, _ in one.parameters)} |"
        for one in operations(schema)
    ]
    head = ["| operation | role | what it does | query |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows, ""])


def docs_routes(app: FastAPI) -> APIRouter:
    """The page at /api/docs; no script, nothing from elsewhere."""
    router = APIRouter(include_in_schema=False)

    @router.get("/api/docs")
    async def docs(request: Request) -> Response:
        html = _PAGE.render(
            prefix=request.scope.get("root_path", "").rstrip("/"), version=app.version, description=app.description,
            operations=list(operations(app.openapi())), style=STYLE,
        )  # fmt: skip
        return HTMLResponse(html, headers={"Content-Security-Policy": PAGE_POLICY})

    return router

"""Spans of web frameworks and HTTP libraries around a request: not needed, and the tree is kept joined across them.

FastAPI traces vLLM's and SGLang's HTTP layer when it finds a tracer (seen with vLLM 0.10.2 and 0.12.0): health checks
and metrics scrapes included.
"""

from typing import Final

from collector.spans.table import Match, SpanClass, SpanTable

_LIBRARIES: Final = (
    "aiohttp_client", "aiohttp_server", "asgi", "django", "fastapi", "flask", "grpc", "httpx", "requests",
    "starlette", "tornado", "urllib", "urllib3", "wsgi",
)  # fmt: skip

TABLE: Final = SpanTable(
    name="web",
    docs="FastAPI 0.165 and opentelemetry-instrumentation packages",
    order=90,
    classes=(
        SpanClass(
            Match(scopes=("fastapi", *(f"opentelemetry.instrumentation.{name}" for name in _LIBRARIES))),
            dropped="web",
        ),
    ),
)

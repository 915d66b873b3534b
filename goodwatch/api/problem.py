"""Errors over HTTP: one shape for all of them (RFC 9457, ``application/problem+json``), never a traceback."""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from goodwatch.core.errors import GoodwatchError, NoDataError, StoreError, TransientError

MEDIA_TYPE: Final = "application/problem+json"
#: here too, because the answer to a bug is sent outside of everything that completes headers
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_log = logging.getLogger(__name__)

#: which of goodwatch's errors is which status; the first that fits
_STATUS: Final[tuple[tuple[type[GoodwatchError], int], ...]] = (
    (NoDataError, 404),
    (StoreError, 503),
    (TransientError, 503),
)


class Fault(BaseModel):
    """One thing that is wrong with a request or a configuration."""

    where: str = Field(description="Parameter, field or file line.")
    what: str = Field(description="What is wrong with it, for a person.")


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field("about:blank", description="Always about:blank: status says what kind of error it is.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="What is wrong and what would be right, for a person.")
    instance: str = Field("", description="Path of the request.")
    errors: list[Fault] = Field([], description="Each thing that is wrong, where there can be several.")


class ProblemError(Exception):
    """Ends a request with a problem; ``errors`` are (where, what) pairs."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.errors, self.headers = status, detail, tuple(errors), headers


def problem(
    status: int,
    detail: str,
    *,
    instance: str = "",
    errors: Sequence[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A response in the shape of ``Problem``."""
    found = [Fault(where=where, what=what) for where, what in errors]
    body = Problem(
        type="about:blank", title=_title(status), status=status, detail=detail, instance=instance, errors=found
    )
    return Response(body.model_dump_json(), status, {**_HEADERS, **(headers or {})}, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Make every error of an app a problem."""
    app.add_exception_handler(ProblemError, _raised)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(GoodwatchError, _ours)
    app.add_exception_handler(Exception, _bug)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route for OpenAPI: these statuses have the shape of a problem."""
    return {status: {"model": Problem, "description": _title(status)} for status in statuses}


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


async def _raised(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return problem(error.status, error.detail, instance=request.url.path, errors=error.errors, headers=error.headers)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, detail = request.url.path, str(error.detail)
    if detail == _title(error.status_code):  # the framework's own words, which say nothing
        methods = {name.lower(): value for name, value in (error.headers or {}).items()}.get("allow", "another method")
        detail = {
            404: f"nothing is at {path}; the API is listed at /api/docs",
            405: f"{request.method} is not possible at {path}; use {methods}",
        }.get(error.status_code, detail)
    return problem(error.status_code, detail, instance=path, headers=error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [(".".join(str(step) for step in one["loc"]), str(one["msg"])) for one in error.errors()]
    detail = "; ".join(f"{where}: {what}" for where, what in errors)
    return problem(422, detail, instance=request.url.path, errors=errors)


async def _ours(request: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if status == 500:
        _log.error("request failed", exc_info=error)
        return await _bug(request, error)
    _log.warning("request failed", extra={"path": request.url.path, "error": str(error)})
    headers = {"Retry-After": "10"} if status == 503 else None
    return problem(status, str(error), instance=request.url.path, headers=headers)


async def _bug(request: Request, error: Exception) -> Response:
    """The cause goes to the log only (the server writes the traceback there): it may name files and secrets."""
    _log.error("request failed", extra={"path": request.url.path, "kind": type(error).__name__})
    detail = "something is wrong inside goodwatch; the cause is in its log"
    return problem(500, detail, instance=request.url.path)

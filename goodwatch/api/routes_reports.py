"""Weekly reports over HTTP: which there are, and one as HTML, Markdown or JSON."""

import asyncio
from typing import Final, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from goodwatch.api.problem import ProblemError, documented
from goodwatch.app.reporting import Reporting
from planner.report.html import POLICY
from planner.report.render import rendered
from planner.report.weeks import week_named

_MEDIA: Final = {
    "html": "text/html; charset=utf-8", "md": "text/markdown; charset=utf-8", "json": "application/json",
}  # fmt: skip
HEADERS: Final = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'self'", "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
}  # fmt: skip


class ReportShape(BaseModel):
    """A report that is kept."""

    week: str = Field(description="ISO week: 2026-W48.")
    language: str = Field(description="en or zh.")
    zone: str = Field(description="Time zone of the week.")
    made_at_s: float = Field(description="When it was made, Unix seconds.")
    sha256: dict[str, str] = Field(description="Hash of each file.")
    sent: dict[str, float] = Field(description="Sinks that were told, and when.")


class ReportsShape(BaseModel):
    """Reports, newest week first."""

    reports: list[ReportShape] = Field(description="All that are kept.")


class FilesShape(BaseModel):
    """A report as files."""

    files: dict[str, str] = Field(description="File name → text: Markdown, HTML and JSON.")


def report_routes(reporting: Reporting) -> APIRouter:
    """Routes of reports: those that are kept, and one made now, which is not kept."""
    archive = reporting.archive
    router = APIRouter(prefix="/api/v1", tags=["reports"])

    @router.get("/reports", summary="Weekly reports that are kept", responses=documented(503))
    async def reports() -> ReportsShape:
        """Newest week first."""
        found = await asyncio.to_thread(archive.all)
        return ReportsShape(
            reports=[
                ReportShape(
                    week=one.week, language=one.language, zone=one.zone, made_at_s=one.made_s,
                    sha256=dict(one.files), sent=dict(one.sent),
                )
                for one in found
            ]
        )  # fmt: skip

    @router.get("/reports/{week}", summary="One weekly report", responses=documented(404, 503), response_class=Response)
    async def report(week: str, format: Literal["html", "md", "json"] = "json") -> Response:
        """As it was made; ``format`` is html, md or json."""
        text = await asyncio.to_thread(archive.text, week, format)
        return Response(text, media_type=_MEDIA[format], headers=HEADERS)

    @router.get("/reports/{week}/files", summary="A report made now", responses=documented(400, 503))
    async def files(week: str, language: Literal["en", "zh"] = "en", redacted: bool = False) -> FilesShape:
        """Any week as it looks now; nothing is kept. ``redacted`` is a copy that may be given away."""
        try:
            asked = week_named(week, reporting.zone)
        except ValueError as error:
            raise ProblemError(400, str(error), errors=[("week", str(error))]) from error
        facts = await reporting.facts(asked)
        return FilesShape(files=await asyncio.to_thread(rendered, facts, language, hidden=redacted))

    return router

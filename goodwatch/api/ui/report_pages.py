"""The archive of weekly reports: a list, and each report as it was made."""

import asyncio

from fastapi import APIRouter, Request, Response

from goodwatch.api.routes_reports import HEADERS
from goodwatch.api.ui.assets import Assets
from goodwatch.api.ui.render import Renderer
from goodwatch.app.reporting import Archive
from goodwatch.app.view import Views
from goodwatch.core.errors import NoDataError, StoreError


def report_pages(archive: Archive, views: Views, *, requests: bool = True) -> APIRouter:
    """Routes ``/reports`` and ``/reports/WEEK``."""
    router = APIRouter(include_in_schema=False)
    renderer = Renderer(views, Assets(), requests=requests)

    @router.get("/reports", include_in_schema=False)
    async def reports(request: Request) -> Response:
        """The list."""
        try:
            values = {"reports": await asyncio.to_thread(archive.all), "problem": ""}
        except StoreError as error:
            values = {"reports": [], "problem": str(error)}
        return renderer.page(request, "reports", values, live=False)

    @router.get("/reports/{week}", include_in_schema=False)
    async def report(request: Request, week: str) -> Response:
        """One report, a page of its own that prints well."""
        try:
            text = await asyncio.to_thread(archive.text, week, "html")
        except (NoDataError, StoreError) as error:
            values = {"title": "This report cannot be shown", "text": str(error)}
            status = 404 if isinstance(error, NoDataError) else 503
            return renderer.page(request, "problem", values, status=status, live=False)
        return Response(text, media_type="text/html; charset=utf-8", headers=HEADERS)

    return router

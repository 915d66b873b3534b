"""The archive of weekly reports over HTTP and as a page; a report of any week made now."""

from pathlib import Path

import httpx
from fastapi import FastAPI

from collector.stores.sqlite_records import SqliteRecords
from goodwatch.api.routes_reports import report_routes
from goodwatch.api.ui.report_pages import report_pages
from tests.api.test_app import OPEN, app_of, client_of, problem_of
from tests.app.test_reporting import MONDAY_S, Clock, Gathered, made
from tests.support.views import PlainViews


async def app_with_reports(folder: Path) -> FastAPI:
    reporting = made(folder, Clock(MONDAY_S), Gathered(), SqliteRecords(folder / "records.sqlite"))
    await reporting.look()
    app = app_of(PlainViews(), OPEN, report_routes(reporting))
    app.include_router(report_pages(reporting.archive, PlainViews()))
    return app


async def got(folder: Path, path: str) -> httpx.Response:
    async with client_of(await app_with_reports(folder)) as client:
        return await client.get(path)


async def test_kept_reports_are_listed_newest_first(tmp_path: Path) -> None:
    found = (await got(tmp_path, "/api/v1/reports")).json()["reports"]
    assert [one["week"] for one in found] == ["2026-W48", "2026-W47", "2026-W46"]
    assert len(found[0]["sha256"]) == 3


async def test_one_is_there_in_every_form_and_may_load_nothing(tmp_path: Path) -> None:
    for form, start in (("html", "<!doctype html>"), ("md", "# Weekly"), ("json", "{")):
        response = await got(tmp_path, f"/api/v1/reports/2026-W48?format={form}")
        assert response.text.startswith(start)
        assert response.headers["content-security-policy"].startswith("default-src 'none'")


async def test_a_week_without_a_report_is_not_found(tmp_path: Path) -> None:
    assert problem_of(await got(tmp_path, "/api/v1/reports/2020-W01")).status == 404
    assert (await got(tmp_path, "/reports/2020-W01")).status_code == 404


async def test_any_week_can_be_made_now_and_a_wrong_one_is_told(tmp_path: Path) -> None:
    files = (await got(tmp_path, "/api/v1/reports/2026-W53/files?language=zh")).json()["files"]
    assert set(files) == {f"weekly-2026-W53.{suffix}" for suffix in ("md", "html", "json")}
    assert "每周降本报告" in files["weekly-2026-W53.md"]
    assert problem_of(await got(tmp_path, "/api/v1/reports/2026-W54/files")).status == 400


async def test_the_page_links_to_each_report(tmp_path: Path) -> None:
    page = await got(tmp_path, "/reports")
    assert page.status_code == 200
    assert 'href="/reports/2026-W48"' in page.text
    assert (await got(tmp_path, "/reports/2026-W48")).text.startswith("<!doctype html>")

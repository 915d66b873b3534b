"""The command ``goodwatch report``: asks the running service, writes files."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from goodwatch.core.errors import ConfigError, GoodwatchError, TransientError

_TIMEOUT_S = 300.0


@click.group("report")
def report() -> None:
    """Reports for people who decide."""


@report.command("weekly")
@click.option("--week", help="ISO week, as 2026-W48; the last whole week without it.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder for the files.")
@click.option("-c", "--config", type=click.Path(path_type=Path), help="Configuration of the running service.")
@click.option("--url", help="URL of the running service, instead of its configuration.")
@click.option("--language", type=click.Choice(["en", "zh"]), help="Language; that of the configuration without it.")
@click.option("--redacted", is_flag=True, help="A copy that may be given away: no names, dates or exact prices.")
def weekly(
    *, week: str | None, out: Path, config: Path | None, url: str | None, language: str | None, redacted: bool
) -> None:
    """The cost-down report of a week, made now: Markdown, HTML (print it for a PDF) and JSON.

    The service must run. A token is read from GOODWATCH_TOKEN where one is needed.

    \b
    Exit codes: 0 written, 2 the flags must be mended, 3 the service cannot be asked now.

    \b
    Examples:
      goodwatch report weekly --week 2026-W48 --out reports -c goodwatch.yaml
      goodwatch report weekly --out reports --url http://127.0.0.1:9555 --language zh --redacted
    """
    try:
        for path in asyncio.run(_weekly(week, out, config, url, language, redacted=redacted)):
            click.echo(str(path))
    except GoodwatchError as error:
        click.echo(f"goodwatch report weekly: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 3)


async def _weekly(
    week: str | None, out: Path, config: Path | None, url: str | None, language: str | None, *, redacted: bool
) -> list[Path]:
    import time

    from goodwatch.app.reporting import write_files
    from planner.report.weeks import week_at, week_named

    found, zone, usual = _service(config, url)
    try:
        name = week_named(week).id if week else week_at(time.time(), zone).before.id
    except ValueError as error:
        raise ConfigError(f"--week: {error}") from error
    files = await _asked(found, name, {"language": language or usual, "redacted": str(redacted).lower()})
    await asyncio.to_thread(write_files, out, files)
    return [out / one for one in files]


def _service(config: Path | None, url: str | None) -> tuple[str, str, str]:
    """URL of the service, time zone of its weeks and language of its reports. Raises ``ConfigError``."""
    if url:
        return url.rstrip("/"), "UTC", "en"
    if config is None:
        raise ConfigError("which service? name its configuration with -c goodwatch.yaml, or its URL with --url")
    from goodwatch.app._report_sections import Report
    from goodwatch.app.config import load
    from goodwatch.app.engines import known_engines

    settings = load(config, engines=known_engines(), environ=os.environ)
    section = getattr(settings, "report", Report())
    return f"http://{settings.listen}", section.zone, section.language


async def _asked(url: str, week: str, query: Mapping[str, str]) -> dict[str, str]:
    import aiohttp

    token = os.environ.get("GOODWATCH_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    limit = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit, headers=headers) as session,
            session.get(f"{url}/api/v1/reports/{week}/files", params=query) as answer,
        ):
            told = await answer.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        why = str(error) or "it did not answer in time"
        raise TransientError(f"{url}: cannot be asked: {why}; does the service run there?") from error
    if not isinstance(told, dict) or not isinstance(told.get("files"), dict):
        detail = told.get("detail", "") if isinstance(told, dict) else ""
        raise ConfigError(f"{url}: {answer.status}: {detail or 'is no goodwatch with reports'}")
    return {Path(str(name)).name: str(text) for name, text in told["files"].items()}

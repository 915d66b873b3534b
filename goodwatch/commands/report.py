"""The command ``goodwatch report``: asks the running service, writes files."""

import sys
from pathlib import Path

import click

from goodwatch.core.errors import ConfigError, GoodwatchError, TransientError


@click.group("report")
def report() -> None:
    """Reports for people who decide."""


@report.command("weekly")
@click.option("--week", help="ISO week, as 2026-W48; the last whole week without it.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder for the files.")
@click.option(
    "-c", "--config", type=click.Path(path_type=Path), help="goodwatch.yaml of the running service: its address."
)
@click.option("--url", help="Address of the running service, instead of -c.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with a token; else $GOODWATCH_TOKEN.")
@click.option("--language", type=click.Choice(["en", "zh"]), help="Language; that of the configuration without it.")
@click.option("--redacted", is_flag=True, help="A copy that may be given away: no names, dates or exact prices.")
def weekly(
    *, week: str | None, out: Path, config: Path | None, url: str | None, token_file: Path | None, language: str | None,
    redacted: bool,
) -> None:  # fmt: skip
    """The cost-down report of a week, made now: Markdown, HTML (print it for a PDF) and JSON.

    The service must run; it holds the data.

    \b
    Exit codes: 0 written, 1 the service does not answer, 2 the question must be mended.

    \b
    Examples:
      goodwatch report weekly --week 2026-W48 --out reports -c goodwatch.yaml
      goodwatch report weekly --out reports --url http://127.0.0.1:9555 --language zh --redacted
    """
    try:
        for path in _written(
            week, out, config=config, url=url, token_file=token_file, asked={"language": language, "redacted": redacted}
        ):
            click.echo(str(path))
    except GoodwatchError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(1 if isinstance(error, TransientError) else 2)


def _written(
    week: str | None, out: Path, *, config: Path | None, url: str | None, token_file: Path | None,
    asked: dict[str, str | bool | None],
) -> list[Path]:  # fmt: skip
    import time

    from goodwatch.app import service_client
    from goodwatch.app._report_sections import Report
    from goodwatch.app.reporting import write_files
    from planner.report.weeks import week_at, week_named

    settings = service_client.settings_of(config)
    section = Report() if settings is None else settings.report
    base, token = service_client.url_of(url, settings), service_client.token_of(token_file)
    try:
        name = week_named(week).id if week else week_at(time.time(), section.zone).before.id
    except ValueError as error:
        raise ConfigError(f"--week: {error}") from error
    query = {"language": str(asked["language"] or section.language), "redacted": str(asked["redacted"]).lower()}
    files = service_client.get(base, f"/api/v1/reports/{name}/files", query, token).get("files")
    if not isinstance(files, dict):
        raise ConfigError(f"{base}: answers, but not as goodwatch does; see the address")
    bare = {Path(str(file)).name: str(text) for file, text in files.items()}  # a name from outside is no path
    write_files(out, bare)
    return [out / file for file in bare]

"""The command groups ``goodwatch alerts`` and ``goodwatch slo``: parse, one call, print."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from goodwatch.core.errors import ConfigError, GoodwatchError

_CONFIG: Callable[[Any], Any] = click.option(
    "-c", "--config", type=click.Path(path_type=Path), help="goodwatch.yaml: its services' SLOs are taken as well."
)
_PINS: Callable[[Any], Any] = click.option(
    "--engine-version", "pins", multiple=True, metavar="ENGINE=VERSION",
    help="Only names of this version; else all that an engine ever had.",
)  # fmt: skip
_FILES: Callable[[Any], Any] = click.argument("files", nargs=-1, type=click.Path(path_type=Path))


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    except GoodwatchError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(2)


def _slos(config: Path | None, files: tuple[Path, ...]) -> tuple[Any, Any]:
    from goodwatch.app import ruling
    from goodwatch.app.config import load
    from goodwatch.app.engines import known_engines

    if config is None and not files:
        raise ConfigError("nothing to read; name SLO files, or a configuration with -c goodwatch.yaml")
    settings = load(config, engines=known_engines(), environ=os.environ) if config else None
    return settings, ((ruling.slos_of(settings) if settings else ()) + ruling.load_slos(files))


@click.group()
def alerts() -> None:
    """Alert rules as code: build them from SLOs, and lint any rules and boards."""


@alerts.command("build")
@_FILES
@_CONFIG
@_PINS
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder that gets the files.")
@click.option(
    "--form", "forms", multiple=True, type=click.Choice(["prometheus", "operator", "grafana"]),
    help="Which kinds of files; all of them without it.",
)  # fmt: skip
def build_rules(
    files: tuple[Path, ...], config: Path | None, pins: tuple[str, ...], out: Path, forms: tuple[Any, ...]
) -> None:
    """Write rules, their unit tests, PrometheusRule objects and Grafana alerts for the SLOs of FILES.

    \b
    Examples:
      goodwatch alerts build -c goodwatch.yaml --out rules/
      goodwatch alerts build slo/*.yaml --form prometheus --out rules/ && promtool check rules rules/*.rules.yaml
    """
    from goodwatch.app import ruling

    with _told():
        settings, slos = _slos(config, files)
        built = ruling.build_alerts(slos, ruling.options_of(settings, ruling.versions_of(pins)), forms or ruling.FORMS)
        for path in ruling.write_files(built.files, out):
            click.echo(path)
        for note in built.notes:
            click.echo(f"note: {note}", err=True)


@alerts.command("lint")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_PINS
@click.option("--scrape-interval", default="15s", show_default=True, help="How often Prometheus scrapes the engines.")
def lint_rules(files: tuple[Path, ...], pins: tuple[str, ...], scrape_interval: str) -> None:
    """Find the field's known mistakes in FILES: Prometheus rules and Grafana boards.

    \b
    Exit codes: 0 nothing found, 1 findings, 2 a file cannot be read.
    """
    from goodwatch.app import ruling
    from goodwatch.core.duration import duration_s

    with _told():
        try:
            interval_s = duration_s(scrape_interval)
        except ValueError as error:
            raise ConfigError(f"--scrape-interval {scrape_interval}: {error}") from error
        found = ruling.lint_files(files, versions=ruling.versions_of(pins), scrape_interval_s=interval_s)
    for one in found:
        click.echo(one)
    sys.exit(1 if found else 0)


@click.group()
def slo() -> None:
    """Service level objectives: check them, and exchange them with OpenSLO and Sloth."""


@slo.command("check")
@_FILES
@_CONFIG
@_PINS
def check_slo(files: tuple[Path, ...], config: Path | None, pins: tuple[str, ...]) -> None:
    """Say which SLOs of FILES cannot work, and why.

    \b
    Exit codes: 0 all can work, 1 some cannot, 2 a file must be mended.
    """
    from goodwatch.app import ruling

    with _told():
        settings, slos = _slos(config, files)
        found = ruling.check_slos(slos, ruling.options_of(settings, ruling.versions_of(pins)))
    for verdict in found:
        for text in verdict.refused:
            click.echo(f"{verdict.slo}: refused: {text}")
        for text in verdict.warnings:
            click.echo(f"{verdict.slo}: {text}", err=True)
    sys.exit(1 if any(verdict.refused for verdict in found) else 0)


@slo.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def import_slo(files: tuple[Path, ...]) -> None:
    """Read FILES of OpenSLO v1 or Sloth's prometheus/v1, print goodwatch's form."""
    from goodwatch.app import ruling

    with _told():
        click.echo(ruling.export_slos(ruling.load_slos(files)), nl=False)


@slo.command("export")
@_FILES
@_CONFIG
@click.option(
    "--form", type=click.Choice(["openslo", "goodwatch"]), default="openslo", show_default=True, help="What to print."
)
def export_slo(files: tuple[Path, ...], config: Path | None, form: Any) -> None:
    """Print the SLOs of FILES as OpenSLO v1."""
    from goodwatch.app import ruling

    with _told():
        click.echo(ruling.export_slos(_slos(config, files)[1], form), nl=False)

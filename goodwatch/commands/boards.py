"""The command group ``goodwatch dashboards``: parse, one call, print."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from goodwatch.core.errors import ConfigError, GoodwatchError, TransientError


def _token() -> str:
    """The token of GRAFANA_TOKEN, or of the file that GRAFANA_TOKEN_FILE names."""
    path = os.environ.get("GRAFANA_TOKEN_FILE")
    if not path:
        return os.environ.get("GRAFANA_TOKEN", "").strip()
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"GRAFANA_TOKEN_FILE={path}: cannot be read; {error}") from error


_WHAT: tuple[Any, ...] = (
    click.option("-c", "--config", type=click.Path(path_type=Path), help="goodwatch.yaml: its engines, targets of SLOs, and address."),
    click.option("--engine", "engines", multiple=True, help="Engine or accelerator exporter to build a board of; else those of the configuration."),
    click.option("--engine-version", "pins", multiple=True, metavar="ENGINE=VERSION", help="Only names of this version; else all that an engine had."),
)  # fmt: skip
_WHERE: tuple[Any, ...] = (
    click.option("--grafana", "url", required=True, metavar="URL", help="Address of Grafana, sub-path included."),
    click.option("--folder", default="goodwatch", show_default=True, help="Uid of the folder that holds the boards; it is made if needed."),
)  # fmt: skip


def _options(*groups: tuple[Any, ...]) -> Callable[[Any], Any]:
    def decorated(command: Any) -> Any:
        for option in reversed([one for group in groups for one in group]):
            command = option(command)
        return command

    return decorated


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except TransientError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(1)
    except GoodwatchError as error:
        click.echo(f"goodwatch: {error}" if not isinstance(error, ConfigError) else str(error), err=True)
        sys.exit(2)


def _built(config: Path | None, engines: tuple[str, ...], pins: tuple[str, ...]) -> Any:
    from goodwatch.app import boarding
    from goodwatch.app.config import load
    from goodwatch.app.engines import known_engines
    from goodwatch.app.ruling import versions_of

    settings = load(config, engines=known_engines(), environ=os.environ) if config else None
    return boarding.build_boards(boarding.options_of(settings, engines, versions_of(pins)))


@click.group()
def dashboards() -> None:
    """Grafana boards as code: build, lint, compare with a Grafana, and push."""


@dashboards.command("build")
@_options(_WHAT)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder that gets the files.")
@click.option(
    "--form",
    "forms",
    multiple=True,
    type=click.Choice(["files", "configmap", "operator"]),
    help="Which kinds of files; only files without it.",
)
@click.option(
    "--prometheus",
    "prometheus_url",
    default="http://prometheus:9090",
    show_default=True,
    metavar="URL",
    help="Address of Prometheus in the data source file.",
)
def build_boards(
    config: Path | None, engines: tuple[str, ...], pins: tuple[str, ...], *, out: Path, forms: tuple[str, ...],
    prometheus_url: str,
) -> None:  # fmt: skip
    """Write boards, Grafana's provisioning files, and on request Kubernetes objects.

    \b
    Examples:
      goodwatch dashboards build -c goodwatch.yaml --out grafana/
      goodwatch dashboards build --engine vllm --engine dcgm --form configmap --out k8s/
    """
    from goodwatch.app import boarding
    from goodwatch.app.ruling import write_files

    with _told():
        made = _built(config, engines, pins)
        files = boarding.files_of(made, forms or ("files",), prometheus_url=prometheus_url)
        for path in write_files(files, out):
            click.echo(path)


@dashboards.command("lint")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_options((_WHAT[2],))
def lint_boards(files: tuple[Path, ...], pins: tuple[str, ...]) -> None:
    """Find what is wrong with the boards of FILES: dashboard-linter's rules, ours, and the field's known mistakes.

    \b
    Exit codes: 0 nothing found, 1 findings, 2 a file cannot be read.
    """
    from goodwatch.app import boarding
    from goodwatch.app.ruling import versions_of

    with _told():
        found = boarding.lint_paths(files, versions_of(pins))
    for one in found:
        click.echo(one)
    sys.exit(1 if found else 0)


@dashboards.command("diff")
@_options(_WHAT, _WHERE)
def diff_boards(config: Path | None, engines: tuple[str, ...], pins: tuple[str, ...], url: str, folder: str) -> None:
    """Show what a push would change in a Grafana. The token comes from GRAFANA_TOKEN or GRAFANA_TOKEN_FILE.

    \b
    Exit codes: 0 no difference, 1 differences (or Grafana does not answer), 2 something must be mended.
    """
    import asyncio

    from goodwatch.app import boarding

    with _told():
        place = boarding.Place(url, _token(), folder)
        actions, text = asyncio.run(boarding.difference_to(place, _built(config, engines, pins)))
    changed = [action for action in actions if action.change != "same"]
    for action in changed:
        click.echo(action.text)
    click.echo(text, nl=False)
    sys.exit(1 if changed else 0)


@dashboards.command("push")
@_options(_WHAT, _WHERE)
@click.option(
    "--overwrite", is_flag=True, help="Also replace boards that people edited in Grafana; a copy is kept first."
)
@click.option(
    "--prune", is_flag=True, help="Also delete boards of the folder that are no longer ours; a copy is kept first."
)
@click.option(
    "--backup",
    type=click.Path(path_type=Path),
    default="grafana-backup",
    show_default=True,
    help="Folder for copies of what is replaced or deleted.",
)
def push_boards(
    config: Path | None, engines: tuple[str, ...], pins: tuple[str, ...], url: str, folder: str, *, overwrite: bool, prune: bool,
    backup: Path,
) -> None:  # fmt: skip
    """Write the boards that changed into a folder of a Grafana. The token comes from GRAFANA_TOKEN or GRAFANA_TOKEN_FILE.

    A board that somebody edited in Grafana is left alone unless --overwrite is given.

    \b
    Exit codes: 0 done, 1 boards were left alone because of edits (or Grafana does not answer), 2 something must be mended.
    """
    import asyncio

    from goodwatch.app import boarding

    with _told():
        place, rules = boarding.Place(url, _token(), folder), boarding.Rules(overwrite, prune, backup)
        left = asyncio.run(boarding.push_boards(place, _built(config, engines, pins), rules, click.echo))
    sys.exit(1 if left else 0)

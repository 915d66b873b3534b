"""The command ``goodwatch recommend``: parse, one call, print."""

import json
import sys
from pathlib import Path

import click

from goodwatch.core.errors import GoodwatchError, TransientError


@click.command()
@click.argument("service")
@click.option("--window", default="24h", show_default=True, help="Evidence: how far back.")
@click.option("--mode", type=click.Choice(["restore", "save"]), help="Attainment or money; else attainment decides.")
@click.option(
    "-c", "--config", type=click.Path(path_type=Path), help="goodwatch.yaml of the running service: its address."
)
@click.option("--url", help="Address of the running service, instead of -c.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with an admin token; else $GOODWATCH_TOKEN.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def recommend(
    service: str,
    *,
    window: str,
    mode: str | None,
    config: Path | None,
    url: str | None,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """What to change on SERVICE, from its own traffic: the diff, what it will do with intervals, and the risks.

    Asks the running service, which keeps what it recommends. Nothing is applied.

    \b
    Exit codes: 0 advice, or the reason to stay; 1 the service does not answer; 2 the question must be mended.

    \b
    Examples:
      goodwatch recommend chat -c goodwatch.yaml
      goodwatch recommend chat --url http://goodwatch:9220 --window 7d --mode save --json
    """
    from rich.console import Console

    from goodwatch.app import service_client
    from goodwatch.app.advice_page import show

    try:
        base, token = (
            service_client.url_of(url, service_client.settings_of(config)),
            service_client.token_of(token_file),
        )
        question = {"service": service, "window": window, "mode": mode}
        answer = service_client.post(base, "/api/v1/recommendations", question, token)
    except TransientError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(1)
    except GoodwatchError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        show(Console(highlight=False, width=None if sys.stdout.isatty() else 140), answer)

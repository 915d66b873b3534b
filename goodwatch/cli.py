"""The command line: parse, one call, print, exit code. 0 fine, 1 a finding, 2 the operator can mend it."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from goodwatch import __version__
from goodwatch.commands.bench import bench, experiments
from goodwatch.commands.boards import dashboards
from goodwatch.commands.plan import plan
from goodwatch.commands.recommend import recommend
from goodwatch.commands.report import report
from goodwatch.commands.rules import alerts, slo
from goodwatch.core.errors import ConfigError, GoodwatchError, TransientError

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@contextmanager
def _operator_errors() -> Iterator[None]:
    """Errors that someone can mend become a sentence and an exit code; anything else is a bug and keeps its trace."""
    try:
        yield
    except TransientError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(1)
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    except GoodwatchError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(2)


def _console() -> Any:
    """A console that is wide enough for a table where no terminal tells its width."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 140)


@click.group(context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="goodwatch")
def main() -> None:
    """Goodput, latency and cost of the LLM inference that you run yourself.

    \b
    Start here:
      goodwatch inspect http://HOST:8000/metrics   what a target can tell
      goodwatch demo                               the pages, on a replay of real engines
      goodwatch serve -c goodwatch.yaml            the service
      goodwatch plan vram --model M --gpu G        what fits on a GPU
    """


main.add_command(plan)
main.add_command(alerts)
main.add_command(slo)
main.add_command(dashboards)
main.add_command(bench)
main.add_command(experiments)
main.add_command(recommend)
main.add_command(report)


def _limit_options(command: Any) -> Any:
    for name, text in (("e2e", "end to end"), ("tpot", "time per output token"), ("ttft", "time to first token")):
        command = click.option(f"--{name}", metavar="S", help=f"Target for {text}: 0.5, 500ms, 2s.")(command)
    return command


def _limits(ttft: str | None, tpot: str | None, e2e: str | None) -> Any:
    from goodwatch.core.duration import duration_s
    from goodwatch.core.model import Limits

    def seconds(name: str, text: str | None) -> float | None:
        if text is None:
            return None
        try:
            return duration_s(float(text) if text.replace(".", "", 1).isdigit() else text)
        except ValueError as error:
            raise ConfigError(f"--{name} {text}: {error}") from error

    return Limits(seconds("ttft", ttft), seconds("tpot", tpot), seconds("e2e", e2e))


@main.command()
@click.argument("source")
@click.option("--engine", help="Engine, instead of detecting it (needed for TensorRT-LLM 1.1 and 1.2).")
@click.option("--engine-version", metavar="V", help="Engine version, instead of bracketing it by names.")
@_limit_options
@click.option("--all", "every", is_flag=True, help="Show every absent signal with its reason.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def inspect(
    source: str, engine: str | None, engine_version: str | None, *, ttft: str | None, tpot: str | None,
    e2e: str | None, every: bool, as_json: bool,
) -> None:  # fmt: skip
    """What a metrics page can tell: engine, version, every signal's status and source, and what to watch out for.

    SOURCE is a URL (its /metrics is taken), a file with a metrics body, "-" for standard input, or a folder of
    bodies or a recording.

    \b
    Exit codes: 0 read, 1 no known engine wrote the page or it cannot be reached, 2 no such source.

    \b
    Examples:
      goodwatch inspect http://gpu-1:8000 --ttft 500ms --tpot 50ms
      curl -s gpu-1:8000/metrics | goodwatch inspect - --json
    """
    from goodwatch.app.engines import known_engines
    from goodwatch.app.inspecting import How
    from goodwatch.app.inspecting import as_json as report_json
    from goodwatch.app.inspecting import inspect as reports
    from goodwatch.app.show import show_capability

    with _operator_errors():
        engines = known_engines()
        if engine is not None and engine not in engines:
            raise ConfigError(f"--engine {engine}: unknown; known are {', '.join(sorted(engines))}")
        how = How(engines, _limits(ttft, tpot, e2e), time.time(), engine, engine_version)
        found = list(reports(source, how))
        if as_json:
            plain = [report_json(f) for f in found]
            click.echo(json.dumps(plain[0] if len(plain) == 1 else plain, indent=2, ensure_ascii=False))
        else:
            console = _console()
            for one in found:
                show_capability(console, one, every=every)
        sys.exit(0 if all(f.capability.engine for f in found) else 1)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@_limit_options
@click.option("--engine", help="Engine, instead of detecting it.")
@click.option("--json", "as_json", is_flag=True, help="Print the phases as JSON; null is not measurable.")
def replay(
    folder: Path, *, ttft: str | None, tpot: str | None, e2e: str | None, engine: str | None, as_json: bool
) -> None:
    """Derive the phases of a recording with the pipeline of the service.

    FOLDER holds metrics.jsonl (one scrape a line: ts, elapsed_s, status, content_type, body) and, for phases,
    phases.jsonl (phase, start, end). Both may be compressed (.gz, .xz). Each phase is cut at the scrapes that count
    it; start and end say where.
    """
    from goodwatch.app.engines import known_engines
    from goodwatch.app.replay import report
    from goodwatch.app.show import show_replay

    with _operator_errors():
        found = report(folder, known_engines(), _limits(ttft, tpot, e2e), engine=engine)
        if as_json:
            click.echo(json.dumps(found, indent=2))
        else:
            show_replay(_console(), found)


@main.group()
def config() -> None:
    """Check and describe the configuration file."""


@config.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    from goodwatch.app.config import Settings

    click.echo(json.dumps(Settings.json_schema(), indent=2))


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--probe", "ask", is_flag=True, help="Ask each target what it is.")
def check(file: Path, *, ask: bool) -> None:
    """Validate FILE: every problem at once, as file:line: key: what is wrong; what would be right.

    Exit codes: 0 fine, 1 a target does not answer (with --probe), 2 the file must be mended.
    """
    import asyncio

    from goodwatch.app.config import load, warnings
    from goodwatch.app.engines import known_engines
    from goodwatch.app.prices import load_prices

    with _operator_errors():
        settings = load(file, engines=known_engines(), environ=os.environ)
        load_prices(settings.prices)
        for warning in warnings(settings):
            click.echo(f"warning: {warning}", err=True)
        count = len(settings.targets)
        click.echo(f"{file}: fine; {count} target{'s' * (count != 1)}, {len(settings.services)} services")
        if ask:
            from goodwatch.app.probing import probe_all

            lines = asyncio.run(probe_all(settings, known_engines()))
            for _, line in lines:
                click.echo(f"  {line}")
            sys.exit(0 if all(ok for ok, _ in lines) else 1)


@main.command()
@click.option("-c", "--config", "file", type=click.Path(path_type=Path), required=True, help="Configuration file.")
def serve(file: Path) -> None:
    """Run the service: scrape, keep, derive, show.

    \b
    SIGHUP reads the configuration again; a bad file is refused and the old one stays.
    SIGTERM and Ctrl-C stop gracefully.
    """
    import asyncio

    from goodwatch.api.service import serve as run

    with _operator_errors():
        asyncio.run(run(file))


@main.command()
@click.option("-c", "--config", "file", type=click.Path(path_type=Path), required=True, help="Configuration file.")
@click.option("--from", "begin", required=True, metavar="TIME", help="-7d, 2026-01-31 or 2026-01-31T08:00:00Z.")
@click.option("--to", "end", default="now", show_default=True, metavar="TIME", help="As --from.")
@click.option("--every", metavar="TIME", help="Take one scrape in this time, as 60s; quicker over a long range.")
def backfill(file: Path, begin: str, end: str, every: str | None) -> None:
    """Fill the store with the past, read from the Prometheus entries of the configuration.

    \b
    Raw samples are read and go through the same tables as a scrape. Running it again changes nothing.
    The service must not run on the same data_dir meanwhile.
    Exit codes: 0 read, 1 nothing there, a part missing or no answer, 2 something must be mended.

    \b
    Example:
      goodwatch backfill -c goodwatch.yaml --from -7d
    """
    from goodwatch.app.backfilling import run

    with _operator_errors():
        filled = run(file, begin, end, every=every, environ=os.environ, say=partial(click.echo, err=True))
        for one in filled:
            told = f"{one.scrapes} scrapes, {one.failed} failed, {one.minutes} minutes"
            click.echo(f"{one.target} ({one.service}): {told}")
            for note in one.notes:
                click.echo(f"  {note}")
        sys.exit(0 if filled and not any(one.notes for one in filled) else 1)


@main.command()
@click.option("--listen", default="127.0.0.1:9470", show_default=True, help="Address of the pages.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where to keep data; a temporary folder without it.")
def demo(listen: str, data_dir: Path | None) -> None:
    """Show goodwatch at work on a replay of real engines: no GPU, no engine, no configuration needed.

    Pages recorded from a real vLLM and a real SGLang under load are served over HTTP and scraped as in production,
    with history filled in. Ctrl-C stops it.
    """
    import asyncio

    from goodwatch.api.demo import run_demo

    with _operator_errors():
        asyncio.run(run_demo(listen, data_dir, say=click.echo))


@main.group()
def engine() -> None:
    """The engines, routers and gateways that goodwatch reads, and first tables of new ones."""


@engine.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def list_engines(*, as_json: bool) -> None:
    """Every engine that is known: name, role, versions, number of signals, how it is recognised."""
    from goodwatch.app.drafting import engine_lines, engine_rows
    from goodwatch.app.engines import known_engines

    known = known_engines()
    if as_json:
        click.echo(json.dumps(engine_rows(known), indent=2))
    else:
        click.echo("\n".join(engine_lines(known)))


@engine.command("draft")
@click.argument("source")
@click.option("--name", help="Name of the engine and of its module; else from the prefix of its series.")
def draft_engine(source: str, *, name: str | None) -> None:
    """Write a first engine module from a metrics page to standard output. Nothing is asked of any network but SOURCE.

    SOURCE is a URL (its /metrics is taken), a file with a metrics body, or "-" for standard input. Every proposal is a
    guess by names, types, units and bounds, and is marked as one; what fits nothing is listed in comments.

    \b
    Exit codes: 0 written, 1 the URL does not answer with a page, 2 no such source, or nothing on it.

    \b
    Example:
      goodwatch engine draft http://gpu-1:9000 --name myengine > collector/engines/myengine.py
    """
    from goodwatch.app.drafting import drafted

    with _operator_errors():
        click.echo(drafted(source, name), nl=False)


@main.command()
def version() -> None:
    """Print the version of goodwatch and of Python, and the engines and accelerator exporters it knows."""
    from goodwatch.app.engines import known_accelerators, known_engines, table_lines

    click.echo(f"goodwatch {__version__} (Python {sys.version.split(maxsplit=1)[0]})")
    for heading, tables in (("engines", known_engines()), ("accelerator exporters", known_accelerators())):
        click.echo(f"{heading}:")
        click.echo("\n".join(table_lines(tables)))


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  goodwatch completion bash > ~/.local/share/bash-completion/completions/goodwatch
    zsh:   goodwatch completion zsh  > "${fpath[1]}/_goodwatch"
    fish:  goodwatch completion fish > ~/.config/fish/completions/goodwatch.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "goodwatch", "_GOODWATCH_COMPLETE").source())

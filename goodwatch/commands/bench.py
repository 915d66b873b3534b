"""The command groups ``goodwatch bench`` and ``goodwatch experiments``: parse, one call, print."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click

from goodwatch.core.errors import ConfigError, GoodwatchError, TransientError

_LEDGER: Any = (
    click.option(
        "-c", "--config", type=click.Path(path_type=Path), help="goodwatch.yaml: its data_dir holds the ledger."
    ),
    click.option("--data-dir", type=click.Path(path_type=Path), help="Folder of the ledger, instead of -c."),
)


def _ledger_options(command: Any) -> Any:
    for option in reversed(_LEDGER):
        command = option(command)
    return command


@contextmanager
def _told() -> Iterator[None]:
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
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 140)


def _json(value: object) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


@click.group()
def bench() -> None:
    """Load tests: run a sweep, read result files of other tools, compare two sides."""


@bench.command("run")
@click.option("--url", required=True, help="Base URL of an OpenAI-compatible server, without /v1.")
@click.option("--model", required=True, help="Name of the model as it is served.")
@click.option("--from", "lowest", type=float, default=1, show_default=True, help="Lowest level.")
@click.option("--to", "highest", type=float, default=64, show_default=True, help="Highest level.")
@click.option("--per-doubling", default=1, show_default=True, help="Levels for each doubling.")
@click.option(
    "--arrival", type=click.Choice(["closed", "poisson", "constant"]), default="closed", show_default=True,
    help="closed: a level is requests at once; the others: requests a second.",
)  # fmt: skip
@click.option("--requests", type=int, help="Requests of each repeat; else at least 100, and 8 for each at once.")
@click.option("--repeats", default=3, show_default=True, help="Repeats of each level; three are needed for a verdict.")
@click.option("--processes", default=2, show_default=True, help="Client processes.")
@click.option("--input-tokens", default=256, show_default=True, help="About so many tokens of input.")
@click.option("--output-tokens", default=128, show_default=True, help="Tokens of output.")
@click.option(
    "--driver", type=click.Choice(["goodwatch", "aiperf"]), default="goodwatch", show_default=True,
    help="Who sends the requests; aiperf is an extra: pip install 'goodwatch[bench]'.",
)  # fmt: skip
@click.option("--aiperf-option", "extra", multiple=True, help="Handed to aiperf as it is; may be repeated.")
@click.option("--key-variable", default="", help="Environment variable that holds the server's API key.")
@click.option("--timeout", "timeout_s", default=120.0, show_default=True, help="Longest a request may take, s.")
@click.option("--gpus", type=float, help="GPUs that the server holds, for GPU-hours.")
@click.option("--seed", default=1, show_default=True, help="Seed of prompts and arrivals.")
@click.option("--json", "as_json", is_flag=True, help="Print levels and knee as JSON.")
@_ledger_options
def bench_run(*, config: Path | None, data_dir: Path | None, as_json: bool, **asked: Any) -> None:
    """Sweep the load on a server, find the knee, check that the client was not the limit, keep it in the ledger.

    \b
    Without -c or --data-dir it is only printed.
    Exit codes: 0 done, 1 the server or the tool failed, 2 the flags must be mended.

    \b
    Example:
      goodwatch bench run --url http://gpu-1:8000 --model my-model --to 128 -c goodwatch.yaml
    """
    import asyncio

    from goodwatch.app import benching, experimenting
    from planner.experiments.sweep import Plan, levels

    with _told():
        if min(asked["repeats"], asked["processes"], asked["input_tokens"], asked["output_tokens"]) < 1:
            raise ConfigError("--repeats, --processes, --input-tokens and --output-tokens: must be at least 1")
        if asked["timeout_s"] <= 0 or (asked["requests"] is not None and asked["requests"] < 1):
            raise ConfigError("--timeout and --requests: must be above 0")
        plan = Plan(
            levels(asked["lowest"], asked["highest"], asked["per_doubling"]), asked["arrival"], asked["repeats"],
            asked["processes"], asked["input_tokens"], asked["output_tokens"], asked["requests"], asked["seed"],
        )  # fmt: skip
        endpoint = benching.Endpoint(asked["url"], asked["model"], asked["key_variable"], asked["timeout_s"])
        driver: benching.LoadDriver = (
            benching.AIPerf(tuple(asked["extra"])) if asked["driver"] == "aiperf" else benching.OwnClient()
        )
        ledger = experimenting.open_ledger(config, data_dir) if config or data_dir else None
        measured = asyncio.run(benching.sweep(driver, endpoint, plan, _progress))
        at_s = time.time()
        made, knee = benching.experiment_of(
            experimenting.new_id("sweep", at_s),
            endpoint,
            plan,
            measured,
            driver=driver.name,
            at_s=at_s,
            gpus=asked["gpus"],
        )
        if ledger is not None:
            with closing(ledger):
                experimenting.keep(ledger, made)
    if as_json:
        _json({"id": made.id, "knee": knee.running, "knee_level": knee.level, "text": knee.text,
               "levels": benching.level_rows(measured), "notes": list(made.notes)})  # fmt: skip
    else:
        experimenting.show_experiment(_console(), made)


def _progress(text: str) -> None:
    click.echo(text, err=True)


@bench.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the runs as JSON.")
def bench_import(files: tuple[Path, ...], *, as_json: bool) -> None:
    """Read result FILES of AIPerf, GenAI-Perf, vLLM, SGLang, GuideLLM, LLMPerf, inference-perf, and tell their traps.

    \b
    Exit codes: 0 read, 2 a file cannot be read or no known tool wrote it.
    """
    from goodwatch.app import experimenting

    with _told():
        runs, _ = experimenting.imported(files)
        if as_json:
            _json([experimenting.benchmark_json(run) for run in runs])
        else:
            experimenting.show_benchmarks(_console(), runs)


@bench.command("compare")
@click.argument("a")
@click.argument("b")
@click.option("--metric", help="Which metric decides; else output tokens per second where both have it.")
@click.option("--level", type=float, help="Level at which two sweeps are compared.")
@click.option("--json", "as_json", is_flag=True, help="Print the experiment as JSON.")
@_ledger_options
def bench_compare(a: str, b: str, *, config: Path | None, data_dir: Path | None, as_json: bool, **asked: Any) -> None:
    """Compare side A (baseline) with side B: files, folders with one file a repeat, or ids of sweeps.

    \b
    With -c or --data-dir the comparison is kept in the ledger, and earlier A/A experiments set the noise floor.
    Exit codes: 0 judged (inconclusive included), 2 the sides cannot be compared.
    """
    from goodwatch.app import benching, experimenting

    with _told():
        if asked["metric"]:
            benching.metric_named(asked["metric"])
        ledger = experimenting.open_ledger(config, data_dir) if config or data_dir else None
        made = experimenting.compare(a, b, ledger=ledger, level=asked["level"], primary=asked["metric"])
        if ledger is not None:
            with closing(ledger):
                experimenting.keep(ledger, made)
    if as_json:
        click.echo(experimenting.exported(made, redact=False))
    else:
        experimenting.show_experiment(_console(), made)


@click.group()
def experiments() -> None:
    """The ledger of experiments: what was asked, measured and predicted."""


def _with_ledger(config: Path | None, data_dir: Path | None, work: Callable[[Any], Any]) -> Any:
    from goodwatch.app import experimenting

    with _told(), closing(experimenting.open_ledger(config, data_dir)) as ledger:
        return work(ledger)


@experiments.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_ledger_options
def list_experiments(*, config: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """Every experiment, newest first, and whether the planner's predictions held."""
    from goodwatch.app import experimenting

    found = _with_ledger(config, data_dir, experimenting.entries)
    if as_json:
        _json([
            {"id": one.id, "question": one.question, "design": one.design, "state": one.state,
             "outcome": one.verdict.outcome if one.verdict else None} for one in found
        ])  # fmt: skip
    else:
        experimenting.show_list(_console(), found)


@experiments.command("show")
@click.argument("id")
@_ledger_options
def show_experiment(id: str, *, config: Path | None, data_dir: Path | None) -> None:
    """The experiment ID: its verdict and why, each metric, each arm's runs."""
    from goodwatch.app import experimenting

    experimenting.show_experiment(
        _console(), _with_ledger(config, data_dir, lambda ledger: experimenting.entry(ledger, id))
    )


@experiments.command("export")
@click.argument("id")
@click.option("--redacted", is_flag=True, help="Only what may be shown to anybody.")
@click.option("--out", type=click.Path(path_type=Path), help="File to write; standard output without it.")
@_ledger_options
def export_experiment(id: str, *, redacted: bool, out: Path | None, config: Path | None, data_dir: Path | None) -> None:
    """Write the experiment ID as JSON: with all raw values, or as a copy to give away (--redacted)."""
    from goodwatch.app import experimenting

    found = _with_ledger(config, data_dir, lambda ledger: experimenting.entry(ledger, id))
    text = experimenting.exported(found, redact=redacted)
    if out is None:
        click.echo(text)
        return
    with _told():
        try:
            out.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{out}: cannot be written: {error.strerror or error}") from error
    click.echo(out)

"""The command ``goodwatch plan size``: parse, one call, print."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from goodwatch.core.errors import GoodwatchError

_LOAD: Any = (
    click.option("--model", help="A name of the catalogue, a folder, a config.json or a GGUF file."),
    click.option("--form", help="chat, chat-large, code-completion, code-generation, agent, rag, batch, voice: gives targets."),
    click.option("--requests-per-s", type=float, help="Load: requests per second at the busiest time."),
    click.option("--requests-per-day", type=float, help="Load: requests a day (see --peak)."),
    click.option("--tokens-per-day", type=float, help="Load: input and output tokens a day (see --peak)."),
    click.option("--concurrency", type=float, help="Load: requests under way at once."),
    click.option("--peak", type=float, help="The busiest hour over the mean of a day."),
    click.option("--input-tokens", type=float, help="Mean input of a request."),
    click.option("--output-tokens", type=float, help="Mean output of a request."),
    click.option("--length-spread", "spread", type=float, help="How lengths differ: one sigma of their logarithm; 0: all alike."),
    click.option("--shared-ratio", type=float, help="Share of the input that begins as an earlier request did, 0 to 1."),
    click.option("--max-model-len", type=int, help="Longest request to serve, tokens."),
    click.option("--ttft-s", type=float, help="Target: time to first token, seconds."),
    click.option("--tpot-s", type=float, help="Target: time per output token, seconds."),
    click.option("--e2e-s", type=float, help="Target: whole answer, seconds."),
    click.option("--objective", type=float, help="Share of the requests that must meet every target, as 0.95."),
)  # fmt: skip
_MAY: Any = (
    click.option("--gpu", "gpus", multiple=True, help="Card that may be used; may be given again. Else any with a price."),
    click.option("--gpus", "gpu_count", type=int, help="Cards in all, exactly."),
    click.option("--most-gpus", type=int, help="Cards in all, at most."),
    click.option("--vendor", "vendors", multiple=True, help="Maker whose cards may be used; may be given again."),
    click.option("--region", "regions", multiple=True, help="A card must be listed in this region; part of a name."),
    click.option("--engine", help="Engines that may be used, with commas between."),
    click.option("--engine-version", metavar="V", help="Version of the one engine."),
    click.option("--quantization", help="Schemes of the weights that may be used, with commas between."),
    click.option("--four-bit", is_flag=True, help="4-bit weights may be chosen: their answers were judged."),
    click.option("--kv-cache-dtype", help="Types of the KV cache that may be used, with commas between."),
    click.option("--tp", type=int, help="Tensor-parallel ranks."),
    click.option("--pp", type=int, help="Pipeline stages."),
    click.option("--no-disaggregation", is_flag=True, help="Prefill and decode stay together."),
    click.option("--acceptance-ratio", type=float, help="Share of drafts that are accepted, from a trial; allows drafts."),
    click.option("--budget", "budget_usd_per_month", type=float, help="USD a month, at most."),
    click.option("--price", help="on-demand, reserved, spot, or USD a GPU-hour."),
    click.option("--seed", type=int, help="Of the drawn requests."),
)  # fmt: skip


def _flags(command: Any) -> Any:
    for option in reversed((*_LOAD, *_MAY)):
        command = option(command)
    return command


@click.command("size")
@click.argument("sentence", nargs=-1)
@_flags
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Real requests (CSV, Parquet, JSON lines): arrived_s, input_tokens, output_tokens.",
)
@click.option("--price-list", type=click.Path(path_type=Path), help="Your price list (YAML), before the built-in one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def size(
    *, sentence: tuple[str, ...], trace: Path | None, price_list: Path | None, as_json: bool, **flags: Any
) -> None:
    """What to run for a load: what fits, what it does, what it costs, and what lost and why.

    SENTENCE says it in English or Chinese; flags say the same more exactly. Both together are one question.

    \b
    Exit codes: 0 something does, 1 nothing does (with the nearest that would), 2 the question must be mended.

    \b
    Examples:
      goodwatch plan size "Qwen2.5-72B on H100, chat, 20 req/s, 1.2k in / 300 out, TTFT 500 ms, $8k a month"
      goodwatch plan size --model Qwen/Qwen3-32B --requests-per-s 5 --input-tokens 800 --output-tokens 200 --form rag
    """
    from rich.console import Console

    from goodwatch.app.plan_size import SizeOptions
    from goodwatch.app.plan_size import size as answered
    from goodwatch.app.plan_size_page import show_size, size_json

    try:
        found = answered(SizeOptions(" ".join(sentence), flags, trace, price_list))
    except GoodwatchError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps(size_json(found), indent=2, ensure_ascii=False))
    else:
        show_size(Console(highlight=False, width=None if sys.stdout.isatty() else 140), found)
    sys.exit(0 if found.answer.best is not None else 1)

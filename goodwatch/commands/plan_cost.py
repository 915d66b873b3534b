"""The command ``goodwatch plan cost``: parse, one call, print."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from goodwatch.core.errors import ConfigError, GoodwatchError

_WHAT: Any = (
    click.option("--model", help="A name of the catalogue."),
    click.option("--gpu", help="Card, as in “H100 80GB”."),
    click.option("--gpus", type=int, help="Cards held in all; else as many as the load takes, or one instance."),
    click.option("--engine", default="vllm", show_default=True, help="vllm, sglang, tensorrt-llm; others with a wider interval."),
    click.option("--engine-version", metavar="V", help="Version of the engine."),
    click.option("--quantization", help="Scheme of the weights; else 16 bit, or what the model is published in."),
    click.option("--kv-cache-dtype", default="auto", show_default=True, help="Type of the KV cache."),
    click.option("--tp", type=int, help="Tensor-parallel ranks of an instance; else the fewest that hold the model."),
    click.option("--pp", default=1, show_default=True, help="Pipeline stages."),
    click.option("--ep", default=1, show_default=True, help="Ranks that share the experts."),
    click.option("--dp", default=1, show_default=True, help="Ranks that repeat attention (data parallel)."),
    click.option("--input-tokens", type=float, help="Mean input of a request."),
    click.option("--output-tokens", type=float, help="Mean output of a request."),
    click.option("--cached-ratio", default=0.0, show_default=True, help="Share of the input from the prefix cache, 0 to 1."),
    click.option("--good-ratio", type=float, help="Share of output tokens that belong to good requests, 0 to 1."),
    click.option("--requests-per-s", type=float, help="Load: mean requests per second."),
    click.option("--tokens-per-day", type=float, help="Load: input and output tokens a day."),
    click.option("--utilisation", type=float, help="Load: share of the full rate, 0 to 1."),
    click.option("--headroom", type=float, help="Share of the rate kept free; 0.3 where GPUs are counted for a load."),
    click.option("--concurrency", type=float, help="Requests at once at which an instance is full; else all it can do."),
    click.option("--measured-tokens-per-s", type=float, help="Output tokens/s of a full instance as you measured it."),
)  # fmt: skip
_PRICE: Any = (
    click.option("--price", default="on-demand", show_default=True, help="on-demand, reserved, spot, owned, or USD a GPU-hour."),
    click.option("--price-list", type=click.Path(path_type=Path), help="Your price list (YAML), before the built-in one."),
    click.option("--host-gpus", type=int, help="Cards of a host that is paid whole."),
    click.option("--spot-loss", type=float, help="Share of spot time lost to interruptions, 0 to 1."),
    click.option("--capex-usd", type=float, help="Owned: one GPU with its share of server and network."),
    click.option("--depreciation-years", type=float, help="Owned: years of use."),
    click.option("--power-watts", type=float, help="Owned: mean draw at the wall of one GPU with its share of the host."),
    click.option("--pue", type=float, help="Owned: power of the data centre over power of the machines."),
    click.option("--usd-per-kwh", type=float, help="Owned: price of power."),
    click.option("--hosting-usd-per-month", type=float, help="Owned: space and network of one GPU."),
)  # fmt: skip
_BESIDE: Any = (
    click.option("--compare", multiple=True, metavar="PROVIDER/MODEL", help="API to compare with; may be given again."),
    click.option("--what-if-hit-ratio", type=float, help="Effect of this share of input from the prefix cache."),
    click.option("--what-if-trim", type=float, help="Effect of leaving away this share of the input."),
    click.option("--route-share", type=float, help="Share of tokens that a small model takes."),
    click.option("--route-model", help="The small model, a name of the catalogue."),
    click.option("--route-gpu", help="Its card; else the same."),
    click.option("--route-quantization", help="Its weights; else 16 bit."),
    click.option("--route-utilisation", type=float, help="Its utilisation; else that of the big one."),
    click.option("--route-price", help="Price of its card, as --price; else on the same terms."),
    click.option("--route-usd-per-m", type=float, help="Its cost per million output tokens, instead of --route-model."),
    click.option("--route-escalated", default=0.0, show_default=True, help="Share of its answers that the big one does again."),
    click.option("--route-quality-loss", type=float, help="Upper end of the measured quality loss, 0.01 is one in a hundred."),
    click.option("--route-quality-margin", default=0.02, show_default=True, help="Quality that may be lost."),
)  # fmt: skip


def _flags(command: Any) -> Any:
    for option in reversed((*_WHAT, *_PRICE, *_BESIDE)):
        command = option(command)
    return command


@click.command("cost")
@_flags
@click.option("--cases", type=click.Path(path_type=Path), help="Evaluate a file of cases instead; prints JSON.")
@click.option("--reference", is_flag=True, help="Well-known figures and under which assumptions they are so.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cost(*, cases: Path | None, reference: bool, as_json: bool, **flags: Any) -> None:
    """What it costs: a month, a million tokens, idle time, an API beside it, and from which volume on.

    \b
    Exit codes: 0 answered, 2 the flags must be mended.

    \b
    Examples:
      goodwatch plan cost --model Qwen/Qwen3-32B --gpu H100 --quantization fp8 --input-tokens 1200 --output-tokens 300 \
        --requests-per-s 5 --price 2.49 --compare openai/gpt-5-mini
      goodwatch plan cost --model Qwen/Qwen3-32B --gpu H100 --gpus 2 --input-tokens 1200 --output-tokens 300 \
        --utilisation 0.4 --price reserved
      goodwatch plan cost --reference
    """
    from rich.console import Console

    from goodwatch.app import plan_cost as asked
    from goodwatch.app import plan_cost_page as page

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    try:
        if cases is not None:
            _print(asked.case_rows(cases))
        elif reference and as_json:
            _print(page.reference_json())
        elif reference:
            page.show_reference(console)
        else:
            _needed(flags)
            found = asked.cost(asked.CostOptions(**flags))
            if as_json:
                _print(page.cost_json(found))
            else:
                page.show_cost(console, found)
    except GoodwatchError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(2)


def _print(found: Any) -> None:
    click.echo(json.dumps(found, indent=2, ensure_ascii=False))


def _needed(flags: dict[str, Any]) -> None:
    missing = [name for name in ("model", "gpu", "input_tokens", "output_tokens") if flags[name] is None]
    if missing:
        told = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise ConfigError(f"{told}: needed, or --cases, or --reference")

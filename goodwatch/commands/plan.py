"""The command group ``goodwatch plan``: parse, one call, print."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from goodwatch.commands.plan_config import config
from goodwatch.commands.plan_cost import cost
from goodwatch.commands.plan_size import size
from goodwatch.core.errors import ConfigError, GoodwatchError

_FLAGS: Any = (
    click.option("--model", help="Folder, config.json, GGUF file, or a name of the catalogue."),
    click.option("--gpu", default="", help="Card, as in “H100 80GB”."),
    click.option("--gpu-memory-gib", type=float, help="Memory that the driver reports, instead of the catalogue's."),
    click.option("--engine", default="vllm", show_default=True, help="vllm, vllm-ascend, sglang, tensorrt-llm, llama.cpp."),
    click.option("--engine-version", metavar="V", help="Version of the engine; else its newest that is known."),
    click.option("--quantization", help="Scheme of the weights; else the checkpoint's own, else 16 bit."),
    click.option("--kv-cache-dtype", default="auto", show_default=True, help="Type of the KV cache."),
    click.option("--tp", default=1, show_default=True, help="Tensor-parallel ranks."),
    click.option("--pp", default=1, show_default=True, help="Pipeline stages."),
    click.option("--ep", default=1, show_default=True, help="Ranks that share the experts."),
    click.option("--dp", default=1, show_default=True, help="Data-parallel ranks."),
    click.option("--memory-fraction", "fraction", type=float, help="The engine's own share of memory, 0 to 1."),
    click.option("--max-model-len", type=int, help="Longest request, tokens."),
    click.option("--max-num-seqs", type=int, help="Most requests at once."),
    click.option("--max-num-batched-tokens", type=int, help="Most tokens of a step (the prefill chunk of SGLang)."),
    click.option("--block-size", type=int, help="Tokens of a KV block."),
    click.option("--slots", default=1, show_default=True, help="Slots of llama.cpp that share the context."),
    click.option("--enforce-eager", is_flag=True, help="Without CUDA graphs."),
    click.option("--lora-rank", type=int, help="Highest rank of LoRA adapters, if any are loaded."),
    click.option("--draft-tokens", type=int, help="Tokens that a draft proposes, with speculative decoding."),
    click.option("--other-gib", default=0.0, help="Memory that other processes hold on the card."),
    click.option("--text-only", is_flag=True, help="The image encoder is not used."),
)  # fmt: skip


def _flags(command: Any) -> Any:
    for option in reversed(_FLAGS):
        command = option(command)
    return command


@click.group()
def plan() -> None:
    """What fits, and what to run."""


@plan.command("vram")
@_flags
@click.option("--cases", type=click.Path(path_type=Path), help="Evaluate a file of cases instead; prints JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print the ledger as JSON.")
def plan_vram(*, cases: Path | None, as_json: bool, **flags: Any) -> None:
    """What a model takes of a card, whether the engine starts, and what it would print.

    \b
    Exit codes: 0 it starts, 1 it does not, 2 the flags must be mended.

    \b
    Examples:
      goodwatch plan vram --model Qwen/Qwen3-32B --gpu "H100 80GB" --max-model-len 32000
      goodwatch plan vram --model ./my-model --gpu L40S --engine sglang --tp 2 --json
    """
    from rich.console import Console

    from goodwatch.app.planning import VramOptions, case_rows, show_vram, vram, vram_json

    try:
        if cases is not None:
            click.echo(json.dumps(case_rows(cases), indent=2, ensure_ascii=False))
            return
        if not flags["model"] or not (flags["gpu"] or flags["gpu_memory_gib"]):
            raise ConfigError("--model and --gpu (or --gpu-memory-gib) are needed, or --cases")
        found, advice = vram(VramOptions(**flags))
    except GoodwatchError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps(vram_json(found, advice), indent=2, ensure_ascii=False))
    else:
        width = None if sys.stdout.isatty() else 140
        show_vram(Console(highlight=False, width=width), found, advice)
    sys.exit(0 if found.outcome == "ok" else 1)


@plan.command("perf")
@click.option("--model", help="A name of the catalogue.")
@click.option("--gpu", help="Card, as in “H100 80GB”.")
@click.option(
    "--engine", default="vllm", show_default=True, help="vllm, sglang, tensorrt-llm; others with a wider interval."
)
@click.option("--engine-version", metavar="V", help="Version of the engine.")
@click.option("--quantization", help="Scheme of the weights; else 16 bit, or what the model is published in.")
@click.option("--kv-cache-dtype", default="auto", show_default=True, help="Type of the KV cache.")
@click.option("--tp", default=1, show_default=True, help="Tensor-parallel ranks.")
@click.option("--pp", default=1, show_default=True, help="Pipeline stages.")
@click.option("--ep", default=1, show_default=True, help="Ranks that share the experts.")
@click.option("--dp", default=1, show_default=True, help="Ranks that repeat attention (data parallel).")
@click.option("--input-tokens", type=float, help="Mean input of a request.")
@click.option("--output-tokens", type=float, help="Mean output of a request.")
@click.option("--concurrency", type=float, help="Requests at once; without it, the most that the engine can do.")
@click.option("--cases", type=click.Path(path_type=Path), help="Evaluate a file of cases instead; prints JSON.")
@click.option("--baseline", is_flag=True, help="Beside it, the plain roofline with one efficiency.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan_perf(*, cases: Path | None, baseline: bool, as_json: bool, **flags: Any) -> None:
    """How fast it is: output tokens per second, TTFT and TPOT, each with an 80 % interval.

    \b
    Exit codes: 0 answered, 2 the flags must be mended.

    \b
    Examples:
      goodwatch plan perf --model Qwen/Qwen3-32B --gpu H100 --tp 2 --input-tokens 1200 --output-tokens 300 --concurrency 32
      goodwatch plan perf --cases cases.yaml --baseline
    """
    from rich.console import Console

    from goodwatch.app import plan_perf as asked

    try:
        if cases is not None:
            click.echo(json.dumps(asked.case_rows(cases, baseline=baseline), indent=2, ensure_ascii=False))
            return
        missing = [
            f"--{name.replace('_', '-')}"
            for name in ("model", "gpu", "input_tokens", "output_tokens")
            if not flags[name]
        ]
        if missing:
            raise ConfigError(f"{', '.join(missing)}: needed, or --cases")
        found = asked.perf({**flags, "baseline": baseline})
    except GoodwatchError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(2)
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        title = f"{flags['model']} on {flags['tp'] * flags['pp'] * flags['dp']} x {flags['gpu']}, {flags['engine']}"
        asked.show_perf(Console(highlight=False), found, title)


plan.add_command(config)
plan.add_command(cost)
plan.add_command(size)

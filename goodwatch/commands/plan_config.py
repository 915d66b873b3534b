"""The command ``goodwatch plan config``: parse, one call, print."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from goodwatch.core.errors import ConfigError, GoodwatchError

_FLAGS: Any = (
    click.option("--model", required=True, help="Repository, folder, or GGUF file; sized by its facts."),
    click.option("--gpu", help="Card, as in “H100 80GB”."),
    click.option("--engine", default="vllm", show_default=True, help="vllm, sglang, tensorrt-llm, llama.cpp, lmdeploy, vllm-ascend."),
    click.option("--engine-version", default="", metavar="V", help="Version of the engine; else the newest whose flags are known."),
    click.option("--quantization", "quantisation", help="Scheme of the weights; else the checkpoint's own."),
    click.option("--kv-cache-dtype", "kv_dtype", help="Type of the KV cache."),
    click.option("--tp", type=int, help="Tensor-parallel ranks; else the fewest that start."),
    click.option("--pp", type=int, help="Pipeline stages."),
    click.option("--dp", type=int, help="Data-parallel ranks (attention repeated)."),
    click.option("--ep", type=int, help="Ranks that share the experts."),
    click.option("--max-model-len", type=int, help="Longest request wanted, tokens; less where it does not fit."),
    click.option("--max-num-seqs", type=int, help="Most requests at once."),
    click.option("--max-num-batched-tokens", type=int, help="Most tokens of a step (the prefill chunk of SGLang)."),
    click.option("--max-queued-requests", type=int, help="Refuse above this many waiting requests."),
    click.option("--memory-fraction", type=float, help="The engine's own share of memory, 0 to 1."),
    click.option("--block-size", "block_tokens", type=int, help="Tokens of a KV block."),
    click.option("--prefix-caching/--no-prefix-caching", default=None, help="Keep equal beginnings of prompts."),
    click.option("--chunked-prefill/--no-chunked-prefill", default=None, help="Cut long prompts."),
    click.option("--eager/--no-eager", default=None, help="Without CUDA graphs."),
    click.option("--speculative-method", help="eagle, eagle3, mtp, ngram, draft_model."),
    click.option("--speculative-tokens", type=int, help="Tokens drafted a step."),
    click.option("--draft-model", help="Repository or folder of the draft."),
    click.option("--scheduling-policy", help="fcfs, priority, lpm, max_utilization."),
    click.option("--lora", "lora_adapters", multiple=True, metavar="NAME=PATH", help="Adapter; may be given again."),
    click.option("--max-loras", type=int, help="Most adapters in one batch."),
    click.option("--max-lora-rank", type=int, help="Highest rank of an adapter."),
    click.option("--replicas", type=int, help="Copies."),
    click.option("--prefill-replicas", type=int, help="Prefill and decode apart: replicas that read prompts."),
    click.option("--decode-replicas", type=int, help="… and replicas that write answers."),
    click.option("--extra", multiple=True, metavar="“--FLAG VALUE”", help="A flag in the engine's own spelling; may be given again."),
)  # fmt: skip


def _flags(command: Any) -> Any:
    for option in reversed(_FLAGS):
        command = option(command)
    return command


@click.command("config")
@_flags
@click.option(
    "--form",
    type=click.Choice(["command", "yaml", "compose", "kubernetes"]),
    default="command",
    show_default=True,
    help="What to write.",
)
@click.option("--image", default="", help="Container image; else the engine's own of that version.")
@click.option("--unchecked", is_flag=True, help="Write the flags without asking whether it fits.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file instead of printing.")
@click.option("--json", "as_json", is_flag=True, help="Print the settings and remarks as JSON.")
def config(*, form: str, image: str, unchecked: bool, out: Path | None, as_json: bool, **flags: Any) -> None:
    """What to run: a command, the engine's file, Compose or Kubernetes, with only flags that the version has.

    What is not told is filled from the VRAM ledger: the fewest cards that start, and the longest request that fits.

    \b
    Exit codes: 0 written, 2 the flags must be mended.

    \b
    Examples:
      goodwatch plan config --model Qwen/Qwen3-32B --gpu "H100 80GB" --engine-version 0.13.0
      goodwatch plan config --model Qwen/Qwen3-32B --gpu L40S --engine sglang --tp 4 --form kubernetes --out engine.yaml
    """
    from goodwatch.app import plan_config as asked

    try:
        planned = asked.plan(asked.configuration_of(flags), check=not unchecked)
        text = asked.text_of(planned, form, image)
        if as_json:
            told = {"settings": planned.configuration.told(), "remarks": planned.remarks, "form": form, "text": text}
            text = json.dumps(told, indent=2, ensure_ascii=False) + "\n"
        if out is None:
            click.echo(text, nl=False)
        else:
            _write(out, text)
    except GoodwatchError as error:
        click.echo(f"goodwatch: {error}", err=True)
        sys.exit(2)


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from error

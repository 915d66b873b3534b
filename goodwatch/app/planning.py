"""Planning for the command line: files and flags to requests, ledgers to tables and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from goodwatch.app._cases import read_cases
from goodwatch.core.errors import ConfigError
from planner.budget import EngineBudget
from planner.catalogue import accelerators, engine_budgets, known_model
from planner.checkpoint import gguf_header, index_params
from planner.estimate import Estimate, exactly
from planner.gpu import Gpu, chosen, find
from planner.hub import ModelHub
from planner.ledger import ledger
from planner.model_facts import ModelFacts, facts_from_config
from planner.quantisation import kv_bytes, scheme
from planner.tensors import Layout
from planner.version import parsed
from planner.vram import GIB, Ledger, Request, deployed
from planner.vram_advice import Change, changes
from planner.vram_cases import evaluate, row

#: bytes read of a GGUF file: header and vocabulary of the largest tokenizers are below
_HEADER_BYTES: Final = 64 * 2**20
#: largest configuration, index or case file that is read
_TEXT_BYTES: Final = 64 * 2**20
_BAR: Final = 28


@dataclass(frozen=True, slots=True)
class VramOptions:
    """Flags of ``goodwatch plan vram``; ``None`` is "not given"."""

    model: str
    gpu: str
    engine: str = "vllm"
    engine_version: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    fraction: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    slots: int = 1
    enforce_eager: bool = False
    lora_rank: int | None = None
    draft_tokens: int | None = None
    other_gib: float = 0.0
    text_only: bool = False
    gpu_memory_gib: float | None = None


def request_of(options: VramOptions, hub: ModelHub | None = None) -> Request:
    """The request that the flags describe.

    Raises
    ------
    ConfigError
        An unknown model, card, engine or scheme, or flags that contradict each other.
    """
    engine = engine_budgets().get(options.engine)
    if engine is None:
        raise ConfigError(f"--engine {options.engine}: unknown; known are {', '.join(sorted(engine_budgets()))}")
    model, file_bytes = model_of(options.model, hub)
    _contradictions(options, engine, model)
    told = options.quantization or model.quantisation or ("gguf-f16" if engine.rule == "fixed_context" else "auto")
    layout = deployed(engine, model, Layout(options.tp, options.pp, options.ep, options.dp))
    version = parsed(options.engine_version or "", engine.newest)
    if options.engine_version and not version.told:
        raise ConfigError(f"--engine-version {options.engine_version}: is not a version; write it as 0.11.0")
    return Request(
        model, _card(options), engine, version, scheme(told), kv_bytes(options.kv_cache_dtype), options.kv_cache_dtype,
        layout, options.fraction, options.max_model_len,
        options.max_num_seqs, options.max_num_batched_tokens, options.block_size, options.slots, options.enforce_eager,
        options.lora_rank, options.draft_tokens, options.other_gib, file_bytes, options.text_only,
    )  # fmt: skip


def _card(options: VramOptions) -> Gpu:
    if options.gpu_memory_gib is None:
        return chosen(options.gpu, accelerators())
    if not 0.5 <= options.gpu_memory_gib <= 10_000:
        raise ConfigError(f"--gpu-memory-gib {options.gpu_memory_gib}: is outside 0.5 to 10000 GiB")
    known = find(options.gpu, accelerators())
    size = exactly(options.gpu_memory_gib, "--gpu-memory-gib")
    if known is None:
        return Gpu(options.gpu, size, named=bool(options.gpu.strip()))
    return Gpu(known.name, size, known.nominal_gb, known.vendor, known.bandwidth_gb_s, known.capability, True,
               known.source, known.as_of, known.shared)  # fmt: skip


def _contradictions(options: VramOptions, engine: EngineBudget, model: ModelFacts) -> None:
    """Flags that the engine would refuse itself, each with the way out."""
    flags, length = engine.flags, options.max_model_len
    if engine.rule == "fixed_context" and options.fraction is not None:
        raise ConfigError(f"--memory-fraction: {engine.title} has no share of memory; its cache follows -c")
    if length is not None and length > model.max_positions:
        raise ConfigError(
            f"--max-model-len {length}: {model.name} is made for {model.max_positions:,} tokens; engines refuse more"
        )
    tokens, sequences = options.max_num_batched_tokens, options.max_num_seqs
    if engine.rule == "share_of_total" and tokens and sequences and tokens < sequences:
        raise ConfigError(
            f"{flags['batched_tokens']} {tokens} is below {flags['max_num_seqs']} {sequences}: a step holds a token of each"
        )
    if options.ep > 1 and options.ep > options.tp * options.dp:
        raise ConfigError(f"--ep {options.ep}: there are {options.tp * options.dp} ranks to share the experts")
    if options.lora_rank is not None and engine.rule == "fixed_context":
        raise ConfigError("--lora-rank: adapters of llama.cpp are not sized; add their file's size as --other-gib")


def model_of(name: str, hub: ModelHub | None = None) -> tuple[ModelFacts, tuple[float, float] | None]:
    """Facts of a model by folder, ``config.json``, GGUF file or name; bytes on device and host where a file tells.

    Raises
    ------
    ConfigError
        The file cannot be read, or no such model is known.
    """
    path = Path(name)
    if path.suffix == ".gguf":
        with _opened(path) as file:
            header = gguf_header(file.read(_HEADER_BYTES))
        facts = facts_from_config(path.name, header.config, f"header of {path}")
        return facts, (float(header.device_bytes), float(header.embedding_bytes))
    if path.is_dir() or path.suffix == ".json":
        folder = path if path.is_dir() else path.parent
        config = dict(_mapping(folder / "config.json" if path.is_dir() else path))
        index = folder / "model.safetensors.index.json"
        if index.exists() and "quantization_config" not in config:
            config["total_params_b"] = (index_params(_mapping(index)) or 0.0) / 1e9 or None
        return facts_from_config(path.name, config, f"{path}"), None
    try:
        return known_model(name), None
    except ConfigError:
        found = hub.config(name) if hub is not None else None
        if found is None:
            raise
        return facts_from_config(name, found, "hub"), None


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise ConfigError(f"--model {path}: {error.strerror or error}") from error


def _mapping(path: Path) -> Mapping[str, Any]:
    with _opened(path) as file:
        text = file.read(_TEXT_BYTES + 1)
    if len(text) > _TEXT_BYTES:
        raise ConfigError(f"{path}: larger than {_TEXT_BYTES // 2**20} MiB; not a configuration")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path}: holds no JSON object")
    return found


def vram(options: VramOptions, hub: ModelHub | None = None) -> tuple[Ledger, tuple[Change, ...]]:
    """The ledger of the flags, and what would make it start where it does not."""
    found = ledger(request_of(options, hub))
    return found, changes(found, accelerators())


def vram_json(found: Ledger, advice: Iterable[Change] = ()) -> dict[str, Any]:
    """A ledger as plain values: sizes in GiB with ``[low, high]``, null where not known."""
    request, resolved = found.request, found.settings
    weights = {kind: round(size / GIB, 4) for kind, size in found.weights.bytes_by_class.items() if size}
    return {
        "model": request.model.name,
        "model_source": request.model.source,
        "gpu": {"name": request.gpu.name, "total_gib": request.gpu.total_gib and request.gpu.total_gib.point,
                "source": request.gpu.source, "as_of": request.gpu.as_of},
        "engine": {"name": request.engine.name, "version": request.version.text, "rule": found.era.source},
        "settings": {
            "memory_fraction": round(resolved.fraction.point, 4), "max_model_len": resolved.max_model_len,
            "max_num_seqs": resolved.max_num_seqs, "max_num_batched_tokens": resolved.batched_tokens,
            "defaults": sorted(resolved.taken),
        },
        "weights_gib": weights,
        "lines": [
            {"name": one.name, "gib": round(one.size.point / GIB, 4),
             "interval": [round(one.size.low / GIB, 4), round(one.size.high / GIB, 4)], "basis": one.size.basis}
            for one in found.lines
        ],
        **row(found),
        "changes": [
            {"step": c.step, "what": c.what, "effect": c.effect, "starts": c.starts, "kv_tokens": c.kv_tokens,
             "max_concurrency": c.concurrency}
            for c in advice
        ],
    }  # fmt: skip


def case_rows(path: Path) -> list[dict[str, Any]]:
    """One row a case of a file in the schema of VRAM cases; figures that the file observed are not read.

    Raises
    ------
    ConfigError
        The file cannot be read or holds no cases.
    """
    return [evaluate(case, engine_budgets(), accelerators()) for case in read_cases(path)]


def show_vram(console: Console, found: Ledger, advice: Iterable[Change] = ()) -> None:
    """Print the ledger as a table with bars, the outcome, and what would mend it."""
    request = found.request
    card = request.gpu.total_gib
    size = f"{card.point:.2f} GiB" if card else "memory not known"
    layout = " ".join(
        f"{name}{n}" for name, n in (("TP", request.layout.tp), ("PP", request.layout.pp),
                                     ("EP", request.layout.ep), ("DP", request.layout.dp)) if n > 1
    )  # fmt: skip
    console.print()
    console.print(Text.assemble("  ", (request.model.name, "bold"), f"  on {request.gpu.name} ({size}) {layout}"))
    told = f"{request.engine.title} {request.version.text}, {request.scheme.name} weights, {request.kv_dtype} cache"
    console.print(Text(f"  {told}; per card, GiB", "dim"))
    console.print()
    console.print(_table(found))
    _verdict(console, found)
    _advice(console, [*advice])


def _table(found: Ledger) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("part", no_wrap=True)
    for title in ("GiB", "low", "high"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("basis", style="dim", overflow="fold")
    card = found.request.gpu.total_gib
    whole = card.point * GIB if card else sum(line.size.point for line in found.lines)
    for line in found.lines:
        _row(table, line.name, line.size, whole, "cyan")
        if line.name == "weights":
            for kind, size in found.weights.bytes_by_class.items():
                if size >= 0.002 * found.weights.total.point:
                    table.add_row(Text(f"  {kind}", "dim"), Text(f"{size / GIB:,.2f}", "dim"))
    if found.pool is not None:
        _row(table, "KV cache", found.pool, whole, "green" if found.outcome == "ok" else "red")
    return table


def _row(table: Table, name: str, size: Estimate, whole: float, style: str) -> None:
    length = max(0, min(_BAR, round(_BAR * size.point / whole))) if whole else 0
    bar = Text("█" * length or ("▏" if size.point > 0 else ""), style)
    table.add_row(
        name, f"{size.point / GIB:,.2f}", f"{size.low / GIB:,.2f}", f"{size.high / GIB:,.2f}", bar, size.basis
    )


def _verdict(console: Console, found: Ledger) -> None:
    words = {"ok": ("starts", "green"), "fail": ("is refused", "red"), "oom": ("runs out of memory", "red")}
    word, style = words[found.outcome]
    sure = "" if found.certain else " (the interval holds the other answer too)"
    console.print()
    console.print(Text.assemble("  ", (word, f"bold {style}"), f"{sure}: {found.reason}"))
    if found.tokens is not None and found.concurrency is not None and found.outcome != "oom":
        tokens, at_once = found.tokens, found.concurrency
        length = found.settings.max_model_len
        console.print(f"  would print {tokens.point:,.0f} tokens ({tokens.low:,.0f} to {tokens.high:,.0f}), "
                      f"{at_once.point:.2f}x of {length:,} tokens ({at_once.low:.2f} to {at_once.high:.2f})")  # fmt: skip
    for text in found.risks:
        console.print(Text(f"  ▲ {text}", "yellow"))
    if found.unknown:
        console.print(Text(f"  not told, in the intervals: {'; '.join(found.unknown)}", "dim"))


def _advice(console: Console, advice: list[Change]) -> None:
    if not advice:
        return
    console.print()
    console.print(Text("  what would make it start, gentlest first", "bold"))
    for one in advice:
        mark, style = ("●", "green") if one.starts else ("○", "dim")
        console.print(Text.assemble("  ", (mark, style), f" {one.step}. {one.what}: ", (one.effect, "dim")))

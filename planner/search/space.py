"""The space: which engines, schemes, cache types and layouts can run on which card, and what is left out and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import product
from types import MappingProxyType
from typing import Any, Final

import yaml

from goodwatch.core.errors import ConfigError
from planner.budget import EngineBudget
from planner.catalogue import accelerators, engine_budgets
from planner.choices.rules import quantisations
from planner.cost.prices import GpuPrice, price_of
from planner.flags import flags_of
from planner.gpu import Gpu, chosen
from planner.model_facts import ModelFacts
from planner.quantisation import Scheme, kv_bytes, scheme
from planner.search.question import Allowed, Question
from planner.speed.peaks import Peaks, peaks
from planner.tensors import Layout
from planner.version import Version, parsed
from planner.vram import Request, deployed

#: engines that run on a maker's cards; others are asked for by name (llama.cpp, lmdeploy)
ENGINES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"NVIDIA": ("vllm", "sglang", "tensorrt-llm"), "AMD": ("vllm", "sglang"), "Huawei": ("vllm-ascend",)}
)
#: engines whose prompts share steps with decoding when they are cut in chunks; SGLang runs them alone by default
MIXING: Final = frozenset({"vllm", "tensorrt-llm", "vllm-ascend", "lmdeploy", "llama.cpp"})
#: engines that can run prefill and decode on replicas of their own
APART: Final = frozenset({"vllm", "sglang", "tensorrt-llm"})
#: weights that lose quality often enough to be asked for
FOUR_BIT: Final = frozenset({"awq-int4", "awq-int4-g32", "gptq-int4", "bnb-int4", "nvfp4"})
#: cards of one host: tensor parallel does not go beyond
_HOST_GPUS: Final = 8


@dataclass(frozen=True, slots=True)
class Space:
    """Values that settings may take."""

    tp: tuple[int, ...] = (1, 2, 4, 8)
    pp: tuple[int, ...] = (1, 2)
    max_num_seqs: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    batched_tokens: tuple[int, ...] = (2048, 4096, 8192, 16384)
    length_steps: tuple[float, ...] = (1.0, 2.0, 8.0)
    draft_tokens: tuple[int, ...] = (0, 3)
    most_gpus: int = 16


@dataclass(frozen=True, slots=True)
class Instance:
    """One engine on its cards, before its limits are set."""

    gpu: Gpu
    peaks: Peaks
    price: GpuPrice
    engine: EngineBudget
    version: Version
    scheme: Scheme
    kv_dtype: str
    layout: Layout
    native: bool  # the checkpoint's own scheme
    draft_tokens: int = 0

    def request(self, model: ModelFacts, *, length: int, sequences: int, tokens: int) -> Request:
        """A start of it, for the ledger."""
        slots = sequences if self.engine.rule == "fixed_context" else 1
        return Request(
            model, self.gpu, self.engine, self.version, self.scheme, kv_bytes(self.kv_dtype), self.kv_dtype, self.layout,
            None, length * slots, sequences, tokens, context_slots=slots, draft_tokens=self.draft_tokens or None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lost:
    """A family of configurations that is not the answer, and why.

    ``kind``: card, engine, weights, cache, layout, workers, draft, engine flags; ``tried``: configurations of it.
    """

    kind: str
    name: str
    reason: str
    tried: int = 0


@dataclass(frozen=True, slots=True)
class Enumerated:
    """Instances, and what was left out before anything was computed."""

    instances: tuple[Instance, ...]
    lost: tuple[Lost, ...] = field(default=())


def enumerated(question: Question, space: Space) -> Enumerated:
    """Every instance that question and space allow.

    Raises
    ------
    ConfigError
        A name of a card, engine or scheme is not known, or a card that was asked for has no price or no bandwidth.
    """
    allowed = question.allowed
    lost: list[Lost] = []
    found: list[Instance] = []
    for gpu in _cards(allowed):
        told = bool(allowed.gpus)
        try:
            why = _refused(gpu, allowed)
            if why:
                lost.append(Lost("card", gpu.name, why))
                continue
            card, price = peaks(gpu.name), price_of(gpu.name, question.price_kind, question.overrides)
        except ConfigError as error:
            if told and len(allowed.gpus) == 1:
                raise
            lost.append(Lost("card", gpu.name, str(error)))
            continue
        engines = _engines(gpu, allowed)
        if not engines:
            lost.append(Lost("card", gpu.name, f"no engine that is allowed runs on cards of {gpu.vendor}"))
        for engine in engines:
            version = released(engine, question.engine_versions.get(engine.name))
            found.extend(_of_engine(question, space, (gpu, card, price, engine, version)))
    if not question.acceptance_ratio:
        lost.append(Lost("draft", "speculative decoding", "what a draft would get accepted is not known; try one on one "
                         "replica and tell --acceptance-ratio"))  # fmt: skip
    return Enumerated(tuple(found), tuple(lost))


def _of_engine(question: Question, space: Space, on: tuple[Gpu, Peaks, GpuPrice, EngineBudget, Version]) -> Iterator[Instance]:  # fmt: skip
    gpu, card, price, engine, version = on
    drafts = space.draft_tokens if question.acceptance_ratio else (0,)
    if engine.rule == "fixed_context":
        drafts = (0,)
    cuts = [*layouts(question.model, engine, question.allowed, space)]
    for (one, native), dtype, layout, draft in product(
        schemes(question.model, gpu, engine, question.allowed), cache_dtypes(question.model, gpu, engine, question.allowed), cuts, drafts
    ):  # fmt: skip
        yield Instance(gpu, card, price, engine, version, one, dtype, layout, native, draft)


def released(engine: EngineBudget, told: str | None) -> Version:
    """One release of an engine, without doubt; where none is told the newest whose flags are known, for they are printed.

    Raises ConfigError for what is no version.
    """
    try:
        newest = min(engine.newest, flags_of(engine.name).newest)
    except ConfigError:
        newest = engine.newest
    version = parsed(told or "", newest)
    if told and not version.told:
        raise ConfigError(f"--engine-version {told}: is not a version; write it as 0.11.0")
    return Version(version.release, version.release, version.release, True, version.generation)


def _cards(allowed: Allowed) -> list[Gpu]:
    known = accelerators()
    if allowed.gpus:
        return list(dict.fromkeys(chosen(name, known) for name in allowed.gpus))
    return [*known]


def _refused(gpu: Gpu, allowed: Allowed) -> str:
    """Why a card may not be used; "" where it may."""
    if allowed.vendors and gpu.vendor.casefold() not in {one.casefold() for one in allowed.vendors}:
        return f"made by {gpu.vendor}; allowed are {', '.join(allowed.vendors)}"
    if gpu.total_gib is None:
        return "its memory is not known"
    if allowed.regions and not offered(gpu.name, allowed.regions):
        return f"no offer in {', '.join(allowed.regions)} is listed"
    return ""


@cache
def _offers() -> tuple[Mapping[str, Any], ...]:
    text = (files("planner") / "cost" / "prices.yaml").read_text(encoding="utf-8")
    return tuple(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["prices"])  # noqa: S506  both are safe


def offered(gpu_name: str, regions: Iterable[str]) -> bool:
    """Whether the shipped price list has a row of this card in one of the regions (part of a name, any case)."""
    wanted = [one.casefold() for one in regions]
    return any(
        row["gpu"] == gpu_name and any(one in str(row.get("region") or "").casefold() for one in wanted)
        for row in _offers()
    )


def _engines(gpu: Gpu, allowed: Allowed) -> list[EngineBudget]:
    known = engine_budgets()
    for name in allowed.engines:
        if name not in known:
            raise ConfigError(f"--engine {name}: unknown; known are {', '.join(sorted(known))}")
    usual = ENGINES.get(gpu.vendor, ())
    if not allowed.engines:
        return [known[name] for name in usual]
    extra = ("llama.cpp", "lmdeploy") if gpu.vendor in ("NVIDIA", "AMD") else ()
    return [known[name] for name in allowed.engines if name in usual or name in extra]


def schemes(model: ModelFacts, gpu: Gpu, engine: EngineBudget, allowed: Allowed) -> Iterator[tuple[Scheme, bool]]:
    """Weights that can be run, each with whether it is the checkpoint's own form."""
    own = scheme(model.quantisation or "bf16")
    names: tuple[str, ...] = allowed.schemes
    if not names and engine.rule == "fixed_context":
        names = ("gguf-q8_0", "gguf-q4_k_m")
    elif not names and model.quantisation:
        names = (model.quantisation,)
    elif not names:
        names = ("bf16", *(row.scheme for goal in ("quality", "fit") for row in quantisations(gpu, engine.name, goal)))
    for one in dict.fromkeys(scheme(name) for name in names):
        yield one, one is own


def cache_dtypes(model: ModelFacts, gpu: Gpu, engine: EngineBudget, allowed: Allowed) -> tuple[str, ...]:
    """Types of the KV cache: 16 bit, and fp8 where the card has it (latents are kept in their own form)."""
    if allowed.kv_dtypes:
        return allowed.kv_dtypes
    if engine.rule == "fixed_context" or model.mla is not None:
        return ("auto",)
    has_fp8 = any(row.kv_dtype == "fp8" for row in quantisations(gpu, engine.name, "quality"))
    return ("auto", "fp8") if has_fp8 else ("auto",)


def layouts(model: ModelFacts, engine: EngineBudget, allowed: Allowed, space: Space) -> Iterator[Layout]:
    """Ways to cut the model over the cards of one replica."""
    most = min(space.most_gpus, allowed.gpu_count or space.most_gpus, allowed.most_gpus or space.most_gpus)
    seen: set[Layout] = set()
    for tp, pp in product(allowed.tp or space.tp, allowed.pp or space.pp):
        if tp > _HOST_GPUS or tp * pp > most or pp > len(model.layers) or (model.heads % tp and model.state is None):
            continue
        for ep, dp in _expert_cuts(model, engine, tp, pp, most):
            one = deployed(engine, model, Layout(tp, pp, ep, dp))
            if one not in seen:
                seen.add(one)
                yield one


def _expert_cuts(model: ModelFacts, engine: EngineBudget, tp: int, pp: int, most: int) -> Iterator[tuple[int, int]]:
    """Expert and data parallel sizes: experts cut by width or shared out; attention repeated over a host's cards."""
    yield 1, 1
    if model.moe is None or engine.rule == "fixed_context":
        return
    if tp > 1:
        yield tp, 1
    dp = _HOST_GPUS // tp
    if dp > 1 and tp * dp * pp <= most and pp == 1:
        yield tp * dp, dp

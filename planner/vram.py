"""The VRAM ledger: what a model, an engine and a card come to, what the engine would print, and whether it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from goodwatch.core.errors import ConfigError
from planner.budget import EngineBudget, Era, Tier
from planner.estimate import Estimate, exactly
from planner.gpu import Gpu
from planner.kv import Cache, Capacity
from planner.model_facts import ModelFacts
from planner.quantisation import Scheme
from planner.tensors import Layout
from planner.version import Version
from planner.weights import Weights

GIB: Final = 2.0**30
Outcome = Literal["ok", "fail", "oom"]

#: A100 cards end at 80 GB
_A100_MOST_GIB: Final = 82.0

_ALONE: Final = Layout()

_LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "max_model_len": (1, 100_000_000), "max_num_seqs": (1, 1_000_000), "batched_tokens": (1, 10_000_000),
    "block_tokens": (1, 65_536), "lora_rank": (1, 4096), "draft_tokens": (1, 1024), "context_slots": (1, 65_536),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """One start of an engine. ``None`` is "not told": the engine's default for its version is taken.

    ``fraction``: the engine's own share (0..1); ``other_gib``: held by other processes; ``file_bytes``: what the
    tensors of the model's own file take on the device and on the host, where it was read; ``soft``: inputs that were
    deduced and not read, which widen the interval.
    """

    model: ModelFacts
    gpu: Gpu
    engine: EngineBudget
    version: Version
    scheme: Scheme
    element_bytes: float = 2.0
    kv_dtype: str = "auto"
    layout: Layout = _ALONE
    fraction: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    batched_tokens: int | None = None
    block_tokens: int | None = None
    context_slots: int = 1
    eager: bool = False
    lora_rank: int | None = None
    draft_tokens: int | None = None
    other_gib: float = 0.0
    file_bytes: tuple[float, float] | None = None
    text_only: bool = False
    soft: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{name}: {value} is outside {low:,.0f} to {high:,.0f}")
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise ConfigError(f"{self.engine.flags['fraction']}: {self.fraction} is outside (0, 1]")
        if not 0 <= self.other_gib < float("inf"):
            raise ConfigError(f"other processes hold {self.other_gib} GiB: give a size of 0 or more")
        self._check_layout()

    def _check_layout(self) -> None:
        layout, flag = self.layout, self.engine.flags["tp"]
        for name, size in (("tp", layout.tp), ("pp", layout.pp), ("ep", layout.ep), ("dp", layout.dp)):
            if not 1 <= size <= 4096:
                raise ConfigError(f"{name}: {size} is outside 1 to 4096")
        if self.model.heads % layout.tp and self.model.state is None:
            raise ConfigError(
                f"{flag} {layout.tp}: does not divide the {self.model.heads} attention heads of {self.model.name}"
            )
        if layout.pp > len(self.model.layers):
            raise ConfigError(f"pipeline of {layout.pp}: {self.model.name} has {len(self.model.layers)} layers only")
        if layout.ep > 1 and self.model.moe is None:
            raise ConfigError(f"expert parallel {layout.ep}: {self.model.name} has no experts")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the engine runs with once its defaults are in; ``taken``: names that are defaults."""

    fraction: Estimate
    max_model_len: int
    max_num_seqs: int
    batched_tokens: int
    block_tokens: int
    graph_batch: int
    taken: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the ledger: name, bytes, and the basis in the estimate."""

    name: str
    size: Estimate


@dataclass(frozen=True, slots=True)
class Ledger:
    """The whole answer. Sizes are bytes on the fullest card.

    ``pool``: bytes of the KV cache; ``tokens``/``concurrency``: as the engine prints them; all three are None where the
    card's memory is not known. ``need_bytes``: one request of ``max_model_len`` tokens. ``certain``: whether both ends of
    the interval come to the same outcome.
    """

    request: Request
    settings: Settings
    era: Era
    weights: Weights
    lines: tuple[Line, ...]
    cache: Cache
    pool: Estimate | None
    tokens: Estimate | None
    concurrency: Estimate | None
    state_pool: Estimate | None
    need_bytes: float
    outcome: Outcome
    certain: bool
    reason: str
    unknown: tuple[str, ...] = ()
    risks: tuple[str, ...] = field(default=())


def deployed(engine: EngineBudget, model: ModelFacts, layout: Layout) -> Layout:
    """The layout as this engine cuts it.

    vLLM shares the experts over all ranks of a data-parallel group; llama.cpp gives whole layers to each card.
    """
    if engine.rule == "fixed_context":
        return Layout(1, layout.tp * layout.pp, 1, layout.dp)
    if engine.rule == "share_of_total" and model.moe is not None and layout.dp > 1 and layout.ep == 1:
        return replace(layout, ep=layout.tp * layout.dp)
    return layout


def settings(request: Request, era: Era, *, tier: Tier | None = None) -> Settings:
    """Flags with the defaults of the engine's version and of the card's class in the place of what was not told."""
    engine, total = request.engine, request.gpu.total_gib
    card = tier or tier_of(era, request.gpu)
    length = request.max_model_len or request.model.max_positions
    chunked = not era.prompt_at_once or (era.chunk_above is not None and length > era.chunk_above)
    tokens = card.batched_tokens if not era.prompt_at_once else era.chunk_tokens if chunked else max(length, 2048)
    sequences = request.max_num_seqs or card.sequences
    chosen = request.batched_tokens or tokens
    graph = card.graph_batch_wide if request.layout.tp >= 4 and card.graph_batch_wide else card.graph_batch
    share = fraction(request, era, total.point if total else None, chosen, graph)
    told = {"fraction": request.fraction, "max_model_len": request.max_model_len,
            "max_num_seqs": request.max_num_seqs, "batched_tokens": request.batched_tokens}  # fmt: skip
    return Settings(
        share, length, sequences, chosen, request.block_tokens or engine.block_tokens, graph,
        frozenset(name for name, value in told.items() if value is None),
    )  # fmt: skip


def tier_of(era: Era, gpu: Gpu) -> Tier:
    """The class of defaults that the engine puts the card in; the smallest where its size is not known."""
    size = gpu.total_gib.point if gpu.total_gib else 0.0
    skip_large = gpu.is_a100 or (not gpu.named and size < _A100_MOST_GIB)  # an unnamed card may be the one left out
    fits = [one for one in era.tiers if size >= one.from_gib and (one.a100 or not skip_large)]
    return fits[0] if fits else era.tiers[-1]


def fraction(request: Request, era: Era, total_gib: float | None, chunk: int, graph: int) -> Estimate:
    """The engine's share of memory (0..1): told, a default, or computed from the card as SGLang does."""
    flag = request.engine.flags["fraction"]
    if request.fraction is not None:
        if "fraction" in request.soft:
            low, high = max(0.01, request.fraction - 0.04), min(1.0, request.fraction + 0.05)
            return Estimate(request.fraction, low, high, f"{flag}, deduced")
        return exactly(request.fraction, flag)
    ranks = request.layout.tp * request.layout.pp
    if era.fraction is not None:
        if "fraction" in request.soft:
            return Estimate(era.fraction, era.fraction - 0.01, era.fraction + 0.03, f"default of {flag}; not told")
        return exactly(era.fraction, f"default of {flag}")
    sees = request.model.vision is not None and not request.text_only
    if era.reserve_mib is not None and total_gib:
        card_mib = total_gib * 1024 * 1.01  # nvidia-smi's total, which the engine asks, is above CUDA's by about 1 %
        share = round((card_mib - era.reserve_mib(card_mib, ranks, chunk, graph)) / card_mib, 3)
        if era.vision_factor and request.model.vision and sees:
            share *= vision_factor(*request.model.vision)
        return Estimate(share, share - 0.01, share + 0.01, f"computed as {flag} is")
    steps = [share for least, share in sorted(era.fraction_by_ranks.items()) if least <= ranks]
    share = steps[-1] if steps else 0.88
    return exactly(share * era.vision_share if sees else share, f"default of {flag}")


def vision_factor(layers: int, hidden: int) -> float:
    """SGLang's cut of its share for an image encoder, by its size against ViT-L/14 (server_args.py)."""
    ratio = layers * hidden**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (ratio - 1.0)))


def variants(request: Request) -> Iterator[tuple[Era, Tier | None]]:
    """Behaviours that the request may meet: first the one taken, then those that its doubt leaves open."""
    engine, version = request.engine, request.version
    point = engine.era_of(version)
    yield point, None
    eras = {point}
    if version.told:
        eras |= {one for one in engine.eras if version.low < one.since <= version.high} | {engine.era(version.low)}
    elif engine.rule == "share_of_total":
        since = (0, 8, 3) if version.generation == "V1" else point.since
        eras |= {one for one in engine.eras if one.since >= since}
    for era in sorted(eras - {point}, key=lambda one: one.since):
        yield era, None
    if not request.gpu.named and request.max_num_seqs is None and request.gpu.total_gib is not None:
        size = request.gpu.total_gib.point
        for tier in point.tiers:
            if size >= tier.from_gib and tier is not tier_of(point, request.gpu):
                yield point, tier


def with_length(request: Request, length: int) -> Request:
    """The same start with another longest request."""
    return replace(request, max_model_len=length)


def gib(size: Estimate | None) -> Estimate | None:
    """Bytes as GiB; None stays None."""
    return None if size is None else size.scaled(1 / GIB)


def capacity_range(point: Capacity, low: Capacity, high: Capacity) -> tuple[Estimate, Estimate]:
    """Tokens and concurrency with the interval of the pool's ends."""
    return (
        Estimate(point.tokens, min(low.tokens, point.tokens), max(high.tokens, point.tokens), "blocks in the pool"),
        Estimate(point.concurrency, min(low.concurrency, point.concurrency), max(high.concurrency, point.concurrency),
                 "requests of the longest length at once"),
    )  # fmt: skip

"""What an engine does with a card's memory, as a table over versions. The numbers of each engine are in its own file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from planner.version import Release, Version

Rule = Literal["share_of_total", "share_after_load", "share_of_free", "fixed_context"]
Span = tuple[float, float, float]  # low, point, high


@dataclass(frozen=True, slots=True)
class Tier:
    """Defaults of cards that report at least ``from_gib``; ``a100`` False leaves that card to the tier below."""

    from_gib: float
    sequences: int
    batched_tokens: int
    a100: bool = True
    graph_batch: int = 0
    graph_batch_wide: int = 0  # with four or more tensor-parallel ranks


@dataclass(frozen=True, slots=True, eq=False)  # compared and hashed by identity
class Era:
    """Behaviour from one version on."""

    since: Release
    fraction: float | None = None  # default share; None: by ``reserve_mib`` or ``fraction_by_ranks``
    fraction_by_ranks: Mapping[int, float] = field(default_factory=dict)  # from this many ranks on
    reserve_mib: Callable[[float, int, int, int], float] | None = None  # (card MiB, ranks, chunk, graph batch) → MiB
    vision_factor: bool = False  # the share shrinks with the size of an image encoder
    vision_share: float = 1.0  # what is left of the share for any model with an image encoder
    context_gib: Span = (
        0.0,
        0.0,
        0.0,
    )  # what the engine counts as outside PyTorch beside the rest: the driver's context
    tiers: tuple[Tier, ...] = (Tier(0, 256, 2048),)
    prompt_at_once: bool = False  # without chunking the profile runs max_model_len tokens
    chunk_above: int | None = None  # max_model_len above which chunking turns itself on
    chunk_tokens: int = 2048
    sampler_bytes: float = 0.0  # per sequence and vocabulary entry, at the profile's peak
    sampler_doubt: float = 0.06
    sampler_least: float = 0.0  # the same where a leaner sampler is taken if it is installed; 0: there is none
    activation_factor: Span = (0.7, 1.0, 1.35)  # on the forward term
    graphs_counted: bool = False  # the graphs' estimate is taken from the KV pool
    hybrid: bool = False  # window and state layers are pooled in groups of their own
    tokens_by_concurrency: bool = False  # prints concurrency x max_model_len instead of blocks x size
    rotary_copies: int = 1
    expert_rows: int = 1  # experts' own width is padded to a multiple of this in 4-bit kernels
    split_k: int = 0  # partial results that a 4-bit kernel keeps of each output
    state_slots: int = 2  # blocks of state per request and group
    state_ratio: int = 3  # state slots per running request
    source: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class EngineBudget:
    """One engine: its rule, its eras (ascending), and what it holds beside tensors.

    ``outside_gib``: memory outside PyTorch by number of ranks that talk to each other: low, point, high.
    """

    name: str
    title: str
    rule: Rule
    newest: Release
    eras: tuple[Era, ...]
    outside_gib: Mapping[int, Span] = field(default_factory=dict)
    load_gib: Span = (0.0, 0.0, 0.0)  # held by libraries between the readings before and after the load
    block_tokens: int = 16
    flags: Mapping[str, str] = field(default_factory=dict)  # word → the engine's flag
    source: str = ""

    def era(self, release: Release) -> Era:
        """The era that a version belongs to; the first one for anything older."""
        return next((one for one in reversed(self.eras) if one.since <= release), self.eras[0])

    def era_of(self, version: Version) -> Era:
        """The era of a version; a generation that is named decides where a release had both."""
        found = self.era(version.release)
        if version.generation == "V0" and not found.prompt_at_once:
            return next((one for one in reversed(self.eras) if one.prompt_at_once), found)
        if version.generation == "V1" and found.prompt_at_once:
            return next((one for one in self.eras if not one.prompt_at_once), found)
        return found

    def outside(self, ranks: int) -> Span:
        """Memory outside PyTorch for this many ranks, GiB."""
        held = [span for least, span in sorted(self.outside_gib.items()) if least <= ranks]
        return held[-1] if held else (0.0, 0.0, 0.0)

"""What a search answers with: options with their bands, the front, what lost and why, and what would nearly do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from planner.configure.values import Configuration
from planner.cost.interval import product
from planner.cost.unit import HOURS_PER_MONTH
from planner.estimate import Estimate, exactly
from planner.search.question import Question
from planner.search.space import Lost
from planner.search.trial import End, Figures, Setup

_ENDS: Final[tuple[End, ...]] = ("fast", "point", "slow")
_BASIS: Final = "simulated; interval: step times and memory at the ends of their 80 % bands"


@dataclass(frozen=True, slots=True)
class Option:
    """One simulated configuration.

    ``holds``: the objective is met at the slow end; ``headroom_ratio``: so much more load it still carries there, None
    where it was not searched.
    """

    setup: Setup
    figures: Mapping[End, Figures]
    holds: bool
    headroom_ratio: float | None = None

    def of(self, name: str) -> Estimate:
        """A figure of ``Figures`` with its band."""
        values = [float(getattr(self.figures[end], name)) for end in _ENDS]
        return Estimate(values[1], min(values), max(values), _BASIS)

    @property
    def usd_per_month(self) -> Estimate:
        """All cards for a month; the interval is that of the price."""
        return self.setup.usd_per_month

    def usd_per_million_output(self, question: Question) -> Estimate:
        """The month's bill over the output tokens that are asked for in it."""
        load = question.arrivals
        millions = load.rate_per_s * load.output_tokens * HOURS_PER_MONTH * 3600 / 1e6
        return product(
            self.usd_per_month, exactly(1 / millions), basis="the bill over the output tokens that are served"
        )


@dataclass(frozen=True, slots=True)
class Near:
    """What would do if one thing were given up; ``given_up`` in words, ``option`` None where even that does not help."""

    given_up: str
    option: Option | None


@dataclass(frozen=True, slots=True)
class Counted:
    """Configurations: in the space, that surely start, that meet the targets in closed form, that were simulated."""

    space: int
    start: int
    meet: int
    simulated: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question. ``best`` None: nothing does; then ``reason`` says why and ``near`` what nearly does."""

    question: Question
    best: Option | None
    front: tuple[Option, ...]
    lost: tuple[Lost, ...]
    near: tuple[Near, ...]
    counted: Counted
    reason: str = ""
    unknown: tuple[str, ...] = ()


def pareto(options: Sequence[Option]) -> tuple[Option, ...]:
    """Options that no other beats in cost, attainment at the slow end and headroom at once; cheapest first."""

    def worth(one: Option) -> tuple[float, float, float]:
        return (-one.usd_per_month.point, one.of("attained_ratio").low, one.headroom_ratio or 0.0)

    kept: list[Option] = []
    for one in options:
        own = worth(one)
        others = [worth(other) for other in options if other is not one]
        beaten = any(all(a >= b for a, b in zip(other, own, strict=True)) and other != own for other in others)
        if not beaten and all(worth(other) != own for other in kept):
            kept.append(one)
    return tuple(sorted(kept, key=lambda one: (one.usd_per_month.point, -(one.headroom_ratio or 0.0))))


def configuration(question: Question, setup: Setup, model: str) -> Configuration:
    """A setup in the neutral words that the generator of command lines takes."""
    one, layout, apart = setup.instance, setup.instance.layout, bool(setup.prefill_replicas)
    drafts = one.draft_tokens
    return Configuration(
        engine=one.engine.name, engine_version=one.version.text, model=model, gpu=one.gpu.name, tp=layout.tp,
        pp=layout.pp if layout.pp > 1 else None, dp=layout.dp if layout.dp > 1 else None,
        ep=layout.ep if layout.ep > 1 else None, quantisation=None if one.native else one.scheme.name,
        kv_dtype=None if one.kv_dtype == "auto" else one.kv_dtype, max_model_len=setup.max_model_len,
        max_num_seqs=setup.max_num_seqs, max_num_batched_tokens=setup.batched_tokens,
        prefix_caching=None if setup.prefix_caching else False, chunked_prefill=None if setup.chunked_prefill else False,
        speculative_method=("mtp" if question.model.draft_layers else "draft_model") if drafts else None,
        speculative_tokens=drafts or None, replicas=None if apart else setup.replicas,
        prefill_replicas=setup.prefill_replicas if apart else None, decode_replicas=setup.replicas if apart else None,
    )  # fmt: skip

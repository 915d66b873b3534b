"""What strategies answer with: a change with its reasons, what it would do, or why nothing can be said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, runtime_checkable

from planner.estimate import Estimate
from planner.evidence import Evidence
from planner.simulate.setup import Fleet
from planner.simulate.trace import Trace

#: from what is undone in a minute to what takes a quarter
Lever = Literal["stay", "admission", "flags", "precision", "replicas", "hardware", "topology"]
LEVERS: Final[tuple[Lever, ...]] = ("stay", "admission", "flags", "precision", "replicas", "hardware", "topology")


@dataclass(frozen=True, slots=True)
class World:
    """A service after a change, for the simulator: what runs, what arrives, and what an hour costs.

    ``sigma`` is the one-sigma error (log units) of how the change moves the cost of a step; ``turned_away_ratio``: share
    of the requests that the change itself refuses; ``served_elsewhere_ratio``: share that another service answers, and
    ``elsewhere_usd_per_hour`` what that costs; ``trace`` has neither. ``excess_only``: only what one sends beyond its
    share is refused. ``parts``: (weight of each request, fleet, trace) of
    times with a fleet of their own, run instead of ``fleet`` where given.
    """

    fleet: Fleet
    trace: Trace
    usd_per_hour: Estimate | None
    sigma: float = 0.0
    turned_away_ratio: float = 0.0
    elsewhere_usd_per_hour: float = 0.0
    served_elsewhere_ratio: float = 0.0
    excess_only: bool = False
    parts: tuple[tuple[float, Fleet, Trace], ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that a strategy has reason to try in the simulator.

    ``changes``: neutral setting → new value (``planner.configure`` spells it for the engine); ``reason`` with the
    numbers that speak for it; ``touches_ratio``: the part of the latency or of the bill that it can change at all
    (Amdahl); ``gate``: the quality check that must pass first, "" for none; ``canary_only``: its direction cannot be told
    by a model, so nothing is promised.
    """

    strategy: str
    lever: Lever
    title: str
    changes: Mapping[str, object]
    world: World
    reason: str
    assumes: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    restart: bool = True
    gate: str = ""
    rollback: str = "put the old value back and restart"
    touches_ratio: float = 1.0
    canary_only: bool = False
    vram_headroom_ratio: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Abstained:
    """Why a strategy says nothing; ``missing`` names the input that would let it speak, "" where nothing is to be gained."""

    strategy: str
    reason: str
    missing: str = ""


@runtime_checkable
class Strategy(Protocol):
    """One kind of advice, in a file of its own: ``planner/strategies/NAME.py`` with ``STRATEGY``."""

    @property
    def name(self) -> str:
        """Name; unique."""
        ...

    def propose(self, evidence: Evidence) -> list[Proposal] | Abstained:
        """Changes worth a simulation, or why there are none. Pure."""
        ...


@dataclass(frozen=True, slots=True)
class Effect:
    """What a world does, each with an 80 % interval; None where it cannot be told.

    ``attainment``: share of all requests that were good, those turned away not among them; cost per good token includes
    what idles.
    """

    attainment: Estimate
    ttft_p99_s: Estimate | None
    tpot_p99_s: Estimate | None
    output_tokens_per_s: Estimate
    usd_per_hour: Estimate | None
    usd_per_million_good_tokens: Estimate | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposal with its effect beside that of staying.

    ``gain``: change of attainment against staying, drawn together with it; ``saving_usd_per_week``: against staying, at the
    window's traffic. ``helps``: the pessimistic end of its band is better than staying.
    """

    proposal: Proposal
    effect: Effect
    gain: Estimate
    saving_usd_per_week: Estimate | None
    cost_ratio: Estimate | None
    helps: bool
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer: candidates in order, best first; what lost and why; or why there is none."""

    service: str
    start_s: float
    end_s: float
    mode: Literal["restore", "save", "none"]
    stay: Effect | None
    candidates: tuple[Candidate, ...] = ()
    lost: tuple[Candidate, ...] = ()
    abstained: tuple[Abstained, ...] = ()
    reason: str = ""
    missing: tuple[str, ...] = field(default=())

    @property
    def best(self) -> Candidate | None:
        """The first candidate; None: stay."""
        return self.candidates[0] if self.candidates else None

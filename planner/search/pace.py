"""What an instance's step and prompt cost at the mean lengths of a question: the step model of ``planner.speed`` as numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import exp, hypot
from typing import Any, Final

from planner.search.question import Question
from planner.search.space import APART, MIXING, Instance
from planner.simulate.setup import Scheduler
from planner.speed.deployment import Deployment, Named, built
from planner.speed.efficiency import Factors, factors, labels, shipped, unseen
from planner.speed.steps import prompt_s

_Z80: Final = 1.2816
#: steps from arrival to the first token that the simulator plays itself: half a step to wait, and the one that carries it
STEPS_PLAYED: Final = 1.5
#: handing a cache over between workers, s, and the one-sigma error of such predictions (docs/models.md, Speed)
HANDOVER_S: Final = 0.25
APART_ERROR: Final = 0.35
#: one-sigma error that a draft adds, and its cost as a share of reading the target's weights, where it is no layer of it
DRAFT_ERROR: Final = 0.10
_DRAFT_SHARE: Final = 0.02
_DOUBT_FREE: Final = 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of one replica. Log-unit bands are those of ``planner.speed`` for a closed loop, wider by what is unknown.

    ``launch_s``, ``dense_s``, ``expert_s`` × (1 − ``missed_ratio`` ** batch): a step; ``context_s``: reading one
    running request's cache; ``token_s``: arithmetic and exchange of one token; ``draft_s``: drafts of a step, which then
    gives ``tokens_per_step`` tokens a request. ``prompt_s``, ``long_prompt_s``: a mean prompt, and the objective's
    quantile of prompts, with the prefix cache, ``…_cold_s`` without. ``answer_s`` and ``lag_steps``: beside queue and
    steps. ``slow``, ``fast``: factors on all times at the ends of TPOT's band; ``late``, ``early``: what TTFT's own band
    adds to them. ``ranks``: data-parallel ranks, each with seats of its own.
    """

    launch_s: float
    dense_s: float
    expert_s: float
    missed_ratio: float
    context_s: float
    token_s: float
    draft_s: float
    draft_tokens: int
    tokens_per_step: float
    prompt_s: float
    prompt_cold_s: float
    long_prompt_s: float
    long_prompt_cold_s: float
    answer_s: float
    lag_steps: float
    slow: float
    fast: float
    late: float
    early: float
    ranks: int
    gpus: int
    usd_per_hour: float
    mixing: bool
    can_part: bool

    def row(self) -> dict[str, Any]:
        """As a row of columns."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


def deployment_of(question: Question, one: Instance) -> Deployment:
    """The instance as the step model knows it."""
    named = Named(
        question.model.name, one.scheme.name, one.gpu.name, one.layout.gpus, one.engine.name, one.version.text, one.layout,
        one.kv_dtype,
    )  # fmt: skip
    return built(question.model, one.scheme, one.peaks, named)


def pace(question: Question, one: Instance, found: Deployment, by: Factors) -> Pace:
    """The numbers of one instance under a question's lengths."""
    work, load = found.work, question.arrivals
    long = load.quantile(load.input_tokens, question.objective)
    shared = load.shared_ratio
    launch = by.fixed_s + by.layer_s * work.layers + by.exchange_wait_s * work.exchanges
    slow, fast, late, early = _bands(question, found, by, draft=bool(one.draft_tokens))
    drafts = Scheduler(draft_tokens=one.draft_tokens, acceptance_ratio=question.acceptance_ratio or 0.0)
    return Pace(
        launch, by.weights * work.dense_s, by.weights * work.expert_s, 1 - work.routed_ratio,
        by.cache * work.context_s(question.context_tokens),
        by.arithmetic * (work.flop_s + work.head_s) + by.exchange * work.exchange_s,
        draft_s(question, one, found, by), one.draft_tokens, drafts.tokens_per_step,
        prompt_s(found, by, load.input_tokens, load.input_tokens * shared), prompt_s(found, by, load.input_tokens),
        prompt_s(found, by, long, long * shared), prompt_s(found, by, long),
        by.answer_s, max(0.0, by.lag_steps - STEPS_PLAYED), slow, fast, late, early, one.layout.dp, one.layout.gpus,
        one.price.usd_per_gpu_hour.point * one.layout.gpus, one.engine.name in MIXING,
        one.engine.name in APART and not one.draft_tokens and question.allowed.disaggregation,
    )  # fmt: skip


def draft_s(question: Question, one: Instance, found: Deployment, by: Factors) -> float:
    """What drafts add to a step: the model's own extra layers, or a draft of a fiftieth of its size."""
    own = question.model.draft_layers / len(question.model.layers)
    return one.draft_tokens * (own or _DRAFT_SHARE) * by.weights * found.work.weights_s(1.0)


def _bands(question: Question, found: Deployment, by: Factors, *, draft: bool) -> tuple[float, float, float, float]:
    bands = shipped().bands["closed_loop"]
    sigma = hypot(by.sigma, found.doubt, question.doubt, DRAFT_ERROR if draft else _DOUBT_FREE)
    ends = []
    for figure in ("tpot_ms", "ttft_ms"):
        low, high = bands[figure].get(found.kind, bands[figure]["any"])
        ends.append((hypot(low, _Z80 * sigma), hypot(high, _Z80 * sigma)))
    (t_low, t_high), (f_low, f_high) = ends
    return exp(t_high), exp(-t_low), exp(max(0.0, f_high - t_high)), exp(-max(0.0, f_low - t_low))


def paced(
    question: Question, one: Instance, known: dict[tuple[str, ...], Factors] | None = None
) -> tuple[Pace, Deployment, Factors]:
    """Pace of an instance with what it was made from; ``known`` keeps the factors of groups between many of them."""
    found = deployment_of(question, one)
    known = {} if known is None else known
    groups = tuple(labels(found).values())
    by = known.get(groups) or factors(shipped(), found)
    known[groups] = by
    return pace(question, one, found, by), found, by


def doubts(question: Question, one: Instance) -> tuple[str, ...]:
    """What was not told or never measured of this instance and is in its bands."""
    found = deployment_of(question, one)
    return tuple(dict.fromkeys((*found.unknown, *unseen(shipped(), found), *one.price.unknown)))

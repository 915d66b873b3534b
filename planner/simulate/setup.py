"""What is simulated: the cost of a step, the scheduler's limits, and how replicas share the requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from goodwatch.core.errors import ConfigError
from planner.speed.deployment import Deployment
from planner.speed.efficiency import Factors
from planner.speed.steps import decode_s, prompt_s

Routing = Literal["round_robin", "least_loaded", "prefix_aware"]


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of one step: fixed, for each running request, each token of context, each token of prefill.

    ``request_s`` is what a request takes outside the steps before it is queued (parsing, tokenising), and
    ``answer_s`` from the end of its first step to the client.
    """

    fixed_s: float
    running_s: float = 0.0
    context_s: float = 0.0
    prompt_token_s: float = 0.0
    prompt_s: float = 0.0
    request_s: float = 0.0
    answer_s: float = 0.0

    def scaled(self, times: float) -> StepCost:
        """The same engine, ``times`` as slow."""
        return StepCost(
            self.fixed_s * times, self.running_s * times, self.context_s * times, self.prompt_token_s * times,
            self.prompt_s * times, self.request_s * times, self.answer_s * times,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Limits of one replica, as the engine's flags give them.

    ``kv_tokens``: capacity of the cache; ``mixed``: prompts share steps with decoding (chunked prefill); else prompts run
    alone, before decoding (SGLang's default). ``draft_tokens`` and ``acceptance_ratio``: speculative decoding;
    ``draft_s``: what a draft adds to a step. ``admission_steps``: steps between queueing and the first prefill.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    kv_tokens: int = 1_000_000
    block_tokens: int = 16
    mixed: bool = True
    prefix_cache: bool = True
    draft_tokens: int = 0
    acceptance_ratio: float = 0.0
    draft_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "kv_tokens", "block_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: {getattr(self, name)}: must be at least 1")
        if not 0 <= self.acceptance_ratio < 1:
            raise ConfigError(f"acceptance_ratio: {self.acceptance_ratio}: must be in [0, 1)")
        if self.draft_tokens < 0:
            raise ConfigError(f"draft_tokens: {self.draft_tokens}: must be at least 0")

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens that a step gives a request: 1 without a draft; else the expected accepted run (Leviathan 2023)."""
        if not self.draft_tokens:
            return 1.0
        a = self.acceptance_ratio
        return float((1 - a ** (self.draft_tokens + 1)) / (1 - a))


@dataclass(frozen=True, slots=True)
class Fleet:
    """Replicas of one kind behind a router; ``prefill_replicas`` > 0: prompts run on workers of their own."""

    cost: StepCost
    scheduler: Scheduler
    replicas: int = 1
    routing: Routing = "round_robin"
    prefill_replicas: int = 0
    transfer_s: float = 0.0

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ConfigError(f"replicas: {self.replicas}: must be at least 1")
        if self.prefill_replicas < 0 or self.transfer_s < 0:
            raise ConfigError("prefill_replicas and transfer_s must be 0 or more")


def cost_of(one: Deployment, by: Factors, *, running: float, input_tokens: float, context_tokens: float) -> StepCost:
    """The cost of a step near a working point: the step model of ``planner.speed``, linear in its load.

    Parameters
    ----------
    running, input_tokens, context_tokens
        The working point: requests at once, tokens of a prompt, mean tokens of context of a running request.
    """
    low, high = 1.0, max(2.0, running)
    slope = (decode_s(one, by, high, context_tokens) - decode_s(one, by, low, context_tokens)) / (high - low)
    each = (decode_s(one, by, high, 2 * context_tokens) - decode_s(one, by, high, context_tokens)) / (
        high * context_tokens
    )
    fixed = decode_s(one, by, low, context_tokens) - slope * low
    token = (prompt_s(one, by, input_tokens) - by.prompt_fixed_s) / input_tokens
    return StepCost(
        max(0.0, fixed), max(0.0, slope - each * context_tokens), each, token, by.prompt_fixed_s, 0.0,
        by.answer_s,
    )  # fmt: skip

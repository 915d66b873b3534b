"""What is asked of a search: a model, a load, targets, what is allowed, and what it may cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, exp, isfinite, log, sqrt
from statistics import NormalDist, fmean, pstdev
from typing import Final

from goodwatch.core.errors import ConfigError
from planner.cost.prices import KINDS, Overrides
from planner.model_facts import ModelFacts
from planner.simulate.run import Limits
from planner.simulate.trace import Trace

#: one sigma of the logarithm of lengths where only means are told: between chats that are all alike and ShareGPT's 1.0
SPREAD: Final = 0.6
#: share of the requests that must meet every target where none is told; a P99 must be asked for
OBJECTIVE: Final = 0.95
#: requests below which a trace says nothing of a tail
LEAST_REQUESTS: Final = 100
_MOST_TOKENS: Final = 10_000_000
_MOST_RATE: Final = 1_000_000.0
_MOST_SPREAD: Final = 2.0
#: longest request that is planned for, as a quantile of drawn lengths
_LONGEST: Final = 0.9999


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The load: mean requests per second, mean tokens, and how much lengths differ.

    ``spread``: one sigma of the logarithm of lengths, 0 where all are alike; ``shared_ratio``: share of the input that
    begins as an earlier request did; ``trace``: real requests, in which case the other fields describe them.
    """

    rate_per_s: float
    input_tokens: float
    output_tokens: float
    spread: float = SPREAD
    shared_ratio: float = 0.0
    trace: Trace | None = None

    def __post_init__(self) -> None:
        for flag, value, most in (
            ("--requests-per-s", self.rate_per_s, _MOST_RATE), ("--input-tokens", self.input_tokens, _MOST_TOKENS),
            ("--output-tokens", self.output_tokens, _MOST_TOKENS),
        ):  # fmt: skip
            if not isfinite(value) or not 0 < value <= most:
                raise ConfigError(f"{flag} {value:g}: is not above 0 and at most {most:,.0f}")
        if not 0 <= self.spread <= _MOST_SPREAD:
            raise ConfigError(f"--length-spread {self.spread:g}: is outside 0 to {_MOST_SPREAD:g}")
        if not 0 <= self.shared_ratio < 1:
            raise ConfigError(f"--shared-ratio {self.shared_ratio:g}: is not a share of 0 to below 1")

    def quantile(self, tokens: float, share: float) -> float:
        """The ``share`` quantile of log-normal lengths with mean ``tokens``."""
        if self.spread == 0:
            return tokens
        return tokens * exp(self.spread * NormalDist().inv_cdf(share) - self.spread**2 / 2)

    @property
    def longest_tokens(self) -> int:
        """Input and output of the longest request that is planned for."""
        if self.trace is not None:
            return max(a + b for a, b in zip(self.trace.input_tokens, self.trace.output_tokens, strict=True))
        return ceil(self.quantile(self.input_tokens, _LONGEST) + self.quantile(self.output_tokens, _LONGEST))


def arrivals_of(requests: Trace) -> Arrivals:
    """The load that a trace is.

    Raises
    ------
    ConfigError
        Too few requests for a tail, or all at one instant.
    """
    if len(requests) < LEAST_REQUESTS:
        raise ConfigError(f"--trace: {len(requests)} requests; a tail needs at least {LEAST_REQUESTS}")
    span = requests.arrived_s[-1] - requests.arrived_s[0]
    if span <= 0:
        raise ConfigError("--trace: all requests arrive at one instant; no rate can be told")
    inputs, outputs = fmean(requests.input_tokens), fmean(requests.output_tokens)
    ratio = pstdev(requests.input_tokens) / inputs
    spread = min(_MOST_SPREAD, _log_sigma(ratio))
    shared = sum(requests.cached_tokens) / sum(requests.input_tokens)
    return Arrivals(len(requests) / span, inputs, outputs, spread, min(0.99, shared), requests)


def _log_sigma(ratio: float) -> float:
    """Sigma of the logarithm of a log-normal whose standard deviation is ``ratio`` of its mean."""
    return sqrt(log(1 + ratio * ratio))


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be used; an empty tuple is no restriction.

    ``gpus``, ``vendors``, ``engines``: names; ``regions``: parts of region names in the price list, a card must be
    offered in one of them; ``schemes``, ``kv_dtypes``: of weights and cache; ``tp``, ``pp``: sizes; ``gpu_count``:
    cards in all, exactly; ``most_gpus``: cards in all, at most; ``four_bit``: whether 4-bit weights may be chosen.
    """

    gpus: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    kv_dtypes: tuple[str, ...] = ()
    tp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    gpu_count: int | None = None
    most_gpus: int | None = None
    four_bit: bool = False
    disaggregation: bool = True

    def __post_init__(self) -> None:
        for flag, value in (("--gpus", self.gpu_count), ("--most-gpus", self.most_gpus)):
            if value is not None and not 1 <= value <= 65_536:
                raise ConfigError(f"{flag} {value}: is not a count of 1 to 65,536")
        if self.gpu_count is not None and self.most_gpus is not None and self.gpu_count > self.most_gpus:
            raise ConfigError(f"--gpus {self.gpu_count} contradicts --most-gpus {self.most_gpus}")
        for flag, sizes in (("--tp", self.tp), ("--pp", self.pp)):
            for one in sizes:
                if not 1 <= one <= 64:
                    raise ConfigError(f"{flag} {one}: is outside 1 to 64")
                if self.gpu_count is not None and one > self.gpu_count:
                    raise ConfigError(f"{flag} {one}: there are {self.gpu_count} cards (--gpus)")


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that a search is asked.

    ``objective``: share of the requests that must meet every one of ``limits``; ``max_model_len``: longest request to
    serve, None is the longest of the load; ``engine_versions``: engine → release, else the newest that the tables know;
    ``acceptance_ratio``: of drafts, from a trial (without it no draft is proposed); ``doubt``: one-sigma error (log
    units) that an unknown model adds; ``assumed``: what was taken for granted, in words.
    """

    model: ModelFacts
    arrivals: Arrivals
    limits: Limits
    objective: float = OBJECTIVE
    max_model_len: int | None = None
    allowed: Allowed = field(default_factory=Allowed)
    budget_usd_per_month: float | None = None
    price_kind: str = "on-demand"
    overrides: Overrides | None = None
    engine_versions: Mapping[str, str] = field(default_factory=dict)
    acceptance_ratio: float | None = None
    doubt: float = 0.0
    seed: int = 0
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0.5 <= self.objective < 1:
            raise ConfigError(f"--objective {self.objective:g}: is not a share of 0.5 to below 1, as 0.99")
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            value = getattr(self.limits, name)
            if value is not None and not 0 < value <= 7 * 86_400:
                raise ConfigError(
                    f"{name.removesuffix('_s').upper()} target of {value:g} s: is not above 0 and at most a week"
                )
        if self.budget_usd_per_month is not None and not 0 < self.budget_usd_per_month < 1e12:
            raise ConfigError(f"--budget {self.budget_usd_per_month:g}: is no sum above 0, USD a month")
        if self.price_kind not in KINDS:
            raise ConfigError(f"--price {self.price_kind}: unknown; {', '.join(KINDS)}, or USD per GPU-hour as in 2.49")
        if self.acceptance_ratio is not None and not 0 < self.acceptance_ratio < 1:
            raise ConfigError(f"--acceptance-ratio {self.acceptance_ratio:g}: is not a share between 0 and 1")
        self._check_lengths()

    def _check_lengths(self) -> None:
        most, mean = self.model.max_positions, self.arrivals.input_tokens + self.arrivals.output_tokens
        if mean > most:
            raise ConfigError(
                f"--input-tokens {self.arrivals.input_tokens:g} and --output-tokens {self.arrivals.output_tokens:g}: "
                f"{self.model.name} is made for {most:,} tokens in all"
            )
        if self.max_model_len is not None and not mean <= self.max_model_len <= most:
            raise ConfigError(
                f"--max-model-len {self.max_model_len}: is outside {mean:,.0f} (a mean request) to {most:,} (the model)"
            )

    @property
    def needed_tokens(self) -> int:
        """Longest request that must be served, in steps of 256 tokens, within what the model is made for."""
        wanted = self.max_model_len or self.arrivals.longest_tokens
        return min(self.model.max_positions, -(-wanted // 256) * 256)

    @property
    def context_tokens(self) -> float:
        """Mean context of a running request: its input and half of its output."""
        return self.arrivals.input_tokens + self.arrivals.output_tokens / 2

    def relaxed(self, **changed: object) -> Question:
        """The same with fields of the question changed."""
        return replace(self, **changed)  # type: ignore[arg-type]

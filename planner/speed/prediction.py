"""One question (a deployment under a load) to figures with 80 % intervals, and the plain roofline beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, hypot
from typing import Final, Literal

from planner.estimate import Estimate
from planner.speed.deployment import Deployment
from planner.speed.efficiency import Factors, Fitted, factors, unseen
from planner.speed.steps import Lengths, Speed, closed_loop, decode_s, open_burst, prompt_s, saturated

LoadKind = Literal["closed_loop", "max_throughput", "open_burst", "closed_loop_pd_disagg"]
#: two-sided 80 % of a normal distribution
_Z80: Final = 1.2816
#: separate prefill workers, from the 30 rows that were measured: handing the cache over, and the share of all requests
#: whose prompts one waits for (the first wave comes at once)
_HANDOVER_S: Final = 0.25
_SPLIT_QUEUE: Final = 0.15
#: one efficiency for everything: the plain roofline that other tools use (share of peak bandwidth and peak arithmetic)
PLAIN: Final = Factors(
    fixed_s=0.0, layer_s=0.0, exchange_wait_s=0.0, weights=1 / 0.6, cache=1 / 0.6, arithmetic=1 / 0.6, exchange=1 / 0.6,
    prompt=1 / 0.6, pairs=1 / 0.6, prompt_exchange=1 / 0.6, prompt_fixed_s=0.0, answer_s=0.0, lag_steps=1.0, queue=0.0,
    most_running=1024.0, burst=1.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a deployment. ``concurrency``: requests at once in a closed loop; ``requests``: of a burst."""

    kind: LoadKind
    lengths: Lengths
    concurrency: float = 1.0
    requests: float = 1000.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """Figures of the whole deployment; ``unknown`` names what was not told or not measured and is in the intervals."""

    output_tokens_per_s: Estimate
    tpot_s: Estimate | None
    ttft_s: Estimate | None
    running: float
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """Prefill and decode on workers of their own: how many instances of each, and what each is."""

    prefill: Deployment
    prefill_count: int
    decode: Deployment
    decode_count: int


def speed(one: Deployment, by: Factors, load: Load) -> Speed:
    """The point figures of a load."""
    if load.kind == "closed_loop":
        return closed_loop(one, by, load.lengths, load.concurrency)
    if load.kind == "max_throughput":
        return saturated(one, by, load.lengths)
    return open_burst(one, by, load.lengths, load.requests)


def split_speed(split: Split, fitted: Fitted, lengths: Lengths, concurrency: float) -> Speed:
    """A closed loop over separate prefill and decode workers; the slower side sets the rate, the other waits."""
    first, second = factors(fitted, split.prefill), factors(fitted, split.decode)
    tokens, output = lengths.input_tokens, lengths.output_tokens
    prompt = prompt_s(split.prefill, first, tokens) / split.prefill_count
    least = first.answer_s + _HANDOVER_S + prompt * (split.prefill_count + _SPLIT_QUEUE * concurrency)
    low, high = 1e-9, 1 / prompt  # requests/s; the decode side's own limit is found by bisection
    for _ in range(50):
        rate = (low + high) / 2
        running = max(1.0, concurrency - rate * least)
        step = decode_s(split.decode, second, max(1.0, running / split.decode_count), tokens + output / 2)
        low, high = (rate, high) if running / (output * step) > rate else (low, rate)
    decoding = low * output
    running = max(1.0, min(concurrency, concurrency - low * least))
    for _ in range(20):  # requests that decode: Little's law with their own step
        step = decode_s(split.decode, second, max(1.0, running / split.decode_count), tokens + output / 2)
        running = max(1.0, (running + decoding * step) / 2)
    ttft = max(least, concurrency / low - output * step)
    return Speed(decoding, step, ttft, running)


def predicted(one: Deployment, load: Load, fitted: Fitted, *, split: Split | None = None) -> Prediction:
    """Figures with the intervals that held 80 % of measurements left out of the fit, wider by what is unknown."""
    by = factors(fitted, one)
    found = split_speed(split, fitted, load.lengths, load.concurrency) if split else speed(one, by, load)
    sigma = hypot(by.sigma, one.doubt)
    bands = fitted.bands.get(load.kind, fitted.bands["open_burst"])
    unknown = (*one.unknown, *unseen(fitted, one))
    rate = _banded(found.output_tokens_per_s, bands, "output_tok_s", one.kind, sigma)
    if load.kind == "max_throughput":
        return Prediction(rate, None, None, found.running, unknown)
    tpot = _banded(found.tpot_s, bands, "tpot_ms", one.kind, sigma)
    ttft = None if found.ttft_s is None else _banded(found.ttft_s, bands, "ttft_ms", one.kind, sigma)
    return Prediction(rate, tpot, ttft, found.running, unknown)


def _banded(
    point: float, bands: Mapping[str, Mapping[str, tuple[float, float]]], figure: str, kind: str, sigma: float
) -> Estimate:
    by_kind = bands[figure]
    low, high = by_kind.get(kind, by_kind["any"])
    return Estimate(point, point * exp(-hypot(low, _Z80 * sigma)), point * exp(hypot(high, _Z80 * sigma)))

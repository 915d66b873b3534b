"""Step times, and what they come to under the usual loads: a closed loop, and a burst that saturates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.speed.deployment import Deployment
from planner.speed.efficiency import Factors

#: rounds of the fixed point between running requests and latency: the third changes nothing by more than 1 %
_ROUNDS: Final = 2
#: default of vLLM's --max-num-seqs on large cards; SGLang's is above
_MOST_RUNNING: Final = 1024.0
#: share of a burst's requests that still run while its longest answers end
_TAIL_SHARE: Final = 0.15


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean tokens of a request, the share of its input that is cached, and the longest output over the mean one."""

    input_tokens: float
    output_tokens: float
    cached_ratio: float = 0.0
    longest_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Speed:
    """What a load comes to. ``ttft_s`` is None where the load has no meaningful one; ``running``: requests at once."""

    output_tokens_per_s: float
    tpot_s: float
    ttft_s: float | None
    running: float


def decode_s(one: Deployment, by: Factors, running: float, context_tokens: float) -> float:
    """One step that gives ``running`` requests of this mean context a token each."""
    work = one.work
    launch = by.fixed_s + by.layer_s * work.layers + by.exchange_wait_s * work.exchanges
    return (
        launch
        + by.weights * work.weights_s(running)
        + by.cache * running * work.context_s(context_tokens)
        + by.arithmetic * running * (work.flop_s + work.head_s)
        + by.exchange * running * work.exchange_s
    )


def prompt_s(one: Deployment, by: Factors, tokens: float, cached_tokens: float = 0.0) -> float:
    """What a prompt adds to the steps that carry it."""
    work = one.work
    new = max(0.0, tokens - cached_tokens)
    matrices = new * work.flop_s
    return (
        by.prompt * matrices
        + by.pairs * (work.prompt_s(tokens, cached_tokens) - matrices)
        + by.prompt_exchange * new * work.exchange_s
        + by.prompt_fixed_s
    )


def held(one: Deployment, context_tokens: float) -> float:
    """Requests of this context that the KV cache holds; no limit where its size is not known to be positive."""
    return max(1.0, one.kv_tokens / context_tokens) if one.kv_tokens > 0 else float("inf")


def closed_loop(one: Deployment, by: Factors, lengths: Lengths, concurrency: float) -> Speed:
    """A fixed number of requests at once, each slot filled again at once.

    Parameters
    ----------
    one, by
        The deployment and its factors.
    lengths
        Mean lengths of a request.
    concurrency
        Requests in the system; those that the KV cache or the flags do not admit wait.

    Notes
    -----
    Each decode step carries running / output prompts' worth of prefill (the fluid view of chunked prefill, Sarathi-Serve);
    Little's law ties running requests to latency.
    """
    tokens, output = lengths.input_tokens, lengths.output_tokens
    context = tokens + output / 2
    prompt = prompt_s(one, by, tokens, tokens * lengths.cached_ratio)
    admitted = min(max(concurrency, 1.0), held(one, context), one.max_running or float("inf"))
    running, tpot, ttft = admitted, 0.0, 0.0
    for _ in range(_ROUNDS):
        tpot = decode_s(one, by, running, context) + running / output * prompt
        if ttft == 0.0:
            ttft = by.answer_s + by.lag_steps * tpot + prompt * (1 + by.queue * (admitted - 1))
            ttft += max(0.0, concurrency / admitted - 1) * (output * tpot + ttft)
        running = max(1.0, admitted * output * tpot / (output * tpot + ttft))
    rate = concurrency * output / (ttft + tpot * max(0.0, output - 1))
    return Speed(rate, tpot, ttft, running)


def saturated(one: Deployment, by: Factors, lengths: Lengths) -> Speed:
    """Every request queued from the start: output tokens/s with the batch that cache, flags and engine allow."""
    tokens, output = lengths.input_tokens, lengths.output_tokens
    most = by.most_running * one.work.attention_ranks
    fits = held(one, tokens + output)
    running = 1 / (1 / fits**2 + 1 / most**2) ** 0.5
    running = min(running, one.max_running or running)
    prompt = prompt_s(one, by, tokens, tokens * lengths.cached_ratio)
    tpot = decode_s(one, by, running, tokens + output / 2) + running / output * prompt
    return Speed(running / tpot * by.burst, tpot, None, running)


def open_burst(one: Deployment, by: Factors, lengths: Lengths, requests: float) -> Speed:
    """``requests`` sent at once to an idle engine: all are admitted as the cache allows, and the longest answers end it.

    Prompts and steps share the engine, so that the time per token is long while prompts are worked off. What
    such runs reach of the sum of their parts, by engine and flags, scales the rate (``flag_rate``).
    """
    tokens, output = lengths.input_tokens, lengths.output_tokens
    most = one.max_running or _MOST_RUNNING * one.work.attention_ranks
    running = min(requests, held(one, tokens + output), most)
    prompt = prompt_s(one, by, tokens, tokens * lengths.cached_ratio)
    step, context = decode_s(one, by, running, tokens + output / 2), tokens + output / 2
    waves = requests / running
    tail = decode_s(one, by, max(1.0, running * _TAIL_SHARE), context)
    whole = requests * prompt + waves * output * step + (lengths.longest_ratio - 1) * output * tail
    slower = one.flag_rate
    tpot = (step + running * prompt / 2 / output) / slower
    ttft = by.answer_s + (running * prompt / 2 + (waves - 1) / 2 * (running * prompt + output * step)) / slower
    return Speed(requests * output / whole * slower, tpot, ttft, running)

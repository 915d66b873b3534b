"""The smallest changes that make a start succeed, in the order in which they hurt least, each with its effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from goodwatch.core.errors import ConfigError
from planner.gpu import Gpu
from planner.ledger import ledger
from planner.quantisation import kv_bytes, scheme
from planner.tensors import Layout
from planner.vram import GIB, Ledger, Request, deployed, with_length

#: weights that a card computes with at full speed, by capability from which it does; source: engine-flags of vLLM
_WEIGHTS: Final = (("fp8", 8.9), ("awq-int4", 7.5))
_ROUND: Final = 1024
_MOST_RANKS: Final = 64


@dataclass(frozen=True, slots=True)
class Change:
    """One change: its step (1 to 5, the order of preference), what to set, what comes of it, and whether it starts."""

    step: int
    what: str
    effect: str
    starts: bool
    kv_tokens: int | None = None
    concurrency: float | None = None


def changes(found: Ledger, cards: Iterable[Gpu] = ()) -> tuple[Change, ...]:
    """What makes a refused or crashed start succeed; empty where it starts.

    Parameters
    ----------
    found
        The ledger of the start that fails.
    cards
        Cards to choose a larger one from.

    Returns
    -------
    tuple[Change, ...]
        In the order: shorter requests, prefix caching, quantisation, more or other cards, disaggregation. A step that
        cannot help is in the list with the reason, so that nobody tries it in vain.
    """
    if found.outcome == "ok" or found.pool is None:
        return ()
    request = found.request
    steps = (_shorter(found), _prefix(request), _quantised(request), _larger(request, [*cards]), _apart(request))
    return tuple(change for step in steps for change in step)


def _tried(request: Request, step: int, what: str, effect: str = "") -> Change:
    found = ledger(request)
    tokens = None if found.tokens is None else int(found.tokens.point)
    concurrency = None if found.concurrency is None else found.concurrency.point
    size = 0.0 if found.pool is None else found.pool.point / GIB
    told = f"{size:.2f} GiB of KV cache" + (f", {tokens:,} tokens" if tokens and found.outcome == "ok" else "")
    reason = told if found.outcome == "ok" else f"not enough: {found.reason}"
    return Change(step, what, f"{effect}; {reason}" if effect else reason, found.outcome == "ok", tokens, concurrency)


def _shorter(found: Ledger) -> Iterator[Change]:
    """The longest requests that start, and fewer sequences where these take the memory."""
    request, flags = found.request, found.request.engine.flags
    length = longest(request, found.settings.max_model_len)
    if length:
        text = f"{flags['max_model_len']} {length}"
        yield _tried(with_length(request, length), 1, text, "longer requests are refused")
    else:
        yield Change(1, flags["max_model_len"], "no length starts: the weights and the peak leave no cache", False)
    sequences = found.settings.max_num_seqs
    if request.engine.rule == "share_of_total" and sequences > 64 and not length:
        fewer = replace(request, max_num_seqs=64)
        yield _tried(fewer, 1, f"{flags['max_num_seqs']} 64", "smaller sampler peak, fewer requests at once")


def longest(request: Request, most: int) -> int | None:
    """Longest ``max_model_len`` that starts, in steps of 1,024 tokens where there is room; None where none does."""
    low, high = 0, most
    while high - low > max(64, min(_ROUND, high // 16)):
        middle = (low + high) // 2
        if ledger(with_length(request, middle)).outcome == "ok":
            low = middle
        else:
            high = middle
    if low < 16:
        return None
    rounded = low // _ROUND * _ROUND if low >= 4 * _ROUND else low // 16 * 16
    return rounded if ledger(with_length(request, rounded)).outcome == "ok" else low


def _prefix(request: Request) -> Iterator[Change]:
    yield Change(
        2, request.engine.flags["prefix"],
        "shares the cache of equal beginnings once it runs; does not make this start: one request must fit alone", False,
    )  # fmt: skip


def _quantised(request: Request) -> Iterator[Change]:
    flags = request.engine.flags
    if request.element_bytes > 1.1 and request.model.mla is None:
        dtype = "q8_0" if request.engine.rule == "fixed_context" else "fp8"
        half = replace(request, element_bytes=kv_bytes(dtype), kv_dtype=dtype)
        yield _tried(half, 3, f"{flags['kv_dtype']} {dtype}", "half the bytes per token; check quality on long prompts")
    if request.scheme.name != "bf16":
        return
    try:
        capability = float(request.gpu.capability)
    except ValueError:
        capability = 0.0
    for name, least in _WEIGHTS:
        if capability >= least or not request.gpu.capability:
            smaller = replace(request, scheme=scheme(name))
            yield _tried(smaller, 3, f"a checkpoint in {name}", "smaller weights; measure quality")


def _larger(request: Request, cards: list[Gpu]) -> Iterator[Change]:
    flag = request.engine.flags["tp"]
    ranks = request.layout.tp * 2
    while ranks <= _MOST_RANKS:
        try:
            wanted = Layout(ranks, request.layout.pp, request.layout.ep, request.layout.dp)
            wider = replace(request, layout=deployed(request.engine, request.model, wanted))
        except ConfigError:
            break  # the heads do not divide further
        change = _tried(wider, 4, f"{flag} {ranks}", f"{ranks} cards")
        if change.starts or ranks * 2 > _MOST_RANKS:
            yield change
            break
        ranks *= 2
    card = _next_card(request, cards)
    if card is not None:
        yield card


def _next_card(request: Request, cards: list[Gpu]) -> Change | None:
    """The smallest card of the same maker on which it starts as it is."""
    now = request.gpu.total_gib
    larger = [
        c
        for c in cards
        if c.vendor == request.gpu.vendor and c.total_gib and now and c.total_gib.point > 1.02 * now.point
    ]
    for card in sorted(larger, key=lambda c: c.total_gib.point if c.total_gib else 0.0):
        change = _tried(replace(request, gpu=card), 4, f"card {card.name}", "a larger card")
        if change.starts:
            return change
    return None


def _apart(request: Request) -> Iterator[Change]:
    if request.engine.rule == "fixed_context":
        return
    decode = replace(request, batched_tokens=max(256, min(request.max_num_seqs or 256, 512)))
    yield _tried(
        decode, 5, "prefill and decode on different replicas",
        "weights are held twice; the decode side profiles small steps only",
    )  # fmt: skip

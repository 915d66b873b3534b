"""Puts the ledger together: pool, what it holds, and whether the engine starts, over every behaviour left open."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.budget import Era, Tier
from planner.estimate import Estimate, total
from planner.kv import Capacity
from planner.pools import Pool, capacity, engine_weights, graphs, kept, pool
from planner.vram import GIB, Ledger, Line, Outcome, Request, Settings, capacity_range, settings, variants


@dataclass(frozen=True, slots=True)
class _Run:
    """One behaviour followed to its end."""

    era: Era
    settings: Settings
    pool: Pool
    ends: tuple[Capacity, Capacity, Capacity] | None  # at the low end, the point and the high end of the pool


def _run(request: Request, era: Era, tier: Tier | None) -> _Run:
    resolved = settings(request, era, tier=tier)
    found = pool(request, era, resolved)
    if found.size is None:
        return _Run(era, resolved, found, None)
    ends = [capacity(request, era, resolved, size) for size in (found.size.low, found.size.point, found.size.high)]
    return _Run(era, resolved, found, (ends[0], ends[1], ends[2]))


def ledger(request: Request) -> Ledger:
    """Size one start of an engine.

    Parameters
    ----------
    request
        Model, card, engine and flags; what is not told is the engine's default for its version.

    Returns
    -------
    Ledger
        Lines, pool, printed capacity and outcome. Where version or card leave several behaviours open, the point is of
        the likeliest and the interval holds all of them; each open fact is named in ``unknown``.

    Raises
    ------
    ConfigError
        Flags that contradict each other or the model (from ``Request``).
    """
    runs = [_run(request, era, tier) for era, tier in variants(request)]
    first = runs[0]
    size, tokens, concurrency = first.pool.size, None, None
    if first.ends is not None and size is not None:
        for other in runs[1:]:
            assert other.pool.size is not None
            size = size.widened(other.pool.size)
        tokens, concurrency = capacity_range(first.ends[1], _lowest(runs), _highest(runs))
    held = engine_weights(request)
    probe = capacity(request, first.era, first.settings, size.point if size else 0.0)
    outcome, reason = _outcome(
        request, first, probe, lenient="max_model_len" in request.soft and request.max_model_len is None
    )
    others = {_outcome(request, run, probe, bound=bound)[0] for run in runs for bound in (-1, 1)}
    return Ledger(
        request, first.settings, first.era, held, _shown(request, first), kept(request), size, tokens, concurrency,
        first.pool.state, probe.need_bytes, outcome, size is not None and others == {outcome}, reason,
        _unknown(request, first, held.unknown), tuple(_risks(request, first)),
    )  # fmt: skip


def _lowest(runs: list[_Run]) -> Capacity:
    ends = [run.ends[0] for run in runs if run.ends]
    return replace(ends[0], tokens=min(e.tokens for e in ends), concurrency=min(e.concurrency for e in ends))


def _highest(runs: list[_Run]) -> Capacity:
    ends = [run.ends[2] for run in runs if run.ends]
    return replace(ends[0], tokens=max(e.tokens for e in ends), concurrency=max(e.concurrency for e in ends))


def _shown(request: Request, run: _Run) -> tuple[Line, ...]:
    """Lines of the report: graphs outside the share are shown too."""
    lines = run.pool.lines
    if run.pool.state is not None:
        lines = (*lines, Line("recurrent states", run.pool.state))
    if request.engine.rule == "share_of_total" and not run.era.graphs_counted:
        late = graphs(request, run.settings, counted=False)
        if late:
            return (*lines, late)
    return lines


def _outcome(
    request: Request, run: _Run, need: Capacity, *, bound: int = 0, lenient: bool = False
) -> tuple[Outcome, str]:
    """Whether it starts; ``bound`` -1 and 1 ask at the pessimistic and the optimistic end.

    ``lenient``: the length is not told, so that a refusal for it alone needs the optimistic end to refuse too.
    """
    card, size = request.gpu.total_gib, run.pool.size
    if card is None or size is None:
        held = total(line.size for line in run.pool.lines)
        return "ok", f"the card's memory is not known: it must hold {held.point / GIB:.1f} GiB and the KV cache"
    weights_gib = next(line.size.point for line in run.pool.lines if line.name == "weights") / GIB
    outside = next((line.size.point for line in run.pool.lines if line.name == "outside PyTorch"), 0.0) / GIB
    if weights_gib + min(outside, 0.4) > card.point:
        return "oom", f"weights take {weights_gib:.1f} GiB, the card has {card.point:.1f} GiB"
    pool_bytes = (size.low, size.point, size.high)[bound + 1]
    if request.engine.rule == "fixed_context":
        return _fits(run, card.point)
    if request.engine.rule == "share_of_total" and not bound:
        peak = run.pool.peak.total.point / GIB
        if weights_gib + peak + outside > card.point:
            return "oom", f"weights and the activation peak take {weights_gib + peak:.1f} of {card.point:.1f} GiB"
    if pool_bytes <= 0:
        return "fail", f"nothing is left for the KV cache ({pool_bytes / GIB:.2f} GiB)"
    if request.engine.rule == "share_of_total" and (size.high if lenient else pool_bytes) < need.need_bytes:
        return "fail", (
            f"one request of {run.settings.max_model_len:,} tokens needs {need.need_bytes / GIB:.2f} GiB of KV cache, "
            f"{pool_bytes / GIB:.2f} GiB are left"
        )
    return "ok", f"{pool_bytes / GIB:.2f} GiB are left for the KV cache"


def _fits(run: _Run, card_gib: float) -> tuple[Outcome, str]:
    assert run.pool.size is not None
    wanted = (total(line.size for line in run.pool.lines).point + run.pool.size.point) / GIB
    if wanted > card_gib:
        return "oom", f"weights, context and buffers take {wanted:.1f} GiB, the card has {card_gib:.1f} GiB"
    return "ok", f"weights, context and buffers take {wanted:.1f} of {card_gib:.1f} GiB"


def _unknown(request: Request, run: _Run, weights_unknown: tuple[str, ...]) -> tuple[str, ...]:
    """What was not told and widens the interval, in words."""
    found = list(dict.fromkeys((*request.model.unknown, *weights_unknown)))
    if request.gpu.total_gib is None:
        found.append("the card and its memory")
    elif not request.gpu.named:
        found.append(f"which card of {request.gpu.total_gib.point:.0f} GiB it is")
    if request.gpu.confidence == "low":
        found.append(f"the facts of {request.gpu.name} are of low confidence ({request.gpu.source})")
    if not request.version.told:
        found.append(f"the version of {request.engine.title}; taken as {request.version.text}")
    if run.era.sampler_least and request.gpu.may_be_nvidia:
        found.append("whether FlashInfer is installed: its sampler takes a third of the memory; taken as not")
    flags = request.engine.flags
    words = {"fraction": "fraction", "max_num_seqs": "max_num_seqs", "batched_tokens": "batched_tokens"}
    for name, flag in words.items():
        if name in run.settings.taken and request.engine.rule != "fixed_context":
            found.append(f"{flags[flag]}: the default")
    found.extend(f"{name}: deduced, not read" for name in sorted(request.soft))
    return tuple(found)


def _risks(request: Request, run: _Run) -> list[str]:
    """What may still fail after a start that is predicted to succeed."""
    card, size = request.gpu.total_gib, run.pool.size
    found: list[str] = []
    if card is None or size is None:
        return found
    share = run.settings.fraction.point
    if request.engine.rule == "share_of_total" and not run.era.graphs_counted:
        late = graphs(request, run.settings, counted=False)
        left = card.point * (1 - share) * GIB
        if late and late.size.high > left:
            found.append(f"CUDA graphs come on top of the share and may not fit the {left / GIB:.1f} GiB beside it")
    if request.engine.rule == "share_after_load":
        reserve: Estimate = next(line.size for line in run.pool.lines if line.name == "reserve")
        if run.pool.peak.total.high > reserve.point:
            found.append(
                f"a prefill of {run.settings.batched_tokens:,} tokens may need {run.pool.peak.total.high / GIB:.1f} GiB; "
                f"{reserve.point / GIB:.1f} GiB are kept for it: it can run out of memory after a good start"
            )
    return found

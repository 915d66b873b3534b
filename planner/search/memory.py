"""The VRAM ledger over columns: parts that do not depend on limits are computed once an instance, the rest in polars.

Equal to ``planner.ledger.ledger`` of each start, up to the rounding of sums (held by a test).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from planner.activation import activation_peak
from planner.budget import Era, Rule
from planner.estimate import Estimate, total
from planner.kv import SGLANG_WINDOW_SHARE, block_bytes
from planner.model_facts import ModelFacts
from planner.pools import graphs, kept, pool
from planner.search.space import Instance
from planner.tensors import Layout
from planner.vram import GIB, Request, settings

#: lines of a ledger that follow the limits
_VARYING: Final = ("activation peak", "CUDA graphs", "reserve", "compute buffer")
_BEFORE_LOAD: Final = ("outside PyTorch", "other processes", "operating system")
_ENDS: Final = ("low", "", "high")


def memory(model: ModelFacts, instances: Sequence[Instance], *, lengths: Sequence[int], sequences: Sequence[int],
           tokens: Sequence[int], context_tokens: float) -> pl.DataFrame:  # fmt: skip
    """What every start comes to.

    Returns
    -------
    pl.DataFrame
        One row an instance and combination of limits. Columns: instance u32 (place in ``instances``), max_model_len,
        max_num_seqs, batched_tokens i64; pool_low, pool, pool_high f64 (bytes); tokens_low, tokens, tokens_high,
        concurrency_low, concurrency, concurrency_high f64 as the engine would print them; seats_low, seats f64: requests
        of ``context_tokens`` that the cache holds (one rank); outcome str; certain bool; missing_bytes f64: what a start
        that fails lacks on a card.
    """
    if not instances:
        return pl.DataFrame()
    parts = []
    order = sorted(range(len(instances)), key=lambda i: instances[i].engine.name)
    for _, places in groupby(order, key=lambda i: instances[i].engine.name):
        parts.append(_of_engine(model, instances, [*places], (lengths, sequences, tokens), context_tokens))
    return pl.concat(parts)


def _of_engine(model: ModelFacts, instances: Sequence[Instance], places: Sequence[int],
               limits: tuple[Sequence[int], Sequence[int], Sequence[int]], context: float) -> pl.DataFrame:  # fmt: skip
    lengths, sequences, tokens = limits
    engine, asked = instances[places[0]].engine, _Asked(model)
    fixed = pl.DataFrame([_fixed(model, place, instances[place], limits) for place in places])
    pairs = [(sequence, token) for sequence in sequences for token in tokens if token >= sequence]
    work = pl.DataFrame(
        [row for place in places for row in _limited(asked, place, instances[place], pairs)],
        schema=_LIMITED,
        orient="row",
    )
    if work.is_empty():
        return work
    frame, length = work.join(fixed, on="instance"), pl.DataFrame({"max_model_len": lengths})
    if engine.rule == "fixed_context":
        return _context_outcome(_RULES[engine.rule](frame.join(length, how="cross")))
    needless = [name for name in frame.columns if name.endswith(("_b", "_a")) or name.startswith("share")]
    frame = _RULES[engine.rule](frame).drop(needless).join(length, how="cross")
    return _outcome(_capacities(frame, context), share_of_total=engine.rule == "share_of_total")


def _fixed(model: ModelFacts, place: int, one: Instance, limits: tuple[Sequence[int], ...]) -> dict[str, Any]:
    """What does not follow the limits: sums of lines with their doubts squared, and how a cache is counted."""
    request = one.request(model, length=limits[0][0], sequences=limits[1][0], tokens=max(limits[2]))
    era = one.engine.era_of(one.version)
    found = pool(request, era, settings(request, era))
    lines = {line.name: line.size for line in found.lines if line.name not in _VARYING}
    card = one.gpu.total_gib
    assert card is not None  # cards without a memory are left out of the space
    row: dict[str, Any] = {"instance": place, "card": card.point * GIB, "weights": lines["weights"].point,
                           "outside": lines["outside PyTorch"].point, "vocab": model.vocab, "state_ratio": era.state_ratio}  # fmt: skip
    row |= _sum("card", [card.scaled(GIB)])
    row |= _sum("held", lines.values())
    row |= _sum("before", (size for name, size in lines.items() if name in _BEFORE_LOAD))
    row |= _sum("after", (size for name, size in lines.items() if name not in _BEFORE_LOAD))
    return row | _counting(request, era)


def _sum(name: str, parts: Iterable[Estimate]) -> dict[str, float]:
    whole = total(parts)
    return {f"{name}_p": whole.point, f"{name}_b": whole.point - whole.low, f"{name}_a": whole.high - whole.point}


def _counting(request: Request, era: Era) -> dict[str, Any]:
    """Constants of ``planner.kv``: bytes of a unit, tokens of a block, blocks of a request by group."""
    one, block = kept(request), request.block_tokens or request.engine.block_tokens
    row: dict[str, Any] = {"block": block, "window_block": block, "window": 0, "g_full": 1, "g_window": 0, "per_state": 0,
                           "groups": 1, "by_concurrency": False, "counted": False, "slot": one.state * one.state_bytes}  # fmt: skip
    rule = request.engine.rule
    if rule == "fixed_context":
        return row | {"unit": 1.0, "full_bytes": one.full * one.token_bytes, "window": one.window_tokens,
                      "window_bytes": one.window * one.window_token_bytes, "layers_window": one.window}  # fmt: skip
    if rule != "share_of_total":
        share = SGLANG_WINDOW_SHARE if era.hybrid and one.window else 1.0
        return row | {"unit": one.full * one.token_bytes + share * one.window * one.window_token_bytes, "counted": True}
    grouped = era.hybrid and (one.state or (one.window and one.full))
    if not grouped and not (one.state and not one.full):
        return row | {"unit": block * one.bytes_per_token}
    counts = [n for n in (one.full, one.window, one.state) if n]
    block, window_block, page = block_bytes(one, block)
    least, most = min(counts), max(counts)
    size = most if most < 1.5 * least else least
    g_full, g_window, g_state = (ceil(n / size) for n in (one.full, one.window, one.state))
    slots = era.state_slots + (request.draft_tokens or 0) if grouped else 1
    return row | {
        "unit": page * size, "block": block, "window_block": window_block, "window": one.window_tokens, "g_full": g_full,
        "g_window": g_window, "per_state": g_state * slots, "groups": g_full + g_window + g_state,
        "by_concurrency": era.tokens_by_concurrency if grouped else True,
    }  # fmt: skip


class _Asked:
    """Answers of the ledger's own functions, asked once for all that they follow."""

    def __init__(self, model: ModelFacts) -> None:
        self.model = model
        self._peaks: dict[tuple[Layout, Era, int, int, int], Estimate] = {}
        self._graphs: dict[tuple[str, int], Estimate] = {}
        self._shares: dict[tuple[str, str, int, int], Estimate] = {}

    def peak(self, one: Instance, era: Era, tokens: int, sequences: int) -> Estimate:
        """The activation peak."""
        split = era.split_k if "int4" in one.scheme.name else 0
        key = (one.layout, era, tokens, sequences, split)
        if key not in self._peaks:
            found = activation_peak(self.model, one.layout, era, tokens=tokens, sequences=sequences, split_k=split)
            self._peaks[key] = found.total
        return self._peaks[key]

    def graphs(self, one: Instance, era: Era, sequences: int) -> Estimate:
        """CUDA graphs that are taken from the pool."""
        if one.engine.rule != "share_of_total" or not era.graphs_counted:
            return _NOTHING
        key = (one.engine.name, sequences)
        if key not in self._graphs:
            request = one.request(self.model, length=16, sequences=sequences, tokens=max(sequences, 2048))
            found = graphs(request, settings(request, era), counted=True)
            self._graphs[key] = _NOTHING if found is None else found.size
        return self._graphs[key]

    def share(self, one: Instance, era: Era, sequences: int, tokens: int) -> Estimate:
        """The engine's share of memory."""
        key = (one.engine.name, one.gpu.name, one.layout.tp * one.layout.pp * 100 + min(one.layout.tp, 4), tokens)
        if key not in self._shares:
            request = one.request(self.model, length=16, sequences=sequences, tokens=tokens)
            self._shares[key] = settings(request, era).fraction
        return self._shares[key]


_NOTHING: Final = Estimate(0.0, 0.0, 0.0)


_LIMITED: Final = {
    "instance": pl.Int64, "max_num_seqs": pl.Int64, "batched_tokens": pl.Int64,
    **dict.fromkeys(
        ("peak_p", "peak_b", "peak_a", "graph_p", "graph_b", "graph_a", "share_low", "share", "share_high"), pl.Float64
    ),
}  # fmt: skip


def _limited(asked: _Asked, place: int, one: Instance, pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[float, ...]]:
    """What follows the limits (sequences, tokens of a step): activation peak, graphs, the engine's share."""
    era = one.engine.era_of(one.version)
    shares = {tokens: asked.share(one, era, sequences, tokens) for sequences, tokens in pairs}
    late = {sequences: asked.graphs(one, era, sequences) for sequences, _ in pairs}
    for sequences, tokens in pairs:
        peak, graph, share = asked.peak(one, era, tokens, sequences), late[sequences], shares[tokens]
        yield (
            place, sequences, tokens, peak.point, peak.point - peak.low, peak.high - peak.point, graph.point,
            graph.point - graph.low, graph.high - graph.point, share.low, share.point, share.high,
        )  # fmt: skip


# -- the pool, by rule; columns NAME_p point, NAME_b and NAME_a doubt below and above


def _hypot(*names: str) -> pl.Expr:
    return sum((pl.col(name) ** 2 for name in names[1:]), pl.col(names[0]) ** 2).sqrt()


def _share_of_total(frame: pl.DataFrame) -> pl.DataFrame:
    rest = pl.col("held_p") + pl.col("peak_p") + pl.col("graph_p")
    budget_b = pl.col("card_p") * pl.col("share") - (pl.col("card_p") - pl.col("card_b")) * pl.col("share_low")
    budget_a = (pl.col("card_p") + pl.col("card_a")) * pl.col("share_high") - pl.col("card_p") * pl.col("share")
    return frame.with_columns(budget_b=budget_b, budget_a=budget_a, pool=pl.col("card_p") * pl.col("share") - rest).with_columns(
        pool_low=pl.col("pool") - _hypot("budget_b", "held_a", "peak_a", "graph_a"),
        pool_high=pl.col("pool") + _hypot("budget_a", "held_b", "peak_b", "graph_b"),
    )  # fmt: skip


def _share_of_free(frame: pl.DataFrame) -> pl.DataFrame:
    free = pl.col("card_p") - pl.col("held_p") - pl.col("peak_p")
    low, high = free - _hypot("card_b", "held_a", "peak_a"), free + _hypot("card_a", "held_b", "peak_b")
    return frame.with_columns(
        pool=free * pl.col("share"),
        pool_low=pl.min_horizontal(low * pl.col("share_low"), low * pl.col("share_high")),
        pool_high=pl.max_horizontal(high * pl.col("share_low"), high * pl.col("share_high")),
    )


def _share_after_load(frame: pl.DataFrame) -> pl.DataFrame:
    before = pl.col("card_p") - pl.col("before_p")
    frame = (
        frame.with_columns(
            first=before,
            first_low=before - _hypot("card_b", "before_a"),
            first_high=before + _hypot("card_a", "before_b"),
        )
        .with_columns(
            budget_b=pl.col("first") * pl.col("share") - pl.col("first_low") * pl.col("share_low"),
            budget_a=pl.col("first_high") * pl.col("share_high") - pl.col("first") * pl.col("share"),
            pool=pl.col("first") * pl.col("share") - pl.col("after_p"),
        )
        .with_columns(rest_b=_hypot("budget_b", "after_a"), rest_a=_hypot("budget_a", "after_b"))
    )
    # recurrent states are pooled apart: slots of running requests, and two of each that the overlap may take
    slots, ratio = pl.col("max_num_seqs"), pl.col("state_ratio")
    most = (slots * ratio + 1) * pl.col("slot")
    least = (slots * pl.max_horizontal(pl.lit(1), ratio - 2) + 1) * pl.col("slot")
    frame = frame.with_columns(pool=pl.col("pool") - most, state_b=most - least, state_a=most * 0.05)
    return frame.with_columns(
        pool_low=pl.col("pool") - _hypot("rest_b", "state_a"), pool_high=pl.col("pool") + _hypot("rest_a", "state_b")
    )


def _fixed_context(frame: pl.DataFrame) -> pl.DataFrame:
    context = pl.col("max_model_len") * pl.col("max_num_seqs")
    cells = pl.min_horizontal(
        context, 256 * ((pl.col("window") * pl.col("max_num_seqs") + pl.col("batched_tokens")) / 256).ceil()
    )
    cells = pl.when(pl.col("layers_window") > 0).then(cells).otherwise(0)
    states = pl.col("slot") * pl.col("max_num_seqs")
    size = pl.col("full_bytes") * context + pl.col("window_bytes") * cells + states
    whole = pl.col("full_bytes") * context + pl.col("window_bytes") * context + states
    return frame.with_columns(
        pool=size, pool_low=size * 0.998, pool_high=pl.max_horizontal(size, whole) * 1.002, context=context
    )


_RULES: Final[Mapping[Rule, Callable[[pl.DataFrame], pl.DataFrame]]] = MappingProxyType(
    {
        "share_of_total": _share_of_total, "share_after_load": _share_after_load, "share_of_free": _share_of_free,
        "fixed_context": _fixed_context,
    }
)  # fmt: skip


# -- what a pool holds


def _per_request(length: pl.Expr) -> pl.Expr:
    """Units that one request of this length takes."""
    windowed = pl.min_horizontal(length, pl.col("window") - 1 + pl.col("batched_tokens"))
    window = pl.min_horizontal((windowed / pl.col("window_block")).ceil() + 1, (length / pl.col("window_block")).ceil())
    blocks = pl.col("g_full") * (length / pl.col("block")).ceil() + pl.col("g_window") * window + pl.col("per_state")
    return pl.when(pl.col("counted")).then(length).otherwise(blocks)


def _capacities(frame: pl.DataFrame, context: float) -> pl.DataFrame:
    length = pl.col("max_model_len")
    frame = frame.with_columns(per_request=_per_request(length), per_mean=_per_request(pl.lit(context)))
    frame = frame.with_columns(need=pl.col("per_request") * pl.col("unit"))
    for end in _ENDS:
        name = f"_{end}" if end else ""
        units = (pl.max_horizontal(pl.lit(0.0), pl.col(f"pool{name}")) / pl.col("unit")).floor()
        counted = (units / pl.col("block")).floor() * pl.col("block")
        frame = frame.with_columns(units=pl.when(pl.col("counted")).then(counted).otherwise(units))
        frame = frame.with_columns((pl.col("units") / pl.col("per_request")).alias(f"concurrency{name}"))
        told = (
            pl.when(pl.col("counted")).then(pl.col("units"))
            .when(pl.col("by_concurrency")).then((pl.col(f"concurrency{name}") * length).floor())
            .otherwise((pl.col("units") / pl.col("groups")).floor() * pl.col("block"))
        )  # fmt: skip
        frame = frame.with_columns(
            told.alias(f"tokens{name}"), (pl.col("units") / pl.col("per_mean")).alias(f"seats{name}")
        )
    return frame


def _outcome(frame: pl.DataFrame, *, share_of_total: bool) -> pl.DataFrame:
    """As ``planner.ledger`` judges a start, at the point and at both ends."""
    heavy = pl.col("weights") + pl.min_horizontal(pl.col("outside"), pl.lit(0.4 * GIB))
    over = [heavy > pl.col("card")]
    room = {end: pl.col(f"pool_{end}" if end else "pool") <= 0 for end in _ENDS}
    if share_of_total:
        over.append(pl.col("weights") + pl.col("peak_p") + pl.col("outside") > pl.col("card"))
        room = {end: empty | (pl.col(f"pool_{end}" if end else "pool") < pl.col("need")) for end, empty in room.items()}

    def judged(end: str, above: Sequence[pl.Expr]) -> pl.Expr:
        told = pl.when(pl.any_horizontal(*above)).then(pl.lit("oom"))
        return told.when(room[end]).then(pl.lit("fail")).otherwise(pl.lit("ok"))

    missing = pl.max_horizontal(pl.lit(0.0), heavy - pl.col("card"), pl.col("need") - pl.col("pool"))
    return _chosen(
        frame.with_columns(outcome=judged("", over), missing_bytes=missing).with_columns(
            certain=(judged("low", over[:1]) == pl.col("outcome")) & (judged("high", over[:1]) == pl.col("outcome"))
        )
    )


def _context_outcome(frame: pl.DataFrame) -> pl.DataFrame:
    """llama.cpp takes what the context asks; it runs out of memory or it does not."""
    heavy = pl.col("weights") + pl.min_horizontal(pl.col("outside"), pl.lit(0.4 * GIB))
    scratch = 4.0 * pl.col("batched_tokens") * pl.col("vocab") + 80.0 * 2**20
    wanted = pl.col("held_p") + scratch + pl.col("pool")
    over = (heavy > pl.col("card")) | (wanted > pl.col("card"))
    slots, context = pl.col("max_num_seqs").cast(pl.Float64), pl.col("context").cast(pl.Float64)
    return _chosen(
        frame.with_columns(
            outcome=pl.when(over).then(pl.lit("oom")).otherwise(pl.lit("ok")), certain=pl.lit(True),
            missing_bytes=pl.max_horizontal(pl.lit(0.0), wanted - pl.col("card")),
            tokens=context, tokens_low=context, tokens_high=context,
            concurrency=slots, concurrency_low=slots, concurrency_high=slots, seats=slots, seats_low=slots,
        )
    )  # fmt: skip


def _chosen(frame: pl.DataFrame) -> pl.DataFrame:
    ends = [f"{name}{end}" for name in ("pool", "tokens", "concurrency") for end in ("_low", "", "_high")]
    return frame.select(
        pl.col("instance").cast(pl.UInt32), pl.col("max_model_len", "max_num_seqs", "batched_tokens").cast(pl.Int64),
        *(pl.col(name).cast(pl.Float64) for name in ends), pl.col("seats_low", "seats").cast(pl.Float64),
        "outcome", "certain", pl.col("missing_bytes").cast(pl.Float64),
    )  # fmt: skip

"""How answers about cost look: as plain values for JSON, and as one page on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from goodwatch.app.plan_cost import CostAnswer, Routing
from planner.cost.breakeven import LEFT_OUT, Comparison
from planner.cost.levers import Routed
from planner.cost.reference import Reproduced, references, routings
from planner.cost.sheet import Sheet
from planner.estimate import Estimate
from planner.speed.efficiency import shipped


def cost_json(found: CostAnswer) -> dict[str, Any]:
    """The answer as plain values; money in USD, every figure with its interval and basis."""
    sheet, options = found.sheet, found.options
    one, traffic, split = sheet.asked.one, sheet.asked.traffic, sheet.split
    return {
        "model": options.model, "gpu": sheet.asked.gpu, "gpus": sheet.gpus, "paid_gpus": sheet.paid_gpus,
        "instances": _plain(sheet.instances), "engine": options.engine, "precision": options.quantization or "bf16",
        "layout": {"tp": one.layout.tp, "pp": one.layout.pp, "ep": one.layout.ep, "dp": one.layout.dp},
        "traffic": {
            "input_tokens": traffic.input_tokens, "output_tokens": traffic.output_tokens, "cached_ratio": traffic.cached_ratio,
            "good_ratio": traffic.good_ratio,
        },
        "price": {
            "kind": sheet.price.kind, "usd_per_gpu_hour": _plain(sheet.price.usd_per_gpu_hour), "source": sheet.price.source,
            "as_of": sheet.price.as_of,
        },
        "usd_per_hour": _plain(sheet.usd_per_hour), "usd_per_month": _plain(sheet.usd_per_month),
        "most_output_tokens_per_s": _plain(sheet.most_output_tokens_per_s), "utilisation": _plain(sheet.utilisation),
        "served_requests_per_s": _plain(sheet.served_requests_per_s),
        "usd_per_million": {
            "output": _plain(sheet.output), "total": _plain(sheet.total), "good": _plain(sheet.good),
            "output_at_full_load": _plain(sheet.full), "uncached_input": _plain(split.uncached_input),
            "cached_input": _plain(split.cached_input), "output_apart_from_input": _plain(split.output),
        },
        "idle_usd_per_month": _plain(sheet.idle_usd), "headroom_usd_per_month": _plain(sheet.headroom_usd),
        "prefill_ratio": _plain(sheet.phases.prefill_ratio), "split_residue_ratio": _short(sheet.phases.residue_ratio),
        "comparisons": [_comparison_json(each) for each in found.comparisons],
        "effects": [{"name": e.name, "saving": _plain(e.saving), "bound": _plain(e.bound)} for e in found.effects],
        "routing": _routing_json(found.routing), "unknown": list(sheet.unknown), "risks": [*sheet.risks, *found.notes],
    }  # fmt: skip


def _comparison_json(one: Comparison) -> dict[str, Any]:
    quote = one.quote
    return {
        "api": quote.name, "input_usd_per_million": quote.input_usd, "cached_input_usd_per_million": quote.cached_usd,
        "output_usd_per_million": quote.output_usd, "as_of": quote.as_of, "source": quote.source, "notes": list(quote.notes),
        "own_usd_per_month": _plain(one.own_usd_per_month), "api_usd_per_month": _plain(one.api_usd_per_month),
        "api_usd_per_million_tokens": _plain(one.api_usd_per_million_tokens), "cheaper": one.cheaper, "certain": one.certain,
        "break_even_tokens_per_day": _plain(one.tokens_per_day), "break_even_utilisation": _plain(one.utilisation),
        "reason": one.reason,
    }  # fmt: skip


def _routing_json(routing: Routing | None) -> dict[str, Any] | None:
    if routing is None:
        return None
    ends = {"gpus_given_back": routing.given_back, "gpus_stay": routing.kept}
    return {
        "share": routing.share, "small_usd_per_million_output": _plain(routing.small),
        "allowed": routing.given_back.allowed, "reason": routing.given_back.reason,
        **{
            name: None if one is None else {"blended": _plain(one.blended), "saving": _plain(one.saving)}
            for name, one in ends.items()
        },
    }  # fmt: skip


def reference_json(found: Sequence[Reproduced] | None = None) -> dict[str, Any]:
    """The well-known figures under their assumptions, and with the shipped speed model's rate, as plain values."""
    return {
        "references": [_reference_json(one) for one in found or references(shipped())],
        "routing": [
            {"name": name, "blended": _plain(one.blended), "saving": _plain(one.saving), "reason": one.reason}
            for name, one in routings()
        ],
    }


def _reference_json(one: Reproduced) -> Mapping[str, Any]:
    told = one.reference
    return {
        "name": told.name, "told_usd_per_million": told.told_usd, "counted": told.counted, "utilisation": told.utilisation,
        "usd_per_gpu_hour": told.usd_per_gpu_hour, "price_source": told.price_source, "output_tokens_per_s": told.tokens_per_s,
        "rate_source": told.rate_source, "reproduced": _plain(one.reproduced), "by_speed_model": _plain(one.by_model),
        "speed_model_output_tokens_per_s": _plain(one.model_tokens_per_s),
        "per_million_output_at_full_load": _plain(one.same_basis),
    }  # fmt: skip


def _plain(one: Estimate | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {"point": _short(one.point), "interval": [_short(one.low), _short(one.high)], "basis": one.basis}


def _short(value: float) -> float | None:
    """Five digits; no upper end is null, for JSON has no infinity."""
    return float(f"{value:.5g}") if abs(value) != float("inf") else None


def show_cost(console: Console, found: CostAnswer) -> None:
    """Print one answer: what it costs, whose idle time, an API beside it, what would lower it, what is not known."""
    sheet = found.sheet
    _head(console, found)
    console.print(_figures(sheet))
    for one in found.comparisons:
        _comparison(console, one, sheet)
    if found.comparisons:
        console.print(Text("  " + "; ".join(LEFT_OUT), "dim"))
    _levers(console, found)
    console.print()
    for text in (*sheet.risks, *found.notes):
        console.print(Text(f"  ▲ {text}", "yellow"))
    if sheet.unknown:
        console.print(Text(f"  not told or not measured, in the intervals: {'; '.join(sheet.unknown)}", "dim"))


def _head(console: Console, found: CostAnswer) -> None:
    sheet, options, traffic = found.sheet, found.options, found.sheet.asked.traffic
    layout = sheet.asked.one.layout
    ranks = " ".join(
        f"{name}{n}"
        for name, n in (("TP", layout.tp), ("PP", layout.pp), ("EP", layout.ep), ("DP", layout.dp))
        if n > 1
    )
    many = f"{sheet.instances.point:g} instance{'s' if sheet.instances.point > 1 else ''}"
    console.print()
    console.print(
        Text.assemble(
            "  ", (options.model, "bold"), f"  on {sheet.gpus:,} x {sheet.asked.gpu}, {many} {ranks}".rstrip()
        )
    )
    lengths = (
        f"{traffic.input_tokens:,.0f} tokens in ({traffic.cached_ratio:.0%} cached), {traffic.output_tokens:,.0f} out"
    )
    console.print(Text(f"  {options.engine}, {options.quantization or 'bf16'} weights; a request has {lengths}", "dim"))
    price, most = sheet.price, sheet.most_output_tokens_per_s
    console.print(
        Text(f"  price: {_money(price.usd_per_gpu_hour)} USD a GPU-hour, {price.usd_per_gpu_hour.basis}", "dim")
    )
    console.print(
        Text(
            f"  rate: {most.point:,.0f} output tokens/s ({most.low:,.0f} to {most.high:,.0f}) when full; {most.basis}",
            "dim",
        )
    )
    use, served = sheet.utilisation, sheet.served_requests_per_s
    band = "" if use.low == use.high else f" ({use.low:.0%} to {use.high:.0%})"
    day = served.point * traffic.tokens * 86_400
    console.print(
        Text(
            f"  used: {use.point:.0%}{band}, {served.point:,.3g} requests/s, {day:,.0f} tokens a day (in and out)",
            "dim",
        )
    )
    console.print(Text("  point, and the interval from the price's and the speed's doubt", "dim"))
    console.print()


def _figures(sheet: Sheet) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("USD", no_wrap=True)
    for title in ("", "low", "high"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("basis", style="dim", overflow="fold")
    used, split = f"{sheet.utilisation.point:.0%} used, idle time paid", sheet.split
    traffic = sheet.asked.traffic
    share = sheet.phases.prefill_ratio
    part = f"{share.point:.0%} of the bill to prefill ({share.low:.0%} to {share.high:.0%}): an allocation"
    if abs(sheet.phases.residue_ratio) >= 0.05:
        part += f"; {sheet.phases.residue_ratio:.0%} of an instance's time is in neither phase, and shared alike"
    _row(table, "a month", sheet.usd_per_month, f"{_cards(sheet.paid_gpus)} for 730.5 h, used or not")
    _row(table, "  of that idle", sheet.idle_usd, "rate that is neither used nor kept free")
    _row(
        table, "  of that headroom", sheet.headroom_usd, f"{sheet.headroom_ratio:.0%} of the rate kept free on purpose"
    )
    _row(table, "a million output tokens", sheet.output, f"the whole bill over output tokens, {used}")
    _row(table, "a million tokens", sheet.total, f"the whole bill over input and output tokens, {used}")
    good = (
        "output tokens of good requests"
        if traffic.good_ratio
        else "needs --good-ratio, the share of tokens of good requests"
    )
    _row(table, "a million good tokens", sheet.good, f"{good}, {used}" if traffic.good_ratio else good)
    _row(table, "a million output, full", sheet.full, "the same if every GPU were full all the time")
    _row(table, "input apart: uncached", split.uncached_input, f"per million; {part}")
    _row(table, "  cached input", split.cached_input, "none by allocation: output tokens read the cache")
    _row(table, "  output", split.output, "per million; the rest of the bill")
    return table


def _row(table: Table, name: str, one: Estimate | None, basis: str) -> None:
    if one is None:
        table.add_row(name, "no data", "", "", basis)
    else:
        table.add_row(name, *(_usd(each) for each in (one.point, one.low, one.high)), basis)


def _cards(count: int) -> str:
    return f"{count:,} GPU{'s' if count > 1 else ''}"


def _usd(value: float) -> str:
    if value == float("inf"):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}" if abs(value) >= 10 else f"{value:,.3f}"


def _money(one: Estimate) -> str:
    return _usd(one.point) if one.low == one.high else f"{_usd(one.point)} ({_usd(one.low)} to {_usd(one.high)})"


def _comparison(console: Console, one: Comparison, sheet: Sheet) -> None:
    quote = one.quote
    each = [
        f"{_usd(usd)} {name}"
        for usd, name in ((quote.input_usd, "in"), (quote.cached_usd, "cached"), (quote.output_usd, "out"))
        if usd is not None
    ]
    since = f", from {quote.as_of}" if quote.as_of else ""
    console.print()
    console.print(
        Text.assemble(
            "  beside ", (quote.name, "bold"), f"  {', '.join(each) or 'prices by tier'} USD per million{since}"
        )
    )
    console.print(Text(f"  {quote.source}; {'; '.join(quote.notes)}".rstrip("; "), "dim"))
    sure = "" if one.certain else " (the intervals overlap: not sure)"
    console.print(
        f"  a month of this traffic: the API {_money(one.api_usd_per_month)}, your GPUs {_money(one.own_usd_per_month)} USD: "
        f"{one.cheaper} is cheaper{sure}"
    )
    if one.tokens_per_day is None or one.utilisation is None:
        console.print(f"  break-even {one.reason}")
        return
    day, use = one.tokens_per_day, one.utilisation
    console.print(
        f"  break-even at {day.point:,.0f} tokens a day ({day.low:,.0f} to {day.high:,.0f}), {use.point:.0%} of what "
        f"{_cards(sheet.gpus)} can do ({use.low:.0%} to {use.high:.0%}); {one.reason}"
    )


def _levers(console: Console, found: CostAnswer) -> None:
    if found.effects or found.routing:
        console.print()
        console.print(Text("  what would lower it", "bold"))
    for one in found.effects:
        low, point, high = (f"{each:.0%}" for each in (one.saving.low, one.saving.point, one.saving.high))
        console.print(
            f"  {one.name}: saves {point} ({low} to {high}), never more than {one.bound.high:.0%}: {one.saving.basis}"
        )
    if found.routing:
        _routing(console, found.routing)


def _routing(console: Console, routing: Routing) -> None:
    small = f"{_money(routing.small)} USD per million output tokens"
    console.print(f"  {routing.share:.0%} of the tokens to a small model at {small}:")
    mark, style = ("●", "green") if routing.given_back.allowed else ("○", "yellow")
    console.print(Text.assemble("  ", (mark, style), f" {routing.given_back.reason}"))
    console.print(f"    if the big model's GPUs go with its traffic: {_saved(routing.given_back)}")
    if routing.kept:
        console.print(f"    if they stay: {_saved(routing.kept)}")


def _saved(one: Routed) -> str:
    saving = one.saving
    if saving.point < 0:
        return f"{_money(one.blended)} USD per million, {-saving.point:.0%} dearer ({-saving.high:.0%} to {-saving.low:.0%})"
    return f"{_money(one.blended)} USD per million, saves {saving.point:.0%} ({saving.low:.0%} to {saving.high:.0%})"


def show_reference(console: Console) -> None:
    """Print the well-known figures, under which assumptions they are so, and what the shipped speed model says."""
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("USD per million tokens", overflow="fold")
    for title in ("said", "reproduced", "by our speed model", "output, full load"):
        table.add_column(title, justify="right")
    table.add_column("under these assumptions", style="dim", overflow="fold")
    for one in references(shipped()):
        told, rate = one.reference, one.model_tokens_per_s
        counted = "input and output tokens" if told.counted == "total" else "output tokens"
        table.add_row(
            told.name, f"{told.told_usd:.2f}", f"{one.reproduced.point:.3f}", _money(one.by_model), f"{one.same_basis.point:.3f}",
            f"{counted}, {told.utilisation:.0%} used, {told.price_source}; {told.tokens_per_s:,.0f} output tokens/s: "
            f"{told.rate_source}; our model: {rate.point:,.0f} ({rate.low:,.0f} to {rate.high:,.0f})",
        )  # fmt: skip
    console.print()
    console.print(table)
    console.print(Text("  0.82 counts input too and 0.47 does not: on one basis FP8 saves 81 %, not 43 %", "yellow"))
    console.print(Text("  the TensorRT-LLM rows are among those that the speed model was fitted on", "dim"))
    _show_routings(console, routings())


def _show_routings(console: Console, found: Sequence[tuple[str, Routed]]) -> None:
    console.print()
    console.print(Text("  80 % of the tokens to the small model at 0.20", "bold"))
    for name, one in found:
        console.print(f"  {name:<66}{one.blended.point:.3f}   {-one.saving.point:+.0%}")
    console.print(Text(f"  {found[0][1].reason}", "dim"))

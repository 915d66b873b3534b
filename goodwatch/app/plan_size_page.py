"""How the answer of ``goodwatch plan size`` looks: one page, or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from goodwatch.app.plan_size import Sized
from planner.estimate import Estimate
from planner.search.answer import Option
from planner.search.question import Question
from planner.search.reasons import cut
from planner.search.space import Lost
from planner.search.trial import Setup
from planner.vram import GIB

#: families of one kind that the page lists; JSON has all
_SHOWN: Final = 5
_LATENCIES: Final = (
    ("TTFT P50", "ttft_p50_s"), ("TTFT P99", "ttft_p99_s"), ("TPOT P50", "tpot_p50_s"), ("TPOT P99", "tpot_p99_s"),
)  # fmt: skip


def show_size(console: Console, found: Sized) -> None:
    """Print the page."""
    question, answer = found.answer.question, found.answer
    console.print()
    console.print(Text.assemble("  ", (question.model.name, "bold"), f"  {_load(question)}"))
    console.print(Text(f"  {_targets(question)}", "dim"))
    for piece in found.sentence.left:
        console.print(Text(f"  ▲ not understood, and not in the answer: “{piece}”", "yellow"))
    console.print()
    if answer.best is None:
        console.print(Text.assemble("  ", ("nothing fits", "bold red"), f": {answer.reason}"))
        for near in answer.near:
            if near.option is not None:
                console.print(f"  ○ would do with another answer to {near.given_up}: {described(near.option)}, "
                              f"{_usd(near.option.usd_per_month)} a month")  # fmt: skip
        if not answer.near:
            console.print(
                "  nothing near does either: neither other cards, more of them, looser targets nor 4-bit weights"
            )
    if found.shown is not None:
        _option(console, found, found.shown)
    _front(console, answer.front)
    _lost(console, answer.lost)
    _assumed(console, found)


def described(one: Option) -> str:
    """One option in a line."""
    setup, instance = one.setup, one.setup.instance
    workers = _workers(setup)
    cache = "16-bit" if instance.kv_dtype == "auto" else instance.kv_dtype
    return f"{setup.gpus} x {instance.gpu.name}, {workers} of {cut(instance)}, {instance.engine.title} {instance.version.text}, {instance.scheme.name} weights, {cache} cache"


def _workers(setup: Setup) -> str:
    if setup.prefill_replicas:
        return f"{setup.prefill_replicas} prefill and {setup.replicas} decode workers"
    return f"{setup.replicas} replica{'s' * (setup.replicas > 1)}"


def _load(question: Question) -> str:
    load = question.arrivals
    shared = f", {load.shared_ratio:.0%} of the input shared" if load.shared_ratio else ""
    kind = "a trace" if load.trace is not None else "drawn"
    return f"{load.rate_per_s:.3g} requests/s ({kind}), {load.input_tokens:,.0f} tokens in, {load.output_tokens:,.0f} out{shared}"


def _targets(question: Question) -> str:
    limits = question.limits
    told = [
        f"{name} {value * 1e3:,.0f} ms"
        for name, value in (("TTFT", limits.ttft_s), ("TPOT", limits.tpot_s), ("E2E", limits.e2e_s))
        if value
    ]
    budget = question.budget_usd_per_month
    return f"{question.objective:.4g} of the requests within {', '.join(told) or 'no target'}" + (
        f"; ${budget:,.0f} a month" if budget else ""
    )


def _option(console: Console, found: Sized, one: Option) -> None:
    question = found.answer.question
    word = "run" if found.answer.best is not None else "the nearest"
    console.print(
        Text.assemble("  ", (word, "bold green" if found.answer.best else "bold yellow"), f": {described(one)}")
    )
    if found.likely is not None:
        fewer = found.likely
        console.print(
            f"  likely enough: {_workers(fewer)}, {fewer.gpus} cards, ${fewer.usd_per_month.point:,.0f} a month. It holds at the point of the bands; the\n"
            "  above holds also where the engine is as slow as one in ten such predictions turned out. Begin with the fewer, and measure"
        )
    console.print()
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for title in ("", "point", "low", "high", ""):
        table.add_column(title, justify="right" if title else "left", overflow="fold")
    for label, name in _LATENCIES:
        _row(table, f"{label}, ms", one.of(name).scaled(1e3), "{:,.0f}" if "TTFT" in label else "{:,.1f}")
    _row(
        table,
        "within all targets",
        one.of("attained_ratio"),
        "{:.1%}",
        "simulated, 80 % bands of step times and memory",
    )
    if one.headroom_ratio is not None:
        table.add_row("headroom", f"{one.headroom_ratio:g}x", "", "", "so much more load holds at the slow end")
    _row(table, "USD a month", one.usd_per_month, "{:,.0f}", one.setup.instance.price.usd_per_gpu_hour.basis)
    _row(
        table,
        "USD per million output tokens",
        one.usd_per_million_output(question),
        "{:,.3f}",
        "at the asked load, idle time in it",
    )
    if found.ledger is not None:
        _row(table, "weights, GiB a card", found.ledger.weights.total.scaled(1 / GIB), "{:,.1f}")
        if found.ledger.pool is not None:
            _row(table, "KV cache, GiB a card", found.ledger.pool.scaled(1 / GIB), "{:,.1f}", found.ledger.reason)
        if found.ledger.tokens is not None:
            _row(
                table,
                "KV tokens an engine prints",
                found.ledger.tokens,
                "{:,.0f}",
                f"requests of up to {one.setup.max_model_len:,} tokens",
            )
    console.print(table)
    console.print()
    for line in found.command.rstrip().splitlines():
        console.print(Text(f"    {line}", "cyan"), soft_wrap=True)


def _row(table: Table, label: str, size: Estimate, form: str, basis: str = "") -> None:
    table.add_row(label, form.format(size.point), form.format(size.low), form.format(size.high), Text(basis, "dim"))


def _usd(size: Estimate) -> str:
    return f"${size.point:,.0f} (${size.low:,.0f} to ${size.high:,.0f})"


def _front(console: Console, front: Sequence[Option]) -> None:
    if len(front) < 2:
        return
    console.print()
    console.print(Text("  what else is not beaten in cost, attainment and headroom at once", "bold"))
    for one in front:
        attained, room = one.of("attained_ratio"), f", {one.headroom_ratio:g}x headroom" if one.headroom_ratio else ""
        console.print(
            f"  {_usd(one.usd_per_month)}: {attained.point:.1%} ({attained.low:.1%} at the slow end){room}: {described(one)}"
        )


def _lost(console: Console, lost: Sequence[Lost]) -> None:
    console.print()
    console.print(Text("  what lost, and why", "bold"))
    for kind, members in groupby(lost, key=lambda one: one.kind):
        by_reason = [*_by_reason([*members])]
        for names, reason in by_reason[:_SHOWN]:
            console.print(Text.assemble("  ○ ", (f"{kind} {', '.join(names)}", ""), (f": {reason}", "dim")))
        if len(by_reason) > _SHOWN:
            console.print(Text(f"    and {len(by_reason) - _SHOWN} more of this kind (--json has all)", "dim"))


def _by_reason(lost: Sequence[Lost]) -> Iterator[tuple[list[str], str]]:
    """Families that lost for the same reason, together."""
    reasons: dict[str, list[str]] = {}
    for one in lost:
        reasons.setdefault(one.reason.removeprefix(f"--gpu {one.name}: ").replace("for it", "").strip(), []).append(
            one.name
        )
    for reason, names in reasons.items():
        yield [*names[:4], *([f"{len(names) - 4} more"] if len(names) > 4 else [])], reason


def _assumed(console: Console, found: Sized) -> None:
    answer, counted = found.answer, found.answer.counted
    console.print()
    for text in answer.question.assumed:
        console.print(Text(f"  assumed: {text}", "dim"))
    if answer.unknown:
        console.print(Text(f"  not told or not measured, in the intervals: {'; '.join(answer.unknown)}", "dim"))
    console.print(Text(f"  {counted.space:,} configurations, {counted.start:,} surely start, {counted.meet:,} meet the targets in closed form, "
                       f"{counted.simulated:,} simulated", "dim"))  # fmt: skip


def size_json(found: Sized) -> dict[str, Any]:
    """Everything as plain values: seconds, USD, ``[low, high]`` intervals."""
    answer, question = found.answer, found.answer.question
    load, limits = question.arrivals, question.limits
    return {
        "model": question.model.name,
        "understood": [{"text": text, "meaning": meaning} for text, meaning in found.sentence.heard],
        "not_understood": [*found.sentence.left],
        "asked": {
            "requests_per_s": load.rate_per_s, "input_tokens": load.input_tokens, "output_tokens": load.output_tokens,
            "length_spread": load.spread, "shared_ratio": load.shared_ratio, "ttft_s": limits.ttft_s, "tpot_s": limits.tpot_s,
            "e2e_s": limits.e2e_s, "objective": question.objective, "max_model_len": question.needed_tokens,
            "budget_usd_per_month": question.budget_usd_per_month, "price": question.price_kind,
        },
        "best": None if answer.best is None else _option_json(question, answer.best),
        "likely_enough": None if found.likely is None else {
            "gpus": found.likely.gpus, "replicas": found.likely.replicas, "prefill_replicas": found.likely.prefill_replicas,
            "usd_per_month": found.likely.usd_per_month.point,
        },
        "reason": answer.reason or None,
        "near": [
            {"given_up": near.given_up, "option": _option_json(question, near.option)} for near in answer.near if near.option
        ],
        "front": [_option_json(question, one) for one in answer.front],
        "lost": [{"kind": one.kind, "name": one.name, "reason": one.reason, "configurations": one.tried} for one in answer.lost],
        "command": found.command or None,
        "assumed": [*question.assumed],
        "unknown": [*answer.unknown],
        "counted": {
            "space": answer.counted.space, "surely_start": answer.counted.start, "meet_in_closed_form": answer.counted.meet,
            "simulated": answer.counted.simulated,
        },
    }  # fmt: skip


def _option_json(question: Question, one: Option) -> dict[str, Any]:
    setup, instance = one.setup, one.setup.instance
    figures = {name: one.of(name) for name in ("attained_ratio", *(name for _, name in _LATENCIES))}
    figures |= {
        "usd_per_month": one.usd_per_month, "usd_per_million_output_tokens": one.usd_per_million_output(question),
        "kv_tokens": setup.kv_tokens,
    }  # fmt: skip
    layout = instance.layout
    return {
        "gpu": instance.gpu.name, "gpus": setup.gpus, "engine": instance.engine.name, "engine_version": instance.version.text,
        "quantization": instance.scheme.name, "kv_cache_dtype": instance.kv_dtype, "tp": layout.tp, "pp": layout.pp,
        "ep": layout.ep, "dp": layout.dp, "replicas": setup.replicas, "prefill_replicas": setup.prefill_replicas,
        "max_model_len": setup.max_model_len, "max_num_seqs": setup.max_num_seqs, "max_num_batched_tokens": setup.batched_tokens,
        "prefix_caching": setup.prefix_caching, "chunked_prefill": setup.chunked_prefill, "draft_tokens": instance.draft_tokens,
        "holds_at_the_slow_end": one.holds, "headroom_ratio": one.headroom_ratio,
        **{name: {"point": size.point, "interval": [size.low, size.high]} for name, size in figures.items()},
    }  # fmt: skip

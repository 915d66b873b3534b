"""Mistakes of meaning: a burn rate that pages at once, a full KV cache taken for a fault, advice that makes it worse."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from promql_parser import BinaryExpr, Call, VectorSelector

from alerts.lint.names import Names
from alerts.lint.tree import COMPARES, bare, comparisons, constant, every, name_of, names_in, operator, walk
from alerts.lint.values import Finding, Query

PAGES: Final = frozenset({"page", "critical", "error", "p1", "sev1", "emergency"})
_MEMORY_SHARE: Final = r"(gpu[-_ ]?memory[-_ ]utili[sz]ation|mem(ory)?[-_ ]fraction(-static)?|memory fraction)"
_DOWN: Final = re.compile(rf"(lower|reduc\w+|decreas\w+)[^.]*{_MEMORY_SHARE}", re.IGNORECASE)
_UP: Final = re.compile(rf"(rais\w+|increas\w+)[^.]*{_MEMORY_SHARE}", re.IGNORECASE)
_PREEMPTION: Final = re.compile(r"preempt|retract", re.IGNORECASE)
_OOM: Final = re.compile(r"\boom\b|out[- ]of[- ]memory", re.IGNORECASE)
_RESTART: Final = re.compile(r"restart\w*[^.]*(cache|pod|server|engine|clear)|clear[^.]*cache", re.IGNORECASE)
_EFFICIENCY: Final = re.compile(r"efficien|headroom|capacity|saturat|\bmfu\b", re.IGNORECASE)
#: words in a title → the signals that they may show
_TITLES: Final = (
    (
        re.compile(r"queue (time|latency|delay)|time in queue|waiting time", re.IGNORECASE),
        {"queue_seconds", "queue_mean_seconds"},
    ),
    (re.compile(r"\bttft\b|time to first token", re.IGNORECASE), {"ttft_seconds"}),
    (
        re.compile(r"\btpot\b|time per output token|inter[- ]token|\bitl\b", re.IGNORECASE),
        {"tpot_seconds", "itl_seconds"},
    ),
    (re.compile(r"\be2e\b|end[- ]to[- ]end", re.IGNORECASE), {"e2e_seconds"}),
    (re.compile(r"\bprefill (time|latency)", re.IGNORECASE), {"prefill_seconds"}),
    (re.compile(r"\bdecode (time|latency)", re.IGNORECASE), {"decode_seconds"}),
)
_LATENCIES: Final = frozenset(
    {
        "queue_seconds",
        "ttft_seconds",
        "tpot_seconds",
        "itl_seconds",
        "e2e_seconds",
        "prefill_seconds",
        "decode_seconds",
        "inference_seconds",
    }
)


def burn_at_one(query: Query, names: Names) -> Iterator[Finding]:
    """A page at the pace that is planned: burn 1 uses exactly the budget."""
    burns = re.search(r"burn|budget", " ".join((query.name, *names_in(query.tree))), re.IGNORECASE)
    if query.kind != "alert" or query.labels.get("severity", "").lower() not in PAGES or not burns:
        return
    for node in every(query.tree, BinaryExpr):
        if operator(node) not in (">", ">="):
            continue
        right = constant(node.rhs)
        burn_named = any("burn" in name.lower() for name in names_in(node.lhs)) or _is_burn(node.lhs)
        budget = bare(node.rhs)
        plain_budget = isinstance(budget, BinaryExpr) and operator(budget) == "-" and constant(budget.lhs) == 1
        if (burn_named and right is not None and right <= 1) or plain_budget:
            word = next(iter(names_in(node.lhs)), "")
            yield _found(
                query, word, "burn-at-one", "pages at a burn rate of 1, the pace that the objective allows",
                "page over 14.4 in 1h and 5m, or 6 in 6h and 30m; ticket for less",
            )  # fmt: skip


def _is_burn(node: Any) -> bool:
    """An error ratio divided by a budget that is written as 1 - objective."""
    node = bare(node)
    if not isinstance(node, BinaryExpr) or operator(node) != "/":
        return False
    below = bare(node.rhs)
    return isinstance(below, BinaryExpr) and operator(below) == "-" and constant(below.lhs) == 1


def full_cache_as_fault(query: Query, names: Names) -> Iterator[Finding]:
    """A full KV cache is normal under load: blocks are reused. It is no lack of memory and a restart only loses it."""
    for name in names_in(query.tree):
        if names.signal(name) == "kv_cache_used_ratio" and (_OOM.search(query.words) or _RESTART.search(query.words)):
            yield _found(
                query, name, "kv-full-as-oom", "a full KV cache is taken for a lack of memory, or a restart is advised",
                "alert on preemptions and waiting requests; never restart to clear the cache",
            )  # fmt: skip


def memory_advice(query: Query, names: Names) -> Iterator[Finding]:
    """Less memory for the engine means fewer KV blocks and more preemptions; more of it means a run-time OOM sooner."""
    said = query.words
    preempts = _PREEMPTION.search(said) or any(
        names.signal(name) == "preemptions_total" for name in names_in(query.tree)
    )
    if preempts and _DOWN.search(said):
        yield _found(
            query, "", "memory-advice", "lowering the memory fraction makes preemptions worse: fewer KV blocks",
            "lower max_num_seqs, cap max_tokens, or add replicas",
        )  # fmt: skip
    if _OOM.search(said) and _UP.search(said):
        yield _found(
            query, "", "memory-advice", "raising the memory fraction makes an out-of-memory at run time more likely",
            "lower it, or shorten max_num_batched_tokens",
        )  # fmt: skip


def title_mismatch(query: Query, names: Names) -> Iterator[Finding]:
    """The title promises one latency and the query shows another."""
    signals = {name: names.signal(name) for name in names_in(query.tree)}
    shown = {signal for signal in signals.values() if signal in _LATENCIES}
    wanted = [allowed for pattern, allowed in _TITLES if pattern.search(query.name)]
    if query.kind == "record" or not shown or not wanted or shown & set[str]().union(*wanted):
        return
    name = next(name for name, signal in signals.items() if signal in shown)
    yield _found(
        query, name, "title-mismatch", f"the title speaks of something else than '{name}' ({', '.join(sorted(shown))})",
        "correct the title, or query the signal that it names",
    )  # fmt: skip


def busy_as_efficiency(query: Query, names: Names) -> Iterator[Finding]:
    """GPU busy says that a kernel ran, not that it did useful work: an engine is at 100 % with one request."""
    for name in names_in(query.tree):
        if names.signal(name) == "gpu_utilisation_ratio" and _EFFICIENCY.search(query.words):
            yield _found(
                query, name, "busy-as-efficiency", f"'{name}' says that the GPU was busy, not how well it is used",
                "show tokens per second per GPU, or tensor and memory-bandwidth activity",
            )  # fmt: skip


def up_without_absent(queries: Sequence[Query]) -> Iterator[Finding]:
    """A target that discovery lost has no ``up``: ``up == 0`` is silent, and the page never comes."""
    alerts = [query for query in queries if query.kind == "alert"]
    if any(_looks_for_absent_up(query.tree) for query in alerts):
        return
    for query in alerts:
        if any(
            names_in(node) == ("up",) and sign in COMPARES and number in (0, 1)
            for node, sign, number in comparisons(query.tree)
        ):
            yield _found(
                query, "up", "up-without-absent", "'up == 0' says nothing of targets that are gone altogether",
                "add: or absent(up{…})",
            )  # fmt: skip


def _looks_for_absent_up(tree: Any) -> bool:
    calls = (node for node in walk(tree) if isinstance(node, Call) and node.func.name in {"absent", "absent_over_time"})
    return any(name_of(selector) == "up" for call in calls for selector in every(call, VectorSelector))


def _found(query: Query, word: str, code: str, text: str, mend: str) -> Finding:
    return Finding(query.path, query.line_of(word), code, f"{query.name}: {text}", mend)

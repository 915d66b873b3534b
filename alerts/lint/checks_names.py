"""Mistakes in names: another version's, a counter without its suffix, a gauge taken for a counter."""

from collections.abc import Iterator

from promql_parser import MatrixSelector, VectorSelector

from alerts.lint.names import Names, newest
from alerts.lint.tree import (
    COUNTER_FUNCTIONS,
    bare,
    comparisons,
    every,
    instant_names,
    is_call,
    name_of,
    names_in,
    walk,
)
from alerts.lint.values import Finding, Query


def missing_total(query: Query, names: Names) -> Iterator[Finding]:
    """A counter without ``_total``: the series does not exist, so the alert never fires."""
    for name in names_in(query.tree):
        full = names.bare_counters.get(name)
        if full:
            yield _found(
                query, name, "missing-total", f"'{name}' is a counter and on the wire '{full}'", f"write {full}"
            )


def unknown_name(query: Query, names: Names) -> Iterator[Finding]:
    """A name with an engine's prefix that no version of it has."""
    for name in names_in(query.tree):
        engine = names.engine_of(name)
        if engine is None or not engine.names or name in names.known or name in names.bare_counters:
            continue
        close = names.close_to(name)
        mend = f"did you mean {close}?" if close else f"see the series of {engine.title}"
        yield _found(query, name, "unknown-name", f"no version of {engine.title} has '{name}'", mend)


def dead_name(query: Query, names: Names) -> Iterator[Finding]:
    """A name that the engine's newest version (or the one that is pinned) does not have, without the one that it has.

    Beside the living name, joined by ``or``, it is how a rule copes with both.
    """
    here = set(names_in(query.tree))
    for name in here:
        gone = names.dead(name)
        if gone is None:
            continue
        living = names.successors(gone.signal, gone.engine)
        if here.intersection(living):
            continue
        engine = names.engines[gone.engine]
        version = names.versions.get(gone.engine) or newest(engine)
        since = f"is there until {gone.until}" if gone.until else f"is there from {gone.since} on"
        mend = f"write {living[0]}" if living else "remove it, or pin the version that has it"
        text = f"{engine.title} {version} has no '{name}', which {since}"
        yield _found(query, name, "dead-name", text, mend)


def gauge_rate(query: Query, names: Names) -> Iterator[Finding]:
    """rate() of a gauge: every fall is taken for a reset."""
    for call in walk(query.tree):
        if not is_call(call, *COUNTER_FUNCTIONS):
            continue
        for selector in every(call, VectorSelector):
            name = name_of(selector)
            known = names.of(name)
            if known and known.wire == "gauge":
                function = bare(call).func.name
                yield _found(
                    query, name, "gauge-rate", f"{function}() of '{name}', a gauge: each fall looks like a restart",
                    "use deriv(), delta() or avg_over_time()",
                )  # fmt: skip


def lifetime_counter(query: Query, names: Names) -> Iterator[Finding]:
    """A counter since start, compared or shown as if it were the present."""
    shown = " ".join(query.words.lower().split())
    compared = [node for node, _, _ in comparisons(query.tree)] if query.kind == "alert" else []
    if query.kind == "panel" and not any(word in shown for word in ("total", "since", "lifetime", "ever")):
        compared = [query.tree]
    for name in dict.fromkeys(name for node in compared for name in instant_names(node)):
        known = names.of(name)
        counter = known.wire == "counter" if known else name.endswith("_total")
        if counter:
            yield _found(
                query, name, "lifetime-counter", f"'{name}' counts since the process began; its value says nothing of now",
                f"use increase({name}[5m]) or rate()",
            )  # fmt: skip


def short_window(query: Query, scrape_interval_s: float) -> Iterator[Finding]:
    """A range that holds fewer than two scrapes gives no result, or one by luck."""
    for selector in every(query.tree, MatrixSelector):
        length_s = selector.range.total_seconds()
        if length_s < 2 * scrape_interval_s:
            name = name_of(selector.vector_selector)
            yield _found(
                query, name, "short-window",
                f"a range of {length_s:g} s holds fewer than two scrapes of {scrape_interval_s:g} s",
                f"write at least [{4 * scrape_interval_s:g}s]",
            )  # fmt: skip


def _found(query: Query, word: str, code: str, text: str, mend: str) -> Finding:
    return Finding(query.path, query.line_of(word), code, f"{query.name}: {text}", mend)

"""Mistakes in arithmetic: since-start means, ratios that do not match, fractions that are added, units that differ."""

import re
from collections.abc import Iterator
from typing import Any, Final

from promql_parser import AggregateExpr, BinaryExpr, Call, VectorSelector

from alerts.lint.names import Known, Names
from alerts.lint.tree import (
    RATES,
    SETS,
    bare,
    comparisons,
    constant,
    every,
    instant_names,
    is_call,
    is_series,
    kept_labels,
    name_of,
    names_in,
    operator,
    walk,
)
from alerts.lint.values import Finding, Query

_FRACTION: Final = re.compile(r"_(ratio|perc|percent|percentage|utili[sz]ation|usage_ratio)$")
_CAPACITY: Final = re.compile(r"num_gpu_blocks|kv_cache_size|max_total_num_tokens|kv.*(blocks|tokens|capacity)")
_MODEL_LENGTH: Final = re.compile(r"max_model_len|max_seq_len|context_len|max_position|model_len")
_HIT: Final = re.compile(r"hit|cache", re.IGNORECASE)
_TIME: Final = re.compile(r"time|latency|queue|delay|wait|duration", re.IGNORECASE)


def lifetime_average(query: Query, names: Names) -> Iterator[Finding]:
    """Sum / count of a histogram without a range: the mean since the process began."""
    for node in _divisions(query.tree):
        below = {name.removesuffix("_count") for name in instant_names(node.rhs) if name.endswith("_count")}
        for name in instant_names(node.lhs):
            if name.endswith("_sum") and name.removesuffix("_sum") in below:
                family = name.removesuffix("_sum")
                yield _found(
                    query, name, "lifetime-average", f"'{name}' over its count is the mean since the process began",
                    f"write rate({family}_sum[5m]) / rate({family}_count[5m])",
                )  # fmt: skip


def sum_rate(query: Query, names: Names) -> Iterator[Finding]:
    """Rate of a sum of seconds is seconds per second, not the time of one request."""
    divided = {id(found) for node in _divisions(query.tree) for found in walk(node.lhs)}
    if not (_TIME.search(query.name) or query.unit in ("s", "ms", "dtdurations")):
        return
    for call in every(query.tree, Call):
        if call.func.name not in RATES or id(call) in divided:
            continue
        for name in names_in(call):
            if re.search(r"(seconds|time|latency|_ms)\w*_sum$", name):
                family = name.removesuffix("_sum")
                yield _found(
                    query, name, "sum-rate-as-latency", f"{call.func.name}() of '{name}' is seconds per second of all requests",
                    f"divide by rate({family}_count[5m])",
                )  # fmt: skip


def mismatched_labels(query: Query, names: Names) -> Iterator[Finding]:
    """Two sides that keep different labels match nothing, or not what was meant."""
    for node in every(query.tree, BinaryExpr):
        matched = node.modifier is not None and node.modifier.matching is not None
        if operator(node) in SETS or matched or constant(node.lhs) is not None or constant(node.rhs) is not None:
            continue
        left, right = kept_labels(node.lhs), kept_labels(node.rhs)
        raw = (left is None and is_series(node.lhs), right is None and is_series(node.rhs))
        if (
            (left is not None and right is not None and left != right)
            or (raw[0] and right is not None)
            or (raw[1] and left is not None)
        ):
            sides = f"the left side has {_labels(left)}, the right side {_labels(right)}"
            word = next(iter(names_in(node)), "")
            yield _found(
                query, word, "mismatched-labels", f"'{operator(node)}': {sides}, so nothing matches",
                "aggregate both by the same labels, or write on (…)",
            )  # fmt: skip


def _labels(labels: frozenset[str] | None) -> str:
    return "all labels of the series" if labels is None else f"({', '.join(sorted(labels))})" if labels else "no labels"


def sum_of_fractions(query: Query, names: Names) -> Iterator[Finding]:
    """Fractions of different wholes do not add up."""
    for node in every(query.tree, AggregateExpr):
        name = _level_name(node.expr)
        if operator(node) == "sum" and name and _is_fraction(name, names):
            yield _found(
                query, name, "sum-of-fractions", f"sum() of '{name}', which is a share: shares do not add up",
                "use max() or avg(), or divide summed counts",
            )  # fmt: skip


def _is_fraction(name: str, names: Names) -> bool:
    known = names.of(name)
    return known.is_ratio if known and known.signal else bool(_FRACTION.search(name))


def _level_name(node: Any) -> str:
    """The name of a level that is aggregated or averaged over time and not changed otherwise; "" for anything else."""
    node = bare(node)
    if isinstance(node, VectorSelector):
        return name_of(node)
    if isinstance(node, AggregateExpr) and operator(node) in {"avg", "max", "min", "quantile"}:
        return _level_name(node.expr)
    if isinstance(node, Call) and node.func.name in {
        "avg_over_time",
        "max_over_time",
        "min_over_time",
        "last_over_time",
    }:
        return _level_name(node.args[-1].vector_selector) if hasattr(node.args[-1], "vector_selector") else ""
    return ""


def fraction_as_percent(query: Query, names: Names) -> Iterator[Finding]:
    """A share 0..1 against a threshold in per cent, or the other way round."""
    marks = [(node, number) for node, _, number in comparisons(query.tree)]
    marks += [(query.tree, number) for number in query.thresholds]
    for node, number in marks:
        known = _level(node, names)
        if known is None:
            continue
        if known.scale == 1 and abs(number) > 1.5:
            text, mend = (
                f"'{known.name}' is a share from 0 to 1 and is compared with {number:g}",
                f"write {number / 100:g}",
            )
        elif known.scale == 0.01 and 0 < abs(number) < 1:
            text, mend = f"'{known.name}' is in per cent and is compared with {number:g}", f"write {number * 100:g}"
        else:
            continue
        yield _found(query, known.name, "fraction-as-percent", text, mend)
    known = _level(query.tree, names)
    if known and query.kind == "panel" and known.scale == 1 and query.unit == "percent":
        text = f"'{known.name}' is a share from 0 to 1 and is shown in the unit percent (0-100)"
        yield _found(query, known.name, "fraction-as-percent", text, "use the unit percentunit (0.0-1.0)")


def _level(node: Any, names: Names) -> Known | None:
    known = names.of(_level_name(node))
    return known if known and known.is_ratio else None


def kv_over_model_length(query: Query, names: Names) -> Iterator[Finding]:
    """KV capacity over the longest request that is allowed: requests are shorter, so the answer is far too low."""
    for node in _divisions(query.tree):
        above = [name for name in names_in(node.lhs) if names.signal(name) in _KV_SIGNALS or _CAPACITY.search(name)]
        if above and _MODEL_LENGTH.search(str(node.rhs.prettify())):
            yield _found(
                query, above[0], "kv-over-model-length",
                f"'{above[0]}' is divided by the model's longest context: real requests are shorter",
                "divide by the mean length of requests (prompt and output tokens over requests)",
            )  # fmt: skip


_KV_SIGNALS: Final = frozenset({"kv_cache_capacity_tokens", "kv_blocks"})


def sparse_ratio(query: Query, names: Names) -> Iterator[Finding]:
    """A hit ratio of a few requests at night is noise: without a least amount the alert cries wolf."""
    if query.kind != "alert" or any(operator(node) == "and" for node in every(query.tree, BinaryExpr)):
        return
    for node, sign, _ in comparisons(query.tree):
        for division in _divisions(node):
            guarded = any(o in (">", ">=") and n > 0 for _, o, n in comparisons(division.rhs))
            hits = [name for name in names_in(division.lhs) if _HIT.search(name)]
            if hits and sign in ("<", "<=") and not guarded and is_rate(division.lhs) and is_rate(division.rhs):
                yield _found(
                    query, hits[0], "sparse-ratio", f"the ratio of '{hits[0]}' has no least amount: a few requests trip it",
                    "add: and on () (sum(increase(QUERIES[30m])) > 100000)",
                )  # fmt: skip


def is_rate(node: Any) -> bool:
    """Whether it is made of increases."""
    return any(is_call(found, *RATES) for found in walk(node))


def absent_as_zero(query: Query, names: Names) -> Iterator[Finding]:
    """``or vector(0)`` makes a lost series look like a zero."""
    for node in every(query.tree, BinaryExpr):
        right = bare(node.rhs)
        if operator(node) == "or" and is_call(right, "vector") and constant(right.args[0]) is not None:
            word = next(iter(names_in(node.lhs)), "")
            yield _found(
                query, word, "absent-as-zero", f"'or vector({constant(right.args[0]):g})' turns a missing series into a number",
                "leave it out and alert on absent(), or write: or 0 * TOTAL",
            )  # fmt: skip


def _divisions(node: Any) -> Iterator[Any]:
    return (found for found in every(node, BinaryExpr) if operator(found) == "/")


def _found(query: Query, word: str, code: str, text: str, mend: str) -> Finding:
    return Finding(query.path, query.line_of(word), code, f"{query.name}: {text}", mend)

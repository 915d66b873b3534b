"""Mistakes with quantiles: averaged, without le, read at the edge of their buckets, or against bounds that are not there."""

import re
from collections.abc import Iterator
from typing import Any, Final

from promql_parser import AggregateExpr, Call, MatchOp, VectorSelector

from alerts.lint.names import Names
from alerts.lint.tree import bare, comparisons, every, is_call, name_of, names_in, operator
from alerts.lint.values import Finding, Query

_QUANTILE_NAME: Final = re.compile(r"(^|[_:])(p\d{2,3}|quantile|percentile)([_:]|$)", re.IGNORECASE)


def averaged_quantile(query: Query, names: Names) -> Iterator[Finding]:
    """The mean (or sum) of quantiles is no quantile of anything."""
    for node in _means(query.tree):
        inner = node.expr if isinstance(node, AggregateExpr) else node.args[-1]
        if is_call(inner, "histogram_quantile") or any(
            True for c in every(inner, Call) if c.func.name == "histogram_quantile"
        ):
            yield _found(
                query, "histogram_quantile", "averaged-quantile", "quantiles are averaged or added up",
                "add up the buckets first: histogram_quantile(q, sum by (le) (rate(…)))",
            )  # fmt: skip
            continue
        for name in names_in(inner):
            if _QUANTILE_NAME.search(name) or _has_quantile_label(inner):
                yield _found(
                    query, name, "averaged-quantile", f"'{name}' is a quantile and is averaged or added up",
                    "take max(), or go back to the buckets",
                )  # fmt: skip


def _means(tree: Any) -> Iterator[Any]:
    for node in every(tree, AggregateExpr | Call):
        if (isinstance(node, AggregateExpr) and operator(node) in {"avg", "sum"}) or (
            isinstance(node, Call) and node.func.name in {"avg_over_time", "sum_over_time"}
        ):
            yield node


def _has_quantile_label(node: Any) -> bool:
    return any(m.name == "quantile" for s in every(node, VectorSelector) for m in s.matchers.matchers)


def quantile_without_le(query: Query, names: Names) -> Iterator[Finding]:
    """histogram_quantile over buckets that were added up without keeping le."""
    for call in _quantiles(query.tree):
        aggregated = bare(call.args[1])
        bucket = next((name for name in names_in(aggregated) if name.endswith("_bucket")), "")
        if not isinstance(aggregated, AggregateExpr) or not bucket:
            continue
        labels = list(aggregated.modifier.labels) if aggregated.modifier is not None else []
        keeps = aggregated.modifier is not None and ("by" in str(aggregated.modifier.type).lower()) == ("le" in labels)
        if not keeps:
            yield _found(
                query, bucket, "quantile-without-le", f"the buckets of '{bucket}' are added up without keeping le",
                "write sum by (le) (…)",
            )  # fmt: skip


def quantile_at_edge(query: Query, names: Names) -> Iterator[Finding]:
    """A threshold that a quantile from these buckets cannot pass, or always passes, or passes by interpolation."""
    marks = [(node, number) for node, _, number in comparisons(query.tree)]
    marks += [(query.tree, number) for number in query.thresholds]
    for node, number in marks:
        for call in _quantiles(node) if is_call(node, "histogram_quantile") else ():
            for name in names_in(call):
                bounds = names.bounds(name.removesuffix("_bucket"))
                if bounds and name.endswith("_bucket") and number > 0:
                    yield from _at(query, name, bounds, number)


def _at(query: Query, name: str, bounds: tuple[float, ...], number: float) -> Iterator[Finding]:
    near = ", ".join(f"{bound:g}" for bound in sorted(bounds, key=lambda bound: abs(bound - number))[:3])
    share = f"alert on the share of requests within a bound (le) instead; near ones are {near}"
    if number > bounds[-1]:
        text = f"the threshold {number:g} is above the top bucket ({bounds[-1]:g}) of '{name}': it is never reached"
        yield _found(query, name, "above-top-bucket", text, share)
    elif number == bounds[-1]:
        text = f"a quantile of '{name}' stops at its top bucket ({bounds[-1]:g}): it is never above"
        yield _found(query, name, "quantile-at-edge", text, share)
    elif number <= bounds[0]:
        text = f"the threshold {number:g} lies in the first bucket of '{name}' (to {bounds[0]:g}), where quantiles are made up"
        yield _found(query, name, "quantile-at-edge", text, share)
    elif number not in bounds:
        text = f"the threshold {number:g} lies inside a bucket of '{name}', where the quantile is interpolated"
        yield _found(query, name, "quantile-at-edge", text, share)


def bucket_that_is_not_there(query: Query, names: Names) -> Iterator[Finding]:
    """A bucket chosen by a bound that the histogram does not have: the selector is empty."""
    for selector in every(query.tree, VectorSelector):
        name = name_of(selector)
        bounds = names.bounds(name.removesuffix("_bucket"))
        for matcher in selector.matchers.matchers if bounds and name.endswith("_bucket") else ():
            number = _number(matcher.value)
            if matcher.name != "le" or number is None or matcher.op not in (MatchOp.Equal, MatchOp.Re):
                continue
            if number not in bounds:
                near = ", ".join(f"{b:g}" for b in sorted(bounds, key=lambda b: abs(b - number))[:3])
                code = "above-top-bucket" if number > bounds[-1] else "no-such-bucket"
                yield _found(
                    query, name, code, f"'{name}' has no bucket le=\"{matcher.value}\"", f"choose a bound: {near}"
                )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value != float("inf") else None


def _quantiles(node: Any) -> Iterator[Any]:
    return (call for call in every(node, Call) if call.func.name == "histogram_quantile")


def _found(query: Query, word: str, code: str, text: str, mend: str) -> Finding:
    return Finding(query.path, query.line_of(word), code, f"{query.name}: {text}", mend)

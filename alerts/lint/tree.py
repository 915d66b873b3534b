"""Expressions as trees: what they contain, what they compare, what labels they keep."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    MatchOp,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
    parse,
)

SETS: Final = frozenset({"and", "or", "unless"})
COMPARES: Final = frozenset({">", "<", ">=", "<=", "==", "!="})
RATES: Final = frozenset({"rate", "increase", "irate"})
#: functions over a range that want a counter
COUNTER_FUNCTIONS: Final = RATES | {"resets"}
_RANGE_VARIABLE: Final = re.compile(r"\[\$\{?\w+(?::\w+)?\}?")
_VARIABLE: Final = re.compile(r"\$\{?(\w+)(?::\w+)?\}?|\[\[(\w+)\]\]")
_OPERATOR: Final = re.compile(r"[-+*/%^]|\b(?:and|or|unless)\b|[<>=!]=?")
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')


#: the parser recurses without a limit of its own: what is deeper would end the process
_DEEPEST: Final = 200
_LONGEST: Final = 20_000


def parsed(expr: str) -> Any:
    """The tree of an expression, Grafana's variables replaced by what they stand for; raises ``ValueError``."""
    text = plain(expr)
    if len(text) > _LONGEST or _depth(text) > _DEEPEST or len(_OPERATOR.findall(text)) > _DEEPEST * 5:
        raise ValueError("too long or nested too deeply; split it with recording rules")
    return parse(text)


def _depth(text: str) -> int:
    deepest = at = 0
    for char in text:
        at += (char in "([{") - (char in ")]}")
        deepest = max(deepest, at)
    return deepest


def plain(expr: str) -> str:
    """The expression without variables of Grafana: five minutes for a range, a name for anything else.

    Examples
    --------
    >>> plain('rate(x{job="$job"}[$__rate_interval])'), plain("topk($k, sum by ($by) (x))")
    ('rate(x{job="$job"}[5m])', 'topk(1, sum by (by) (x))')
    """
    text = _RANGE_VARIABLE.sub("[5m", expr)
    pieces = _STRING.split(text)
    strings = _STRING.findall(text)
    clean = [_VARIABLE.sub(_stand_in, piece) for piece in pieces]
    return "".join(part for pair in zip(clean, [*strings, ""], strict=True) for part in pair)


def _stand_in(found: re.Match[str]) -> str:
    """A label inside by (…), else a number."""
    before = found.string[: found.start()]
    grouping = re.search(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^()]*$", before)
    return (found[1] or found[2]) if grouping else "5m" if re.search(r"[:\[]$|offset\s*$", before) else "1"


def children(node: Any) -> tuple[Any, ...]:
    """What an expression is made of, in order."""
    if isinstance(node, BinaryExpr):
        return (node.lhs, node.rhs)
    if isinstance(node, AggregateExpr):
        return (node.expr,) if node.param is None else (node.param, node.expr)
    if isinstance(node, Call):
        return tuple(node.args)
    if isinstance(node, ParenExpr | UnaryExpr | SubqueryExpr):
        return (node.expr,)
    return (node.vector_selector,) if isinstance(node, MatrixSelector) else ()


def walk(node: Any) -> Iterator[Any]:
    """The node and all that is in it."""
    yield node
    for child in children(node):
        yield from walk(child)


def every(node: Any, kind: Any) -> Iterator[Any]:
    """All nodes of a type (or of one of several)."""
    return (found for found in walk(node) if isinstance(found, kind))


def bare(node: Any) -> Any:
    """The node without parentheses around it."""
    while isinstance(node, ParenExpr):
        node = node.expr
    return node


def name_of(selector: Any) -> str:
    """Metric name of a selector; "" when it has none."""
    if selector.name:
        return str(selector.name)
    return next((m.value for m in selector.matchers.matchers if m.name == "__name__" and m.op == MatchOp.Equal), "")


def names_in(node: Any) -> tuple[str, ...]:
    """Metric names in order of appearance, each once."""
    return tuple(dict.fromkeys(name for s in every(node, VectorSelector) if (name := name_of(s))))


def instant_names(node: Any) -> tuple[str, ...]:
    """Names that are read as they are now, not over a range and not merely counted or looked for."""
    node = bare(node)
    if isinstance(node, VectorSelector):
        return (name_of(node),)
    if isinstance(node, SubqueryExpr) and isinstance(bare(node.expr), VectorSelector):
        return ()
    if isinstance(node, MatrixSelector) or (isinstance(node, Call) and node.func.name in {"absent", "changes"}):
        return ()
    if isinstance(node, AggregateExpr) and operator(node) in {"count", "group"}:
        return ()
    return tuple(name for child in children(node) for name in instant_names(child))


def operator(node: Any) -> str:
    """Operator of a binary expression or an aggregation, as it is written."""
    return str(node.op).strip()


def is_call(node: Any, *functions: str) -> bool:
    """Whether the node is a call of one of the functions."""
    node = bare(node)
    return isinstance(node, Call) and node.func.name in functions


def comparisons(node: Any) -> Iterator[tuple[Any, str, float]]:
    """(what is compared, operator, number) of every comparison with a constant; numbers are put on the right."""
    mirrored = {">": "<", "<": ">", ">=": "<=", "<=": ">="}
    for found in every(node, BinaryExpr):
        if operator(found) not in COMPARES:
            continue
        left, right = constant(found.lhs), constant(found.rhs)
        if right is not None and left is None:
            yield bare(found.lhs), operator(found), right
        elif left is not None and right is None:
            yield bare(found.rhs), mirrored.get(operator(found), operator(found)), left


def constant(node: Any) -> float | None:
    """The value of an expression made of numbers only, else None."""
    node = bare(node)
    if isinstance(node, NumberLiteral):
        return float(node.val)
    if isinstance(node, UnaryExpr):
        inner = constant(node.expr)
        return None if inner is None else -inner
    if not isinstance(node, BinaryExpr):
        return None
    left, right = constant(node.lhs), constant(node.rhs)
    if left is None or right is None:
        return None
    made = {"+": left + right, "-": left - right, "*": left * right, "/": left / right if right else None}
    return made.get(operator(node))


def kept_labels(node: Any) -> frozenset[str] | None:
    """Labels of the result where an aggregation fixes them; None where the series' own remain or nobody can tell."""
    node = bare(node)
    if isinstance(node, AggregateExpr):
        modifier = node.modifier
        if modifier is None:
            return frozenset()
        return frozenset(modifier.labels) if "by" in str(modifier.type).lower() else None
    if isinstance(node, BinaryExpr):
        if operator(node) in SETS or constant(node.lhs) is not None:
            return kept_labels(node.rhs) if constant(node.lhs) is not None else None
        return kept_labels(node.lhs)
    if isinstance(node, Call) and node.args and node.func.name in {"clamp_min", "clamp_max", "clamp", "round", "abs"}:
        return kept_labels(node.args[0])
    return None


def is_series(node: Any) -> bool:
    """Whether the result has the series' own labels: a selector, or a function over one."""
    node = bare(node)
    if isinstance(node, VectorSelector):
        return True
    return isinstance(node, Call) and any(isinstance(bare(arg), MatrixSelector) for arg in node.args)


def seconds(length: timedelta | None) -> float | None:
    """A range in seconds."""
    return None if length is None else length.total_seconds()

"""What is wrong with a board as Grafana's dashboard-linter sees it, and a few rules of our own.

The names of the first group are dashboard-linter's, so that one list of exclusions serves both.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import promql_parser
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)

Document = Mapping[str, Any]

_COUNTING: Final = frozenset({"rate", "irate", "increase", "resets"})
_RANGE: Final = re.compile(r"\[(\$\{?\w+\}?)")
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_]\w*)(?:[:.][\w.\[\]]+)?\}?")
#: variables that Grafana fills in links
_BUILT_IN: Final = re.compile(
    r"__(?:url_time_range|all_variables|field|data|value|series|from|to|rate_interval|interval|range)"
)
_SCHEMAS: Final = range(39, 43)
_UID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_OWN_TAGS: Final = frozenset({"engine", "gpu"})
_SCOPED: Final = (
    "goodwatch's series keep the service and the target of what they speak of; its own job and instance say nothing"
)
#: rule → reason why boards of goodwatch's own series are excused from it
EXCUSED: Final[Mapping[str, str]] = dict.fromkeys(
    ("template-job-rule", "template-instance-rule", "target-job-rule", "target-instance-rule"), _SCOPED
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One finding: board, panel ("" for the board), rule, what is wrong, how to mend it."""

    board: str
    panel: str
    rule: str
    text: str
    mend: str

    def __str__(self) -> str:
        where = f"{self.board}: {self.panel}" if self.panel else self.board
        return f"{where}: {self.text}; {self.mend} [{self.rule}]"


def lint_board(
    board: Document, known: frozenset[str] = frozenset(), gauges: frozenset[str] = frozenset()
) -> list[Fault]:
    """Faults of one document.

    ``known`` are names that goodwatch's own series and rules may have (empty: any); ``gauges`` are series that are no
    counters in spite of a name that ends in ``_total``.
    """
    uid = str(board.get("uid") or board.get("title") or "a board without uid")
    found = [Fault(uid, "", *said) for check in _BOARD_CHECKS for said in check(board)]
    for panel in panels_of(board):
        title = str(panel.get("title") or "a panel without title")
        found += [Fault(uid, title, *said) for check in _PANEL_CHECKS for said in check(panel, board)]
        for target in panel.get("targets", ()):
            found += [Fault(uid, title, *said) for said in _target(str(target.get("expr") or ""), board, known, gauges)]
    return found


def excused(board: Document, rule: str) -> bool:
    """Whether the rule does not hold for the board."""
    return rule in EXCUSED and not _OWN_TAGS.intersection(board.get("tags", ()))


def panels_of(board: Document) -> Iterator[Mapping[str, Any]]:
    """Panels without rows; those of collapsed rows too."""
    for panel in board.get("panels", ()):
        if panel.get("type") == "row":
            yield from panel.get("panels", ())
        else:
            yield panel


_Said = tuple[str, str, str]


# --- the board --------------------------------------------------------------------------------------------------------


def _variables(board: Document) -> dict[str, Mapping[str, Any]]:
    return {str(v.get("name")): v for v in board.get("templating", {}).get("list", ())}


def _data_source(board: Document) -> Iterator[_Said]:
    one = _variables(board).get("datasource")
    if one is None or one.get("type") != "datasource" or one.get("query") != "prometheus":
        yield "template-datasource-rule", "has no variable 'datasource' of type prometheus", "add it"


def _targets_picked(board: Document) -> Iterator[_Said]:
    for name in ("job", "instance"):
        rule = f"template-{name}-rule"
        one = _variables(board).get(name)
        fits = one and one.get("multi") and one.get("includeAll") and one.get("allValue") == ".+"
        if not fits and not excused(board, rule):
            yield rule, f"has no variable '{name}' for several values with allValue .+", "add it"


def _renewed(board: Document) -> Iterator[_Said]:
    for name, one in _variables(board).items():
        if one.get("type") == "query" and one.get("refresh") != 2:
            yield (
                "template-on-time-change-reload-rule",
                f"variable '{name}' is not renewed when the time changes",
                "set refresh 2",
            )


def _not_editable(board: Document) -> Iterator[_Said]:
    if board.get("editable") is not False:
        yield "uneditable-dashboard-rule", "can be edited, and the next build loses the edit", "set editable false"


def _classic(board: Document) -> Iterator[_Said]:
    if "elements" in board or board.get("schemaVersion") not in _SCHEMAS:
        yield (
            "classic-form",
            "is not classic JSON of schema version 39 to 42, which file provisioning needs",
            "build it anew",
        )
    if not _UID.fullmatch(str(board.get("uid") or "")):
        yield "stable-uid", "has no uid of 1 to 40 letters, digits, - or _", "give it one: links need it"
    if not board.get("description"):
        yield "panel-title-description-rule", "does not say which question it answers", "describe it"


def _ids(board: Document) -> Iterator[_Said]:
    ids = [panel.get("id") for panel in (*board.get("panels", ()), *panels_of(board))]
    if len({i for i in ids if i is not None}) < len({id(p) for p in (*board.get("panels", ()), *panels_of(board))}):
        yield "unique-ids", "has two panels of one id, so links lead to the wrong one", "number them apart"


def _places(board: Document) -> Iterator[_Said]:
    taken: set[tuple[int, int]] = set()
    for panel in board.get("panels", ()):
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        if taken & cells or at["x"] + at["w"] > 24:
            yield "no-overlap", f"'{panel.get('title')}' overlaps another panel or leaves the grid", "move it"
        taken |= cells


_BOARD_CHECKS: Final[tuple[Callable[[Document], Iterator[_Said]], ...]] = (
    _data_source, _targets_picked, _renewed, _not_editable, _classic, _ids, _places,
)  # fmt: skip


# --- panels -----------------------------------------------------------------------------------------------------------


def _told(panel: Document, board: Document) -> Iterator[_Said]:
    if not panel.get("title") or not panel.get("description"):
        yield (
            "panel-title-description-rule",
            "has no title or no description",
            "say what the number is and where it comes from",
        )


def _measured(panel: Document, board: Document) -> Iterator[_Said]:
    if panel.get("type") == "text":
        return
    defaults = panel.get("fieldConfig", {}).get("defaults", {})
    if not panel.get("targets"):
        yield "panel-no-targets-rule", "asks nothing", "give it a query"
    if not defaults.get("unit"):
        yield "panel-units-rule", "has no unit", "set one ('short' for a count)"
    if not defaults.get("noValue"):
        yield "no-value", "does not say what an empty panel means", "set noValue"
    for holder in (panel, *panel.get("targets", ())):
        if (holder.get("datasource") or {}).get("uid") != "${datasource}":
            yield "panel-datasource-rule", "does not use the data source that the reader picks", "write ${datasource}"
            return


def _linked(panel: Document, board: Document) -> Iterator[_Said]:
    config = panel.get("fieldConfig", {})
    links = [*config.get("defaults", {}).get("links", ())]
    links += [
        one for o in config.get("overrides", ()) for p in o["properties"] if p["id"] == "links" for one in p["value"]
    ]
    for link in links:
        for name in _VARIABLE.findall(str(link.get("url"))):
            if name not in _variables(board) and not _BUILT_IN.match(name):
                yield "link-variables", f"the link '{link.get('title')}' uses ${name}, which is not there", "correct it"


_PANEL_CHECKS: Final[tuple[Callable[[Document, Document], Iterator[_Said]], ...]] = (_told, _measured, _linked)


# --- queries ----------------------------------------------------------------------------------------------------------


def _target(expr: str, board: Document, known: frozenset[str], gauges: frozenset[str]) -> Iterator[_Said]:
    for name in _VARIABLE.findall(expr):
        if name not in _variables(board) and not _BUILT_IN.match(name):
            yield "target-variables", f"uses ${name}, which is not there", "add the variable"
    try:
        tree = promql_parser.parse(parsable(expr))
    except ValueError as error:
        yield "target-promql-rule", f"not PromQL: {str(error).splitlines()[0]}", "correct the expression"
        return
    yield from _ranges(tree, expr)
    yield from (said for name, said in _counters(tree, inside=False) if name not in gauges)
    yield from _divisions(tree)
    for selector in _every(tree, VectorSelector):
        yield from _matchers(selector, board)
        own = (selector.name or "").startswith("goodwatch")
        if known and own and selector.name not in known:
            yield "known-series", f"goodwatch has no series '{selector.name}'", "see docs/metrics.md"


def parsable(expr: str) -> str:
    """The expression with a range in place of Grafana's, and a word in place of other variables."""
    return _VARIABLE.sub("x", _RANGE.sub("[5m", expr))


def _ranges(tree: Any, expr: str) -> Iterator[_Said]:
    ranged = [call for call in _every(tree, Call) if call.func.name in _COUNTING]
    if len(ranged) > expr.count("[$__rate_interval]") + expr.count("[$__range]"):
        yield (
            "target-rate-interval-rule",
            "a rate has a fixed range, which misses scrapes or smears",
            "write [$__rate_interval]",
        )


def _counters(node: Any, *, inside: bool) -> Iterator[tuple[str, _Said]]:
    """Names of counters that are read as they are, and what to say of each."""
    if isinstance(node, VectorSelector) and (node.name or "").endswith("_total") and not inside:
        text = f"'{node.name}' is a counter and is shown since its start"
        yield str(node.name), ("target-counter-agg-rule", text, "use rate() or increase()")
    counting = inside or (isinstance(node, Call) and node.func.name in _COUNTING)
    for child in _children(node):
        yield from _counters(child, inside=counting)


def _divisions(tree: Any) -> Iterator[_Said]:
    for node in _every(tree, BinaryExpr):
        if str(node.op).strip() != "/":
            continue
        if not _positive(node.rhs):
            yield "guarded-division", "divides by something that can be 0", "write / ((…) > 0)"


def _positive(node: Any) -> bool:
    """Whether an expression gives no sample rather than 0."""
    if isinstance(node, ParenExpr):
        return _positive(node.expr)
    if isinstance(node, AggregateExpr):
        return str(node.op).strip() in ("count", "group") or _positive(node.expr)
    if isinstance(node, BinaryExpr):
        op = str(node.op).strip()
        if op == ">":
            return not (node.modifier and node.modifier.return_bool)
        sides = [_positive(node.lhs)] if op == "and" else [_positive(node.lhs), _positive(node.rhs)]
        return op in ("and", "or", "*", "+") and all(sides)
    if isinstance(node, VectorSelector):
        return node.name == "goodwatch:slo_budget:ratio"
    return isinstance(node, NumberLiteral)


def _matchers(selector: Any, board: Document) -> Iterator[_Said]:
    told = {matcher.name for matcher in selector.matchers.matchers}
    for name in ("job", "instance"):
        rule = f"target-{name}-rule"
        if name not in told and not excused(board, rule):
            yield rule, f"'{selector.name}' is not limited to the picked {name}", f'write {name}=~"${name}"'


def _every(node: Any, kind: type[Any]) -> Iterator[Any]:
    if isinstance(node, kind):
        yield node
    for child in _children(node):
        yield from _every(child, kind)


def _children(node: Any) -> tuple[Any, ...]:
    if isinstance(node, BinaryExpr):
        return (node.lhs, node.rhs)
    if isinstance(node, Call):
        return tuple(node.args)
    if isinstance(node, AggregateExpr | ParenExpr | UnaryExpr | SubqueryExpr):
        return (node.expr,)
    return (node.vector_selector,) if isinstance(node, MatrixSelector) else ()
